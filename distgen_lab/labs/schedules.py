"""Run collective algorithms as schedules on the ranks there are, and hold their times against alpha + n beta.

``python -m distgen_lab.labs.schedules --collective all_reduce --smallest 1024 --largest 4194304``, or under torchrun,
mpiexec or srun: see ``distgen_lab.labs``. First the link is fitted on a simultaneous exchange between two ranks (what
a round of most algorithms does), then every algorithm is run, checked, timed and compared with its price on that link.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from distgen_lab.alphabeta import Fit, Link, fit
from distgen_lab.bench import sizes as steps
from distgen_lab.collectives import COLLECTIVES, Schedule, algorithms
from distgen_lab.labs import ranks_of, run
from distgen_lab.labs.link import SIZES
from distgen_lab.ranks.execute import execute
from distgen_lab.ranks.world import current
from distgen_lab.simulate import price
from distgen_lab.topology import crossbar
from distgen_lab.units import duration, quantity

__all__ = ["Comparison", "compare", "exchange_link", "lab", "main", "reduction_time", "seconds_of"]

_ELEMENT = 4


@dataclass(frozen=True)
class Comparison:
    """One algorithm at one size: bytes, measured and predicted seconds."""

    name: str
    nbytes: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Measured over predicted, less 1."""
        return self.measured / self.predicted - 1 if self.predicted else 0.0

    def __str__(self) -> str:
        size, times = quantity(self.nbytes, "B"), f"{duration(self.measured):>9}  model {duration(self.predicted):>9}"
        return f"{size:>9}  {self.name:<36} {times}  {self.error:+.0%}"


def seconds_of(action: Callable[[], Any], repeats: int = 5) -> list[float]:
    """Return, on every rank, the slowest rank's seconds of each of ``repeats`` runs, begun together, after a first."""
    world, seconds = current(), []
    for _ in range(repeats + 1):
        world.barrier()
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return [max(one) for one in zip(*world.gather(seconds[1:]), strict=True)]


def reduction_time(nbytes: int = 2**20, repeats: int = 5) -> float:
    """Return gamma, the seconds this rank takes to add one byte to another: the fastest of ``repeats``."""
    total, more = current().full(nbytes // _ELEMENT, 1), current().full(nbytes // _ELEMENT, 1)

    def add() -> None:
        total[:] += more

    return min(seconds_of(add, repeats)) / nbytes


def exchange_link(sizes: Sequence[int] = SIZES, repeats: int = 30) -> Fit:
    """Return the link fitted on a simultaneous exchange between the first and the last rank, run as a schedule.

    It holds what a round of a schedule costs here, the work of starting it included.
    """
    world = current()
    last = world.size - 1
    swap = Schedule.from_transfers("all_gather", world.size, [[(0, last, 0, "copy"), (last, 0, last, "copy")]])
    seconds = []
    for nbytes in sizes:
        data, out = world.full(nbytes // _ELEMENT, 1), world.full(nbytes // _ELEMENT * world.size, 0)
        seconds.append(min(seconds_of(partial(execute, swap, data, out), repeats)))
    return fit(sizes, seconds)


def compare(schedule: Schedule, nbytes: int, link: Link, gamma: float = 0.0, repeats: int = 20) -> Comparison:
    """Run a schedule in a rank, together with the others, for n bytes; return the fastest of its runs and its price.

    The fastest run is the one in which other work on the machine got least in the way.
    """
    world = current()
    share = world.size if schedule.collective in ("all_gather", "gather") else 1
    data = world.full(max(1, nbytes // (_ELEMENT * share)), 1)
    more = {"all_to_all": world.size}.get(schedule.collective, share)
    out = world.full(len(data) * more, 1) if more > 1 else data
    measured = min(seconds_of(partial(execute, schedule, data, out), repeats))
    whole = len(data) * _ELEMENT * share
    predicted = price(schedule, crossbar(world.size, link), whole, gamma).seconds
    return Comparison(schedule.name, whole, measured, predicted)


def lab(collective: str = "all_reduce", sizes: Sequence[int] = (1_024, 65_536, 1_048_576)) -> str:
    """Fit the link, run every algorithm for the collective that suits the ranks; return the table."""
    fitted = exchange_link()
    gamma = reduction_time()
    lines = [ranks_of(), f"simultaneous exchange: {fitted}; additions at {quantity(1 / gamma, 'B/s')}"]
    for nbytes in sizes:
        schedules = [entry(current().size) for entry in algorithms(collective, current().size)]
        lines += [str(compare(schedule, _divisible(nbytes), fitted.link, gamma)) for schedule in schedules]
    return "\n".join(lines)


def _divisible(nbytes: int) -> int:
    """The size rounded up to whole elements for every rank."""
    each = _ELEMENT * current().size
    return -(-nbytes // each) * each


def main() -> None:
    """Run the lab from the command line."""
    parser = argparse.ArgumentParser(description="Run collective algorithms and hold them against alpha + n beta.")
    parser.add_argument("--collective", default="all_reduce", choices=COLLECTIVES)
    parser.add_argument("--smallest", type=int, default=1_024, help="smallest size in bytes")
    parser.add_argument("--largest", type=int, default=1_048_576, help="largest size in bytes")
    parser.add_argument("--factor", type=int, default=32, help="each size is that many times the one before")
    given = parser.parse_args()
    run(lab, given.collective, steps(given.smallest, given.largest, given.factor))


if __name__ == "__main__":
    main()
