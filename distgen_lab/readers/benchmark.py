"""What benchmark logs are read into: rows of sizes and times, runs of them, and their fit.

A :class:`Measured` has the fields of :class:`distgen_lab.bench.Row` and more, so that ``bench.fit_rows``,
``bench.to_csv`` and ``bench.to_json`` take it too.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from distgen_lab.alphabeta import BUS_FACTORS, Fit, fit_where_it_holds
from distgen_lab.units import quantity

__all__ = ["BUS_FACTORS", "BenchmarkLog", "Measured", "Run", "ranks_of_factor"]


def ranks_of_factor(op: str, low: float, high: float) -> tuple[float, float]:
    """Return between which numbers of ranks the bus factor of ``op`` lies between ``low`` and ``high``.

    An operation whose factor is 1 for any number of ranks gives (1, infinity) if 1 lies between, else (1, 0): none.

    >>> ranks_of_factor("all_reduce", 1.875, 1.875)
    (16.0, 16.0)
    """
    top = BUS_FACTORS[op](2) * 2  # the limit for many ranks
    if op in ("broadcast", "reduce", "sendrecv"):
        return (1.0, math.inf) if low <= 1 <= high else (1.0, 0.0)
    return tuple(top / (top - factor) if factor < top else math.inf for factor in (low, high))  # type: ignore


@dataclass(frozen=True)
class Measured:
    """One measurement of a log.

    Attributes:
        op, ranks: the run's; ranks is 0 where nothing tells it.
        backend: "nccl" or "rccl".
        nbytes, count: size of the whole buffer, and elements as printed.
        seconds: time of one operation.
        wrong: wrong elements, 0 where they were not checked (see ``checked``).
        place: "out" or "in" (of place).
        algbw, busbw: bytes/s as printed, rounded as they are there.
        line: where it stands.
        checked: whether results were checked.
        error: the largest deviation, of old versions that print it instead of a count; else None.
    """

    op: str
    ranks: int
    backend: str
    nbytes: int
    count: int
    seconds: float
    wrong: int
    place: str = "out"
    algbw: float = 0.0
    busbw: float = 0.0
    line: int = 0
    checked: bool = True
    error: float | None = None

    def __str__(self) -> str:
        rates = f"{quantity(self.algbw, 'B/s'):>12}  {quantity(self.busbw, 'B/s'):>12}"
        return f"{self.nbytes:>14,}  {self.seconds * 1e6:>10.1f}us  {rates}  {self.place:>3}"


@dataclass(frozen=True)
class Run:
    """One table of a log.

    Attributes:
        op, op_from: the operation and how it is known.
        ranks, ranks_from: number of ranks and how it is known; None where nothing tells.
        backend: "nccl" or "rccl".
        rows: the measurements, out of place and in place, in the file's order.
        lines: complete rows of the file; ``broken`` more were cut by other output or by the end of the file.
        dtype, redop, root: as printed; None where there is no such column.
        printed_average: bytes/s of "Avg bus bandwidth", None where it is missing.
        out_of_bounds: the number of that line, None where it is missing.
        devices: (rank, host, device) of the rank lines.
        parameters: minBytes, maxBytes and so on of the parameter line.
        version: the version of NCCL or of the tests where it stands.
        notes: what was inferred, left out, or does not fit.
    """

    op: str
    op_from: str
    ranks: int | None
    ranks_from: str
    backend: str
    rows: tuple[Measured, ...]
    lines: int
    broken: int
    dtype: str
    redop: str | None
    root: int | None
    printed_average: float | None
    out_of_bounds: int | None
    devices: tuple[tuple[int, str, str], ...]
    parameters: dict[str, str]
    version: str
    notes: tuple[str, ...]

    @property
    def peak(self) -> Measured:
        """The measurement with the highest bus bandwidth."""
        return max(self.rows, key=lambda row: row.busbw)

    @property
    def average(self) -> float:
        """Mean busbw in bytes/s of the rows that are there, sizes of 0 included, as the tests count it."""
        return sum(row.busbw for row in self.rows) / len(self.rows)

    @property
    def wrong(self) -> int | None:
        """Wrong elements of all rows; None if they were not checked."""
        checked = [row.wrong for row in self.rows if row.checked]
        return sum(checked) if checked else None

    @property
    def hosts(self) -> list[str]:
        """The hosts of the rank lines, in order, each once."""
        return list(dict.fromkeys(host for _, host, _ in self.devices))

    def fit(self, tolerance: float = 0.1) -> Fit | None:
        """Return alpha and beta of the bus traffic, over the widest range where a line holds to ``tolerance``.

        Bytes are those that a rank moves (size times the operation's factor), so 1/beta is a bus bandwidth.
        None where ranks are unknown (or one), or fewer than three sizes lie on a line.
        """
        rows = [row for row in self.rows if row.nbytes > 0]
        if self.ranks is None or len({row.nbytes for row in rows}) < 3:
            return None
        factor = BUS_FACTORS[self.op](self.ranks)
        if not factor:
            return None
        return fit_where_it_holds([row.nbytes * factor for row in rows], [row.seconds for row in rows], tolerance)


@dataclass(frozen=True)
class BenchmarkLog:
    """The runs of one file; with a single run its ``rows``, ``op`` and ``ranks`` are those of the log too."""

    source: str
    runs: tuple[Run, ...]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, place: int) -> Run:
        return self.runs[place]

    @property
    def rows(self) -> Sequence[Measured]:
        """All measurements of all runs."""
        return [row for run in self.runs for row in run.rows]
