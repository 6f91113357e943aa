"""Read what nccl-tests prints, and recorded runs of it on GPU machines.

A row of nccl-tests has the size in bytes and in elements, the type and the reduction, the root (-1 where there is
none), and then twice, for a result in a buffer of its own (out-of-place) and in the buffer it came from (in-place):
time in microseconds, algbw = bytes / time, busbw = algbw x a factor of the operation, and how many elements came out
wrong.

Source: NVIDIA, nccl-tests, README.md and doc/PERFORMANCE.md; recorded runs with their sources in
``data/measured/nccl_tests.json``.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from distgen_lab.bench import BUS_FACTORS
from distgen_lab.units import GB, US, quantity

__all__ = [
    "Log", "LogRow", "Sweep", "bus_factor", "example", "host_copies", "ranks_of_ratio", "read",
    "recorded", "switch_sums", "v100_rings",
]  # fmt: skip

_HALF = ("time", "algbw", "busbw", "#wrong")
_COLUMNS = ("size", "count", "type", "redop", "root", *_HALF, *_HALF)
_MOST_RANKS = 4096


@dataclass(frozen=True)
class LogRow:
    """One line of nccl-tests, in SI base units: ``wrong`` is None where the run did not check ("N/A").

    ``seconds``, ``algbw``, ``busbw`` and ``wrong`` are out-of-place; the ``in_place_`` ones are beside them.
    """

    nbytes: int
    count: int
    dtype: str
    redop: str
    root: int
    seconds: float
    algbw: float
    busbw: float
    wrong: int | None
    in_place_seconds: float
    in_place_algbw: float
    in_place_busbw: float
    in_place_wrong: int | None


@dataclass(frozen=True)
class Log:
    """What one run of nccl-tests printed: its rows, and how many devices it listed (0 if none were)."""

    name: str
    rows: tuple[LogRow, ...]
    devices: int

    @property
    def best(self) -> LogRow:
        """The row of highest busbw, out of place."""
        return max(self.rows, key=lambda row: row.busbw)

    @property
    def ratio(self) -> float:
        """busbw over algbw of the best row: the operation's factor, to the digits printed."""
        return self.best.busbw / self.best.algbw

    def __repr__(self) -> str:
        best, devices = self.best, f"{self.devices} devices, " if self.devices else ""
        sizes = f"{quantity(self.rows[0].nbytes, 'B')} to {quantity(self.rows[-1].nbytes, 'B')}"
        return f"{self.name}: {devices}{len(self.rows)} rows, {sizes}, best busbw {quantity(best.busbw, 'B/s')}"


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


def read(path: str | Path) -> Log:
    """Return the rows of an nccl-tests log, whatever else stands in the file (lines of a scheduler, of NCCL_DEBUG).

    Raises:
        ValueError: if no line is a row, or a row has a field that is none; the message names file, line and column.
        OSError: if the file cannot be read.
    """
    path = Path(path)
    lines = path.read_text("utf-8", "replace").splitlines()
    rows = [_row(path.name, number, line.split()) for number, line in enumerate(lines, 1) if _is_row(line)]
    if not rows:
        raise ValueError(
            f"{path.name}: no row of nccl-tests in {len(lines)} lines; one begins with size, count, type, redop, root"
        )
    devices = sum(bool(re.match(r"#\s+Rank\s+\d+", line)) for line in lines)
    return Log(path.name, tuple(rows), devices)


def _is_row(line: str) -> bool:
    """Two whole numbers and a type, as nothing else in such a log begins."""
    return bool(re.match(r"\s*\d+\s+\d+\s+[a-z]+[\w]*\s", line))


def _row(name: str, number: int, fields: Sequence[str]) -> LogRow:
    if len(fields) == 12:  # broadcasts and the like print no reduction: "none" stands for it in other versions
        fields = [*fields[:3], "none", *fields[3:]]
    if len(fields) != len(_COLUMNS):
        raise ValueError(f"{name}, line {number}: {len(fields)} columns; 13 are needed: {' '.join(_COLUMNS)}")

    def value(place: int) -> float:
        try:
            return float(fields[place])
        except ValueError:
            raise ValueError(
                f"{name}, line {number}: {_COLUMNS[place]} is {fields[place]!r}; a number is needed"
            ) from None

    def half(first: int) -> tuple[float, float, float, int | None]:
        wrong = None if fields[first + 3] == "N/A" else int(value(first + 3))
        return value(first) * US, value(first + 1) * GB, value(first + 2) * GB, wrong

    return LogRow(int(value(0)), int(value(1)), fields[2], fields[3], int(value(4)), *half(5), *half(9))


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
