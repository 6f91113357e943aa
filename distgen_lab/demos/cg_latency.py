"""Demo: an iteration of every variant of conjugate gradients over latency, ranks and the size of the grid."""

from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from distgen_lab import cg, plots
from distgen_lab.alphabeta import Link
from distgen_lab.demos.panel import Panel, choice, log_slider, panel
from distgen_lab.units import GB, US, duration

__all__ = ["Explored", "cg_latency", "data", "draw", "words"]

RANKS = tuple(2**k for k in range(21))
SIDES = (128, 256, 512, 1024, 2048, 4096, 8192)
SIZE = (7.2, 2.8)
"""Inches of the picture."""
FLOP = 1e-9
"""Seconds per FLOP of memory-bound vector work on one rank."""
BANDWIDTH = 12.5 * GB
PRESETS = {
    "few ranks": {"ranks": 64},
    "many ranks": {"ranks": 65_536},
    "slow start-up": {"alpha": 20.0, "ranks": 4096},
    "large grid": {"side": 8192, "ranks": 4096},
    "a million ranks": {"ranks": 1_048_576},
}
"""Buttons for a lecture."""


@dataclass(frozen=True)
class Explored:
    """Times of an iteration.

    Attributes:
        ranks: P.
        parts: for each variant (seconds of work, seconds of reductions that no work hides) with P ranks.
        curves: for each variant its times for each of ``RANKS``.
        crossing: the fewest ranks with which pipelined beats classic, None if there are none.
        reduction, product: seconds of one reduction and of one product with the matrix, with P ranks.
    """

    ranks: int
    parts: dict[str, tuple[float, float]]
    curves: dict[str, tuple[float, ...]]
    crossing: int | None
    reduction: float
    product: float

    @property
    def best(self) -> str:
        """The fastest variant with P ranks."""
        return min(self.parts, key=lambda name: sum(self.parts[name]))


def data(alpha: float, ranks: int, side: int) -> Explored:
    """Return the times for alpha in us, P, and a grid of side x side points."""
    machine = cg.Machine(Link(alpha * US, 1 / BANDWIDTH), FLOP, side)
    parts = {}
    for name, variant in cg.VARIANTS.items():
        work = machine.product(ranks) + machine.preconditioning(ranks)
        work += side**2 / ranks * variant.flops_per_row * FLOP
        parts[name] = (work, cg.iteration_time(name, machine, ranks) - work)
    curves = {name: tuple(cg.iteration_time(name, machine, p) for p in RANKS) for name in cg.VARIANTS}
    crossing = cg.crossover(machine)
    return Explored(ranks, parts, curves, crossing, machine.reduction(ranks), machine.product(ranks))


def draw(figure: Figure, shown: Explored) -> None:
    """Draw work and exposed reductions of each variant, and all times over the number of ranks."""
    layout = {"left": 0.22, "right": 0.98, "bottom": 0.18, "top": 0.83, "wspace": 0.36}
    left, right = figure.subplots(1, 2, gridspec_kw=layout)
    work, exposed = zip(*shown.parts.values(), strict=True)
    left.barh(list(shown.parts), work, color=plots.PALETTE["blue"], label="work")
    left.barh(list(shown.parts), exposed, left=work, color=plots.PALETTE["red"], label="exposed reductions")
    left.invert_yaxis()
    left.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    left.locator_params(axis="x", nbins=5)
    left.legend(frameon=False, fontsize=8, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    plots.plain_frame(left)
    plots.rank_times(right, RANKS, shown.curves, shown.crossing)
    above = {"loc": "lower right", "bbox_to_anchor": (1.03, 1), "columnspacing": 1, "handlelength": 1.6}
    right.legend(frameon=False, fontsize=8, ncols=2, **above)
    right.axvline(shown.ranks, color=plots.PALETTE["grey"], linewidth=0.8, linestyle=":")


def words(shown: Explored) -> str:
    """Say who is fastest, by how much, and where pipelining begins to pay."""
    best, classic = (sum(shown.parts[name]) for name in (shown.best, "classic"))
    text = f"P = {shown.ranks:,}: a reduction takes {duration(shown.reduction)}, a product {duration(shown.product)}. "
    text += f"Fastest is {shown.best} with {duration(best)}, {classic / best:.2f} times as fast as classic. "
    if shown.crossing is None:
        return text + "Pipelining pays with no number of ranks up to a million."
    return text + f"Pipelining beats classic from {shown.crossing:,} ranks on."


def cg_latency(large: bool = False) -> Panel:
    """Return the demo: show it by making it the last line of a cell; in large type for a projector."""
    controls = {
        "alpha": log_slider("α in us", 0.1, 1000, 2.0),
        "ranks": choice("P", RANKS, 4096),
        "side": choice("grid side", SIDES, 2048),
    }
    return panel(controls, data, draw, words, SIZE, PRESETS, large)
