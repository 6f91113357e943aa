"""Demo: which algorithm wins for a link, a number of ranks and a size, and where another takes over."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from matplotlib.figure import Figure

from distgen_lab import plots
from distgen_lab.alphabeta import Cost, Link, Pipelined, costs, lower_bound, winners
from distgen_lab.demos.panel import Panel, choice, log_slider, menu, panel
from distgen_lab.units import GB, US, duration, quantity

__all__ = ["Explored", "alpha_beta_explorer", "data", "draw", "words"]

COLLECTIVES = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all")
LEFT_OUT = ("linear",)
"""Algorithms that never win; their line would only hide the others."""
SIZES = np.geomspace(1e2, 1e10, 81)
SIZE = (7.8, 3.2)
"""Inches of the picture."""
RANKS = (2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
PRESETS = {
    "NVLink": {"alpha": 1.0, "bandwidth": 500.0, "ranks": 8.0},
    "InfiniBand": {"alpha": 2.0, "bandwidth": 50.0, "ranks": 64.0},
    "Ethernet": {"alpha": 50.0, "bandwidth": 1.0, "ranks": 64.0},
    "the internet": {"alpha": 5e4, "bandwidth": 0.01, "ranks": 16.0},
    "small message": {"nbytes": 1e3},
    "large message": {"nbytes": 1e9},
}
"""Buttons for a lecture."""


@dataclass(frozen=True, eq=False)
class Explored:
    """What the controls ask for.

    Attributes:
        link: alpha and beta of every message.
        nbytes: n.
        rows: the algorithms that work on P ranks.
        seconds: time of each for n bytes, in the order of ``rows``.
        bound: the sum of the least start-ups and the least bytes, in seconds; no algorithm is faster.
        takeovers: (bytes, seconds) where another algorithm becomes the fastest.
        winners: the fastest for each of ``RANKS`` and ``SIZES``.
    """

    collective: str
    ranks: int
    link: Link
    nbytes: float
    rows: tuple[Cost | Pipelined, ...]
    seconds: tuple[float, ...]
    bound: float
    takeovers: tuple[tuple[float, float], ...]
    winners: np.ndarray

    @property
    def best(self) -> int:
        """Which of ``rows`` is the fastest; of equal ones the first."""
        least = min(self.seconds) * (1 + 1e-12)
        return next(place for place, seconds in enumerate(self.seconds) if seconds <= least)


def data(collective: str, alpha: float, bandwidth: float, ranks: float, nbytes: float) -> Explored:
    """Return the costs of a collective's algorithms: alpha in us, bandwidth in GB/s per direction, P and n."""
    link, number = Link(alpha * US, 1 / (bandwidth * GB)), int(ranks)
    rows = tuple(row for row in costs(collective, number) if row.algorithm not in LEFT_OUT)
    seconds = tuple(float(row.time(link, nbytes)) for row in rows)
    bound = lower_bound(collective, number)
    least = max(float(bound.alpha) * link.alpha, nbytes * float(bound.beta) * link.beta)
    found = _winners(collective, link)
    takeovers = tuple(plots.meeting_points(rows, link, SIZES))
    return Explored(collective, number, link, nbytes, rows, seconds, least, takeovers, found)


@lru_cache(maxsize=64)
def _winners(collective: str, link: Link) -> np.ndarray:
    """The map, which depends neither on P nor on n."""
    return winners(collective, link, RANKS, SIZES)


def draw(figure: Figure, shown: Explored) -> None:
    """Draw time against size with the chosen n, and the map of winners with the chosen point."""
    layout = {"left": 0.11, "right": 0.98, "bottom": 0.16, "top": 0.85, "wspace": 0.24}
    left, right = figure.subplots(1, 2, gridspec_kw=layout)
    plots.cost_curves(left, shown.rows, shown.link, SIZES, shown.nbytes)
    left.plot(shown.nbytes, shown.seconds[shown.best], "D", color="black", markersize=6, markerfacecolor="white")
    left.grid(False)
    left.get_legend().set_loc("upper left")  # where it stays, whatever the lines do
    plots.winner_map(right, shown.winners, RANKS, SIZES, shown.collective)
    height = float(np.interp(np.log(shown.ranks), np.log(RANKS), np.arange(len(RANKS)))) + 0.5
    right.plot(shown.nbytes, height, "D", color="black", markersize=6, markerfacecolor="white")


def words(shown: Explored) -> str:
    """Say who wins at n, by how much, how far from the bound, and where another takes over."""
    order = sorted(zip(shown.seconds, (row.algorithm for row in shown.rows), strict=True))
    best = shown.rows[shown.best].algorithm
    seconds = shown.seconds[shown.best]
    others = [f"{name} {duration(time)}" for time, name in order if name != best]
    text = f"{quantity(shown.nbytes, 'B')}: {best} is fastest with {duration(seconds)}"
    text += f" (next: {others[0]})." if others else "."
    text += f" No algorithm can take less than {duration(shown.bound)}."
    text += f" n_half of the link is {quantity(shown.link.half_bandwidth_size, 'B')}."
    sizes = ", ".join(quantity(size, "B") for size, _ in shown.takeovers)
    return text + (f" Another takes over at {sizes}." if sizes else " The same one wins at every size shown.")


def alpha_beta_explorer(large: bool = False) -> Panel:
    """Return the demo: show it by making it the last line of a cell; in large type for a projector."""
    controls = {
        "collective": menu("collective", COLLECTIVES),
        "alpha": log_slider("α in us", 0.1, 1e5, 1.0),
        "bandwidth": log_slider("1/β in GB/s", 1e-3, 1e3, 20.0),
        "ranks": choice("P", map(float, RANKS), 64.0),
        "nbytes": log_slider("n in bytes", 1e2, 1e10, 1e6),
    }
    return panel(controls, data, draw, words, SIZE, PRESETS, large)
