"""Tensor parallelism: the MLP and the attention heads of a transformer block cut over ranks, one all-reduce each way.

``python -m distgen_lab.labs.tensor_parallel``, or under torchrun or srun: see ``distgen_lab.labs``. The first matrix is
cut by columns, the second by rows, so that nothing travels between them.

Source: Shoeybi et al., Megatron-LM, 2019, section 3 (the functions f and g).
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from distgen_lab.labs import ranks_of
from distgen_lab.labs.parallel import DTYPE, apart, data, device, gathered, own_rank, share, start, worst

__all__ = [
    "MLP", "Attention", "ParallelAttention", "ParallelMLP", "attend", "compare", "compare_torch", "enter", "lab",
    "leave", "main",
]  # fmt: skip


class MLP(nn.Module):
    """The dense twin: ``up``, GELU, ``down``, on (tokens, width)."""

    def __init__(self, width: int = 16, hidden: int = 64) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden, dtype=DTYPE), nn.Linear(hidden, width, dtype=DTYPE)

    def forward(self, x: Tensor) -> Tensor:
        """Map (tokens, width) to the same shape."""
        return self.down(functional.gelu(self.up(x)))


class Attention(nn.Module):
    """The dense twin: causal attention with ``heads`` heads over one sequence of shape (tokens, width)."""

    def __init__(self, width: int = 16, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, dtype=DTYPE), nn.Linear(width, width, dtype=DTYPE)

    def forward(self, x: Tensor) -> Tensor:
        """Map (tokens, width) to the same shape."""
        return self.out(attend(*self.qkv(x).chunk(3, -1), self.heads))


def attend(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    """Return causal attention of tensors (tokens, heads x head size), of the same shape."""
    split = [part.view(len(part), heads, -1).transpose(0, 1) for part in (query, key, value)]
    return functional.scaled_dot_product_attention(*split, is_causal=True).transpose(0, 1).flatten(1)


class _Enter(torch.autograd.Function):
    """f: nothing on the way in; on the way back each rank has the gradient of its own part, and they are added up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor, None]:
        arriving = arriving.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(arriving, group=ctx.group)
        return arriving, None


class _Leave(torch.autograd.Function):
    """g: the ranks' parts are added up; on the way back every rank needs the same gradient, which it has."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        x = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor, None]:
        return arriving, None


def enter(x: Tensor, group: Any = None) -> Tensor:
    """Return ``x``; the backward pass sums its gradient over the ranks (Megatron's f)."""
    return _Enter.apply(x, group)


def leave(x: Tensor, group: Any = None) -> Tensor:
    """Return the sum of ``x`` over the ranks; the backward pass hands the gradient through (Megatron's g)."""
    return _Leave.apply(x, group)


def _columns(linear: nn.Linear, group: Any, parts: int = 1) -> tuple[nn.Parameter, nn.Parameter]:
    """This rank's outputs of a linear layer whose outputs are ``parts`` tensors side by side (3 for q, k and v)."""
    rank, ranks = own_rank(group)
    cut = [tensor.detach().chunk(parts) for tensor in (linear.weight, linear.bias)]
    mine = [torch.cat([part.chunk(ranks)[rank] for part in piece]) for piece in cut]
    return nn.Parameter(mine[0]), nn.Parameter(mine[1])


def _rows(linear: nn.Linear, group: Any) -> tuple[nn.Parameter, nn.Parameter]:
    """This rank's inputs of a linear layer; the bias, which must be added once, stays whole."""
    rank, ranks = own_rank(group)
    weight = linear.weight.detach().chunk(ranks, 1)[rank].contiguous()
    return nn.Parameter(weight), nn.Parameter(linear.bias.detach().clone())


class ParallelMLP(nn.Module):
    """An MLP of which each rank holds 1/P of the hidden units.

    Args:
        dense: the twin to cut up.
        group: the ranks to cut it over, None for all.

    Raises:
        ValueError: if the hidden units do not divide among the ranks.
    """

    def __init__(self, dense: MLP, group: Any = None) -> None:
        super().__init__()
        share("hidden units", dense.up.out_features, own_rank(group)[1])
        self.group = group
        (self.up, self.up_bias), (self.down, self.down_bias) = _columns(dense.up, group), _rows(dense.down, group)

    def forward(self, x: Tensor) -> Tensor:
        """Map (tokens, width), the same on all ranks, to the same shape, the same on all ranks."""
        hidden = functional.gelu(functional.linear(enter(x, self.group), self.up, self.up_bias))
        return leave(functional.linear(hidden, self.down), self.group) + self.down_bias


class ParallelAttention(nn.Module):
    """Attention of which each rank holds 1/P of the heads.

    Raises:
        ValueError: if the heads do not divide among the ranks.
    """

    def __init__(self, dense: Attention, group: Any = None) -> None:
        super().__init__()
        self.group, self.heads = group, share("heads", dense.heads, own_rank(group)[1])
        (self.qkv, self.qkv_bias), (self.out, self.out_bias) = _columns(dense.qkv, group, 3), _rows(dense.out, group)

    def forward(self, x: Tensor) -> Tensor:
        """Map (tokens, width), the same on all ranks, to the same shape, the same on all ranks."""
        qkv = functional.linear(enter(x, self.group), self.qkv, self.qkv_bias)
        mixed = attend(*qkv.chunk(3, -1), self.heads)
        return leave(functional.linear(mixed, self.out), self.group) + self.out_bias


def _twins(kind: str, width: int, size: int) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    makers: dict[str, tuple[Any, Any]] = {"MLP": (MLP, ParallelMLP), "attention": (Attention, ParallelAttention)}
    if kind not in makers:
        raise ValueError(f"unknown part {kind!r}; there are: {', '.join(makers)}")
    dense, parallel = makers[kind]
    return dense(width, size).to(device()), parallel


def compare(kind: str = "MLP", tokens: int = 12, width: int = 16, size: int = 0) -> dict[str, float]:
    """Run forward and backward in a rank, dense and cut; return how far output and gradients are apart.

    Args:
        kind: "MLP" or "attention". tokens, width: of the input. size: hidden units (64) or heads (8).
    """
    dense, parallel = _twins(kind, width, size or {"MLP": 64}.get(kind, 8))
    cut = parallel(dense)
    x, arriving = data(tokens, width)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outputs = [model(given) for model, given in zip((dense, cut), inputs, strict=True)]
    for out in outputs:
        out.backward(arriving)
    first, second = (dense.up, dense.down) if kind == "MLP" else (dense.qkv, dense.out)
    rows = cut.down if kind == "MLP" else cut.out
    columns = cut.up if kind == "MLP" else cut.qkv
    return {
        "output": apart(outputs[1], outputs[0]),
        "gradient of the input": apart(inputs[1].grad, inputs[0].grad),
        "gradient of the columns": apart(columns.grad, _columns_of(first.weight.grad, 1 if kind == "MLP" else 3)),
        "gradient of the rows": apart(gathered(rows.grad, 1), second.weight.grad),
    }


def _columns_of(gradient: Tensor, parts: int) -> Tensor:
    """This rank's outputs of the dense gradient."""
    rank, ranks = own_rank()
    return torch.cat([part.chunk(ranks)[rank] for part in gradient.chunk(parts)])


def compare_torch(tokens: int = 12, width: int = 16, hidden: int = 64) -> dict[str, float]:
    """Run the MLP under torch's own tensor parallelism in a rank; return how far it is from the dense twin."""
    torch.manual_seed(0)
    dense = MLP(width, hidden).to(device())
    torch.manual_seed(0)
    mesh = dist.init_device_mesh(device(), (dist.get_world_size(),))
    cut = parallelize_module(
        MLP(width, hidden).to(device()), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()}
    )
    x, arriving = data(tokens, width)
    outputs = [model(x) for model in (dense, cut)]
    for out in outputs:
        out.backward(arriving)
    gradients = [cut.up.weight.grad.full_tensor(), cut.down.weight.grad.full_tensor()]
    return {
        "output": apart(outputs[1], outputs[0]),
        "gradients": apart(gradients, [dense.up.weight.grad, dense.down.weight.grad]),
    }


def lab() -> str:
    """Compare MLP and attention with their twins in a rank, then torch's own; return the table."""
    ranks, lines = own_rank()[1], []
    found = {"MLP": compare("MLP", size=8 * ranks), "attention": compare("attention", width=4 * ranks, size=ranks)}
    found["MLP of torch"] = compare_torch(hidden=8 * ranks)
    for kind, errors in found.items():
        lines.append(f"{kind:<13} {worst(max(errors.values())):.1e} from the twin")
    return "\n".join([ranks_of(), *lines])


def main() -> None:
    """Run the lab from the command line."""
    start(lab, ranks=2)


if __name__ == "__main__":
    main()
