"""Pictures of section 1: sizes, times and walls."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from distgen_lab.history import Landmark
from distgen_lab.plots.canvas import PALETTE, plain_frame
from distgen_lab.scale import ModelState, ThreeWalls
from distgen_lab.units import DAY, GB, HOUR, YEAR, duration, quantity

__all__ = [
    "PATIENCE", "bars", "landmarks", "model_states", "step_times", "three_walls", "training_times",
]  # fmt: skip

PATIENCE = YEAR / 4
"""A training run that takes longer counts as one that hits the compute wall."""


def landmarks(ax: Axes, rows: Iterable[Landmark]) -> Axes:
    """Draw parameters against year; unconfirmed figures are hollow."""
    rows = list(rows)
    for row in rows:
        face = PALETTE["blue"] if row.published else "none"
        ax.scatter(row.year, row.parameters, color=PALETTE["blue"], facecolor=face, zorder=3)
        ax.annotate(row.name, (row.year, row.parameters), xytext=(6, -4), textcoords="offset points", fontsize=9)
    ax.set(yscale="log", xlabel="year", ylabel="parameters", xlim=_with_room([row.year for row in rows]))
    ax.grid(axis="y", alpha=0.3)
    return plain_frame(ax)


def _with_room(years: Sequence[float]) -> tuple[float, float]:
    """Limits with room for the name to the right of the last dot."""
    return min(years) - 0.5, max(years) + 0.25 * (max(years) - min(years)) + 0.5


def training_times(ax: Axes, devices: Sequence[int], seconds: dict[str, Sequence[float]]) -> Axes:
    """Draw training time against the number of devices, one line per label, with a month and a year marked."""
    for (label, values), color in zip(seconds.items(), cycle(PALETTE.values()), strict=False):
        ax.plot(devices, [value / DAY for value in values], color=color, label=label, marker="o", markersize=3)
    for name, mark in (("a month", 30.0), ("a year", YEAR / DAY)):
        ax.axhline(mark, color=PALETTE["grey"], linewidth=0.8, linestyle=":")
        ax.annotate(name, (devices[-1], mark), xytext=(0, 3), textcoords="offset points", ha="right", fontsize=8)
    ax.set(xscale="log", yscale="log", xlabel="devices", ylabel="training time in days")
    ax.legend(frameon=False)
    return plain_frame(ax)


def model_states(ax: Axes, states: dict[str, ModelState], device_memory: float) -> Axes:
    """Draw weights, gradients and optimiser state stacked, one bar per label, and one device's memory as a line."""
    labels, left = list(states), [0.0] * len(states)
    for part, color in (("weights", "blue"), ("gradients", "orange"), ("optimizer", "green")):
        sizes = [getattr(state, part) / GB for state in states.values()]
        ax.barh(labels, sizes, left=left, color=PALETTE[color], label=part)
        left = [a + b for a, b in zip(left, sizes, strict=True)]
    ax.axvline(device_memory / GB, color=PALETTE["red"], linestyle="--", label="one device")
    ax.set(xlabel="GB")
    ax.invert_yaxis()
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    return plain_frame(ax)


def bars(
    ax: Axes, values: dict[str, float], unit: str, limit: tuple[str, float] | None = None, log: bool = False
) -> Axes:
    """Draw one labelled horizontal bar per entry; on a logarithmic scale a dot, for there a length means nothing."""
    if log:
        ax.plot(list(values.values()), list(values), "o", color=PALETTE["blue"])
        ax.grid(axis="x", alpha=0.3)
    else:
        ax.barh(list(values), list(values.values()), color=PALETTE["blue"])
    for name, value in values.items():
        ax.annotate(quantity(value, unit), (value, name), xytext=(8, 0), textcoords="offset points", va="center")
    if limit:
        ax.axvline(limit[1], color=PALETTE["red"], linestyle="--", label=limit[0])
        ax.legend(frameon=False, fontsize=8, loc="lower right")
    ax.set_xscale("log" if log else "linear")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value, unit)))
    ax.margins(x=0.2, y=0.12)
    ax.invert_yaxis()
    return plain_frame(ax)


def step_times(ax: Axes, devices: Sequence[int], seconds: dict[str, Sequence[float]]) -> Axes:
    """Draw seconds of a step's parts against the number of devices, one line per label."""
    for (label, values), color in zip(seconds.items(), cycle(PALETTE.values()), strict=False):
        ax.plot(devices, values, color=color, label=label)
    ax.set(xscale="log", yscale="log", xlabel="devices", ylabel="seconds a step")
    ax.legend(frameon=False)
    return plain_frame(ax)


def three_walls(panels: Sequence[Axes], walls: ThreeWalls) -> None:
    """Draw memory per device, training time, and one step's compute against communication, on axes that stay put."""
    memory, compute, network = panels
    needed = {"needed": walls.per_device, "available": walls.device_memory}
    _wall(memory, "Memory of one device", needed, [1e6 * 1e3**i for i in range(4)], partial(quantity, unit="B"))
    _verdict(memory, walls.fits)
    marks = [HOUR, DAY, 30 * DAY, YEAR, 100 * YEAR, 1e4 * YEAR]
    _wall(compute, "Time to train", {"training": walls.seconds}, marks, duration)
    _verdict(compute, walls.seconds < PATIENCE)
    step = {"compute": walls.step_compute, "all-reduce": walls.step_communication}
    _wall(network, "One step", step, [1e-3, 1.0, 60.0, HOUR, DAY], duration)
    _verdict(network, walls.step_communication < walls.step_compute)


def _wall(ax: Axes, title: str, values: dict[str, float], marks: Sequence[float], show: Callable[[float], str]) -> None:
    """One wall: labelled bars on a logarithmic scale that spans ``marks``."""
    ax.set_yscale("log", nonpositive="clip")
    floor = marks[0] / 10
    tops = [max(value, floor * 1.1) for value in values.values()]
    shown = ax.bar(range(len(values)), tops, color=PALETTE["grey"], width=0.6)
    ax.bar_label(shown, [show(value) for value in values.values()], fontsize=10, padding=2)
    ax.set_xticks(range(len(values)), list(values))
    ax.set_yticks(marks, [show(mark) for mark in marks])
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set(title=title, ylim=(floor, marks[-1] * 30), xlim=(-0.6, max(1, len(values) - 1) + 0.6))
    ax.grid(axis="y", alpha=0.3)
    plain_frame(ax).set_axisbelow(True)


def _verdict(ax: Axes, passed: bool) -> None:
    """Colour the first bar, and say in words whether the wall is passed."""
    color = PALETTE["green"] if passed else PALETTE["red"]
    ax.patches[0].set_facecolor(color)
    ax.set_title(f"{ax.get_title()}: {'passed' if passed else 'a wall'}", color=color, fontsize=11)
