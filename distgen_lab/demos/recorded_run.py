"""Demo: all-reduces on eight or sixteen GPUs as nccl-tests recorded them, replayed size by size."""

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from distgen_lab import plots
from distgen_lab.alphabeta import BUS_FACTORS, Link, fit
from distgen_lab.demos.panel import Panel, menu, panel, stamp, whole
from distgen_lab.nccl_recorded import Sweep, recorded
from distgen_lab.units import GB, duration, quantity

__all__ = ["RUNS", "VIEWS", "Replay", "data", "draw", "recorded_run", "words"]

RUNS = ("A100", "H100", "H200", "B200", "2 x A100", "2 x H100")
"""Recorded sweeps."""
VIEWS = ("bus bandwidth", "time")
FEWEST = 3
"""Sizes that a fit of alpha and beta needs."""
STEPS = 32
SIZE = (9, 4.0)
"""Inches of the picture."""
PRESETS = {
    "small messages": {"step": 12, "view": VIEWS[1]},
    "the whole sweep": {"step": STEPS},
    "one node, two nodes": {"step": STEPS, "beside": "2 x H100"},
    "H100, H200": {"step": STEPS, "beside": "H200"},
    "H100, B200": {"step": STEPS, "beside": "B200"},
    "the same as times": {"step": STEPS, "beside": "B200", "view": VIEWS[1]},
}
"""Buttons for a lecture."""


@dataclass(frozen=True)
class Replay:
    """Recorded sweeps up to a size.

    Attributes:
        view: one of :data:`VIEWS`.
        sweep: what is replayed.
        sizes: how many sizes of it are shown.
        link: alpha and beta that fit them, None for fewer than three.
        beside: another sweep, shown whole, or None.
    """

    view: str
    sweep: Sweep
    sizes: int
    link: Link | None
    beside: Sweep | None


def data(run: str, step: int, view: str, beside: str) -> Replay:
    """Return a recorded run up to a step: 1 is its first size, a step past the last is the last.

    Raises:
        ValueError: for a run or view that is not on offer, or a step below 1.
    """
    if view not in VIEWS:
        raise ValueError(f"view is {view!r}; there are: {', '.join(VIEWS)}")
    if step < 1:
        raise ValueError(f"step is {step}; 1 or more is needed")
    sweep = recorded(run)
    sizes = min(step, len(sweep.bytes))
    link = fit(sweep.bytes[:sizes], sweep.seconds[:sizes]).link if sizes >= FEWEST else None
    return Replay(view, sweep, sizes, link, None if beside == "nothing" else recorded(beside))


def draw(figure: Figure, replay: Replay) -> None:
    """Draw what was recorded as dots and the fitted line; the axes stay where they are."""
    ax = figure.add_axes((0.11, 0.15, 0.87, 0.72))
    sweep, blue = replay.sweep, plots.PALETTE["blue"]
    if replay.beside:
        grey = plots.PALETTE["grey"]
        ax.plot(replay.beside.bytes, _shown(replay, replay.beside), "s", color=grey, markerfacecolor="none",
                markersize=5, label=_label(replay.beside))  # fmt: skip
    dots = _shown(replay, sweep)[: replay.sizes]
    ax.plot(sweep.bytes[: replay.sizes], dots, "o", color=blue, markersize=6, label=_label(sweep))
    ax.plot(sweep.bytes[replay.sizes - 1], dots[-1], "o", color=plots.PALETTE["red"], markersize=10)
    if replay.link:
        ax.plot(sweep.bytes, _fitted(replay), "--", color=plots.PALETTE["orange"], label="α + n β, fitted to the dots")
    _axes(ax, replay)
    figure.text(0.11, 0.94, f"nccl-tests, all-reduce: {sweep.machine}", fontsize=11, va="center")
    stamp(figure, "recorded")


def _shown(replay: Replay, sweep: Sweep) -> tuple[float, ...]:
    return sweep.busbw if replay.view == VIEWS[0] else sweep.seconds


def _factor(sweep: Sweep) -> float:
    """busbw over algbw."""
    return float(BUS_FACTORS[sweep.collective](sweep.ranks))


def _label(sweep: Sweep) -> str:
    return f"{sweep.name}, {sweep.ranks} GPUs"


def _fitted(replay: Replay) -> list[float]:
    """The fitted line in the quantity that is shown."""
    sweep = replay.sweep
    seconds = [replay.link.time(n) for n in sweep.bytes]
    factor = _factor(sweep)
    return seconds if replay.view == VIEWS[1] else [factor * n / s for n, s in zip(sweep.bytes, seconds, strict=True)]


def _axes(ax: Axes, replay: Replay) -> None:
    """The same axes for every run and step."""
    ax.set(xscale="log", xlabel="n", xlim=(4, 4e10))
    ax.set_xticks([8, 1e3, 1e6, 1e9], ["8 B", "1 kB", "1 MB", "1 GB"])
    if replay.view == VIEWS[0]:
        ax.set(ylabel="busbw", ylim=(0, 900 * GB))
        ax.yaxis.set_major_locator(MaxNLocator(5))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value, "B/s")))
    else:
        ax.set(ylabel="T", yscale="log", ylim=(5e-6, 2.0))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
        ax.yaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(axis="y", alpha=0.3)
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    plots.plain_frame(ax)


def words(replay: Replay) -> str:
    """Say what was recorded at this size, what fits so far, and where the figures come from."""
    sweep, last = replay.sweep, replay.sizes - 1
    text = f"Recorded: {quantity(sweep.bytes[last], 'B')} over {sweep.ranks} GPUs took {duration(sweep.seconds[last])}"
    text += f", busbw {quantity(sweep.busbw[last], 'B/s')} ({replay.sizes} of {len(sweep.bytes)} sizes). "
    if replay.link:
        text += f"The fit to these: α = {duration(replay.link.alpha)}"
        text += f", busbw up to {quantity(_factor(sweep) / replay.link.beta, 'B/s')}. " if replay.link.beta else ". "
    return text + f"Source: {sweep.source}."


def recorded_run(large: bool = False) -> Panel:
    """Return the demo: show it by making it the last line of a cell; in large type for a projector."""
    controls = {
        "run": menu("run", RUNS, "H100"),
        "step": whole("sizes gone by", 1, STEPS, 24),
        "view": menu("show", VIEWS),
        "beside": menu("beside it", ("nothing", *RUNS)),
    }
    return panel(controls, data, draw, words, SIZE, PRESETS, large)
