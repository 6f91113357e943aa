"""When does a non-blocking collective make progress? Rank 0 computes; when is rank 1's all-reduce done?

``mpiexec -n 2 python -m mpi4py -m distgen_lab.labs.mpi_progress``; set ``MPIR_CVAR_ASYNC_PROGRESS=1`` before it to
give each rank of MPICH a thread that makes progress. MPI promises that a call returns when it can; it does not promise
that anything moves while no rank is inside MPI (MPI-4.1, Progress).
"""

import contextlib
import os
import time
from collections.abc import Iterator

from distgen_lab.labs import ranks_of
from distgen_lab.labs.mpi_ranks import MPI, measured, run_mpi

__all__ = ["ASYNC", "COMPUTING", "all_reduce_beside_compute", "lab", "main", "progress_thread"]

ASYNC = "MPIR_CVAR_ASYNC_PROGRESS"
"""MPICH's switch for a progress thread in each rank."""
COMPUTING = 0.4
"""Seconds for which rank 0 computes."""


def all_reduce_beside_compute(test: bool = False, seconds: float = COMPUTING, elements: int = 2**15) -> float:
    """Begin an all-reduce in a rank together with the others; return the seconds until it is done here.

    Rank 0 computes for ``seconds`` before it waits, the others wait at once.

    Args:
        test: whether rank 0 calls ``Test`` now and then while it computes.
        seconds: of computing.
        elements: float64 elements in the all-reduce.
    """
    import numpy as np

    comm = MPI.COMM_WORLD
    mine, total = np.ones(elements), np.empty(elements)
    comm.Allreduce(mine, total)
    comm.Barrier()
    start = time.perf_counter()
    request = comm.Iallreduce(mine, total)
    while comm.rank == 0 and time.perf_counter() < start + seconds:
        np.tanh(mine)
        if test:
            request.Test()
    request.Wait()
    return time.perf_counter() - start


@contextlib.contextmanager
def progress_thread() -> Iterator[None]:
    """While the block runs, ranks are launched with a progress thread each (MPICH; other libraries ignore it)."""
    before = os.environ.get(ASYNC)
    os.environ[ASYNC] = "1"
    try:
        yield
    finally:
        os.environ.pop(ASYNC)
        if before is not None:
            os.environ[ASYNC] = before


def lab(seconds: float = COMPUTING) -> str:
    """Measure in a rank, without and with calls of Test; return the table."""
    comm = MPI.COMM_WORLD
    thread = "with" if os.environ.get(ASYNC) == "1" else "without"
    lines = [ranks_of(), f"{thread} a progress thread ({ASYNC}), rank 0 computes for {measured(seconds)}"]
    for test, name in ((False, "rank 0 only computes"), (True, "rank 0 calls Test")):
        times = comm.allgather(all_reduce_beside_compute(test, seconds))
        lines.append(f"{name:<22} done on rank 0 after {measured(times[0])}, on rank 1 after {measured(times[-1])}")
    return "\n".join(lines)


def main() -> None:
    """Run the lab from the command line."""
    run_mpi(lab)


if __name__ == "__main__":
    main()
