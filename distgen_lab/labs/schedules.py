"""Run collective algorithms as schedules on the ranks there are, and hold their times against alpha + n beta.

``python -m distgen_lab.labs.schedules --collective all_reduce --smallest 1024 --largest 4194304``, or under torchrun,
mpiexec or srun: see ``distgen_lab.labs``. First the link is fitted on a simultaneous exchange between two ranks (what
a round of most algorithms does), then every algorithm is run, timed and compared with its price on that link. One
line for all sizes is off where a library changes its protocol or the caches end; what rounds were measured to cost at
each size (:class:`RoundCosts`) predicts two ranks of one machine better, and stands beside it.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

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

__all__ = [
    *("Comparison", "RoundCosts", "compare", "compare_all", "exchange_link", "in_turns"),
    *("lab", "main", "measured_rounds", "prepared", "reduction_time", "seconds_of"),
]

_ELEMENT = 4
_MANY = 4
"""Rounds of the longer of the two runs that tell a round's cost from that of starting."""


@dataclass(frozen=True)
class Comparison:
    """One algorithm at one size: bytes, measured and predicted seconds, and those by what rounds cost, where known."""

    name: str
    nbytes: int
    measured: float
    predicted: float
    by_rounds: float = 0.0

    @property
    def error(self) -> float:
        """Measured over predicted, less 1."""
        return self.measured / self.predicted - 1 if self.predicted else 0.0

    @property
    def error_by_rounds(self) -> float:
        """Measured over what rounds cost, less 1."""
        return self.measured / self.by_rounds - 1 if self.by_rounds else 0.0

    def __str__(self) -> str:
        size, times = quantity(self.nbytes, "B"), f"{duration(self.measured):>9}  model {duration(self.predicted):>9}"
        rounds = f"  by rounds {duration(self.by_rounds):>9}  {self.error_by_rounds:+.0%}" if self.by_rounds else ""
        return f"{size:>9}  {self.name:<36} {times}  {self.error:+.0%}{rounds}"


def seconds_of(action: Callable[[], Any], repeats: int = 5) -> list[float]:
    """Return, on every rank, the slowest rank's seconds of each of ``repeats`` runs, begun together, after a first."""
    world, seconds = current(), []
    for _ in range(repeats + 1):
        world.barrier()
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return [max(one) for one in zip(*world.gather(seconds[1:]), strict=True)]


def in_turns(actions: Sequence[Callable[[], Any]], passes: int = 10) -> list[float]:
    """Return the fastest seconds of each action, every one run several times in each pass.

    What slows the machine for a while then slows all of them, and not only those whose turn it was.
    """
    found = [[seconds_of(action, 4) for action in actions] for _ in range(passes)]
    return [min(chain.from_iterable(runs)) for runs in zip(*found, strict=True)]


@dataclass(frozen=True)
class RoundCosts:
    """What a round of a schedule costs two ranks, measured at each of ``sizes`` in bytes; between them, on the line.

    Attributes:
        sizes: bytes of the message in each direction, rising.
        copying, adding: seconds of a round whose message is put in its place, or added to what is there.
        start_copying, start_adding: seconds that a run costs beyond its rounds, by what its first round does.
    """

    sizes: np.ndarray
    copying: np.ndarray
    adding: np.ndarray
    start_copying: np.ndarray
    start_adding: np.ndarray

    def seconds(self, schedule: Schedule, nbytes: float) -> float:
        """Return what a run of ``schedule`` for n bytes should take: its start and its rounds, one after the other."""
        bare = price(
            schedule, crossbar(schedule.ranks, Link(0.0, 1.0)), nbytes
        )  # a second is a byte on the busiest link
        kinds = [("adding" if adds else "copying", loads) for adds, loads in zip(bare.added, bare.rounds, strict=True)]
        first, loads = kinds[0]
        return self._at(f"start_{first}", loads) + sum(self._at(kind, loads) for kind, loads in kinds)

    def _at(self, what: str, loads: float) -> float:
        return float(np.interp(loads, self.sizes, getattr(self, what)))


def measured_rounds(sizes: Sequence[int] = SIZES, passes: int = 10) -> RoundCosts:
    """Return what rounds cost between the first and the last rank: from runs of one exchange and of several."""
    world = current()
    last = world.size - 1
    copy = [(0, last, 0, "copy"), (last, 0, last, "copy")]
    add = [(0, last, 0, "reduce"), (last, 0, 0, "reduce")]
    runs = [("all_gather", copy), ("all_reduce", add)]
    schedules = [Schedule.from_transfers(kind, world.size, [swap] * n) for kind, swap in runs for n in (1, _MANY)]
    actions = [prepared(schedule, n * (world.size if schedule.collective == "all_gather" else 1))
               for schedule in schedules for n in sizes]  # fmt: skip
    one_copy, copies, one_add, adds = np.reshape(in_turns(actions, passes), (4, len(sizes)))
    copying, adding = (copies - one_copy) / (_MANY - 1), (adds - one_add) / (_MANY - 1)
    return RoundCosts(np.asarray(sizes, float), copying, adding, one_copy - copying, one_add - adding)


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
    measured = min(seconds_of(prepared(schedule, nbytes), repeats))
    predicted = price(schedule, crossbar(schedule.ranks, link), nbytes, gamma).seconds
    return Comparison(schedule.name, nbytes, measured, predicted)


def prepared(schedule: Schedule, nbytes: int) -> Callable[[], Any]:
    """Return a run of ``schedule`` for n bytes (whole elements for every rank) on data of its own, to be timed.

    The data are zeros: sums that are summed again stay what they are, however often it runs.
    """
    world = current()
    share = world.size if schedule.collective in ("all_gather", "gather") else 1
    data = world.full(max(1, nbytes // (_ELEMENT * share)), 0)
    more = {"all_to_all": world.size}.get(schedule.collective, share)
    out = world.full(len(data) * more, 0) if more > 1 else data
    return partial(execute, schedule, data, out)


def compare_all(
    schedules: Sequence[Schedule], sizes: Sequence[int], link: Link, gamma: float, costs: RoundCosts, passes: int = 10
) -> list[Comparison]:
    """Run schedules in turns at each size, in a rank; return the fastest times beside both predictions."""
    cases = [(schedule, nbytes) for nbytes in sizes for schedule in schedules]
    rows = []
    for (schedule, nbytes), took in zip(cases, in_turns([prepared(*case) for case in cases], passes), strict=True):
        predicted = price(schedule, crossbar(schedule.ranks, link), nbytes, gamma).seconds
        rows.append(Comparison(schedule.name, nbytes, took, predicted, costs.seconds(schedule, nbytes)))
    return rows


def lab(collective: str = "all_reduce", sizes: Sequence[int] = (1_024, 65_536, 1_048_576)) -> str:
    """Fit the link, run every algorithm for the collective that suits the ranks; return the table."""
    fitted, gamma, costs = exchange_link(), reduction_time(), measured_rounds()
    head = [ranks_of(), f"simultaneous exchange: {fitted}; additions at {quantity(1 / gamma, 'B/s')}"]
    schedules = [entry(current().size) for entry in algorithms(collective, current().size)]
    rows = compare_all(schedules, [_divisible(nbytes) for nbytes in sizes], fitted.link, gamma, costs)
    return "\n".join([*head, *map(str, rows)])


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
