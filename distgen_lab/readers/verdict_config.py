"""The verdict on a model config: parameters, memory, KV cache, fewest devices."""

from distgen_lab.hardware import ACCELERATORS
from distgen_lab.models import ModelShape
from distgen_lab.readers.saying import Verdict
from distgen_lab.scale import fewest_devices, model_state
from distgen_lab.units import count, quantity

__all__ = ["of_config"]

_DEVICES = ("A100", "H100", "H200", "B200", "MI300X")
_USABLE = 0.9


def of_config(shape: ModelShape, file: str) -> Verdict:
    """Parameters, memory, cache, fewest devices."""
    weights, training = 2.0 * shape.parameters, model_state(shape.parameters).total
    fewest = {name: _fewest(weights, training, ACCELERATORS[name].memory) for name in _DEVICES}
    active = f", {count(shape.active_parameters)} active for a token" * (shape.active_parameters < shape.parameters)
    least = fewest["H100"]
    headline = (
        f"{shape.architecture}: {shape.parameters:,} parameters{active}; at least {least['weights']} H100 to hold its"
        f" BF16 weights, {least['training']} to train it with mixed-precision Adam (state alone, 90 % of memory)"
    )
    lines = [
        f"weights in BF16: {quantity(weights, 'B')}; for training, 16 bytes a parameter: {quantity(training, 'B')}",
        _cache(shape),
        "fewest devices for weights / training: "
        + ", ".join(f"{name} {few['weights']} / {few['training']}" for name, few in fewest.items()),
    ]  # fmt: skip
    facts = {
        "parameters": shape.parameters, "active_parameters": shape.active_parameters,
        "kv_bytes_per_token": shape.kv_bytes_per_token(), "weights_bytes": weights, "training_bytes": training,
        "fewest_devices": fewest,
    }  # fmt: skip
    notes = tuple(f"{key} is not in the file: the class's default is taken" for key in shape.assumed)
    return Verdict("config", file, headline, None, tuple(lines), (), facts, notes)


def _fewest(weights: float, training: float, memory: float) -> dict[str, int]:
    """Fewest devices for the weights alone, and for the state of training."""
    parts = {"weights": weights, "training": training}
    return {name: fewest_devices(nbytes, memory, _USABLE) for name, nbytes in parts.items()}


def _cache(shape: ModelShape) -> str:
    """The KV cache in words."""
    if not shape.kv_values_per_token:
        return "no KV cache"
    context = shape.max_context or 8192
    each, whole = shape.kv_bytes_per_token(), shape.kv_cache_bytes(context)
    return f"KV cache in BF16: {quantity(each, 'B')} a token, {quantity(whole, 'B')} at {context:,} tokens"
