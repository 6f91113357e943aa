"""Pictures of section 7: tasks on lanes with what stays exposed, times over bucket size and ranks, residuals."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from distgen_lab.overlap import COMMUNICATION, COMPUTE, Execution
from distgen_lab.plots.canvas import PALETTE, plain_frame
from distgen_lab.timeline import Timeline
from distgen_lab.units import count, duration, quantity

__all__ = ["bucket_times", "gantt", "rank_times", "residuals", "speedups"]

_COLORS = {"compute": PALETTE["blue"], "hidden communication": PALETTE["sky"], "exposed": PALETTE["red"]}
_STYLES = ("-", "--", "-.", ":")


def gantt(
    ax: Axes,
    run: Execution | Timeline,
    lanes: Sequence[str] | None = None,
    marks: Mapping[str, float] | None = None,
    labels: bool = True,
    legend: bool = True,
) -> Axes:
    """Draw what each lane does over time, communication that nothing hides in a colour of its own.

    Args:
        ax: axes to draw into.
        run: a simulated run, or a timeline of one device, a profiler's trace for example: spans whose ``op`` is
            "compute", "copy" (left out), or else communication of any name.
        lanes: names of a timeline's lanes.
        marks: times to mark with a dashed line, by their name, for example the naive one and the bound.
        labels: whether to write a task's last word (of "F3 on 1" the first) on its bar where there is room.
        legend: whether to say what the colours mean.
    """
    rows, names = _rows(run)
    names = list(lanes or names)
    end = max([stop for *_, stop in rows] + list((marks or {}).values()), default=1.0) or 1.0
    for place, kind in dict.fromkeys((place, kind) for place, _, kind, *_ in rows):
        bars = [(start, stop - start) for lane, _, what, start, stop in rows if (lane, what) == (place, kind)]
        ax.broken_barh(bars, (place - 0.31, 0.62), facecolor=_COLORS[kind], edgecolor="white", linewidth=0.5)
    for place, name, _, start, stop in rows if labels else ():
        text = name.split(" on ")[0].split()[-1] if name else ""
        if text and (stop - start) / end > 0.012 * len(text) + 0.008:
            ax.text((start + stop) / 2, place, text, ha="center", va="center", fontsize=8, color="white")
    _mark(ax, marks or {}, len(names))
    ax.set(yticks=range(len(names)), ylim=(len(names) - 0.5, -0.5 - 0.45 * bool(marks)), xlim=(0, end * 1.01))
    ax.set_yticklabels(names)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    ax.xaxis.set_major_locator(MaxNLocator(6))
    if legend:
        handles = [Patch(color=color, label=kind) for kind, color in _COLORS.items()]
        ax.legend(handles=handles, frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    return plain_frame(ax)


def _rows(run: Execution | Timeline) -> tuple[list[tuple[int, str, str, float, float]], list[str]]:
    """(lane, name, kind, start, end) of every bar, communication cut into hidden and exposed pieces; names of lanes."""
    if isinstance(run, Execution):
        number = {lane: place for place, lane in enumerate(run.lanes)}
        tasks = zip(run.tasks, run.start, run.end, strict=True)
        bars = [(number[t.lane], t.name, t.kind, t.device, float(a), float(b)) for t, a, b in tasks]
        names = list(run.lanes)
    else:
        spans = [s for s in run.spans if s.end is not None and s.op != "copy"]  # a copy hides nothing
        bars = [(s.lane, s.name, COMPUTE if s.op == COMPUTE else COMMUNICATION, 0, s.start, s.end) for s in spans]
        names = [f"lane {place}" for place in range(run.lanes)]
    work = {
        device: sorted(b[4:] for b in bars if b[2] == COMPUTE and b[3] == device) for device in {b[3] for b in bars}
    }
    rows = []
    for lane, name, kind, device, start, stop in bars:
        if kind == COMMUNICATION:
            rows += [(lane, *piece) for piece in _pieces(name, start, stop, work[device])]
        elif stop > start:
            rows.append((lane, name, "compute", start, stop))
    return rows, names


def _pieces(
    name: str, start: float, stop: float, work: Sequence[tuple[float, float]]
) -> list[tuple[str, str, float, float]]:
    """A communication cut where compute begins and ends; neighbouring pieces of one kind stay together."""
    tiny = 1e-9 * max(stop - start, 1e-30)
    found: list[list[Any]] = []
    at = start
    for begin, end in [*work, (stop, stop)]:
        for kind, upto in (("exposed", min(begin, stop)), ("hidden communication", min(end, stop))):
            if upto > at + tiny:
                if found and found[-1][0] == kind:
                    found[-1][2] = upto
                else:
                    found.append([kind, at, upto])
                at = upto
    longest = max(found, key=lambda piece: piece[2] - piece[1], default=None)
    return [(name if piece is longest else "", *piece) for piece in found]


def _mark(ax: Axes, marks: Mapping[str, float], lanes: int) -> None:
    """Dashed lines with their names above the lanes; one near the right edge is named on its left."""
    last = max(marks.values(), default=0)
    for name, value in marks.items():
        ax.axvline(value, color=PALETTE["grey"], linestyle="--", linewidth=1, zorder=0)
        left = value > 0.85 * last
        offset, side = (-3, "right") if left else (3, "left")
        ax.annotate(f"{name} {duration(value)}", (value, -0.68), xytext=(offset, 0), textcoords="offset points",
                    ha=side, va="center", fontsize=8)  # fmt: skip


def speedups(ax: Axes, ratios: Sequence[float], curves: Mapping[str, Sequence[float]], limit: float = 2.0) -> Axes:
    """Draw speed-ups from hiding over T_comm / T_comp, a curve each, and the limit as a dashed line."""
    for (label, values), color in zip(curves.items(), cycle(PALETTE.values()), strict=False):
        ax.plot(ratios, values, color=color, label=label)
    ax.axhline(limit, color=PALETTE["grey"], linestyle="--", linewidth=1)
    ax.set(xscale="log", xlabel="T_comm / T_comp", ylabel="speed-up", ylim=(0.95, limit * 1.08))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.legend(frameon=False, fontsize=8, loc="center left")
    return plain_frame(ax)


def bucket_times(
    ax: Axes,
    caps: Sequence[float],
    seconds: Mapping[str, Sequence[float]],
    marks: Mapping[str, float] | None = None,
    dots: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
) -> Axes:
    """Draw step times over bucket size in bytes.

    Args:
        ax: axes to draw into.
        caps: bucket sizes of the curves.
        seconds: a curve each.
        marks: times drawn as dashed lines, by their name.
        dots: measured (sizes, times), by their name: drawn as markers, not as lines.
    """
    for (label, values), color in zip(seconds.items(), ("blue", "green", "purple"), strict=False):
        ax.plot(caps, values, color=PALETTE[color], label=label)
    for (label, (sizes, values)), color in zip((dots or {}).items(), ("orange", "red"), strict=False):
        ax.plot(sizes, values, "o", color=PALETTE[color], label=label, markersize=5)
    for name, value in (marks or {}).items():
        ax.axhline(value, color=PALETTE["grey"], linestyle="--", linewidth=1)
        ax.annotate(name, (1, value), xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points",
                    ha="right", fontsize=8)  # fmt: skip
    ax.set(xscale="log", xlabel="bucket size", ylabel="time of a step")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value, "B")))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    ax.legend(frameon=False, fontsize=8)
    return plain_frame(ax)


def rank_times(
    ax: Axes, ranks: Sequence[int], seconds: Mapping[str, Sequence[float]], crossing: int | None = None
) -> Axes:
    """Draw times over the number of ranks on logarithmic axes, a line each, and where two of them cross."""
    for (label, values), color, style in zip(seconds.items(), cycle(PALETTE.values()), cycle(_STYLES), strict=False):
        ax.plot(ranks, values, color=color, linestyle=style, label=label)
    if crossing is not None:
        ax.axvline(crossing, color=PALETTE["grey"], linestyle="--", linewidth=1)
        ax.annotate(f"{crossing:,} ranks", (crossing, 0), xycoords=("data", "axes fraction"), xytext=(-4, 4),
                    textcoords="offset points", ha="right", fontsize=8)  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="ranks", ylabel="time of an iteration")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    ax.legend(frameon=False, fontsize=8)
    return plain_frame(ax)


def residuals(ax: Axes, curves: Mapping[str, Sequence[float]], floor: float = 1e-17) -> Axes:
    """Draw relative residuals over iterations, a line each; what is below ``floor`` is left out."""
    for (label, values), color in zip(curves.items(), cycle(PALETTE.values()), strict=False):
        kept = [(place, value) for place, value in enumerate(values) if value > floor]
        dashed = "--" if "recurrence" in label else "-"
        ax.plot(*zip(*kept, strict=True), color=color, linestyle=dashed, linewidth=1.2, label=label)
    ax.set(yscale="log", xlabel="iteration", ylabel="residual / |b|")
    ax.legend(frameon=False, fontsize=8, loc="lower left")
    return plain_frame(ax)
