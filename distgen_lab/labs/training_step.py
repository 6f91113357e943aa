"""A real training step of a small transformer: its FLOP, its bytes and its speed, counted and measured with torch.

Run it on its own with ``python -m distgen_lab.labs.training_step``.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from distgen_lab.units import quantity

__all__ = [
    "CONFIG", "Flops", "MixedPrecisionAdam", "StateBytes", "TinyGPT", "batch", "counted_flops", "device",
    "matmul_rate", "measured_state", "tokens_per_second", "train_step",
]  # fmt: skip

CONFIG: dict[str, Any] = {
    "model_type": "gpt2", "n_layer": 4, "n_embd": 256, "n_head": 4, "vocab_size": 2048, "n_positions": 128,
}  # fmt: skip
"""The small model of the lab, as a Hugging Face config."""


class _Block(nn.Module):
    """One transformer layer of GPT-2: attention and a four times wider MLP, each behind a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, tokens, width) to the same shape."""
        shape = (*x.shape[:2], self.heads, -1)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class TinyGPT(nn.Module):
    """A GPT-2 of any size, its head tied to the token embedding, built from a GPT-2 config."""

    def __init__(self, config: dict[str, Any] = CONFIG) -> None:
        super().__init__()
        width = config["n_embd"]
        self.tokens = nn.Embedding(config["vocab_size"], width)
        self.positions = nn.Embedding(config["n_positions"], width)
        self.blocks = nn.Sequential(*(_Block(width, config["n_head"]) for _ in range(config["n_layer"])))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        """Map token ids (batch, tokens) to logits (batch, tokens, vocabulary)."""
        places = torch.arange(ids.shape[1], device=ids.device)
        hidden = self.blocks(self.tokens(ids) + self.positions(places))
        return functional.linear(self.norm(hidden), self.tokens.weight)

    def loss(self, ids: Tensor) -> Tensor:
        """Return the mean next-token cross-entropy of a batch of ids."""
        logits = self(ids)
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def device() -> torch.device:
    """Return the GPU if torch sees one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def batch(sequences: int, config: dict[str, Any] = CONFIG, seed: int = 0) -> Tensor:
    """Return random token ids (sequences, n_positions), the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    shape = (sequences, config["n_positions"])
    return torch.randint(config["vocab_size"], shape, generator=generator).to(device())


def train_step(model: TinyGPT, optimizer: Any, ids: Tensor) -> float:
    """Do forward, backward and update on one batch; return the loss."""
    loss = model.loss(ids)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


@dataclass(frozen=True)
class Flops:
    """FLOP that torch counted in one forward and in one forward plus backward pass."""

    forward: int
    total: int

    @property
    def backward(self) -> int:
        """FLOP of the backward pass alone."""
        return self.total - self.forward


def counted_flops(model: TinyGPT, ids: Tensor, attention: SDPBackend = SDPBackend.MATH) -> Flops:
    """Count the FLOP of the matrix products in a forward and backward pass with ``torch.utils.flop_counter``.

    Under ``SDPBackend.MATH`` attention is made of ordinary products and is counted in full (no causal saving). The
    CPU's fused kernel (``SDPBackend.FLASH_ATTENTION``) is unknown to the counter and counts as 0.
    """
    with sdpa_kernel(attention):
        forward = _count(lambda: model.loss(ids))
        total = _count(lambda: model.loss(ids).backward())
    model.zero_grad(set_to_none=True)
    return Flops(forward, total)


def _count(work: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


class MixedPrecisionAdam:
    """Adam on an FP32 master copy of a BF16 model, as mixed-precision training keeps it (Micikevicius et al. 2018)."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = list(model.parameters())
        self.master = [nn.Parameter(weight.detach().float()) for weight in self.weights]
        self.adam = torch.optim.AdamW(self.master)

    def step(self) -> None:
        """Update the master copy from the BF16 gradients, then round it into the BF16 weights."""
        for weight, master in zip(self.weights, self.master, strict=True):
            master.grad = weight.grad.float()
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        with torch.no_grad():
            for weight, master in zip(self.weights, self.master, strict=True):
                weight.copy_(master)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the BF16 gradients."""
        for weight in self.weights:
            weight.grad = None


@dataclass(frozen=True)
class StateBytes:
    """Bytes counted from the tensors that training keeps, beside the number of parameters."""

    parameters: int
    weights: int
    gradients: int
    master: int
    moments: int

    @property
    def per_parameter(self) -> float:
        """Bytes a parameter, all together."""
        return (self.weights + self.gradients + self.master + self.moments) / self.parameters


def measured_state(precision: str) -> StateBytes:
    """Take one training step and count the bytes of weights, gradients, master copy and Adam's two moments.

    Args:
        precision: ``"fp32"``, ``"bf16"`` (all in BF16: torch's AdamW then keeps its moments so too) or ``"mixed"``.

    Raises:
        ValueError: for another precision.
    """
    if precision not in ("fp32", "bf16", "mixed"):
        raise ValueError(f"precision is {precision!r}; 'fp32', 'bf16' or 'mixed' is needed")
    model = TinyGPT().to(device(), torch.float32 if precision == "fp32" else torch.bfloat16)
    optimizer = MixedPrecisionAdam(model) if precision == "mixed" else torch.optim.AdamW(model.parameters())
    model.loss(batch(2)).backward()
    optimizer.step()
    adam = optimizer.adam if precision == "mixed" else optimizer
    moments = [state[name] for state in adam.state.values() for name in ("exp_avg", "exp_avg_sq")]
    weights = list(model.parameters())
    return StateBytes(
        parameters=sum(weight.numel() for weight in weights),
        weights=_bytes(weights),
        gradients=_bytes(weight.grad for weight in weights),
        master=_bytes(optimizer.master) if precision == "mixed" else 0,
        moments=_bytes(moments),
    )


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _best_seconds(work: Callable[[], Any], repeats: int) -> float:
    """Shortest of ``repeats`` runs after one to warm up: the one least disturbed by the rest of the machine."""
    work()
    times = []
    for _ in range(repeats):
        _synchronize()
        start = time.perf_counter()
        work()
        _synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def matmul_rate(dtype: torch.dtype = torch.float32, size: int = 1024, repeats: int = 10) -> float:
    """Return the FLOP/s this machine reaches in a square matrix product: the honest roof for an MFU."""
    a, b = (torch.ones(size, size, dtype=dtype, device=device()) for _ in range(2))
    return 2 * size**3 / _best_seconds(lambda: a @ b, repeats)


def tokens_per_second(sequences: int = 8, repeats: int = 5, dtype: torch.dtype = torch.float32) -> float:
    """Return tokens per second of full training steps (forward, backward, AdamW) of the small model."""
    model = TinyGPT().to(device(), dtype)
    optimizer, ids = torch.optim.AdamW(model.parameters()), batch(sequences)
    return ids.numel() / _best_seconds(lambda: train_step(model, optimizer, ids), repeats)


def main() -> None:
    """Print what the notebook measures."""
    flops, ids = counted_flops(TinyGPT().to(device()), batch(8)), batch(8)
    print(f"device {device()}, one step on {ids.numel()} tokens: {quantity(flops.total, 'FLOP')}")
    for precision in ("fp32", "bf16", "mixed"):
        print(f"{precision:>5}: {measured_state(precision).per_parameter:.0f} bytes a parameter")
    print(f"matmul {quantity(matmul_rate(), 'FLOP/s')}, training {tokens_per_second():,.0f} tokens/s")


if __name__ == "__main__":
    main()
