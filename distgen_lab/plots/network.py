"""Pictures of section 3: networks with their loads, paths and cuts, distances, and the rounds of a schedule."""

from collections.abc import Hashable, Mapping, Sequence
from io import BytesIO
from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from distgen_lab.plots.canvas import PALETTE, plain_frame
from distgen_lab.topology import Bisection, Topology
from distgen_lab.units import duration

__all__ = ["distances", "light", "network", "panels", "round_times"]

_FAINT = "#BBBBBB"
_HEAT = LinearSegmentedColormap.from_list("load", ["#A9CCE3", PALETTE["sky"], PALETTE["blue"], PALETTE["red"]])
_ARROWS = 40  # loaded links that still get an arrow head
_COLORS = 48  # of a picture that is saved with a palette


class _LightCanvas(FigureCanvasAgg):
    """Saves a PNG with a palette of a few colours instead of four bytes a pixel."""

    def print_png(self, filename_or_obj: Any, **options: Any) -> None:
        full = BytesIO()
        super().print_png(full, metadata=options.get("metadata"), pil_kwargs=options.get("pil_kwargs"))
        picture = Image.open(full).convert("RGB")
        picture = picture.quantize(_COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        picture.save(filename_or_obj, format="PNG", optimize=True)


def light(figure: Figure) -> Figure:
    """Let the figure save itself as PNG with a palette of 48 colours: a drawing of lines then takes a quarter."""
    _LightCanvas(figure)
    return figure


def panels(columns: int = 1, rows: int = 1, height: float = 2.6, widths: Sequence[float] | None = None) -> list[Axes]:
    """Return the axes of a new figure in the course's width, row by row, for networks side by side.

    Args:
        columns, rows: how many axes.
        height: of the figure in inches.
        widths: relative widths of the columns.
    """
    figure = light(plt.figure(figsize=(6.6, height), dpi=85, layout="constrained"))
    return list(figure.subplots(rows, columns, squeeze=False, width_ratios=widths).flat)


def network(
    ax: Axes,
    topology: Topology,
    loads: Mapping[tuple[Hashable, Hashable], float] | None = None,
    most: float | None = None,
    path: Sequence[Hashable] = (),
    cut: Bisection | None = None,
) -> Axes:
    """Draw a network: hosts as circles, switches as squares, a link as wide as it has cables.

    Args:
        ax, topology: where to draw what.
        loads: bytes over each directed link, as ``Price.loads`` has them. A link has the colour and width of its busier
            direction, with an arrow that way while there are few; unused links stay thin and grey.
        most: the load that the full colour stands for; the largest one unless given.
        path: nodes of a route (or a closed ring) to highlight.
        cut: a bisection: its links are red and dashed, one half of the nodes is filled, the other hollow.

    Raises:
        ValueError: for a path or a load that follows no link of the network.
    """
    places = topology.positions()
    steps = [*pairwise(path), *(loads or {})]
    missing = [step for step in steps if not topology.graph.has_edge(*step)]
    if missing:
        raise ValueError(f"{topology.name} has no link from {missing[0][0]} to {missing[0][1]}; a neighbour is needed")
    gap = _frame(ax, places)
    _links(ax, topology, places, faint=loads is not None or cut is not None or bool(path))
    if loads:
        _loaded(ax, places, loads, most or max(loads.values()))
    if cut:
        crossing = [(places[u], places[v]) for u, v, _ in cut.cut]
        ax.add_collection(LineCollection(crossing, colors=PALETTE["red"], linewidths=1.8, linestyles="--", zorder=3))
    if path:
        _highlighted(ax, places, path)
    _nodes(ax, topology, places, gap, path, cut)
    ax.set_title(topology.name, fontsize=9)
    return ax


def _frame(ax: Axes, places: dict) -> float:
    """Make room for all nodes; return how far the nearest two are apart, in points."""
    spots = np.array(list(places.values()))
    spread = np.ptp(spots, axis=0)
    ax.set_aspect("equal" if 0.4 < spread[0] / max(spread[1], 1e-9) < 2.5 else "auto", adjustable="box")
    low, room = spots.min(axis=0), np.maximum(spread, 0.25 * spread.max() or 1.0)
    low = low - 0.5 * (room - spread) - 0.09 * room
    ax.set(xlim=(low[0], low[0] + 1.18 * room[0]), ylim=(low[1], low[1] + 1.18 * room[1]))
    ax.axis("off")
    pixels = np.array([ax.bbox.width, ax.bbox.height]) / (1.18 * room)
    if ax.get_aspect() != "auto":
        pixels[:] = pixels.min()
    return _nearest(spots * pixels) * 72 / ax.figure.dpi


def _nearest(spots: np.ndarray) -> float:
    """The least distance between two of the first thousand spots."""
    apart = np.hypot(*(column[:, None] - column for column in spots[:1000].T))
    np.fill_diagonal(apart, np.inf)
    return float(apart.min())


def _links(ax: Axes, topology: Topology, places: dict, faint: bool) -> None:
    """Every link, two and more cables wider than one."""
    rows = [(places[u], places[v], links) for u, v, links in topology.graph.edges(data="links")]
    widths = [(0.6 if faint else 0.9) * min(links, 4) ** 0.7 for *_, links in rows]
    color = _FAINT if faint else PALETTE["grey"]
    ax.add_collection(LineCollection([row[:2] for row in rows], colors=color, linewidths=widths, zorder=1))


def _loaded(ax: Axes, places: dict, loads: Mapping, most: float) -> None:
    """Links in the colour and width of their busier direction, the busiest on top."""
    busier = {(u, v): load for (u, v), load in loads.items() if load > 0 and load >= loads.get((v, u), 0.0)}
    rows = sorted(busier.items(), key=lambda row: row[1])
    shares = [min(1.0, load / most) for _, load in rows]
    ends = [(places[u], places[v]) for (u, v), _ in rows]
    widths = [0.8 + 3.2 * share for share in shares]
    ax.add_collection(LineCollection(ends, colors=_HEAT(shares), linewidths=widths, zorder=2))
    both = {frozenset(edge) for edge in busier if (edge[1], edge[0]) in busier}
    for (u, v), _ in rows if len(rows) <= _ARROWS else ():
        if frozenset((u, v)) not in both:
            _arrow(ax, places[u], places[v])


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """An arrow head a little after the middle of a link."""
    tip = tuple(a + 0.62 * (b - a) for a, b in zip(start, end, strict=True))
    style = {"arrowstyle": "-|>", "mutation_scale": 9, "color": "#222222", "linewidth": 0, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", tip, start, arrowprops=style, zorder=3)


def _highlighted(ax: Axes, places: dict, path: Sequence[Hashable]) -> None:
    """A route as one thick line."""
    xs, ys = zip(*(places[node] for node in path), strict=True)
    ax.plot(xs, ys, color=PALETTE["orange"], linewidth=4, solid_capstyle="round", solid_joinstyle="round", zorder=3)


def _nodes(
    ax: Axes, topology: Topology, places: dict, gap: float, path: Sequence[Hashable], cut: Bisection | None
) -> None:
    """Circles and squares as large as fit; with a cut one half is filled, on a path both ends are."""
    wide = min(max(0.85 * gap, 2.5), 11.0)
    ends = {path[0], path[-1]} if path else set()
    hosts = list(range(topology.hosts))
    switches = [node for node in topology.graph if node not in set(hosts)]
    for marker, color, nodes in (("s", PALETTE["grey"], switches), ("o", PALETTE["blue"], hosts)):
        filled = cut.side if cut else ends if path else set(nodes)
        faces = [(PALETTE["orange"] if node in ends else color) if node in filled else "white" for node in nodes]
        xs, ys = [places[node][0] for node in nodes], [places[node][1] for node in nodes]
        area = (0.7 * wide if marker == "s" else wide) ** 2
        ax.scatter(xs, ys, s=area, marker=marker, c=faces, edgecolors=color, linewidths=0.9, zorder=4)
        if marker == "o" and wide >= 6.5:
            _numbers(ax, places, nodes, faces, 0.58 * wide)


def _numbers(ax: Axes, places: dict, hosts: Sequence[int], faces: Sequence[str], size: float) -> None:
    """The number of each host on its circle."""
    for host, face in zip(hosts, faces, strict=True):
        ink = "white" if face == PALETTE["blue"] else "black"
        ax.annotate(str(host), places[host], ha="center", va="center", fontsize=size, color=ink, zorder=5)


def distances(ax: Axes, topology: Topology, mark: int | None = None) -> Axes:
    """Draw how many ordered pairs of hosts are 1, 2, ... hops apart; ``mark`` is highlighted, the mean is a line."""
    counts = topology.distance_counts()[1:]
    colors = [PALETTE["orange"] if hops == mark else PALETTE["sky"] for hops in range(1, len(counts) + 1)]
    ax.bar(range(1, len(counts) + 1), counts, color=colors)
    mean = float(topology.average_distance())
    ax.axvline(mean, color=PALETTE["red"], linestyle="--", label=f"mean {mean:.2f}")
    ax.set(xlabel="hops", ylabel="ordered pairs of hosts")
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.legend(frameon=False, fontsize=8)
    return plain_frame(ax)


def round_times(ax: Axes, seconds: Sequence[float], mark: int | None = None) -> Axes:
    """Draw the seconds of each round of a schedule, from round 0; the round ``mark`` is highlighted."""
    edges = [number - 0.5 for number in range(len(seconds) + 1)]
    ax.stairs(seconds, edges, fill=True, color=PALETTE["sky"])
    if mark is not None:
        ax.stairs([seconds[mark]], [mark - 0.5, mark + 0.5], fill=True, color=PALETTE["orange"])
    ax.set_ylim(0, 1.06 * max(seconds, default=0.0) or 1.0)
    ax.set(xlabel="round", ylabel="time")
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    return plain_frame(ax)
