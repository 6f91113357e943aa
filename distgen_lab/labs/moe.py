"""Mixture of experts over ranks: tokens travel to their experts and back, as many to each as the router says.

``python -m distgen_lab.labs.moe``, or under torchrun or srun: see ``distgen_lab.labs``. The counts are not known
beforehand, so they travel first, in an all-to-all of one number a rank; then the tokens follow in uneven pieces.

Source: Lepikhin et al., GShard, 2020; Fedus et al., Switch Transformers, 2021.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from distgen_lab.labs import ranks_of
from distgen_lab.labs.parallel import DTYPE, apart, data, device, gathered, my_part, own_rank, share, start, worst
from distgen_lab.labs.tensor_parallel import MLP

__all__ = ["DenseMoE", "ParallelMoE", "compare", "lab", "main", "send_counts", "swap"]


class DenseMoE(nn.Module):
    """The twin: all experts on one process.

    Args:
        width, hidden: of each expert, an MLP.
        experts: how many.
        active: experts a token is sent to.

    Raises:
        ValueError: if a token is to meet more experts than there are, or none.
    """

    def __init__(self, width: int = 8, hidden: int = 16, experts: int = 8, active: int = 2) -> None:
        super().__init__()
        if not 1 <= active <= experts:
            raise ValueError(f"active is {active}; 1 to {experts} experts can be met")
        self.active = active
        self.router = nn.Linear(width, experts, bias=False, dtype=DTYPE)
        self.experts = nn.ModuleList(MLP(width, hidden) for _ in range(experts))

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (weights, experts), each of shape (tokens, active), for tokens (tokens, width)."""
        return torch.topk(self.router(x).softmax(-1), self.active)

    def forward(self, x: Tensor) -> Tensor:
        """Map (tokens, width) to the same shape: each token the weighted sum of its experts."""
        weights, chosen = self.route(x)
        parts = [
            torch.stack([self.experts[e](token) for e in row]) for token, row in zip(x, chosen.tolist(), strict=True)
        ]
        return (weights.unsqueeze(-1) * torch.stack(parts)).sum(1)


class _Swap(torch.autograd.Function):
    """Uneven pieces out, uneven pieces in; gradients go the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, out: list[int], into: list[int], group: Any) -> Tensor:
        ctx.out, ctx.into, ctx.group = out, into, group
        got = x.new_empty(sum(into), *x.shape[1:])
        dist.all_to_all_single(got, x.contiguous(), into, out, group=group)
        return got

    @staticmethod
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor, None, None, None]:
        return _Swap.apply(arriving, ctx.into, ctx.out, ctx.group), None, None, None


def swap(x: Tensor, out: Sequence[int], into: Sequence[int], group: Any = None) -> Tensor:
    """Send the first ``out[0]`` rows to rank 0, the next ``out[1]`` to rank 1, ...; return the rows received.

    Args:
        x: rows in order of their targets.
        out, into: rows to each rank, and from each rank.
        group: process group, None for all ranks.

    Raises:
        ValueError: if the rows do not add up.
    """
    if sum(out) != len(x):
        raise ValueError(f"out adds up to {sum(out)} rows; there are {len(x)}")
    return _Swap.apply(x, list(out), list(into), group)


def send_counts(out: Sequence[int], group: Any = None) -> list[int]:
    """Return how many rows each rank will send here, given how many go from here to each: an all-to-all of numbers."""
    sent = torch.tensor(list(out), device=device())
    got = torch.empty_like(sent)
    dist.all_to_all_single(got, sent, group=group)
    return got.tolist()


class ParallelMoE(nn.Module):
    """A mixture of which each rank holds 1/P of the experts; the router is the same on all.

    Raises:
        ValueError: if the experts do not divide among the ranks.
    """

    def __init__(self, dense: DenseMoE, group: Any = None) -> None:
        super().__init__()
        rank, ranks = own_rank(group)
        self.each, self.ranks, self.group = share("experts", len(dense.experts), ranks), ranks, group
        self.router, self.route = dense.router, dense.route
        self.experts = nn.ModuleList(list(dense.experts)[rank * self.each : (rank + 1) * self.each])

    def forward(self, x: Tensor) -> Tensor:
        """Map this rank's (tokens, width) to the same shape; ranks may have different numbers of tokens, also none."""
        weights, chosen = self.route(x)
        wanted, order = chosen.flatten().sort(stable=True)
        rows = x[order // chosen.shape[1]]
        out = torch.bincount(wanted // self.each, minlength=self.ranks).tolist()
        into = send_counts(out, self.group)
        which = swap(wanted, out, into, self.group) % self.each
        back = swap(self._experts(swap(rows, out, into, self.group), which), into, out, self.group)
        answers = torch.empty_like(back).index_copy(0, order, back).view(*chosen.shape, x.shape[-1])
        return (weights.unsqueeze(-1) * answers).sum(1)

    def _experts(self, rows: Tensor, which: Tensor) -> Tensor:
        """Each row through its expert; an expert that got none does nothing."""
        out = torch.empty_like(rows)
        for number, expert in enumerate(self.experts):
            mine = (which == number).nonzero().flatten()
            if len(mine):
                out = out.index_copy(0, mine, expert(rows[mine]))
        return out


def compare(tokens: int = 24, experts: int = 8, active: int = 2, width: int = 8) -> dict[str, Any]:
    """Run forward and backward in a rank, dense and over ranks; return distances, and the rows sent to each rank.

    Raises:
        ValueError: if tokens or experts do not divide among the ranks, or there are more experts than tokens.
    """
    if experts > tokens:
        raise ValueError(f"{experts} experts for {tokens} tokens: some could never learn; {experts} tokens are needed")
    torch.manual_seed(0)
    dense = DenseMoE(width, 2 * width, experts, active).to(device())
    cut = ParallelMoE(dense)
    x, arriving = data(tokens, width)
    whole, part = x.clone().requires_grad_(), my_part(x, "tokens").clone().requires_grad_()
    wanted = dense(whole)
    wanted.backward(arriving)
    gradients = [p.grad.clone() for expert in cut.experts for p in expert.parameters() if p.grad is not None]
    dense.zero_grad()
    out = cut(part)
    out.backward(my_part(arriving, "tokens"))
    found = [p.grad for expert in cut.experts for p in expert.parameters() if p.grad is not None]
    targets = cut.route(my_part(x))[1].flatten() // cut.each
    return {
        "output": apart(gathered(out), wanted),
        "gradient of the input": apart(gathered(part.grad), whole.grad),
        "gradients of the experts": apart(found, gradients) if gradients else 0.0,
        "rows sent": torch.bincount(targets, minlength=cut.ranks).tolist(),
    }


def lab() -> str:
    """Compare with the dense twin in a rank; return the table, with the rows that each rank sent to each."""
    ranks = own_rank()[1]
    found = compare(tokens=12 * ranks, experts=2 * ranks)
    rows = found.pop("rows sent")
    table = gathered(torch.tensor([rows]))
    lines = [f"rank {rank} sends {row} rows to ranks 0 to {ranks - 1}" for rank, row in enumerate(table.tolist())]
    return "\n".join([ranks_of(), f"MoE {worst(max(found.values())):.1e} from the twin", *lines])


def main() -> None:
    """Run the lab from the command line."""
    start(lab, ranks=2)


if __name__ == "__main__":
    main()
