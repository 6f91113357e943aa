"""Time of a schedule on a network: alpha-beta with contention, round by round.

A round lasts as long as the latency of its longest route plus the time its most loaded link needs for all that crosses
it in one direction. The next round begins when all ranks have finished (a barrier). On a network without contention
that is the closed form of :mod:`distgen_lab.alphabeta`.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np

from distgen_lab.claims import html_table
from distgen_lab.collectives.schedule import Messages, Schedule, whole
from distgen_lab.timeline import Span, Timeline
from distgen_lab.units import duration, quantity

if TYPE_CHECKING:
    from distgen_lab.topology import Topology

__all__ = ["Price", "price", "timeline"]

_MOST_SPANS = 100_000
_REMEMBERED = 512
ASSUMPTIONS = (
    "Every round ends with a barrier; all messages of a round start together and cut through switches; a round costs "
    "its longest route's latency plus the bytes on its most loaded link, shared fairly, over that link's bandwidth."
)

Edge = tuple[Hashable, Hashable]


@dataclass(frozen=True, repr=False)
class Price:
    """What a schedule costs on a network: HTML in a notebook, lines in a terminal.

    Attributes:
        schedule: what was priced.
        network: the name of the topology.
        nbytes: n in bytes.
        gamma: seconds to add one byte to another.
        latency: seconds of each round that do not depend on n: the longest route's.
        drain: seconds of each round for each byte of a chunk: chunks on the most loaded link over its bandwidth.
        added: chunks that the busiest rank adds in each round.
        assumptions: what the model takes for granted.
    """

    schedule: Schedule
    network: str
    nbytes: float
    gamma: float
    latency: np.ndarray = field(repr=False)
    drain: np.ndarray = field(repr=False)
    added: np.ndarray = field(repr=False)
    roads: "_Roads" = field(repr=False)
    crossings: np.ndarray = field(repr=False)
    assumptions: str = ASSUMPTIONS

    @property
    def chunk(self) -> float:
        """Bytes of a chunk."""
        return self.nbytes / self.schedule.parts

    @cached_property
    def rounds(self) -> np.ndarray:
        """Seconds of each round."""
        return self.latency + self.chunk * (self.drain + self.gamma * self.added)

    @cached_property
    def seconds(self) -> float:
        """Seconds of the whole schedule."""
        return math.fsum(self.rounds)

    @property
    def latency_share(self) -> float:
        """The part of the time that no bandwidth would save, 0 to 1."""
        return math.fsum(self.latency) / self.seconds if self.seconds else 0.0

    @cached_property
    def loads(self) -> dict[Edge, float]:
        """Bytes that each used link carries in each direction over the whole run, keyed by (from, to)."""
        return self.roads.by_edge(self.crossings * self.chunk)

    @property
    def busiest(self) -> Edge | None:
        """The link, as (from, to), that carries most bytes over the whole run; None if none carries any."""
        return max(self.loads, key=self.loads.__getitem__, default=None)

    def round_loads(self, number: int) -> dict[Edge, float]:
        """Return the bytes that each link carries in each direction in one round, to draw it.

        Raises:
            ValueError: for a round that is not there.
        """
        if not 0 <= whole("number", number) < len(self.latency):
            raise ValueError(f"number is {number}; a round from 0 to {len(self.latency) - 1} is needed")
        messages = next(islice(self.schedule.messages(), number, None))
        return self.roads.by_edge(self.roads.cost(messages).crossings * self.chunk)

    def at(self, nbytes: float) -> "Price":
        """Return the price for another n, at once: routes and loads stay the same.

        Raises:
            ValueError: for a negative ``nbytes``.
        """
        return replace(self, nbytes=_at_least_zero("nbytes", nbytes))

    def _lines(self) -> list[tuple[str, str]]:
        link = self.busiest
        most = "none" if link is None else f"{link[0]} -> {link[1]}, {quantity(self.loads[link], 'B', 4)}"
        return [
            ("time", duration(self.seconds, 5)),
            ("rounds", f"{len(self.latency)}"),
            ("latency", f"{self.latency_share:.1%} of the time"),
            ("busiest link", most),
        ]

    def _title(self) -> str:
        return f"{self.schedule.name}, {quantity(self.nbytes, 'B', 4)} on {self.network}"

    def _repr_html_(self) -> str:
        return html_table((self._title(), ""), [*self._lines(), ("assumed", self.assumptions)])

    def __repr__(self) -> str:
        return "\n".join([self._title(), *(f"  {what}: {value}" for what, value in self._lines())])


def price(
    schedule: Schedule,
    topology: "Topology",
    nbytes: float,
    gamma: float = 0.0,
    placement: Sequence[int] | None = None,
) -> Price:
    """Return the time of a schedule for n bytes on a topology, with the load of every link.

    Args:
        schedule: what to run; it need not be a right one.
        topology: the network, with its routes.
        nbytes: n in bytes, see :class:`Schedule`; a chunk may be a fraction of a byte.
        gamma: seconds to add one byte to another.
        placement: the host of each rank, each host at most once; rank i on host i unless given.

    Raises:
        ValueError: for fewer hosts than ranks, a placement that names a host twice or one that is not there, hosts
            that no path joins, a negative or infinite ``nbytes`` or ``gamma``, or a transfer between unknown ranks.

    >>> from distgen_lab.alphabeta import Link
    >>> from distgen_lab.collectives import ring_all_reduce
    >>> from distgen_lab.topology import crossbar
    >>> price(ring_all_reduce(8), crossbar(8, Link(1e-6, 1 / 25e9)), 200e3).seconds
    2.8e-05
    """
    _at_least_zero("nbytes", nbytes)
    _at_least_zero("gamma", gamma)
    roads = _Roads(topology, _hosts(schedule.ranks, topology, placement))
    rounds = _price_rounds(schedule, roads)
    return Price(schedule, topology.name, nbytes, gamma, *rounds.columns(), roads, rounds.crossings)


def timeline(
    schedule: Schedule,
    topology: "Topology",
    nbytes: float,
    gamma: float = 0.0,
    placement: Sequence[int] | None = None,
) -> Timeline:
    """Return what each rank sends and receives, and when, as spans like those of a recorded run.

    A message is a "send" on its source and a "recv" on its target; ``tag`` is the round, ``nbytes`` is rounded to
    whole bytes. It ends when its own route is done: between that and the next round the rank waits at the barrier.

    Raises:
        ValueError: as :func:`price`, or for more than 100,000 spans.
    """
    priced = price(schedule, topology, nbytes, gamma, placement)
    begins = np.r_[0.0, np.cumsum(priced.rounds)]
    spans: list[Span] = []
    for number, messages in enumerate(schedule.messages()):
        if len(spans) + 2 * len(messages.source) > _MOST_SPANS:
            raise ValueError(f"{schedule.name} has more than {_MOST_SPANS} spans; take fewer ranks or price() it")
        spans += _spans(number, float(begins[number]), messages, priced)
    return Timeline(spans, schedule.ranks)


def _spans(number: int, begin: float, messages: Messages, priced: Price) -> Iterator[Span]:
    ends = begin + priced.roads.times(messages, priced.chunk)
    rows = zip(messages.source.tolist(), messages.target.tolist(), messages.chunks.tolist(), ends.tolist(), strict=True)
    for source, target, chunks, end in rows:
        size = round(chunks * priced.chunk)
        yield Span(source, "send", begin, end, size, peer=target, tag=number)
        yield Span(target, "recv", begin, end, size, peer=source, tag=number)


@dataclass(eq=False)
class _Cost:
    """What a round costs: seconds of latency, seconds a byte of a chunk, chunks added, chunks on each link."""

    latency: float
    drain: float
    added: int
    links: np.ndarray
    chunks: np.ndarray
    size: int
    times: int = 0

    @property
    def crossings(self) -> np.ndarray:
        """Chunks on each link, as a full array."""
        full = np.zeros(self.size, np.int64)
        full[self.links] = self.chunks
        return full


class _Rounds:
    """The costs of all rounds, and how many chunks crossed each link in them."""

    def __init__(self, size: int) -> None:
        self.costs: list[tuple[float, float, int]] = []
        self.crossings = np.zeros(size, np.int64)

    def columns(self) -> Iterator[np.ndarray]:
        """Latency, drain and additions of each round."""
        return iter(np.array(self.costs, float).reshape(-1, 3).T)

    def settle(self, costs: dict[int, tuple[Messages, _Cost]]) -> None:
        """Add up what the remembered rounds put on the links, and forget them."""
        for _, cost in costs.values():
            self.crossings[cost.links] += cost.chunks * cost.times
        costs.clear()


def _price_rounds(schedule: Schedule, roads: "_Roads") -> _Rounds:
    """Price every round, those that send alike once."""
    found = _Rounds(len(roads.capacity))
    known: dict[int, tuple[Messages, _Cost]] = {}  # holds the messages: an id stays theirs
    for messages in schedule.messages():
        if id(messages) not in known:
            if len(known) >= _REMEMBERED:
                found.settle(known)
            known[id(messages)] = messages, roads.cost(messages)
        cost = known[id(messages)][1]
        cost.times += 1
        found.costs.append((cost.latency, cost.drain, cost.added))
    found.settle(known)
    return found


class _Roads:
    """The links of a topology, each direction on its own, and the routes between the hosts of ranks."""

    def __init__(self, topology: "Topology", hosts: list[int]) -> None:
        self.topology = topology
        self.hosts = hosts
        self.edges: list[Edge] = []
        values = []
        for here, there, facts in topology.graph.edges(data=True):
            self.edges += [(here, there), (there, here)]
            values += [(facts["capacity"], facts["latency"])] * 2
        self.number = {edge: place for place, edge in enumerate(self.edges)}
        self.capacity, self.latency = np.array(values, float).reshape(-1, 2).T
        self.known: dict[tuple[int, int], list[int]] = {}

    def path(self, source: int, target: int) -> list[int]:
        """The links from rank to rank, as numbers."""
        if (source, target) not in self.known:
            nodes = self._route(self.hosts[source], self.hosts[target])
            self.known[source, target] = [self.number[edge] for edge in pairwise(nodes)]
        return self.known[source, target]

    def _route(self, source: int, target: int) -> list[Hashable]:
        try:
            return self.topology.route(source, target)
        except (nx.NetworkXNoPath, nx.NodeNotFound) as error:
            raise ValueError(
                f"topology {self.topology.name!r} has no path from host {source} to host {target}; a connected one is "
                "needed"
            ) from error

    def routes(self, messages: Messages) -> tuple[np.ndarray, np.ndarray]:
        """The links that each message crosses, one after the other, and for each of them which message it is."""
        pairs = zip(messages.source.tolist(), messages.target.tolist(), strict=True)
        paths = [self.path(source, target) for source, target in pairs]
        hops = np.fromiter(map(len, paths), np.int64, len(paths))
        links = np.fromiter(chain.from_iterable(paths), np.int64, int(hops.sum()))
        return links, np.repeat(np.arange(len(paths)), hops)

    def cost(self, messages: Messages) -> _Cost:
        """The cost of a round with these messages."""
        links, which = self.routes(messages)
        size = len(self.capacity)
        chunks = np.bincount(links, messages.chunks[which], size).astype(np.int64)
        used = np.flatnonzero(chunks)
        latency = np.bincount(which, self.latency[links], len(messages.source)).max(initial=0.0)
        drain = (chunks[used] / self.capacity[used]).max(initial=0.0)
        return _Cost(float(latency), float(drain), messages.added, used, chunks[used], size)

    def times(self, messages: Messages, chunk: float) -> np.ndarray:
        """Seconds of each message of a round: its route's latency, and the most loaded link on it."""
        links, which = self.routes(messages)
        drain = np.bincount(links, messages.chunks[which], len(self.capacity)) * chunk / self.capacity
        slowest = np.zeros(len(messages.source))
        np.maximum.at(slowest, which, drain[links])
        return np.bincount(which, self.latency[links], len(messages.source)) + slowest

    def by_edge(self, nbytes: np.ndarray) -> dict[Edge, float]:
        """What is not zero, keyed by (from, to)."""
        return {self.edges[place]: float(nbytes[place]) for place in np.flatnonzero(nbytes)}


def _hosts(ranks: int, topology: "Topology", placement: Sequence[int] | None) -> list[int]:
    """The host of each rank."""
    if topology.hosts < ranks:
        raise ValueError(f"ranks is {ranks}, but {topology.name} has {topology.hosts} hosts; as many are needed")
    if placement is None:
        return list(range(ranks))
    hosts = [whole("placement", host) for host in placement]
    if len(hosts) != ranks:
        raise ValueError(f"placement names {len(hosts)} hosts; one for each of the {ranks} ranks is needed")
    wrong = [host for host, times in Counter(hosts).items() if times > 1 or not 0 <= host < topology.hosts]
    if wrong:
        raise ValueError(f"placement names host {wrong[0]}; hosts 0 to {topology.hosts - 1}, each once, are needed")
    return hosts


def _at_least_zero(name: str, value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} is {value}; a finite number of at least 0 is needed")
    return value
