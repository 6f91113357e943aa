"""Demo: what a model of N parameters on D tokens costs in FLOP, days, device-hours and electricity."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from distgen_lab import plots, scale
from distgen_lab.demos.panel import Panel, choice, log_slider, menu, panel
from distgen_lab.hardware import ACCELERATORS, accelerator
from distgen_lab.history import LANDMARKS
from distgen_lab.units import DAY, HOUR, YEAR, count, duration, quantity

__all__ = ["BALANCED", "Budget", "data", "draw", "training_budget", "words"]

BALANCED = 20
"""Tokens a parameter that get most out of a budget (Hoffmann et al. 2022)."""
PARAMETERS, TOKENS = (1e8, 1e13), (1e9, 1e15)
"""Ends of the axes."""
DEVICES = np.geomspace(1, 1e5, 26)
PRESETS = {
    "GPT-3": {"parameters": 175e9, "ratio": 300 / 175, "device": "V100", "devices": 10_000.0, "mfu": 20},
    "Chinchilla's rule": {"parameters": 70e9, "ratio": 20, "device": "A100", "devices": 1000.0},
    "Llama 3 405B": {"parameters": 405e9, "ratio": 40, "devices": 20_000.0},
    "small, trained long": {"parameters": 10e9, "ratio": 2000, "devices": 2000.0},
    "one GPU": {"parameters": 10e9, "ratio": 20, "devices": 1.0},
}
"""Buttons for a lecture."""


@dataclass(frozen=True)
class Budget:
    """What a training run costs.

    Attributes:
        parameters, tokens: N and D.
        device, devices: which, and how many.
        flops: C = 6ND.
        peak: FLOP/s of one device.
        mfu: share of the peak that the run reaches.
        seconds: how long it takes.
        energy: joules at the devices' rated power; None where that is not published.
    """

    parameters: float
    tokens: float
    device: str
    devices: int
    flops: float
    peak: float
    mfu: float
    seconds: float
    energy: float | None

    @property
    def balanced(self) -> tuple[float, float]:
        """N and D that the same FLOP buy at 20 tokens a parameter."""
        parameters = (self.flops / (6 * BALANCED)) ** 0.5
        return parameters, BALANCED * parameters


def data(parameters: float, ratio: float, device: str, devices: float, mfu: float) -> Budget:
    """Return the cost of N parameters on ``ratio`` tokens each, on so many devices, at an MFU in per cent."""
    chip, tokens = accelerator(device), ratio * parameters
    flops = scale.training_flops(parameters, tokens)
    seconds = scale.training_time(flops, int(devices), chip.peak("bf16"), mfu / 100)
    energy = None if chip.power is None else seconds * int(devices) * chip.power
    return Budget(parameters, tokens, device, int(devices), flops, chip.peak("bf16"), mfu / 100, seconds, energy)


def draw(figure: Figure, budget: Budget) -> None:
    """Draw all runs that cost as much in the plane of N and D, and the training time over the number of devices."""
    left, right = figure.add_axes((0.1, 0.15, 0.49, 0.81)), figure.add_axes((0.7, 0.15, 0.28, 0.81))
    _plane(left, budget)
    seconds = [scale.training_time(budget.flops, number, budget.peak, budget.mfu) for number in DEVICES]
    right.plot(DEVICES, seconds, color=plots.PALETTE["blue"])
    _point(right, budget.devices, budget.seconds)
    right.set(xscale="log", yscale="log", xlabel="devices", xlim=(0.8, 1.2e5), ylim=(HOUR, 1e6 * YEAR))
    right.set_yticks([HOUR, DAY, 30 * DAY, YEAR, 100 * YEAR, 1e4 * YEAR], ["1 h", "1 day", "30 days", "1 year",
                     "100 years", "10,000 years"])  # fmt: skip
    right.set_xticks([1, 100, 1e4], ["1", "100", "10,000"])
    right.grid(axis="y", alpha=0.3)
    for axis in (right.xaxis, right.yaxis):
        axis.set_minor_locator(NullLocator())
    plots.plain_frame(right)


def _plane(ax: Axes, budget: Budget) -> None:
    """The plane of N and D: equal cost, 20 tokens a parameter, known models, and this one."""
    ends = np.array(PARAMETERS)
    ax.plot(ends, budget.flops / (6 * ends), color=plots.PALETTE["blue"], label=f"{budget.flops:.2g} FLOP")
    ax.plot(ends, BALANCED * ends, "--", color=plots.PALETTE["grey"], label=f"{BALANCED} tokens a parameter")
    _landmarks(ax)
    _point(ax, budget.parameters, budget.tokens)
    ax.set(xscale="log", yscale="log", xlabel="parameters", ylabel="tokens", xlim=PARAMETERS, ylim=TOKENS)
    ax.set_xticks(10.0 ** np.arange(8, 14))
    ax.set_yticks(10.0 ** np.arange(9, 16))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
        axis.set_minor_locator(NullLocator())
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    plots.plain_frame(ax)


def _landmarks(ax: Axes) -> None:
    """Known models by the parameters a token passes and their tokens; unconfirmed figures are hollow."""
    for row in (row for row in LANDMARKS if row.tokens):
        x, color, above = row.active or row.parameters, plots.PALETTE["orange"], 4 if row.published else -11
        ax.plot(x, row.tokens, "o", color=color, markerfacecolor=color if row.published else "white")
        ax.annotate(
            row.name, (x, row.tokens), xytext=(6, above), textcoords="offset points", fontsize=8, bbox=plots.CLEAR
        )


def _point(ax: Axes, x: float, y: float) -> None:
    ax.plot(x, y, "D", color="black", markersize=7, markerfacecolor="white", zorder=5)


def words(budget: Budget) -> str:
    """Say what the run costs, and what the same FLOP would buy at 20 tokens a parameter."""
    hours = budget.seconds * budget.devices / HOUR
    text = f"{count(budget.parameters)} parameters on {count(budget.tokens)} tokens take {budget.flops:.3g} FLOP: "
    text += f"{duration(budget.seconds)} on {budget.devices:,} {budget.device} at {budget.mfu:.0%} MFU, "
    text += f"{count(hours)} device-hours"
    text += f" and {quantity(budget.energy / HOUR, 'Wh')} for the devices alone. " if budget.energy else ". "
    parameters, tokens = budget.balanced
    return text + f"At {BALANCED} tokens a parameter it buys {count(parameters)} parameters and {count(tokens)} tokens."


def training_budget(large: bool = False) -> Panel:
    """Return the demo: show it by making it the last line of a cell; in large type for a projector."""
    controls = {
        "parameters": log_slider("parameters", 1e8, 1e13, 70e9, 175e9, 405e9),
        "ratio": choice("tokens each", (1, 300 / 175, 5, 10, 20, 40, 100, 200, 500, 1000, 2000, 5000), 20),
        "device": menu("device", ACCELERATORS, "H100"),
        "devices": log_slider("devices", 1, 1e5, 1000.0),
        "mfu": choice("MFU in %", (10, 20, 30, 40, 50, 60), 40),
    }
    return panel(controls, data, draw, words, (9, 4.0), PRESETS, large)
