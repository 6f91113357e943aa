"""Run a schedule for real: each message of it travels between ranks, over Gloo, NCCL or MPI."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from distgen_lab.collectives import Round, Schedule
from distgen_lab.ranks.world import current

__all__ = ["execute"]


def execute(schedule: Schedule, data: Any, out: Any = None) -> Any:
    """Run ``schedule`` in a rank, together with the others, on this rank's ``data``; return what it ends up with.

    What goes in and comes out is that of the library's own collective. What a rank has to do is worked out once for a
    schedule and a size, and kept for the next run.

    Args:
        schedule: one that verifies, for as many ranks as there are.
        data: a flat tensor (torch) or array (MPI), equally long on all ranks: for all_gather and gather this rank's
            block, else all n elements; for broadcast and scatter only the root's content counts.
        out: a buffer to work in instead of a new one: n elements, P times as many for all_to_all. ``data`` itself is
            one where it has n elements; else it is left as it is.

    Returns (a part of ``out`` if that is given):
        all_reduce and broadcast: n elements; reduce and gather: n elements on the root, None elsewhere;
        all_gather and all_to_all: n elements; reduce_scatter and scatter: this rank's block.

    Raises:
        ValueError: for another number of ranks, data that is not flat, an ``out`` of another length, an all_to_all
            that does not divide evenly, or a rank that is to send a chunk it does not hold.
    """
    world = current()
    if schedule.ranks != world.size:
        raise ValueError(f"{schedule.name} is for {schedule.ranks} ranks, there are {world.size}")
    if data.ndim != 1:
        raise ValueError(f"data has {data.ndim} dimensions; a flat one is needed (flatten() it)")
    plan = _plan(schedule, world.rank, len(data))
    buffer = plan.filled(data, out)
    for step in plan.steps:
        sends = [(message.peer, _packed(buffer, message)) for message in step.sends]
        receives = [(message.peer, plan.room(buffer, message)) for message in step.receives]
        world.exchange(sends, receives)
        for message, (_, got) in zip(step.receives, receives, strict=True):
            _take_in(buffer, message, got)
    return plan.result(buffer)


@dataclass(frozen=True)
class _Message:
    """What goes to or comes from one rank in a round: stretches of the buffer, each with whether it is added to.

    ``direct`` says that it may be received where it belongs: one stretch, replaced, and not being sent just now.
    """

    peer: int
    pieces: tuple[tuple[slice, bool], ...]
    direct: bool = False

    @property
    def count(self) -> int:
        """Elements of the message."""
        return sum(piece.stop - piece.start for piece, _ in self.pieces)


@dataclass(frozen=True)
class _Step:
    """What one rank does in a round."""

    sends: tuple[_Message, ...]
    receives: tuple[_Message, ...]


@lru_cache(maxsize=16)
def _plan(schedule: Schedule, rank: int, count: int) -> "_Plan":
    return _Plan(schedule, rank, count)


class _Plan:
    """What one rank does in each round, on a buffer in which every chunk has its place."""

    def __init__(self, schedule: Schedule, rank: int, count: int) -> None:
        self.schedule, self.rank = schedule, rank
        whole = count * schedule.ranks if schedule.collective in ("all_gather", "gather") else count
        if schedule.collective == "all_to_all" and whole % schedule.ranks:
            raise ValueError(f"data has {whole} elements; a multiple of {schedule.ranks} ranks is needed")
        ends = np.arange(schedule.chunks + 1) * whole // schedule.parts
        self.starts: list[int] = ends.tolist()
        self.held = set(self._own())
        self.beside: dict[tuple[int, int, str], Any] = {}
        self.steps = [self._step(number, item) for number, item in enumerate(schedule.rounds())]

    def _own(self) -> range:
        """The chunks that this rank begins with."""
        size, parts = self.schedule.parts // self.schedule.ranks, self.schedule.parts
        if self.schedule.collective in ("all_gather", "gather"):
            return range(self.rank * size, (self.rank + 1) * size)
        if self.schedule.collective == "all_to_all":
            return range(self.rank * parts, (self.rank + 1) * parts)
        if self.schedule.collective in ("broadcast", "scatter") and self.rank != self.schedule.root:
            return range(0)
        return range(parts)

    def _wanted(self) -> range:
        """The chunks that this rank ends with."""
        size, parts = self.schedule.parts // self.schedule.ranks, self.schedule.parts
        if self.schedule.collective in ("reduce_scatter", "scatter"):
            return range(self.rank * size, (self.rank + 1) * size)
        if self.schedule.collective == "all_to_all":
            return range(self.rank, self.schedule.chunks, parts)
        if self.schedule.collective in ("reduce", "gather") and self.rank != self.schedule.root:
            return range(0)
        return range(parts)

    def _step(self, number: int, item: Round) -> _Step:
        sends = tuple(self._messages(item, item.source, item.target))
        receives = list(self._messages(item, item.target, item.source))
        sent = set(item.chunk[item.source == self.rank].tolist())
        if missing := sent - self.held:
            raise ValueError(f"round {number}: rank {self.rank} is to send chunk {min(missing)}, but holds none")
        self.held |= set(item.chunk[item.target == self.rank].tolist())
        busy = {self.starts[chunk] for chunk in sent}
        return _Step(sends, tuple(_placed(message, busy) for message in receives))

    def _messages(self, item: Round, mine: np.ndarray, theirs: np.ndarray) -> Iterator[_Message]:
        """The messages of a round that this rank has on one side, in order of the peers."""
        rows = np.flatnonzero(mine == self.rank)
        for peer in np.unique(theirs[rows]):
            chosen = rows[theirs[rows] == peer]
            chunks, reduce = item.chunk[chosen].tolist(), item.reduce[chosen].tolist()
            yield _Message(int(peer), tuple(self._pieces(chunks, reduce)))

    def _pieces(self, chunks: list[int], reduce: list[bool]) -> Iterator[tuple[slice, bool]]:
        """Stretches of the buffer; chunks that follow each other make one."""
        begin = 0
        for place in range(1, len(chunks) + 1):
            follows = place < len(chunks) and chunks[place] == chunks[place - 1] + 1
            if not (follows and reduce[place] == reduce[begin]):
                yield slice(self.starts[chunks[begin]], self.starts[chunks[place - 1] + 1]), reduce[begin]
                begin = place

    def filled(self, data: Any, out: Any) -> Any:
        """A buffer that holds what this rank begins with."""
        own = self._own()
        if out is None and len(own) == len(self.starts) - 1:
            return data.clone() if hasattr(data, "clone") else data.copy()
        buffer = _empty(self.starts[-1], data) if out is None else out
        if len(buffer) != self.starts[-1]:
            raise ValueError(f"out has {len(buffer)} elements; {self.starts[-1]} are needed")
        if own and buffer is not data:
            buffer[self.starts[own.start] : self.starts[own.stop]] = data
        return buffer

    def room(self, buffer: Any, message: _Message) -> Any:
        """Where to receive a message: in its place, or beside it in a buffer that is kept for the next time."""
        if message.direct:
            return buffer[message.pieces[0][0]]
        key = (message.peer, message.count, str(buffer.dtype))
        if key not in self.beside:
            self.beside[key] = _empty(message.count, buffer)
        return self.beside[key]

    def result(self, buffer: Any) -> Any:
        """What the collective gives this rank."""
        wanted = self._wanted()
        if wanted.step != 1:
            return _join([buffer[self.starts[chunk] : self.starts[chunk + 1]] for chunk in wanted])
        return buffer[self.starts[wanted.start] : self.starts[wanted.stop]] if wanted else None


def _placed(message: _Message, busy: set[int]) -> _Message:
    """The message, to be received in place if nothing in that stretch is being sent."""
    (piece, adds), *more = message.pieces
    free = not any(piece.start <= start < piece.stop for start in busy)
    return _Message(message.peer, message.pieces, direct=not more and not adds and free)


def _packed(buffer: Any, message: _Message) -> Any:
    """A message to send: a view where it is one stretch."""
    return _join([buffer[piece] for piece, _ in message.pieces])


def _take_in(buffer: Any, message: _Message, got: Any) -> None:
    """Add or put what was received to its place."""
    begin = 0
    for piece, adds in () if message.direct else message.pieces:
        end = begin + piece.stop - piece.start
        if adds:
            buffer[piece] += got[begin:end]
        else:
            buffer[piece] = got[begin:end]
        begin = end


def _join(pieces: list[Any]) -> Any:
    if len(pieces) == 1:
        return pieces[0]
    if hasattr(pieces[0], "new_empty"):
        import torch

        return torch.cat(pieces)
    return np.concatenate(pieces)


def _empty(count: int, like: Any) -> Any:
    return like.new_empty(count) if hasattr(like, "new_empty") else np.empty_like(like, shape=count)
