"""What each kind of parallel training keeps on a device and sends from it: formulas, to hold against recorded runs.

All byte counts are what one rank sends in one direction; a collective counts with its lower bound, which ring and
direct algorithms meet: 2(P-1)/P n for an all-reduce, (P-1)/P n for each of its halves and for an all-to-all.

Source: Rajbhandari et al., ZeRO, SC 2020; Shoeybi et al., Megatron-LM, 2019; Korthikanti et al., Reducing Activation
Recomputation, 2022; Jacobs et al., DeepSpeed-Ulysses, 2023; Narayanan et al., Efficient Large-Scale Training, SC 2021.
"""

from dataclasses import dataclass
from fractions import Fraction

from distgen_lab.models import ModelShape

__all__ = [
    "STAGES", "WAYS", "Held", "Plan", "bubble", "expert_traffic", "pipeline_traffic", "plan", "sequence_traffic",
    "tensor_traffic", "zero_memory", "zero_traffic",
]  # fmt: skip

STAGES = (0, 1, 2, 3)
"""ZeRO: 0 cuts nothing, 1 the optimiser state, 2 the gradients too, 3 the parameters too."""
WAYS = ("Megatron", "Ulysses")
"""Sequence parallelism: all-gather and reduce-scatter of tokens, or all-to-all between tokens and heads."""


@dataclass(frozen=True)
class Held:
    """Bytes that one rank keeps between two steps (gradients: at the end of the backward pass)."""

    parameters: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        """All three."""
        return self.parameters + self.gradients + self.optimizer


def zero_memory(parameters: int, stage: int, ranks: int, weight: int = 2, gradient: int = 2, state: int = 12) -> Held:
    """Return what a rank keeps under a stage of ZeRO, each part rounded up to whole bytes.

    Args:
        parameters: N.
        stage: 0 to 3.
        ranks: P, over which the parts are cut.
        weight, gradient, state: bytes a parameter; 2, 2 and 12 in mixed precision with Adam.

    Raises:
        ValueError: for another stage, or no rank.

    >>> zero_memory(7_500_000_000, 3, 64).total / 1e9
    1.875
    """
    _check(stage, ranks)
    sizes, cut = [size * parameters for size in (weight, gradient, state)], [stage >= 3, stage >= 2, stage >= 1]
    return Held(*(-(-size // ranks) if shared else size for size, shared in zip(sizes, cut, strict=True)))


def zero_traffic(nbytes: float, stage: int, ranks: int) -> float:
    """Return what a rank sends in a step, for n bytes of parameters and as many of gradients.

    Stages 0 to 2 move gradients and parameters once each, 2(P-1)/P n; stage 3 gathers parameters twice, 3(P-1)/P n.

    Raises:
        ValueError: for another stage, or no rank.
    """
    _check(stage, ranks)
    return (3 if stage == 3 else 2) * (ranks - 1) / ranks * nbytes


def _check(stage: int, ranks: int) -> None:
    if stage not in STAGES:
        raise ValueError(f"stage is {stage!r}; 0 (plain data parallelism), 1, 2 or 3 is needed")
    _at_least_one("ranks", ranks)


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{name} is {value}; 1 or more is needed")
    return value


def tensor_traffic(nbytes: float, ranks: int) -> float:
    """Return what a rank sends for one layer, MLP or attention, cut over P ranks: an all-reduce forward, one backward.

    Args:
        nbytes: n, bytes of the layer's activations (tokens x width x bytes of a value).
        ranks: P.

    >>> tensor_traffic(1e6, 2)
    2000000.0
    """
    return 2 * 2 * (_at_least_one("ranks", ranks) - 1) / ranks * nbytes


def sequence_traffic(way: str, nbytes: float, ranks: int) -> float:
    """Return what a rank sends in the forward pass of one attention; the backward pass sends as much again.

    Args:
        way: "Megatron" (an all-gather and a reduce-scatter of n) or "Ulysses" (four all-to-alls of n/P: query, key,
            value, output).
        nbytes: n, bytes of the activations of *all* tokens.
        ranks: P.

    Raises:
        ValueError: for another way, or no rank.

    >>> sequence_traffic("Megatron", 8e6, 8), sequence_traffic("Ulysses", 8e6, 8)
    (14000000.0, 3500000.0)
    """
    if way not in WAYS:
        raise ValueError(f"unknown way {way!r}; there are: {', '.join(WAYS)}")
    factor = 2.0 if way == "Megatron" else 4 / _at_least_one("ranks", ranks)
    return factor * (ranks - 1) / ranks * nbytes


def pipeline_traffic(nbytes: float, stages: int) -> float:
    """Return what an inner stage sends in a step: its activations forward, the gradients of its input backward.

    Args:
        nbytes: bytes of the activations of the whole batch at one cut.
        stages: p; with one stage nothing is sent, with two each sends one of the two.
    """
    return min(2, _at_least_one("stages", stages) - 1) * nbytes


def bubble(stages: int, micro_batches: int) -> Fraction:
    """Return the idle share of a pipeline's time, (p-1)/(m+p-1), the same for GPipe and 1F1B.

    >>> bubble(4, 8)
    Fraction(3, 11)
    """
    return Fraction(_at_least_one("stages", stages) - 1, _at_least_one("micro_batches", micro_batches) + stages - 1)


def expert_traffic(nbytes: float, ranks: int, active: int) -> float:
    """Return what a rank sends in the forward pass of a mixture: its tokens to their experts, and their answers back.

    Args:
        nbytes: bytes of this rank's tokens.
        ranks: P, over which the experts are spread; they are met equally often.
        active: experts that a token meets.
    """
    return 2 * active * (_at_least_one("ranks", ranks) - 1) / ranks * nbytes


@dataclass(frozen=True)
class Plan:
    """A training step laid out over data x pipe x tensor devices.

    Attributes:
        devices: data x pipe x tensor.
        held: bytes of model state on one device, if layers are cut evenly.
        sent: bytes one device sends in a step, by kind: "tensor", "pipe", "data".
        bubble: idle share of the pipeline.
        micro_batches: of one replica.
    """

    devices: int
    held: Held
    sent: dict[str, float]
    bubble: float
    micro_batches: int


def plan(
    shape: ModelShape, data: int, pipe: int, tensor: int, stage: int = 1, sequences: int = 256, context: int = 4096
) -> Plan:
    """Return what one device keeps and sends, in mixed precision with Adam, micro-batches of one sequence.

    Args:
        shape: the model.
        data, pipe, tensor: devices along each axis.
        stage: of ZeRO, over the data axis.
        sequences, context: of a step, and tokens of each.

    Raises:
        ValueError: for a layout that does not divide: heads by ``tensor``, layers by ``pipe``, sequences by ``data``.
    """
    _divides("heads", shape.heads, "tensor", tensor)
    _divides("layers", shape.layers, "pipe", pipe)
    _divides("sequences", sequences, "data", data)
    own = -(-round(shape.parameters) // (pipe * tensor))
    micro_batches = sequences // data
    activations = 2.0 * micro_batches * context * shape.hidden
    sent = {
        "tensor": 2 * shape.layers / pipe * tensor_traffic(activations, tensor),
        "pipe": pipeline_traffic(activations, pipe) / tensor,
        "data": zero_traffic(2 * own, stage, data),
    }
    held = zero_memory(own, stage, data)
    return Plan(data * pipe * tensor, held, sent, float(bubble(pipe, micro_batches)), micro_batches)


def _divides(what: str, count: int, axis: str, parts: int) -> None:
    _at_least_one(axis, parts)
    if count % parts:
        raise ValueError(f"{count} {what} do not divide among {axis} = {parts}; choose a divisor of {count}")
