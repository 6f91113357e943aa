"""A parameter server that posts no receive: its weights lie in a window, and the workers reach into it.

``mpiexec -n 3 python -m mpi4py -m distgen_lab.labs.mpi_server`` lets rank 0 compute while the others push updates,
once inside one long epoch (``Lock_all`` and ``Flush``) and once with a lock for each update.
"""

import time
from typing import Any

from distgen_lab.labs import ranks_of
from distgen_lab.labs.mpi_ranks import MPI, measured, run_mpi

__all__ = ["EPOCHS", "lab", "main", "push_updates", "window"]

EPOCHS = ("Lock_all and Flush", "a Lock for each update")
"""How the workers open their access to the server."""


def window(comm: Any, elements: int) -> tuple[Any, Any]:
    """Return a window of float64 zeros on rank 0, and its memory as an array there (of 0 elements elsewhere)."""
    import numpy as np

    size = elements if comm.rank == 0 else 0
    made = MPI.Win.Allocate(8 * size, 8, comm=comm)
    memory = np.frombuffer(made.tomemory(), np.float64)
    memory[:] = 0
    comm.Barrier()
    return made, memory


def push_updates(epoch: str = EPOCHS[0], updates: int = 10, elements: int = 4, seconds: float = 0.3) -> dict[str, Any]:
    """Serve or push in a rank, together with the others: rank 0 computes, every other rank adds 1 ``updates`` times.

    Returns:
        ``seconds`` until this rank had done its part, and ``weights``, on rank 0 what the window holds in the end.

    Raises:
        ValueError: for an epoch that is not in :data:`EPOCHS`.
    """
    import numpy as np

    if epoch not in EPOCHS:
        raise ValueError(f"epoch is {epoch!r}; there are: {', '.join(EPOCHS)}")
    comm, one = MPI.COMM_WORLD, np.ones(elements)
    win, memory = window(comm, elements)
    if epoch == EPOCHS[0]:
        win.Lock_all()
    comm.Barrier()
    start = time.perf_counter()
    if comm.rank == 0:
        time.sleep(seconds)  # computing: no call of MPI
    else:
        _push(win, one, epoch, updates)
    took = time.perf_counter() - start
    if epoch == EPOCHS[0]:
        win.Unlock_all()
    comm.Barrier()
    weights = memory.tolist()
    win.Free()
    return {"seconds": took, "weights": weights}


def _push(win: Any, update: Any, epoch: str, updates: int) -> None:
    """Add ``update`` to the window of rank 0 again and again."""
    for _ in range(updates):
        if epoch == EPOCHS[0]:
            win.Accumulate(update, 0, op=MPI.SUM)
            win.Flush(0)
        else:
            win.Lock(0, MPI.LOCK_SHARED)
            win.Accumulate(update, 0, op=MPI.SUM)
            win.Unlock(0)


def lab(updates: int = 10) -> str:
    """Push updates in both kinds of epoch in a rank; return the table."""
    lines = [ranks_of()]
    for epoch in EPOCHS:
        found = MPI.COMM_WORLD.allgather(push_updates(epoch, updates))
        worker, server = found[-1]["seconds"], found[0]
        lines.append(
            f"{epoch}: a worker had pushed {updates} updates after {measured(worker)}, "
            f"the server computed for {measured(server['seconds'])}; weights {server['weights']}"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the lab from the command line."""
    run_mpi(lab, ranks=3)


if __name__ == "__main__":
    main()
