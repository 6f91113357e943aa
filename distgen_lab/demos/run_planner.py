"""Demo: a model on a cluster, laid out over data, tensor and pipeline: memory, a step's seconds, MFU and money."""

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from distgen_lab import plots, sample
from distgen_lab.demos.panel import Panel, choice, menu, panel
from distgen_lab.models import ModelShape
from distgen_lab.planner import Batch, Layout, TrainingPlan, cluster, plan
from distgen_lab.units import duration, quantity

__all__ = ["MODELS", "Planned", "data", "draw", "run_planner", "words"]

MODELS = {
    "Llama 2 7B": "llama-2-7b.json",
    "Llama 3 70B": "llama-3-70b.json",
    "GPT-3 175B": "gpt3-175b.json",
    "Mixtral 8x7B": "mixtral-8x7b.json",
}
"""Configurations of the course, by what a menu calls them."""
CLUSTERS = {"DGX A100": 2.0, "DGX H100": 3.0, "DGX B200": 5.0}
"""Nodes, and dollars for a device and hour: round numbers, to be replaced by what you pay."""
TOKENS = 1e12
"""Tokens that the run's price is told for."""
POWERS = tuple(2**k for k in range(15))
_HELD = ("weights", "gradients", "optimizer", "activations", "buffers")
_SPENT = ("compute", "recompute", "tensor", "expert", "pipe", "bubble", "data", "optimizer")
_NAMES = {"tensor": "tensor comm.", "pipe": "stage comm.", "data": "data comm.", "expert": "expert comm."}
PRESETS = {
    "one node": {"model": "Llama 2 7B", "devices": 8, "tensor": 1, "pipe": 1, "context": 4096},
    "too large for a node": {"devices": 8, "tensor": 8, "pipe": 1, "sequences": 64},
    "GPT-3": {"model": "GPT-3 175B", "devices": 1024, "tensor": 8, "pipe": 8, "sequences": 1536, "context": 2048},
    "bubbles": {"devices": 512, "tensor": 8, "pipe": 16, "sequences": 64},
    "tensor over nodes": {"devices": 64, "tensor": 16, "pipe": 1},
}
"""Buttons for a lecture."""


@dataclass(frozen=True)
class Planned:
    """A plan, and the names under which model and cluster were chosen."""

    model: str
    machine: str
    plan: TrainingPlan


def data(
    model: str, machine: str, devices: int, sequences: int, context: int, tensor: int, pipe: int, stage: int,
    recompute: str,
) -> Planned:  # fmt: skip
    """Return the plan of a step.

    Raises:
        ValueError: for a layout that does not divide the devices, the model or the batch; the sentence says which.
    """
    if devices % (tensor * pipe):
        raise ValueError(f"{devices} devices are not divided by tensor {tensor} x pipeline {pipe}")
    layout = Layout(data=devices // (tensor * pipe), tensor=tensor, pipe=pipe, stage=stage, recompute=recompute)
    where = cluster(machine, devices, price=CLUSTERS[machine])
    shape = ModelShape.from_config(sample(MODELS[model]))
    return Planned(model, machine, plan(shape, where, Batch(sequences, context), layout))


def draw(figure: Figure, shown: Planned) -> None:
    """Draw what fills a device's memory, what a step's seconds are spent on, and the step, stage by stage."""
    of = shown.plan
    held, spent = figure.add_axes((0.11, 0.82, 0.86, 0.1)), figure.add_axes((0.11, 0.53, 0.86, 0.1))
    _bar(held, {name: getattr(of.memory, name) for name in _HELD}, "memory", of.capacity)
    held.axvline(of.capacity, color="black", linestyle="--")
    held.set_title(
        f"{quantity(of.memory.total, 'B')} on the fullest device, {quantity(of.capacity, 'B')} to use", fontsize=10
    )
    _bar(spent, {_NAMES.get(name, name): of.seconds[name] for name in _SPENT}, "step", 0.0)
    spent.set_title(f"a step of {duration(of.step_time)}, MFU {of.mfu:.1%}", fontsize=10)
    plots.stage_rows(figure.add_axes((0.11, 0.11, 0.86, 0.22)), of.execution())


def _bar(ax: Axes, parts: dict[str, float], label: str, least: float) -> None:
    """One stacked bar with a legend below it."""
    left, held = 0.0, {name: value for name, value in parts.items() if value}
    for (name, value), color in zip(held.items(), [*plots.PALETTE.values(), "black"], strict=False):
        ax.barh(0, value, left=left, color=color, label=name)
        left += value
    ax.set(yticks=[0], yticklabels=[label], xticks=[], xlim=(0, 1.02 * max(left, least)))
    ax.legend(frameon=False, fontsize=8, ncols=8, loc="upper left", bbox_to_anchor=(0, -0.02), borderaxespad=0)
    plots.plain_frame(ax)


def words(shown: Planned) -> str:
    """Say whether it fits, how fast it is, what is exposed and what it costs."""
    of = shown.plan
    text = f"{shown.model} on {of.cluster.devices:,} devices of {shown.machine}, {of.layout}. "
    if not of.fits:
        return text + f"<b>It does not fit: it {of.problem}.</b>"
    exposed = of.exposed / of.step_time
    text += (
        f"{of.tokens_per_second:,.0f} tokens/s; {exposed:.1%} of a step is exposed communication and {of.bubble:.1%} "
    )
    text += f"bubble. A trillion tokens take {of.days(TOKENS):,.1f} days and ${of.cost(TOKENS):,.0f}."
    return text


def run_planner(large: bool = False) -> Panel:
    """Return the demo: show it by making it the last line of a cell; in large type for a projector."""
    controls = {
        "model": menu("model", MODELS, "Llama 3 70B"),
        "machine": menu("node", CLUSTERS, "DGX H100"),
        "devices": choice("devices", POWERS[3:], 64),
        "sequences": choice("sequences", (8, 16, 32, 64, 128, 256, 512, 1024, 1536, 2048, 4096), 128),
        "context": choice("context", (1024, 2048, 4096, 8192), 8192),
        "tensor": choice("tensor", POWERS[:5], 8),
        "pipe": choice("pipeline", POWERS[:5], 4),
        "stage": choice("ZeRO stage", (0, 1, 2, 3), 1),
        "recompute": menu("recompute", ("none", "selective", "full"), "selective"),
    }
    return panel(controls, data, draw, words, (9, 4.6), PRESETS, large)
