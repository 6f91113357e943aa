"""What a step consists of, counted: products, streams, kernels and messages of one layer with one micro-batch.

Everything here follows from the model, the machine's data sheet and the layout. Nothing is fitted:
:mod:`distgen_lab.planner.price` turns it into seconds with the five constants of an :class:`Efficiency`.

Bytes that stream by in the forward pass, for each token and layer in 16 bit: both norms 8 h, both residuals 12 h (14 h
with a dropout mask of one byte), once in and once out for query, key and value, attention's result and the activation
function; the scores of unfused attention 9 bytes each (softmax in and out, dropout in, out and mask).
"""

from dataclasses import dataclass

from distgen_lab.models import ModelShape
from distgen_lab.planner.efficiency import best_rate
from distgen_lab.planner.layout import Batch, Layout
from distgen_lab.planner.machine import Cluster, collective_time, copies, message_time
from distgen_lab.planner.memory import stage_parameters
from distgen_lab.planner.shape import Layer, layer_of
from distgen_lab.roofline import adam_step

__all__ = ["NOTHING", "Pass", "StepWork", "step_work"]

_BACKWARD_STREAM = 1.6
"""Bytes of a backward pass over those of the forward pass: an activation function reads two arrays and writes one."""
_SCORE_BYTES, _FALLBACK_BYTES, _FALLBACK_KERNELS = 9.0, 12.0, 7
"""Fused softmax over scores, and what comes on top where its kernel does not fit: heads x sequences not in fours."""
_CAST_BYTES = 4.0
"""Bytes to turn one value from 16 into 8 bits, twice (once transposed): 2 in, 1 and 1 out."""
_LOGIT_BYTES = 8.0
"""Bytes of each logit in the forward pass (and again in the backward pass): FP32 out and in."""


@dataclass(frozen=True)
class Pass:
    """One pass of one micro-batch through one layer (or the head), on one device.

    Attributes:
        matmul: seconds of its products at the best measured rate.
        stream: seconds of its other bytes at the memory bandwidth.
        kernels: how many are launched.
        tensor, context, expert: seconds of communication that nothing hides.
        peers: collectives times the other ranks in each.
    """

    matmul: float = 0.0
    stream: float = 0.0
    kernels: float = 0.0
    tensor: float = 0.0
    context: float = 0.0
    expert: float = 0.0
    peers: float = 0.0


NOTHING = Pass()


@dataclass(frozen=True)
class StepWork:
    """A step, counted.

    Attributes:
        forward, backward, again: passes of one layer; ``again`` is what is computed a second time.
        head_forward, head_backward: the output head, on the last stage.
        layers: of a stage.
        pipe, chunks, micro_batches: the pipeline.
        spared: 1 if the last stage computes nothing again (its backward pass follows at once), else 0.
        send: seconds of messages of one stage and micro-batch, both ways.
        ahead, behind: seconds of data-parallel communication beside the forward and beside the backward pass.
        ahead_rounds, behind_rounds: how often these happen in a step.
        overlap: 1 if they run beside the computation, else 0.
        context: seconds of context-parallel communication of a layer and micro-batch, hidden or not.
        update: seconds of the optimiser at the memory bandwidth.
    """

    forward: Pass
    backward: Pass
    again: Pass
    head_forward: Pass
    head_backward: Pass
    layers: float
    pipe: float
    chunks: float
    micro_batches: float
    spared: float
    send: float
    ahead: float
    behind: float
    ahead_rounds: float
    behind_rounds: float
    overlap: float
    context: float
    update: float


def step_work(model: ModelShape, machine: Cluster, batch: Batch, layout: Layout) -> StepWork:
    """Return the counted step of one device of each kind (a middle stage, and the last one's head)."""
    one = _Layer(model, machine, batch, layout)
    ahead, behind = _data(model, machine, layout)
    dense, routed, table = stage_parameters(model, layout)
    shared = layout.replicas if layout.stage else 1
    own = (dense + table) / shared + routed / (max(1, shared // layout.expert))
    m = layout.micro_batches(batch)
    message = 2.0 * one.tokens * model.hidden / layout.tensor
    stride = layout.tensor * layout.replicas
    send = message_time(message, stride, machine) if layout.pipe > 1 else 0.0
    return StepWork(
        forward=one.forward(),
        backward=one.backward(),
        again=one.again(),
        head_forward=one.head(1, 1),
        head_backward=one.head(2, 1),
        layers=model.layers / layout.pipe,
        pipe=layout.pipe,
        chunks=layout.chunks,
        micro_batches=m,
        spared=float(layout.recompute == "full" and layout.pipe > 1),
        send=2 * layout.chunks * send,
        ahead=ahead,
        behind=behind,
        ahead_rounds=m if layout.stage == 3 else 1,
        behind_rounds=m if layout.stage >= 2 else 1,  # summed-up gradients are cut too: scattered each time
        overlap=float(layout.overlap),
        context=one.ring(1) + one.ring(2),
        update=own * adam_step(1).traffic / one.bandwidth,
    )


class _Layer:
    """One layer with one micro-batch on one device."""

    def __init__(self, model: ModelShape, machine: Cluster, batch: Batch, layout: Layout) -> None:
        self.model, self.machine, self.batch, self.layout = model, machine, batch, layout
        self.layer: Layer = layer_of(model)
        self.tokens = layout.micro_batch * batch.context / layout.context
        self.bandwidth = machine.device.memory_bandwidth
        self.rate = best_rate(machine.device, layout.precision)
        self.rate16 = best_rate(machine.device)
        self.naive = layout.attention == "naive"
        self.whole = layout.tensor if layout.sequence_parallel else 1

    def forward(self) -> Pass:
        return Pass(
            self._matrices() + self._attention(1),
            (self._stream() + self._casts()) / self.bandwidth,
            self._gemms() + self._others(),
            *self._talk(1),
        )

    def backward(self) -> Pass:
        """Gradients of inputs and of weights; the latter are added up: read, read, written."""
        own = (self.layer.dense + self.layer.routed / self.layout.expert) / self.layout.tensor
        added = own * (2 + 2 * self.layout.gradient_bytes)
        return Pass(
            2 * self._matrices() + self._attention(2),
            (_BACKWARD_STREAM * self._stream() + self._casts() + added) / self.bandwidth,
            2 * self._gemms() + _BACKWARD_STREAM * self._others(),
            *self._talk(2),
        )

    def again(self) -> Pass:
        """What is computed a second time."""
        if self.layout.recompute == "full":
            return self.forward()
        if self.layout.recompute == "selective" and self.naive:
            return Pass(self._attention(1), self._scores() / self.bandwidth, 3)
        return NOTHING

    def head(self, products: int, passes: int) -> Pass:
        """The output head: products of tokens x width x vocabulary, and the loss."""
        logits = self.tokens * self.model.vocab / self.layout.tensor
        matmul = products * 2 * logits * self.model.hidden / self.rate16
        return Pass(matmul, passes * _LOGIT_BYTES * logits / self.bandwidth, products + 2)

    def _matrices(self) -> float:
        """Seconds of one product with every matrix, at the best rate."""
        return 2 * self.tokens * (self.layer.dense + self.layer.active) / self.layout.tensor / self.rate

    def _attention(self, passes: int) -> float:
        """Seconds of scores and their sum: the whole square if naive; half, and 2.5 times backward, in flash."""
        square = 4 * self.tokens * self.batch.context * self.layer.mixed / self.layout.tensor / self.rate16
        return square * (passes if self.naive else 0.5 * (1 if passes == 1 else 2.5))

    def _scores(self) -> float:
        """Bytes of scores in memory."""
        layout = self.layout
        number = self.tokens * self.batch.context * self.layer.heads / layout.tensor
        return number * (_SCORE_BYTES + _FALLBACK_BYTES * self._fallback())

    def _fallback(self) -> bool:
        """Whether Megatron's fused softmax refuses: it takes rows of four heads x sequences at a time."""
        return self.naive and bool(self.layer.heads // self.layout.tensor * self.layout.micro_batch % 4)

    def _stream(self) -> float:
        """Bytes in the forward pass outside the products."""
        layer = self.layer
        wide = (22 if layer.dropout else 20) * layer.hidden + 4 * layer.visits * layer.hidden
        cut = 2 * (layer.qkv + layer.opened + layer.closed)
        return self.tokens * (wide / self.whole + cut / self.layout.tensor) + (self._scores() if self.naive else 0.0)

    def _casts(self) -> float:
        """Bytes of what products take in, turned into 8 bits and transposed for the backward pass: 2 in, 1 and 1 out.

        In the backward pass gradients of what they made are turned; those are about as many.
        """
        if self.layout.precision in ("bf16", "fp16"):
            return 0.0
        wide = (1 + max(1.0, self.layer.visits)) * self.layer.hidden / self.whole
        return _CAST_BYTES * self.tokens * (wide + (self.layer.mixed + self.layer.closed) / self.layout.tensor)

    def _gemms(self) -> float:
        return self.layer.products + (2 if self.naive else 1)

    def _others(self) -> float:
        """Kernels that are no products: two norms, two residuals, three transposes, activation, softmax, dropout."""
        return 5 + (5 + _FALLBACK_KERNELS * self._fallback() if self.naive else 1) + 2 * (self.layer.visits > 0)

    def _talk(self, passes: int) -> tuple[float, float, float, float]:
        """Seconds of tensor, context (what attention does not hide) and expert communication; peers waited for."""
        layout, wide = self.layout, 2.0 * self.tokens * self.layer.hidden
        parts = ("all_gather", "reduce_scatter") if layout.sequence_parallel else ("all_reduce",)
        tensor = 2 * sum(collective_time(part, wide, layout.tensor, 1, self.machine) for part in parts)
        if layout.tensor_overlap and layout.sequence_parallel:
            tensor = max(tensor / layout.tensor, tensor - passes * self._matrices())
        ring = max(0.0, self.ring(passes) - self._attention(passes))
        sent = copies(self.layer.visits, layout.expert, layout.tensor, self.machine)
        there = collective_time("all_to_all", wide * sent, layout.expert, layout.tensor, self.machine)
        calls = 2 * (layout.tensor - 1) + 2 * (layout.expert - 1) * (self.layer.visits > 0)
        return tensor, ring, 2 * there, calls

    def ring(self, passes: int) -> float:
        """Seconds to hand keys and values (backward: their gradients too) round the context axis."""
        layout = self.layout
        size = 2.0 * self.tokens * self.layer.key_value / layout.tensor * layout.context * passes
        return collective_time("all_gather", size, layout.context, layout.tensor, self.machine)


def _data(model: ModelShape, machine: Cluster, layout: Layout) -> tuple[float, float]:
    """Seconds of data-parallel communication beside one forward and one backward pass: a collective a layer."""
    dense, routed, table = stage_parameters(model, layout)
    layers = model.layers / layout.pipe
    groups = [
        (dense + table, layout.replicas, layout.tensor),
        (routed, layout.replicas // layout.expert, layout.tensor * layout.expert),
    ]

    def every(operation: str, size: int) -> float:
        one = (collective_time(operation, size * n / layers, ranks, stride, machine) for n, ranks, stride in groups)
        return layers * sum(one)

    if layout.stage == 0:
        return 0.0, every("all_reduce", layout.gradient_bytes)
    gather, scatter = every("all_gather", 2), every("reduce_scatter", layout.gradient_bytes)
    return gather, scatter + (gather if layout.stage == 3 else 0.0)
