"""Demo: a network of a family and size of your choice: a shortest path, its bisection, an all-reduce round by round."""

from dataclasses import dataclass
from functools import lru_cache

from matplotlib.figure import Figure

from distgen_lab import plots, topology
from distgen_lab.collectives import Schedule, rabenseifner_all_reduce, ring_all_reduce
from distgen_lab.demos.panel import Panel, menu, panel, whole
from distgen_lab.simulate import Price, price
from distgen_lab.topology import Topology
from distgen_lab.units import duration, quantity

__all__ = ["ALGORITHMS", "FAMILIES", "NBYTES", "VIEWS", "View", "data", "draw", "topology_explorer", "words"]

FAMILIES = {
    "line": (topology.line, (8, 16, 32, 64)),
    "ring": (topology.ring, (8, 16, 32, 64)),
    "2D torus": (lambda side: topology.torus((side, side)), (3, 4, 6, 8)),
    "3D torus": (lambda side: topology.torus((side,) * 3), (2, 3, 4)),
    "hypercube": (topology.hypercube, (3, 4, 5, 6)),
    "fat-tree": (topology.fat_tree, (2, 4, 6)),
    "fat-tree, oversubscribed": (lambda k: topology.fat_tree(k, k // 2), (4, 6, 8)),
    "dragonfly": (lambda a: topology.dragonfly(a, a // 2, a // 2), (2, 4)),
    "DGX-1V": (lambda _: topology.dgx1v(), (8,)),
}
"""How each family is built from a size, and the sizes on offer, smallest first."""
VIEWS = ("shortest path", "bisection cut", "all-reduce")
ALGORITHMS = {
    "ring": ring_all_reduce,
    "halving, near first": lambda ranks: rabenseifner_all_reduce(ranks, near_first=True),
    "halving, far first": lambda ranks: rabenseifner_all_reduce(ranks, near_first=False),
}
"""All-reduce algorithms by what the demo calls them."""
NBYTES = 64e6
"""Bytes of the vector that the demo all-reduces."""
PRESETS = {
    "a ring is cut by two": {"family": "ring", "size": 2, "show": "bisection cut"},
    "a torus by more": {"family": "2D torus", "size": 3, "show": "bisection cut"},
    "a fat-tree": {"family": "fat-tree", "size": 2, "show": "shortest path", "target": 15},
    "oversubscribed": {"family": "fat-tree, oversubscribed", "size": 1, "show": "all-reduce", "algorithm": "ring"},
    "far first": {"family": "ring", "size": 2, "show": "all-reduce", "algorithm": "halving, far first"},
    "near first": {"family": "ring", "size": 2, "show": "all-reduce", "algorithm": "halving, near first"},
}
"""Buttons for a lecture."""


@dataclass(frozen=True)
class View:
    """What the demo shows: a network, what to show of it, both hosts of the path, and the round of the all-reduce."""

    network: Topology
    show: str
    source: int
    target: int
    algorithm: str
    number: int

    @property
    def path(self) -> list:
        """The route from source to target."""
        return self.network.route(self.source, self.target)

    @property
    def price(self) -> Price:
        """The all-reduce on the network."""
        return _priced(self.network, self.algorithm)


@lru_cache(maxsize=64)
def _built(family: str, size: int) -> Topology:
    """The network, built once: what it finds out about itself stays with it."""
    return FAMILIES[family][0](size)


@lru_cache(maxsize=64)
def _priced(network: Topology, algorithm: str) -> Price:
    schedule: Schedule = ALGORITHMS[algorithm](network.hosts)
    return price(schedule, network, NBYTES)


@lru_cache(maxsize=64)
def _heaviest(network: Topology, algorithm: str) -> float:
    """The most bytes on a directed link in any round, so that all rounds share one scale of colours."""
    priced = _priced(network, algorithm)
    kinds = {id(messages): (messages, number) for number, messages in enumerate(priced.schedule.messages())}
    return max(max(priced.round_loads(number).values()) for _, number in kinds.values())


def data(family: str, size: int, show: str, source: int, target: int, algorithm: str, number: int) -> View:
    """Return what to show.

    Args:
        family: one of ``FAMILIES``.
        size: 1 is the smallest on offer; one too large counts as the largest.
        show: one of ``VIEWS``.
        source, target: hosts of the path, counted on from 0 again where there are fewer.
        algorithm: one of ``ALGORITHMS``.
        number: the round; one too large counts as the last.

    Raises:
        ValueError: for a family, view or algorithm that is not on offer.
    """
    offers = {"family": (family, FAMILIES), "show": (show, VIEWS), "algorithm": (algorithm, ALGORITHMS)}
    for name, (value, known) in offers.items():
        if value not in known:
            raise ValueError(f"{name} is {value!r}; there are: {', '.join(known)}")
    sizes = FAMILIES[family][1]
    network = _built(family, sizes[min(max(size, 1), len(sizes)) - 1])
    last = len(_priced(network, algorithm).rounds) - 1
    return View(network, show, source % network.hosts, target % network.hosts, algorithm, min(max(number, 0), last))


def draw(figure: Figure, view: View) -> None:
    """Draw the network on the left, and beside it its distances or the time of each round."""
    layout = {"left": 0.01, "right": 0.98, "top": 0.9, "bottom": 0.16, "wspace": 0.28}
    left, right = figure.subplots(1, 2, width_ratios=[1.7, 1], gridspec_kw=layout)
    if view.show == "all-reduce":
        most = _heaviest(view.network, view.algorithm)
        plots.network(left, view.network, loads=view.price.round_loads(view.number), most=most)
        plots.round_times(right, view.price.rounds.tolist(), view.number)
        right.set_title(f"{view.algorithm}: seconds a round", fontsize=9)
        return
    if view.show == "bisection cut":
        plots.network(left, view.network, cut=view.network.bisection())
    else:
        plots.network(left, view.network, path=view.path)
    plots.distances(right, view.network, len(view.path) - 1 if view.show == "shortest path" else None)
    right.get_legend().set_loc("upper right")  # where it stays, whatever the bars do
    right.set_title("distances", fontsize=9)


def words(view: View) -> str:
    """Say in one or two sentences what the picture shows."""
    network = view.network
    if view.show == "shortest path":
        hops, nodes = len(view.path) - 1, " - ".join(map(_name, view.path))
        return (
            f"{network.name}: {hops} hop{'s' * (hops != 1)} from {view.source} to {view.target} ({nodes}); diameter "
            f"{network.diameter()}, {float(network.average_distance()):.2f} hops on average."
        )
    if view.show == "bisection cut":
        cut = network.bisection()
        return (
            f"{network.name}: {cut.width} of {network.cables} cables join the two halves, "
            f"{quantity(network.bisection_bandwidth(), 'B/s')} in one direction. "
            + (f"Proved: {cut.method}." if cut.proven else f"At least {cut.lower_bound} are needed: {cut.method}.")
        )
    loads, rounds = view.price.round_loads(view.number), view.price.rounds
    here, there = max(loads, key=loads.__getitem__)
    return (
        f"{network.name}, {view.algorithm}, {quantity(NBYTES, 'B')}: round {view.number} (of {len(rounds)}) takes "
        f"{duration(float(rounds[view.number]))}; its busiest link, {_name(here)} to {_name(there)}, carries "
        f"{quantity(loads[here, there], 'B')}. All rounds together: {duration(view.price.seconds)}."
    )


def _name(node: object) -> str:
    return str(node) if isinstance(node, int) else f"{node[0]} {'.'.join(map(str, node[1:]))}"


def topology_explorer(large: bool = False) -> Panel:
    """Return the demo: show it by making it the last line of a cell; in large type for a projector."""
    controls = {
        "family": menu("family", FAMILIES, "2D torus"),
        "size": whole("size", 1, max(len(sizes) for _, sizes in FAMILIES.values()), 2),
        "show": menu("show", VIEWS, "bisection cut"),
        "source": whole("path from", 0, 63, 0),
        "target": whole("path to", 0, 63, 10),
        "algorithm": menu("all-reduce", ALGORITHMS),
        "number": whole("round", 0, 29, 0),
    }
    return panel(controls, data, draw, words, (8.6, 3.9), PRESETS, large)
