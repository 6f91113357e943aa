"""Conjugate gradients on real ranks: strips of a grid, halos to the neighbours, all-reduces that may run beside work.

``python -m distgen_lab.labs.cg --side 200``, or under torchrun, mpiexec or srun: see ``distgen_lab.labs``. Over MPI the
reductions are ``Iallreduce``, over Gloo ``all_reduce(async_op=True)``; ``launch`` records both, so that reductions and
halo messages are counted, not believed.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from distgen_lab.cg import VARIANTS, Poisson, Solution
from distgen_lab.cg import run as iterate
from distgen_lab.labs import ranks_of, run
from distgen_lab.ranks.world import current
from distgen_lab.timeline import Timeline
from distgen_lab.units import duration

__all__ = ["Counts", "Strip", "counts", "iteration_seconds", "lab", "main", "solve_on_ranks"]


class Strip:
    """This rank's rows of the grid: a :class:`distgen_lab.cg.Space` on the ranks there are.

    Args:
        side: grid points along one edge, at least one row for each rank.
        contrast: of the scaling, see :class:`distgen_lab.cg.Poisson`.
        jacobi: whether to precondition with the inverse diagonal.
    """

    def __init__(self, side: int, contrast: float = 1.0, jacobi: bool = False) -> None:
        world = current()
        if side < world.size:
            raise ValueError(
                f"side is {side}; at least one row of the grid for each of the {world.size} ranks is needed"
            )
        self.rank, self.size = world.rank, world.size
        low, high = (side * k // self.size for k in (self.rank, self.rank + 1))
        self.grid = Poisson(side, contrast, low, high)
        self._inverse = self.grid.inverse_diagonal() if jacobi else None
        self._talk = _Mpi() if world.backend == "mpi" else _Torch()
        self.above = self.rank - 1 if self.rank else None
        self.below = self.rank + 1 if self.rank + 1 < self.size else None

    def multiply(self, v: np.ndarray) -> np.ndarray:
        """Return this strip's piece of A v: the neighbours' edges are fetched while the inside is computed."""
        first, last = self.grid.edges(v)
        finish = self._talk.swap([(self.above, first), (self.below, last)])
        inside = self.grid(v)
        above, below = finish()
        out = inside.reshape(self.grid.shape)
        out[0] -= self.grid.scaling[0] * above
        out[-1] -= self.grid.scaling[-1] * below
        return out.ravel()

    def precondition(self, v: np.ndarray) -> np.ndarray:
        """Return this strip's piece of M v; no communication."""
        return v if self._inverse is None else self._inverse * v

    def dots(self, *pairs: tuple[np.ndarray, np.ndarray]) -> Any:
        """Start one all-reduce of the local dot products."""
        return self._talk.sum(np.array([np.vdot(a, b) for a, b in pairs]))


@dataclass(frozen=True)
class _Sums:
    """An all-reduce on its way."""

    finish: Callable[[], Any]
    values: Any

    def wait(self) -> tuple[float, ...]:
        self.finish()
        return tuple(map(float, self.values))


class _Mpi:
    """mpi4py's non-blocking calls."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.comm = MPI.COMM_WORLD

    def swap(self, edges: list[tuple[int | None, np.ndarray]]) -> Callable[[], list[Any]]:
        got = [np.zeros_like(edge) for _, edge in edges]
        requests = [self.comm.Irecv(into, peer) for (peer, _), into in zip(edges, got, strict=True) if peer is not None]
        requests += [self.comm.Isend(edge, peer) for peer, edge in edges if peer is not None]

        def finish() -> list[Any]:
            for request in requests:
                request.Wait()
            return got

        return finish

    def sum(self, local: np.ndarray) -> _Sums:
        total = np.empty_like(local)
        return _Sums(self.comm.Iallreduce(local, total).Wait, total)


class _Torch:
    """torch.distributed's asynchronous calls; NCCL sums on the GPU, and its halos go there in one batch."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        self.device = "cuda" if dist.get_backend() == "nccl" else "cpu"

    def swap(self, edges: list[tuple[int | None, np.ndarray]]) -> Callable[[], list[Any]]:
        there = [(peer, self.torch.from_numpy(edge).to(self.device)) for peer, edge in edges]
        got = [self.torch.zeros_like(edge) for _, edge in there]
        calls = [(self.dist.irecv, into, peer) for (peer, _), into in zip(there, got, strict=True) if peer is not None]
        calls += [(self.dist.isend, edge, peer) for peer, edge in there if peer is not None]
        if self.device == "cuda" and calls:
            works = self.dist.batch_isend_irecv([self.dist.P2POp(*call) for call in calls])
        else:
            works = [action(data, peer) for action, data, peer in calls]

        def finish() -> list[Any]:
            for work in works:
                work.wait()
            return [edge.cpu().numpy() for edge in got]

        return finish

    def sum(self, local: np.ndarray) -> _Sums:
        total = self.torch.from_numpy(local).to(self.device)
        return _Sums(self.dist.all_reduce(total, async_op=True).wait, total)


def solve_on_ranks(
    variant: str,
    side: int,
    contrast: float = 1.0,
    jacobi: bool = False,
    rtol: float = 1e-8,
    most: int = 1000,
    replace_every: int = 0,
) -> Solution:
    """Solve A x = (1, ..., 1) on the ranks there are; return this rank's piece. Arguments as in ``cg.solve``."""
    space = Strip(side, contrast, jacobi)
    rows = space.grid.shape[0] * side
    return iterate(space, np.ones(rows), variant, None, rtol, most, replace_every)


@dataclass(frozen=True)
class Counts:
    """What one rank did, from its recording: reductions, those it started without waiting, halo messages, bytes."""

    reductions: int
    nonblocking: int
    halos: int
    halo_bytes: int


def counts(timeline: Timeline, rank: int = 0) -> Counts:
    """Count the reductions and halo messages of a rank in a recording of :func:`solve_on_ranks`.

    A reduction counts as started without waiting if the rank did something else, a message of the halo, between its
    start and its end.
    """
    spans = timeline.on(rank)
    sums = [span for span in spans if span.op == "all_reduce"]
    sent = [span for span in spans if span.op in ("send", "isend")]
    beside = sum(any(s.start <= m.start < (s.end or s.start) for m in sent) for s in sums)
    return Counts(len(sums), beside, len(sent), sum(span.nbytes for span in sent))


def iteration_seconds(variant: str, side: int, iterations: int = 30, jacobi: bool = False) -> float:
    """Return seconds of an iteration on the slowest rank, the same on all: the first ones are left out."""
    world = current()
    space = Strip(side, jacobi=jacobi)
    b, marks = np.ones(space.grid.shape[0] * side), []

    def note(_: np.ndarray) -> np.ndarray:
        marks.append(time.perf_counter())
        return b

    iterate(space, b, variant, None, 0.0, iterations, watch=note)
    laps = np.diff(marks)[2:]
    return max(world.gather(float(np.median(laps))))


def lab(side: int = 200, iterations: int = 30) -> str:
    """Run every variant on the ranks there are; return the table of their iteration times."""
    times = {name: iteration_seconds(name, side, iterations) for name in VARIANTS}
    lines = [f"{name:<18} {duration(t):>9} an iteration, {VARIANTS[name].formula}" for name, t in times.items()]
    return "\n".join([ranks_of(), f"Poisson on {side} x {side}", *lines])


def main() -> None:
    """Run the lab from the command line."""
    parser = argparse.ArgumentParser(description="Time an iteration of every variant of conjugate gradients.")
    parser.add_argument("--side", type=int, default=200, help="grid points along one edge")
    parser.add_argument("--iterations", type=int, default=30, help="iterations to time")
    given = parser.parse_args()
    run(lab, given.side, given.iterations)


if __name__ == "__main__":
    main()
