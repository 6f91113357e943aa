"""Predict before you compute: keep a reader's guesses and show how far off they were.

A notebook makes one ``Guesses()``; before each answer stands a cell ``guess = None``, and the answer is shown with
``guesses.reveal(...)``. The last cell shows ``guesses.summary()``.
"""

import html
import math
from dataclasses import dataclass
from numbers import Real

from distgen_lab.units import duration, quantity

__all__ = ["Guesses", "Reveal", "Summary"]


def _show(value: float, unit: str) -> str:
    """A time in its best unit, a plain number for unit "" and anything else with an SI prefix."""
    if unit == "s":
        return duration(value)
    return quantity(value, unit) if unit else f"{value:.4g}"


MUCH = 1e6
"""A guess off by more than this was made in another unit."""


@dataclass(frozen=True)
class Reveal:
    """An answer beside the reader's guess (None: no guess was made)."""

    name: str
    guess: float | None
    answer: float
    unit: str

    @property
    def factor(self) -> float | None:
        """Guess over answer; None without a guess."""
        return None if self.guess is None or not self.answer else self.guess / self.answer

    def verdict(self) -> str:
        """Return how far off the guess is, in words."""
        if self.guess is None:
            return "no guess"
        if self.factor is None:
            return "too high"
        if abs(self.factor - 1) < 0.005:
            return "right"
        off = max(self.factor, 1 / self.factor)
        if off > MUCH:
            return f"far off: is your guess in {self.unit or 'the unit asked for'}?"
        size = f"{off:.1f} times" if off >= 2 else f"{abs(self.factor - 1):.0%}"
        return f"{size} too {'high' if self.factor > 1 else 'low'}"

    def __repr__(self) -> str:
        said = "" if self.guess is None else f" (you guessed {_show(self.guess, self.unit)}: {self.verdict()})"
        return f"{self.name}: {_show(self.answer, self.unit)}{said}"


def _is_positive(value: object) -> bool:
    """A positive real number that a float can hold."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < math.inf
    except OverflowError:
        return False


class Guesses:
    """The guesses of one reader in one notebook."""

    def __init__(self) -> None:
        self._kept: dict[str, Reveal] = {}

    def reveal(self, name: str, guess: float | None, answer: float, unit: str = "") -> Reveal:
        """Keep a guess and return it beside the answer.

        Args:
            name: what was asked.
            guess: a positive number in the unit asked for, or None.
            answer: the computed value, in the same unit.
            unit: SI base unit of both ("B", "FLOP", "s", ...), "" for a plain number.

        Raises:
            ValueError: if the guess is neither None nor a positive number.
        """
        if guess is not None and not _is_positive(guess):
            raise ValueError(f"guess is {guess!r:.60}; a positive number is needed, for example guess = 3e12, or None")
        self._kept[name] = Reveal(name, None if guess is None else float(guess), float(answer), unit)
        return self._kept[name]

    def summary(self) -> "Summary":
        """Return all guesses so far as a table."""
        return Summary(tuple(self._kept.values()))


@dataclass(frozen=True)
class Summary:
    """All guesses beside their answers; a table in a notebook and in a terminal."""

    reveals: tuple[Reveal, ...]

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return (question, guess, answer, verdict) in words."""
        guesses = [(r, "-" if r.guess is None else _show(r.guess, r.unit)) for r in self.reveals]
        return [(r.name, guess, _show(r.answer, r.unit), r.verdict()) for r, guess in guesses]

    def headline(self) -> str:
        """Return the typical factor by which the guesses are off."""
        factors = [max(r.factor, 1 / r.factor) for r in self.reveals if r.factor is not None]
        factors = [min(factor, MUCH) for factor in factors]
        if not factors:
            return f"No guesses yet: change `guess = None` in the {len(self.reveals)} guess cells and run again."
        typical = math.exp(sum(map(math.log, factors)) / len(factors))
        return f"{len(factors)} of {len(self.reveals)} guessed; typically off by a factor of {typical:.2f}."

    def __repr__(self) -> str:
        lines = [f"{name:<44} {guess:>14} {answer:>14}  {verdict}" for name, guess, answer, verdict in self.rows()]
        return "\n".join([self.headline(), *lines])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{text}</th>" for text in ("question", "your guess", "answer", "verdict"))
        cells = ("".join(f"<td>{html.escape(text)}</td>" for text in row) for row in self.rows())
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<p>{html.escape(self.headline())}</p><table><tr>{head}</tr>{body}</table>"
