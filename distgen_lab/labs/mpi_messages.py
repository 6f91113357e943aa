"""Point-to-point messages over MPI: the eager limit, work stealing, two ways to broadcast, and what pickling costs.

``mpiexec -n 4 python -m mpi4py -m distgen_lab.labs.mpi_messages``
"""

import pickle
import time
from collections.abc import Sequence
from typing import Any

from distgen_lab.labs import ranks_of
from distgen_lab.labs.mpi_ranks import MPI, run_mpi
from distgen_lab.units import duration

__all__ = [
    "LARGEST", "binomial_broadcast", "busy", "eager_limit", "lab", "linear_broadcast", "main", "pickle_times",
    "returns_early", "steal_work",
]  # fmt: skip

LARGEST = 2**22
"""Bytes of a message that no library buffers without being asked."""
STOP = 1
"""Tag that tells a worker that there is no more work."""


def busy(seconds: float) -> tuple[float, float]:
    """Compute for so long, without a call of MPI; return when it began and ended, on the clock of the recording."""
    start = now = time.monotonic()
    while now < start + seconds:
        now = time.monotonic()
    return start, now


def returns_early(nbytes: int, tries: int = 100) -> bool:
    """Return, on rank 0, whether a send to rank 1 is done before rank 1 asks for the message (False elsewhere).

    Rank 1 asks only after a barrier behind which rank 0 has looked, so that nothing can hang.
    """
    comm, data = MPI.COMM_WORLD, bytearray(nbytes)
    early = False
    if comm.rank == 0:
        request = comm.Isend(data, 1)
        early = any(request.Test() for _ in range(tries))
    comm.Barrier()
    if comm.rank == 0:
        request.Wait()
    elif comm.rank == 1:
        comm.Recv(data, 0)
    return early


def eager_limit() -> int:
    """Return the largest message in bytes that a send hands over before its receiver has come, found by bisection.

    Raises:
        ValueError: if there are fewer than two ranks.
    """
    comm = MPI.COMM_WORLD
    if comm.size < 2:
        raise ValueError("one rank has no receiver: start two or more")
    eager, late = 0, LARGEST
    while late - eager > 1:
        middle = (eager + late) // 2
        if comm.bcast(returns_early(middle)):
            eager = middle
        else:
            late = middle
    return eager


def steal_work(costs: Sequence[float]) -> list[int]:
    """Let rank 0 hand out tasks of ``costs`` seconds to whoever is free; return, on rank 0, each worker's tasks done.

    Raises:
        ValueError: if there is no worker.
    """
    comm = MPI.COMM_WORLD
    if comm.size < 2:
        raise ValueError("rank 0 hands out work and does none: start two ranks or more")
    return _coordinate(comm, list(costs)) if comm.rank == 0 else _work(comm)


def _coordinate(comm: Any, tasks: list[float]) -> list[int]:
    done, status, working = [0] * comm.size, MPI.Status(), comm.size - 1
    while working:
        finished = comm.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=status)
        worker = status.Get_source()
        done[worker] += finished
        if tasks:
            comm.send(tasks.pop(0), worker)
        else:
            comm.send(None, worker, tag=STOP)
            working -= 1
    return done


def _work(comm: Any) -> list[int]:
    status, finished = MPI.Status(), 0
    while True:
        comm.send(finished, 0)
        cost = comm.recv(source=0, tag=MPI.ANY_TAG, status=status)
        if status.Get_tag() == STOP:
            return []
        busy(cost)
        finished = 1


def linear_broadcast(data: Any, root: int = 0) -> None:
    """Send the root's buffer to every other rank, one after the other."""
    comm = MPI.COMM_WORLD
    if comm.rank != root:
        comm.Recv(data, root)
        return
    for rank in range(comm.size):
        if rank != root:
            comm.Send(data, rank)


def binomial_broadcast(data: Any, root: int = 0) -> None:
    """Send the root's buffer down a binomial tree: in each round, every rank that has it sends it on."""
    comm = MPI.COMM_WORLD
    size, place = comm.size, (comm.rank - root) % comm.size
    reach = 1
    while reach < size:
        reach *= 2
    low = place & -place if place else reach
    if place:
        comm.Recv(data, (place - low + root) % size)
    while low > 1:
        low //= 2
        if place + low < size:
            comm.Send(data, (place + low + root) % size)


def pickle_times(elements: int = 100_000, repeats: int = 10) -> dict[str, float]:
    """Return the seconds of one message from rank 0 to rank 1, fastest of ``repeats``: as buffer, pickled, as list."""
    import numpy as np

    comm = MPI.COMM_WORLD
    array, room = np.ones(elements), np.empty(elements)
    listed = array.tolist()
    ways = {
        "Send, a buffer": (lambda: comm.Send(array, 1), lambda: comm.Recv(room, 0)),
        "send, the same array pickled": (lambda: comm.send(array, 1), lambda: comm.recv(source=0)),
        "send, as a list of floats": (lambda: comm.send(listed, 1), lambda: comm.recv(source=0)),
    }
    return {name: _fastest(comm, calls, repeats) for name, calls in ways.items()}


def _fastest(comm: Any, calls: tuple, repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        comm.Barrier()
        start = time.perf_counter()
        if comm.rank < 2:
            calls[comm.rank]()
        seconds.append(comm.allreduce(time.perf_counter() - start, op=MPI.MAX))
    return min(seconds)


def lab() -> str:
    """Measure in a rank; return the table."""
    import numpy as np

    lines = [ranks_of(), f"eager limit: {eager_limit():,} bytes"]
    lines += [f"{name:<30} {duration(seconds)}" for name, seconds in pickle_times().items()]
    lines.append(f"{len(pickle.dumps(np.ones(100_000))):,} bytes pickled, {8 * 100_000:,} as a buffer")
    done = steal_work([0.02] + 20 * [0.002])
    if MPI.COMM_WORLD.rank == 0:
        lines.append(f"tasks done by each worker: {done[1:]}")
    return "\n".join(lines)


def main() -> None:
    """Run the lab from the command line."""
    run_mpi(lab, ranks=3)


if __name__ == "__main__":
    main()
