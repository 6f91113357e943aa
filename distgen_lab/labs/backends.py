"""The same operations on Gloo, MPI and NCCL: what each can do, and how fast it is here.

``python -m distgen_lab.labs.backends`` compares the backends of this machine; under torchrun or mpiexec it tries the
one it was started with.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any

from distgen_lab.bench import measure
from distgen_lab.labs import ranks_of
from distgen_lab.ranks.world import current, launcher
from distgen_lab.units import duration, quantity

__all__ = ["OPERATIONS", "Backend", "compare", "lab", "main", "supported"]

OPERATIONS = (
    "send and recv", "recv from any rank", "broadcast", "all_reduce (sum)", "all_reduce (average)", "all_reduce (bits)",
    "all_reduce (bfloat16)", "reduce", "gather", "scatter", "all_gather", "reduce_scatter", "all_to_all (even)",
    "all_to_all (uneven)", "barrier",
)  # fmt: skip
"""What :func:`supported` tries, in this order."""


def supported() -> dict[str, bool]:
    """Try every operation on small data in a rank, together with the others; return which gave the right result.

    An operation that a backend does not have raises on every rank alike, and the next one is tried.
    """
    tries = _mpi_tries() if current().backend == "mpi" else _torch_tries()
    return {name: _runs(tries[name]) for name in OPERATIONS}


def _runs(attempt: Callable[[], bool] | None) -> bool:
    if attempt is None:
        return False
    try:
        return bool(attempt())
    except (RuntimeError, ValueError, NotImplementedError, TypeError):
        return False


class _Torch:
    """Every operation of ``torch.distributed`` once, each method saying whether it gave the right result."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        world = current()
        self.torch, self.dist, self.device = torch, dist, world.device
        self.rank, self.size = world.rank, world.size
        self.left, self.right = (self.rank - 1) % self.size, (self.rank + 1) % self.size
        self.total = self.size * (self.size + 1) // 2
        self.everyone = torch.arange(1.0, self.size + 1, device=self.device)

    def own(self, count: int = 4, dtype: Any = None) -> Any:
        return self.torch.full((count,), self.rank + 1, dtype=dtype or self.torch.float32, device=self.device)

    def zeros(self, count: int = 4) -> Any:
        return self.torch.zeros(count, device=self.device)

    def reduced(self, op: str, wanted: float, dtype: str = "float32") -> bool:
        data = self.own(dtype=getattr(self.torch, dtype))
        self.dist.all_reduce(data, getattr(self.dist.ReduceOp, op))
        return bool((data == wanted).all())

    def exchanged(self, source: int | None) -> bool:
        got, request = self.zeros(), self.dist.isend(self.own(), self.right)
        self.dist.recv(got, source)
        request.wait()
        return bool((got == self.left + 1).all())

    def broadcast(self) -> bool:
        data = self.own()
        self.dist.broadcast(data, 0)
        return bool((data == 1).all())

    def reduce(self) -> bool:
        data = self.own()
        self.dist.reduce(data, 0)
        return self.rank != 0 or bool((data == self.total).all())

    def gather(self) -> bool:
        parts = [self.zeros() for _ in range(self.size)] if self.rank == 0 else None
        self.dist.gather(self.own(), parts, 0)
        return parts is None or all(bool((part == k + 1).all()) for k, part in enumerate(parts))

    def scatter(self) -> bool:
        got, parts = self.zeros(), [self.zeros() + k + 1 for k in range(self.size)] if self.rank == 0 else None
        self.dist.scatter(got, parts, 0)
        return bool((got == self.rank + 1).all())

    def all_gather(self) -> bool:
        got = self.zeros(4 * self.size)
        self.dist.all_gather_single(got, self.own())
        return bool((got == self.everyone.repeat_interleave(4)).all())

    def reduce_scatter(self) -> bool:
        got = self.zeros()
        self.dist.reduce_scatter_single(got, self.own(4 * self.size))
        return bool((got == self.total).all())

    def even(self) -> bool:
        got = self.zeros(4 * self.size)
        self.dist.all_to_all_single(got, self.own(4 * self.size))
        return bool((got == self.everyone.repeat_interleave(4)).all())

    def uneven(self) -> bool:
        got, into = self.zeros(self.size * (self.rank + 1)), [self.rank + 1] * self.size
        self.dist.all_to_all_single(got, self.own(self.total), into, [k + 1 for k in range(self.size)])
        return bool((got == self.everyone.repeat_interleave(self.rank + 1)).all())

    def barrier(self) -> bool:
        self.dist.barrier()
        return True


def _bits(size: int) -> int:
    """All ranks' values joined bit by bit."""
    return reduce(or_, range(1, size + 1))


def _torch_tries() -> dict[str, Callable[[], bool] | None]:
    t = _Torch()
    return {
        "send and recv": partial(t.exchanged, t.left),
        "recv from any rank": partial(t.exchanged, None),
        "broadcast": t.broadcast,
        "all_reduce (sum)": partial(t.reduced, "SUM", t.total),
        "all_reduce (average)": partial(t.reduced, "AVG", t.total / t.size),
        "all_reduce (bits)": partial(t.reduced, "BOR", _bits(t.size), "int32"),
        "all_reduce (bfloat16)": partial(t.reduced, "SUM", t.total, "bfloat16"),
        "reduce": t.reduce,
        "gather": t.gather,
        "scatter": t.scatter,
        "all_gather": t.all_gather,
        "reduce_scatter": t.reduce_scatter,
        "all_to_all (even)": t.even,
        "all_to_all (uneven)": t.uneven,
        "barrier": t.barrier,
    }


def _mpi_tries() -> dict[str, Callable[[], bool] | None]:
    import numpy as np
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank, size = comm.rank, comm.size
    total, left, right = size * (size + 1) // 2, (rank - 1) % size, (rank + 1) % size
    own, got = np.full(4, rank + 1.0, np.float32), np.zeros(4, np.float32)
    everyone, many = np.arange(1.0, size + 1, dtype=np.float32), np.full(4 * size, rank + 1.0, np.float32)
    out = np.zeros(4 * size, np.float32)

    def is_(call: Callable[[], Any], found: Any, wanted: Any, where: bool = True) -> Callable[[], bool]:
        def attempt() -> bool:
            call()
            return not where or bool(np.all(found == wanted))

        return attempt

    def uneven() -> bool:
        sizes = np.arange(1, size + 1)
        take = np.zeros(size * (rank + 1), np.float32)
        comm.Alltoallv([np.full(total, rank + 1.0, np.float32), sizes], [take, np.full(size, rank + 1)])
        return bool((take == everyone.repeat(rank + 1)).all())

    whole, bits = np.full(4, rank + 1, np.int32), np.zeros(4, np.int32)
    first = np.full(4, rank + 1.0, np.float32)
    table = np.arange(1.0, size + 1, dtype=np.float32).repeat(4) if rank == 0 else None
    every = everyone.repeat(4)
    return {
        "send and recv": is_(lambda: comm.Sendrecv(own, right, recvbuf=got, source=left), got, left + 1),
        "recv from any rank": is_(lambda: comm.Sendrecv(own, right, 7, got, MPI.ANY_SOURCE, 7), got, left + 1),
        "broadcast": is_(lambda: comm.Bcast(first, 0), first, 1),
        "all_reduce (sum)": is_(lambda: comm.Allreduce(own, got), got, total),
        "all_reduce (average)": None,  # MPI has no average
        "all_reduce (bits)": is_(lambda: comm.Allreduce(whole, bits, MPI.BOR), bits, _bits(size)),
        "all_reduce (bfloat16)": None,  # nor the type
        "reduce": is_(lambda: comm.Reduce(own, got, root=0), got, total, rank == 0),
        "gather": is_(lambda: comm.Gather(own, out if rank == 0 else None, 0), out, every, rank == 0),
        "scatter": is_(lambda: comm.Scatter(table, got, 0), got, rank + 1),
        "all_gather": is_(lambda: comm.Allgather(own, out), out, every),
        "reduce_scatter": is_(lambda: comm.Reduce_scatter_block(many, got), got, total),
        "all_to_all (even)": is_(lambda: comm.Alltoall(many, out), out, every),
        "all_to_all (uneven)": uneven,
        "barrier": lambda: comm.Barrier() is None,
    }


@dataclass(frozen=True)
class Backend:
    """One backend on this machine: what it can do, seconds of the smallest message, bytes/s of a large all-reduce."""

    name: str
    supported: dict[str, bool]
    latency: float
    busbw: float

    @property
    def lacking(self) -> list[str]:
        """The operations it does not have."""
        return [name for name, there in self.supported.items() if not there]

    def __str__(self) -> str:
        lacks = ", ".join(self.lacking) or "nothing"
        fast = f"{duration(self.latency)} for 4 bytes, busbw {quantity(self.busbw, 'B/s')} for 4 MiB"
        return (
            f"{self.name:<5} {sum(self.supported.values())} of {len(self.supported)} operations; {fast}; lacks {lacks}"
        )


def compare(ranks: int = 2) -> list[Backend]:
    """Return the backends that run here, measured on ``ranks`` ranks of this machine: Gloo, MPI, NCCL."""
    from distgen_lab.ranks import LaunchError, launch

    found = []
    for name in ("gloo", "mpi", "nccl"):
        try:
            found.append(launch(_measured, ranks, name, args=(name,), record=False)[0].value)
        except LaunchError:
            continue  # not installed, or not enough GPUs
    return found


def _measured(name: str) -> Backend:
    """In a rank: what the backend can do and how fast it is."""
    able = supported()
    return Backend(name, able, measure("all_reduce", 4, 50).seconds, measure("all_reduce", 2**22, 10).busbw)


def lab() -> str:
    """Try every operation in a rank; return the table."""
    table = supported()
    return "\n".join([ranks_of(), *(f"{name:<20} {'yes' if there else 'no'}" for name, there in table.items())])


def main() -> None:
    """Run the lab from the command line."""
    from distgen_lab.labs import run

    if launcher():
        run(lab)
    else:
        print("\n".join(map(str, compare())))


if __name__ == "__main__":
    main()
