"""Demo: a systolic array multiplies two small matrices, one cycle a step."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from matplotlib.figure import Figure

from distgen_lab import plots, systolic
from distgen_lab.demos.panel import Panel, menu, panel, whole
from distgen_lab.systolic import DATAFLOWS, State

__all__ = ["Step", "data", "draw", "systolic_steps", "words"]

SIDES = (2, 6)
"""Sides of the array that are legible."""
PRESETS = {
    "first value in": {"step": 1},
    "all cells busy": {"step": 7},
    "complete": {"step": 16},
    "the other dataflow": {"dataflow": DATAFLOWS[1], "step": 7},
}
"""Buttons for a lecture."""


@dataclass(frozen=True)
class Step:
    """What is shown: the array after a cycle, how many cycles there are, and the work up to here."""

    state: State
    cycles: int
    macs: int
    fetched: int

    @property
    def utilisation(self) -> float:
        """Multiply-adds up to here over what all cells could have done."""
        return self.macs / (self.state.active.size * self.state.cycle)


@lru_cache(maxsize=32)
def _states(dataflow: str, side: int) -> tuple[State, ...]:
    """Every cycle of a product of two matrices of small whole numbers."""
    i, j = np.indices((side, side))
    return tuple(systolic.steps((2 * i + j) % 4 + 1.0, (i + 3 * j) % 5 + 1.0, dataflow))


def data(dataflow: str, side: int, step: int) -> Step:
    """Return the array of side x side after ``step`` cycles; a step past the end is the last one.

    Raises:
        ValueError: for an unknown dataflow, a side outside 2 to 6 or a step below 1.
    """
    if not SIDES[0] <= side <= SIDES[1]:
        raise ValueError(f"side is {side}; {SIDES[0]} to {SIDES[1]} can be drawn")
    if step < 1:
        raise ValueError(f"step is {step}; 1 or more is needed")
    states = _states(dataflow, side)
    past = states[: min(step, len(states))]
    weights = side * side if dataflow == DATAFLOWS[0] else 0
    macs, fetched = sum(int(s.active.sum()) for s in past), sum(s.entering for s in past)
    return Step(past[-1], len(states), macs, weights + fetched)


def draw(figure: Figure, step: Step) -> None:
    """Draw the array on the left and the finished results on the right."""
    plots.systolic(figure.add_axes((0.02, 0.03, 0.56, 0.86)), step.state)
    plots.product_so_far(figure.add_axes((0.62, 0.12, 0.36, 0.7)), step.state)


def words(step: Step) -> str:
    """Say how much work was done for what was fetched."""
    end = "" if step.state.cycle < step.cycles else " The product is complete."
    return (
        f"Cycle {step.state.cycle} of {step.cycles}: {step.macs} multiply-adds for {step.fetched} values fetched, "
        f"{2 * step.macs / step.fetched:.2f} FLOP a value; {step.utilisation:.0%} of the cells used so far.{end}"
    )


def systolic_steps(large: bool = False) -> Panel:
    """Return the demo: show it by making it the last line of a cell; in large type for a projector."""
    controls = {
        "dataflow": menu("dataflow", DATAFLOWS),
        "side": whole("side", *SIDES, 4),
        "step": whole("cycle", 1, 3 * SIDES[1] - 2, 4),
    }
    return panel(controls, data, draw, words, (9, 4.6), PRESETS, large)
