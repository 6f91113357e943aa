"""One palette, one size, one frame for every picture of the course."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

__all__ = ["CLEAR", "PALETTE", "axes", "plain_frame"]

PALETTE = {
    "blue": "#0072B2", "orange": "#E69F00", "green": "#009E73", "red": "#D55E00", "purple": "#CC79A7",
    "sky": "#56B4E9", "grey": "#7F7F7F",
}  # fmt: skip
"""Okabe and Ito's colours, told apart by colour-blind readers."""
CLEAR = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
"""The box of a word that lines may run through."""


def axes(height: float = 2.9, width: float = 6.6) -> Axes:
    """Return the axes of a new figure in the course's size, in inches; show it with ``plt.show()``."""
    return plt.subplots(figsize=(width, height), dpi=85, layout="constrained")[1]


def plain_frame(ax: Axes) -> Axes:
    """Take the upper and the right line off."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax
