"""How a training step is laid out: the batch, and how many devices stand along each axis."""

from dataclasses import dataclass
from numbers import Integral

from distgen_lab.models import ModelShape

__all__ = ["ATTENTION", "RECOMPUTE", "Batch", "Layout", "most_experts"]

RECOMPUTE = ("none", "selective", "full")
"""Activations that are computed again: none; attention's scores only; each layer from its input."""
ATTENTION = ("flash", "naive")
"""How attention is computed: with online softmax, or with the scores in memory."""


@dataclass(frozen=True)
class Batch:
    """The data of one step: so many sequences of ``context`` tokens.

    Raises:
        ValueError: for numbers that are not whole and positive.
    """

    sequences: int
    context: int

    def __post_init__(self) -> None:
        _whole(self, "sequences", "context")

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.sequences * self.context


@dataclass(frozen=True)
class Layout:
    """How a step is spread over devices and time.

    Attributes:
        data, tensor, pipe, context: devices along each axis; their product is all of them.
        expert: over how many devices the experts of a layer are spread; they are those of the data and context axes.
        stage: of ZeRO, 0 to 3, over the data and context axes.
        micro_batch: sequences that pass through the pipeline together.
        recompute: a word of :data:`RECOMPUTE`.
        chunks: groups of layers that a pipeline stage holds (interleaved 1F1B; 1: the plain schedule).
        sequence_parallel: whether what tensor parallelism leaves whole is cut by tokens (Korthikanti et al. 2022).
        attention: a word of :data:`ATTENTION`.
        overlap: whether data-parallel communication runs beside the computation.
        tensor_overlap: whether tensor-parallel communication runs beside the products it feeds, in as many pieces as
            there are devices; needs ``sequence_parallel``.
        precision: of the matrix products, e.g. "bf16" or "fp8".
        gradient_bytes: bytes of a gradient that is summed up and reduced: 4 or 2.

    Raises:
        ValueError: for numbers that are not whole and positive, or unknown words.
    """

    data: int = 1
    tensor: int = 1
    pipe: int = 1
    context: int = 1
    expert: int = 1
    stage: int = 1
    micro_batch: int = 1
    recompute: str = "selective"
    chunks: int = 1
    sequence_parallel: bool = True
    attention: str = "flash"
    overlap: bool = True
    tensor_overlap: bool = False
    precision: str = "bf16"
    gradient_bytes: int = 4

    def __post_init__(self) -> None:
        _whole(self, "data", "tensor", "pipe", "context", "expert", "micro_batch", "chunks", "gradient_bytes")
        for name, words in (("recompute", RECOMPUTE), ("attention", ATTENTION), ("stage", (0, 1, 2, 3))):
            if getattr(self, name) not in words:
                raise ValueError(f"{name} is {getattr(self, name)!r}; there are {', '.join(map(str, words))}")

    @property
    def devices(self) -> int:
        """data x tensor x pipe x context."""
        return self.data * self.tensor * self.pipe * self.context

    @property
    def replicas(self) -> int:
        """Devices that share the same weights: data x context."""
        return self.data * self.context

    def micro_batches(self, batch: Batch) -> int:
        """Return how many micro-batches pass through one pipeline in a step."""
        return batch.sequences // (self.data * self.micro_batch)

    def misfit(self, model: ModelShape, devices: int, batch: Batch) -> str:
        """Return "" if the layout divides what it cuts, else one sentence that names what it does not divide."""
        return next((words for wrong, words in self._rules(model, devices, batch) if wrong), "")

    def _rules(self, model: ModelShape, devices: int, batch: Batch) -> list[tuple[bool, str]]:
        p, heads, own = self.pipe * self.chunks, model.kv_heads or model.heads, self.data * self.micro_batch
        axes = f"data {self.data} x tensor {self.tensor} x pipe {self.pipe} x context {self.context}"
        most = most_experts(model)
        return [
            (bool(model.heads % self.tensor), _not_into(model.heads, "heads", "tensor", self.tensor)),
            (
                max(heads, self.tensor) % min(heads, self.tensor) > 0,
                _not_into(heads, "key and value heads", "tensor", self.tensor),
            ),
            (bool(model.layers % p), _not_into(model.layers, "layers", "pipe x chunks", p)),
            (self.chunks > 1 and self.pipe == 1, f"chunks is {self.chunks}, but there is no pipeline (pipe is 1)"),
            (bool(batch.sequences % own), _not_into(batch.sequences, "sequences", "data x micro_batch", own)),
            (
                self.chunks > 1 and bool(self.micro_batches(batch) % self.pipe),
                _not_into(self.micro_batches(batch), "micro-batches (interleaved)", "pipe", self.pipe),
            ),
            (
                bool(batch.context % (self.context * (self.tensor if self.sequence_parallel else 1))),
                _not_into(batch.context, "tokens of a sequence", "context x tensor", self.context * self.tensor),
            ),
            (self.expert > 1 and not most, f"expert is {self.expert}, but {model.name} has no experts"),
            (bool(most % self.expert), _not_into(most, "experts", "expert", self.expert)),
            (
                bool(self.replicas % self.expert),
                _not_into(self.replicas, "data x context devices", "expert", self.expert),
            ),
            (self.devices != devices, f"{axes} is {self.devices} devices, but the cluster has {devices}"),
        ]

    def __str__(self) -> str:
        """The axes longer than 1, then how memory is saved."""
        axes = [f"{n} {getattr(self, n)}" for n in ("data", "tensor", "pipe", "context") if getattr(self, n) > 1]
        extra = [f"expert {self.expert}"] if self.expert > 1 else []
        extra += [f"{self.chunks} chunks"] if self.chunks > 1 else []
        saved = f"ZeRO-{self.stage}, micro-batch {self.micro_batch}, recompute {self.recompute}"
        return ", ".join([" x ".join(axes) or "one device", *extra, saved])


def most_experts(model: ModelShape) -> int:
    """Return the routed experts of a layer, 0 without."""
    return max((w.copies for b in model.blocks for w in b.weights if w.active is not None), default=0)


def _not_into(count: int, what: str, axis: str, parts: int) -> str:
    """The sentence for something that does not divide."""
    return f"{count} {what} do not divide among {axis} = {parts}"


def _whole(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} is {value!r}; a whole number of at least 1 is needed")
