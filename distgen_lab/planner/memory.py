"""What the fullest device of a plan holds: weights, gradients and optimiser under ZeRO, and activations.

Activations follow Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models (2022), section 4,
with the widths of the model at hand for theirs (grouped keys and values, gated layers, experts). For their GPT it is
their s b h (10 + 24/t + 5 a s / (h t)) bytes a layer.
"""

from dataclasses import dataclass

from distgen_lab.models import ModelShape
from distgen_lab.parallelism import zero_memory
from distgen_lab.planner.layout import Batch, Layout
from distgen_lab.planner.shape import Layer, layer_of

__all__ = ["RESERVED", "Memory", "activation_bytes", "memory", "stage_parameters"]

RESERVED = 3e9
"""Bytes that a device has not got for a plan: driver and library contexts, communication buffers, fragments."""
_WEIGHT, _STATE = 2, 12  # bytes of a BF16 weight; of FP32 master copy and both moments of Adam


@dataclass(frozen=True)
class Memory:
    """Bytes on one device.

    Attributes:
        weights, gradients, optimizer: model state, as ZeRO cuts it.
        activations: kept from the forward to the backward pass, of all micro-batches on their way.
        buffers: logits, the layer that is worked on, and gathered weights.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float

    @property
    def state(self) -> float:
        """Weights, gradients and optimiser state."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        """Everything."""
        return self.state + self.activations + self.buffers


def activation_bytes(
    layer: Layer, tokens: float, context: int, tensor: int = 1, recompute: str = "none",
    sequence_parallel: bool = False, attention: str = "naive",
) -> float:  # fmt: skip
    """Return the bytes that one layer keeps for the backward pass of ``tokens`` tokens, on one of ``tensor`` devices.

    Args:
        layer: widths.
        tokens: of the micro-batch on this device.
        context: tokens that each of them attends to.
        tensor: t.
        recompute: "none"; "selective" (scores are computed again); "full" (only the layer's input is kept).
        sequence_parallel: whether what is as wide as the model is cut by tokens too.
        attention: "naive" keeps the scores' softmax and dropout, "flash" nothing of them.
    """
    whole = tensor if sequence_parallel else 1
    if recompute == "full":
        return 2.0 * tokens * layer.hidden / whole
    masks = 2 if layer.dropout else 0
    # inputs of both norms and of the first matrices behind them, in 16 bit; one byte for each dropout mask
    wide = (8 + masks) * layer.hidden + 2 * layer.visits * layer.hidden
    cut = 2 * (layer.qkv + layer.mixed + layer.opened + layer.closed)
    scores = 5.0 * layer.heads * context if attention == "naive" and recompute == "none" else 0.0
    return tokens * (wide / whole + (cut + scores) / tensor)


def stage_parameters(model: ModelShape, layout: Layout) -> tuple[float, float, float]:
    """Return parameters on one device: of its layers outside experts, of its experts, and of one embedding or head."""
    layer, held = layer_of(model), model.layers / layout.pipe
    dense = held * (layer.dense / layout.tensor + layer.vectors)
    routed = held * layer.routed / (layout.tensor * layout.expert)
    return dense, routed, model.vocab * model.hidden / layout.tensor


def memory(model: ModelShape, batch: Batch, layout: Layout) -> Memory:
    """Return what the fullest device holds: the first stage of a pipeline or, where the head weighs more, the last."""
    ends = (True, False) if layout.pipe > 1 else (True,)
    return max((_stage(model, batch, layout, first) for first in ends), key=lambda held: held.total)


def _stage(model: ModelShape, batch: Batch, layout: Layout, first: bool) -> Memory:
    """The first stage (or the only one), or the last."""
    dense, routed, table = stage_parameters(model, layout)
    tables = 1 if layout.pipe > 1 or model.tied else 2
    own = dense + tables * table
    parts = [(own, layout.replicas), (routed, layout.replicas // layout.expert)]
    held = [
        zero_memory(round(n), layout.stage, ranks, _WEIGHT, layout.gradient_bytes, _STATE) for n, ranks in parts if n
    ]
    kept, working = _kept(model, batch, layout, first)
    logits = 6.0 * _tokens(batch, layout) * model.vocab / layout.tensor if layout.pipe == 1 or not first else 0.0
    gathered = 2 * _WEIGHT * (dense + routed) * layout.pipe / model.layers if layout.stage == 3 else 0.0
    weights, gradients, state = (sum(getattr(h, n) for h in held) for n in ("parameters", "gradients", "optimizer"))
    return Memory(weights, gradients, state, kept, logits + working + gathered)


def _tokens(batch: Batch, layout: Layout) -> float:
    """Tokens of a micro-batch on one device."""
    return layout.micro_batch * batch.context / layout.context


def _kept(model: ModelShape, batch: Batch, layout: Layout, first: bool) -> tuple[float, float]:
    """Activations of all micro-batches on their way, and of the layer that is computed again."""
    layer, tokens = layer_of(model), _tokens(batch, layout)

    def one(recompute: str) -> float:
        sequence = layout.sequence_parallel and layout.tensor > 1
        return activation_bytes(layer, tokens, batch.context, layout.tensor, recompute, sequence, layout.attention)

    held = model.layers / layout.pipe * one(layout.recompute)
    depth = _on_their_way(layout, batch) if first else 1.0
    working = one("none") if layout.recompute == "full" else 0.0
    return depth * held, working


def _on_their_way(layout: Layout, batch: Batch) -> float:
    """Micro-batches whose activations the first stage holds at once; more when it is interleaved."""
    p, v = layout.pipe, layout.chunks
    most = min(p, layout.micro_batches(batch))
    return most * (1 + (p - 1) / (p * v)) if v > 1 else float(most)
