"""Sequence parallelism: activations cut by tokens, in the manner of Megatron and of Ulysses.

``python -m distgen_lab.labs.sequence_parallel``, or under torchrun or srun: see ``distgen_lab.labs``. Outside attention
each rank holds 1/P of the tokens. Megatron gathers the tokens before a tensor-parallel part and scatters its sums after
it; Ulysses keeps the weights whole and trades tokens for heads with an all-to-all.

Source: Korthikanti et al., Reducing Activation Recomputation, 2022, section 4.2.2; Jacobs et al., DeepSpeed-Ulysses,
2023.
"""

from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from distgen_lab.labs import ranks_of
from distgen_lab.labs.parallel import apart, data, device, gathered, my_part, own_rank, share, start, worst
from distgen_lab.labs.tensor_parallel import Attention, ParallelAttention, attend

__all__ = [
    "WAYS", "MegatronAttention", "UlyssesAttention", "compare", "gather_tokens", "lab", "main",
    "scatter_sums", "trade",
]  # fmt: skip


def _gather(x: Tensor, group: Any) -> Tensor:
    whole = x.new_empty(len(x) * dist.get_world_size(group), *x.shape[1:])
    dist.all_gather_single(whole, x.contiguous(), group=group)
    return whole


def _scatter(x: Tensor, group: Any) -> Tensor:
    part = x.new_empty(share("tokens", len(x), dist.get_world_size(group)), *x.shape[1:])
    dist.reduce_scatter_single(part, x.contiguous(), group=group)
    return part


class _GatherTokens(torch.autograd.Function):
    """All tokens on the way in; on the way back the ranks' gradients are summed, and each rank gets its tokens'."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _gather(x, group)

    @staticmethod
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor, None]:
        return _scatter(arriving, ctx.group), None


class _ScatterSums(torch.autograd.Function):
    """The mirror image: sums of the ranks' parts, each rank's tokens only; on the way back all tokens' gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _scatter(x, group)

    @staticmethod
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor, None]:
        return _gather(arriving, ctx.group), None


class _Trade(torch.autograd.Function):
    """Block r of the first dimension goes to rank r; the way back is the same trade."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group, out = group, torch.empty_like(x, memory_format=torch.contiguous_format)
        dist.all_to_all_single(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor, None]:
        return _Trade.apply(arriving, ctx.group), None


def gather_tokens(x: Tensor, group: Any = None) -> Tensor:
    """Return all tokens (P t, width) from each rank's (t, width): an all-gather, a reduce-scatter on the way back."""
    return _GatherTokens.apply(x, group)


def scatter_sums(x: Tensor, group: Any = None) -> Tensor:
    """Return this rank's tokens of the sum over ranks: a reduce-scatter, an all-gather on the way back.

    Raises:
        ValueError: if the tokens do not divide among the ranks.
    """
    return _ScatterSums.apply(x, group)


def trade(x: Tensor, group: Any = None) -> Tensor:
    """Send block r of the first dimension to rank r, and return the blocks received in order: an all-to-all."""
    return _Trade.apply(x, group)


class MegatronAttention(ParallelAttention):
    """Attention with 1/P of the heads, whose input and output are 1/P of the tokens."""

    def forward(self, x: Tensor) -> Tensor:
        """Map this rank's (tokens / P, width) to the same shape."""
        qkv = functional.linear(gather_tokens(x, self.group), self.qkv, self.qkv_bias)
        mixed = attend(*qkv.chunk(3, -1), self.heads)
        return scatter_sums(functional.linear(mixed, self.out), self.group) + self.out_bias


class UlyssesAttention(nn.Module):
    """Attention with whole weights on every rank, whose input and output are 1/P of the tokens.

    Raises:
        ValueError: if the heads do not divide among the ranks.
    """

    def __init__(self, dense: Attention, group: Any = None) -> None:
        super().__init__()
        self.qkv, self.out, self.group = dense.qkv, dense.out, group
        self.ranks = own_rank(group)[1]
        self.heads = share("heads", dense.heads, self.ranks)

    def _to_heads(self, x: Tensor) -> Tensor:
        """My tokens of all heads (t, width) to all tokens of my heads (P t, width / P)."""
        blocks = x.view(len(x), self.ranks, -1).transpose(0, 1)
        return trade(blocks, self.group).flatten(0, 1)

    def _to_tokens(self, x: Tensor) -> Tensor:
        """And back."""
        blocks = trade(x.view(self.ranks, len(x) // self.ranks, -1), self.group)
        return blocks.transpose(0, 1).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Map this rank's (tokens / P, width) to the same shape."""
        query, key, value = (self._to_heads(part) for part in self.qkv(x).chunk(3, -1))
        return self.out(self._to_tokens(attend(query, key, value, self.heads)))


WAYS = {"Megatron": MegatronAttention, "Ulysses": UlyssesAttention}
"""The two ways, by name: each makes a module from the dense twin."""


def compare(way: str = "Megatron", tokens: int = 16, width: int = 16, heads: int = 8) -> dict[str, float]:
    """Run forward and backward in a rank, dense and cut by tokens; return how far output and gradient are apart.

    Raises:
        ValueError: for another way, or tokens or heads that do not divide among the ranks.
    """
    if way not in WAYS:
        raise ValueError(f"unknown way {way!r}; there are: {', '.join(WAYS)}")
    torch.manual_seed(0)
    dense = Attention(width, heads).to(device())
    cut = WAYS[way](deepcopy(dense))
    x, arriving = data(tokens, width)
    whole, part = x.clone().requires_grad_(), my_part(x, "tokens").clone().requires_grad_()
    out = cut(part)
    out.backward(my_part(arriving, "tokens"))
    wanted = dense(whole)
    wanted.backward(arriving)
    return {
        "output": apart(gathered(out), wanted),
        "gradient of the input": apart(gathered(part.grad), whole.grad),
        "gradient of the weights": apart(_out_gradients(cut), [dense.out.weight.grad, dense.out.bias.grad]),
    }


def _out_gradients(cut: nn.Module) -> list[Tensor]:
    """Gradients of the last linear layer: what a rank has whole has met its own tokens only, so it is summed up."""
    if isinstance(cut, MegatronAttention):
        return [gathered(cut.out.grad, 1), gathered(cut.out_bias.grad[None]).sum(0)]
    return [gathered(tensor.grad[None]).sum(0) for tensor in (cut.out.weight, cut.out.bias)]


def lab() -> str:
    """Compare both ways with the dense twin in a rank; return the table."""
    ranks, lines = own_rank()[1], []
    for way in WAYS:
        errors = compare(way, tokens=8 * ranks, width=4 * ranks, heads=ranks)
        lines.append(f"{way:<9} {worst(max(errors.values())):.1e} from the twin")
    return "\n".join([ranks_of(), *lines])


def main() -> None:
    """Run the lab from the command line."""
    start(lab, ranks=2)


if __name__ == "__main__":
    main()
