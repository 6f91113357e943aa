"""What the labs of parallel training share: the ranks they run on, a small model and its data, and the distance of a
result from that of the single-process twin, the same training step on one process.

Everything is computed in float64, so that a parallel program which is right differs from its twin by rounding only.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from distgen_lab.ranks.world import TorchWorld, launcher
from distgen_lab.timeline import Span

__all__ = [
    "apart", "data", "device", "gathered", "least_bytes", "mlp", "my_part", "own_rank", "share", "squared_error",
    "start", "worst",
]  # fmt: skip

DTYPE = torch.float64


def device() -> str:
    """Return where tensors of the present ranks live: "cuda" with NCCL, else "cpu".

    Raises:
        RuntimeError: if ``torch.distributed`` has no process group here (on MPI, for example).
    """
    if not dist.is_initialized():
        raise RuntimeError("no process group of torch.distributed here: use launch(...), torchrun or srun")
    return TorchWorld().device


def own_rank(group: Any = None) -> tuple[int, int]:
    """Return this process's rank in the group and the group's size."""
    return dist.get_rank(group), dist.get_world_size(group)


def share(what: str, count: int, ranks: int) -> int:
    """Return ``count / ranks``, what each rank gets of it.

    Raises:
        ValueError: if it does not divide, or leaves a rank with nothing; the message names ``what``.

    >>> share("heads", 8, 4)
    2
    """
    if count < ranks:
        raise ValueError(f"{count} {what} for {ranks} ranks: rank {count} would have none; {ranks} or more are needed")
    if count % ranks:
        raise ValueError(f"{count} {what} do not divide among {ranks} ranks; a multiple of {ranks} is needed")
    return count // ranks


def my_part(tensor: Tensor, what: str = "samples", dim: int = 0, group: Any = None) -> Tensor:
    """Return this rank's equal part of a tensor along ``dim``; ``what`` names its elements in an error."""
    rank, ranks = own_rank(group)
    each = share(what, tensor.shape[dim], ranks)
    return tensor.narrow(dim, rank * each, each)


def mlp(widths: Sequence[int] = (8, 32, 32, 8), seed: int = 0) -> nn.Sequential:
    """Return linear layers of these widths with GELU between them, the same numbers on every rank."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for wide, next_wide in pairwise(widths):
        layers += [nn.Linear(wide, next_wide, dtype=DTYPE), nn.GELU()]
    return nn.Sequential(*layers[:-1]).to(device() if dist.is_initialized() else "cpu")


def data(samples: int = 24, width: int = 8, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of shape (samples, width), the same on every rank: the whole batch."""
    random = torch.Generator().manual_seed(seed)
    where = device() if dist.is_initialized() else "cpu"
    pair = torch.randn(2, samples, width, dtype=DTYPE, generator=random).to(where)
    return pair[0], pair[1]


def squared_error(found: Tensor, wanted: Tensor) -> Tensor:
    """Return half the squared error, averaged over the samples: the mean over ranks of equal parts is that of all."""
    return (found - wanted).square().sum() / (2 * len(wanted))


def apart(found: Any, wanted: Any) -> float:
    """Return the largest difference between two tensors (or lists of them) over the largest value wanted.

    Raises:
        ValueError: if their shapes differ.
    """
    pairs = [(found, wanted)] if isinstance(found, Tensor) else list(zip(found, wanted, strict=True))
    for one, other in pairs:
        if one.shape != other.shape:
            raise ValueError(f"shapes differ: {tuple(one.shape)} found, {tuple(other.shape)} wanted")
    off = max(float((one.detach() - other.detach()).abs().max()) for one, other in pairs)
    return off / max(float(other.detach().abs().max()) for _, other in pairs)


def worst(value: float) -> float:
    """Return the largest of all ranks' values, on every rank."""
    return max(TorchWorld().gather(value))


def gathered(tensor: Tensor, dim: int = 0, group: Any = None) -> Tensor:
    """Return the parts of all ranks of the group, joined along ``dim``: for looking at results, as objects."""
    parts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(parts, tensor.detach().cpu(), group=group)
    return torch.cat(parts, dim).to(tensor.device)


def least_bytes(spans: Iterable[Span]) -> float:
    """Return the bytes a rank has to send at the least for what it recorded.

    The bound of each collective over P ranks, met by ring and direct algorithms: an all-reduce of n bytes 2(P-1)/P n,
    a reduce-scatter or an even all-to-all of n bytes (P-1)/P n, an all-gather of a part of n bytes (P-1) n, a send n.
    Objects and barriers count nothing, broadcasts n on their root.
    """
    return sum(_least(span) for span in spans)


def _least(span: Span) -> float:
    if span.op in ("send", "isend"):
        return span.nbytes
    others = len(span.group) - 1
    if span.op == "broadcast":
        return span.nbytes if span.lane == span.root and others else 0
    factors = {"all_reduce": 2, "reduce_scatter": 1, "reduce_scatter_single": 1, "all_to_all_single": 1}
    if span.op in ("all_gather", "all_gather_single", "reduce_scatter_tensor", "all_gather_into_tensor"):
        return span.nbytes * (others if "gather" in span.op else others / len(span.group))
    return factors.get(span.op, 0) * others * span.nbytes / max(1, len(span.group))


def start(lab: Callable[[], str], ranks: int) -> None:
    """Run ``lab`` on the ranks that torchrun or srun started, else on ``ranks`` of this machine; rank 0 prints."""
    from distgen_lab.labs import run
    from distgen_lab.ranks import launch

    if launcher():
        run(lab)
    else:
        print(launch(lab, ranks, timeout=600, record=False)[0].value)
