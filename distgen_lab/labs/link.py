"""Measure the link between the first and the last rank, and fit alpha and beta to it.

``python -m distgen_lab.labs.link [--json FILE]``, or under torchrun, mpiexec or srun: see ``distgen_lab.labs``.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from distgen_lab.alphabeta import fit
from distgen_lab.bench import sizes as steps
from distgen_lab.labs import ranks_of, run
from distgen_lab.ranks.world import current
from distgen_lab.units import duration, quantity

__all__ = ["SIZES", "exchange_times", "lab", "main", "one_way_times"]

SIZES = tuple(4**k for k in range(3, 11))
"""64 B to 1 MiB."""


def one_way_times(sizes: Sequence[int] = SIZES, repeats: int = 30) -> list[float]:
    """Return seconds of a message one way, for each size in bytes: half the fastest of ``repeats`` round trips.

    The first and the last rank play; the others watch, and get the same answer.
    """
    world = current()
    first, last = 0, world.size - 1

    def round_trip(data: object) -> None:
        there, back = [(last, data)], [(first, data)]
        if world.rank == first:
            world.exchange(there, [])
            world.exchange([], there)
        elif world.rank == last:
            world.exchange([], back)
            world.exchange(back, [])

    return [seconds / 2 for seconds in _fastest(round_trip, sizes, repeats)]


def exchange_times(sizes: Sequence[int] = SIZES, repeats: int = 30) -> list[float]:
    """Return seconds of a simultaneous exchange between two ranks, for each size in bytes: the fastest of ``repeats``.

    It is what a round of most collectives does; on loopback, where both directions share the processor, it takes
    longer than a message one way.
    """
    world = current()
    peer = world.size - 1 - world.rank
    got = world.full(max(sizes) // 4, 0)

    def swap(data: object) -> None:
        if peer in (0, world.size - 1) and peer != world.rank:
            world.exchange([(peer, data)], [(peer, got[: len(data)])])

    return _fastest(swap, sizes, repeats)


def _fastest(action: Callable, sizes: Sequence[int], repeats: int) -> list[float]:
    """Seconds of the slowest rank in its fastest run, for each size, on every rank."""
    world = current()
    if world.size < 2:
        raise ValueError("one rank has no link: start two or more")
    fastest = []
    for size in sizes:
        data, seconds = world.full(max(1, size // 4), 1), []
        for _ in range(repeats + 2):  # two to warm up
            world.barrier()
            start = time.perf_counter()
            action(data)
            seconds.append(time.perf_counter() - start)
        runs = zip(*world.gather(seconds[2:]), strict=True)
        fastest.append(min(map(max, runs)))
    return fastest


def lab(sizes: Sequence[int] = SIZES, file: str | None = None) -> str:
    """Measure and fit in a rank; return the table, and on rank 0 write the figures to ``file`` as JSON."""
    seconds = one_way_times(sizes)
    found = fit(sizes, seconds)
    lines = [f"{quantity(n, 'B'):>10}  {duration(s):>9}" for n, s in zip(sizes, seconds, strict=True)]
    if file and current().rank == 0:
        facts = {"bytes": list(sizes), "seconds": seconds, **asdict(found)}
        Path(file).write_text(json.dumps(facts, indent=1) + "\n")
    return "\n".join([ranks_of(), *lines, str(found)])


def main() -> None:
    """Run the lab from the command line."""
    parser = argparse.ArgumentParser(description="Measure the link between the first and the last rank.")
    parser.add_argument("--json", metavar="FILE", help="also write sizes, seconds and the fit as JSON")
    parser.add_argument("--smallest", type=int, default=min(SIZES), help="smallest message in bytes")
    parser.add_argument("--largest", type=int, default=max(SIZES), help="largest message in bytes")
    parser.add_argument("--factor", type=int, default=4, help="each size is that many times the one before")
    given = parser.parse_args()
    run(lab, steps(given.smallest, given.largest, given.factor), given.json)


if __name__ == "__main__":
    main()
