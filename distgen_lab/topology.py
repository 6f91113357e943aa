"""Network topologies: graphs of ranks and switches, what can be counted on them, and the routes messages take.

Hosts (ranks) are the ints 0 .. hosts-1, switches are tuples such as ``("leaf", 3)``. An edge of the graph stands for
one or more parallel cables between two nodes and carries ``links`` (how many), ``capacity`` (bytes/s per direction of
all of them together) and ``latency`` (seconds). Distances count edges from host to host.

Each family comes three ways: as a graph (``torus((4, 4))``), as closed forms (``torus((4, 4)).closed_form``) and as
what is counted on the graph (``torus((4, 4)).facts()``), so that one can be held against the other.
"""

import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from operator import index

import networkx as nx
import numpy as np

from distgen_lab.alphabeta import Link
from distgen_lab.hardware import ACCELERATORS, LINKS
from distgen_lab.units import quantity

__all__ = [
    "DEFAULT_LINK", "Bisection", "BookRow", "BookTable", "Comparison", "Facts", "SuperPodCounts", "Topology",
    "against_the_book", "binary_tree", "compare", "complete", "crossbar", "dgx1v", "dgx_a100", "dgx_h100", "dragonfly",
    "fat_tree", "folded_clos", "from_graph", "gb200_nvl72", "hypercube", "leaf_spine", "line", "mesh", "moore_bound",
    "ring", "superpod", "superpod_counts", "torus", "tpu_v4", "tpu_v5p", "wagner",
]  # fmt: skip

Node = Hashable
Router = Callable[[int, int], list]
Positions = dict[Node, tuple[float, float]]

DEFAULT_LINK = Link(alpha=1e-6, beta=1 / 12.5e9)
"""One microsecond and 12.5 GB/s (100 Gb/s) per direction."""

_EXHAUSTIVE_BITS = 20  # all cuts are tried where there are at most this many nodes to place freely
_PLACEMENT_WORK = 5e7  # hosts times placements of switches that may be tried
_DENSE = 1100  # largest matrix whose eigenvalues are asked for
_REFINED = 400  # largest graph whose cut is improved by exchanges from many starts, larger ones from one
_EMBEDDING_WORK = 4e8  # matrix entries the routing bound may look at
_TINY = 1e-6  # rounding of floats that stand for whole numbers


# ------------------------------------------------------------------------------------------------ what is known of one


@dataclass(frozen=True)
class Facts:
    """What a topology comes to; None where no closed form is known.

    Attributes:
        hosts, switches, cables: how many; parallel cables count one by one.
        degree: most neighbours any node has.
        diameter: most hops between two hosts.
        average_distance: hops between two different hosts, averaged over ordered pairs, exact.
        bisection: fewest cables between two equal halves of the hosts (halves differ by one if hosts are odd).
    """

    hosts: int
    switches: int
    cables: int
    degree: int | None = None
    diameter: int | None = None
    average_distance: Fraction | None = None
    bisection: int | None = None

    def differences(self, other: "Facts") -> list[str]:
        """Return the names of the facts that both have and that differ."""
        pairs = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return [name for name, mine, theirs in pairs if None not in (mine, theirs) and mine != theirs]


@dataclass(frozen=True)
class Bisection:
    """A cut into equal halves of the hosts, and a proof of how much smaller another could be.

    Attributes:
        width: cables the cut crosses: an upper bound, which anybody can count.
        lower_bound: no cut into halves crosses fewer cables.
        method: how the lower bound was proved.
        side: one side of the cut, hosts and switches.
        cut: the crossing edges as (node in ``side``, node outside, cables).
        halves: the hosts in ``side`` and the other hosts.
        bandwidth: bytes/s per direction of the crossing cables.
    """

    width: int
    lower_bound: int
    method: str
    side: frozenset
    cut: tuple[tuple[Node, Node, int], ...]
    halves: tuple[tuple[int, ...], tuple[int, ...]]
    bandwidth: float

    @property
    def proven(self) -> bool:
        """Whether the cut found is the smallest."""
        return self.width == self.lower_bound

    def __str__(self) -> str:
        if self.proven:
            return f"{self.width} (proved)"
        return f"{self.lower_bound} to {self.width}"


class Topology:
    """A network: hosts, switches and links, with a route for every pair of hosts.

    Attributes:
        name: e.g. "3D torus 4x4x4".
        graph: hosts are the ints 0 .. hosts-1, all other nodes are switches; edges as in the module's description.
        hosts: number of hosts.
        family: "torus", "fat-tree", ..., "own" for a reader's own network.
        routing: the rule of :meth:`route` in words.
        closed_form: what the family's formulas say, None for a network without a family.
        parameters: the numbers it was built from, by name.

    The graph is read once: build a new topology instead of changing it.

    Raises:
        ValueError: if hosts are missing, the network is not connected, or an edge lacks a positive capacity.
    """

    def __init__(
        self,
        name: str,
        graph: nx.Graph,
        hosts: int,
        *,
        family: str = "own",
        router: Router | None = None,
        routing: str = "",
        spread: bool = False,
        layout: Callable[[], Positions] | None = None,
        orders: Iterable[Sequence[int]] = (),
        bounds: Iterable[tuple[Fraction | int, str]] = (),
        closed_form: Facts | None = None,
        parameters: dict[str, object] | None = None,
    ) -> None:
        """Check the graph and keep it.

        Args:
            name, graph, hosts, family, routing, closed_form, parameters: see the attributes.
            router: gives the route of two different hosts; None for shortest paths.
            spread: among equally short paths take the (target mod ways)-th next node instead of the lowest.
            layout: gives positions for a drawing.
            orders: orders of the hosts whose first half may be a good half; tried first by :meth:`bisection`.
            bounds: lower bounds of the bisection width with their proof in words.
        """
        _check_network(name, graph, hosts)
        self.name, self.graph, self.hosts, self.family = name, graph, hosts, family
        self.closed_form, self.parameters = closed_form, dict(parameters or {})
        self._router, self._spread, self._layout = router, spread, layout
        self._orders, self._bounds = tuple(orders), tuple(bounds)
        self._next: dict[int, list[int]] = {}
        self.routing = routing or (_SPREAD if spread else _LOWEST)

    def __repr__(self) -> str:
        switches = f", {self.switches:,} switch{'es' * (self.switches > 1)}" if self.switches else ""
        return f"{self.name}: {self.hosts:,} hosts{switches}, {self.cables:,} cables"

    # ---- counts

    @property
    def switches(self) -> int:
        """Number of nodes that are not hosts."""
        return len(self.graph) - self.hosts

    @property
    def cables(self) -> int:
        """Number of cables; parallel ones count one by one."""
        return sum(links for _, _, links in self.graph.edges(data="links"))

    def degrees(self) -> tuple[int, int]:
        """Return the fewest and the most neighbours a node has, hosts and switches."""
        degrees = [degree for _, degree in self.graph.degree()]
        return min(degrees), max(degrees)

    def degree(self) -> int:
        """Return the most neighbours a node has."""
        return self.degrees()[1]

    def distance_counts(self) -> list[int]:
        """Return how many ordered pairs of hosts are 0, 1, 2, ... hops apart (breadth-first search from every host).

        >>> ring(5).distance_counts()
        [5, 10, 10]
        """
        return list(self._distances)

    def diameter(self) -> int:
        """Return the most hops between two hosts."""
        return len(self._distances) - 1

    def average_distance(self) -> Fraction:
        """Return the exact mean of hops over ordered pairs of different hosts; 0 for a single host.

        >>> torus((4, 4)).average_distance()
        Fraction(32, 15)
        """
        total = sum(hops * pairs for hops, pairs in enumerate(self._distances))
        return Fraction(total, max(1, self.hosts * (self.hosts - 1)))

    def facts(self) -> Facts:
        """Return everything counted on the graph; the bisection only where it is proved."""
        cut = self.bisection()
        width = cut.width if cut.proven else None
        counted = (self.hosts, self.switches, self.cables, self.degree(), self.diameter(), self.average_distance())
        return Facts(*counted, width)

    # ---- routes

    def route(self, source: int, target: int) -> list:
        """Return the nodes from source to target, both included; always the same ones. The rule is in ``routing``.

        Raises:
            ValueError: for a source or target that is not a host.
        TypeError: for one that is not a whole number.

        >>> torus((4, 4)).route(0, 15)
        [0, 12, 15]
        """
        source, target = index(source), index(target)
        if not (0 <= source < self.hosts and 0 <= target < self.hosts):
            raise ValueError(f"no route from {source} to {target}: hosts are 0 to {self.hosts - 1}")
        if source == target:
            return [source]
        return self._router(source, target) if self._router else self._shortest(source, target)

    def _shortest(self, source: int, target: int) -> list:
        following = self._next.get(target) or self._next.setdefault(target, self._next_nodes(target))
        path, here = [source], source
        while here != target:
            here = following[here]
            path.append(self._nodes[here])
        return path

    def _next_nodes(self, target: int) -> list[int]:
        """For each node the next one on its way to ``target``."""
        hops = _hops(self._neighbours, target)
        following = [target] * len(hops)
        for node, near in enumerate(self._neighbours):
            if node != target:
                ways = [other for other in near if hops[other] == hops[node] - 1]
                following[node] = ways[target % len(ways) if self._spread else 0]
        return following

    # ---- bisection

    def bisection(self) -> Bisection:
        """Return the narrowest cut found into equal halves of the hosts, and a lower bound proved for all such cuts.

        Switches fall on whichever side makes the cut smallest. The lower bound comes from trying all cuts (small
        networks), from the family's own argument, from routing all pairs (no cut can be narrower than the pairs across
        it, divided by the most pairs that share a cable), or from the Laplacian's second eigenvalue (Fiedler).
        """
        return self._bisection

    def bisection_width(self) -> int:
        """Return the cables of the narrowest cut found; see :meth:`bisection` for whether it is proved."""
        return self._bisection.width

    def bisection_bandwidth(self) -> float:
        """Return bytes/s per direction across the narrowest cut found into equal halves of the hosts.

        Where cables differ in capacity the cut of least capacity is looked for, not that of fewest cables.
        """
        per_cable = {data["capacity"] / data["links"] for _, _, data in self.graph.edges(data=True)}
        alike = not per_cable or math.isclose(max(per_cable), min(per_cable))
        return self._bisection.bandwidth if alike else self._capacity_bisection.bandwidth

    @cached_property
    def _bisection(self) -> Bisection:
        return _bisect(self, [data["links"] for _, _, data in self.graph.edges(data=True)], self._bounds)

    @cached_property
    def _capacity_bisection(self) -> Bisection:
        """The same with every edge counted by its capacity in whole bytes/s."""
        given = [data["capacity"] for _, _, data in self.graph.edges(data=True)]
        most = 1 + sum(capacity for capacity in given if capacity < math.inf)  # stands for an endless one
        capacities = [max(1, round(min(capacity, most))) for capacity in given]
        unit = math.gcd(*capacities)
        return _bisect(self, [capacity // unit for capacity in capacities], ())

    # ---- pictures

    def positions(self) -> Positions:
        """Return a place (x, y) for each node, as the family is usually drawn; y grows upwards."""
        return self._layout() if self._layout else _levels(self)

    # ---- arrays the searches work on

    @cached_property
    def _nodes(self) -> list:
        """Hosts in their order, then the switches in the graph's order."""
        return [*range(self.hosts), *(node for node in self.graph if not _is_host(node, self.hosts))]

    @cached_property
    def _index(self) -> dict[Node, int]:
        return {node: number for number, node in enumerate(self._nodes)}

    @cached_property
    def _neighbours(self) -> list[list[int]]:
        return [sorted(self._index[other] for other in self.graph[node]) for node in self._nodes]

    @cached_property
    def _distances(self) -> list[int]:
        return _distance_counts(self._neighbours, self.hosts)


_LOWEST = "a shortest path; where several nodes come next, the lowest (hosts before switches)"
_SPREAD = "a shortest path; where several nodes come next, number (target mod ways)"


def from_graph(
    graph: nx.Graph,
    hosts: Sequence[Node] | None = None,
    name: str = "own network",
    link: Link = DEFAULT_LINK,
    spread: bool = False,
) -> Topology:
    """Return the topology of a reader's own network, with shortest-path routes.

    Args:
        graph: a networkx ``Graph`` or ``MultiGraph`` (whose parallel edges are added up). Edges may carry ``links``,
            ``capacity`` (bytes/s per direction, all links together) and ``latency`` (seconds).
        hosts: the nodes that are ranks, rank 0 first; None if all are. They are renumbered 0 .. ; a node's own name
            stays in its attribute ``label``. A switch that is not called by a tuple becomes ``("switch", its name)``.
        link: what an edge without capacity or latency is made of.
        spread: among equally short paths take the (target mod ways)-th next node instead of the lowest.

    Raises:
        ValueError: for a directed graph, unknown or repeated hosts, a network that is not connected, a bad edge.
    """
    if graph.is_directed():
        raise ValueError("graph is directed; a Graph or MultiGraph is needed, each edge a link with both directions")
    ranks = list(graph.nodes if hosts is None else hosts)
    missing = [node for node in ranks if node not in graph]
    if missing or len(set(ranks)) != len(ranks) or not ranks:
        raise ValueError(f"hosts is {ranks!r}; different nodes of the graph, at least one, are needed")
    names = {node: rank for rank, node in enumerate(ranks)}
    for node in graph:
        names.setdefault(node, node if isinstance(node, tuple) else ("switch", node))
    return Topology(name, _renamed(graph, names, len(ranks), link), len(ranks), spread=spread)


def _renamed(graph: nx.Graph, names: dict[Node, Node], hosts: int, link: Link) -> nx.Graph:
    """A copy with our names and complete edges."""
    copy = _hosts(hosts)
    for node, ours in names.items():
        copy.add_node(ours, label=node)
    for u, v, data in graph.edges(data=True):
        links = data.get("links", 1)
        whole = isinstance(links, int | np.integer) and links > 0
        capacity = data.get("capacity", link.bandwidth * links if whole else 0)
        have = copy.get_edge_data(names[u], names[v], {"links": 0, "capacity": 0, "latency": 0.0})
        latency = data.get("latency", link.alpha)
        _check_edge((u, v), links, capacity, latency)
        total = {"links": have["links"] + links, "capacity": have["capacity"] + capacity}
        total["latency"] = max(have["latency"], latency)
        copy.add_edge(names[u], names[v], **total)
    return copy


def _check_network(name: str, graph: nx.Graph, hosts: int) -> None:
    """Say what is wrong with a network."""
    if not isinstance(graph, nx.Graph) or graph.is_directed() or graph.is_multigraph():
        raise ValueError(f"{name}: graph is a {type(graph).__name__}; a networkx Graph is needed (see from_graph)")
    if _whole("hosts", hosts, 1) and not all(host in graph for host in range(hosts)):
        raise ValueError(f"{name}: hosts is {hosts}, but not all of the nodes 0 to {hosts - 1} are in the graph")
    if not nx.is_connected(graph):
        parts = nx.number_connected_components(graph)
        alone = min(nx.connected_components(graph), key=len)
        raise ValueError(f"{name} is not connected: {parts} parts, one of them with {_some(alone)}; add links")
    for u, v, data in graph.edges(data=True):
        _check_edge((u, v), data.get("links"), data.get("capacity"), data.get("latency"))


def _check_edge(edge: tuple, links: object, capacity: object, latency: object) -> None:
    """Say what is wrong with an edge."""
    if edge[0] == edge[1]:
        raise ValueError(f"edge {edge} joins a node to itself; two different nodes are needed")
    if not (isinstance(links, int | np.integer) and links > 0):
        raise ValueError(f"edge {edge}: links is {links!r}; a whole number of at least 1 is needed")
    if not (_is_number(capacity) and capacity > 0):
        raise ValueError(f"edge {edge}: capacity is {capacity!r}; a positive number of bytes/s is needed")
    if not (_is_number(latency) and 0 <= latency < math.inf):
        raise ValueError(f"edge {edge}: latency is {latency!r}; a number of seconds of at least 0 is needed")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and not math.isnan(value)


def _is_host(node: Node, hosts: int) -> bool:
    return isinstance(node, int) and 0 <= node < hosts


def _some(nodes: Iterable[Node]) -> str:
    """The first few of some nodes."""
    names = sorted(map(str, nodes))
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def _whole(name: str, value: int, least: int) -> int:
    """Return ``value``, or say which argument is not a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} is {value!r}; a whole number of at least {least} is needed")
    return int(value)


# ------------------------------------------------------------------------------------------------ distances


def _hops(neighbours: list[list[int]], start: int) -> list[int]:
    """Hops from ``start`` to every node, breadth first."""
    hops = [-1] * len(neighbours)
    hops[start] = 0
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for other in neighbours[node]:
            if hops[other] < 0:
                hops[other] = hops[node] + 1
                queue.append(other)
    return hops


def _distance_counts(neighbours: list[list[int]], hosts: int) -> list[int]:
    """Ordered pairs of hosts at 0, 1, 2, ... hops: one breadth-first search from all hosts at once.

    Each node keeps one bit a host: who reaches it within the hops so far. A step joins the bits of its neighbours.
    """
    rows = np.arange(hosts)
    reached = np.zeros((len(neighbours), hosts // 64 + 1), np.uint64)
    reached[rows, rows // 64] = np.left_shift(np.uint64(1), (rows % 64).astype(np.uint64))
    flat = np.fromiter(itertools.chain.from_iterable(neighbours), np.int64)
    starts = np.cumsum([0, *map(len, neighbours)])[:-1]
    counts, total = [hosts], hosts
    while total < hosts * hosts:
        reached |= np.bitwise_or.reduceat(reached[flat], starts)
        now = int(np.bitwise_count(reached[:hosts]).sum())
        counts.append(now - total)
        total = now
    return counts


# ------------------------------------------------------------------------------------------------ bisection


class _Cuts:
    """Cuts of one topology into halves of its hosts, edges weighted; side True is the half with hosts // 2 hosts."""

    def __init__(self, topology: Topology, weights: Sequence[int]) -> None:
        self.topology, self.hosts, self.nodes = topology, topology.hosts, len(topology.graph)
        self.half = self.hosts // 2
        number = topology._index
        self.ends = np.array([(number[u], number[v]) for u, v in topology.graph.edges], np.int64).reshape(-1, 2)
        self.weights = np.array(weights, np.int64)

    def weight(self, side: np.ndarray) -> int:
        """Weight of the edges that cross, for one side as a mask over all nodes."""
        return int(self.weights[side[self.ends[:, 0]] != side[self.ends[:, 1]]].sum())

    def from_order(self, order: Sequence[int]) -> np.ndarray:
        """The best side whose hosts are the first half of ``order``."""
        chosen = np.zeros(self.nodes, bool)
        chosen[np.asarray(order[: self.half], np.int64)] = True
        return self.with_switches(chosen)

    def with_switches(self, side: np.ndarray) -> np.ndarray:
        """Keep the hosts, place the switches best: a minimum cut between the two halves."""
        if self.nodes == self.hosts or not self.half:
            return side
        network = nx.Graph()
        for (u, v), weight in zip(self.ends.tolist(), self.weights.tolist(), strict=True):
            a, b = (self._pole(node, side) for node in (u, v))
            old = network.get_edge_data(a, b, {"capacity": 0})["capacity"]
            network.add_edge(a, b, capacity=old + weight)
        _, (first, _) = nx.minimum_cut(network, "A", "B")
        placed = side.copy()
        for node in range(self.hosts, self.nodes):
            placed[node] = node in first
        return placed

    def _pole(self, node: int, side: np.ndarray) -> int | str:
        """A host is one of the two poles of the flow, a switch is itself."""
        if node >= self.hosts:
            return node
        return "A" if side[node] else "B"

    @cached_property
    def matrix(self) -> np.ndarray:
        """Weights between any two nodes."""
        matrix = np.zeros((self.nodes, self.nodes))
        matrix[self.ends[:, 0], self.ends[:, 1]] = matrix[self.ends[:, 1], self.ends[:, 0]] = self.weights
        return matrix

    @cached_property
    def spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues, lowest first, and eigenvectors of the weighted Laplacian."""
        return np.linalg.eigh(np.diag(self.matrix.sum(axis=1)) - self.matrix)

    @cached_property
    def homes(self) -> np.ndarray:
        """For each host the node it hangs on by its only edge, if that is a switch; else itself."""
        near = self.topology._neighbours
        hanging = (near[host][0] if len(near[host]) == 1 else host for host in range(self.hosts))
        return np.array([home if home >= self.hosts else host for host, home in enumerate(hanging)], np.int64)

    def units(self) -> tuple[np.ndarray, np.ndarray]:
        """The nodes left when hanging hosts are drawn into their switch, and how many hosts each then holds."""
        held = np.bincount(self.homes, minlength=self.nodes)
        gone = np.zeros(self.nodes, bool)
        gone[: self.hosts] = self.homes != np.arange(self.hosts)
        return np.flatnonzero(~gone), held[~gone]


def _bisect(topology: Topology, weights: Sequence[int], bounds: Iterable[tuple[Fraction | int, str]]) -> Bisection:
    """The narrowest cut of the tries, and the best lower bound; stops as soon as they meet."""
    cuts = _Cuts(topology, weights)
    if cuts.half == 0:
        return _result(cuts, np.zeros(cuts.nodes, bool), 0, "one host cannot be halved")
    lower, method = max(((math.ceil(bound), why) for bound, why in bounds), default=(1, "the network is connected"))
    best, tries = None, _tries(cuts)
    for step in (1, None):  # the family's own halves, then, if the bounds are apart, computed bounds and other halves
        for side in itertools.islice(tries, step):
            if best is None or cuts.weight(side) < cuts.weight(best):
                best = side
            if cuts.weight(best) <= lower:
                return _result(cuts, best, lower, method)
        if step and (exact := _exhaustive(cuts)) is not None:
            return _result(cuts, exact, cuts.weight(exact), "all cuts tried")
        if step:
            lower, method = max([(lower, method), *_computed_bounds(cuts)])
    return _result(cuts, best, lower, method)


def _result(cuts: _Cuts, side: np.ndarray, lower: int, method: str) -> Bisection:
    """A side as a Bisection in the topology's names."""
    names, graph = cuts.topology._nodes, cuts.topology.graph
    crossing = [(u, v) if side[u] else (v, u) for u, v in cuts.ends.tolist() if side[u] != side[v]]
    cut = tuple((names[u], names[v], graph[names[u]][names[v]]["links"]) for u, v in crossing)
    halves = tuple(tuple(np.flatnonzero(side[: cuts.hosts] == which).tolist()) for which in (True, False))
    bandwidth = float(sum(graph[u][v]["capacity"] for u, v, _ in cut))
    chosen = frozenset(names[node] for node in np.flatnonzero(side))
    return Bisection(cuts.weight(side), lower, method, chosen, cut, halves, bandwidth)


def _tries(cuts: _Cuts) -> Iterator[np.ndarray]:
    """Sides worth trying, the likeliest first: given orders, the numbering, the Fiedler vector, exchanges of nodes."""
    for order in (*cuts.topology._orders, range(cuts.hosts)):
        yield cuts.from_order(list(order))
    starts = [np.arange(cuts.nodes)]
    if cuts.nodes <= _DENSE:
        starts.append(np.argsort(cuts.spectrum[1][:, 1], kind="stable"))
        yield cuts.from_order([node for node in starts[-1] if node < cuts.hosts])
    kept, held = cuts.units()
    if len(kept) <= _DENSE and len(set(held[held > 0])) == 1:
        shuffled = list(range(cuts.nodes))
        for seed in range(4):
            random.Random(seed).shuffle(shuffled)
            starts.append(np.array(shuffled))
        for start in starts if len(kept) <= _REFINED else starts[1:2]:
            yield _exchanged(cuts, kept, held, start)


def _exhaustive(cuts: _Cuts) -> np.ndarray | None:
    """The best side of all, where few enough nodes can be placed freely; else None."""
    if cuts.nodes <= _EXHAUSTIVE_BITS:
        return _best_of_all(cuts)
    switches, hosts_joined = cuts.nodes - cuts.hosts, (cuts.ends < cuts.hosts).all(axis=1).any()
    if hosts_joined or not 0 < switches <= _EXHAUSTIVE_BITS or cuts.hosts << switches > _PLACEMENT_WORK:
        return None
    return _best_placement(cuts)


def _best_of_all(cuts: _Cuts) -> np.ndarray:
    """Try all placements of all nodes that halve the hosts; bit i of a mask says where node i is."""
    masks = np.arange(1 << cuts.nodes, dtype=np.int64)
    masks = masks[np.bitwise_count(masks & (1 << cuts.hosts) - 1) == cuts.half]
    weight = np.zeros(len(masks), np.int64)
    for (u, v), w in zip(cuts.ends, cuts.weights, strict=True):
        weight += w * ((masks >> u ^ masks >> v) & 1)
    return (masks[weight.argmin()] >> np.arange(cuts.nodes) & 1).astype(bool)


def _best_placement(cuts: _Cuts) -> np.ndarray:
    """Try all placements of the switches; for each, the half of the hosts that gains most joins the side.

    That is exact if no two hosts are joined: what a host costs on either side depends on the switches alone.
    """
    switches = cuts.nodes - cuts.hosts
    among, to_hosts = cuts.matrix[cuts.hosts :, cuts.hosts :], cuts.matrix[cuts.hosts :, : cuts.hosts]
    best, best_side = math.inf, np.zeros(cuts.nodes, bool)
    count = 1 << switches - (cuts.hosts % 2 == 0)  # halves of equal size: the last switch may stay on the other side
    step = max(1, 2**21 // (cuts.hosts + switches))
    for first in range(0, count, step):
        masks = np.arange(first, min(first + step, count))
        placed = (masks[:, None] >> np.arange(switches) & 1).astype(float)
        inside = placed @ to_hosts  # weight from each host to the switches of the side
        gain = to_hosts.sum(axis=0) - 2 * inside  # what joining the side changes
        least = np.partition(gain, cuts.half - 1, axis=1)[:, : cuts.half].sum(axis=1)
        total = inside.sum(axis=1) + least + ((placed @ among) * (1 - placed)).sum(axis=1)
        if total.min() < best:
            best, row = total.min(), int(total.argmin())
            chosen = np.isin(np.arange(cuts.hosts), np.argsort(gain[row], kind="stable")[: cuts.half])
            best_side = np.concatenate([chosen, placed[row] > 0])
    return best_side


def _exchanged(cuts: _Cuts, kept: np.ndarray, held: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Improve halves by exchanging switches with all their hosts, or hosts (Kernighan and Lin 1970)."""
    rank = np.argsort(start)[kept]
    holders = np.flatnonzero(held)
    chosen = np.zeros(len(kept), bool)
    chosen[holders[np.argsort(rank[holders])[: len(holders) // 2]]] = True
    matrix = cuts.matrix[np.ix_(kept, kept)]
    while (better := _exchange_pass(matrix, held, chosen)) is not None:
        chosen = better
    homes = np.zeros(cuts.nodes, bool)
    homes[kept] = chosen
    order = np.argsort(~homes[cuts.homes], kind="stable")
    return cuts.from_order(order)


def _exchange_pass(matrix: np.ndarray, held: np.ndarray, side: np.ndarray) -> np.ndarray | None:
    """One pass: best exchange after best exchange, each node once, then back to the best state; None if none gains."""
    sign = np.where(side, 1.0, -1.0)
    gain = -sign * (matrix @ sign)  # weight across minus weight within: what moving the node alone would save
    state, free = side.copy(), np.ones(len(side), bool)
    best, best_state, saved = _TINY, None, 0.0
    while (move := _best_move(matrix, held, state, free, gain)) is not None:
        saved += move[0]
        for node in move[1]:
            free[node] = False
            gain += np.where(state == state[node], 2.0, -2.0) * matrix[node]
            state[node] = not state[node]
        if saved > best:
            best, best_state = saved, state.copy()
    return best_state


def _best_move(
    matrix: np.ndarray, held: np.ndarray, state: np.ndarray, free: np.ndarray, gain: np.ndarray
) -> tuple[float, tuple[int, ...]] | None:
    """The best exchange of two host holders, or move of one that holds none, with what it saves."""
    moves = []
    ours, theirs = (np.flatnonzero(free & (held > 0) & (state == which)) for which in (True, False))
    if len(ours) and len(theirs):
        saving = gain[ours][:, None] + gain[theirs] - 2 * matrix[np.ix_(ours, theirs)]
        a, b = np.unravel_index(saving.argmax(), saving.shape)
        moves.append((float(saving[a, b]), (int(ours[a]), int(theirs[b]))))
    empty = np.flatnonzero(free & (held == 0))
    if len(empty):
        node = int(empty[gain[empty].argmax()])
        moves.append((float(gain[node]), (node,)))
    return max(moves, default=None)


def _computed_bounds(cuts: _Cuts) -> Iterator[tuple[int, str]]:
    """Lower bounds computed on the graph, where it is small enough."""
    if cuts.nodes == cuts.hosts <= _DENSE:
        yield _up(_spectral_bound(cuts)), "second eigenvalue of the Laplacian"
    kept, held = cuts.units()
    if 2.0 * len(cuts.ends) * np.count_nonzero(held) ** 2 <= _EMBEDDING_WORK and len(kept) <= 2 * _DENSE:
        yield _up(_routing_bound(cuts, kept, held)), "all pairs across, routed evenly over all shortest paths"


def _up(value: float) -> int:
    """Round a float bound up to a whole number, but never over a rounding error."""
    return math.ceil(value * (1 - 1e-9) - _TINY)


def _spectral_bound(cuts: _Cuts) -> float:
    """lambda_2 |A| |B| / (|A| + |B|) for halves A and B (Fiedler 1973); lambda_2 N / 4 for equal ones."""
    return float(cuts.spectrum[0][1]) * cuts.half * (cuts.hosts - cuts.half) / cuts.hosts


def _routing_bound(cuts: _Cuts, kept: np.ndarray, held: np.ndarray) -> float:
    """Pairs across any halves A and B, over the most of them that can share a unit of one edge's weight.

    One unit flows from each host of A to each host of B, split over all shortest paths by the roots of the weights on
    them (two hops of weight w then take their share of w). Whatever the halves, an edge
    carries at most what its |A| busiest sources send to their |B| busiest targets, and |A| |B| units must cross.
    """
    half, other = cuts.half, cuts.hosts - cuts.half
    matrix = cuts.matrix[np.ix_(kept, kept)]
    root = np.sqrt(matrix / matrix.max(initial=1))  # at most 1, so that products stay in range
    hops, ways = _shortest_ways(root)
    sites = np.flatnonzero(held)
    hanging = np.flatnonzero(cuts.homes != np.arange(cuts.hosts))
    own = cuts.matrix[hanging, cuts.homes[hanging]]
    worst = float((other / own).max()) if len(own) else 0.0
    for u, v in np.argwhere(matrix):
        sources = sites[hops[sites, v] == hops[sites, u] + 1]
        targets = sites[hops[u, sites] == hops[v, sites] + 1]
        on_way = hops[np.ix_(sources, targets)] == hops[sources, u][:, None] + 1 + hops[v, targets]
        share = on_way * np.outer(ways[sources, u], ways[v, targets]) * root[u, v] / ways[np.ix_(sources, targets)]
        sent = _largest(share, held[targets], other)
        worst = max(worst, float(_largest(sent[None, :], held[sources], half)[0]) / matrix[u, v])
    return half * other / worst


def _shortest_ways(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hops between all nodes, and the number of shortest paths, each counted by the product of its weights."""
    size = len(matrix)
    hops, ways = np.full((size, size), -1), np.eye(size)
    np.fill_diagonal(hops, 0)
    frontier, step = np.eye(size), 0
    while (hops < 0).any():
        step += 1
        frontier = (frontier @ matrix) * (hops < 0)
        hops[frontier > 0] = step
        ways += frontier
    return hops, ways


def _largest(values: np.ndarray, copies: np.ndarray, count: int) -> np.ndarray:
    """For each row the sum of its ``count`` largest values, each value there ``copies`` times."""
    order = np.argsort(-values, axis=1)
    copies = copies[order]
    before = np.cumsum(copies, axis=1) - copies
    taken = np.clip(count - before, 0, copies)
    return (np.take_along_axis(values, order, axis=1) * taken).sum(axis=1)


# ------------------------------------------------------------------------------------------------ direct networks


def line(n: int, link: Link = DEFAULT_LINK) -> Topology:
    """Return n hosts in a row (also called path or linear array).

    Diameter n-1, average distance (n+1)/3, bisection 1 (Dally and Towles 2004, chapter 5).
    """
    return _grid("line", (_whole("n", n, 1),), False, link)


def ring(n: int, link: Link = DEFAULT_LINK) -> Topology:
    """Return n hosts in a circle; two hosts are joined by one link.

    Diameter floor(n/2), average distance n^2 / 4(n-1) for even n and (n+1)/4 for odd n, bisection 2 links (Dally and
    Towles 2004, chapter 5). Half-way round, routes go in the positive direction.
    """
    return _grid("ring", (_whole("n", n, 1),), True, link)


def mesh(dims: Sequence[int], link: Link = DEFAULT_LINK) -> Topology:
    """Return a grid of any dimensions without wraparound; hosts are numbered row by row, the last dimension fastest.

    Diameter is the sum of k_i - 1, bisection N / k for an even longest dimension k (Dally and Towles 2004, chapter 5).
    Routes correct the first coordinate first (dimension order).
    """
    return _grid("mesh", _shape(dims), False, link)


def torus(dims: Sequence[int], link: Link = DEFAULT_LINK) -> Topology:
    """Return a grid of any dimensions with wraparound; hosts are numbered row by row, the last dimension fastest.

    A dimension of length 2 has one link, not two. Diameter is the sum of floor(k_i / 2), bisection 2N / k for an even
    longest dimension k > 2 (Dally and Towles 2004, chapter 5). Routes correct the first coordinate first, each the
    shorter way round; half-way round, in the positive direction.

    >>> torus((4, 4, 4))
    3D torus 4x4x4: 64 hosts, 192 cables
    """
    return _grid("torus", _shape(dims), True, link)


def hypercube(dimension: int, link: Link = DEFAULT_LINK) -> Topology:
    """Return 2^d hosts, joined where their numbers differ in one bit.

    Diameter d, average distance d 2^(d-1) / (2^d - 1), bisection 2^(d-1) (Leighton 1992, chapter 3). Routes correct the
    lowest differing bit first (e-cube).
    """
    d = _whole("dimension", dimension, 0)
    graph = _hosts(1 << d)
    pairs = ((host, host ^ 1 << bit) for bit in range(d) for host in range(1 << d) if not host >> bit & 1)
    _join_all(graph, pairs, link)
    return Topology(
        f"{d}D hypercube", graph, 1 << d, family="hypercube", router=_e_cube, routing="the lowest differing bit first",
        layout=lambda: _grid_positions((2,) * d, False), bounds=_grid_bounds((2,) * d, False),
        closed_form=_hypercube_facts(d), parameters={"dimension": d},
    )  # fmt: skip


def complete(n: int, link: Link = DEFAULT_LINK) -> Topology:
    """Return n hosts, each joined to every other: n(n-1)/2 cables, diameter 1, bisection floor(n/2) ceil(n/2)."""
    n = _whole("n", n, 1)
    graph, across = _hosts(n), (n // 2) * (n - n // 2)
    _join_all(graph, itertools.combinations(range(n), 2), link)
    average = Fraction(int(n > 1))
    return Topology(
        f"complete graph of {n}", graph, n, family="complete", router=lambda s, t: [s, t], routing="the direct link",
        layout=lambda: _circle(range(n)), bounds=[(across, "each pair across has a cable of its own")],
        closed_form=Facts(n, 0, n * (n - 1) // 2, n - 1, int(n > 1), average, across), parameters={"n": n},
    )  # fmt: skip


def binary_tree(depth: int, link: Link = DEFAULT_LINK) -> Topology:
    """Return a balanced binary tree whose 2^(depth+1) - 1 nodes are all hosts; host i has the children 2i+1 and 2i+2.

    Diameter 2 depth, bisection 1: without one edge at the root the rest differs by one host.
    """
    n = (2 << _whole("depth", depth, 0)) - 1
    graph = _hosts(n)
    _join_all(graph, (((child - 1) // 2, child) for child in range(1, n)), link)
    places = _tree_positions(depth)
    return Topology(
        f"binary tree of depth {depth}", graph, n, family="binary tree", router=_tree_route,
        routing="up to the common ancestor and down", layout=lambda: dict(places),
        orders=[sorted(range(n), key=lambda host: places[host][0])], closed_form=_tree_facts(depth),
        parameters={"depth": depth},
    )  # fmt: skip


def wagner(link: Link = DEFAULT_LINK) -> Topology:
    """Return the Wagner graph: a ring of 8 hosts with the 4 diameters.

    It has the size and degree of the 3D hypercube and a diameter of 2 instead of 3.
    """
    graph = _hosts(8)
    _join_all(graph, [*((i, (i + 1) % 8) for i in range(8)), *((i, i + 4) for i in range(4))], link)
    return Topology("Wagner graph", graph, 8, family="wagner", layout=lambda: _circle(range(8)))


def moore_bound(degree: int, diameter: int) -> int:
    """Return the most nodes any graph of this degree and diameter can have: 1 + d + d(d-1) + ... (Moore bound).

    >>> moore_bound(3, 2)
    10
    """
    d = _whole("degree", degree, 1)
    return 1 + sum(d * (d - 1) ** step for step in range(_whole("diameter", diameter, 0)))


def _hosts(count: int) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(count))
    return graph


def _join(graph: nx.Graph, u: Node, v: Node, link: Link, links: int = 1) -> None:
    """Join two nodes by ``links`` cables, on top of those they have."""
    links += graph.get_edge_data(u, v, {"links": 0})["links"]
    graph.add_edge(u, v, capacity=links * link.bandwidth, latency=link.alpha, links=links)


def _join_all(graph: nx.Graph, pairs: Iterable[tuple[Node, Node]], link: Link) -> None:
    for u, v in pairs:
        _join(graph, u, v, link)


def _shape(dims: Sequence[int]) -> tuple[int, ...]:
    """Return dims, or say what is wrong with them."""
    if isinstance(dims, int) or not len(dims):
        raise ValueError(f"dims is {dims!r}; the length of each dimension is needed, as in (4, 4, 4)")
    return tuple(_whole(f"dims[{number}]", length, 1) for number, length in enumerate(dims))


def _strides(dims: tuple[int, ...]) -> list[int]:
    """How far apart in number are neighbours along each dimension."""
    return [math.prod(dims[number + 1 :]) for number in range(len(dims))]


def _grid(family: str, dims: tuple[int, ...], wrap: bool, link: Link) -> Topology:
    """A line, ring, mesh or torus."""
    n = math.prod(dims)
    graph = _hosts(n)
    for size, stride in zip(dims, _strides(dims), strict=True):
        for host in range(n):
            place = host // stride % size
            if place + 1 < size:
                _join(graph, host, host + stride, link)
            elif wrap and size > 2:
                _join(graph, host, host - place * stride, link)
    flat = family in ("line", "ring")
    return Topology(
        f"{family} of {n}" if flat else f"{len(dims)}D {family} {'x'.join(map(str, dims))}", graph, n, family=family,
        router=_grid_router(dims, wrap), routing="dimension order" + (", ties in the positive direction" * wrap),
        layout=lambda: _grid_positions(dims, wrap), orders=_grid_orders(dims), bounds=_grid_bounds(dims, wrap),
        closed_form=_grid_facts(dims, wrap), parameters={"n": n} if flat else {"dims": dims},
    )  # fmt: skip


def _grid_router(dims: tuple[int, ...], wrap: bool) -> Router:
    """Dimension order: the first coordinate first; on a ring the shorter way, in a tie the positive one."""
    sizes = list(zip(dims, _strides(dims), strict=True))

    def route(source: int, target: int) -> list[int]:
        path, here = [source], source
        for size, stride in sizes:
            place, goal = here // stride % size, target // stride % size
            forward = (goal - place) % size
            step = (1 if 2 * forward <= size else -1) if wrap else (1 if goal > place else -1)
            while place != goal:
                following = (place + step) % size
                here += (following - place) * stride
                place = following
                path.append(here)
        return path

    return route


def _e_cube(source: int, target: int) -> list[int]:
    """Correct the differing bits, the lowest first."""
    path, differing = [source], source ^ target
    while differing:
        lowest = differing & -differing
        path.append(path[-1] ^ lowest)
        differing ^= lowest
    return path


def _tree_route(source: int, target: int) -> list[int]:
    """Climb from both ends, the deeper one first, until they meet."""
    up, down = [source], [target]
    while up[-1] != down[-1]:
        climber = up if up[-1] > down[-1] else down
        climber.append((climber[-1] - 1) // 2)
    return up + down[-2::-1]


def _most_pairs(size: int, wrap: bool) -> Fraction:
    """Ordered pairs of a line or ring whose route shares the busiest directed link; a ring's ties are split evenly."""
    if not wrap or size <= 2:
        return Fraction((size // 2) * (size - size // 2))
    return Fraction(size * size - size % 2, 8)


def _grid_bounds(dims: tuple[int, ...], wrap: bool) -> list[tuple[Fraction, str]]:
    """Pairs across over the most pairs that share a directed link, under dimension order.

    A link of dimension i is used by N / k_i times the pairs that use it within its own line or ring: the coordinates
    after i are the source's, those before i the target's.
    """
    n = math.prod(dims)
    busiest = max((Fraction(n, size) * _most_pairs(size, wrap) for size in dims), default=Fraction(0))
    if not busiest:
        return []
    return [((n // 2) * (n - n // 2) / busiest, "all pairs across, routed in dimension order")]


def _grid_orders(dims: tuple[int, ...]) -> list[list[int]]:
    """Hosts slice by slice, once for each dimension, even and long dimensions first."""
    strides, hosts = _strides(dims), np.arange(math.prod(dims))
    ranked = sorted(range(len(dims)), key=lambda i: (dims[i] % 2, -dims[i]))
    return [np.argsort(hosts // strides[i] % dims[i], kind="stable").tolist() for i in ranked]


def _grid_facts(dims: tuple[int, ...], wrap: bool) -> Facts:
    """Closed forms of line, ring, mesh and torus."""
    n = math.prod(dims)
    rings = [wrap and size > 2 for size in dims]
    cables = sum(n - (0 if ring else n // size) for size, ring in zip(dims, rings, strict=True))
    diameter = sum(size // 2 if ring else size - 1 for size, ring in zip(dims, rings, strict=True))
    degree = sum(min(2, size - 1) for size in dims)
    return Facts(n, 0, cables, degree, diameter, _grid_average(dims, wrap), _grid_bisection(dims, wrap))


def _grid_average(dims: tuple[int, ...], wrap: bool) -> Fraction:
    """Distances add up over dimensions: over all ordered pairs floor(k^2/4) / k on a ring, (k^2-1) / 3k on a line."""
    n = math.prod(dims)
    mean = sum(Fraction(k * k // 4, k) if wrap and k > 2 else Fraction(k * k - 1, 3 * k) for k in dims)
    return mean * n / (n - 1) if n > 1 else Fraction(0)


def _grid_bisection(dims: tuple[int, ...], wrap: bool) -> int | None:
    """N / k cables, twice as many on a ring, where the dimension that binds is even; a lone odd one as well."""
    n, sizes = math.prod(dims), [size for size in dims if size > 1]
    if len(sizes) <= 1:
        return 2 if wrap and n > 2 else int(n > 1)
    size = max(sizes, key=lambda k: (_most_pairs(k, wrap) / k, k % 2 == 0))
    return None if size % 2 else n // size * (2 if wrap and size > 2 else 1)


def _hypercube_facts(d: int) -> Facts:
    """Closed forms of the hypercube (Leighton 1992, chapter 3)."""
    n = 1 << d
    average = Fraction(d * n // 2, n - 1) if d else Fraction(0)
    return Facts(n, 0, d * n // 2, d, d, average, n // 2)


def _tree_facts(depth: int) -> Facts:
    """Closed forms of the balanced binary tree; an edge above a subtree of s hosts joins s (N - s) pairs."""
    n = (2 << depth) - 1
    below = [(2 << depth - level) - 1 for level in range(1, depth + 1)]
    total = sum(2**level * s * (n - s) for level, s in enumerate(below, 1))
    degree = min(depth, 1) * 2 + int(depth > 1)
    return Facts(n, 0, n - 1, degree, 2 * depth, Fraction(2 * total, max(1, n * (n - 1))), min(depth, 1))


# ------------------------------------------------------------------------------------------------ switched networks


def crossbar(n: int, link: Link = DEFAULT_LINK) -> Topology:
    """Return n hosts on one switch (a star).

    Each of the two cables between two hosts has half the latency of ``link``, so that a message alone in the network
    costs exactly ``link.time(n)``. Distance 2, bisection floor(n/2): a host's cable is all it has.
    """
    n = _whole("n", n, 1)
    half = Link(link.alpha / 2, link.beta)
    topology = _star(f"crossbar of {n}", n, half, 1, "crossbar", {"n": n})
    return topology


def _star(name: str, n: int, link: Link, links: int, family: str, parameters: dict[str, object]) -> Topology:
    """n hosts on one switch, by ``links`` cables each."""
    graph = _hosts(n)
    for host in range(n):
        _join(graph, host, ("switch", 0), link, links)
    far = min(n - 1, 1) * 2
    return Topology(
        name, graph, n, family=family, router=lambda s, t: [s, ("switch", 0), t], routing="through the switch",
        layout=lambda: _circle(range(n)) | {("switch", 0): (0.0, 0.0)}, bounds=_clos_bounds(n, Fraction(links)),
        closed_form=Facts(n, 1, n * links, n, far, Fraction(far), n // 2 * links), parameters=parameters,
    )  # fmt: skip


def leaf_spine(
    leaves: int,
    hosts_per_leaf: int,
    spines: int | None = None,
    uplinks: int | None = None,
    oversubscription: int = 1,
    link: Link = DEFAULT_LINK,
) -> Topology:
    """Return a two-level network: every leaf switch has ``uplinks`` cables, spread evenly over all spine switches.

    Args:
        leaves, hosts_per_leaf: leaf switches, and hosts on each; host h hangs on leaf h // hosts_per_leaf.
        spines: spine switches; None for one an uplink.
        uplinks: cables from a leaf to all spines; None for one a spine or, without ``spines``, for
            hosts_per_leaf / oversubscription.
        oversubscription: bandwidth of a leaf's hosts over that of its uplinks; only where both others are None.
        link: one cable.

    A message to host t climbs to spine t mod spines, so that the hosts of one leaf use all spines (D-mod-k routing,
    Zahavi 2010).

    Raises:
        ValueError: if the uplinks do not spread evenly over the spines, or the hosts over the oversubscription.

    >>> leaf_spine(8, 8, spines=2)
    leaf-spine 8 leaves x 8 hosts, 2 uplinks (4:1): 64 hosts, 10 switches, 80 cables
    """
    leaves, m = _whole("leaves", leaves, 1), _whole("hosts_per_leaf", hosts_per_leaf, 1)
    spines, uplinks = _leaf_cables(m, spines, uplinks, oversubscription)
    graph = _hosts(leaves * m)
    _join_all(graph, ((host, ("leaf", host // m)) for host in range(leaves * m)), link)
    for leaf, spine in itertools.product(range(leaves), range(spines)):
        _join(graph, ("leaf", leaf), ("spine", spine), link, uplinks // spines)
    ratio = Fraction(m, uplinks)
    name = f"leaf-spine {leaves} leaves x {m} hosts, {uplinks} uplinks" + (f" ({_ratio(ratio)})" if ratio != 1 else "")
    return Topology(
        name, graph, leaves * m, family="leaf-spine", router=_leaf_spine_router(m, spines),
        routing=f"up to spine (target mod {spines}) and down", layout=lambda: _levels_by_name(graph, leaves * m),
        bounds=_clos_bounds(leaves * m, Fraction(1), 1 / ratio),
        closed_form=_leaf_spine_facts(leaves, m, spines, uplinks),
        parameters={"leaves": leaves, "hosts_per_leaf": m, "spines": spines, "uplinks": uplinks},
    )  # fmt: skip


def _leaf_cables(m: int, spines: int | None, uplinks: int | None, oversubscription: int) -> tuple[int, int]:
    """Spines and uplinks of a leaf with m hosts, from whichever of the three are given."""
    if oversubscription != 1 and (spines, uplinks) != (None, None):
        raise ValueError(f"oversubscription is {oversubscription}; leave it out where spines or uplinks are given")
    if uplinks is None:
        uplinks = _over(m, oversubscription, "hosts_per_leaf") if spines is None else _whole("spines", spines, 1)
    spines = _whole("uplinks", uplinks, 1) if spines is None else _whole("spines", spines, 1)
    if _whole("uplinks", uplinks, 1) % spines:
        raise ValueError(f"uplinks is {uplinks}; a multiple of the {spines} spines is needed")
    return spines, uplinks


def folded_clos(k: int, oversubscription: int = 1, link: Link = DEFAULT_LINK) -> Topology:
    """Return the largest two-level network of k-port spines: k leaves with k/2 hosts each, k / 2r spines.

    ``oversubscription`` r is the bandwidth of a leaf's hosts over that of its uplinks.
    """
    half = _half_ports(k)
    return leaf_spine(k, half, spines=_over(half, oversubscription, "k/2"), link=link)


def fat_tree(k: int, oversubscription: int = 1, link: Link = DEFAULT_LINK) -> Topology:
    """Return the three-level fat-tree of k-port switches: k pods, k^3/4 hosts (Al-Fares, Loukissas and Vahdat 2008).

    A pod has k/2 edge switches with k/2 hosts each and k / 2r aggregation switches, each with k/2 cables down and k/2
    up. ``oversubscription`` r is the bandwidth of an edge switch's hosts over that of its uplinks; with r > 1 an edge
    switch leaves ports empty. Switches are ("edge", pod, i), ("aggregation", pod, i) and ("core", i, j): core switches
    of group i hang on aggregation switch i of every pod.

    With r = 1: k^2/2 edge, k^2/2 aggregation and k^2/4 core switches, diameter 6, bisection k^3/8.

    A message to host t climbs by digits of t (D-mod-k routing, Zahavi 2010): to aggregation switch t mod (k / 2r), then
    to core switch floor(t / (k/2)) mod k/2 of its group.

    Raises:
        ValueError: for an odd k, or an oversubscription that does not divide k/2.

    >>> fat_tree(4)
    fat-tree k=4: 16 hosts, 20 switches, 48 cables
    """
    half = _half_ports(k)
    ways = _over(half, oversubscription, "k/2")
    hosts = half * half * k
    graph = _hosts(hosts)
    _join_all(graph, ((host, ("edge", host // half // half, host // half % half)) for host in range(hosts)), link)
    for pod, up, other in itertools.product(range(k), range(ways), range(half)):
        _join(graph, ("edge", pod, other), ("aggregation", pod, up), link)
        _join(graph, ("aggregation", pod, up), ("core", up, other), link)
    name = f"fat-tree k={k}" + (f" ({oversubscription}:1)" if oversubscription > 1 else "")
    return Topology(
        name, graph, hosts, family="fat-tree", router=_fat_tree_router(half, ways),
        closed_form=_fat_tree_facts(k, ways),
        routing=f"up to aggregation switch (target mod {ways}), core (target // {half} mod {half}), and down",
        layout=lambda: _levels_by_name(graph, hosts), bounds=_clos_bounds(hosts, Fraction(1), Fraction(ways, half)),
        parameters={"k": k, "oversubscription": oversubscription},
    )  # fmt: skip


def _half_ports(k: int) -> int:
    """Return k/2, or say that k is odd."""
    if _whole("k", k, 2) % 2:
        raise ValueError(f"k is {k}; an even number of ports is needed, half of them down and half up")
    return k // 2


def _over(count: int, oversubscription: int, what: str) -> int:
    """Return the uplinks of a switch with ``count`` hosts."""
    if count % _whole("oversubscription", oversubscription, 1):
        raise ValueError(f"oversubscription is {oversubscription}; a divisor of {what} = {count} is needed")
    return count // oversubscription


def _ratio(ratio: Fraction) -> str:
    return f"{ratio.numerator}:{ratio.denominator}"


def _clos_bounds(hosts: int, *widths: Fraction) -> list[tuple[Fraction, str]]:
    """Pair the hosts of the halves, and split each pair's unit of flow evenly over all ways up and down.

    Each host sends or receives one unit, so a cable of a level carries at most the hosts below a switch over its cables
    up: floor(N/2) units get across if every level has a cable for each host (``widths`` gives cables per host).
    """
    return [(hosts // 2 * min(widths), "the halves' hosts paired, flow split evenly over all ways up")]


def _leaf_spine_router(m: int, spines: int) -> Router:
    def route(source: int, target: int) -> list:
        here, there = ("leaf", source // m), ("leaf", target // m)
        if here == there:
            return [source, here, target]
        return [source, here, ("spine", target % spines), there, target]

    return route


def _fat_tree_router(half: int, ways: int) -> Router:
    def route(source: int, target: int) -> list:
        (pod, edge), (other, below) = (divmod(host // half, half) for host in (source, target))
        if (pod, edge) == (other, below):
            return [source, ("edge", pod, edge), target]
        up = target % ways
        top = [("aggregation", pod, up)]
        if pod != other:
            top += [("core", up, target // half % half), ("aggregation", other, up)]
        return [source, ("edge", pod, edge), *top, ("edge", other, below), target]

    return route


def _leaf_spine_facts(leaves: int, m: int, spines: int, uplinks: int) -> Facts:
    """Closed forms of the two-level network."""
    n = leaves * m
    cables, degree = n + leaves * uplinks, max(leaves, m + spines)
    diameter = 4 if leaves > 1 else 2 * min(m - 1, 1)
    average = Fraction(2 * (m - 1) + 4 * (n - m), max(1, n - 1))
    bisection = min(n // 2, leaves // 2 * uplinks) if leaves % 2 == 0 else None
    return Facts(n, leaves + spines, cables, degree, diameter, average, bisection)


def _fat_tree_facts(k: int, ways: int) -> Facts:
    """Closed forms of the three-level fat-tree; ``ways`` = k / 2r aggregation switches a pod."""
    half = k // 2
    n, edges = half * half * k, half * k
    switches = edges + ways * k + ways * half
    same_edge, same_pod = half - 1, half * (half - 1)
    average = Fraction(2 * same_edge + 4 * same_pod + 6 * (n - half * half), n - 1)
    return Facts(n, switches, n + 2 * edges * ways, max(k, half + ways), 6, average, n // 2 * ways // half)


# ------------------------------------------------------------------------------------------------ dragonfly


def dragonfly(
    a: int, p: int, h: int, groups: int | None = None, arrangement: str = "palmtree", link: Link = DEFAULT_LINK
) -> Topology:
    """Return a dragonfly (Kim, Dally, Scott and Abts 2008): groups of a routers, all joined within a group.

    Args:
        a: routers in a group.
        p: hosts on a router; 0 for the network of routers alone, which are then the hosts.
        h: global links of a router.
        groups: None for a h + 1, where each two groups share one global link. With fewer, each two share
            floor(a h / (groups - 1)), and what is left over stays unused.
        arrangement: where global link j of a group (link j mod h of router j // h) goes. "palmtree": to group
            g - j - 1, the groups taken round; "absolute": to group j, or j + 1 from g on (Camarero et al. 2014).
        link: one cable, local or global.

    Between routers the diameter is 3 at most (local, global, local), between hosts 5. Routes are shortest paths, the
    lowest node first; where two global links in a row are shorter, they take those.

    Raises:
        ValueError: for more groups than the global links reach, or an unknown arrangement.

    >>> dragonfly(4, 2, 2).average_distance()
    Fraction(306, 71)
    """
    a, p, h = _whole("a", a, 1), _whole("p", p, 0), _whole("h", h, 1)
    groups = a * h + 1 if groups is None else _whole("groups", groups, 1)
    if groups > a * h + 1:
        raise ValueError(f"groups is {groups}; at most a h + 1 = {a * h + 1} are reached by {a * h} links a group")
    if arrangement not in _ARRANGEMENTS:
        raise ValueError(f"arrangement is {arrangement!r}; there are: {', '.join(_ARRANGEMENTS)}")
    routers = groups * a
    hosts = routers * p if p else routers
    names = [("router", *divmod(router, a)) if p else router for router in range(routers)]
    graph = _hosts(hosts)
    _join_all(graph, ((host, names[host // p]) for host in range(hosts if p else 0)), link)
    for first in range(0, routers, a):
        _join_all(graph, itertools.combinations(names[first : first + a], 2), link)
    _join_all(graph, ((names[u], names[v]) for u, v in _global_links(a, h, groups, arrangement)), link)
    kind = f"{groups} groups, {arrangement}" if groups <= a * h else arrangement
    return Topology(
        f"dragonfly a={a} p={p} h={h} ({kind})", graph, hosts, family="dragonfly", layout=lambda: _dragonfly_places(
            a, p, groups), bounds=_dragonfly_bounds(a, p, h, groups), closed_form=_dragonfly_facts(a, p, h, groups),
        parameters={"a": a, "p": p, "h": h, "groups": groups, "arrangement": arrangement},
    )  # fmt: skip


_ARRANGEMENTS: dict[str, Callable[[int, int, int], int]] = {
    "palmtree": lambda group, number, groups: (group - number - 1) % groups,
    "absolute": lambda group, number, groups: number + (number >= group),
}
"""From a group and the number of its global link to the group at the other end."""


def _global_links(a: int, h: int, groups: int, arrangement: str) -> Iterator[tuple[int, int]]:
    """Routers at the two ends of each global link; links are dealt in rounds of one to every other group."""
    others = groups - 1
    if not others:
        return
    goes_to = _ARRANGEMENTS[arrangement]
    ports = {(group, goes_to(group, number, groups)): number for group in range(groups) for number in range(others)}
    for (group, other), number in ports.items():
        for start in range(0, a * h // others * others, others):
            if group < other:
                yield group * a + (start + number) // h, other * a + (start + ports[other, group]) // h


def _dragonfly_facts(a: int, p: int, h: int, groups: int) -> Facts:
    """Closed forms of the dragonfly: counts. Distances and bisection depend on the arrangement."""
    routers = groups * a
    wide = a * h // (groups - 1) if groups > 1 else 0
    cables = routers * p + groups * a * (a - 1) // 2 + wide * groups * (groups - 1) // 2
    return Facts(routers * p or routers, routers if p else 0, cables)


def _dragonfly_bounds(a: int, p: int, h: int, groups: int) -> list[tuple[int, str]]:
    """Fewest cables any halves cross, counted group by group, for one global link between each two groups.

    Let some groups lie wholly on one side, some on the other, and the rest be split, j routers against a - j: a split
    group crosses j (a - j) local links, and its h j global links on one side cannot reach all groups of that side if
    there are more. Hosts on the other side than their router cross their own cable.
    """
    if groups != a * h + 1 or not 1 < groups <= 40:
        return []
    half = groups * a * max(p, 1) // 2
    least = min(
        _split_cost(a, p, h, half, whole, groups - whole - split, split)
        for whole in range(groups + 1)
        for split in range(groups - whole + 1)
    )
    return [(least, "all ways to split groups, counted by routers")]


def _split_cost(a: int, p: int, h: int, half: int, ours: int, theirs: int, split: int) -> float:
    """Least cables with so many whole groups on either side and ``split`` groups on both."""
    costs = [j * (a - j) + max(0, ours - h * j) + max(0, theirs - h * (a - j)) for j in range(1, a)]
    if split and not costs:
        return math.inf
    least = np.zeros(1)  # by the routers that split groups have on our side, beyond one each
    for _ in range(split):
        wider = np.full(len(least) + len(costs) - 1, math.inf)
        for j, cost in enumerate(costs):
            wider[j : j + len(least)] = np.minimum(wider[j : j + len(least)], least + cost)
        least = wider
    away = np.abs(max(p, 1) * (ours * a + split + np.arange(len(least))) - half)
    moved = away if p else np.where(away, math.inf, 0)
    return float((ours * theirs + least + moved).min())


# ------------------------------------------------------------------------------------------------ machines


def dgx1v(latency: float = DEFAULT_LINK.alpha) -> Topology:
    """Return the eight V100 of a DGX-1: a hybrid cube mesh of 24 NVLinks, some edges two links wide.

    Source: NVIDIA DGX-1 with V100 white paper; ``nvidia-smi topo -m``. Latency is an argument: no vendor prints it.
    """
    graph, link = _hosts(8), _nvlink("V100", 6, latency)
    for (u, v), links in _CUBE_MESH.items():
        _join(graph, u, v, link, links)
    corners = ((0.0, 1.0), (1.0, 1.0), (1.0, 0.0), (0.0, 0.0))
    places = {gpu: (x + 2.6 * (gpu > 3), y + 0.4 * (gpu > 3)) for gpu, (x, y) in enumerate(corners * 2)}
    return Topology("DGX-1V", graph, 8, family="dgx-1v", layout=lambda: dict(places))


_CUBE_MESH = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2,
    (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
    (0, 4): 2, (1, 5): 2, (2, 6): 1, (3, 7): 1,
}  # fmt: skip


def dgx_a100(merged: bool = False, latency: float = DEFAULT_LINK.alpha) -> Topology:
    """Return the eight A100 of a DGX A100, 12 NVLinks each, two to each of six NVSwitches.

    The hardware stripes a message over all switches, a route here goes through one: ``merged=True`` draws the switches
    as one, for pricing messages. Source: NVIDIA DGX A100 system architecture.
    """
    return _nvswitches("DGX A100", 8, (2,) * 6, _nvlink("A100", 12, latency), merged)


def dgx_h100(merged: bool = False, latency: float = DEFAULT_LINK.alpha) -> Topology:
    """Return the eight H100 of a DGX H100, 18 NVLinks each, 5, 4, 4 and 5 to the four NVSwitches.

    ``merged`` as for :func:`dgx_a100`. Source: NVIDIA at Hot Chips 34 (2022).
    """
    return _nvswitches("DGX H100", 8, (5, 4, 4, 5), _nvlink("H100", 18, latency), merged)


def gb200_nvl72(merged: bool = False, latency: float = DEFAULT_LINK.alpha) -> Topology:
    """Return the 72 GPUs of a GB200 NVL72 rack, 18 NVLinks each, one to each of 18 NVSwitches.

    ``merged`` as for :func:`dgx_a100`. Source: NVIDIA GB200 NVL72: 9 switch trays of two NVSwitches.
    """
    return _nvswitches("GB200 NVL72", 72, (1,) * 18, _nvlink("GB200", 18, latency), merged)


def tpu_v4(dims: Sequence[int] = (16, 16, 16), latency: float = DEFAULT_LINK.alpha) -> Topology:
    """Return a pod of TPU v4 chips, by default all 4,096, as a 3D torus (Jouppi et al. 2023); six links a chip."""
    return _tpu("TPU v4", dims, latency)


def tpu_v5p(dims: Sequence[int] = (16, 20, 28), latency: float = DEFAULT_LINK.alpha) -> Topology:
    """Return a pod of TPU v5p chips, by default all 8,960, as a 3D torus (Google Cloud documentation)."""
    return _tpu("TPU v5p", dims, latency)


def _nvlink(device: str, links: int, latency: float) -> Link:
    """One of the equal links that make up the scale-up bandwidth of a device."""
    return Link(latency, links / ACCELERATORS[device].scaleup)


def _tpu(device: str, dims: Sequence[int], latency: float) -> Topology:
    topology = torus(dims, _nvlink(device, 6, latency))
    topology.name = f"{device} {'x'.join(map(str, dims))}"
    return topology


def _nvswitches(name: str, gpus: int, links: tuple[int, ...], link: Link, merged: bool) -> Topology:
    """GPUs that each have ``links[s]`` links to NVSwitch s."""
    total = sum(links)
    if merged:
        return _star(f"{name}, switches as one", gpus, link, total, name.lower(), {})
    graph = _hosts(gpus)
    for gpu, (switch, count) in itertools.product(range(gpus), enumerate(links)):
        _join(graph, gpu, ("nvswitch", switch), link, count)
    facts = Facts(gpus, len(links), gpus * total, max(gpus, len(links)), 2, Fraction(2), gpus // 2 * total)
    return Topology(
        name, graph, gpus, family=name.lower(), spread=True, closed_form=facts,
        bounds=_clos_bounds(gpus, Fraction(total)), layout=lambda: _levels_by_name(graph, gpus),
    )  # fmt: skip


@dataclass(frozen=True)
class SuperPodCounts:
    """Nodes, GPUs, switches and cables of the compute fabric of a DGX SuperPOD."""

    system: str
    scalable_units: int
    nodes: int
    gpus: int
    leaf_switches: int
    spine_switches: int
    core_switches: int
    node_leaf_cables: int
    leaf_spine_cables: int
    spine_core_cables: int


_SUPERPODS = {"H100": (32, 8, 8), "B200": (32, 8, 8), "B300": (64, 16, 16)}
"""DGX nodes and leaf switches of a scalable unit, and the most units with two levels of switches."""
_PORTS_DOWN = 32  # of a 64-port switch, the other half goes up


def superpod_counts(system: str, scalable_units: int) -> SuperPodCounts:
    """Return the switches and cables of the compute fabric of a DGX SuperPOD, by formula.

    All switches have 64 ports, and as many cables go up from a level as come from below (non-blocking). A scalable
    unit has 32 nodes and 8 leaves (H100, B200) or 64 nodes and 16 leaves (B300), so that each leaf serves one GPU of
    each of 32 nodes. Two levels: a spine for each 64 cables from leaves, the number rounded up to a power of two so
    that the uplinks of a leaf spread evenly. Above 8 units three levels (H100, B200): a spine for each 32 cables from
    leaves and a core switch for each 64 cables from spines.

    Source: NVIDIA DGX SuperPOD reference architectures (H100, B200, B300 with Spectrum-X), component counts.

    Raises:
        ValueError: for an unknown system, or units that its switches do not divide into evenly.
    """
    if system not in _SUPERPODS:
        raise ValueError(f"system is {system!r}; there are: {', '.join(_SUPERPODS)}")
    nodes, leaves, most = _SUPERPODS[system]
    units = _whole("scalable_units", scalable_units, 1)
    down = units * leaves * _PORTS_DOWN
    if units <= most:
        spines, cores = 1 << (down // 64 - 1).bit_length(), 0
    elif system != "B300" and 256 % units == 0:
        spines, cores = down // _PORTS_DOWN, down // 64
    else:
        many = "16, 32, 64, 128 or 256" if system != "B300" else "no more"
        raise ValueError(f"scalable_units is {units}; {system} has 1 to {most}, or {many}")
    return SuperPodCounts(
        system, units, units * nodes, 8 * units * nodes, units * leaves, spines, cores, down, down, down * (cores > 0)
    )


def superpod(system: str = "H100", scalable_units: int = 1, latency: float = DEFAULT_LINK.alpha) -> Topology:
    """Return the compute fabric of a DGX SuperPOD; host h is GPU h % 8 of node h // 8 and has one port.

    Rails: a leaf serves GPU r of 32 nodes. NVLink within a node is not part of the fabric. Up to 8 units two levels,
    above three, where 32 leaves and 32 spines make a pod. A message to host t climbs to spine (t's leaf + t's place on
    it) mod the spines a leaf reaches, then to core switch (t's leaf) mod those the spine reaches. Ports run at 400 Gb/s
    (H100, B200) or 800 Gb/s (B300).

    Raises:
        ValueError: as :func:`superpod_counts`, and where a leaf's cables are fewer than the spines they must reach
            (B300 above 4 units splits its cables).
    """
    counts = superpod_counts(system, scalable_units)
    reach = _PORTS_DOWN if counts.core_switches else counts.spine_switches
    if _PORTS_DOWN % reach:
        raise ValueError(
            f"scalable_units is {scalable_units}; at most 4 of {system} are needed: a leaf has {_PORTS_DOWN} uplinks "
            f"for {reach} spines, so that its cables are split (superpod_counts has the counts)"
        )
    link = Link(latency, 1 / LINKS[f"InfiniBand {'XDR' if system == 'B300' else 'NDR'} port"].bandwidth)
    ways = counts.core_switches // _PORTS_DOWN
    graph = _superpod_graph(counts, reach, ways, link)
    cables = counts.node_leaf_cables + counts.leaf_spine_cables + counts.spine_core_cables
    switches = counts.leaf_switches + counts.spine_switches + counts.core_switches
    facts = Facts(counts.gpus, switches, cables)
    return Topology(
        f"DGX SuperPOD {system}, {scalable_units} SU", graph, counts.gpus, family="superpod", closed_form=facts,
        router=_superpod_router(reach, ways),
        routing="up to spine (target's leaf + place on it), core (target's leaf), and down",
        layout=lambda: _levels_by_name(graph, counts.gpus), orders=_rail_orders(counts.gpus),
        bounds=_clos_bounds(counts.gpus, Fraction(1)),
        parameters={"system": system, "scalable_units": scalable_units},
    )  # fmt: skip


def _superpod_graph(counts: SuperPodCounts, reach: int, ways: int, link: Link) -> nx.Graph:
    """Each leaf reaches ``reach`` spines, each spine ``ways`` core switches."""
    graph = _hosts(counts.gpus)
    _join_all(graph, ((host, ("leaf", _rail_leaf(host)[0])) for host in range(counts.gpus)), link)
    for leaf, way in itertools.product(range(counts.leaf_switches), range(reach)):
        _join(graph, ("leaf", leaf), ("spine", _superpod_spine(leaf, way, ways)), link, _PORTS_DOWN // reach)
    for spine, way in itertools.product(range(counts.spine_switches), range(ways)):
        core = ("core", spine % _PORTS_DOWN * ways + way)
        _join(graph, ("spine", spine), core, link, _PORTS_DOWN // ways)
    return graph


def _rail_leaf(host: int) -> tuple[int, int]:
    """The leaf of a GPU, and its place there: each eight leaves serve the eight GPUs of 32 nodes."""
    node, rail = divmod(host, 8)
    block, place = divmod(node, _PORTS_DOWN)
    return 8 * block + rail, place


def _rail_orders(gpus: int) -> list[list[int]]:
    """GPUs leaf by leaf."""
    return [sorted(range(gpus), key=_rail_leaf)]


def _superpod_spine(leaf: int, way: int, ways: int) -> int:
    """The spine at a leaf's uplink; with core switches (``ways`` to a spine) it is in the leaf's pod of 32 leaves."""
    return leaf // _PORTS_DOWN * _PORTS_DOWN * (ways > 0) + way


def _superpod_router(reach: int, ways: int) -> Router:
    def route(source: int, target: int) -> list:
        (here, _), (there, place) = _rail_leaf(source), _rail_leaf(target)
        if here == there:
            return [source, ("leaf", here), target]
        way = (there + place) % reach
        first, last = (_superpod_spine(leaf, way, ways) for leaf in (here, there))
        top = [("spine", first)]
        if first != last:
            top += [("core", way * ways + there % ways), ("spine", last)]
        return [source, ("leaf", here), *top, ("leaf", there), target]

    return route


# ------------------------------------------------------------------------------------------------ tables


@dataclass(frozen=True)
class Comparison:
    """Topologies side by side; prints as a table."""

    topologies: tuple[Topology, ...]

    NAMES = (
        "topology", "hosts", "switches", "cables", "most neighbours", "diameter", "average distance",
        "bisection (cables)", "bisection bandwidth",
    )  # fmt: skip

    @cached_property
    def rows(self) -> list[tuple[str, ...]]:
        """One row a topology, as text."""
        return [_comparison_row(topology) for topology in self.topologies]

    def _repr_html_(self) -> str:
        return _html(self.NAMES, self.rows)

    def __repr__(self) -> str:
        return _text(self.NAMES, self.rows)


def compare(*topologies: Topology) -> Comparison:
    """Return a table of hosts, switches, cables, degree, diameter, average distance and bisection, for a notebook.

    A bisection that is not proved shows its bounds, "13 to 20".

    Raises:
        ValueError: without a topology.
    """
    if not topologies:
        raise ValueError("nothing to compare; at least one topology is needed")
    return Comparison(topologies)


def _comparison_row(topology: Topology) -> tuple[str, ...]:
    counts = (topology.hosts, topology.switches, topology.cables, topology.degree(), topology.diameter())
    bandwidth = quantity(topology.bisection_bandwidth(), "B/s")
    average = f"{float(topology.average_distance()):.3f}"
    return topology.name, *(f"{count:,}" for count in counts), average, str(topology.bisection()), bandwidth


@dataclass(frozen=True)
class BookRow:
    """One quantity of a topology: as the chapter's formula gives it, and as counted.

    Attributes:
        quantity: what is compared.
        line: where the chapter prints the formula.
        printed: the formula as printed, in plain text.
        book, computed: both values; a Fraction or float where it is not whole.
        right: what holds instead, empty if the formula holds.
    """

    quantity: str
    line: int
    printed: str
    book: float | int | Fraction
    computed: float | int | Fraction
    right: str = ""

    @property
    def agrees(self) -> bool:
        """Whether both values are the same."""
        return math.isclose(self.book, self.computed, rel_tol=1e-9)


@dataclass(frozen=True)
class BookTable:
    """The chapter's formulas for one topology beside what is counted; prints as a table."""

    name: str
    rows: tuple[BookRow, ...]

    NAMES = ("quantity", "line", "the book's formula", "gives", "counted", "right")

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (row.quantity, str(row.line), row.printed, _figure(row.book), _figure(row.computed), row.right)
            for row in self.rows
        ]

    def _repr_html_(self) -> str:
        return _html(self.NAMES, self._cells())

    def __repr__(self) -> str:
        return f"{self.name}\n{_text(self.NAMES, self._cells())}"


def against_the_book(topology: Topology) -> BookTable:
    """Return the formulas the chapter's section 3 prints for the family, evaluated, beside what is counted.

    Bisection is counted in links (the chapter's value over b), per direction.

    Raises:
        ValueError: for a family the chapter has no formula for.

    >>> [row.quantity for row in against_the_book(fat_tree(4)).rows if not row.agrees]
    ['edge switches', 'aggregation switches', 'diameter', 'bisection']
    """
    if topology.family not in _BOOK:
        raise ValueError(f"family is {topology.family!r}; the chapter has formulas for {', '.join(_BOOK)}")
    return BookTable(topology.name, tuple(_BOOK[topology.family](topology)))


def _book_ring(topology: Topology) -> list[BookRow]:
    return [
        BookRow("diameter", 191, "floor(P/2)", topology.hosts // 2, topology.diameter()),
        BookRow("bisection", 191, "2 b", 2, topology.bisection_width()),
    ]


def _book_torus(topology: Topology) -> list[BookRow]:
    """For equal sides in two or three dimensions, which is what the chapter's formulas take for granted."""
    dims = topology.parameters["dims"]
    if len(dims) not in (2, 3) or len(set(dims)) > 1:
        raise ValueError(f"dims is {dims}; the chapter's formulas are for two or three dimensions of the same length")
    side, axes = dims[0], len(dims)
    odd = f"for an even side; here {topology.bisection()}" if side % 2 else ""
    two = "a side of 2 has one link, not two" if side == 2 else ""
    cut, root = ("2 sqrt(P) b", "floor(sqrt(P)/2)") if axes == 2 else ("2 P^(2/3) b", "floor(P^(1/3)/2)")
    line = 205 if axes == 3 else 203
    return [
        BookRow("diameter", 201 if axes == 2 else 205, f"{axes} {root}", axes * (side // 2), topology.diameter()),
        BookRow("bisection", line, cut, 2 * side ** (axes - 1), topology.bisection_width(), odd or two),
    ]


def _book_hypercube(topology: Topology) -> list[BookRow]:
    d, n = topology.parameters["dimension"], topology.hosts
    fewest = next(hops for hops in itertools.count() if not d or moore_bound(d, hops) >= n)
    why = f"at degree {d} the Moore bound forbids only less than {fewest}" + "; the Wagner graph has 2" * (d == 3)
    return [
        BookRow("diameter", 243, "log2 P", d, topology.diameter()),
        BookRow("least diameter for the degree", 243, "log2 P", d, fewest, why if fewest < d else ""),
        BookRow("degree", 245, "log2 P", d, topology.degree()),
        BookRow("bisection", 247, "P/2 b", n / 2, topology.bisection_width()),
    ]


def _book_fat_tree(topology: Topology) -> list[BookRow]:
    k, ratio, n = topology.parameters["k"], topology.parameters["oversubscription"], topology.hosts
    log = math.log(n, k / 2) if k > 2 else math.inf
    level = {name: sum(node[0] == name for node in topology._nodes[n:]) for name in ("edge", "aggregation", "core")}
    width = topology.bisection_width()
    return [
        BookRow("edge switches", 213, "k^2/4", k * k / 4, level["edge"], "k^2/2: k/2 in each of k pods"),
        BookRow("aggregation switches", 215, "k^2/4", k * k / 4, level["aggregation"], "k^2/2, over r"),
        BookRow("core switches", 217, "k^2/4", k * k / 4, level["core"], "" if ratio == 1 else "k^2/4, over r"),
        BookRow("hosts", 219, "k^3/4", k**3 / 4, n),
        BookRow("diameter", 219, "2 log_(k/2) P + 2", 2 * log + 2, topology.diameter(), "6 hops for every k"),
        BookRow("bisection", 219, "P b", n, width, "P b / 2 per direction: half of the hosts send"),
        BookRow("bisection, r:1", 221, "P b / (2r)", n / (2 * ratio), width),
    ]


def _book_dragonfly(topology: Topology) -> list[BookRow]:
    right = "3 hops between routers, local, global, local; 5 between hosts"
    return [BookRow("diameter", 231, "3", 3, topology.diameter(), right if topology.switches else "")]


def _book_dgx_a100(topology: Topology) -> list[BookRow]:
    printed, right = "8 x 300 GB/s", "4 x 300 GB/s per direction; 8 x 300 is what all GPUs inject, or both directions"
    book = 8 * ACCELERATORS["A100"].scaleup
    return [BookRow("bisection (B/s)", 275, printed, book, topology.bisection_bandwidth(), right)]


_BOOK: dict[str, Callable[[Topology], list[BookRow]]] = {
    "ring": _book_ring, "torus": _book_torus, "fat-tree": _book_fat_tree, "dragonfly": _book_dragonfly,
    "hypercube": _book_hypercube, "dgx a100": _book_dgx_a100,
}  # fmt: skip


def _figure(value: float | int | Fraction) -> str:
    """A value for the eye: whole numbers as they are, others in four digits, very large ones with a prefix."""
    number = float(value)
    if number >= 1e9:
        return quantity(number, "").strip()
    return f"{number:,.0f}" if number.is_integer() else f"{number:,.4g}"


def _html(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table. Imported late: the table of claims may compute with topologies."""
    from distgen_lab.claims import html_table

    return html_table(names, rows)


def _text(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a terminal."""
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (names, *rows))
    return "\n".join(text.rstrip() for text in lines)


# ------------------------------------------------------------------------------------------------ places for a drawing


def _circle(nodes: Iterable[Node], radius: float = 1.0, centre: tuple[float, float] = (0.0, 0.0)) -> Positions:
    """Nodes on a circle, clockwise from the top."""
    nodes = list(nodes)
    angles = [math.pi / 2 - 2 * math.pi * number / len(nodes) for number in range(len(nodes))]
    return {
        node: (centre[0] + radius * math.cos(angle), centre[1] + radius * math.sin(angle))
        for node, angle in zip(nodes, angles, strict=True)
    }


def _grid_positions(dims: tuple[int, ...], wrap: bool) -> Positions:
    """A ring on a circle, a line in a row, a grid in rows; further dimensions as grids beside and below each other.

    Rows and columns of a torus are bowed a little, so that the link that closes a ring does not lie on the others.
    """
    if wrap and len(dims) == 1 and dims[0] > 2:
        return _circle(range(dims[0]))
    directions = _directions(dims)
    places = {}
    for host, place in enumerate(itertools.product(*map(range, dims))):
        x = math.fsum(at * dx for at, (dx, _) in zip(place, directions, strict=True))
        y = math.fsum(at * dy for at, (_, dy) in zip(place, directions, strict=True))
        bow = [
            0.3 * math.sin(math.pi * at / max(1, k - 1)) * (wrap and k > 2) for at, k in zip(place, dims, strict=True)
        ]
        places[host] = (x + sum(bow[-2::-2]), y + sum(bow[-1::-2]))
    return places


def _directions(dims: tuple[int, ...]) -> list[tuple[float, float]]:
    """A step in each dimension: the last to the right, the one before down, a third slanted, others by whole grids."""
    steps, width, height = [], 1.0, 1.0
    for number, size in enumerate(reversed(dims)):
        if number == 2 and len(dims) == 3:
            steps.append((0.45, 0.35) if max(dims) <= 2 else (width + 0.3, 0.35))
        elif number % 2 == 0:
            steps.append((width, 0.3 * (number // 2)))
            width = width * size + 0.5
        else:
            steps.append((0.3 * (number // 2), -height))
            height = height * size + 0.5
    return steps[::-1]


def _tree_positions(depth: int) -> Positions:
    """The root on top, leaves evenly spaced at the bottom."""
    places = {}
    for level in range(depth + 1):
        for number in range(1 << level):
            places[(1 << level) - 1 + number] = ((number + 0.5) * 2.0 ** (depth - level), float(depth - level))
    return places


def _levels_by_name(graph: nx.Graph, hosts: int) -> Positions:
    """Hosts at the bottom, one level above for each kind of switch, in the order in which cables reach them."""
    kinds = list(dict.fromkeys(node[0] for node in graph if not _is_host(node, hosts)))
    kinds.sort(key=lambda kind: ("edge", "leaf", "nvswitch", "aggregation", "spine", "core").index(kind))
    levels = [range(hosts), *(sorted(n for n in graph if not _is_host(n, hosts) and n[0] == kind) for kind in kinds)]
    return _rows(levels, float(hosts))


def _rows(levels: Sequence[Sequence[Node]], width: float) -> Positions:
    """Nodes of each level evenly spaced over the width, the first level at the bottom."""
    step = max(1.0, width / 4)
    return {
        node: ((number + 0.5) * width / len(nodes), level * step)
        for level, nodes in enumerate(levels)
        for number, node in enumerate(nodes)
    }


def _levels(topology: Topology) -> Positions:
    """For any network: switches above the hosts by their hops to the nearest one; without switches, by springs."""
    if not topology.switches:
        return _springs(topology)
    nearest = nx.multi_source_dijkstra_path_length(topology.graph, set(range(topology.hosts)), weight=None)
    levels: dict[int, list[Node]] = {}
    for node in topology._nodes:
        levels.setdefault(nearest[node], []).append(node)
    return _rows([levels[hops] for hops in sorted(levels)], float(topology.hosts))


def _springs(topology: Topology) -> Positions:
    """Forces between the nodes, from a circle (Fruchterman and Reingold 1991); the circle itself where it is large."""
    circle = _circle(range(topology.hosts))
    if not 2 < topology.hosts <= 400:
        return circle
    placed = nx.spring_layout(topology.graph, pos=circle, seed=0, method="force", weight=None)
    return {node: (float(x), float(y)) for node, (x, y) in placed.items()}


def _dragonfly_places(a: int, p: int, groups: int) -> Positions:
    """Groups on a large circle, the routers of a group on a small one, hosts just outside their router."""
    places: Positions = {}
    radius = max(1.0, 0.32 * groups * (1 + 0.15 * a))
    for group, centre in _circle(range(groups), radius if groups > 1 else 0.0).items():
        inner = 0.45 * (1 + 0.15 * a)
        for router, (x, y) in _circle(range(a), inner if a > 1 else 0.0, centre).items():
            number = group * a + router
            places[("router", group, router) if p else number] = (x, y)
            outward = math.atan2(y - centre[1], x - centre[0]) if a > 1 else math.atan2(centre[1], centre[0])
            for host in range(p):
                angle = outward + 0.5 * (host - (p - 1) / 2)
                places[number * p + host] = (x + 0.3 * math.cos(angle), y + 0.3 * math.sin(angle))
    return places
