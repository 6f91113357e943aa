"""Rounds, messages and bytes of a schedule, beside the least that any algorithm needs."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from distgen_lab.claims import html_table
from distgen_lab.timeline import Traffic
from distgen_lab.units import quantity

if TYPE_CHECKING:
    from distgen_lab.collectives.schedule import Messages, Schedule

__all__ = ["RankTraffic", "TrafficTable", "least_bytes", "least_rounds", "tally"]

_SHOWN = 16


@dataclass(frozen=True)
class RankTraffic:
    """What one rank sends and receives: messages, and bytes as exact shares of n."""

    rank: int
    sent_messages: int
    sent: Fraction
    received_messages: int
    received: Fraction


@dataclass(frozen=True, repr=False)
class TrafficTable:
    """What a schedule sends, beside the lower bounds: HTML in a notebook, lines in a terminal.

    Attributes:
        name, collective: of the schedule.
        rows: one for each rank.
        rounds: rounds in which something is sent.
        ports: most messages one rank sends, or receives, in one round.
        parts: chunks that n is cut into.
        nbytes: n in bytes, or None; bytes are shown as shares of n then.
    """

    name: str
    collective: str
    rows: tuple[RankTraffic, ...]
    rounds: int
    ports: int
    parts: int
    nbytes: float | None = None

    @property
    def ranks(self) -> int:
        """P."""
        return len(self.rows)

    @property
    def messages(self) -> int:
        """Messages of all ranks together."""
        return sum(row.sent_messages for row in self.rows)

    @property
    def total(self) -> Fraction:
        """Bytes that all ranks send together, as a share of n."""
        return sum((row.sent for row in self.rows), Fraction(0))

    @property
    def busiest(self) -> Fraction:
        """The most bytes that one rank sends or receives, as a share of n."""
        return max(max(row.sent, row.received) for row in self.rows)

    @property
    def least_rounds(self) -> int:
        """The fewest rounds any algorithm needs in which a rank sends and receives ``ports`` messages at a time."""
        return least_rounds(self.ranks, self.ports)

    @property
    def least_bytes(self) -> Fraction:
        """The least that the busiest rank sends or receives in any algorithm, as a share of n."""
        return least_bytes(self.collective, self.ranks)

    def recorded(self) -> list[Traffic]:
        """Return what a recording of a real run would count, rank by rank (compare with ``Timeline.traffic()``).

        Raises:
            ValueError: unless ``nbytes`` was given and is a multiple of ``parts``.
        """
        if self.nbytes is None or self.nbytes % self.parts:
            raise ValueError(f"nbytes is {self.nbytes}; a multiple of parts, {self.parts}, is needed")
        n = int(self.nbytes)
        return [Traffic(r.rank, r.sent_messages, int(r.sent * n), r.received_messages, int(r.received * n), {})
                for r in self.rows]  # fmt: skip

    def _summary(self) -> list[tuple[str, str, str]]:
        return [
            ("rounds", str(self.rounds), str(self.least_rounds)),
            ("bytes of the busiest rank", self._bytes(self.busiest), self._bytes(self.least_bytes)),
            ("messages in all", str(self.messages), ""),
            ("bytes in all", self._bytes(self.total), ""),
        ]

    def _by_rank(self) -> list[tuple[str, ...]]:
        cells = [(str(r.rank), str(r.sent_messages), self._bytes(r.sent), str(r.received_messages),
                  self._bytes(r.received)) for r in self.rows[:_SHOWN]]  # fmt: skip
        left = self.ranks - _SHOWN
        return [*cells, (f"{left} more", "", "", "", "")] if left > 0 else cells

    def _bytes(self, share: Fraction) -> str:
        return f"{share} n" if self.nbytes is None else quantity(float(share) * self.nbytes, "B", 4)

    def _repr_html_(self) -> str:
        names = ("rank", "messages sent", "bytes sent", "messages received", "bytes received")
        return html_table((self.name, "this schedule", "at least"), self._summary()) + html_table(
            names, self._by_rank()
        )

    def __repr__(self) -> str:
        lines = [f"{self.name} over {self.ranks} ranks"]
        lines += [f"  {what}: {here}" + (f" (at least {least})" if least else "")
                  for what, here, least in self._summary()]  # fmt: skip
        lines += [f"  rank {r}: sends {sm} messages, {sb}; receives {rm} messages, {rb}"
                  for r, sm, sb, rm, rb in self._by_rank() if sm]  # fmt: skip
        return "\n".join([*lines, f"  {self.ranks - _SHOWN} more ranks"] if self.ranks > _SHOWN else lines)


def least_rounds(ranks: int, ports: int = 1) -> int:
    """Return ceil(log2 P), the fewest rounds after which all ranks can know of one rank (or one of all).

    With ``ports`` messages sent and received by a rank at a time it is ceil(log of P to the base ports + 1) (Bruck et
    al. 1997, section 2).

    >>> least_rounds(8), least_rounds(9), least_rounds(9, ports=2)
    (3, 4, 2)
    """
    rounds, reached = 0, 1
    while reached < ranks:
        rounds, reached = rounds + 1, reached * (max(ports, 1) + 1)
    return rounds


def least_bytes(collective: str, ranks: int) -> Fraction:
    """Return the least bytes, as a share of n, that the busiest rank sends or receives (Chan et al. 2007, table 1).

    1 for broadcast and reduce, 2(P-1)/P for all-reduce (Patarasuk and Yuan 2009), (P-1)/P for the others.

    >>> least_bytes("all_reduce", 8)
    Fraction(7, 4)
    """
    if collective in ("broadcast", "reduce"):
        return Fraction(int(ranks > 1))
    return Fraction(ranks - 1, ranks) * (2 if collective == "all_reduce" else 1)


def tally(schedule: "Schedule", nbytes: float | None = None) -> TrafficTable:
    """Return what each rank sends and receives; see :meth:`Schedule.traffic`."""
    if nbytes is not None and not (math.isfinite(nbytes) and nbytes >= 0):
        raise ValueError(f"nbytes is {nbytes}; a number of at least 0 is needed")
    counts = np.zeros((4, schedule.ranks), np.int64)
    rounds = ports = 0
    for part, times in _counted(schedule):
        one = [np.bincount(side, weights, schedule.ranks).astype(np.int64)
               for side in (part.source, part.target) for weights in (None, part.chunks)]  # fmt: skip
        counts += np.stack(one) * times
        rounds += times * bool(len(part.source))
        ports = max(ports, one[0].max(), one[2].max())
    rows = tuple(
        RankTraffic(rank, sent, Fraction(sent_chunks, schedule.parts), received, Fraction(chunks, schedule.parts))
        for rank, (sent, sent_chunks, received, chunks) in enumerate(counts.T.tolist())
    )
    return TrafficTable(schedule.name, schedule.collective, rows, rounds, int(ports), schedule.parts, nbytes)


def _counted(schedule: "Schedule") -> Iterator[tuple["Messages", int]]:
    """The messages of a round and how many rounds in a row send the same."""
    last, times = None, 0
    for part in schedule.messages():
        if last is not None and part is not last:
            yield last, times
            times = 0
        last, times = part, times + 1
    if last is not None:
        yield last, times
