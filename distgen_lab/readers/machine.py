"""A machine as a topology file shows it: GPUs as hosts, NVSwitches, PCIe and NICs as what lies between them.

:class:`Machine` is a :class:`distgen_lab.topology.Topology` that also remembers the codes of the file
(``PIX``, ``NV12``, ...), the NICs, and what had to be assumed. :func:`rings` counts the rings NCCL can lay through its
links, :func:`expected_busbw` turns them into the bus bandwidth to expect.
"""

import itertools
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from distgen_lab.readers.source import ReadError
from distgen_lab.topology import DEFAULT_LINK, Topology
from distgen_lab.units import GB, quantity

__all__ = ["CODES", "Bundle", "Device", "Machine", "Nearest", "Rings", "build", "expected_busbw", "pcie_rate", "rings"]

CODES = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Ways over PCIe, the nearest first: one switch, several, the CPU's bridge, bridges of one socket, between sockets."""

NVLINK_MOST = 18
"""NVLinks of the GPU that has most (H100, B200): a GPU whose pairs add up to more hangs on NVSwitches."""

_SEARCH_STEPS = 20_000
_NO_DECOMPOSITION = (4, 6)  # complete directed graphs without one into Hamiltonian cycles (Tillson 1980)


def pcie_rate(width: int, transfers: float) -> float:
    """Return bytes/s per direction NCCL counts on for a PCIe link of so many lanes at so many GT/s.

    Source: NVIDIA/nccl, src/graph/topo.cc: width x speed / 80 GB/s, speed 60, 120, 240 at 8, 16, 32 GT/s.

    >>> pcie_rate(16, 16) / GB
    24.0
    """
    return width * transfers * 7.5 / 80 * GB


@dataclass(frozen=True)
class Device:
    """A GPU or NIC: its name in the file, the name the system gives it, and its NUMA node where the file says."""

    name: str
    kind: str
    label: str = ""
    numa: str = ""

    @property
    def shown(self) -> str:
        """The system's name for it, else the file's."""
        return self.label or self.name


@dataclass(frozen=True)
class Bundle:
    """Parallel links between two GPUs (their places 0 ..), or between a GPU and the NVSwitches (``other`` None)."""

    gpu: int
    other: int | None
    links: int


@dataclass(frozen=True)
class Nearest:
    """The NICs nearest to a GPU and the code of the way to them."""

    gpu: str
    code: str
    nics: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.gpu}: {', '.join(self.nics)} ({self.code})" if self.nics else f"{self.gpu}: no NIC"


class Machine(Topology):
    """One machine of a topology file.

    Attributes:
        tool: "nvidia-smi", "rocm-smi", "NCCL topology XML" or "RCCL topology XML".
        source: the file.
        gpus, nics: the devices, in the file's order; GPU i is host i of the graph.
        codes: for a pair of names in the file's order its code, e.g. ``codes["GPU0", "GPU1"] == "NV12"``.
        bundles: NVLinks (or xGMI links), as the graph has them.
        link_bandwidth: bytes/s per direction that one link is taken to carry.
        nccl_rate: bytes/s per direction that NCCL (RCCL) counts on for one link.
        notes: what was assumed or looked odd.
        facts_read: counts of the file, by name (depends on the tool).
    """

    tool: str
    source: str
    gpus: tuple[Device, ...]
    nics: tuple[Device, ...]
    codes: dict[tuple[str, str], str]
    bundles: tuple[Bundle, ...]
    link_bandwidth: float
    nccl_rate: float
    notes: tuple[str, ...]
    facts_read: dict[str, object]

    def link(self, one: str, other: str) -> str:
        """Return the code between two devices, by their names in the file, in either order.

        Raises:
            ValueError: for a device that is not there.
        """
        code = self.codes.get((one, other)) or self.codes.get((other, one))
        if code is None:
            names = ", ".join(device.name for device in (*self.gpus, *self.nics))
            raise ValueError(f"no link is known from {one!r} to {other!r}; devices are {names}")
        return code

    @property
    def switched(self) -> bool:
        """Whether the GPUs' links go to switches."""
        return any(bundle.other is None for bundle in self.bundles)

    def links_per_gpu(self) -> list[int]:
        """Return the NVLinks (or xGMI links) each GPU has, by its place; on switches those to the switches."""
        counts = [0] * self.hosts
        for bundle in self.bundles:
            counts[bundle.gpu] += bundle.links
            if bundle.other is not None:
                counts[bundle.other] += bundle.links
        return counts

    def fabric(self) -> Topology:
        """Return the GPUs with their NVLinks (or xGMI links) alone: the network without PCIe and NICs.

        Raises:
            ValueError: if these links do not join all GPUs; the message names those that are left out.
        """
        lost = [gpu.name for gpu, links in zip(self.gpus, self.links_per_gpu(), strict=True) if not links]
        if lost:
            raise ValueError(f"{self.name}: no NVLink or xGMI link at {', '.join(lost)}; only PCIe reaches all GPUs")
        graph = nx.Graph()
        graph.add_nodes_from(range(self.hosts))
        for bundle in self.bundles:
            end = "NVSwitch" if bundle.other is None else bundle.other
            _join(graph, bundle.gpu, end, self.link_bandwidth * bundle.links, bundle.links)
        layout = None if self.switched else lambda: _circle(rings(self).order)
        return Topology(f"links of {self.name}", graph, self.hosts, family="own", layout=layout)

    def pair_links(self) -> list[int]:
        """Return the link counts added up over all peers as the file shows them: on switches more than is there."""
        totals = dict.fromkeys((gpu.name for gpu in self.gpus), 0)
        for (one, other), code in self.codes.items():
            if one in totals and other in totals and (count := re.fullmatch(r"NV(\d+)|XGMI", code)):
                for name in (one, other):
                    totals[name] += int(count[1] or 1)
        return list(totals.values())

    def pair_counts(self) -> dict[str, int]:
        """Return how many pairs of GPUs the file shows with each code."""
        names = {gpu.name for gpu in self.gpus}
        return dict(Counter(code for pair, code in self.codes.items() if names.issuperset(pair)))

    def nearest(self) -> list[Nearest]:
        """Return for each GPU the NICs with the shortest way over PCIe; equal ones together."""
        return [self._nearest(gpu) for gpu in self.gpus]

    def _nearest(self, gpu: Device) -> Nearest:
        ways = {nic: self.link(gpu.name, nic.name) for nic in self.nics}
        ways = {nic: code for nic, code in ways.items() if code in CODES}
        if not ways:
            return Nearest(gpu.name, "", ())
        best = min(ways.values(), key=CODES.index)
        return Nearest(gpu.name, best, tuple(nic.shown for nic, code in ways.items() if code == best))


def build(
    name: str,
    tool: str,
    source: str,
    devices: Sequence[Device],
    codes: Mapping[tuple[str, str], str],
    bundles: Iterable[Bundle],
    link_bandwidth: float,
    nccl_rate: float,
    notes: Iterable[str] = (),
    tree: nx.Graph | None = None,
    facts_read: Mapping[str, object] | None = None,
) -> Machine:
    """Return the machine of these devices, codes and links.

    Args:
        name, tool, source, codes, link_bandwidth, nccl_rate, notes, facts_read: see :class:`Machine`.
        devices: GPUs and NICs in the file's order.
        bundles: links between GPUs, or to the switches.
        tree: PCIe as a graph whose leaves are the places of the GPUs and ``("nic", name)``; None to make it from codes.
    """
    gpus = tuple(device for device in devices if device.kind == "gpu")
    nics = tuple(device for device in devices if device.kind == "nic")
    graph = nx.Graph()
    graph.add_nodes_from(range(len(gpus)))
    kept = tuple(bundles)
    for bundle in kept:
        end = ("nvswitch", 0) if bundle.other is None else bundle.other
        _join(graph, bundle.gpu, end, link_bandwidth * bundle.links, bundle.links)
    pci = tree if tree is not None else _tree_of_codes(gpus, nics, codes)
    for one, other, data in pci.edges(data=True):
        _join(graph, one, other, data["capacity"], 1)
    try:
        machine = Machine(name, graph, len(gpus), family="own", parameters={"file": source, "tool": tool})
    except ValueError as error:
        raise ReadError(source, f"the devices make no network: {error}") from None
    machine.tool, machine.source, machine.gpus, machine.nics = tool, source, gpus, nics
    machine.codes, machine.bundles, machine.link_bandwidth = dict(codes), kept, link_bandwidth
    machine.nccl_rate, machine.notes, machine.facts_read = nccl_rate, tuple(notes), dict(facts_read or {})
    return machine


def _circle(order: Sequence[int]) -> dict[Hashable, tuple[float, float]]:
    """GPUs on a circle in the order of a ring, so that the ring is seen."""
    return {gpu: (float(x), float(y)) for gpu, (x, y) in nx.circular_layout(order).items()}


def _join(graph: nx.Graph, one: object, other: object, capacity: float, links: int) -> None:
    have = graph.get_edge_data(one, other, {"links": 0, "capacity": 0.0})
    total = {"links": have["links"] + links, "capacity": have["capacity"] + capacity}
    graph.add_edge(one, other, latency=DEFAULT_LINK.alpha, **total)


def _tree_of_codes(gpus: Sequence[Device], nics: Sequence[Device], codes: Mapping[tuple[str, str], str]) -> nx.Graph:
    """PCIe as a tree: at each level of :data:`CODES` the devices that are at most that far apart share a node.

    The speed of PCIe does not stand in such a file: PCIe 4.0 x16 is assumed for every edge.
    """
    graph, rate = nx.Graph(), pcie_rate(16, 16)
    leaves = {gpu.name: place for place, gpu in enumerate(gpus)} | {nic.name: ("nic", nic.shown) for nic in nics}
    parts = {name: frozenset([name]) for name in leaves}
    tops: dict[frozenset, object] = {frozenset([name]): leaf for name, leaf in leaves.items()}
    for level, code in enumerate(CODES):
        near = nx.Graph()
        near.add_nodes_from(leaves)
        near.add_edges_from(pair for pair, way in codes.items() if way in CODES[: level + 1])
        if code == "SYS":  # whatever is left hangs together over the system
            near.add_edges_from(itertools.pairwise(leaves))
        if code == "NODE":  # GPUs whose NVLinks hide their way over PCIe: their NUMA node places them
            near.add_edges_from(_same_node(gpus, codes))
        for number, together in enumerate(map(frozenset, nx.connected_components(near))):
            below = {parts[name] for name in together}
            if len(below) > 1 or (code == "SYS" and len(leaves) == 1):
                for part in below:
                    graph.add_edge((code.lower(), number), tops[part], capacity=rate)
                tops[together] = (code.lower(), number)
                parts.update(dict.fromkeys(together, together))
    return graph


def _same_node(gpus: Sequence[Device], codes: Mapping[tuple[str, str], str]) -> list[tuple[str, str]]:
    """Pairs of GPUs of one NUMA node whose way over PCIe does not stand in the file."""
    pairs = itertools.combinations(gpus, 2)
    return [
        (a.name, b.name) for a, b in pairs if a.numa and a.numa == b.numa and codes.get((a.name, b.name)) not in CODES
    ]


# ------------------------------------------------------------------------------------------------ rings


@dataclass(frozen=True)
class Rings:
    """Rings through all GPUs that share no link in a direction.

    Attributes:
        count: rings found, each worth one link in one direction.
        bound: no more can be laid (the GPU with fewest links).
        order: one ring as the places of the GPUs; empty without one.
        per_ring: bytes/s NCCL counts on for one ring.
        over: "NVLink", "xGMI" or "PCIe".
    """

    count: int
    bound: int
    order: tuple[int, ...]
    per_ring: float
    over: str

    @property
    def busbw(self) -> float:
        """Bus bandwidth in bytes/s that the rings add up to."""
        return self.count * self.per_ring

    def __str__(self) -> str:
        most = "" if self.count == self.bound else f" (at most {self.bound})"
        return f"{self.count} over {self.over}{most}, {quantity(self.per_ring, 'B/s')} each"


def rings(machine: Machine) -> Rings:
    """Return the rings NCCL can lay through the GPUs of a machine: over NVLink if it can, else one over PCIe.

    On switches each link of the GPU with fewest carries one ring. Without switches rings are Hamiltonian cycles that
    share no link in the same direction (a link carries both directions); they are searched for, and the bound says
    whether more could exist. What NCCL counts on for one link is the constant of its own tuner.
    """
    order, links = tuple(range(machine.hosts)), machine.links_per_gpu()
    over = "xGMI" if "XGMI" in machine.codes.values() else "NVLink"
    if machine.hosts > 1 and min(links):
        if machine.switched and all(bundle.other is None for bundle in machine.bundles):
            return Rings(min(links), min(links), order, machine.nccl_rate, over)
        count, one = _disjoint(machine)
        if count:
            return Rings(count, min(links), one, machine.nccl_rate, over)
    return Rings(int(machine.hosts > 1), int(machine.hosts > 1), order, _pcie_ring(machine), "PCIe")


def expected_busbw(machine: Machine) -> float:
    """Return the bus bandwidth in bytes/s of a large all-reduce inside one machine: :func:`rings` added up."""
    return rings(machine).busbw


def _pcie_ring(machine: Machine) -> float:
    """Bytes/s of one ring over PCIe in the order of the GPUs: the edge with least for each step that crosses it."""
    load: Counter[tuple] = Counter()
    for host in range(machine.hosts):
        way = _pcie_way(machine, host, (host + 1) % machine.hosts)
        load.update(itertools.pairwise(way))
    return min((machine.graph[u][v]["capacity"] / steps for (u, v), steps in load.items()), default=0.0)


def _pcie_way(machine: Machine, source: int, target: int) -> list:
    """The way between two GPUs through neither NVLinks nor other GPUs."""
    inner = [node for node in machine.graph if node not in range(machine.hosts) and node != ("nvswitch", 0)]
    pcie = machine.graph.subgraph([source, target, *inner]).copy()
    if pcie.has_edge(source, target):
        pcie.remove_edge(source, target)
    if source == target or not nx.has_path(pcie, source, target):
        return machine.route(source, target)
    return nx.shortest_path(pcie, source, target)


def _disjoint(machine: Machine) -> tuple[int, tuple[int, ...]]:
    """How many Hamiltonian cycles share no link in a direction, and one of them."""
    free = [[0] * machine.hosts for _ in range(machine.hosts)]
    for bundle in machine.bundles:
        if bundle.other is not None:
            free[bundle.gpu][bundle.other] += bundle.links
            free[bundle.other][bundle.gpu] += bundle.links
    counts = {free[a][b] for a, b in itertools.permutations(range(machine.hosts), 2)}
    if len(counts) == 1 and machine.hosts not in _NO_DECOMPOSITION:
        return min(counts) * (machine.hosts - 1), tuple(range(machine.hosts))
    found = _Search(free).run()
    return len(found), found[0] if found else ()


class _Search:
    """Take cycles out of a directed multigraph until none is left; back up while steps remain."""

    def __init__(self, free: list[list[int]]) -> None:
        self.free, self.steps, self.best = free, _SEARCH_STEPS, []
        self.bound = min(map(sum, free))

    def run(self) -> list[tuple[int, ...]]:
        """Return the longest list of cycles that was found."""
        self._take([])
        return self.best

    def _take(self, taken: list[tuple[int, ...]]) -> bool:
        """Add cycles to ``taken``, each with its reverse or alone; whether the bound is reached or no step is left."""
        if len(taken) > len(self.best):
            self.best = taken
        if len(self.best) >= self.bound or self.steps <= 0:
            return True
        for cycle in self._cycles((0,)):
            back = (0, *cycle[:0:-1])
            for group in ([cycle, back], [cycle]):
                if len(taken) + len(group) <= self.bound and self._add(taken, group):
                    return True
        return False

    def _add(self, taken: list[tuple[int, ...]], group: list[tuple[int, ...]]) -> bool:
        """Go on with a group of cycles more, if their links are free; the links are given back afterwards."""
        added = []
        for cycle in group:
            if self._fits(cycle):
                self._mark(cycle, -1)
                added.append(cycle)
        done = len(added) == len(group) and self._take([*taken, *group])
        for cycle in added:
            self._mark(cycle, 1)
        return done

    def _cycles(self, path: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Hamiltonian cycles over free links that begin with ``path``; where most links are left first."""
        self.steps -= 1
        row = self.free[path[-1]]
        if len(path) == len(self.free):
            if row[0]:
                yield path
            return
        for node in sorted(range(len(row)), key=lambda node: -row[node]):
            if row[node] and node not in path and self.steps > 0:
                yield from self._cycles((*path, node))

    def _mark(self, cycle: tuple[int, ...], change: int) -> None:
        for one, other in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
            self.free[one][other] += change

    def _fits(self, cycle: tuple[int, ...]) -> bool:
        steps = Counter(zip(cycle, (*cycle[1:], cycle[0]), strict=True))
        return all(self.free[one][other] >= times for (one, other), times in steps.items())
