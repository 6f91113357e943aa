"""Landmark models: how many parameters and tokens, when, and who says so."""

from dataclasses import dataclass

from distgen_lab import scale

__all__ = ["LANDMARKS", "Landmark"]


@dataclass(frozen=True)
class Landmark:
    """A published (or, where ``reported`` is False, leaked) model.

    Attributes:
        name, year: the model and the year it was made public.
        parameters: all of them; a mixture of experts counts every expert.
        active: parameters one token passes, where they are fewer (mixture of experts).
        tokens: training tokens, None where the publication counts otherwise.
        source: where the figures stand.
        published: False for figures that the makers never confirmed.
    """

    name: str
    year: int
    parameters: float
    tokens: float | None
    source: str
    published: bool = True
    active: float | None = None

    @property
    def training_flops(self) -> float | None:
        """6ND in FLOP with the parameters one token passes; None where the tokens are not known."""
        return scale.training_flops(self.active or self.parameters, self.tokens) if self.tokens else None


LANDMARKS: tuple[Landmark, ...] = (
    Landmark("BERT-Large", 2018, 340e6, None, "Devlin et al. 2018"),
    Landmark("GPT-2", 2019, 1.5e9, None, "Radford et al. 2019"),
    Landmark("GPT-3", 2020, 175e9, 300e9, "Brown et al. 2020, table 2.1"),
    Landmark("Chinchilla", 2022, 70e9, 1.4e12, "Hoffmann et al. 2022"),
    Landmark("GPT-4", 2023, 1.8e12, 13e12, "unofficial report of July 2023", False, 280e9),
    Landmark("Llama 3 405B", 2024, 405e9, 15.6e12, "Llama 3 model card and paper, 2024"),
)
"""In order of year."""
