"""Pictures of section 5: which rank's data lie where, before and after a collective, and who computes when."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import FancyArrowPatch, Rectangle

from distgen_lab.plots.canvas import PALETTE
from distgen_lab.timeline import Timeline

__all__ = ["computing", "dataflow", "holdings", "rank_color"]

Block = Sequence[tuple[int, int]]
"""(rank, place) of everything that a block holds; empty for nothing."""
_COLORS = [PALETTE[name] for name in ("blue", "orange", "green", "purple", "sky", "red", "grey")] + ["#F0E442"]
"""One for each of eight ranks; the last is Okabe and Ito's yellow."""
_SUM = "#D9D9D9"
_MOST_LABELS, _WIDTH = 12, 8.0
"""Chunks up to which they are labelled, and the width of all of them together."""


def rank_color(ranks: Sequence[int]) -> str:
    """Return the colour of what comes from these ranks: one rank's own, or grey for a sum, white for nothing."""
    if not ranks:
        return "white"
    return _COLORS[ranks[0] % len(_COLORS)] if len(ranks) == 1 else _SUM


def dataflow(ax: Axes, before: Sequence[Sequence[Block]], after: Sequence[Sequence[Block]], title: str = "") -> Axes:
    """Draw every rank's blocks, ranks down, before a collective on the left and after it on the right.

    Args:
        ax: where to draw.
        before, after: for each rank its blocks; see :data:`distgen_lab.labs.mpi_collectives.Block`.
        title: the name of the collective.

    Raises:
        ValueError: if the two have different numbers of ranks.
    """
    if len(before) != len(after):
        raise ValueError(f"after has {len(after)} ranks and before {len(before)}; equally many are needed")
    ranks, left = len(before), max((len(row) for row in before), default=0)
    right = max((len(row) for row in after), default=0)
    width = 2 * ranks + 2  # the same for all collectives, so that a block has one size in all pictures
    begin, gap = ranks - left, ranks + 2
    for shift, rows in ((begin, before), (gap, after)):
        for rank, row in enumerate(rows):
            for place, block in enumerate(row):
                _block(ax, shift + place, rank, block, ranks)
    middle = (ranks - 1) / 2
    ax.annotate("", (ranks + 1.8, middle), (ranks + 0.2, middle), arrowprops={"arrowstyle": "-|>", "color": "#555555"})
    for rank in range(ranks):
        ax.text(begin - 0.3, rank, str(rank), ha="right", va="center", fontsize=7, color=PALETTE["grey"])
    ax.set(xlim=(-0.9, max(width, gap + right)), ylim=(ranks - 0.4, -0.6), aspect="equal")
    ax.set_title(title, fontsize=9)
    ax.axis("off")
    return ax


def _block(ax: Axes, x: float, rank: int, block: Block, ranks: int) -> None:
    sources = [source for source, _ in block]
    ax.add_patch(Rectangle((x, rank - 0.42), 0.92, 0.84, facecolor=rank_color(sources), edgecolor="#555555", lw=0.6))
    text = _label(block, ranks)
    size = 7 if len(text) < 3 else 5
    ax.text(x + 0.46, rank, text, ha="center", va="center", fontsize=size, color=_ink(sources))


def _ink(sources: Sequence[int]) -> str:
    """Text that can be read on the block's colour."""
    return (
        "white"
        if len(sources) == 1 and rank_color(sources) in (PALETTE["blue"], PALETTE["green"], PALETTE["grey"])
        else "black"
    )


def _label(block: Block, ranks: int) -> str:
    """A0 for block 0 of rank 0, Σ2 for the sum over all ranks of block 2, AB for a part of a sum."""
    if not block:
        return ""
    letters = "".join(chr(ord("A") + source) for source, _ in block)
    place = block[0][1]
    return f"{letters}{place}" if len(block) == 1 else f"Σ{place}" if len(block) == ranks else letters


def holdings(
    ax: Axes,
    held: Sequence[Sequence[frozenset[int]]],
    new: Sequence[tuple[int, int]],
    arrows: Sequence[tuple[int, int]],
) -> Axes:
    """Draw what each rank holds after a round of a schedule, and the messages of that round on the left.

    Args:
        ax: where to draw.
        held: for each rank and chunk the ranks whose contributions it holds.
        new: (rank, chunk) of what came in this round; framed.
        arrows: (source, target) of each message.
    """
    ranks, chunks = len(held), len(held[0])
    cells = [(rank, chunk) for rank in range(ranks) for chunk in range(chunks)]
    came, width = set(new), _WIDTH / chunks
    for framed, style in ((False, {"edgecolor": "#999999", "lw": 0.5}), (True, {"edgecolor": "black", "lw": 2.2})):
        chosen = [cell for cell in cells if (cell in came) == framed]
        boxes = [Rectangle(((chunk + 0.06) * width, rank - 0.38), 0.88 * width, 0.76) for rank, chunk in chosen]
        colors = [rank_color(sorted(held[rank][chunk])) for rank, chunk in chosen]
        ax.add_collection(PatchCollection(boxes, facecolor=colors, zorder=2 + framed, **style))
    for rank, chunk in cells if chunks <= _MOST_LABELS else ():
        _letters(ax, (chunk + 0.5) * width, rank, sorted(held[rank][chunk]))
    for source, target in arrows:
        _arc(ax, source, target)
    for rank in range(ranks):
        ax.text(-0.1, rank, f"rank {rank}", ha="right", va="center", fontsize=8)
    ax.set(xlim=(-2.9, _WIDTH), ylim=(ranks - 0.4, -0.6))
    ax.axis("off")
    return ax


def _letters(ax: Axes, x: float, rank: int, sources: Sequence[int]) -> None:
    """The ranks that a chunk comes from, as letters."""
    text = "".join(chr(ord("A") + source) for source in sources)
    size = max(5, 9 - len(text) // 2)
    ax.text(x, rank, text, ha="center", va="center", fontsize=size, color=_ink(sources), zorder=4)


def _arc(ax: Axes, source: int, target: int) -> None:
    """A bent arrow beside the names of the ranks; what goes down bends further out than what goes up."""
    x, bend = -0.8, 0.35 if target > source else -0.35
    style = {"arrowstyle": "-|>", "mutation_scale": 9, "color": PALETTE["blue"], "lw": 1.2}
    if abs(target - source) == 1:
        bend *= 1.6
    ax.add_patch(FancyArrowPatch((x, source), (x, target), connectionstyle=f"arc3,rad={bend}", **style))


def computing(ax: Axes, timeline: Timeline, intervals: Sequence[Sequence[tuple[float, float]]]) -> Axes:
    """Add to a space-time picture when each rank computed.

    Args:
        ax: axes on which :func:`distgen_lab.plots.spacetime` has drawn ``timeline``.
        timeline: what was recorded.
        intervals: for each rank (start, end) on the timeline's clock, ``time.monotonic()`` for recorded ranks.
    """
    begin = timeline.spans[0].start if timeline.spans else 0.0
    bars = [(rank, start - begin, end - start) for rank, row in enumerate(intervals) for start, end in row]
    if bars:
        ranks, starts, widths = zip(*bars, strict=True)
        ax.barh(ranks, widths, left=starts, height=0.2, color=PALETTE["orange"], label="computes", zorder=4)
        ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return ax
