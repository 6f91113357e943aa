"""One layer of a model in the numbers that a plan needs: what is multiplied, what streams by, what is kept."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from distgen_lab.models import ModelShape, Weight

__all__ = ["Layer", "layer_of"]

_DROPOUT = ("gpt2", "opt", "bloom")


@dataclass(frozen=True)
class Layer:
    """The mean layer of a decoder.

    Attributes:
        dense, routed, active: parameters in matrices: outside experts, of all routed experts, of those a token meets.
        vectors: parameters in norms and biases.
        products: matrix products that run one after the other (query, key and value are one; gate and up are one).
        qkv, mixed: values of a token that attention makes (query, key, value), and that its output matrix takes in.
        key_value: values of keys and values together.
        opened, closed: values that the feed-forward layer's first matrices make and its last takes in, active experts
            together.
        visits: experts that a token meets, 0 in a dense model.
        heads, head_dim: of attention.
        hidden: width.
        dropout: whether residuals pass through dropout.
    """

    dense: float
    routed: float
    active: float
    vectors: float
    products: float
    qkv: float
    mixed: float
    key_value: float
    opened: float
    closed: float
    visits: float
    heads: int
    head_dim: int
    hidden: int
    dropout: bool

    @property
    def parameters(self) -> float:
        """Parameters of the layer."""
        return self.dense + self.routed + self.vectors


@lru_cache(maxsize=256)
def layer_of(model: ModelShape) -> Layer:
    """Return the mean layer of a model (its dense layers and those with experts averaged).

    Raises:
        ValueError: for a model that is no decoder-only transformer.
    """
    blocks = [block for block in model.blocks if block.name in ("layer", "moe layer")]
    if not blocks or model.encoder_layers or not model.kv_values_per_token:
        raise ValueError(f"{model.name} is {model.architecture}; plans are made for decoder-only transformers")
    rows = [(weight, block.repeat / model.layers) for block in blocks for weight in block.weights]
    return Layer(
        **_parameters(rows), **_values(rows, model),
        products=sum(share * _products(b.weights) for b, share in ((b, b.repeat / model.layers) for b in blocks)),
        heads=model.heads, head_dim=model.head_dim, hidden=model.hidden, dropout=model.family in _DROPOUT,
    )  # fmt: skip


_Rows = list[tuple[Weight, float]]


def _parameters(rows: _Rows) -> dict[str, float]:
    """Parameters by kind."""
    routed = [(w, share) for w, share in rows if w.active is not None]
    return {
        "dense": sum(share * w.parameters for w, share in rows if w.matmul and w.active is None),
        "routed": sum(share * w.parameters for w, share in routed),
        "active": sum(share * w.active_parameters for w, share in routed),
        "vectors": sum(share * w.parameters for w, share in rows if not w.matmul),
    }


def _values(rows: _Rows, model: ModelShape) -> dict[str, float]:
    """Values of a token between the matrices."""

    def out(*names: str) -> float:
        found = ((w, share) for w, share in rows if w.matmul and w.name in names)
        return sum(share * w.shape[0] for w, share in found)

    def inner(which: Iterable[str], side: int) -> float:
        names = {f"{part}.{name}" for part in ("mlp", "experts", "shared") for name in which}
        found = ((w, share) for w, share in rows if w.matmul and w.name in names)
        return sum(share * w.shape[side] * (w.active or 1) for w, share in found)

    output = next(w for w, _ in rows if w.name == "attention.output")
    keys = out("attention.k", "attention.v", "attention.kv_up")
    return {
        "qkv": out("attention.q", "attention.q_up") + keys,
        "mixed": output.shape[1],
        "key_value": keys,
        "opened": inner(("gate", "up"), 0),
        "closed": inner(("down",), 1),
        "visits": sum(share * (w.active or 0) for w, share in rows if w.name == "experts.down"),
    }


def _products(weights: Iterable[Weight]) -> int:
    """Products one after the other: names that are computed together count once."""
    together = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "up"}
    names = (w.name.rsplit(".", 1) for w in weights if w.matmul)
    return len({(parts[0], together.get(parts[-1], parts[-1])) for parts in names})
