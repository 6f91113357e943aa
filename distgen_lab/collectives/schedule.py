"""A collective algorithm as data: rounds of transfers of chunks between ranks.

Everything the course asks about an algorithm is read off its schedule: is it right, how many rounds and bytes, how
long on which network, how does it run for real.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np

from distgen_lab.collectives.tally import TrafficTable, tally
from distgen_lab.collectives.verdict import Verdict, judge, state_bytes

__all__ = ["BLOCKS", "COLLECTIVES", "ROOTED", "Messages", "Round", "Schedule"]

COLLECTIVES = (
    "all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all",
)  # fmt: skip
ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Collectives in which one rank, the root, plays another part than the rest."""
BLOCKS = ("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all")
"""Collectives in which block i of the data belongs to rank i."""

MOST_TRANSFERS, MOST_ROUNDS, MOST_RANKS, MOST_MEMORY = 100_000, 10_000, 4_096, 2**28
_REMEMBERED = 512
_OPERATIONS = {"copy": False, "reduce": True}
_COLUMNS = ("source", "target", "chunk", "reduce")
_LARGEST = 2**31


@dataclass(frozen=True, eq=False)
class Round:
    """Transfers that happen at the same time, each one chunk from one rank to another: arrays of equal length.

    All of them read what their source held when the round began.

    Attributes:
        source, target, chunk: int64 arrays.
        reduce: bool array; add the chunk to what the target holds, or replace it.

    Raises:
        ValueError: for arrays that are not flat and equally long.
    """

    source: np.ndarray
    target: np.ndarray
    chunk: np.ndarray
    reduce: np.ndarray

    def __post_init__(self) -> None:
        for name in _COLUMNS:
            array = np.asarray(getattr(self, name), bool if name == "reduce" else np.int64)
            if array.ndim != 1 or len(array) != len(self.source):
                raise ValueError(f"{name} has shape {array.shape}; one row a transfer, {len(self.source)}, is needed")
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        shown = [f"{s} {'+' if r else '-'}> {t}: chunk {c}" for s, t, c, r in itertools.islice(self.rows(), 8)]
        return f"Round({'; '.join(shown)}{'; ...' if len(self) > 8 else ''})"

    def rows(self) -> Iterator[tuple[int, int, int, bool]]:
        """Return the transfers one by one: source, target, chunk, reduce."""
        return zip(*(getattr(self, name).tolist() for name in _COLUMNS), strict=True)


@dataclass(frozen=True, eq=False)
class Messages:
    """The messages of a round: all chunks that go from one rank to another travel together.

    Attributes:
        source, target, chunks: int64 arrays, one row a message; ``chunks`` is how many it carries.
        added: the most chunks that one rank adds up in the round.
    """

    source: np.ndarray
    target: np.ndarray
    chunks: np.ndarray
    added: int


@dataclass(frozen=True, eq=False, repr=False)
class Schedule:
    """A collective algorithm for P ranks.

    n is the vector each rank holds (all_reduce, reduce_scatter, broadcast, reduce), the whole gathered vector
    (all_gather, gather, scatter), or what one rank sends in all (all_to_all). It is cut into ``parts`` equal chunks.
    Where blocks belong to ranks (:data:`BLOCKS`), block i is the i-th run of ``parts / ranks`` chunks. In all_to_all
    chunk ``i * ranks + j`` goes from rank i to rank j.

    Attributes:
        name: "ring all-reduce".
        collective: one of :data:`COLLECTIVES`.
        ranks: P.
        parts: chunks that n bytes are cut into.
        make: returns the rounds, anew each time it is called.
        root: the root of a rooted collective, else None.

    Raises:
        ValueError: for an unknown collective, ranks or parts below 1, parts that do not fit the blocks, or a root
            that is none of the ranks (or given where there is none).
    """

    name: str
    collective: str
    ranks: int
    parts: int
    make: Callable[[], Iterable[Round]] = field(repr=False)
    root: int | None = None

    def __post_init__(self) -> None:
        if self.collective not in COLLECTIVES:
            raise ValueError(f"collective is {self.collective!r}; one of {', '.join(COLLECTIVES)} is needed")
        for name in ("ranks", "parts"):
            object.__setattr__(self, name, at_least(name, getattr(self, name), 1))
        if self.collective == "all_to_all" and self.parts != self.ranks:
            raise ValueError(f"parts is {self.parts}; in all_to_all each of the {self.ranks} ranks gets one part")
        if self.collective in BLOCKS and self.parts % self.ranks:
            raise ValueError(
                f"parts is {self.parts}; in {self.collective} a multiple of ranks, {self.ranks}, is needed"
            )
        object.__setattr__(self, "root", _root(self.root, self.collective, self.ranks))

    def __repr__(self) -> str:
        root = "" if self.root is None else f", root {self.root}"
        return f"{self.name}: {self.collective} over {self.ranks} ranks, n in {self.parts} parts{root}"

    @property
    def chunks(self) -> int:
        """How many different chunks there are: P^2 in all_to_all, else ``parts``."""
        return self.ranks**2 if self.collective == "all_to_all" else self.parts

    @property
    def reduces(self) -> bool:
        """Whether the collective sums what the ranks contribute."""
        return self.collective in ("all_reduce", "reduce", "reduce_scatter")

    def rounds(self) -> Iterator[Round]:
        """Return the rounds one after the other, from the first each time it is called."""
        return iter(self.make())

    def messages(self) -> Iterator[Messages]:
        """Return the messages of each round; rounds that send alike share one object, so that work on it can be kept.

        Raises:
            ValueError: for a transfer that names a rank which does not exist.
        """
        grouped = _Grouping(self.ranks)
        return (grouped(number, item) for number, item in enumerate(self.rounds()))

    def verify(self) -> Verdict:
        """Return whether the schedule is right for all inputs, and if not, the first fault in plain words.

        It follows which ranks' contributions each chunk of each rank holds: every one must be there exactly once at
        the end. Reading a chunk one does not hold, sending to oneself, and two writers of one chunk in a round of which
        one replaces it, are faults at once; several may *add* to one chunk in a round.

        Raises:
            ValueError: if that would take more than 2 GiB.
        """
        return judge(self)

    def traffic(self, nbytes: float | None = None) -> TrafficTable:
        """Return rounds, messages and bytes of each rank beside the lower bounds; in bytes if ``nbytes`` (n) is given.

        Raises:
            ValueError: for a negative ``nbytes`` or a transfer that names a rank which does not exist.
        """
        return tally(self, nbytes)

    def then(self, other: "Schedule", name: str, collective: str, root: int | None = None) -> "Schedule":
        """Return the schedule that runs this one and then ``other``, e.g. reduce-scatter and all-gather.

        Raises:
            ValueError: if the two differ in ranks, parts or chunks.
        """
        for what in ("ranks", "parts", "chunks"):
            mine, theirs = getattr(self, what), getattr(other, what)
            if mine != theirs:
                raise ValueError(f"{what} is {theirs} in {other.name!r} and {mine} in {self.name!r}; equal is needed")

        def both() -> Iterator[Round]:
            return itertools.chain(self.rounds(), other.rounds())

        return Schedule(name, collective, self.ranks, self.parts, both, root)

    def mapped(self, order: Sequence[int], name: str | None = None) -> "Schedule":
        """Return the same schedule played by other ranks: what rank i did, ``order[i]`` does.

        Blocks move with their ranks, so the collective stays the same; the root becomes ``order[root]``.

        Raises:
            ValueError: if ``order`` does not name every rank once.
        """
        ranks = _permutation(order, self.ranks)
        chunks = _block_order(self, ranks)
        root = None if self.root is None else int(ranks[self.root])

        def moved() -> Iterator[Round]:
            return relabelled(self.rounds(), ranks, chunks)

        return Schedule(name or self.name, self.collective, self.ranks, self.parts, moved, root)

    @classmethod
    def from_transfers(
        cls,
        collective: str,
        ranks: int,
        rounds: Iterable[Iterable[tuple[int, int, int, str]]],
        parts: int | None = None,
        root: int | None = None,
        name: str = "my own",
    ) -> "Schedule":
        """Return a schedule written by hand: a list of rounds, each a list of ``(source, target, chunk, operation)``.

        Args:
            collective, ranks: one of :data:`COLLECTIVES`, and P.
            rounds: ``operation`` is "copy" (replace what the target holds) or "reduce" (add to it).
            parts: chunks that n is cut into; P where blocks belong to ranks, else 1, unless given.
            root: of a rooted collective; 0 unless given.
            name: what it is called.

        Raises:
            ValueError: for a transfer that is not of that form, naming round and transfer.

        >>> both_ways = [[(0, 1, 0, "reduce"), (1, 0, 0, "reduce")]]
        >>> bool(Schedule.from_transfers("all_reduce", 2, both_ways).verify())
        True
        """
        made = [_read_round(number, items) for number, items in enumerate(rounds)]
        parts = parts if parts is not None else (ranks if collective in BLOCKS else 1)
        root = 0 if root is None and collective in ROOTED else root
        return cls(name, collective, ranks, parts, lambda: made, root)

    def arrays(self) -> dict[str, Any]:
        """Return the schedule as plain data (numbers, strings, lists) that JSON can carry; see :meth:`from_arrays`."""
        facts = {name: getattr(self, name) for name in ("name", "collective", "ranks", "parts", "root")}
        rounds = [{column: getattr(item, column).tolist() for column in _COLUMNS} for item in self.rounds()]
        return facts | {"rounds": rounds}

    @classmethod
    def from_arrays(cls, data: Mapping[str, Any]) -> "Schedule":
        """Return the schedule that :meth:`arrays` described; the data may come from anyone.

        Raises:
            ValueError: for missing or unknown fields, wrong types, columns of unequal length, or more than 100,000
                transfers, 10,000 rounds or 4,096 ranks, or what :meth:`verify` could not follow in 256 MiB.
        """
        facts = _read_facts(data)
        made = _read_rounds(data["rounds"])
        schedule = cls(make=lambda: made, **facts)
        if state_bytes(schedule) > MOST_MEMORY:
            raise ValueError(f"ranks {schedule.ranks} and parts {schedule.parts} are too many to be followed")
        return schedule


class _Grouping:
    """Puts the transfers of a round together to messages, once for rounds that send alike."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.last: tuple[tuple[np.ndarray, ...], Messages] | None = None
        self.known: dict[bytes, Messages] = {}

    def __call__(self, number: int, item: Round) -> Messages:
        arrays = (item.source, item.target, item.reduce)
        if self.last is None or any(mine is not theirs for mine, theirs in zip(arrays, self.last[0], strict=True)):
            self.last = arrays, self._by_value(number, item, arrays)
        return self.last[1]

    def _by_value(self, number: int, item: Round, arrays: tuple[np.ndarray, ...]) -> Messages:
        digest = hashlib.blake2b(digest_size=16)
        for array in arrays:
            digest.update(np.ascontiguousarray(array))
        key = digest.digest() + len(item).to_bytes(8, "big")
        if key not in self.known:
            self._check(number, item)
            if len(self.known) >= _REMEMBERED:
                self.known.clear()
            self.known[key] = _group(item, self.ranks)
        return self.known[key]

    def _check(self, number: int, item: Round) -> None:
        for column in (item.source, item.target):
            wrong = column[(column < 0) | (column >= self.ranks)]
            if len(wrong):
                raise ValueError(f"round {number} names rank {wrong[0]}; ranks are 0 to {self.ranks - 1}")


def _group(item: Round, ranks: int) -> Messages:
    pairs, chunks = np.unique(item.source * ranks + item.target, return_counts=True)
    added = np.bincount(item.target[item.reduce], minlength=1).max()
    return Messages(pairs // ranks, pairs % ranks, chunks, int(added))


def relabelled(rounds: Iterable[Round], ranks: np.ndarray, chunks: np.ndarray | None = None) -> Iterator[Round]:
    """Return the rounds with rank i called ``ranks[i]`` and chunk c ``chunks[c]``; shared arrays stay shared."""
    last: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def renamed(column: str, array: np.ndarray) -> np.ndarray:
        if column not in last or last[column][0] is not array:
            last[column] = array, ranks[array]
        return last[column][1]

    for item in rounds:
        chunk = item.chunk if chunks is None else chunks[item.chunk]
        yield Round(renamed("source", item.source), renamed("target", item.target), chunk, item.reduce)


def make_round(source: Any, target: Any, chunk: Any, reduce: bool) -> Round:
    """Return a round whose columns are broadcast against each other and laid flat."""
    columns = [np.ascontiguousarray(column).ravel() for column in np.broadcast_arrays(source, target, chunk)]
    return Round(*columns, np.full(len(columns[0]), reduce))


def whole(name: str, value: Any) -> int:
    """Return ``value`` as an int, or say which argument is not a whole number; a bool is none."""
    if not isinstance(value, Integral) or isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} is {value!r}; a whole number is needed")
    return int(value)


def at_least(name: str, value: Any, least: int) -> int:
    """Return ``value`` as an int, or say which argument is not a whole number of at least ``least``."""
    if whole(name, value) < least:
        raise ValueError(f"{name} is {value}; at least {least} is needed")
    return int(value)


def _root(root: int | None, collective: str, ranks: int) -> int | None:
    """The root as an int, None where there is none to be."""
    if collective not in ROOTED:
        if root is not None:
            raise ValueError(f"root is {root}; {collective} has none")
        return None
    if root is None or not 0 <= whole("root", root) < ranks:
        raise ValueError(f"root is {root}; a rank from 0 to {ranks - 1} is needed")
    return int(root)


def _permutation(order: Sequence[int], ranks: int) -> np.ndarray:
    names = np.array([whole("order", rank) for rank in order], np.int64)
    if sorted(names.tolist()) != list(range(ranks)):
        raise ValueError(f"order is {names.tolist()[:16]}; every rank from 0 to {ranks - 1} once is needed")
    return names


def _block_order(schedule: Schedule, ranks: np.ndarray) -> np.ndarray | None:
    """The new name of each chunk when blocks move with their ranks; None where they belong to nobody."""
    if schedule.collective not in BLOCKS:
        return None
    if schedule.collective == "all_to_all":
        return (ranks[:, None] * schedule.ranks + ranks).ravel()
    size = schedule.parts // schedule.ranks
    return (ranks[:, None] * size + np.arange(size)).ravel()


def _read_round(number: int, items: Iterable[tuple[int, int, int, str]]) -> Round:
    rows = [_read_transfer(f"round {number}, transfer {place}", item) for place, item in enumerate(items)]
    return Round(*(zip(*rows, strict=True) if rows else ((), (), (), ())))


def _read_transfer(where: str, item: Any) -> tuple[int, int, int, bool]:
    if not isinstance(item, Sequence) or isinstance(item, str) or len(item) != 4:
        raise ValueError(f"{where} is {item!r}; (source, target, chunk, 'copy' or 'reduce') is needed")
    *numbers, operation = item
    if not isinstance(operation, str) or operation not in _OPERATIONS:
        raise ValueError(f"{where}: operation is {operation!r}; 'copy' or 'reduce' is needed")
    source, target, chunk = (
        _small(f"{where}: {name}", value) for name, value in zip(_COLUMNS[:3], numbers, strict=True)
    )
    return source, target, chunk, _OPERATIONS[operation]


def _small(name: str, value: Any) -> int:
    """A whole number that an int32 could hold: no key made of two of them overflows."""
    if not -_LARGEST <= whole(name, value) < _LARGEST:
        raise ValueError(f"{name} is {value}; a number below {_LARGEST} is needed")
    return int(value)


def _read_facts(data: Any) -> dict[str, Any]:
    fields = {"name", "collective", "ranks", "parts", "root", "rounds"}
    if not isinstance(data, Mapping) or set(data) != fields:
        found = sorted(map(str, data))[:12] if isinstance(data, Mapping) else type(data).__name__
        raise ValueError(f"data has {found}; the fields {', '.join(sorted(fields))} are needed")
    for name in ("name", "collective"):
        if not isinstance(data[name], str) or len(data[name]) > 200:
            raise ValueError(f"{name} is {str(data[name])[:40]!r}; a short text is needed")
    facts = {"name": str(data["name"]), "collective": str(data["collective"])}
    facts |= {name: _small(name, data[name]) for name in ("ranks", "parts")}
    if facts["ranks"] > MOST_RANKS:
        raise ValueError(f"ranks is {facts['ranks']}; at most {MOST_RANKS} is needed")
    return facts | {"root": None if data["root"] is None else _small("root", data["root"])}


def _read_rounds(rounds: Any) -> list[Round]:
    if not isinstance(rounds, list | tuple) or len(rounds) > MOST_ROUNDS:
        raise ValueError(f"rounds is no list of at most {MOST_ROUNDS} rounds")
    made, left = [], MOST_TRANSFERS
    for number, item in enumerate(rounds):
        made.append(_read_columns(f"round {number}", item, left))
        left -= len(made[-1])
    return made


def _read_columns(where: str, item: Any, left: int) -> Round:
    if not isinstance(item, Mapping) or set(item) != set(_COLUMNS):
        raise ValueError(f"{where} does not have the columns {', '.join(_COLUMNS)}")
    columns = [_flat(f"{where}: {name}", item[name], left) for name in _COLUMNS]
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"{where} has columns of {', '.join(str(len(c)) for c in columns)} rows; equal is needed")
    *numbers, reduce = columns
    for name, column in zip(_COLUMNS[:3], numbers, strict=True):
        for value in column:
            _small(f"{where}: {name}", value)
    if not all(isinstance(value, bool | np.bool_) for value in reduce):
        raise ValueError(f"{where}: reduce holds something else than True and False")
    return Round(*numbers, reduce)


def _flat(where: str, column: Any, left: int) -> list:
    if not isinstance(column, list | tuple | np.ndarray) or getattr(column, "ndim", 1) != 1:
        raise ValueError(f"{where} is no list")
    if len(column) > left:
        raise ValueError(f"{where}: more than {MOST_TRANSFERS} transfers in all")
    return list(column)
