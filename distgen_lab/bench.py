"""Benchmark collectives on real ranks: size, time, algbw and busbw in the manner of nccl-tests, and the alpha-beta fit.

Sizes follow nccl-tests: bytes of one rank's whole buffer (all_gather: of its output, reduce_scatter: of its input).
algbw is size over time; busbw multiplies it by what the operation must move over the busiest link, which makes it
comparable with a link's bandwidth whatever the number of ranks (NVIDIA, nccl-tests, PERFORMANCE.md).
"""

import csv
import io
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from distgen_lab import alphabeta
from distgen_lab.alphabeta import Fit, fit
from distgen_lab.ranks.world import current
from distgen_lab.units import quantity

__all__ = ["BUS_FACTORS", "HEADER", "Row", "fit_rows", "measure", "sizes", "sweep", "to_csv", "to_json"]

_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "sendrecv")
BUS_FACTORS: dict[str, Callable[[int], float]] = {op: alphabeta.BUS_FACTORS[op] for op in _OPERATIONS}
"""busbw over algbw of the operations that are measured here, as a function of the number of ranks."""
HEADER = f"{'size':>12}  {'count':>10}  {'time':>10}  {'algbw':>12}  {'busbw':>12}  wrong"
_ELEMENT = 4


@dataclass(frozen=True)
class Row:
    """One line: operation, ranks, backend, bytes, elements (float32), seconds, wrong elements over all ranks."""

    op: str
    ranks: int
    backend: str
    nbytes: int
    count: int
    seconds: float
    wrong: int

    @property
    def algbw(self) -> float:
        """Bytes over seconds."""
        return self.nbytes / self.seconds

    @property
    def busbw(self) -> float:
        """algbw times the operation's factor, in bytes/s: comparable with a link's bandwidth per direction."""
        return self.algbw * BUS_FACTORS[self.op](self.ranks)

    def __str__(self) -> str:
        rates = f"{quantity(self.algbw, 'B/s'):>12}  {quantity(self.busbw, 'B/s'):>12}"
        return f"{self.nbytes:>12,}  {self.count:>10,}  {self.seconds * 1e6:>8.1f}us  {rates}  {self.wrong:>5}"


def sizes(smallest: int, largest: int, factor: int = 4) -> list[int]:
    """Return sizes from ``smallest`` to ``largest`` bytes, each ``factor`` times the one before.

    Raises:
        ValueError: for sizes below one element, a largest below the smallest, or a factor below 2.
    """
    if smallest < _ELEMENT or largest < smallest or factor < 2:
        raise ValueError(
            f"sizes from {smallest} to {largest} by {factor}: the smallest must be {_ELEMENT} bytes or more, "
            "the largest not below it, the factor 2 or more"
        )
    found = [smallest]
    while found[-1] * factor <= largest:
        found.append(found[-1] * factor)
    return found


def sweep(
    op: str, nbytes: Iterable[int], ranks: int = 2, backend: str = "gloo", repeats: int = 20, warmup: int = 3
) -> Iterator[Row]:
    """Measure ``op`` for each size; yield a row as soon as it is there.

    The time is that of the slowest rank, the median over ``repeats`` calls after ``warmup`` ones. A size is rounded up
    to whole elements (and to one element a rank where the operation splits the buffer).

    Raises:
        ValueError: for an unknown operation, or ranks or repeats below 1.
        LaunchError: if the ranks cannot be started as asked.
    """
    from distgen_lab.ranks import launch

    if op not in BUS_FACTORS:
        raise ValueError(f"unknown operation {op!r}; there are: {', '.join(BUS_FACTORS)}")
    if ranks < 1:
        raise ValueError(f"ranks is {ranks}; 1 or more is needed")
    if repeats < 1 or warmup < 0:
        raise ValueError(f"repeats is {repeats} and warmup {warmup}; at least 1 and 0 are needed")
    for size in nbytes:
        run = launch(measure, ranks, backend, args=(op, size, repeats, warmup), timeout=300, record=False)
        yield run[0].value


def measure(op: str, nbytes: int, repeats: int = 20, warmup: int = 3) -> Row:
    """Time ``op`` in a rank, together with the others; return the row, the same on every rank (see :func:`sweep`)."""
    world = current()
    split = world.size if op in ("all_gather", "reduce_scatter", "all_to_all") else 1
    part = max(1, -(-nbytes // (_ELEMENT * split)))
    case = _mpi_case if world.backend == "mpi" else _torch_case
    call, wrong = case(op, part, world.rank, world.size)
    call()
    mistakes = wrong()
    answers = world.gather((_times(call, world.barrier, warmup, repeats), mistakes))
    times = sorted(max(one) for one in zip(*(seconds for seconds, _ in answers), strict=True))
    wrong_elements = sum(count for _, count in answers)
    shape = (part * split * _ELEMENT, part * split)
    return Row(op, world.size, world.backend, *shape, times[len(times) // 2], wrong_elements)


def _times(call: Callable, barrier: Callable, warmup: int, repeats: int) -> list[float]:
    """Seconds of each of ``repeats`` calls, every one begun together."""
    for _ in range(warmup):
        call()
    seconds = []
    for _ in range(repeats):
        barrier()
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def _torch_case(op: str, part: int, rank: int, size: int) -> tuple[Callable, Callable[[], int]]:
    """The call to time on buffers of its own, and a count of the elements that differ from what it should give."""
    import torch
    import torch.distributed as dist

    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    own = torch.full((part,), float(rank + 1), device=device)
    each = torch.arange(1, size + 1, device=device, dtype=torch.float32)
    total = float(size * (size + 1) // 2)
    left, right = (rank - 1) % size, (rank + 1) % size
    many, got, everyone = own.repeat(size), torch.zeros_like(own), each.repeat_interleave(part)
    out = torch.zeros_like(many)

    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # the name before torch 2.13
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

    def exchange() -> None:
        request = dist.isend(own, right)
        dist.recv(got, left)
        request.wait()

    def different(found: Any, wanted: Any) -> Callable[[], int]:
        return lambda: int((found != wanted).sum())

    cases = {
        "all_reduce": (lambda: dist.all_reduce(own), different(own, total)),
        "broadcast": (lambda: dist.broadcast(own, 0), different(own, 1.0)),
        "reduce": (lambda: dist.reduce(own, 0), different(own, total) if rank == 0 else lambda: 0),
        "all_gather": (lambda: gather(out, own), different(out, everyone)),
        "reduce_scatter": (lambda: scatter(got, many), different(got, total)),
        "all_to_all": (lambda: dist.all_to_all_single(out, many), different(out, everyone)),
        "sendrecv": (exchange, different(got, float(left + 1))),
    }
    call, wrong = cases[op]
    return (_synchronised(call) if device == "cuda" else call), wrong


def _synchronised(call: Callable) -> Callable:
    """NCCL's calls return before they have ended: wait for the device."""
    import torch

    def timed() -> None:
        call()
        torch.cuda.synchronize()

    return timed


def _mpi_case(op: str, part: int, rank: int, size: int) -> tuple[Callable, Callable[[], int]]:
    """The same over mpi4py, on NumPy buffers."""
    import numpy as np
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    own = np.full(part, rank + 1, np.float32)
    each, total = np.arange(1, size + 1, dtype=np.float32), size * (size + 1) / 2
    left, right = (rank - 1) % size, (rank + 1) % size
    many, got, everyone = np.tile(own, size), np.zeros_like(own), each.repeat(part)
    out = np.zeros_like(many)
    cases: dict[str, tuple[Callable, Any, Any]] = {
        "all_reduce": (lambda: comm.Allreduce(own, got), got, total),
        "broadcast": (lambda: comm.Bcast(own, 0), own, 1),
        "reduce": (lambda: comm.Reduce(own, got, root=0), got, total if rank == 0 else 0),
        "all_gather": (lambda: comm.Allgather(own, out), out, everyone),
        "reduce_scatter": (lambda: comm.Reduce_scatter_block(many, got), got, total),
        "all_to_all": (lambda: comm.Alltoall(many, out), out, everyone),
        "sendrecv": (lambda: comm.Sendrecv(own, right, recvbuf=got, source=left), got, left + 1),
    }
    call, found, wanted = cases[op]
    return call, lambda: int((found != wanted).sum())


def fit_rows(rows: list[Row]) -> Fit | None:
    """Fit alpha and beta to the rows' bus traffic (bytes x factor against seconds); None for fewer than three rows."""
    if len(rows) < 3:
        return None
    return fit([row.nbytes * BUS_FACTORS[row.op](row.ranks) for row in rows], [row.seconds for row in rows])


def _facts(row: Row) -> dict[str, Any]:
    return asdict(row) | {"algbw": row.algbw, "busbw": row.busbw}


def to_json(rows: list[Row]) -> str:
    """Return the rows as JSON: bytes, seconds, bytes/s."""
    return json.dumps([_facts(row) for row in rows], indent=1) + "\n"


def to_csv(rows: list[Row]) -> str:
    """Return the rows as CSV with a header: bytes, seconds, bytes/s."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(_facts(rows[0])) if rows else ["op"])
    writer.writeheader()
    writer.writerows(map(_facts, rows))
    return text.getvalue()
