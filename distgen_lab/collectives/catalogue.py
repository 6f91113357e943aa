"""Every algorithm by name, to explore and compare."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from distgen_lab.collectives import copying, reducing
from distgen_lab.collectives.schedule import COLLECTIVES, Schedule, at_least

__all__ = ["ALGORITHMS", "Algorithm", "algorithms"]


@dataclass(frozen=True, repr=False)
class Algorithm:
    """An algorithm that makes a schedule for P ranks when it is called.

    Attributes:
        name: the name of its function, "ring_all_reduce".
        collective: what it computes.
        build: takes P, and whatever else the function takes, and returns the schedule.
        power_of_two: whether it needs P to be one.
    """

    name: str
    collective: str
    build: Callable[..., Schedule]
    power_of_two: bool = False

    def __call__(self, ranks: int, **options: int) -> Schedule:
        """Return the schedule for ``ranks`` ranks."""
        return self.build(ranks, **options)

    def takes(self, ranks: int) -> bool:
        """Whether it works for P ranks."""
        return not (self.power_of_two and ranks & (ranks - 1))

    def __repr__(self) -> str:
        return f"{self.name}: {self.collective}, {'P a power of two' if self.power_of_two else 'any P'}"


def algorithms(collective: str, ranks: int = 1) -> list[Algorithm]:
    """Return the algorithms for a collective that work for ``ranks`` ranks.

    Raises:
        ValueError: for an unknown collective or ranks below 1.
    """
    if collective not in COLLECTIVES:
        raise ValueError(f"collective is {collective!r}; one of {', '.join(COLLECTIVES)} is needed")
    at_least("ranks", ranks, 1)
    return [entry for entry in ALGORITHMS.values() if entry.collective == collective and entry.takes(ranks)]


def _nearly_square(ranks: int) -> tuple[int, int]:
    """Two factors of P as close to each other as there are, the smaller first."""
    side = next(side for side in range(math.isqrt(at_least("ranks", ranks, 1)), 0, -1) if ranks % side == 0)
    return side, ranks // side


def _torus(ranks: int) -> Schedule:
    return reducing.torus_all_reduce(_nearly_square(ranks))


def _hierarchical(ranks: int) -> Schedule:
    return reducing.hierarchical_all_reduce(*_nearly_square(ranks))


_GRIDS = {"torus_all_reduce": _torus, "hierarchical_all_reduce": _hierarchical}
_POWERS = {
    "rabenseifner_reduce", "recursive_doubling_all_gather", "recursive_halving_reduce_scatter",
    "scatter_doubling_broadcast", "xor_all_to_all",
}  # fmt: skip


def _entry(name: str, function: Callable[..., Schedule]) -> Algorithm:
    collective = max((c for c in COLLECTIVES if name.endswith(c)), key=len)
    return Algorithm(name, collective, _GRIDS.get(name, function), name in _POWERS)


ALGORITHMS: dict[str, Algorithm] = {
    name: _entry(name, getattr(module, name)) for module in (copying, reducing) for name in module.__all__
}
"""Every algorithm by the name of its function; those for a grid of ranks take the most nearly square one."""
