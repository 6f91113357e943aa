"""Scale arithmetic: the compute, memory and communication that a model and its data ask for.

The functions carry the chapter's equation names. N is parameters, D tokens, K data-parallel workers.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real

__all__ = [
    "RECIPES", "ModelState", "Recipe", "ThreeWalls", "activation_tensor", "all_reduce_volume", "attention_flops",
    "backward_flops", "communication_time", "fewest_devices", "forward_flops", "hfu", "kv_cache", "kv_cache_latent",
    "mfu", "model_state", "three_walls", "training_flops", "training_time",
]  # fmt: skip


def forward_flops(parameters: float, tokens: float) -> float:
    """Return 2ND: one multiply and one add for each parameter and token (forward part of the *Compute Estimate*)."""
    return 2 * _positive("parameters", parameters) * _positive("tokens", tokens)


def backward_flops(parameters: float, tokens: float) -> float:
    """Return 4ND: the gradient of the inputs and the gradient of the weights each cost as much as a forward pass."""
    return 2 * forward_flops(parameters, tokens)


def training_flops(parameters: float, tokens: float) -> float:
    """Return C = 6ND in FLOP, the chapter's *Compute Estimate* (Kaplan et al. 2020, section 2.1).

    For a mixture of experts N is the parameters one token passes through. Attention's own products and the optimiser
    step are not in it: see :func:`attention_flops`.

    >>> training_flops(175e9, 300e9)
    3.15e+23
    """
    return forward_flops(parameters, tokens) + backward_flops(parameters, tokens)


def attention_flops(layers: int, context: int, width: int, tokens: float, causal: bool = False) -> float:
    """Return the training FLOP of QK^T and of scores x V, which 6ND leaves out: 12 L s d D, half of it if causal.

    Args:
        layers: L.
        context: s, tokens that attend to each other.
        width: d, heads x head dimension.
        tokens: D.
        causal: count only the half of the scores that a causal mask keeps.
    """
    flops = 12.0 * _positive("layers", layers) * _positive("context", context) * _positive("width", width)
    return flops * _positive("tokens", tokens) * (0.5 if causal else 1.0)


def training_time(flops: float, devices: float, peak_flops: float, mfu: float = 1.0) -> float:
    """Return seconds for ``flops`` on ``devices`` of ``peak_flops`` FLOP/s at model FLOP utilisation ``mfu``.

    With one device and an MFU of 1 this is the chapter's *Single GPU TIME*.
    """
    rate = _positive("devices", devices) * _positive("peak_flops", peak_flops) * _share("mfu", mfu, " of the peak")
    return _positive("flops", flops) / rate


def mfu(parameters: float, tokens_per_second: float, devices: float, peak_flops: float) -> float:
    """Return model FLOP utilisation (*MFU*): 6N x tokens/s over the peak of all devices.

    The numerator is what the *model* needs; recomputed activations do not count. Chowdhery et al. 2022, appendix B, add
    attention's own products (:func:`attention_flops`) to 6N; at a long context they matter.
    """
    flops = training_flops(parameters, _positive("tokens_per_second", tokens_per_second))
    return flops / (_positive("devices", devices) * _positive("peak_flops", peak_flops))


def hfu(
    parameters: float, tokens_per_second: float, devices: float, peak_flops: float, recomputed: float = 1.0
) -> float:
    """Return hardware FLOP utilisation: MFU plus the share of the forward pass done again (1: full recomputation)."""
    again = _not_negative("recomputed", recomputed)
    return mfu(parameters, tokens_per_second, devices, peak_flops) * (6 + 2 * again) / 6


@dataclass(frozen=True)
class Recipe:
    """Bytes that training keeps for each parameter: weights, gradients, FP32 master copy, optimiser moments."""

    name: str
    weights: int
    gradients: int
    master: int
    moments: int

    @property
    def bytes_per_parameter(self) -> int:
        """All of them together."""
        return self.weights + self.gradients + self.master + self.moments


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("BF16 + Adam, no master copy (the chapter's 12N)", 2, 2, 0, 8),
        Recipe("mixed-precision Adam", 2, 2, 4, 8),
        Recipe("mixed-precision Adam, FP32 gradients", 2, 4, 4, 8),
        Recipe("mixed-precision 8-bit Adam", 2, 2, 4, 2),
        Recipe("FP32 Adam", 4, 4, 0, 8),
        Recipe("BF16 SGD with momentum", 2, 2, 0, 2),
        Recipe("BF16 SGD", 2, 2, 0, 0),
    )
}
"""Named recipes. Mixed-precision Adam is the 16N of Rajbhandari et al. 2020 (ZeRO), section 3.1."""


@dataclass(frozen=True)
class ModelState:
    """Bytes of model state: what stays in memory between steps, activations not counted."""

    weights: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        """Weights, gradients and optimiser state together, in bytes."""
        return self.weights + self.gradients + self.optimizer


def model_state(parameters: float, recipe: Recipe | str = "mixed-precision Adam") -> ModelState:
    """Return the bytes of weights, gradients and optimiser state (*Memory Footprint*) under a recipe of ``RECIPES``.

    Raises:
        ValueError: for an unknown recipe or a number of parameters that is not positive.

    >>> model_state(7e9).total
    112000000000.0
    """
    if isinstance(recipe, str):
        if recipe not in RECIPES:
            raise ValueError(f"unknown recipe {recipe!r}; there are: {'; '.join(RECIPES)}")
        recipe = RECIPES[recipe]
    n = float(_positive("parameters", parameters))
    return ModelState(n * recipe.weights, n * recipe.gradients, n * (recipe.master + recipe.moments))


def kv_cache(
    layers: int, kv_heads: int, head_dim: int, context: int, batch: int = 1, bytes_per_value: float = 2
) -> float:
    """Return bytes of the key and value cache (*KV Cache Memory*): 2 x layers x H_kv x d_h x context x batch x bytes.

    H_kv is the number of *key and value* heads: all heads for MHA, fewer for GQA (Ainslie et al. 2023), 1 for MQA.

    >>> kv_cache(layers=80, kv_heads=64, head_dim=128, context=128_000) / 1e9
    335.54432
    """
    sizes = {"layers": layers, "kv_heads": kv_heads, "head_dim": head_dim, "context": context, "batch": batch}
    sizes["bytes_per_value"] = bytes_per_value
    return 2.0 * math.prod(_positive(name, value) for name, value in sizes.items())


def kv_cache_latent(
    layers: int, latent: int, rope: int, context: int, batch: int = 1, bytes_per_value: float = 2
) -> float:
    """Return bytes of the cache of multi-head latent attention (MLA, DeepSeek-V2 2024).

    Each layer keeps one compressed vector of ``latent`` values and one rotary key of ``rope`` values per token,
    whatever the number of heads.
    """
    sizes = {"layers": layers, "context": context, "batch": batch, "bytes_per_value": bytes_per_value}
    values = _positive("latent", latent) + _positive("rope", rope)
    return float(values) * math.prod(_positive(name, value) for name, value in sizes.items())


def all_reduce_volume(nbytes: float, workers: int) -> float:
    """Return the bytes each of K workers sends (and receives) to all-reduce ``nbytes``: 2 (K-1)/K n, exact in K.

    The chapter's *Allreduce Volume* is its limit for many workers, 2n. The 2 is one reduce-scatter and one all-gather
    (Patarasuk and Yuan 2009), not one send and one receive: links carry both directions at once.

    >>> all_reduce_volume(350e9, 8) / 1e9
    612.5
    """
    count = _positive("workers", workers)
    if count != int(count):
        raise ValueError(f"workers is {workers}; a whole number is needed")
    return float(2 * Fraction(int(count) - 1, int(count)) * _exact(_positive("nbytes", nbytes)))


def communication_time(volume: float, bandwidth: float) -> float:
    """Return the least seconds to move ``volume`` bytes at ``bandwidth`` bytes/s per direction (*COMM TIME*)."""
    return _not_negative("volume", volume) / _positive("bandwidth", bandwidth)


def fewest_devices(nbytes: float, device_memory: float, usable: float = 1.0) -> int:
    """Return the fewest devices whose memory holds ``nbytes`` split evenly, if the share ``usable`` of each is free."""
    each = _exact(_positive("device_memory", device_memory)) * _exact(_share("usable", usable))
    return math.ceil(_exact(_positive("nbytes", nbytes)) / each)


def activation_tensor(channels: int, height: int, width: int, frames: int = 1, bytes_per_value: float = 2) -> float:
    """Return the bytes of one activation tensor of an image or video model."""
    sizes = {"channels": channels, "height": height, "width": width, "frames": frames}
    sizes["bytes_per_value"] = bytes_per_value
    return float(math.prod(_positive(name, value) for name, value in sizes.items()))


@dataclass(frozen=True)
class ThreeWalls:
    """How a training run stands before the memory, compute and communication walls.

    Attributes:
        state: bytes of model state in all.
        per_device: bytes of model state on each device when it is sharded over all of them.
        device_memory: bytes of memory of one device.
        devices_for_state: fewest devices that hold the state.
        seconds: training time.
        step_compute, step_communication: seconds of one step; communication is the gradient all-reduce.
    """

    state: float
    per_device: float
    device_memory: float
    devices_for_state: int
    seconds: float
    step_compute: float
    step_communication: float

    @property
    def fits(self) -> bool:
        """Whether the sharded model state fits."""
        return self.per_device <= self.device_memory


def three_walls(
    parameters: float,
    tokens: float,
    devices: int,
    device_memory: float,
    peak_flops: float,
    network: float,
    batch_tokens: float,
    mfu: float = 0.4,
    recipe: str = "mixed-precision Adam",
) -> ThreeWalls:
    """Return the memory, time and communication of a data-parallel run of N parameters on D tokens.

    Args:
        parameters, tokens: N and D.
        devices: data-parallel workers K.
        device_memory, peak_flops, network: bytes, FLOP/s and bytes/s per direction of one device.
        batch_tokens: tokens in one step of all devices.
        mfu: share of the peak that the compute reaches.
        recipe: name of the memory recipe.
    """
    for name, value in {"devices": devices, "network": network, "batch_tokens": batch_tokens}.items():
        _positive(name, value)
    state = model_state(parameters, recipe)
    volume = all_reduce_volume(state.gradients, devices)
    return ThreeWalls(
        state=state.total,
        per_device=state.total / devices,
        device_memory=device_memory,
        devices_for_state=fewest_devices(state.total, device_memory),
        seconds=training_time(training_flops(parameters, tokens), devices, peak_flops, mfu),
        step_compute=training_time(training_flops(parameters, batch_tokens), devices, peak_flops, mfu),
        step_communication=communication_time(volume, network),
    )


def _positive(name: str, value: float) -> float:
    """Return ``value``, or say which argument is not a positive finite number."""
    if not _is_finite(value) or value <= 0:
        raise ValueError(f"{name} is {value}; a positive number is needed")
    return value


def _not_negative(name: str, value: float) -> float:
    """Return ``value``, or say which argument is not a finite number of at least 0."""
    if not _is_finite(value) or value < 0:
        raise ValueError(f"{name} is {value}; a number of at least 0 is needed")
    return value


def _share(name: str, value: float, of: str = "") -> float:
    """Return ``value``, or say which argument is not a share."""
    if not _is_finite(value) or not 0 < value <= 1:
        raise ValueError(f"{name} is {value}; a share{of}, above 0 and at most 1, is needed")
    return value


def _is_finite(value: float) -> bool:
    """A real number (numpy's too) that a float can hold; a bool is none."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _exact(value: float) -> Fraction:
    """The number as it is written: 0.7 is 7/10, not the binary fraction next to it."""
    return Fraction(str(value.item() if hasattr(value, "item") else value))
