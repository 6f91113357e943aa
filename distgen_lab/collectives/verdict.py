"""Is a schedule right for all inputs? Follow which contributions each chunk of each rank holds."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from distgen_lab.units import quantity

if TYPE_CHECKING:
    from distgen_lab.collectives.schedule import Round, Schedule

__all__ = ["Verdict", "judge", "state_bytes"]

_MOST_MEMORY = 2**31
_NEVER = np.iinfo(np.int32).max
_WORD = 64


@dataclass(frozen=True, repr=False)
class Verdict:
    """What following a schedule showed; true if it is right.

    Attributes:
        ok: whether the schedule does what its collective promises, whatever the ranks hold.
        fault: the first fault in a sentence, empty if there is none.
        kind: "unknown rank", "unknown chunk", "self-send", "adds", "two writers", "not held", "twice" or "missing".
        round, rank, chunk: where; ``round`` is None for what is missing at the end.
    """

    ok: bool
    fault: str = ""
    kind: str = ""
    round: int | None = None
    rank: int | None = None
    chunk: int | None = None

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        return "right for all inputs" if self.ok else f"wrong: {self.fault}"


class _FaultError(Exception):
    """Carries the verdict out of the round in which a fault was found."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.fault)
        self.verdict = verdict


def state_bytes(schedule: "Schedule") -> int:
    """Return the bytes that following the schedule takes: a bit, or P of them, for each chunk of each rank."""
    each = 8 * _words(schedule.ranks) + 4 if schedule.reduces else 1
    return schedule.ranks * schedule.chunks * each


def judge(schedule: "Schedule") -> Verdict:
    """Return the verdict on a schedule; see :meth:`Schedule.verify`."""
    size = state_bytes(schedule)
    if size > _MOST_MEMORY:
        raise ValueError(
            f"ranks is {schedule.ranks} and chunks {schedule.chunks}: {quantity(size, 'B')} of memory to follow them; "
            "verify the same algorithm on fewer ranks"
        )
    state = _Sums(schedule) if schedule.reduces else _Copies(schedule)
    try:
        for number, item in enumerate(schedule.rounds()):
            _check_form(schedule, number, item)
            state.play(number, item)
        state.check_goal()
    except _FaultError as fault:
        return fault.verdict
    return Verdict(True)


def _check_form(schedule: "Schedule", number: int, item: "Round") -> None:
    """Faults that show without knowing who holds what."""
    for name in ("source", "target"):
        column = getattr(item, name)
        for row in _rows((column < 0) | (column >= schedule.ranks)):
            _fail("unknown rank", number, column[row], item.chunk[row],
                  f"the {name} is rank {column[row]}; ranks are 0 to {schedule.ranks - 1}")  # fmt: skip
    source, target, chunk = item.source, item.target, item.chunk
    for row in _rows((chunk < 0) | (chunk >= schedule.chunks)):
        _fail("unknown chunk", number, source[row], chunk[row],
              f"rank {source[row]} sends chunk {chunk[row]}; chunks are 0 to {schedule.chunks - 1}")  # fmt: skip
    for row in _rows(source == target):
        _fail("self-send", number, source[row], chunk[row], f"rank {source[row]} sends chunk {chunk[row]} to itself")
    for row in _rows(item.reduce) if not schedule.reduces else ():
        _fail("adds", number, target[row], chunk[row],
              f"rank {source[row]} adds chunk {chunk[row]} to what rank {target[row]} holds; "
              f"in {schedule.collective} nothing is summed: copy it")  # fmt: skip


def _turns(item: "Round", number: int, chunks: int) -> np.ndarray:
    """For each transfer how many before it write the same chunk of the same rank in this round."""
    key = item.target * chunks + item.chunk
    order = np.argsort(key, kind="stable")
    in_order = key[order]
    first = np.r_[True, in_order[1:] != in_order[:-1]]
    if first.all():
        return np.zeros(len(key), np.int64)
    starts = np.flatnonzero(first)
    turns = np.empty(len(key), np.int64)
    turns[order] = np.arange(len(key)) - np.repeat(starts, np.diff(np.r_[starts, len(key)]))
    _check_writers(item, number, key, turns)
    return turns


def _one_a_chunk(rows: np.ndarray, turns: np.ndarray) -> list[np.ndarray]:
    """The rows in groups, none of which adds twice to one chunk of one rank."""
    turn = turns[rows]
    return np.split(rows[np.argsort(turn, kind="stable")], np.cumsum(np.bincount(turn))[:-1]) if len(rows) else []


def _check_writers(item: "Round", number: int, key: np.ndarray, turns: np.ndarray) -> None:
    """Several may add to one chunk in a round; where one replaces it, it must be the only writer."""
    shared = np.isin(key, key[turns > 0])
    for row in _rows(shared & ~item.reduce):
        sources = item.source[key == key[row]][:2]
        _fail("two writers", number, item.target[row], item.chunk[row],
              f"rank {sources[0]} and rank {sources[1]} both write chunk {item.chunk[row]} of rank {item.target[row]}, "
              "and what stays depends on who comes last")  # fmt: skip


class _Copies:
    """Collectives that move data: one bit for each chunk of each rank, held or not."""

    def __init__(self, schedule: "Schedule") -> None:
        self.schedule = schedule
        self.held = _at_start(schedule)

    def play(self, number: int, item: "Round") -> None:
        """Play a round; raise on a transfer of something the sender does not hold."""
        if not len(item):
            return
        _turns(item, number, self.schedule.chunks)
        for row in _rows(~self.held[item.source, item.chunk]):
            source, target, chunk = item.source[row], item.target[row], item.chunk[row]
            _fail("not held", number, source, chunk,
                  f"rank {source} sends chunk {chunk} to rank {target} but does not hold it yet")  # fmt: skip
        self.held[item.target, item.chunk] = True

    def check_goal(self) -> None:
        """Raise if a rank lacks a chunk at the end."""
        for rank, chunk in _cells(_goal(self.schedule) & ~self.held):
            _fail("missing", None, rank, chunk, f"rank {rank} lacks chunk {chunk}{_belongs(self.schedule, chunk)}")


class _Sums:
    """Collectives that sum: for each chunk of each rank the set of contributions in it, as bits of 64-bit words.

    A contribution added twice spoils a sum for good, unless a copy replaces it: ``spoiled`` holds the number of the
    first such addition, so that the verdict is about what is wrong at the end and names where it came from.
    """

    def __init__(self, schedule: "Schedule") -> None:
        self.schedule = schedule
        self.sums = np.zeros((schedule.ranks, schedule.chunks, _words(schedule.ranks)), np.uint64)
        everyone = np.arange(schedule.ranks)
        self.own = np.uint64(1) << (everyone % _WORD).astype(np.uint64)
        self.sums[everyone, :, everyone // _WORD] = self.own[:, None]
        self.spoiled: np.ndarray | None = None  # made when first needed
        self.additions: list[np.ndarray] = []
        self.known = 0

    def play(self, number: int, item: "Round") -> None:
        """Play a round: every transfer reads what was there at its beginning."""
        if not len(item):
            return
        turns = _turns(item, number, self.schedule.chunks)
        read = self.sums[item.source, item.chunk]
        stain = None if self.spoiled is None else self.spoiled[item.source, item.chunk]
        copies = ~item.reduce
        self._replace(item.target[copies], item.chunk[copies], read[copies], _take(stain, copies))
        for rows in _one_a_chunk(np.flatnonzero(item.reduce), turns):
            self._add(number, item, rows, read[rows], _take(stain, rows))

    def _replace(self, target: np.ndarray, chunk: np.ndarray, read: np.ndarray, stain: np.ndarray | None) -> None:
        self.sums[target, chunk] = read
        if self.spoiled is not None:
            self.spoiled[target, chunk] = stain

    def _add(self, number: int, item: "Round", rows: np.ndarray, read: np.ndarray, stain: np.ndarray | None) -> None:
        target, chunk = item.target[rows], item.chunk[rows]
        there = self.sums[target, chunk]
        twice = read & there
        self.sums[target, chunk] = read | there
        double = twice.any(axis=1)
        if double.any():
            self._remember(number, item, rows[double], twice[double])
        if self.spoiled is not None:
            new = np.full(len(rows), _NEVER, np.int32)
            new[double] = np.arange(self.known - int(double.sum()), self.known)
            old = new if stain is None else np.minimum(stain, new)
            self.spoiled[target, chunk] = np.minimum(self.spoiled[target, chunk], old)

    def _remember(self, number: int, item: "Round", rows: np.ndarray, twice: np.ndarray) -> None:
        if self.spoiled is None:
            self.spoiled = np.full(self.sums.shape[:2], _NEVER, np.int32)
        columns = [np.full(len(rows), number), item.source[rows], item.target[rows], item.chunk[rows], _lowest(twice)]
        self.additions.append(np.stack(columns, axis=1))
        self.known += len(rows)

    def check_goal(self) -> None:
        """Raise if a sum that the collective promises lacks a contribution or has one twice."""
        goal = _goal(self.schedule)
        if self.spoiled is not None and (first := int(self.spoiled[goal].min(initial=_NEVER))) < _NEVER:
            number, source, target, chunk, whose = np.concatenate(self.additions)[first].tolist()
            _fail("twice", number, target, chunk,
                  f"rank {source} adds chunk {chunk} to that of rank {target}, and both already contain the "
                  f"contribution of rank {whose}: it counts twice")  # fmt: skip
        full = self._everyone()
        for rank, chunk in _cells(goal & (self.sums != full).any(axis=2)):
            whose = _lowest((full & ~self.sums[rank, chunk])[None])[0]
            _fail("missing", None, rank, chunk, f"rank {rank} lacks the contribution of rank {whose} in chunk {chunk}")

    def _everyone(self) -> np.ndarray:
        words = np.zeros(self.sums.shape[2], np.uint64)
        np.bitwise_or.at(words, np.arange(len(self.own)) // _WORD, self.own)
        return words


def _at_start(schedule: "Schedule") -> np.ndarray:
    """Which chunks each rank holds before the first round, in collectives that copy."""
    rank, chunk = np.ogrid[: schedule.ranks, : schedule.chunks]
    if schedule.root is not None and schedule.collective != "gather":
        return np.broadcast_to(rank == schedule.root, (schedule.ranks, schedule.chunks)).copy()
    return rank == chunk * schedule.ranks // schedule.chunks


def _goal(schedule: "Schedule") -> np.ndarray:
    """Which chunks each rank is to hold, whole, after the last round."""
    rank, chunk = np.ogrid[: schedule.ranks, : schedule.chunks]
    if schedule.collective in ("reduce", "gather"):
        found = rank == schedule.root
    elif schedule.collective in ("scatter", "reduce_scatter"):
        found = rank == chunk * schedule.ranks // schedule.chunks
    elif schedule.collective == "all_to_all":
        found = rank == chunk % schedule.ranks
    else:
        found = np.True_
    return np.broadcast_to(found, (schedule.ranks, schedule.chunks))


def _belongs(schedule: "Schedule", chunk: int) -> str:
    """Whose data a chunk is."""
    if schedule.collective == "all_to_all":
        return f", what rank {chunk // schedule.ranks} has for it"
    if schedule.collective in ("all_gather", "gather"):
        return f" of rank {chunk * schedule.ranks // schedule.chunks}"
    return ""


def _fail(kind: str, number: int | None, rank: int, chunk: int, words: str) -> None:
    when = "at the end" if number is None else f"round {number}:"
    raise _FaultError(Verdict(False, f"{when} {words}", kind, number, int(rank), int(chunk)))


def _rows(wrong: np.ndarray) -> Iterator[int]:
    """Rows in which something is wrong, in order; most of the time none."""
    return iter(np.flatnonzero(wrong).tolist()) if wrong.any() else iter(())


def _cells(wrong: np.ndarray) -> Iterator[tuple[int, int]]:
    """Rank and chunk of what is wrong, in order."""
    return ((int(rank), int(chunk)) for rank, chunk in np.argwhere(wrong)) if wrong.any() else iter(())


def _take(stain: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    return None if stain is None else stain[rows]


def _words(ranks: int) -> int:
    return -(-ranks // _WORD)


def _lowest(bits: np.ndarray) -> np.ndarray:
    """The lowest rank in each row of bit sets, none of them empty."""
    word = (bits != 0).argmax(axis=1)
    value = bits[np.arange(len(bits)), word]
    lowest = value & (~value + np.uint64(1))
    return word * _WORD + np.log2(lowest.astype(float)).astype(np.int64)
