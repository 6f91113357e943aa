"""Demo: memory, compute and communication wall of a training run, with sliders."""

from matplotlib.figure import Figure

from distgen_lab import plots, scale
from distgen_lab.demos.panel import Panel, log_slider, menu, panel
from distgen_lab.hardware import ACCELERATORS, accelerator
from distgen_lab.scale import ThreeWalls
from distgen_lab.units import duration, quantity

__all__ = ["data", "draw", "three_walls", "words"]

MFU = 0.4
"""Share of the peak the demo's runs reach: what large runs report."""
PRESETS = {
    "GPT-3 on 1,000 A100": {"parameters": 175e9, "tokens": 300e9, "device": "A100", "devices": 1000.0, "batch": 5e6},
    "7B on one H100": {"parameters": 7e9, "tokens": 2e12, "device": "H100", "devices": 1.0, "batch": 5e6},
    "the same on 1,000": {"parameters": 7e9, "tokens": 2e12, "device": "H100", "devices": 1000.0, "batch": 5e6},
    "a trillion on 10,000": {"parameters": 1e12, "tokens": 2e13, "device": "H100", "devices": 1e4, "batch": 2e7},
    "too small a batch": {"parameters": 7e9, "tokens": 2e12, "device": "H100", "devices": 1e4, "batch": 1e5},
}
"""Buttons for a lecture."""


def data(parameters: float, tokens: float, device: str, devices: float, batch: float) -> ThreeWalls:
    """Return how a run of N parameters on D tokens, ``batch`` tokens a step, stands on that many devices."""
    chip = accelerator(device)
    network = chip.scaleout or chip.scaleup
    return scale.three_walls(parameters, tokens, int(devices), chip.memory, chip.peak("bf16"), network, batch, mfu=MFU)


def draw(figure: Figure, walls: ThreeWalls) -> None:
    """Draw the three walls side by side."""
    layout = {"left": 0.09, "right": 0.99, "bottom": 0.1, "top": 0.9, "wspace": 0.52}
    plots.three_walls(figure.subplots(1, 3, gridspec_kw=layout), walls)


def words(walls: ThreeWalls) -> str:
    """Say in one sentence each what the picture shows."""
    return (
        f"Model state is {quantity(walls.state, 'B')}: at least {walls.devices_for_state:,} devices hold it. "
        f"Training takes {duration(walls.seconds)} at {MFU:.0%} MFU. A step computes for "
        f"{duration(walls.step_compute)} and all-reduces for {duration(walls.step_communication)}."
    )


def three_walls(large: bool = False) -> Panel:
    """Return the demo: show it by making it the last line of a cell; in large type for a projector."""
    controls = {
        "parameters": log_slider("parameters", 1e8, 1e13, 175e9, 7e9),
        "tokens": log_slider("tokens", 1e9, 1e14, 300e9),
        "device": menu("device", ACCELERATORS, "A100"),
        "devices": log_slider("devices", 1, 1e5, 1000.0),
        "batch": log_slider("tokens a step", 1e5, 1e9, 5e6),
    }
    return panel(controls, data, draw, words, presets=PRESETS, large=large)
