"""Pictures of section 6: NCCL's choices and forecasts, bytes between ranks, gradient buckets, ZeRO, pipelines."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator, PercentFormatter

from distgen_lab.nccl_forecast import Forecast
from distgen_lab.nccl_tuner import Choice
from distgen_lab.overlap import COMMUNICATION, Execution
from distgen_lab.parallelism import Held
from distgen_lab.plots.canvas import PALETTE, plain_frame
from distgen_lab.units import duration, quantity

__all__ = ["bucket_rows", "bytes_between", "forecast_dots", "held_bars", "pipeline_order", "stage_rows", "tuner_bands"]

_PAIRS = [(algorithm, protocol) for algorithm in ("Tree", "Ring") for protocol in ("LL", "LL128", "Simple")]
_PAIR_COLORS = dict(zip(_PAIRS, ("#CFE8F6", "#56B4E9", "#0072B2", "#FBE3B4", "#E69F00", "#A86A00"), strict=True))


def tuner_bands(ax: Axes, rows: Mapping[str, Sequence[Choice]], largest: float = 2**34) -> Axes:
    """Draw which algorithm and protocol NCCL's tuner takes: a bar a row, from small messages to large ones.

    Args:
        ax: where to draw.
        rows: what :func:`distgen_lab.nccl_tuner.switches` returns, by label, the first at the top.
        largest: bytes at which the bars end.
    """
    present = set()
    for place, choices in enumerate(rows.values()):
        ends = [choice.nbytes for choice in choices[1:]] + [largest]
        for choice, end in zip(choices, ends, strict=True):
            pair = (choice.algorithm, choice.protocol)
            present.add(pair)
            ax.barh(place, end - choice.nbytes, left=choice.nbytes, height=0.7, color=_PAIR_COLORS[pair])
    first = min(choices[0].nbytes for choices in rows.values())
    ax.set(xscale="log", xlabel="n", xlim=(first, largest), yticks=range(len(rows)), yticklabels=list(rows))
    ax.xaxis.set_major_locator(LogLocator(numticks=8))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value, "B")))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.invert_yaxis()
    patches = [Patch(color=_PAIR_COLORS[pair], label=" ".join(pair)) for pair in _PAIRS if pair in present]
    ax.legend(handles=patches, frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return plain_frame(ax)


def forecast_dots(ax: Axes, forecasts: Sequence[Forecast], margin: float = 0.06) -> Axes:
    """Draw how far each forecast is off against what was measured, a mark a model, with a band of +-``margin``.

    A hollow mark is a bound, which may only lie above 0.
    """
    kinds: dict[str, list[Forecast]] = {}
    for row in forecasts:
        kinds.setdefault(_kind(row), []).append(row)
    ax.axhspan(-margin, margin, color="#DDDDDD", label=f"within {margin:.0%}")
    for (kind, rows), color, mark in zip(kinds.items(), cycle(PALETTE.values()), cycle("osD^v"), strict=False):
        faces = "none" if rows[0].bound else color
        pairs = ([row.measured for row in rows], [row.error for row in rows])
        ax.plot(*pairs, mark, color=color, markerfacecolor=faces, markersize=6, label=kind)
    ax.set(xscale="log", xlabel="measured busbw", ylabel="predicted / measured - 1")
    ax.xaxis.set_major_locator(FixedLocator([m * 1e9 for m in (50, 100, 200, 400, 800)]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value, "B/s")))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(PercentFormatter(1, 0))
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return plain_frame(ax)


def _kind(row: Forecast) -> str:
    """The model without its numbers."""
    return " ".join(word for word in row.model.split() if not word.isdigit())


def bytes_between(ax: Axes, matrix: Sequence[Sequence[float]], unit: float = 2**20, name: str = "MiB") -> Axes:
    """Draw the bytes from each rank (row) to each rank (column) as a table of shades, with the numbers in it.

    Args:
        ax: where to draw.
        matrix: bytes by sender and receiver.
        unit, name: what the numbers are printed in.

    Where the system does not tell the bytes of a connection the matrix is empty, and the picture says so.
    """
    if not len(matrix):
        ax.text(0.5, 0.5, "this system does not tell\nbytes between ranks", ha="center", va="center")
        ax.axis("off")
        return ax
    table = np.asarray(matrix, float) / unit
    ax.imshow(table, cmap="Blues", vmin=0, vmax=max(table.max() * 1.3, 1e-12))
    for (row, column), value in np.ndenumerate(table):
        if value >= 0.005:
            dark = value > 0.75 * table.max()
            ax.text(
                column, row, f"{value:.2f}", ha="center", va="center", fontsize=9, color="white" if dark else "black"
            )
    ranks = range(len(table))
    ax.set(xlabel="to rank", ylabel="from rank", xticks=ranks, yticks=ranks, title=f"{name} sent")
    ax.title.set_fontsize(9)
    return ax


def bucket_rows(ax: Axes, rows: Mapping[str, Sequence[Any]], sizes: Mapping[str, int]) -> Axes:
    """Draw the buckets of data-parallel training: a row a label, gradients in order of arrival, a colour a bucket.

    Args:
        ax: where to draw.
        rows: buckets in the order in which they fired (``names`` and ``place``, as ``labs.ddp.Fired``), by label.
        sizes: bytes of each gradient by name, in the order in which they arrive.
    """
    starts = dict(zip(sizes, np.r_[0, np.cumsum(list(sizes.values()))[:-1]], strict=True))
    for place, fired in enumerate(rows.values()):
        for bucket, color in zip(fired, cycle(PALETTE.values()), strict=False):
            for name in bucket.names:
                _label(ax, name, starts[name] + sizes[name] / 2, place, sizes[name] / sum(sizes.values()))
                ax.barh(place, sizes[name], left=starts[name], height=0.6, color=color, edgecolor="white", linewidth=1)
            end = max(starts[name] + sizes[name] for name in bucket.names)
            ax.plot([end, end], [place - 0.42, place + 0.42], color="black", linewidth=2)
    ax.set(xlabel="bytes of gradients, in order of arrival", yticks=range(len(rows)), yticklabels=list(rows))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value, "B")))
    ax.invert_yaxis()
    return plain_frame(ax)


def _label(ax: Axes, text: str, x: float, y: float, share: float) -> None:
    """A name in its box, where the box is wide enough."""
    if share > 0.08:
        ax.text(x, y, text, ha="center", va="center", fontsize=8, color="white", zorder=3)


def held_bars(ax: Axes, rows: Mapping[str, Held], line: tuple[str, float] | None = None) -> Axes:
    """Draw what one device keeps, a bar a label in three parts, and a memory size as a dashed line."""
    left = np.zeros(len(rows))
    parts = (("parameters", "blue"), ("gradients", "orange"), ("optimizer", "green"))
    for part, color in parts:
        sizes = np.array([getattr(held, part) for held in rows.values()], float)
        ax.barh(list(rows), sizes, left=left, color=PALETTE[color], label=part)
        left += sizes
    if line:
        ax.axvline(line[1], color="black", linestyle="--", linewidth=1, label=line[0])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value, "B")))
    ax.invert_yaxis()
    ax.set(xlabel="on one device")
    ax.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
    return plain_frame(ax)


def pipeline_order(ax: Axes, begin: Mapping[tuple[int, str, int], int], forward: int = 1, backward: int = 2) -> Axes:
    """Draw a pipeline: a row a stage, a box a pass with its micro-batch; what stays white is the bubble.

    Args:
        ax: where to draw.
        begin: slot in which each (stage, "F" or "B", micro-batch) begins, as ``labs.pipeline.slots`` gives.
        forward, backward: slots a pass takes.
    """
    lasts, colors = {"F": forward, "B": backward}, {"F": PALETTE["sky"], "B": PALETTE["orange"]}
    for (stage, kind, micro), start in begin.items():
        ax.barh(stage, lasts[kind], left=start, height=0.9, color=colors[kind], edgecolor="white", linewidth=0.8)
        ax.text(start + lasts[kind] / 2, stage, f"{micro}", ha="center", va="center", fontsize=7)
    stages = 1 + max(stage for stage, _, _ in begin)
    ax.set(xlabel="slots", ylabel="stage", yticks=range(stages), ylim=(stages - 0.4, -0.6))
    patches = [Patch(color=colors[kind], label=name) for kind, name in (("F", "forward"), ("B", "backward"))]
    ax.legend(handles=patches, frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return plain_frame(ax)


def stage_rows(ax: Axes, run: Execution, columns: int = 1200) -> Axes:
    """Draw when each pipeline stage computes forwards and backwards and when it only communicates, a row a stage.

    A row is a row of pixels, so that thousands of micro-batches are drawn as fast as a few; one that lasts less than
    a pixel is seen if it is the last to begin there.

    Args:
        ax: where to draw.
        run: tasks named "F..." and "B...", as :func:`distgen_lab.overlap.one_forward_one_backward` makes them.
        columns: pixels of a row.
    """
    colors = {"forward": PALETTE["sky"], "backward": PALETTE["blue"], "exposed communication": PALETTE["red"]}
    end = run.seconds or 1.0
    rows = np.ones((1 + max(task.device for task in run.tasks), columns, 3))
    for task, start, stop in sorted(zip(run.tasks, run.start, run.end, strict=True), key=lambda row: row[0].kind):
        stage = rows[task.device, int(start / end * columns) : int(np.ceil(stop / end * columns))]
        if task.kind == COMMUNICATION:
            stage[:] = to_rgb(colors["exposed communication"])
        else:
            stage[:] = to_rgb(colors["forward" if task.name[0] == "F" else "backward"])
    ax.imshow(rows, aspect="auto", extent=(0, end, len(rows) - 0.5, -0.5), interpolation="nearest")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    ax.set(yticks=[0, len(rows) - 1] if len(rows) > 1 else [0], ylabel="stage", xlabel="time")
    patches = [Patch(color=color, label=name) for name, color in colors.items()]
    ax.legend(handles=patches, frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    return plain_frame(ax)
