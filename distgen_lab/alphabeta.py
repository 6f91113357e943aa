"""The alpha-beta model of a message: a start-up time and a time per byte (Hockney 1994), and its fit to data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distgen_lab.units import duration, quantity

__all__ = ["Fit", "Link", "fit"]


@dataclass(frozen=True)
class Link:
    """A link in one direction: ``alpha`` seconds to start a message and ``beta`` seconds for each byte.

    Raises:
        ValueError: if alpha or beta is negative or not finite.
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} is {value}; a finite number of at least 0 is needed")

    def time(self, nbytes: float) -> float:
        """Return alpha + n beta in seconds (the chapter's *P2P*).

        >>> Link(alpha=1e-6, beta=1 / 50e9).time(50_000)
        2e-06
        """
        if not nbytes >= 0:
            raise ValueError(f"nbytes is {nbytes}; a number of at least 0 is needed")
        return self.alpha + nbytes * self.beta

    @property
    def bandwidth(self) -> float:
        """1 / beta in bytes/s; infinite for a link whose bytes cost nothing."""
        return 1 / self.beta if self.beta else math.inf

    @property
    def half_bandwidth_size(self) -> float:
        """alpha / beta in bytes: the message that reaches half the bandwidth (the chapter's N*)."""
        return self.alpha * self.bandwidth

    def __str__(self) -> str:
        return f"alpha {duration(self.alpha)}, {quantity(self.bandwidth, 'B/s')} per direction"


@dataclass(frozen=True)
class Fit:
    """A fitted link with its uncertainty and the range it was fitted on.

    Attributes:
        link: the fitted alpha and beta.
        alpha_error, beta_error: standard errors, in seconds and seconds per byte.
        smallest, largest: message sizes in bytes between which the line was fitted.
        mean_error, worst_error: relative differences between line and measurement.
    """

    link: Link
    alpha_error: float
    beta_error: float
    smallest: float
    largest: float
    mean_error: float
    worst_error: float

    def __str__(self) -> str:
        return (
            f"alpha {duration(self.link.alpha)} +- {duration(self.alpha_error, 2)}, {self._bandwidth()}, from "
            f"{quantity(self.smallest, 'B')} to {quantity(self.largest, 'B')} right to {self.mean_error:.0%} "
            f"on average, {self.worst_error:.0%} at worst; outside that range the line says nothing"
        )

    def _bandwidth(self) -> str:
        """The bandwidth with its error, or that the sizes are too small to tell it."""
        if not self.link.beta or self.beta_error > self.link.beta:
            return "bandwidth not told by messages this small"
        error = self.link.bandwidth * self.beta_error / self.link.beta
        return f"{quantity(self.link.bandwidth, 'B/s')} +- {quantity(error, 'B/s', 2)}"


def fit(sizes: Sequence[float], times: Sequence[float]) -> Fit:
    """Fit alpha and beta to measured times by least squares of the *relative* error, so that small messages count too.

    A start-up or byte time that would come out negative is held at 0 and the other is fitted alone.

    Raises:
        ValueError: for fewer than three measurements, unequal lengths, or a time that is not positive.
    """
    n, t = np.asarray(sizes, float), np.asarray(times, float)
    if n.shape != t.shape or n.ndim != 1 or len(n) < 3:
        raise ValueError(f"{len(n)} sizes and {len(t)} times; the same number of at least 3 is needed")
    if not (np.isfinite(t).all() and (t > 0).all() and (n >= 0).all()):
        raise ValueError("sizes must be at least 0 and times positive and finite")
    columns = np.stack([1 / t, n / t], axis=1)
    free = [0, 1]
    solution = _solve(columns, free)
    if (solution < 0).any():
        free = [int(solution.argmax())]
        solution = _solve(columns, free)
    errors = _standard_errors(columns, solution, free)
    relative = np.abs(columns @ solution - 1)
    link = Link(*map(float, solution))
    return Fit(link, *map(float, errors), *map(float, (n.min(), n.max(), relative.mean(), relative.max())))


def _solve(columns: np.ndarray, free: list[int]) -> np.ndarray:
    """Least squares of ``columns @ x = 1`` over the free parameters, the others 0; scaled against overflow."""
    scale = np.linalg.norm(columns[:, free], axis=0)
    solution = np.zeros(2)
    solution[free] = np.linalg.lstsq(columns[:, free] / scale, np.ones(len(columns)), rcond=None)[0] / scale
    return solution


def _standard_errors(columns: np.ndarray, solution: np.ndarray, free: list[int]) -> np.ndarray:
    residual = columns @ solution - 1
    scale = np.linalg.norm(columns[:, free], axis=0)
    inverse = np.linalg.inv((columns[:, free] / scale).T @ (columns[:, free] / scale))
    variance = residual @ residual / (len(columns) - len(free))
    errors = np.zeros(2)
    errors[free] = np.sqrt(variance * np.diag(inverse)) / scale
    return errors
