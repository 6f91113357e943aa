"""A training step planned: memory, seconds and what they consist of, use of the hardware, money."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import Any

from distgen_lab import overlap, scale
from distgen_lab.claims import html_table
from distgen_lab.models import ModelShape
from distgen_lab.planner.efficiency import Efficiency, fitted
from distgen_lab.planner.layout import Batch, Layout
from distgen_lab.planner.machine import Cluster
from distgen_lab.planner.memory import RESERVED, Memory, memory
from distgen_lab.planner.price import KINDS, layer_seconds, parts
from distgen_lab.planner.shape import layer_of
from distgen_lab.planner.work import StepWork, step_work
from distgen_lab.units import DAY, HOUR, TFLOP, duration, quantity

__all__ = ["TrainingPlan", "model_flops", "plan", "recomputed_flops"]


def model_flops(model: ModelShape, batch: Batch) -> float:
    """Return the FLOP that a step needs: 6 for each token and parameter it is multiplied by, and causal attention.

    NVIDIA counts the same way. What a plan computes a second time is not in it.

    >>> from distgen_lab import sample
    >>> llama = ModelShape.from_config(sample("llama-3-70b.json"))
    >>> round(model_flops(llama, Batch(1, 8192)) / 8192 / 1e9, 1)
    449.2
    """
    layer = layer_of(model)
    attention = scale.attention_flops(model.layers, batch.context, layer.mixed, batch.tokens, causal=True)
    return scale.training_flops(model.matmul_parameters, batch.tokens) + attention


def recomputed_flops(model: ModelShape, batch: Batch, layout: Layout) -> float:
    """Return the FLOP that a step computes a second time: the forward pass of all layers, or attention's alone."""
    layer = layer_of(model)
    attention = scale.attention_flops(model.layers, batch.context, layer.mixed, batch.tokens, causal=True) / 3
    if layout.recompute == "full":
        return scale.forward_flops(model.layers * (layer.dense + layer.active), batch.tokens) + attention
    return attention if layout.recompute == "selective" and layout.attention == "naive" else 0.0


@dataclass(frozen=True, repr=False)
class TrainingPlan:
    """A step of training, as predicted.

    Attributes:
        model, cluster, batch, layout: what was planned.
        memory: bytes on the fullest device, by what holds them.
        seconds: of a step of the slowest pipeline stage, by what takes them; they add up to :attr:`step_time`. Of
            communication only what is exposed.
        work: the counted step.
        efficiency: the constants used.
    """

    model: ModelShape
    cluster: Cluster
    batch: Batch
    layout: Layout
    memory: Memory
    seconds: dict[str, float] = field(hash=False)
    work: StepWork
    efficiency: Efficiency

    @property
    def capacity(self) -> float:
        """Bytes of a device that a plan may use."""
        return self.cluster.device.memory - RESERVED

    @property
    def headroom(self) -> float:
        """Bytes left on the fullest device; negative: by how much the plan does not fit."""
        return self.capacity - self.memory.total

    @property
    def fits(self) -> bool:
        """Whether the plan fits into memory."""
        return self.headroom >= 0

    @property
    def problem(self) -> str:
        """ "" if it fits, else one sentence."""
        if self.fits:
            return ""
        need, have = quantity(self.memory.total, "B"), quantity(self.capacity, "B")
        return f"needs {need} on a device, {quantity(-self.headroom, 'B')} more than the {have} it may use"

    @cached_property
    def step_time(self) -> float:
        """Seconds of a step."""
        return sum(self.seconds.values())

    @property
    def flops(self) -> float:
        """FLOP of a step that the model needs, on all devices."""
        return model_flops(self.model, self.batch)

    @property
    def hardware_flops(self) -> float:
        """FLOP of a step with what is computed a second time."""
        return self.flops + recomputed_flops(self.model, self.batch, self.layout)

    @property
    def _peak(self) -> float:
        return self.cluster.devices * self.cluster.device.peak(self.layout.precision)

    @property
    def mfu(self) -> float:
        """Model FLOP/s over the peak at the plan's precision."""
        return self.flops / self.step_time / self._peak

    @property
    def hfu(self) -> float:
        """FLOP/s with recomputation over the peak."""
        return self.hardware_flops / self.step_time / self._peak

    @property
    def tflops(self) -> float:
        """Model FLOP/s of a device in units of 1e12."""
        return self.flops / self.step_time / self.cluster.devices / TFLOP

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second of all devices."""
        return self.batch.tokens / self.step_time

    @property
    def exposed(self) -> float:
        """Seconds of a step in which nothing but communication goes on."""
        return sum(self.seconds[kind] for kind in KINDS)

    @cached_property
    def communication(self) -> dict[str, float]:
        """Seconds of a step by kind of communication, hidden or not."""
        work, passes = self.work, self.work.layers * self.work.micro_batches
        said = {kind: self.seconds[kind] for kind in ("tensor", "expert", "pipe")}
        said |= {
            "context": work.context * passes,
            "data": work.ahead_rounds * work.ahead + work.behind_rounds * work.behind,
        }
        return {kind: said[kind] for kind in KINDS}

    @property
    def hidden(self) -> float:
        """Seconds of communication behind computation."""
        return sum(self.communication.values()) - self.exposed

    @property
    def bubble(self) -> float:
        """Share of the step in which the slowest stage waits for the pipeline to fill and to drain."""
        return self.seconds["bubble"] / self.step_time

    @property
    def cost_per_step(self) -> float:
        """Dollars for a step."""
        return self.cluster.price * self.cluster.devices * self.step_time / HOUR

    def days(self, tokens: float) -> float:
        """Return days to train on so many tokens."""
        return tokens / self.tokens_per_second / DAY

    def cost(self, tokens: float) -> float:
        """Return dollars to train on so many tokens."""
        return tokens / self.batch.tokens * self.cost_per_step

    def execution(self) -> overlap.Execution:
        """Return a step as simulated tasks: a lane for each pipeline stage, and the data-parallel channel of each.

        The schedule is plain 1F1B; each stage's gradients are reduced after its last backward pass, by so much as is
        exposed. The optimiser is left out.
        """
        return overlap.simulate(_tasks(self))

    def as_json(self) -> dict[str, Any]:
        """Return the plan as plain data in SI units."""
        names = ("step_time", "exposed", "hidden", "bubble", "mfu", "hfu", "tokens_per_second", "fits", "headroom")
        return {
            "model": self.model.name, "cluster": self.cluster.name, "devices": self.cluster.devices,
            "batch": asdict(self.batch), "layout": asdict(self.layout), "memory": asdict(self.memory),
            "seconds": self.seconds, **{name: getattr(self, name) for name in names},
            "dollars_per_step": self.cost_per_step,
        }  # fmt: skip

    def rows(self) -> list[tuple[str, str]]:
        """Return what the plan says, a line each."""
        of = self.memory
        held = ", ".join(f"{name} {quantity(getattr(of, name), 'B')}" for name in Memory.__dataclass_fields__)
        spent = ", ".join(f"{name} {duration(t)}" for name, t in self.seconds.items() if t > 0)
        return [
            ("layout", str(self.layout)),
            ("step", f"{duration(self.step_time)}: {spent}"),
            ("memory", f"{quantity(of.total, 'B')} of {quantity(self.capacity, 'B')} on a device: {held}"),
            ("rate", f"{self.tflops:.0f} TFLOP/s a device, MFU {self.mfu:.1%}, HFU {self.hfu:.1%}"),
            ("exposed", f"{duration(self.exposed)} of communication ({duration(self.hidden)} more is hidden)"),
            ("tokens", f"{self.tokens_per_second:,.0f} per second"),
            ("cost", f"${self.cost(1e9):,.0f} for a billion tokens, {duration(self.days(1e9) * DAY)}"),
            *([("does not fit", self.problem)] if self.problem else []),
        ]

    def _title(self) -> str:
        where = f"{self.cluster.devices} x {self.cluster.device.name}"
        return f"{self.model.name} on {where}, {self.batch.sequences} x {self.batch.context} tokens"

    def __repr__(self) -> str:
        return "\n".join([self._title(), *(f"  {name + ':':14}{words}" for name, words in self.rows())])

    def _repr_html_(self) -> str:
        return html_table((self._title(), ""), self.rows())


def plan(
    model: ModelShape | str | PathLike[str],
    cluster: Cluster,
    batch: Batch,
    layout: Layout,
    efficiency: Efficiency | None = None,
) -> TrainingPlan:
    """Return what a training step takes on every device of ``cluster``: seconds, bytes, FLOP, dollars.

    Assumed: equal layers; BF16 weights and Adam with an FP32 master copy; plain 1F1B or its interleaved form;
    gradients (ZeRO-3: weights too) travel layer by layer beside the computation and do not slow it down; tensor and
    expert communication is exposed; with full recomputation the last stage keeps its activations.

    Args:
        model: its shape, or the path of a ``config.json``.
        cluster: all of whose devices are used.
        batch: the data of a step.
        layout: how it is spread.
        efficiency: constants of kernels, the fitted ones unless given.

    Raises:
        ValueError: for a layout that does not divide heads, layers, sequences, tokens, experts or devices (the message
            says which), a precision that the device lacks, or a model that is no decoder.

    >>> from distgen_lab import sample
    >>> from distgen_lab.planner import cluster
    >>> from distgen_lab.planner.layout import Batch, Layout
    >>> spread = Layout(data=2, tensor=8, pipe=4)
    >>> plan(sample("llama-3-70b.json"), cluster("DGX H100", 64), Batch(128, 8192), spread).fits
    True
    """
    shape = model if isinstance(model, ModelShape) else ModelShape.from_config(model)
    layer_of(shape)  # refuses what is no decoder
    wrong = layout.misfit(shape, cluster.devices, batch)
    if wrong:
        raise ValueError(f"{wrong}; choose another layout")
    by = efficiency or fitted()
    work = step_work(shape, cluster, batch, layout)
    seconds = {name: float(value) for name, value in parts(work, by).items()}
    return TrainingPlan(shape, cluster, batch, layout, memory(shape, batch, layout), seconds, work, by)


def _tasks(of: TrainingPlan) -> Iterable[overlap.Task]:
    """The tasks of :meth:`TrainingPlan.execution`: 1F1B, the last stage with its head, and the exposed reductions."""
    work, by = of.work, of.efficiency
    forward, again, backward = (float(layer_seconds(p, by)) for p in (work.forward, work.again, work.backward))
    heads = [float(layer_seconds(p, by)) for p in (work.head_forward, work.head_backward)]
    stages, count = int(work.pipe), int(work.micro_batches)
    there, back = work.layers * forward, work.layers * (again + backward)
    last = {"F": there + heads[0], "B": back - work.layers * again * work.spared + heads[1]}
    tasks = overlap.one_forward_one_backward(stages, count, there, back, work.send / 2)
    for task in tasks:
        end = task.device == stages - 1 and task.kind == overlap.COMPUTE
        yield replace(task, seconds=last[task.name[0]]) if end else task
    for stage in range(stages):
        if of.seconds["data"]:
            name, after = f"data {stage}", f"B{count - 1} on {stage}"
            yield overlap.Task(name, of.seconds["data"], name, (after,), overlap.COMMUNICATION, stage)
