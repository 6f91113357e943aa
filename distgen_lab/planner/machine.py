"""The machine of a plan: equal accelerators in nodes (or pods) behind a network, and what a collective takes on it.

Ranks are laid out tensor first, then context, then data, then pipe, as Megatron does: what talks most sits closest. A
group of ranks is given by its size and its stride. Inside a node it gets the node's own links; over nodes its ring
leaves each node once, and the groups that stand side by side share the node's ports (rails).
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, log2

from distgen_lab import hardware
from distgen_lab.alphabeta import BUS_FACTORS
from distgen_lab.hardware import Accelerator
from distgen_lab.nccl_tuner import MACHINES
from distgen_lab.units import US, quantity

__all__ = ["Cluster", "cluster", "collective_time", "copies", "message_time"]

PRICE = 2.0
"""Dollars for an hour of a device: a round number, to be replaced by the reader's own."""
SCALEUP_SHARE = 0.8
"""Share of the links inside a node that a ring reaches where NCCL's tuner has no constant: its A100 has 240 of 300."""
NETWORK_SHARE = 0.92
"""Share of the ports that a ring over nodes reaches: 192 of 200 GB/s (2 DGX A100), 366 of 400 (4 DGX H100)."""
STEP_INSIDE, STEP_BETWEEN = 3.4 * US, 14 * US
"""Seconds of one step of a ring inside a node and between nodes: NCCL's tuner, Simple protocol (tuning.cc)."""


@dataclass(frozen=True)
class Cluster:
    """Equal devices in nodes.

    Attributes:
        name: what it is called.
        device: the accelerator.
        devices: how many in all.
        per_node: how many share a node's links (for a TPU pod: all).
        scaleup: bytes/s per direction that a ring gets out of one device inside the node.
        network: bytes/s per direction that one device has out of the node, its share of all ports.
        price: dollars for an hour of one device.

    Raises:
        ValueError: for numbers that are not positive, or devices that do not fill nodes.
    """

    name: str
    device: Accelerator
    devices: int
    per_node: int
    scaleup: float
    network: float
    price: float = PRICE

    def __post_init__(self) -> None:
        for name in ("devices", "per_node", "scaleup", "network"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; a positive number is needed")
        if self.price < 0:
            raise ValueError(f"price is {self.price}; dollars for a device-hour, 0 or more, are needed")
        if self.devices > self.per_node and self.devices % self.per_node:
            raise ValueError(f"devices is {self.devices}; a multiple of the {self.per_node} of a node is needed")

    @property
    def nodes(self) -> int:
        """Nodes that are used."""
        return ceil(self.devices / self.per_node)

    def __str__(self) -> str:
        """Name, devices and rates."""
        rates = f"{quantity(self.scaleup, 'B/s')} inside a node, {quantity(self.network, 'B/s')} out of it"
        return f"{self.devices} x {self.device.name} ({self.name}): {rates}, each device and direction"


def cluster(
    name: str,
    devices: int | None = None,
    *,
    network: float | None = None,
    price: float | None = None,
    per_node: int | None = None,
) -> Cluster:
    """Return a cluster of a node, a pod or an accelerator of the catalogue.

    Args:
        name: of ``hardware.NODES``, ``hardware.PODS`` or ``hardware.ACCELERATORS``; an accelerator is put into nodes of
            eight.
        devices: one node, or the whole pod, unless given.
        network: bytes/s per direction of one device out of its node; the catalogue's ports unless given. Less of it is
            what an oversubscribed fat tree leaves.
        price: dollars for a device-hour.
        per_node: devices of a node.

    Raises:
        ValueError: for an unknown name (near names are suggested), or numbers that :class:`Cluster` refuses.

    >>> print(cluster("DGX H100", devices=64))
    64 x H100 (DGX H100): 371 GB/s inside a node, 50 GB/s out of it, each device and direction
    """
    found = _catalogue(name)
    if devices is not None and (isinstance(devices, bool) or devices != int(devices) or devices < 1):
        raise ValueError(f"devices is {devices!r}; a whole number of at least 1 is needed")
    inside = found.per_node if per_node is None else per_node
    return replace(
        found,
        devices=found.devices if devices is None else int(devices),
        per_node=inside,
        network=found.network if network is None else network,
        price=found.price if price is None else price,
    )


def _catalogue(name: str) -> Cluster:
    """One node, pod or eight accelerators of that name."""
    for row in hardware.NODES.values():
        if row.name.lower() == str(name).lower():
            return Cluster(row.name, row.device, row.count, row.count, _scaleup(row.device), row.network / row.count)
    for pod in hardware.PODS.values():
        if pod.name.lower() == str(name).lower():
            # A ring along one side of the torus goes both ways round, on two links.
            links = 2 * pod.device.neighbour.bandwidth
            return Cluster(pod.name, pod.device, pod.chips, pod.chips, links, pod.device.scaleout or links)
    try:
        device = hardware.accelerator(name)
    except ValueError:
        raise ValueError(f"unknown cluster {name!r}; did you mean {', '.join(_near(name))}?") from None
    return Cluster(device.name, device, 8, 8, _scaleup(device), device.scaleout or device.scaleup)


def _near(name: str) -> list[str]:
    import difflib

    known = {n.lower(): n for n in (*hardware.NODES, *hardware.PODS, *hardware.ACCELERATORS)}
    near = difflib.get_close_matches(str(name).lower(), known, n=4, cutoff=0.4)
    return [known[key] for key in near] or sorted(known.values())


def _scaleup(device: Accelerator) -> float:
    """What NCCL's tuner counts on, or a share of the links."""
    known = MACHINES.get(device.name)
    return known.scaleup if known else SCALEUP_SHARE * device.scaleup


@lru_cache(maxsize=4096)
def _road(machine: Cluster, ranks: int, stride: int) -> tuple[float, int, int]:
    """Bytes/s of one rank's ring; ranks of the group in a node; nodes of the group."""
    inside = max(1, min(ranks, machine.per_node // stride)) if stride < machine.per_node else 1
    nodes = ceil(ranks / inside)
    # Groups side by side share the ports: a group has those of the devices it has in the node.
    ports = inside * machine.network * NETWORK_SHARE
    return (min(machine.scaleup, ports) if nodes > 1 else machine.scaleup), inside, nodes


def collective_time(operation: str, nbytes: float, ranks: int, stride: int, machine: Cluster) -> float:
    """Return seconds of a collective of n bytes among ``ranks`` devices that are ``stride`` apart.

    A ring (for an all-to-all: direct messages) at the bus bandwidth of the narrowest place it crosses, and the
    start-ups of its steps; of an all-reduce over nodes those of a tree.

    Args:
        operation: a name of ``alphabeta.BUS_FACTORS``.
        nbytes: n, as there: the vector of each rank, or the gathered one.
        ranks, stride: the group.
        machine: the cluster.
    """
    if ranks <= 1 or not nbytes:
        return 0.0
    bandwidth, inside, nodes = _road(machine, ranks, stride)
    start = _start_up(operation, inside, nodes)
    if operation == "all_to_all" and nodes > 1:
        # All but what stays in the node leaves it by the device's own share of the ports.
        away = nbytes * (ranks - inside) / ranks / (machine.network * NETWORK_SHARE)
        return start + max(away, nbytes * (inside - 1) / ranks / machine.scaleup)
    return start + BUS_FACTORS[operation](ranks) * nbytes / bandwidth


def copies(visits: float, ranks: int, stride: int, machine: Cluster) -> float:
    """Return how often a token is sent in an all-to-all, if it meets ``visits`` experts spread evenly over the ranks.

    Once to each rank that has at least one of them; over nodes once to each node, and on from there.
    """
    *_, nodes = _road(machine, ranks, stride)
    places = nodes if nodes > 1 else ranks
    return places * (1 - (1 - 1 / places) ** visits)


def _start_up(operation: str, inside: int, nodes: int) -> float:
    """Seconds before the bytes count: all-reduces over nodes use a tree, NCCL's other collectives know rings only."""
    if operation == "all_reduce":
        return 2 * ((inside - 1) * STEP_INSIDE + ceil(log2(nodes)) * STEP_BETWEEN)
    return nodes * (inside - 1) * STEP_INSIDE + (nodes - 1) * STEP_BETWEEN


def message_time(nbytes: float, stride: int, machine: Cluster) -> float:
    """Return seconds of a message of one device to the one ``stride`` further on."""
    if stride < machine.per_node and machine.devices <= machine.per_node:
        return STEP_INSIDE + nbytes / machine.scaleup
    return STEP_BETWEEN + nbytes / (machine.network * NETWORK_SHARE)
