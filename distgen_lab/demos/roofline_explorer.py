"""Demo: an operation moves under a device's roof, and the caption says what limits it."""

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from distgen_lab import plots, roofline
from distgen_lab.demos.panel import Panel, log_slider, menu, panel
from distgen_lab.hardware import ACCELERATORS, BYTES, accelerator
from distgen_lab.roofline import Placement, Work
from distgen_lab.units import duration, quantity

__all__ = ["OPERATIONS", "Explored", "data", "draw", "roofline_explorer", "words"]

HEAD = 128
"""Values of one attention head."""

OPERATIONS: dict[str, Callable[[int, int, str], Work]] = {
    "matmul, size x size weights": lambda size, batch, kind: roofline.matmul(batch, size, size, kind),
    "naive attention, one head": lambda size, batch, kind: roofline.attention(size, HEAD, 1, batch, kind),
    "FlashAttention, one head": lambda size, batch, kind: roofline.attention(size, HEAD, 1, batch, kind, "flash"),
    "layernorm": lambda size, batch, kind: roofline.layernorm(batch, size, kind),
    "softmax": lambda size, batch, kind: roofline.softmax(batch, size, kind),
    "embedding": lambda size, batch, kind: roofline.embedding(batch, size, kind),
    "element-wise add": lambda size, batch, kind: roofline.elementwise(size * batch, kind, inputs=2),
    "decode, 8B model": lambda size, batch, kind: roofline.decode(8e9, 32, size, 32, HEAD, 8, batch, kind),
    "convolution 3 x 3, 64 channels": lambda size, batch, kind: roofline.convolution(
        batch, 64, 64, size, size, padding=1, precision=kind
    ),
}
"""Operations by name, as functions of size, batch and precision. Size is width, context or image side; batch is rows,
sequences or images."""
PRESETS = {
    "one token": {"operation": "matmul, size x size weights", "batch": 1.0},
    "a batch of 1,000": {"operation": "matmul, size x size weights", "batch": 1000.0},
    "naive attention": {"operation": "naive attention, one head", "batch": 1.0},
    "FlashAttention": {"operation": "FlashAttention, one head", "batch": 1.0},
    "chat, one user": {"operation": "decode, 8B model", "batch": 1.0},
    "chat, 200 users": {"operation": "decode, 8B model", "batch": 200.0},
}
"""Buttons for a lecture."""


@dataclass(frozen=True)
class Explored:
    """What is shown: the placement, and the other peaks of the device in FLOP/s with their precisions."""

    placed: Placement
    others: dict[float, tuple[str, ...]]


def data(device: str, precision: str, operation: str, size: float, batch: float) -> Explored:
    """Return the operation under the device's roof.

    Raises:
        ValueError: for an unknown device or operation, a precision the device lacks, or sizes below 1.
    """
    chip = accelerator(device)
    if operation not in OPERATIONS:
        raise ValueError(f"operation is {operation!r}; there are: {'; '.join(OPERATIONS)}")
    over = roofline.roof(chip, precision)
    placed = roofline.place(OPERATIONS[operation](int(size), int(batch), precision), over)
    peaks = sorted({peak for peak in chip.flops.values() if peak != over.peak})
    return Explored(placed, {peak: tuple(name for name in chip.flops if chip.flops[name] == peak) for peak in peaks})


def draw(figure: Figure, explored: Explored) -> None:
    """Draw the roof, the other precisions in grey, and the operation; the axes stay where they are."""
    ax = figure.add_axes((0.09, 0.16, 0.87, 0.74))
    placed = explored.placed
    plots.roofline(ax, placed.roof, [placed])
    ax.texts[0].set_bbox(plots.CLEAR)
    for peak, names in explored.others.items():
        ax.axhline(peak, color=plots.PALETTE["grey"], linewidth=0.8, linestyle=":")
        ax.annotate(", ".join(names), (1.2e-2, peak), fontsize=8, va="bottom")
    ridge = placed.roof.ridge()
    ax.axvline(ridge, color=plots.PALETTE["grey"], linewidth=0.8)
    ax.annotate(f"ridge {ridge:.0f} FLOP/B", (ridge, 1.3e10), xytext=(4, 0), textcoords="offset points", fontsize=8)
    ax.set(ylim=(1e10, 3e16), title=f"{placed.roof.name}, {placed.roof.precision}")


def words(explored: Explored) -> str:
    """Say what limits the operation."""
    placed = explored.placed
    work, level = placed.work, placed.roof.levels[-1]
    limit = "arithmetic limits it" if placed.limit == "compute" else f"{level} limits it"
    return (
        f"{work.name}: {quantity(work.flops, 'FLOP')} over {quantity(work.traffic, 'B')} is "
        f"{work.intensity:.3g} FLOP/B, against a ridge of {placed.roof.ridge():.0f}: {limit}. At most "
        f"{quantity(placed.attainable, 'FLOP/s')}, {100 * placed.peak_share:.3g} % of the peak; at least "
        f"{duration(placed.seconds)}."
    )


def roofline_explorer(large: bool = False) -> Panel:
    """Return the demo: show it by making it the last line of a cell; in large type for a projector."""
    controls = {
        "device": menu("device", ACCELERATORS, "H100"),
        "precision": menu("precision", BYTES, "bf16"),
        "operation": menu("operation", OPERATIONS),
        "size": log_slider("size", 10, 2e5, 5000.0),
        "batch": log_slider("batch", 1, 1e5, 1.0),
    }
    return panel(controls, data, draw, words, (9, 4.2), PRESETS, large)
