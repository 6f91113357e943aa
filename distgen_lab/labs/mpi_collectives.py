"""What each collective of MPI does to data: found by running it, not by drawing it.

``mpiexec -n 4 python -m mpi4py -m distgen_lab.labs.mpi_collectives`` prints every rank's blocks before and after.
Each block of a rank is marked with its rank and its place; sums keep the marks of all that went into them, so that
the marks that arrive tell where they came from.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from distgen_lab.labs import ranks_of
from distgen_lab.labs.mpi_ranks import run_mpi

__all__ = ["FLOWS", "flow", "lab", "label", "main"]

Block = tuple[tuple[int, int], ...]
"""What a block holds: (rank, place) of everything that was added up in it; empty for nothing."""


def _call_of(name: str) -> Callable[[Any, Any, Any, int], None]:
    """A call of mpi4py on the marked blocks: ``send`` and ``receive`` are arrays, one row a block."""
    calls: dict[str, Callable] = {
        "Bcast": lambda comm, send, receive, root: _broadcast(comm, send, receive, root),
        "Reduce": lambda comm, send, receive, root: comm.Reduce(send, receive, root=root),
        "Allreduce": lambda comm, send, receive, root: comm.Allreduce(send, receive),
        "Gather": lambda comm, send, receive, root: comm.Gather(send[0].copy(), receive, root=root),
        "Allgather": lambda comm, send, receive, root: comm.Allgather(send[0].copy(), receive),
        "Scatter": lambda comm, send, receive, root: comm.Scatter(send, receive[0], root=root),
        "Reduce_scatter": lambda comm, send, receive, root: comm.Reduce_scatter(send, receive[0]),
        "Alltoall": lambda comm, send, receive, root: comm.Alltoall(send, receive),
        "Scan": lambda comm, send, receive, root: comm.Scan(send, receive),
    }
    return calls[name]


def _broadcast(comm: Any, send: Any, receive: Any, root: int) -> None:
    """Bcast has one buffer; the root fills it."""
    if comm.rank == root:
        receive[:] = send
    comm.Bcast(receive, root=root)


FLOWS: dict[str, tuple[int, str]] = {
    "Bcast": (1, "root"), "Reduce": (1, "all"), "Allreduce": (1, "all"), "Gather": (1, "all"),
    "Allgather": (1, "all"), "Scatter": (0, "root"), "Reduce_scatter": (0, "all"), "Alltoall": (0, "all"),
    "Scan": (1, "all"),
}  # fmt: skip
"""For each collective the blocks a rank sends (0: one for each rank), and who sends: the root or all."""


def flow(name: str, root: int = 0) -> tuple[list[Block], list[Block]]:
    """Run the collective in a rank, together with the others; return this rank's blocks before and after.

    Raises:
        ValueError: for a collective that is not in :data:`FLOWS`, or a root that is no rank.
    """
    import numpy as np
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if name not in FLOWS:
        raise ValueError(f"name is {name!r}; there are: {', '.join(FLOWS)}")
    if not 0 <= root < comm.size:
        raise ValueError(f"root is {root}; a rank from 0 to {comm.size - 1} is needed")
    blocks, who = FLOWS[name]
    size = comm.size
    send = np.zeros((blocks or size, size, size))
    if who == "all" or comm.rank == root:
        for place in range(len(send)):
            send[place, comm.rank, place] = 1
    before = [_marks(block) for block in send]
    receive = np.zeros((_received(name, size), size, size))
    _call_of(name)(comm, send, receive, root)
    return before, [_marks(block) for block in receive]


def _received(name: str, size: int) -> int:
    """Blocks that a rank has room for."""
    return size if name in ("Gather", "Allgather", "Alltoall") else 1


def _marks(block: Any) -> Block:
    """The marks of a block."""
    return tuple((int(rank), int(place)) for rank, place in zip(*block.nonzero(), strict=True))


def label(block: Block, ranks: int) -> str:
    """Return a block in letters: "B2" is block 2 of rank 1, "Σ2" the sum of all ranks' block 2, "A+B" of some."""
    if not block:
        return ""
    letters, place = [chr(ord("A") + rank) for rank, _ in block], block[0][1]
    if len(block) == 1:
        return f"{letters[0]}{place}"
    return f"Σ{place}" if len(block) == ranks else "+".join(letters)


def lab(names: Sequence[str] = tuple(FLOWS), root: int = 0) -> str:
    """Run the collectives in a rank; return every rank's blocks before and after."""
    from distgen_lab.ranks.world import current

    lines = [ranks_of()]
    for name in names:
        found = current().gather(flow(name, root))
        lines.append(name)
        for rank, (before, after) in enumerate(found):
            shown = (" ".join(label(block, len(found)) or "." for block in blocks) for blocks in (before, after))
            lines.append(f"  rank {rank}: {' -> '.join(shown)}")
    return "\n".join(lines)


def main() -> None:
    """Run the lab from the command line."""
    parser = argparse.ArgumentParser(description="Show what each MPI collective does to data.")
    parser.add_argument("names", nargs="*", default=list(FLOWS), metavar="COLLECTIVE", help=", ".join(FLOWS))
    parser.add_argument("--root", type=int, default=0)
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in FLOWS]
    if unknown:
        parser.error(f"unknown collective {unknown[0]!r}; there are: {', '.join(FLOWS)}")
    run_mpi(lab, given.names, given.root)


if __name__ == "__main__":
    main()
