"""What nccl-tests reports: the factor from algbw to busbw, what it tells of the ranks, and recorded runs.

A row of nccl-tests has the size in bytes and in elements, the type and the reduction, the root (-1 where there is
none), and then twice, for a result in a buffer of its own (out-of-place) and in the buffer it came from (in-place):
time in microseconds, algbw = bytes / time, busbw = algbw x a factor of the operation, and how many elements came out
wrong. ``readers.read_log`` reads such files.

Source: NVIDIA, nccl-tests, README.md and doc/PERFORMANCE.md; recorded runs with their sources in
``data/measured/nccl_tests.json``.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from distgen_lab.bench import BUS_FACTORS

__all__ = ["Sweep", "bus_factor", "example", "host_copies", "ranks_of_ratio", "recorded", "switch_sums", "v100_rings"]

_MOST_RANKS = 4096


def bus_factor(operation: str, ranks: int) -> float:
    """Return busbw over algbw: what the busiest link of a flat network carries, over the size.

    Raises:
        ValueError: for an unknown operation, or fewer than two ranks.

    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 8), bus_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    if operation not in BUS_FACTORS:
        raise ValueError(f"unknown operation {operation!r}; there are: {', '.join(BUS_FACTORS)}")
    if ranks < 2:
        raise ValueError(f"ranks is {ranks}; 2 or more are needed")
    return BUS_FACTORS[operation](ranks)


def ranks_of_ratio(ratio: float, operation: str = "all_reduce", tolerance: float = 2e-3) -> int | None:
    """Return the number of ranks whose factor is nearest to ``ratio``; None if none is near, or the factor is always 1.

    A way to see how many ranks a log really came from: 1.75 is 8, 1.979 is 96.

    >>> ranks_of_ratio(1.75), ranks_of_ratio(1.97917), ranks_of_ratio(1.0, "broadcast")
    (8, 96, None)
    """
    if bus_factor(operation, 2) == bus_factor(operation, 3):
        return None
    best = min(range(2, _MOST_RANKS + 1), key=lambda ranks: abs(bus_factor(operation, ranks) - ratio))
    return best if abs(bus_factor(operation, best) - ratio) <= tolerance else None


@dataclass(frozen=True)
class Sweep:
    """A recorded run of nccl-tests: where, what, and seconds for each size in bytes."""

    name: str
    machine: str
    collective: str
    ranks: int
    nodes: int
    source: str
    bytes: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def busbw(self) -> tuple[float, ...]:
        """Bus bandwidth of each size, in bytes/s."""
        factor = bus_factor(self.collective, self.ranks)
        return tuple(factor * n / s for n, s in zip(self.bytes, self.seconds, strict=True))

    def at(self, nbytes: int) -> float:
        """Return the bus bandwidth of one size.

        Raises:
            ValueError: for a size that was not measured.
        """
        if nbytes not in self.bytes:
            raise ValueError(f"{nbytes} bytes were not measured; there are: {', '.join(map(str, self.bytes))}")
        return self.busbw[self.bytes.index(nbytes)]


@cache
def _data() -> dict[str, Any]:
    return json.loads((files("distgen_lab") / "data" / "measured" / "nccl_tests.json").read_text("utf-8"))


def recorded(name: str) -> Sweep:
    """Return a recorded sweep: "A100", "H100", "H200", "B200" (one node of eight), "2 x A100", "2 x H100", "H200 ring".

    Raises:
        ValueError: for an unknown name; the message lists the known ones.

    >>> recorded("A100").ranks
    8
    """
    sweeps = _data()["sweeps"]
    if name not in sweeps:
        raise ValueError(f"no recorded run is called {name!r}; there are: {', '.join(sweeps)}")
    row = sweeps[name]
    return Sweep(name, **row | {"bytes": tuple(row["bytes"]), "seconds": tuple(row["seconds"])})


def switch_sums(gpu: str = "H200") -> dict[int, tuple[float, float]]:
    """Return {ranks: (busbw of the ring, busbw of what NCCL takes by itself)} for 8 GiB in one node, in bytes/s.

    NCCL takes the switch's sums (NVLS) where they are faster: from five H200 on, from six B200 on.

    Raises:
        ValueError: for a GPU other than "H200" and "B200".
    """
    table = _data()["switch_sums"]
    if gpu not in ("H200", "B200"):
        raise ValueError(f"gpu is {gpu!r}; there are: H200, B200")
    rows = table[gpu]
    return {p: (r, d) for p, r, d in zip(rows["ranks"], rows["ring"], rows["default"], strict=True)}


def v100_rings() -> dict[int, float]:
    """Return {GPUs: busbw} that all-reduces on a DGX-1V approach for large sizes, on GPUs 0 to P-1, in bytes/s."""
    return {int(ranks): value for ranks, value in _data()["v100_rings"]["busbw"].items()}


def host_copies() -> dict[str, Any]:
    """Return recorded bytes/s of one H100: "device_to_host", "host_to_device", "peer_to_peer", and their sources."""
    return dict(_data()["host"])


def example() -> Path:
    """Return the path of a log that travels with the course: all_reduce_perf on eight H100."""
    return Path(str(files("distgen_lab") / "data" / "measured" / "all_reduce_8xh100.log"))
