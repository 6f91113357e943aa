"""How NCCL itself prices an all-reduce: its tuner's constants, as a second model beside the plain alpha-beta one.

NCCL gives each pair of algorithm (ring, tree) and protocol (LL, LL128, Simple) a latency and a bandwidth, and takes the
pair of least time for the size at hand. So its tuner is an alpha-beta model too, with alphas and betas found by
measuring: LL starts fastest and moves half the bytes a link could (each 8 bytes carry a 4-byte flag), Simple starts
slowest and moves all of them, LL128 lies between.

Source: ``ncclTopoTuneModel`` and ``ncclTopoGetAlgoTime`` of NVIDIA/nccl, src/graph/tuning.cc, as they stand in the
releases with the fifth tuner plug-in interface; constants of commit 5067397c2676 (``data/nccl_tuner.json``).

What is left out, so that a real run may choose otherwise:

* NVLS and NVLS tree (sums in the NVSwitch, which win for large messages on Hopper and newer), CollNet and PAT;
* NCCL's search for rings and trees. Here the links decide: inside one node all NVLinks of a GPU, over more nodes the
  smaller of that and the network. NCCL rounds channel speeds down to a list, and on two nodes a tree may get more;
* fewer channels for small messages, several collectives in one group, and NCCL_ALGO, NCCL_PROTO or a tuner plug-in;
* trees of a pattern for one network port a node (times 0.85), POWER processors, and rings that differ by channel.
"""

import difflib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

from distgen_lab.alphabeta import Link
from distgen_lab.hardware import accelerator
from distgen_lab.units import GB, US, duration, quantity

__all__ = ["MACHINES", "Choice", "Machine", "choose", "line", "pairs", "switches", "time"]

_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
_ALGORITHMS = ("Tree", "Ring")  # in the order in which NCCL tries them
_PROTOCOLS = ("LL", "LL128", "Simple")


@cache
def _constants() -> dict[str, Any]:
    return json.loads((files("distgen_lab") / "data" / "nccl_tuner.json").read_text("utf-8"))


def _one_of(what: str, name: str, names: Any) -> str:
    """The name as it is spelt here, whatever its case."""
    plain = {known.lower(): known for known in names}
    if str(name).lower() in plain:
        return plain[str(name).lower()]
    near = difflib.get_close_matches(str(name).lower(), list(plain), n=3, cutoff=0.4) or list(plain)
    raise ValueError(f"unknown {what} {name!r}; did you mean {', '.join(plain[key] for key in near)}?")


def _whole(name: str, value: int) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}; a whole number of at least 1 is needed")
    return int(value)


def _number(name: str, value: float, above: float | None = None) -> None:
    """Refuse what is not a finite number of at least 0, or above ``above``."""
    real = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not real or value < 0 or (above is not None and value <= above):
        wanted = "of at least 0" if above is None else f"above {above}"
        raise ValueError(f"{name} is {value!r}; a finite number {wanted} is needed")


@dataclass(frozen=True)
class Machine:
    """What the tuner has to know of a machine.

    Attributes:
        name: what it is called.
        arch: "Volta", "Ampere", "Hopper" or "Blackwell".
        scaleup: bytes/s per direction that NCCL counts on from one GPU to the others of its node.
        network: bytes/s per direction out of one node, all ports together.
        channels: rings (or trees) that work side by side; NCCL_DEBUG=INFO prints the number.
        scaleup_link: "NVLINK" or "PCI"; over PCI there is no LL128.
        cpu: "Intel" or "AMD", which bounds LL over more than one node.
        network_latency: seconds the network plug-in reports for a message.

    Raises:
        ValueError: for an unknown arch, link or cpu, or a rate that is not positive.
    """

    name: str
    arch: str
    scaleup: float
    network: float
    channels: int = 24
    scaleup_link: str = "NVLINK"
    cpu: str = "Intel"
    network_latency: float = 0.0

    def __post_init__(self) -> None:
        names = {"arch": _constants()["ll_max"], "scaleup_link": ("NVLINK", "PCI"), "cpu": _constants()["net_overhead"]}
        for name, known in names.items():
            object.__setattr__(self, name, _one_of(name, getattr(self, name), known))
        _whole("channels", self.channels)
        for name in ("scaleup", "network"):
            _number(name, getattr(self, name), above=0)
        _number("network_latency", self.network_latency)

    def __str__(self) -> str:
        rates = f"{quantity(self.scaleup, 'B/s')} inside a node, {quantity(self.network, 'B/s')} out of it"
        return f"{self.name} ({self.arch}): {rates}, {self.channels} channels"


def _eight_gpus(name: str, arch: str) -> Machine:
    """A node of eight GPUs: NVLinks x NCCL's constant for one link, and the catalogue's network for each GPU."""
    link = _constants()["nvlink_per_link"][name] * _constants()["nvlinks"][name]
    return Machine(name, arch, link * GB, 8 * accelerator(name).scaleout)


MACHINES: dict[str, Machine] = {
    name: _eight_gpus(name, arch)
    for name, arch in {"A100": "Ampere", "H100": "Hopper", "H200": "Hopper", "B200": "Blackwell"}.items()
}
"""NVSwitch nodes of eight GPUs by name. 24 channels, a usual number; none of the limits per channel binds there."""


@dataclass(frozen=True)
class Choice:
    """The pair the tuner takes from ``nbytes`` on, and the seconds it expects at that size."""

    nbytes: int
    algorithm: str
    protocol: str
    seconds: float

    def __str__(self) -> str:
        return f"from {quantity(self.nbytes, 'B')}: {self.algorithm} {self.protocol}, {duration(self.seconds)}"


def pairs(machine: Machine | str, collective: str = "all_reduce") -> list[tuple[str, str]]:
    """Return the (algorithm, protocol) pairs the tuner compares: trees for all_reduce only, no LL128 over PCI."""
    machine = _machine(machine)
    _one_of("collective", collective, _COLLECTIVES)
    kinds = _ALGORITHMS if collective == "all_reduce" else ("Ring",)
    return [(a, p) for a in kinds for p in _PROTOCOLS if p != "LL128" or machine.scaleup_link == "NVLINK"]


def line(
    algorithm: str,
    protocol: str,
    machine: Machine | str,
    nodes: int = 1,
    gpus_per_node: int = 8,
    collective: str = "all_reduce",
) -> Link:
    """Return the tuner's latency and time per byte of n for a pair: alpha and beta before corrections by size.

    n is the vector of each rank (all_reduce, reduce_scatter, broadcast, reduce) or the gathered one (all_gather).

    Args:
        algorithm: "Ring" or "Tree".
        protocol: "LL", "LL128" or "Simple".
        machine: a name of ``MACHINES`` or a :class:`Machine`.
        nodes, gpus_per_node: two ranks or more together.
        collective: "all_reduce", "all_gather", "reduce_scatter", "broadcast" or "reduce".

    Raises:
        ValueError: for an unknown name, a pair the tuner does not have there, or fewer than two ranks.

    >>> print(line("Tree", "LL", "H100", nodes=32))
    alpha 65.2 us, 10.2 GB/s per direction
    """
    machine = _machine(machine)
    algorithm, protocol = _pair(algorithm, protocol, machine, collective)
    ranks = _ranks(nodes, gpus_per_node)
    bandwidth = _bus_bandwidth(algorithm, protocol, machine, nodes) * _bus_to_algorithm(algorithm, collective, ranks)
    latency = _latency(algorithm, protocol, machine, nodes, gpus_per_node, collective)
    return Link(latency * US, 1 / (bandwidth * GB))


def time(
    algorithm: str,
    protocol: str,
    nbytes: float,
    machine: Machine | str,
    nodes: int = 1,
    gpus_per_node: int = 8,
    collective: str = "all_reduce",
) -> float:
    """Return the seconds the tuner expects: :func:`line`, with its two corrections by size.

    Trees of middle sizes get less bandwidth (a factor per power of two), and a Simple ring over several nodes a longer
    latency from 64 bytes a channel and rank on.

    Raises:
        ValueError: as :func:`line`, or for a negative size.

    >>> round(time("Ring", "Simple", 2**30, "H100") * 1e3, 2)
    5.12
    """
    machine = _machine(machine)
    algorithm, protocol = _pair(algorithm, protocol, machine, collective)
    model = line(algorithm, protocol, machine, nodes, gpus_per_node, collective)
    _number("nbytes", nbytes)
    alpha, beta = model.alpha, model.beta
    if algorithm == "Tree":
        beta /= _tree_correction(protocol, nbytes)
    elif protocol == "Simple" and collective == "all_reduce" and nodes > 1:
        alpha *= _plateau(machine, nbytes / (machine.channels * nodes * gpus_per_node))
    return alpha + nbytes * beta


def choose(
    nbytes: float, machine: Machine | str, nodes: int = 1, gpus_per_node: int = 8, collective: str = "all_reduce"
) -> Choice:
    """Return the pair of least time; of equal ones the first that NCCL tries (trees before rings, LL first).

    >>> print(choose(4096, "H100", nodes=4))
    from 4.1 kB: Tree LL, 35.8 us
    """
    times = {
        pair: time(*pair, nbytes, machine, nodes, gpus_per_node, collective) for pair in pairs(machine, collective)
    }
    best = min(times, key=times.__getitem__)
    return Choice(nbytes, *best, times[best])


def switches(
    machine: Machine | str,
    nodes: int = 1,
    gpus_per_node: int = 8,
    collective: str = "all_reduce",
    smallest: int = 8,
    largest: int = 2**34,
) -> list[Choice]:
    """Return the sizes from which the tuner takes another pair, the smallest size first: solved to the byte.

    Between neighbouring powers of two every pair is a line, so a pair that is best at both ends is best between.

    Args:
        machine, nodes, gpus_per_node, collective: as in :func:`line`.
        smallest, largest: bytes between which to look.
    """
    if not 1 <= _whole("smallest", smallest) <= _whole("largest", largest):
        raise ValueError(f"smallest is {smallest} and largest {largest}; the smallest first")

    def at(nbytes: int) -> Choice:
        return choose(nbytes, machine, nodes, gpus_per_node, collective)

    def turns(low: Choice, high: Choice) -> Iterator[Choice]:
        """What changes above ``low``, up to ``high``."""
        if _same(low, high):
            return
        if high.nbytes - low.nbytes == 1:
            yield high
            return
        middle = at((low.nbytes + high.nbytes) // 2)
        yield from turns(low, middle)
        yield from turns(middle, high)

    stops = [smallest, *(2**k for k in range(64) if smallest < 2**k < largest), largest]
    # The byte before a power of two belongs to the line below it.
    edges = sorted({edge for stop in stops for edge in (stop - 1, stop) if smallest <= edge <= largest})
    chosen = [at(edge) for edge in edges]
    return [chosen[0], *(turn for low, high in pairwise(chosen) for turn in turns(low, high))]


def _same(one: Choice, other: Choice) -> bool:
    return (one.algorithm, one.protocol) == (other.algorithm, other.protocol)


def _bus_bandwidth(algorithm: str, protocol: str, machine: Machine, nodes: int) -> float:
    """GB/s that all channels together carry, limited per channel and per protocol."""
    share, limits, scale = _constants()["share"][algorithm], _constants()["channel_max"][algorithm], min(nodes, 3) - 1
    busbw = (machine.scaleup if nodes == 1 else min(machine.scaleup, machine.network)) / GB
    if algorithm == "Tree":
        busbw = min(busbw * share["any"], machine.channels * limits["any"][machine.arch][scale])
    part = share["LL128, one node"] if (algorithm, protocol, nodes) == ("Tree", "LL128", 1) else share[protocol]
    most = {"LL": _ll_max(machine, nodes, scale), "Simple": math.inf}
    most["LL128"] = machine.channels * limits["LL128"][machine.arch][scale]
    return min(busbw * part, most[protocol])


def _ll_max(machine: Machine, nodes: int, scale: int) -> float:
    """One node: by GPU. More: by processor, whose rows NCCL files under Volta (Intel) and Ampere (AMD)."""
    row = machine.arch if nodes == 1 else {"Intel": "Volta", "AMD": "Ampere"}[machine.cpu]
    return _constants()["ll_max"][row][scale]


def _bus_to_algorithm(algorithm: str, collective: str, ranks: int) -> float:
    """Bytes of n per byte on the bus: P over the steps of the ring; half for a tree, up and down."""
    return 0.5 if algorithm == "Tree" else ranks / _steps(collective, ranks)


def _steps(collective: str, ranks: int) -> int:
    return {"all_reduce": 2 * (ranks - 1), "broadcast": ranks, "reduce": ranks}.get(collective, ranks - 1)


def _latency(algorithm: str, protocol: str, machine: Machine, nodes: int, gpus_per_node: int, collective: str) -> float:
    """Microseconds: a base, and a time for each step inside a node and between nodes."""
    hardware, base = _constants()["hw_latency"], _constants()["base_latency"][algorithm][protocol]
    inside = hardware[machine.scaleup_link][algorithm][protocol]
    # One GPU a node hides nothing of the network: NCCL takes the latency of a tree then.
    between = hardware["NET"]["Tree" if gpus_per_node == 1 else algorithm][protocol]
    between += machine.network_latency / US * (2 if protocol == "Simple" else 1)  # Simple also waits for a flush
    if algorithm == "Tree":
        return base + 2 * ((gpus_per_node - 1) * inside + (nodes.bit_length() - 1) * between)
    if collective in ("broadcast", "reduce"):
        return base + (inside if nodes == 1 else hardware["NET"][algorithm][protocol])
    crossing = _steps(collective, nodes) if nodes > 1 else 0
    inside = max(inside, _post(machine, protocol)) if nodes > 1 else inside
    return base + (_steps(collective, nodes * gpus_per_node) - crossing) * inside + crossing * between


def _post(machine: Machine, protocol: str) -> float:
    """Microseconds of the processor to post a network message; every step of a ring over nodes waits for it."""
    return _constants()["net_overhead"][machine.cpu] * (
        _constants()["net_overhead_simple"] if protocol == "Simple" else 1
    )


def _tree_correction(protocol: str, nbytes: float) -> float:
    """Factor on a tree's bandwidth, by floor(log2(n / 64)); none below 64 bytes and from 512 MiB on."""
    factors, octave = _constants()["tree_correction"][protocol], (int(nbytes) >> 6).bit_length() - 1
    return factors[octave] if 0 <= octave < len(factors) else 1.0


def _plateau(machine: Machine, bytes_per_step: float) -> float:
    plateau = _constants()["plateau"]
    return plateau[machine.arch] if bytes_per_step >= plateau["bytes"] else 1.0


def _machine(machine: Machine | str) -> Machine:
    return machine if isinstance(machine, Machine) else MACHINES[_one_of("machine", machine, MACHINES)]


def _pair(algorithm: str, protocol: str, machine: Machine, collective: str) -> tuple[str, str]:
    algorithm, protocol = _one_of("algorithm", algorithm, _ALGORITHMS), _one_of("protocol", protocol, _PROTOCOLS)
    known = pairs(machine, collective)
    if (algorithm, protocol) not in known:
        there = ", ".join(" ".join(pair) for pair in known)
        raise ValueError(f"{algorithm} {protocol} is not used for {collective} on {machine.name}; there are: {there}")
    return algorithm, protocol


def _ranks(nodes: int, gpus_per_node: int) -> int:
    ranks = _whole("nodes", nodes) * _whole("gpus_per_node", gpus_per_node)
    if ranks < 2:
        raise ValueError("nodes is 1 and gpus_per_node is 1; at least two ranks together are needed")
    return ranks
