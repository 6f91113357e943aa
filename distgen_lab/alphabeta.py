"""The alpha-beta model: a start-up time and a time per byte (Hockney 1994), for one message and for collectives.

A collective algorithm costs a number of start-ups, of bytes on the wire and of bytes added, one after the other:
``T = alpha_coefficient * alpha + beta_coefficient * n beta + gamma_coefficient * n gamma``. The coefficients are exact
fractions of the number of ranks P. All ranks of a round work at once, each sends and receives at the same time, and a
round ends when its slowest message does; nothing else is on the network. Two costs cross where they are equal, which is
solved here, never quoted. P ranks; n bytes; L is ceil(log2 P).

n is, for all_reduce, reduce_scatter, broadcast and reduce, the vector of each rank; for all_gather, gather and scatter
the whole gathered vector; for all_to_all what one rank sends in all, its own part counted.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

import numpy as np

from distgen_lab.claims import html_table
from distgen_lab.units import duration, quantity

__all__ = [
    "BUS_FACTORS",
    "Cost", "CostTable", "Crossover", "Fit", "Link", "Pipelined", "algorithms", "cost", "costs", "crossover", "fit",
    "fit_where_it_holds", "lower_bound", "winners",
]  # fmt: skip


BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "gather": lambda ranks: (ranks - 1) / ranks,
    "scatter": lambda ranks: (ranks - 1) / ranks,
    "hypercube": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0,
    "reduce": lambda ranks: 1.0,
    "sendrecv": lambda ranks: 1.0,
}
"""busbw over algbw by operation and ranks (NVIDIA, nccl-tests, doc/PERFORMANCE.md and src/*.cu)."""


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
        ValueError: for fewer than three measurements, unequal lengths, one size only, or a time that is not positive.
    """
    n, t = np.asarray(sizes, float), np.asarray(times, float)
    if n.shape != t.shape or n.ndim != 1 or len(n) < 3:
        raise ValueError(f"{len(n)} sizes and {len(t)} times; the same number of at least 3 is needed")
    if not (np.isfinite(t).all() and (t > 0).all() and (n >= 0).all()):
        raise ValueError("sizes must be at least 0 and times positive and finite")
    if n.min() == n.max():
        raise ValueError(f"sizes are all {n[0]:g}; at least two different ones are needed to tell alpha from beta")
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


def fit_where_it_holds(sizes: Sequence[float], times: Sequence[float], tolerance: float = 0.05) -> Fit | None:
    """Return the fit over the widest range up to the largest size in which no measurement is off by more.

    The range starts at the smallest size from which a line holds to ``tolerance`` (a share, 0.05 is 5 %) at worst; it
    stands in the fit's ``smallest`` and ``largest``. A line that fits only the largest sizes, or none, is no failure
    of the measurement: libraries change algorithm and protocol with size, and one line cannot follow.

    Returns:
        The fit, or None when not even the three largest sizes lie on a line.

    Raises:
        ValueError: as :func:`fit`, or for a tolerance that is not positive.
    """
    if not (_is_real(tolerance) and tolerance > 0):
        raise ValueError(f"tolerance is {tolerance}; a positive share is needed, 0.05 for 5 %")
    fit(sizes, times)  # refuses bad measurements before the largest sizes alone are looked at
    n, t = np.asarray(sizes, float), np.asarray(times, float)
    starts = np.unique(n)[:-2]
    found = (fit(n[n >= start], t[n >= start]) for start in starts)
    return next((line for line in found if line.worst_error <= tolerance), None)


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


# ------------------------------------------------------------------------------------------- costs of collectives


@dataclass(frozen=True)
class Cost:
    """What one algorithm costs: coefficients of alpha, n beta and n gamma, exact.

    Attributes:
        collective, algorithm, ranks: what is done, how, and P.
        alpha: start-ups one after the other.
        beta: bytes on the critical path, in units of n.
        gamma: bytes added on the critical path, in units of n.
        segments: pieces of a pipelined algorithm, else None.
        equation: the chapter's name of the formula, "" if it has none.
        source: where the formula stands.
        note: what it assumes.
        inner: the part inside the nodes of a hierarchical algorithm, else None; it is contained in the coefficients.
    """

    collective: str
    algorithm: str
    ranks: int
    alpha: Fraction
    beta: Fraction
    gamma: Fraction = Fraction(0)
    segments: int | None = None
    equation: str = ""
    source: str = field(default="", repr=False)
    note: str = field(default="", repr=False)
    inner: "Cost | None" = field(default=None, repr=False)

    def time(self, link: Link, nbytes: Any, gamma: float = 0.0, inner_link: Link | None = None) -> Any:
        """Return seconds for ``nbytes`` bytes: a float, or an array for an array of sizes.

        Args:
            link: alpha and beta of every message; of those between nodes if ``inner_link`` is given.
            nbytes: n, at least 0.
            gamma: seconds to add one byte.
            inner_link: link inside a node, for a hierarchical algorithm.

        Raises:
            ValueError: for a negative size or gamma, or an ``inner_link`` where nothing runs inside nodes.

        >>> cost("all_reduce", "ring", ranks=8).time(Link(1e-6, 1 / 25e9), 1e6)
        8.4e-05
        """
        sizes, gamma = _sizes(nbytes), _gamma(gamma)
        seconds = self._seconds(link, sizes, gamma)
        if inner_link is not None:
            if self.inner is None:
                raise ValueError(
                    f"inner_link is given, but nothing of {self.algorithm} {self.collective} is inside nodes"
                )
            seconds += self.inner._seconds(inner_link, sizes, gamma) - self.inner._seconds(link, sizes, gamma)
        return seconds if sizes.ndim else float(seconds)

    def _seconds(self, link: Link, sizes: np.ndarray, gamma: float) -> np.ndarray:
        per_byte = float(self.beta) * link.beta + float(self.gamma) * gamma
        return float(self.alpha) * link.alpha + sizes * per_byte

    def __str__(self) -> str:
        what = f"{self.algorithm} {self.collective} of {self.ranks} ranks"
        cut = f" in {self.segments} segments" if self.segments else ""
        return f"{what}{cut}: {self.formula()}"

    def formula(self) -> str:
        """Return the cost as text, "14 α + 7/4 nβ + 7/8 nγ"."""
        return _sum_of_terms((self.alpha, "α"), (self.beta, "nβ"), (self.gamma, "nγ"))


@dataclass(frozen=True)
class Pipelined:
    """A pipelined algorithm with its segments open: m of them take ``passes * (fill + m)`` rounds of n/m bytes.

    Attributes:
        collective, algorithm, ranks: what is done, how, and P.
        fill: rounds of one pass before the last segment leaves the root: depth of the pipeline less one.
        passes: passes one after the other (an all-reduce: up and down).
        reducing: passes that add what arrives.
        trees: trees at work at once, each with n/trees bytes; one segment of each moves in a round.
        equation, source, note: as in :class:`Cost`.
    """

    collective: str
    algorithm: str
    ranks: int
    fill: int
    passes: int
    reducing: int
    trees: int = 1
    equation: str = ""
    source: str = field(default="", repr=False)
    note: str = field(default="", repr=False)

    def rounds(self, segments: int) -> int:
        """Return the number of rounds with m segments: passes x (fill + m)."""
        return self.passes * (self.fill + _whole("segments", segments))

    def segmented(self, segments: int) -> Cost:
        """Return the cost with that many segments (of each tree)."""
        per_pass = Fraction(self.fill + _whole("segments", segments))
        return Cost(
            self.collective, self.algorithm, self.ranks, self.passes * per_pass, self.passes * per_pass / segments,
            self.reducing * per_pass / segments, int(segments), self.equation, self.source, self.note,
        )  # fmt: skip

    def ideal_segments(self, link: Link, nbytes: float, gamma: float = 0.0) -> float:
        """Return the real number m* = sqrt(fill n (passes beta + reducing gamma) / (passes alpha)) of least time.

        It is infinite where a message needs no time to start (alpha 0) and the pipeline is longer than one link.
        """
        return float(self._ideal(link, _sizes(nbytes), _gamma(gamma)))

    def best_segments(self, link: Link, nbytes: float, gamma: float = 0.0) -> int:
        """Return the number of segments of least time: a neighbour of m*, at least 1, no segment below one byte."""
        return int(self._best(link, _sizes(nbytes), _gamma(gamma)))

    def time(self, link: Link, nbytes: Any, gamma: float = 0.0) -> Any:
        """Return seconds with the best number of segments for each size; :meth:`segmented` fixes the number.

        >>> tree = cost("all_reduce", "double binary tree", ranks=256)
        >>> round(tree.time(Link(1e-6, 1 / 25e9), 50e6) * 1e3, 3), tree.best_segments(Link(1e-6, 1 / 25e9), 50e6)
        (4.487, 118)
        """
        sizes, gamma = _sizes(nbytes), _gamma(gamma)
        seconds = self._seconds(link, sizes, gamma, self._best(link, sizes, gamma))
        return seconds if sizes.ndim else float(seconds)

    def _per_byte(self, link: Link, gamma: float) -> float:
        return self.passes * link.beta + self.reducing * gamma

    def _ideal(self, link: Link, sizes: np.ndarray, gamma: float) -> np.ndarray:
        work, start = self.fill * sizes * self._per_byte(link, gamma), self.passes * link.alpha
        return np.sqrt(work / start) if start else np.where(work > 0, math.inf, 1.0)

    def _best(self, link: Link, sizes: np.ndarray, gamma: float) -> np.ndarray:
        """T is convex in m, so one of the two whole numbers around m* is best."""
        most = np.maximum(1, np.floor(sizes / self.trees))
        low = np.clip(np.floor(self._ideal(link, sizes, gamma)), 1, most)
        high = np.clip(low + 1, 1, most)
        better = self._seconds(link, sizes, gamma, high) < self._seconds(link, sizes, gamma, low)
        return np.where(better, high, low)

    def _seconds(self, link: Link, sizes: np.ndarray, gamma: float, segments: np.ndarray) -> np.ndarray:
        per_round = self.passes * link.alpha + sizes * self._per_byte(link, gamma) / segments
        return (self.fill + segments) * per_round

    def __str__(self) -> str:
        return f"{self.algorithm} {self.collective} of {self.ranks} ranks: {self.formula()}"

    def formula(self) -> str:
        """Return the cost as text, "(2 + m) (2 α + 2 nβ/m + 1 nγ/m)"."""
        per_round = _sum_of_terms((self.passes, "α"), (self.passes, "nβ/m"), (self.reducing, "nγ/m"))
        return f"({self.fill} + m) ({per_round})"


def _sum_of_terms(*terms: tuple[Fraction | int, str]) -> str:
    return " + ".join(f"{value} {name}" for value, name in terms if value) or "0"


@dataclass(frozen=True)
class CostTable:
    """Costs of several algorithms for one collective: a table in a notebook, lines in a terminal."""

    rows: tuple[Cost | Pipelined, ...]

    def __iter__(self) -> Iterator[Cost | Pipelined]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, algorithm: str) -> Cost | Pipelined:
        names = {row.algorithm: row for row in self.rows}
        return names[_find("algorithm", algorithm, names)]

    def _cells(self) -> list[tuple[str, str, str, str]]:
        return [(row.algorithm, row.formula(), row.equation, row.source) for row in self.rows]

    def _repr_html_(self) -> str:
        return html_table(("Algorithm", "Cost", "In the chapter", "Source"), self._cells())

    def __repr__(self) -> str:
        wide = max((len(row.algorithm) for row in self.rows), default=0)
        return "\n".join(f"{name:{wide}}  {formula}" for name, formula, _, _ in self._cells())


_THAKUR = "Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005)"
_CHAN = "Chan, Heimlich, Purkayastha and van de Geijn, CCPE 19 (2007)"
_SANDERS = "Sanders, Speck and Träff, Parallel Computing 35 (2009)"
_BRUCK = "Bruck et al., TPDS 8 (1997)"
_PATARASUK = "Patarasuk and Yuan, JPDC 69 (2009)"
_PAIRWISE = "one message to each of the others in turn"
_FOLDED = (
    "P not a power of two: P - 2^floor(log2 P) ranks first hand their vector to a neighbour and get the sum at last"
)
_TWO_TREES = (
    "each tree carries half of n; a rank is inner in one tree at most, and in a round sends n/(2m) to each of its two "
    "children there, so n/m in all, for one start-up (reduce: receives). The rounds are exact; n/m is what a full port "
    "carries, the first or the last round of a pass may carry half. "
)
_ROOTED = _TWO_TREES + "The root stands above two trees of the other P-1 ranks: L = ceil(log2 P) deep"
_ROOTLESS = (
    _TWO_TREES + "Up, then down two trees of all P ranks, floor(log2 P) deep; with two ranks every round is half"
)


@dataclass(frozen=True)
class _Rule:
    """One row of the table of algorithms: coefficients as a function of P (and options), and where they stand.

    ``form`` returns (alpha, beta, gamma); with ``pipelined`` it returns (fill, passes, reducing, trees); with
    ``inner`` a second such function gives the part inside the nodes.
    """

    form: Callable[..., tuple]
    source: str
    equation: str = ""
    note: str = ""
    powers: bool = False
    pipelined: bool = False
    options: tuple[str, ...] = ()
    inner: Callable[..., tuple] | None = None


def _up(ranks: int) -> int:
    """L = ceil(log2 P)."""
    return (ranks - 1).bit_length()


def _down(ranks: int) -> int:
    """floor(log2 P)."""
    return ranks.bit_length() - 1


def _rest(ranks: int) -> Fraction:
    """(P-1)/P."""
    return Fraction(ranks - 1, ranks)


def _is_power(ranks: int) -> bool:
    return ranks & (ranks - 1) == 0


def _doubling(ranks: int) -> tuple:
    """Recursive doubling: whole vectors; other ranks than 2^k fold first and unfold last."""
    steps, extra = _down(ranks), not _is_power(ranks)
    return steps + 2 * extra, steps + 2 * extra, steps + extra


def _rabenseifner(ranks: int) -> tuple:
    steps, extra = _down(ranks), not _is_power(ranks)
    rest = _rest(2**steps)
    return 2 * (steps + extra), 2 * (rest + extra), rest + extra


def _ring_all_reduce(ranks: int) -> tuple:
    return 2 * (ranks - 1), 2 * _rest(ranks), _rest(ranks)


def _bruck_all_to_all(ranks: int) -> tuple:
    """Round k moves the blocks whose distance has bit k set: P/2 of them if P is a power of two, fewer else."""
    return _up(ranks), Fraction(sum(block.bit_count() for block in range(ranks)), ranks), 0


def _hierarchical_inner(ranks: int, per_node: int) -> tuple:
    return _ring_all_reduce(_divisor(ranks, per_node))


def _hierarchical(ranks: int, per_node: int) -> tuple:
    inner, outer = _hierarchical_inner(ranks, per_node), _ring_all_reduce(ranks // per_node)
    return inner[0] + outer[0], inner[1] + outer[1] / per_node, inner[2] + outer[2] / per_node


def _across(ranks: int, links: int) -> tuple:
    """Each of floor(P/2) ranks has n/P for each of ceil(P/2) on the other side."""
    return 0, Fraction((ranks // 2) * (ranks - ranks // 2), ranks * links), 0


_TABLE: dict[str, dict[str, _Rule]] = {
    "point_to_point": {
        "message": _Rule(lambda p: (1, 1, 0), "Hockney, Parallel Computing 20 (1994)", "P2P"),
    },
    "broadcast": {
        "linear": _Rule(lambda p: (p - 1, p - 1, 0), _PAIRWISE),
        "binomial": _Rule(lambda p: (_up(p), _up(p), 0), _THAKUR, "Bcast"),
        "scatter + ring all-gather": _Rule(lambda p: (_up(p) + p - 1, 2 * _rest(p), 0), f"{_THAKUR}; {_CHAN}"),
        "scatter + recursive doubling": _Rule(lambda p: (2 * _up(p), 2 * _rest(p), 0), _THAKUR, powers=True),
        "pipelined chain": _Rule(lambda p: (p - 2, 1, 0, 1), f"Pjesivac-Grbovic et al. (2007); {_SANDERS}",
                                 note="each rank passes a segment on in the round after it came", pipelined=True),
        "double binary tree": _Rule(lambda p: (_up(p) - 1, 1, 0, 2), _SANDERS, note=_ROOTED, pipelined=True),
        "lower bound": _Rule(lambda p: (_up(p), 1, 0), _CHAN, note="the terms are not attained together"),
    },
    "reduce": {
        "linear": _Rule(lambda p: (p - 1, p - 1, p - 1), _PAIRWISE),
        "binomial": _Rule(lambda p: (_up(p), _up(p), _up(p)), _THAKUR),
        "Rabenseifner": _Rule(lambda p: (2 * _up(p), 2 * _rest(p), _rest(p)), _THAKUR, powers=True,
                              note="reduce-scatter by halving, then binomial gather"),
        "double binary tree": _Rule(lambda p: (_up(p) - 1, 1, 1, 2), _SANDERS, note=_ROOTED, pipelined=True),
        "lower bound": _Rule(lambda p: (_up(p), 1, _rest(p)), _CHAN, note="the terms are not attained together"),
    },
    "scatter": {
        "linear": _Rule(lambda p: (p - 1, _rest(p), 0), _PAIRWISE),
        "binomial": _Rule(lambda p: (_up(p), _rest(p), 0), _CHAN, note="meets the lower bound"),
        "lower bound": _Rule(lambda p: (_up(p), _rest(p), 0), _CHAN),
    },
    "gather": {
        "linear": _Rule(lambda p: (p - 1, _rest(p), 0), _PAIRWISE),
        "binomial": _Rule(lambda p: (_up(p), _rest(p), 0), _CHAN, note="meets the lower bound"),
        "lower bound": _Rule(lambda p: (_up(p), _rest(p), 0), _CHAN),
    },
    "all_gather": {
        "ring": _Rule(lambda p: (p - 1, _rest(p), 0), _THAKUR),
        "recursive doubling": _Rule(lambda p: (_up(p), _rest(p), 0), _THAKUR, powers=True),
        "Bruck": _Rule(lambda p: (_up(p), _rest(p), 0), f"{_THAKUR}; {_BRUCK}", note="rotates its data at last"),
        "lower bound": _Rule(lambda p: (_up(p), _rest(p), 0), _CHAN),
    },
    "reduce_scatter": {
        "ring": _Rule(lambda p: (p - 1, _rest(p), _rest(p)), _THAKUR),
        "recursive halving": _Rule(lambda p: (_up(p), _rest(p), _rest(p)), _THAKUR, powers=True, note="in any order"),
        "lower bound": _Rule(lambda p: (_up(p), _rest(p), _rest(p)), _CHAN),
    },
    "all_reduce": {
        "ring": _Rule(_ring_all_reduce, f"{_PATARASUK}; {_THAKUR}", "AR RING", "least bytes of all"),
        "recursive doubling": _Rule(_doubling, _THAKUR, note=_FOLDED),
        "Rabenseifner": _Rule(_rabenseifner, _THAKUR, "AR Butterfly",
                              f"the chapter's form holds for P = 2^k. {_FOLDED}"),
        "binomial tree": _Rule(lambda p: (2 * _up(p), 2 * _up(p), _up(p)), _CHAN, note="reduce, then broadcast"),
        "double binary tree": _Rule(lambda p: (_down(p) - 1, 2, 1, 2), _SANDERS, note=_ROOTLESS, pipelined=True),
        "hierarchical": _Rule(_hierarchical, f"{_THAKUR}, on SMP clusters", options=("per_node",),
                              inner=_hierarchical_inner, note="rings: reduce-scatter in the node, all-reduce of n/g "
                              "between nodes, all-gather in the node"),
        "in-network": _Rule(lambda p, depth: (depth, 1, 0), "NVIDIA SHARP and NVLink SHARP", options=("depth",),
                            note="switches add; each of ``depth`` levels costs one start-up for the way up and down"),
        "lower bound": _Rule(lambda p: (_up(p), 2 * _rest(p), _rest(p)), f"{_CHAN}; {_PATARASUK}",
                             note="the terms are not attained together"),
    },
    "all_to_all": {
        "pairwise": _Rule(lambda p: (p - 1, _rest(p), 0), _THAKUR),
        "Bruck": _Rule(_bruck_all_to_all, f"{_THAKUR}; {_BRUCK}", note="L/2 nβ if P is a power of two, less else"),
        "bisection bound": _Rule(_across, "Dally and Towles, chapter 3", options=("links",),
                                 note="links: of bandwidth 1/beta per direction across the bisection"),
        "lower bound": _Rule(lambda p: (_up(p), _rest(p), 0), f"{_CHAN}; {_BRUCK}"),
    },
    "barrier": {
        "dissemination": _Rule(lambda p: (_up(p), 0, 0), "Hensgen, Finkel and Manber, IJPP 17 (1988)"),
    },
}  # fmt: skip
_BOUNDS = ("lower bound", "bisection bound")


def algorithms(collective: str) -> tuple[str, ...]:
    """Return the names of the algorithms for a collective, bounds not counted."""
    rules = _TABLE[_find("collective", collective, _TABLE)]
    return tuple(name for name in rules if name not in _BOUNDS)


def cost(collective: str, algorithm: str, ranks: int, segments: int | None = None, **options: int) -> Cost | Pipelined:
    """Return what an algorithm costs on P ranks: a :class:`Cost`, or a :class:`Pipelined` while no segments are given.

    Args:
        collective: "all_reduce", "broadcast", "reduce", "scatter", "gather", "all_gather", "reduce_scatter",
            "all_to_all", "barrier" or "point_to_point".
        algorithm: a name of :func:`algorithms`, "lower bound", or "bisection bound" (all_to_all).
        ranks: P, 1 or more; one rank has nothing to send and costs nothing.
        segments: m, for a pipelined algorithm.
        options: ``per_node`` ranks of a node ("hierarchical"), ``depth`` levels of switches ("in-network"), ``links``
            across the bisection ("bisection bound").

    Raises:
        ValueError: for an unknown collective, algorithm or option (near names are suggested), fewer than one rank, or
            a P that is not a power of two where the algorithm needs one.

    >>> print(cost("all_reduce", "ring", ranks=8))
    ring all_reduce of 8 ranks: 14 α + 7/4 nβ + 7/8 nγ
    """
    collective = _find("collective", collective, _TABLE)
    algorithm = _find(f"{collective} algorithm", algorithm, _TABLE[collective])
    rule, ranks = _TABLE[collective][algorithm], _whole("ranks", ranks)
    if rule.powers and not _is_power(ranks):
        raise ValueError(f"ranks is {ranks}; {algorithm} {collective} needs a power of two")
    options = _options(algorithm, rule, options)
    facts = {"equation": rule.equation, "source": rule.source, "note": rule.note}
    if not rule.pipelined:
        if segments is not None:
            raise ValueError(f"segments is {segments}, but {algorithm} {collective} is not pipelined")
        return _plain_cost((collective, algorithm, ranks), rule, options, facts)
    form = rule.form(ranks) if ranks > 1 else (0, 0, 0, 1)
    pipe = Pipelined(collective, algorithm, ranks, *form, **facts)
    return pipe if segments is None else pipe.segmented(segments)


def _plain_cost(name: tuple[str, str, int], rule: _Rule, options: dict[str, int], facts: dict[str, str]) -> Cost:
    """A cost that is not pipelined; of one rank it is nothing."""

    def made(form: Callable[..., tuple]) -> Cost:
        coefficients = form(name[2], **options) if name[2] > 1 else (0, 0, 0)
        return Cost(*name, *map(Fraction, coefficients), **facts)

    whole = made(rule.form)
    return replace(whole, inner=made(rule.inner)) if rule.inner else whole


def costs(collective: str, ranks: int, **options: int) -> CostTable:
    """Return the costs of all algorithms that work on P ranks: those for powers of two only where P is one.

    Bounds are left out; "hierarchical" and "in-network" are there if ``per_node`` or ``depth`` is given.
    """
    collective, ranks = _find("collective", collective, _TABLE), _whole("ranks", ranks)
    rules = [(name, _TABLE[collective][name]) for name in algorithms(collective)]
    for option in options:
        _find("option", option, [name for _, rule in rules for name in rule.options])
    usable = [(n, r) for n, r in rules if set(r.options) <= set(options) and (_is_power(ranks) or not r.powers)]
    return CostTable(tuple(cost(collective, n, ranks, **{o: options[o] for o in r.options}) for n, r in usable))


def lower_bound(collective: str, ranks: int) -> Cost:
    """Return the least start-ups, bytes and additions any algorithm needs, each taken alone (Chan et al. 2007)."""
    return cost(collective, "lower bound", ranks)


# ------------------------------------------------------------------------------------------------ crossovers

_LARGEST = 2.0**60  # an exbibyte: no message is larger
_STEPS = 960  # sizes looked at between one byte and the largest, 16 to an octave


@dataclass(frozen=True)
class Crossover:
    """Where two costs are equal.

    Attributes:
        sizes: bytes at which they meet, ascending; empty if one is never slower.
        faster: the faster algorithm before, between and after the sizes: one name more than sizes; "either" where
            they cost the same everywhere.
    """

    sizes: tuple[float, ...]
    faster: tuple[str, ...]

    @property
    def nbytes(self) -> float | None:
        """The size from which on the last of ``faster`` wins, or None if one algorithm is never slower."""
        return self.sizes[-1] if self.sizes else None

    def __str__(self) -> str:
        if not self.sizes:
            return f"{self.faster[0]} at every size"
        steps = zip(self.faster, self.sizes, strict=False)
        return ", ".join(f"{name} below {quantity(size, 'B')}" for name, size in steps) + f", then {self.faster[-1]}"


def crossover(one: Cost | Pipelined, other: Cost | Pipelined, link: Link, gamma: float = 0.0) -> Crossover:
    """Return the sizes at which two algorithms take the same time, and which is faster on either side.

    Two costs without open segments are lines, solved exactly. A pipelined one takes its best number of segments at each
    size, start-ups counted; its meeting points are then bracketed from one byte to an exbibyte and bisected.

    >>> link = Link(1e-6, 1 / 25e9)
    >>> print(crossover(cost("all_reduce", "binomial tree", 256), cost("all_reduce", "ring", 256), link))
    binomial tree below 882 kB, then ring
    >>> print(crossover(cost("all_reduce", "double binary tree", 256), cost("all_reduce", "ring", 256), link))
    double binary tree below 51.4 MB, then ring
    """
    lines = isinstance(one, Cost) and isinstance(other, Cost)
    solve = _meeting_of_lines if lines else _meetings
    sizes = solve(one, other, link, _gamma(gamma))
    return Crossover(sizes, tuple(_faster(one, other, link, gamma, size) for size in _between(sizes)))


def _meeting_of_lines(one: Cost, other: Cost, link: Link, gamma: float) -> tuple[float, ...]:
    ahead = float(one.alpha - other.alpha) * link.alpha
    steeper = float(other.beta - one.beta) * link.beta + float(other.gamma - one.gamma) * gamma
    return (ahead / steeper,) if ahead * steeper > 0 else ()


def _meetings(one: Cost | Pipelined, other: Cost | Pipelined, link: Link, gamma: float) -> tuple[float, ...]:
    """Sign changes on a grid, each bisected until its two ends are neighbouring numbers."""
    grid = np.geomspace(1, _LARGEST, _STEPS + 1)
    sign = _sign(one.time(link, grid, gamma), other.time(link, grid, gamma))
    told = np.flatnonzero(sign)  # where they are equal neither is ahead
    turns = [(grid[a], grid[b]) for a, b in pairwise(told) if sign[a] != sign[b]]
    return tuple(_bisect(one, other, link, gamma, low, high) for low, high in turns)


def _bisect(one: Cost | Pipelined, other: Cost | Pipelined, link: Link, gamma: float, low: float, high: float) -> float:
    start = _sign(one.time(link, low, gamma), other.time(link, low, gamma))
    for _ in range(80):
        middle = math.sqrt(low * high)
        same = _sign(one.time(link, middle, gamma), other.time(link, middle, gamma)) == start
        low, high = (middle, high) if same else (low, middle)
    return float(high)


def _sign(one: Any, other: Any) -> Any:
    """Sign of one - other; 0 where they differ by rounding only."""
    difference = np.asarray(one) - other
    return np.where(np.abs(difference) <= 1e-13 * np.maximum(one, other), 0, np.sign(difference))


def _between(sizes: tuple[float, ...]) -> list[float]:
    """One size before, between and after the given ones."""
    if not sizes:
        return [math.sqrt(_LARGEST)]
    inner = [math.sqrt(a * b) for a, b in pairwise(sizes)]
    return [sizes[0] / 2, *inner, sizes[-1] * 2]


def _faster(one: Cost | Pipelined, other: Cost | Pipelined, link: Link, gamma: float, size: float) -> str:
    sign = _sign(one.time(link, size, gamma), other.time(link, size, gamma))
    if sign == 0:
        start = _sign(one.time(link, 0, gamma), other.time(link, 0, gamma))
        sign = start or _sign(one.time(link, _LARGEST, gamma), other.time(link, _LARGEST, gamma))
    return {-1: one.algorithm, 0: "either", 1: other.algorithm}[int(sign)]


def winners(
    collective: str,
    link: Link,
    ranks: Sequence[int],
    sizes: Sequence[float],
    gamma: float = 0.0,
    among: Sequence[str] | None = None,
    **options: int,
) -> np.ndarray:
    """Return the name of the fastest algorithm for each number of ranks (rows) and each size in bytes (columns).

    An algorithm that does not work on P ranks does not take part in that row; of equal ones the first of
    :func:`algorithms` wins. Pipelined ones take their best number of segments.

    Args:
        collective, link, gamma, options: as in :func:`costs` and :meth:`Cost.time`.
        ranks, sizes: the rows and the columns of the map.
        among: names of the algorithms to compare, all if None.

    Returns:
        Strings, of shape (len(ranks), len(sizes)).
    """
    every = algorithms(collective)
    names = every if among is None else [_find("algorithm", name, every) for name in among]
    tables = [[row for row in costs(collective, p, **options) if row.algorithm in names] for p in ranks]
    if not all(tables):
        raise ValueError(f"among is {', '.join(names)}; one that works on {ranks[tables.index([])]} ranks is needed")
    return np.array([_fastest(rows, link, sizes, gamma) for rows in tables])


def _fastest(rows: list[Cost | Pipelined], link: Link, sizes: Sequence[float], gamma: float) -> np.ndarray:
    times = np.stack([row.time(link, np.asarray(sizes, float), gamma) for row in rows])
    # What differs by rounding only is equal, and goes to the first.
    first = (times <= times.min(axis=0) * (1 + 1e-12)).argmax(axis=0)
    return np.array([row.algorithm for row in rows])[first]


# ---------------------------------------------------------------------------------------------- what is refused


def _plain(name: str) -> str:
    """A name as it is looked up: lower case, without blanks, hyphens and underscores."""
    return "".join(letter for letter in str(name).lower() if letter not in " -_")


def _find(what: str, name: str, names: Iterable[str]) -> str:
    """The one of ``names`` that is meant; "allreduce" finds all_reduce."""
    plain = {_plain(known): known for known in names}
    if _plain(name) in plain:
        return plain[_plain(name)]
    near = difflib.get_close_matches(_plain(name), list(plain), n=3, cutoff=0.4) or list(plain)
    hint = f"did you mean {', '.join(plain[key] for key in near)}" if near else "there is none"
    raise ValueError(f"unknown {what} {name!r}; {hint}?".replace("none?", "none"))


def _options(algorithm: str, rule: _Rule, given: dict[str, int]) -> dict[str, int]:
    """The options, whole numbers of at least 1, exactly those the algorithm takes."""
    if set(given) != set(rule.options):
        wanted = " and ".join(rule.options) or "no options"
        raise ValueError(f"{algorithm} takes {wanted}; given: {', '.join(given) or 'none'}")
    return {name: _whole(name, value) for name, value in given.items()}


def _divisor(ranks: int, per_node: int) -> int:
    if ranks % per_node:
        raise ValueError(f"per_node is {per_node}; a divisor of the {ranks} ranks is needed")
    return per_node


def _whole(name: str, value: int) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}; a whole number of at least 1 is needed")
    return int(value)


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _gamma(gamma: float) -> float:
    if not (_is_real(gamma) and gamma >= 0):
        raise ValueError(f"gamma is {gamma}; a finite number of at least 0 s/byte is needed")
    return float(gamma)


def _sizes(nbytes: Any) -> np.ndarray:
    sizes = np.asarray(nbytes, float)
    if not (np.isfinite(sizes).all() and (sizes >= 0).all()):
        raise ValueError(f"nbytes is {nbytes}; finite numbers of at least 0 are needed")
    return sizes
