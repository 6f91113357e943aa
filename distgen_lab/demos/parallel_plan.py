"""Demo: a model laid out over data x pipe x tensor H100s: does it fit, what does it send, how long is a step?"""

from dataclasses import dataclass

from matplotlib.figure import Figure

from distgen_lab import parallelism, plots, sample, scale
from distgen_lab.demos.panel import Panel, choice, menu, panel
from distgen_lab.hardware import accelerator
from distgen_lab.models import ModelShape
from distgen_lab.parallelism import Plan
from distgen_lab.plots import PALETTE
from distgen_lab.units import duration, quantity

__all__ = ["CONTEXT", "MODELS", "SEQUENCES", "PlanView", "data", "draw", "parallel_plan", "words"]

MODELS = {"Llama 2 7B": "llama-2-7b.json", "Llama 3 70B": "llama-3-70b.json", "GPT-3 175B": "gpt3-175b.json"}
"""Configs of the course, by the name in the menu."""
MFU = 0.45
"""Share of the peak that the compute of the demo reaches, before bubble and waiting."""
SEQUENCES, CONTEXT = 512, 4096
"""Of one step: 2.1 million tokens."""
_DEVICE = "H100"
PRESETS = {
    "7B on one": {"model": "Llama 2 7B", "tensor": 1, "pipe": 1, "replicas": 1, "stage": 0},
    "7B, ZeRO 3": {"model": "Llama 2 7B", "tensor": 1, "pipe": 1, "replicas": 64, "stage": 3},
    "GPT-3, 512 GPUs": {"model": "GPT-3 175B", "tensor": 8, "pipe": 8, "replicas": 8, "stage": 1},
    "too much pipeline": {"pipe": 16, "replicas": 64},
    "tensor over two nodes": {"tensor": 16},
}
"""Buttons for a lecture."""


@dataclass(frozen=True)
class PlanView:
    """What the picture shows: the plan, seconds of a step by what takes them, and one device's memory in bytes.

    ``seconds`` are of one device: compute, the bubble beside it, and each kind of communication as if nothing hid it.
    Tensor parallelism travels on NVLink (as long as it stays in a node of eight), the rest on the network port.
    """

    model: str
    plan: Plan
    seconds: dict[str, float]
    memory: float

    @property
    def fits(self) -> bool:
        """Whether model state leaves a quarter of the memory free for activations."""
        return self.plan.held.total <= 0.75 * self.memory


def data(model: str, tensor: int, pipe: int, replicas: int, stage: int) -> PlanView:
    """Return the plan of a model over ``tensor`` x ``pipe`` x ``replicas`` H100s with a stage of ZeRO, in seconds too.

    Raises:
        ValueError: for a layout that does not divide.
    """
    shape, chip = ModelShape.from_config(sample(MODELS[model])), accelerator(_DEVICE)
    plan = parallelism.plan(shape, replicas, pipe, tensor, stage, SEQUENCES, CONTEXT)
    flops = scale.training_flops(shape.parameters, SEQUENCES * CONTEXT)
    compute = scale.training_time(flops, plan.devices, chip.peak(), MFU)
    inside = chip.scaleup if tensor <= 8 else chip.scaleout
    seconds = {"compute": compute, "bubble": compute * plan.bubble / (1 - plan.bubble)}
    seconds |= {kind: sent / (inside if kind == "tensor" else chip.scaleout) for kind, sent in plan.sent.items()}
    return PlanView(model, plan, seconds, chip.memory)


def draw(figure: Figure, view: PlanView) -> None:
    """Draw memory on the left and the parts of a step on the right."""
    layout = {"left": 0.09, "right": 0.98, "bottom": 0.17, "top": 0.82, "wspace": 0.3}
    left, right = figure.subplots(1, 2, gridspec_kw=layout)
    plots.held_bars(left, {"": view.plan.held}, (f"one {_DEVICE}", view.memory))
    left.set_yticks([])
    left.set_xlim(0, max(1.15 * view.memory, 1.05 * view.plan.held.total))
    left.set_title("fits" if view.fits else "does not fit", color=PALETTE["green" if view.fits else "red"], pad=22)
    colors = [PALETTE[name] for name in ("blue", "grey", "purple", "sky", "orange")]
    right.barh(list(view.seconds), list(view.seconds.values()), color=colors)
    right.bar_label(right.containers[0], [duration(value) for value in view.seconds.values()], padding=3, fontsize=9)
    right.set(xlabel="seconds of a step", xlim=(0, 1.25 * max(view.seconds.values())))
    right.invert_yaxis()
    plots.plain_frame(right)


def words(view: PlanView) -> str:
    """Say in a few sentences what the picture shows."""
    plan, seconds = view.plan, view.seconds
    hidden = seconds["compute"] + seconds["bubble"] + seconds["tensor"]
    shown = hidden + seconds["pipe"] + seconds["data"]
    return (
        f"{view.model} on {plan.devices:,} {_DEVICE}s: each keeps {quantity(plan.held.total, 'B')} of model state and "
        f"runs {plan.micro_batches} micro-batches a step; the bubble takes {plan.bubble:.0%} of its pipeline. A step "
        f"takes {duration(hidden)} if data and pipeline messages hide behind compute, {duration(shown)} if none hides."
    )


def parallel_plan(large: bool = False) -> Panel:
    """Return the demo: show it by making it the last line of a cell; in large type for a projector."""
    controls = {
        "model": menu("model", MODELS, "Llama 3 70B"),
        "tensor": choice("tensor parallel", _powers(16), 8),
        "pipe": choice("pipeline stages", _powers(16), 4),
        "replicas": choice("data parallel", _powers(512), 8),
        "stage": menu("ZeRO stage", parallelism.STAGES, 1),
    }
    return panel(controls, data, draw, words, presets=PRESETS, large=large)


def _powers(most: int) -> list[int]:
    return [2**k for k in range(most.bit_length())]
