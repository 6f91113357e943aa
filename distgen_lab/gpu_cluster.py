"""Nodes of eight GPUs joined by rails, and the rings NCCL lays on them.

A *rail* is a switch that joins the n-th network port of every node. NCCL does not run one ring but several side by
side, one a channel, each with its share of the data, so that together they use all links: on the cube mesh of a DGX-1
as many as there are edge-disjoint rings, between nodes one a network port.

Source: NVIDIA DGX-1, DGX A100 and DGX H100 white papers; NVIDIA/nccl, src/graph/search.cc and rings.cc.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import networkx as nx

from distgen_lab.collectives import Schedule
from distgen_lab.hardware import NODES, Node
from distgen_lab.topology import Topology, dgx1v, from_graph
from distgen_lab.units import US

__all__ = ["NODE_NAMES", "PATH", "cluster", "edge_disjoint_rings", "rail_rings", "ring_order"]

NODE_NAMES = ("DGX-1V", "DGX A100", "DGX H100")
"""The nodes :func:`cluster` knows."""
PATH = (0, 3, 2, 1, 5, 6, 7, 4)
"""A ring through the eight GPUs of a DGX-1V that uses links only."""
_MESH_PATHS = ((1, 0, 4, 6, 5, 7, 3, 2), (2, 0, 3, 1, 5, 6, 7, 4), (5, 6, 4, 0, 1, 2, 3, 7), (6, 7, 5, 4, 0, 3, 2, 1))
"""Four paths through the mesh of a DGX-1V that begin, and end, at four different ports and nowhere share a link."""
_INSIDE, _BETWEEN = 1 * US, 5 * US
"""Latency of a message inside a node and between nodes: round numbers of the size that NCCL's tuner has for LL."""


def cluster(node: str = "DGX H100", nodes: int = 2) -> Topology:
    """Return ``nodes`` nodes of eight GPUs, host = 8 x node + GPU, joined by one rail for each network port of a node.

    Bandwidths are those of the data sheets. Inside an A100 or H100 node all NVLinks of a GPU lead to one switch; in a
    DGX-1V they form the cube mesh, and two GPUs share a network port. One node has no rails.

    Raises:
        ValueError: for an unknown node, or fewer than one of them.
    """
    if node not in NODE_NAMES:
        raise ValueError(f"unknown node {node!r}; there are: {', '.join(NODE_NAMES)}")
    if isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 1:
        raise ValueError(f"nodes is {nodes!r}; a whole number of at least 1 is needed")
    graph, spec = nx.Graph(), NODES[node]
    graph.add_nodes_from(range(spec.count * nodes))
    for number in range(nodes):
        graph.add_edges_from(_inside(node, spec, number))
        graph.add_edges_from(_ports(spec, number) if nodes > 1 else ())
    name = node if nodes == 1 else f"{nodes} x {node}"
    return from_graph(graph, range(spec.count * nodes), name=name)


def _inside(node: str, spec: Node, number: int) -> Iterator[tuple]:
    """The edges of one node: the cube mesh, or a switch."""
    first = spec.count * number
    if node == "DGX-1V":
        for u, v, facts in dgx1v(_INSIDE).graph.edges(data=True):
            yield first + u, first + v, dict(facts)
        return
    for gpu in range(spec.count):
        yield first + gpu, ("node", number), {"capacity": spec.device.scaleup, "latency": _INSIDE / 2}


def _ports(spec: Node, number: int) -> Iterator[tuple]:
    """Each GPU to its network port, each port to its rail."""
    each = spec.count // spec.nics
    for gpu in range(spec.count):
        fast = {"capacity": spec.device.scaleup, "latency": 0.0}
        yield spec.count * number + gpu, ("port", number, gpu // each), fast
    for port in range(spec.nics):
        facts = {"capacity": spec.nic.bandwidth, "latency": _BETWEEN / 2}
        yield ("port", number, port), ("rail", port), facts


def ring_order(node: str, nodes: int) -> list[int]:
    """Return the hosts in the order of one flat ring that uses links only: node by node, along the mesh in a DGX-1V."""
    order = PATH if node == "DGX-1V" else range(8)
    return [8 * number + gpu for number in range(nodes) for gpu in order]


def rail_rings(nodes: int, node: str = "DGX H100") -> Schedule:
    """Return the all-reduce by one ring for each network port, every ring with its share of the data.

    That is what NCCL's channels do. Ring k enters a node on one rail, passes all its GPUs, and leaves by the rail of
    the last; no two rings use the same rail between two nodes.

    Args:
        nodes: an even number, or 1.
        node: which one; in a DGX-1V the four rings take different ways through the mesh.

    Raises:
        ValueError: for an unknown node, or an odd number of nodes above 1.
    """
    if node not in NODE_NAMES:
        raise ValueError(f"unknown node {node!r}; there are: {', '.join(NODE_NAMES)}")
    if nodes < 1 or (nodes > 1 and nodes % 2):
        raise ValueError(f"nodes is {nodes}; 1 or an even number is needed, so that each ring ends on its first rail")
    paths = _MESH_PATHS if node == "DGX-1V" else [_down_from(k) for k in range(8)]
    orders = [_through(path, nodes) for path in paths]
    parts, name = 8 * nodes * len(orders), f"{len(orders)} rings, one a port"
    return Schedule.from_transfers("all_reduce", 8 * nodes, _side_by_side(orders), parts=parts, name=name)


def _down_from(gpu: int) -> tuple[int, ...]:
    """From a GPU down to the one after it, counted round the node."""
    return tuple((gpu - step) % 8 for step in range(8))


def _through(path: Sequence[int], nodes: int) -> list[int]:
    """A ring through all nodes: along the path in even ones, back along it in odd ones, so that it keeps its rails."""
    return [8 * number + gpu for number in range(nodes) for gpu in (path if number % 2 == 0 else reversed(path))]


def _side_by_side(orders: Sequence[Sequence[int]]) -> Iterator[list[tuple[int, int, int, str]]]:
    """Rounds of ring all-reduces on the same ranks, ring k with the k-th share of the chunks."""
    ranks = len(orders[0])
    for phase, operation in enumerate(("reduce", "copy")):
        for step in range(ranks - 1):
            yield [
                (order[i], order[(i + 1) % ranks], k * ranks + (i + phase - step) % ranks, operation)
                for k, order in enumerate(orders)
                for i in range(ranks)
            ]


def edge_disjoint_rings(topology: Topology, hosts: Iterable[int], directed: bool = True) -> list[tuple[int, ...]]:
    """Return as many rings through all these hosts as fit side by side, each link used once in each direction.

    Every ring passes every host once, over links only. A search tries all sets of rings, so it is for one node.

    Args:
        topology: whose links between hosts count; parallel ones one by one.
        hosts: two or more.
        directed: a link carries one ring in each direction; if False it is used up by one ring (as undirected rings).

    Raises:
        ValueError: for fewer than two hosts.

    >>> len(edge_disjoint_rings(dgx1v(), range(8))), len(edge_disjoint_rings(dgx1v(), range(5)))
    (6, 0)
    """
    chosen = tuple(sorted(set(hosts)))
    if len(chosen) < 2:
        raise ValueError(f"hosts is {chosen}; a ring needs two or more")
    links = {
        (u, v): topology.graph.edges[u, v]["links"]
        for u in chosen
        for v in chosen
        if u != v and topology.graph.has_edge(u, v)
    }
    rings = list(_rings(chosen, links))
    if not directed and len(chosen) > 2:
        rings = [ring for ring in rings if ring[1] < ring[-1]]
    return _pack(rings, Counter(links), both=not directed)


def _rings(hosts: tuple[int, ...], links: dict[tuple[int, int], int]) -> Iterator[tuple[int, ...]]:
    """Every directed ring through all hosts, from the first one."""

    def grow(path: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(path) == len(hosts):
            if (path[-1], path[0]) in links:
                yield path
            return
        for host in hosts:
            if host not in path and (path[-1], host) in links:
                yield from grow((*path, host))

    return grow(hosts[:1])


def _steps(ring: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(zip(ring, ring[1:] + ring[:1], strict=True))


def _pack(rings: list[tuple[int, ...]], free: Counter, both: bool) -> list[tuple[int, ...]]:
    """The most rings that fit: branch over the rings, bounded by the links that the poorest host has left."""
    uses = [Counter(_steps(ring) + ([(v, u) for u, v in _steps(ring)] if both else [])) for ring in rings]
    best: list[int] = []

    def room() -> int:
        """How many more rings can pass the host with the fewest links left."""
        left: Counter = Counter()
        for (u, _), count in free.items():
            left[u] += count
        return min(left.values(), default=0) // (2 if both else 1)

    def search(first: int, taken: list[int]) -> None:
        nonlocal best
        best = max(best, taken, key=len)
        for k in range(first, len(rings)):
            if len(taken) + room() <= len(best):
                return
            if all(free[edge] >= count for edge, count in uses[k].items()):
                free.subtract(uses[k])
                search(k, [*taken, k])
                free.update(uses[k])

    search(0, [])
    return [rings[k] for k in best]
