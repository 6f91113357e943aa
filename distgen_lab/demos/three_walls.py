"""Demo: memory, compute and communication wall of a training run, with sliders."""

import ipywidgets as widgets
from matplotlib.figure import Figure

from distgen_lab import plots, scale
from distgen_lab.demos.panel import log_slider, panel
from distgen_lab.hardware import ACCELERATORS, accelerator
from distgen_lab.scale import ThreeWalls
from distgen_lab.units import count, duration, quantity

__all__ = ["data", "draw", "three_walls", "words"]

BATCH_TOKENS = 4e6
"""Tokens in one step of all devices: what large runs use."""


def data(parameters: float, tokens: float, device: str, devices: float) -> ThreeWalls:
    """Return how a run of N parameters on D tokens stands on ``devices`` accelerators named ``device``."""
    chip = accelerator(device)
    network = chip.scaleout or chip.scaleup
    return scale.three_walls(
        parameters, tokens, int(devices), chip.memory, chip.peak("bf16"), network, BATCH_TOKENS, mfu=0.4
    )


def draw(figure: Figure, walls: ThreeWalls) -> None:
    """Draw the three walls side by side."""
    layout = {"left": 0.09, "right": 0.99, "bottom": 0.1, "top": 0.9, "wspace": 0.42}
    plots.three_walls(figure.subplots(1, 3, gridspec_kw=layout), walls)


def words(walls: ThreeWalls) -> str:
    """Say in one sentence each what the picture shows."""
    return (
        f"Model state is {quantity(walls.state, 'B')}: at least {walls.devices_for_state:,} devices hold it. "
        f"Training takes {duration(walls.seconds)} at 40 % MFU. A step of {count(BATCH_TOKENS)} tokens computes "
        f"for {duration(walls.step_compute)} and all-reduces for {duration(walls.step_communication)}."
    )


def three_walls() -> widgets.VBox:
    """Return the demo: show it by making it the last line of a cell."""
    style = {"style": {"description_width": "130px"}}
    controls = {
        "parameters": log_slider("parameters", 1e8, 1e13, 175e9),
        "tokens": log_slider("tokens", 1e9, 1e14, 300e9),
        "device": widgets.Dropdown(options=list(ACCELERATORS), value="A100", description="device", **style),
        "devices": log_slider("devices", 1, 1e5, 1000.0),
    }
    return panel(controls, data, draw, words)
