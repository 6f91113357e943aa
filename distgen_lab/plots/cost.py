"""Pictures of section 4: what messages and collectives cost, and which algorithm wins where."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter

from distgen_lab.alphabeta import Cost, Fit, Link, Pipelined, algorithms
from distgen_lab.plots.canvas import PALETTE, plain_frame
from distgen_lab.units import duration, quantity

__all__ = [
    "bus_bandwidth", "cost_curves", "fitted_line", "latency_shares", "measured_and_predicted", "meeting_points",
    "winner_map",
]  # fmt: skip

_STYLES = ("-", "--", "-.", ":")
_MOST_TICKS = 6


def algorithm_color(collective: str, algorithm: str) -> str:
    """The colour of an algorithm, the same in every picture of its collective."""
    colors = list(PALETTE.values())
    return colors[algorithms(collective).index(algorithm) % len(colors)]


def meeting_points(rows: Sequence[Cost | Pipelined], link: Link, sizes: Sequence[float]) -> list[tuple[float, float]]:
    """Return (bytes, seconds) of each point between the first and the last size at which another row becomes fastest.

    Args:
        rows: costs to compare; of equal ones the first counts.
        link: alpha and beta of every message.
        sizes: bytes, ascending, close enough that no row wins between two of them only.
    """
    times = np.stack([row.time(link, np.asarray(sizes, float)) for row in rows])
    best = _first_of_the_fastest(times)
    turns = np.flatnonzero(best[1:] != best[:-1])
    return [_turn(rows[best[k]], rows[best[k + 1]], link, float(sizes[k]), float(sizes[k + 1])) for k in turns]


def _first_of_the_fastest(times: np.ndarray) -> np.ndarray:
    """For each column the first row of least time; what differs by rounding only is equal."""
    return (times <= times.min(axis=0) * (1 + 1e-12)).argmax(axis=0)


def _turn(one: Cost | Pipelined, other: Cost | Pipelined, link: Link, low: float, high: float) -> tuple[float, float]:
    """Where between two sizes ``other`` overtakes ``one``, by bisection: before it they may be equal."""
    for _ in range(50):
        middle = math.sqrt(low * high)
        overtaken = other.time(link, middle) < one.time(link, middle) * (1 - 1e-12)
        low, high = (low, middle) if overtaken else (middle, high)
    return high, other.time(link, high)


def cost_curves(
    ax: Axes, rows: Iterable[Cost | Pipelined], link: Link, sizes: Sequence[float], nbytes: float | None = None
) -> Axes:
    """Draw time against size, a line per algorithm, with a dot where another one becomes the fastest.

    Args:
        ax: where to draw.
        rows: costs to compare.
        link: alpha and beta of every message.
        sizes: bytes, ascending.
        nbytes: one size to mark with a line, or None.
    """
    rows = list(rows)
    for row, style in zip(rows, cycle(_STYLES), strict=False):
        color = algorithm_color(row.collective, row.algorithm)
        ax.plot(sizes, row.time(link, np.asarray(sizes, float)), color=color, linestyle=style, label=row.algorithm)
    for size, seconds in meeting_points(rows, link, sizes):
        ax.plot(size, seconds, "o", color="black", markersize=5, zorder=4)
        ax.annotate(quantity(size, "B"), (size, seconds), xytext=(4, -12), textcoords="offset points", fontsize=9)
    if nbytes is not None:
        ax.axvline(nbytes, color=PALETTE["grey"], linestyle=":", linewidth=1.2)
    _sizes_and_times(ax)
    ax.legend(frameon=False, fontsize=8)
    return plain_frame(ax)


def winner_map(ax: Axes, names: np.ndarray, ranks: Sequence[int], sizes: Sequence[float], collective: str) -> Axes:
    """Draw which algorithm is the fastest, in colours, for each number of ranks (up) and each size (to the right).

    Args:
        ax: where to draw.
        names: what :func:`distgen_lab.alphabeta.winners` returns, of shape (len(ranks), len(sizes)).
        ranks, sizes: its rows and columns; sizes evenly spaced on a logarithmic scale.
        collective: what the algorithms do.

    Raises:
        ValueError: if ``names`` has another shape.
    """
    if np.shape(names) != (len(ranks), len(sizes)):
        raise ValueError(f"names has shape {np.shape(names)}; {(len(ranks), len(sizes))} is needed")
    present = [name for name in algorithms(collective) if name in names]
    number = np.vectorize(present.index, otypes=[int])(names)
    colors = [algorithm_color(collective, name) for name in present]
    norm = BoundaryNorm(np.arange(len(present) + 1) - 0.5, len(present))
    edges = np.sqrt(np.r_[sizes[0] ** 2 / sizes[1], sizes] * np.r_[sizes, sizes[-1] ** 2 / sizes[-2]])
    ax.pcolormesh(edges, np.arange(len(ranks) + 1), number, cmap=ListedColormap(colors), norm=norm)
    shown = range(0, len(ranks), -(-len(ranks) // _MOST_TICKS))
    ax.set_yticks([row + 0.5 for row in shown], [f"{ranks[row]}" for row in shown])
    ax.set(xscale="log", xlabel="n", ylabel="P")
    _byte_axis(ax)
    patches = [Patch(color=color, label=name) for color, name in zip(colors, present, strict=True)]
    tight = {"columnspacing": 0.8, "handlelength": 1, "handletextpad": 0.4}
    ax.legend(handles=patches, frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, **tight)
    return plain_frame(ax)


def fitted_line(
    ax: Axes, sizes: Sequence[float], times: Sequence[float], fit: Fit, label: str = "measured", color: str = "blue"
) -> Axes:
    """Draw measurements as dots and the fitted line, solid inside the range it was fitted on and dotted outside."""
    ax.plot(sizes, times, "o", color=PALETTE[color], markersize=4, label=label)
    inside = np.geomspace(max(fit.smallest, 1), fit.largest, 100)
    whole = np.geomspace(max(min(sizes), 1), max(sizes), 100)
    for x, style, width in ((whole, ":", 1.0), (inside, "-", 1.5)):
        ax.plot(x, fit.link.alpha + x * fit.link.beta, style, color=PALETTE[color], linewidth=width)
    _sizes_and_times(ax)
    ax.legend(frameon=False, fontsize=8)
    return plain_frame(ax)


def measured_and_predicted(ax: Axes, rows: Mapping[str, Sequence[tuple[float, float, float]]]) -> Axes:
    """Draw rows of (bytes, measured, predicted) for each label: dots measured, lines predicted."""
    for (label, points), color in zip(rows.items(), cycle(PALETTE.values()), strict=False):
        sizes, measured, predicted = zip(*sorted(points), strict=True)
        ax.plot(sizes, predicted, color=color, linewidth=1.2, label=label)
        ax.plot(sizes, measured, "o", color=color, markersize=5)
    _sizes_and_times(ax)
    ax.legend(frameon=False, fontsize=8)
    return plain_frame(ax)


def bus_bandwidth(
    ax: Axes,
    sizes: Sequence[float],
    measured: Mapping[str, Sequence[float]],
    models: Mapping[str, Sequence[float]] | None = None,
    line_rate: float | None = None,
) -> Axes:
    """Draw bus bandwidth (bytes/s) against size: hollow dots for what was recorded elsewhere, lines for models.

    Args:
        ax: where to draw.
        sizes: bytes.
        measured, models: bytes/s for each size, by label.
        line_rate: a link's bandwidth per direction to mark, or None.
    """
    colors = cycle(PALETTE.values())
    for (label, values), color in zip(measured.items(), colors, strict=False):
        ax.plot(sizes, values, "o", color=color, markerfacecolor="none", markersize=5, label=label)
    for (label, values), color in zip((models or {}).items(), colors, strict=False):
        ax.plot(sizes, values, color=color, label=label)
    if line_rate is not None:
        ax.axhline(line_rate, color=PALETTE["grey"], linestyle="--", linewidth=1, label="one link, per direction")
    ax.set(xscale="log", xlabel="n", ylabel="busbw", ylim=(0, None))
    _byte_axis(ax)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value, "B/s")))
    ax.legend(frameon=False, fontsize=8)
    return plain_frame(ax)


def latency_shares(ax: Axes, link: Link, sizes: Sequence[float]) -> Axes:
    """Draw one bar per message size, split into start-up and bytes, each as a share of the message's time."""
    labels = [f"{quantity(size, 'B')}, {duration(link.time(size))}" for size in sizes]
    waiting = [link.alpha / link.time(size) for size in sizes]
    ax.barh(labels, waiting, color=PALETTE["orange"], label="α: start-up")
    ax.barh(labels, [1 - share for share in waiting], left=waiting, color=PALETTE["blue"], label="nβ: bytes")
    ax.set(xlim=(0, 1), xlabel="share of the message's time")
    ax.xaxis.set_major_locator(FixedLocator([0, 0.5, 1]))
    ax.xaxis.set_major_formatter(PercentFormatter(1))
    ax.invert_yaxis()
    ax.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return plain_frame(ax)


def _sizes_and_times(ax: Axes) -> None:
    """Logarithmic axes in bytes and seconds with readable ticks."""
    ax.set(xscale="log", yscale="log", xlabel="n", ylabel="T")
    _byte_axis(ax)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    ax.yaxis.set_major_locator(LogLocator(numticks=6))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.grid(alpha=0.25)


def _byte_axis(ax: Axes) -> None:
    """Ticks at powers of ten, as many as fit, in bytes."""
    low, high = np.log10(ax.get_xlim())
    ax.xaxis.set_major_locator(LogLocator(numticks=6) if high - low < 8 else FixedLocator(10.0 ** np.arange(0, 19, 3)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value, "B")))
    ax.xaxis.set_minor_locator(NullLocator())
