"""Demo: a ring all-reduce against a tree, message by message on one clock, and over the number of ranks."""

from dataclasses import dataclass
from functools import lru_cache

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from distgen_lab import plots, simulate
from distgen_lab.alphabeta import Cost, Link, Pipelined, cost
from distgen_lab.collectives import Schedule, binomial_all_reduce, double_tree_all_reduce, ring_all_reduce
from distgen_lab.demos.panel import Panel, choice, log_slider, menu, panel
from distgen_lab.timeline import Timeline
from distgen_lab.topology import crossbar
from distgen_lab.units import GB, US, duration, quantity

__all__ = ["FAR", "RANKS", "TREES", "Race", "data", "draw", "ring_against_tree", "words"]

TREES = ("binomial tree", "double binary tree")
"""What runs against the ring."""
SINGLE = {"ring": ring_all_reduce, TREES[0]: binomial_all_reduce}
MOST_SEGMENTS = 16
"""Of the double tree as it is drawn; the curve takes the best number."""
RANKS = (2, 3, 4, 6, 8, 12, 16)
"""P that can be drawn message by message."""
FAR = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""P of the curves."""
SIZE = (9, 4.0)
"""Inches of the picture."""
PRESETS = {
    "a few bytes": {"nbytes": 1e2},
    "a bias: 10 kB": {"nbytes": 1e4},
    "a layer: 100 MB": {"nbytes": 1e8},
    "double tree, 1 MB": {"tree": TREES[1]},
    "double tree, 100 MB": {"tree": TREES[1], "nbytes": 1e8},
    "slow start-up": {"alpha": 100.0},
}
"""Buttons for a lecture."""


@dataclass(frozen=True, eq=False)
class Race:
    """A ring and a tree.

    Attributes:
        tree: which.
        ranks, nbytes: P and n.
        ring_run, tree_run: every message of both, simulated round by round.
        ring_seconds, tree_seconds: closed form for each of :data:`FAR`.
    """

    tree: str
    ranks: int
    nbytes: float
    ring_run: Timeline
    tree_run: Timeline
    ring_seconds: tuple[float, ...]
    tree_seconds: tuple[float, ...]

    @property
    def crossing(self) -> int | None:
        """The fewest of :data:`FAR` ranks with which the tree is faster than the ring, None if there are none."""
        pairs = zip(FAR, self.ring_seconds, self.tree_seconds, strict=True)
        return next((ranks for ranks, ring, tree in pairs if tree < ring), None)


def _cost(name: str, ranks: int) -> Cost | Pipelined:
    return cost("all_reduce", name, ranks)


def _schedule(name: str, ranks: int, link: Link, nbytes: float) -> Schedule:
    """The schedule; of the double tree with the number of segments that is best for n, as far as it can be drawn."""
    if name in SINGLE:
        return SINGLE[name](ranks)
    return double_tree_all_reduce(ranks, min(MOST_SEGMENTS, _cost(name, ranks).best_segments(link, nbytes)))


@lru_cache(maxsize=64)
def _run(name: str, ranks: int, link: Link, nbytes: float) -> Timeline:
    return simulate.timeline(_schedule(name, ranks, link, nbytes), crossbar(ranks, link), nbytes)


def data(tree: str, ranks: int, nbytes: float, alpha: float, bandwidth: float) -> Race:
    """Return the race: P from 2 to 16, n in bytes, alpha in us, bandwidth in GB/s per direction.

    Raises:
        ValueError: for a tree that is not on offer.
    """
    if tree not in TREES:
        raise ValueError(f"tree is {tree!r}; there are: {', '.join(TREES)}")
    link = Link(alpha * US, 1 / (bandwidth * GB))
    curves = [tuple(float(_cost(name, p).time(link, nbytes)) for p in FAR) for name in ("ring", tree)]
    runs = [_run(name, ranks, link, nbytes) for name in ("ring", tree)]
    return Race(tree, ranks, nbytes, *runs, *curves)


def draw(figure: Figure, race: Race) -> None:
    """Draw both on one clock on the left, and time against P on the right."""
    end = max(race.ring_run.seconds, race.tree_run.seconds)
    for name, run, bottom in (("ring", race.ring_run, 0.55), (race.tree, race.tree_run, 0.13)):
        ax = figure.add_axes((0.065, bottom, 0.53, 0.34))
        _messages(ax, run, plots.PALETTE["blue" if name == "ring" else "red"])
        ax.set_xlim(0, 1.02 * end)
        ax.set_title(f"{name}: {duration(run.seconds)}", fontsize=10, loc="left", pad=3)
        ax.tick_params(labelbottom=name != "ring")
    right = figure.add_axes((0.7, 0.13, 0.285, 0.77))
    right.plot(FAR, race.ring_seconds, color=plots.PALETTE["blue"], label="ring")
    right.plot(FAR, race.tree_seconds, "--", color=plots.PALETTE["red"], label=race.tree)
    right.axvline(race.ranks, color=plots.PALETTE["grey"], linewidth=0.8, linestyle=":")
    right.set(xscale="log", yscale="log", xlabel="P", xlim=(FAR[0], FAR[-1]))
    right.set_xticks([2, 16, 128, 1024], ["2", "16", "128", "1,024"])
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    for axis in (right.xaxis, right.yaxis):
        axis.set_minor_locator(NullLocator())
    right.legend(frameon=False, fontsize=9, loc="upper left")
    plots.plain_frame(right)


def _messages(ax: Axes, run: Timeline, color: str) -> None:
    """Every message as a line from its sender to its receiver."""
    lines = [((s.start, s.lane), (r.end, r.lane)) for s, r in run.messages()]
    ax.hlines(range(run.lanes), 0, run.seconds, color=plots.PALETTE["grey"], linewidth=0.5)
    ax.add_collection(LineCollection(lines, color=color, linewidth=0.9))
    ax.set(ylabel="rank", ylim=(run.lanes - 0.5, -0.5), yticks=[0, run.lanes - 1])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    ax.xaxis.set_major_locator(MaxNLocator(5))
    plots.plain_frame(ax)


def words(race: Race) -> str:
    """Say who is faster, by how much, how many messages that takes, and from how many ranks the tree wins."""
    ring, tree = race.ring_run.seconds, race.tree_run.seconds
    first, second = ("ring", race.tree) if ring <= tree else (race.tree, "ring")
    sent = [sum(row.sent_messages for row in run.traffic()) for run in (race.ring_run, race.tree_run)]
    times = max(ring, tree) / min(ring, tree)
    text = f"{quantity(race.nbytes, 'B')} over {race.ranks} ranks: the {first} is {times:.3g} times as fast as the "
    text += f"{second}. The ring sends {sent[0]} messages, the {race.tree} {sent[1]}. "
    if race.crossing is None:
        return text + f"The ring stays ahead up to {FAR[-1]:,} ranks."
    return text + f"Of 2, 4, 8, ... ranks the tree is ahead from {race.crossing:,} on."


def ring_against_tree(large: bool = False) -> Panel:
    """Return the demo: show it by making it the last line of a cell; in large type for a projector."""
    controls = {
        "tree": menu("tree", TREES),
        "ranks": choice("P", RANKS, 8),
        "nbytes": log_slider("n in bytes", 1e2, 1e9, 1e6),
        "alpha": log_slider("α in us", 0.1, 1000, 5.0),
        "bandwidth": log_slider("1/β in GB/s", 1, 1000, 20.0),
    }
    return panel(controls, data, draw, words, SIZE, PRESETS, large)
