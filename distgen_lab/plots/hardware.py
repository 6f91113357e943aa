"""Pictures of section 2: roofs and what stands under them, memory levels, warps, occupancy, systolic arrays."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from distgen_lab.hardware import Accelerator
from distgen_lab.plots.canvas import CLEAR, PALETTE, plain_frame
from distgen_lab.roofline import Placement, Roof, Work, place
from distgen_lab.simt import WarpRun
from distgen_lab.systolic import DATAFLOWS, State
from distgen_lab.units import quantity

__all__ = [
    "bandwidth_curve", "memory_levels", "occupancy_curve", "product_so_far", "roofline", "systolic",
    "warp",
]  # fmt: skip

_COLORS = ("blue", "orange", "green", "red", "purple", "sky")
_INTENSITIES = (1e-2, 1e4)


def roofline(
    ax: Axes, roofs: Roof | Sequence[Roof], works: Iterable[Work | Placement] = (), levels: Sequence[str] = ("",),
    intensities: tuple[float, float] = _INTENSITIES,
) -> Axes:  # fmt: skip
    """Draw roofs and the operations under the first of them.

    An operation that was measured stands where it came to, one that was not on the roof; one without FLOP stands at
    the left edge as an arrow. A roof has a slope for each of ``levels`` ("" for the outermost).
    """
    roofs = [roofs] if isinstance(roofs, Roof) else list(roofs)
    for color, over in zip(cycle(_COLORS), roofs, strict=False):
        for style, level in zip(cycle(("-", "--", ":", "-.")), levels, strict=False):
            name = level or over.levels[-1]
            label = f"{over.name} {over.precision}, {name}" if len(roofs) * len(levels) > 1 else None
            xs = sorted({*intensities, min(max(over.ridge(level), intensities[0]), intensities[1])})
            heights = [over.attainable(x, level) for x in xs]
            ax.plot(xs, heights, style, color=PALETTE[color], linewidth=1.6, label=label)
    for number, work in enumerate(works):
        _dot(ax, work if isinstance(work, Placement) else place(work, roofs[0], levels[0]), intensities, number)
    _log_log(ax, intensities)
    if len(roofs) * len(levels) > 1:
        ax.legend(frameon=False, fontsize=8, loc="lower right")
    return plain_frame(ax)


def _dot(ax: Axes, placed: Placement, intensities: tuple[float, float], number: int) -> None:
    """One operation, its name beside it; names along the flat part lie at different heights."""
    x = max(placed.work.intensity, intensities[0])
    seen = x == placed.work.intensity
    y = (placed.achieved if placed.measured else placed.attainable) if seen else placed.roof.attainable(x)
    color = PALETTE["green" if placed.limit == "compute" else "red"]
    ax.plot(x, y, "o" if seen else "<", color=color, zorder=3, clip_on=False)
    right = x < intensities[1] / 50  # a name on the right must still fit into the picture
    below = -11 - (9 * (number % 3) if placed.limit == "compute" else 0)
    away = (7 if right else -7, below if seen else 3)
    side = {"ha": "left" if right else "right", "fontsize": 8, "textcoords": "offset points"}
    ax.annotate(placed.work.name, (x, y), xytext=away, **side)


def _log_log(ax: Axes, intensities: tuple[float, float]) -> None:
    """Logarithmic axes with quantities."""
    ax.set(xscale="log", yscale="log", xlim=intensities, xlabel="arithmetic intensity, FLOP/B")
    ax.set_ylabel("FLOP/s")
    _calm(ax)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.7g}"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value, "")))
    ax.grid(alpha=0.25)


def _calm(ax: Axes) -> None:
    """No minor ticks: they say nothing over so many decades, and take most of the time to draw."""
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())


def bandwidth_curve(
    ax: Axes, working_sets: Sequence[float], bandwidths: Sequence[float], caches: Mapping[str, float] | None = None
) -> Axes:
    """Draw bytes/s against the bytes that a loop touches; the sizes of ``caches`` stand as lines."""
    ax.plot(working_sets, bandwidths, "o-", color=PALETTE["blue"], markersize=4)
    for name, size in (caches or {}).items():
        ax.axvline(size, color=PALETTE["grey"], linewidth=0.8, linestyle=":")
        ax.annotate(name, (size, 0), xytext=(3, 4), textcoords="offset points", fontsize=8, rotation=90)
    ax.set(xscale="log", ylim=(0, None), xlabel="working set", ylabel="bandwidth")
    _calm(ax)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value, "B")))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value, "B/s")))
    ax.grid(alpha=0.25)
    return plain_frame(ax)


def memory_levels(ax: Axes, devices: Iterable[Accelerator]) -> Axes:
    """Draw bandwidth against size of each device's memory levels whose bandwidth is published."""
    sides = cycle((((-6, -8), "right"), ((6, 5), "left")))  # names stand away from the line of the next device
    for color, (away, side), device in zip(cycle(_COLORS), sides, devices, strict=False):
        levels = [level for level in device.levels if level.bandwidth]
        points = [[getattr(level, name) for level in levels] for name in ("size", "bandwidth")]
        ax.plot(*points, "o-", color=PALETTE[color], label=device.name, markersize=5)
        for level in levels:
            where = (level.size, level.bandwidth)
            style = {"textcoords": "offset points", "ha": side, "fontsize": 8, "color": PALETTE[color]}
            ax.annotate(level.name, where, xytext=away, **style)
    ax.set(xscale="log", yscale="log", xlabel="size", ylabel="bandwidth")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value, "B")))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value, "B/s")))
    ax.margins(x=0.5, y=0.15)
    _calm(ax)
    ax.legend(frameon=False, fontsize=8, loc="upper right")
    return plain_frame(ax)


def warp(ax: Axes, done: WarpRun) -> Axes:
    """Draw a warp over time: a column a cycle, a row a lane, filled where the lane takes part."""
    colors = ListedColormap(["#E8E8E8", PALETTE["blue"]])
    ax.imshow(done.masks().T, cmap=colors, vmin=0, vmax=1, aspect="auto", interpolation="nearest",
              extent=(0, done.cycles, done.lanes - 0.5, -0.5))  # fmt: skip
    for issue in done.issues:
        ax.axvline(issue.start, color="white", linewidth=0.8)
    long = [issue for issue in done.issues if issue.cycles >= done.cycles / 12]
    for issue in long:
        where = (issue.start + issue.cycles / 2, done.lanes - 0.5)
        ax.annotate(issue.label, where, xytext=(0, 4), textcoords="offset points", ha="center", fontsize=8,
                    xycoords="data", annotation_clip=False, va="bottom", color="black",
                    bbox=CLEAR)  # fmt: skip
    ax.set(xlabel="cycle", ylabel="lane", xlim=(0, max(done.cycles, 1)))
    ax.set_title(f"{done.cycles} cycles, {done.efficiency:.0%} of the lanes at work", fontsize=10)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return ax


def occupancy_curve(ax: Axes, curves: Mapping[str, Mapping[int, float]], xlabel: str) -> Axes:
    """Draw occupancy against a resource of a block, one staircase a label (see the sweeps of occupancy)."""
    for color, (label, curve) in zip(cycle(_COLORS), curves.items(), strict=False):
        ax.step(list(curve), list(curve.values()), where="post", color=PALETTE[color], label=label)
    ax.set(xlabel=xlabel, ylabel="occupancy", ylim=(0, 1.05))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    ax.grid(alpha=0.25)
    if len(curves) > 1:
        ax.legend(frameon=False, fontsize=8)
    return plain_frame(ax)


def systolic(ax: Axes, state: State) -> Axes:
    """Draw the cells of a systolic array: what stays in bold, what moves beside arrows; cells at work are filled."""
    rows, cols = state.held.shape
    for i, j in np.ndindex(rows, cols):
        face = PALETTE["sky"] if state.active[i, j] else "white"
        ax.add_patch(Rectangle((j, i), 1, 1, facecolor=face, edgecolor=PALETTE["grey"], alpha=0.9))
        ax.text(j + 0.5, i + 0.34, f"{state.held[i, j]:g}", ha="center", va="center", weight="bold", fontsize=10)
        if state.active[i, j]:
            moving = f"→{state.left[i, j]:g}  ↓{state.down[i, j]:g}"
            ax.text(j + 0.5, i + 0.74, moving, ha="center", va="center", fontsize=8)
    ax.set(xlim=(-0.02, cols + 0.02), ylim=(rows + 0.02, -0.02), aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    stays = "weights" if state.dataflow == DATAFLOWS[0] else "sums"
    working = f"cycle {state.cycle}: {int(state.active.sum())} of {rows * cols} cells work"
    ax.set_title(f"{working}; {stays} stay", fontsize=10)
    return ax


def product_so_far(ax: Axes, state: State) -> Axes:
    """Draw the results that are complete; the others are empty."""
    rows, cols = state.finished.shape
    for i, j in np.ndindex(rows, cols):
        done = not math.isnan(state.finished[i, j])
        face = PALETTE["green"] if done else "white"
        ax.add_patch(Rectangle((j, i), 1, 1, facecolor=face, edgecolor=PALETTE["grey"], alpha=0.5 if done else 1))
        if done:
            ax.text(j + 0.5, i + 0.5, f"{state.finished[i, j]:g}", ha="center", va="center", fontsize=9)
    ax.set(xlim=(-0.02, cols + 0.02), ylim=(rows + 0.02, -0.02), aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.set_title("product so far", fontsize=10)
    return ax
