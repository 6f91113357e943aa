"""Run a schedule for real: each transfer is a message between ranks, over Gloo, NCCL or MPI."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from distgen_lab.collectives import Round, Schedule
from distgen_lab.ranks.world import World, current

__all__ = ["execute"]


def execute(schedule: Schedule, data: Any) -> Any:
    """Run ``schedule`` in a rank, together with the others, on this rank's ``data``; return what it ends up with.

    What goes in and comes out is that of the library's own collective; the input is left as it is.

    Args:
        schedule: one that verifies, for as many ranks as there are.
        data: a flat tensor (torch) or array (MPI), equally long on all ranks: for all_gather and gather this rank's
            block, else all n elements; for broadcast and scatter only the root's content counts.

    Returns:
        all_reduce and broadcast: n elements; reduce and gather: n elements on the root, None elsewhere;
        all_gather and all_to_all: n elements; reduce_scatter and scatter: this rank's block.

    Raises:
        ValueError: for another number of ranks, data that is not flat, an all_to_all that does not divide evenly, or a
            rank that is to send a chunk it does not hold.
    """
    world = current()
    if schedule.ranks != world.size:
        raise ValueError(f"{schedule.name} is for {schedule.ranks} ranks, there are {world.size}")
    store = _Store(schedule, world.rank, data)
    for number, item in enumerate(schedule.rounds()):
        _play(number, item, store, world)
    return store.result()


def _play(number: int, item: Round, store: "_Store", world: World) -> None:
    """One round: send what this rank sends, receive what it receives, then take it in."""
    sending, receiving = _by_peer(item, world.rank)
    sends = [(peer, store.packed(number, item.chunk[rows])) for peer, rows in sending]
    receives = [(peer, store.room(item.chunk[rows])) for peer, rows in receiving]
    world.exchange(sends, receives)
    for (_, rows), (_, got) in zip(receiving, receives, strict=True):
        store.take_in(item.chunk[rows], item.reduce[rows], got)


def _by_peer(item: Round, me: int) -> tuple[list[tuple[int, np.ndarray]], list[tuple[int, np.ndarray]]]:
    """The rows of a round that this rank sends and receives, one entry a message, in order of the peers."""
    found = []
    for mine, theirs in ((item.source, item.target), (item.target, item.source)):
        rows = np.flatnonzero(mine == me)
        found.append([(int(peer), rows[theirs[rows] == peer]) for peer in np.unique(theirs[rows])])
    return found[0], found[1]


class _Store:
    """The chunks that a rank holds."""

    def __init__(self, schedule: Schedule, rank: int, data: Any) -> None:
        if data.ndim != 1:
            raise ValueError(f"data has {data.ndim} dimensions; a flat one is needed (flatten() it)")
        self.schedule, self.rank, self.data = schedule, rank, data
        whole = len(data) * schedule.ranks if schedule.collective in ("all_gather", "gather") else len(data)
        if schedule.collective == "all_to_all" and whole % schedule.ranks:
            raise ValueError(f"data has {whole} elements; a multiple of {schedule.ranks} ranks is needed")
        self.bounds = [whole * part // schedule.parts for part in range(schedule.parts + 1)]
        pieces = zip(self._own(), _cut(data, self._sizes(self._own())), strict=True)
        self.held = {chunk: _copy(piece) for chunk, piece in pieces}

    def _own(self) -> range:
        """The chunks that this rank begins with."""
        size, count = self.schedule.parts // self.schedule.ranks, self.schedule.parts
        if self.schedule.collective in ("all_gather", "gather"):
            return range(self.rank * size, (self.rank + 1) * size)
        if self.schedule.collective == "all_to_all":
            return range(self.rank * count, (self.rank + 1) * count)
        if self.schedule.collective in ("broadcast", "scatter") and self.rank != self.schedule.root:
            return range(0)
        return range(count)

    def _wanted(self) -> range:
        """The chunks that this rank ends with."""
        size, count = self.schedule.parts // self.schedule.ranks, self.schedule.parts
        if self.schedule.collective in ("reduce_scatter", "scatter"):
            return range(self.rank * size, (self.rank + 1) * size)
        if self.schedule.collective == "all_to_all":
            return range(self.rank, self.schedule.chunks, count)
        if self.schedule.collective in ("reduce", "gather") and self.rank != self.schedule.root:
            return range(0)
        return range(count)

    def _sizes(self, chunks: Any) -> list[int]:
        """Elements of each of these chunks."""
        parts = (int(chunk) % self.schedule.parts for chunk in chunks)
        return [self.bounds[part + 1] - self.bounds[part] for part in parts]

    def packed(self, number: int, chunks: np.ndarray) -> Any:
        """These chunks as one message."""
        missing = [int(chunk) for chunk in chunks if int(chunk) not in self.held]
        if missing:
            raise ValueError(f"round {number}: rank {self.rank} is to send chunk {missing[0]}, but holds none")
        return _join([self.held[int(chunk)] for chunk in chunks], self.data)

    def room(self, chunks: np.ndarray) -> Any:
        """A buffer for a message of these chunks."""
        return _empty(sum(self._sizes(chunks)), self.data)

    def take_in(self, chunks: np.ndarray, reduce: np.ndarray, got: Any) -> None:
        """Add or put the chunks of a message to what is held."""
        for chunk, adds, piece in zip(chunks.tolist(), reduce.tolist(), _cut(got, self._sizes(chunks)), strict=True):
            if adds and chunk in self.held:
                self.held[chunk] += piece
            else:
                self.held[chunk] = piece

    def result(self) -> Any:
        """What the collective gives this rank."""
        wanted = self._wanted()
        return _join([self.held[chunk] for chunk in wanted], self.data) if wanted else None


def _cut(data: Any, sizes: list[int]) -> Iterator[Any]:
    """Views of consecutive pieces; nothing for no sizes, whatever the data."""
    ends = itertools.accumulate(sizes)
    return (data[end - size : end] for size, end in zip(sizes, ends, strict=True))


def _copy(piece: Any) -> Any:
    return piece.clone() if hasattr(piece, "clone") else piece.copy()


def _join(pieces: list[Any], like: Any) -> Any:
    if len(pieces) == 1:
        return pieces[0]
    if hasattr(like, "new_empty"):
        import torch

        return torch.cat(pieces) if pieces else like.new_empty(0)
    return np.concatenate(pieces) if pieces else np.empty_like(like, shape=0)


def _empty(count: int, like: Any) -> Any:
    return like.new_empty(count) if hasattr(like, "new_empty") else np.empty_like(like, shape=count)
