"""Data parallelism: gradients averaged one by one, in buckets by hand, and by ``DistributedDataParallel``.

``python -m distgen_lab.labs.ddp``, or under torchrun or srun: see ``distgen_lab.labs``. Every way is held against the
twin that takes the whole batch on one process.

Source of the buckets: Li et al., PyTorch Distributed, VLDB 2020; torch/csrc/distributed/c10d/reducer.cpp of torch 2.13.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from distgen_lab.labs import ranks_of
from distgen_lab.labs.parallel import apart, data, mlp, my_part, own_rank, squared_error, start, worst
from distgen_lab.units import MIB

__all__ = [
    "WAYS", "Buckets", "Fired", "accumulate", "average_gradients", "bucket_plan", "fired_buckets", "lab", "main",
    "train", "twin",
]  # fmt: skip

LEARNING_RATE = 0.1


def bucket_plan(sizes: Sequence[int], cap: float, first_cap: float | None = None) -> list[list[int]]:
    """Return which gradients share a bucket, as places in ``sizes``: a bucket closes when it *reaches* its cap.

    Args:
        sizes: bytes of the gradients in the order in which they arrive.
        cap: bytes at which a bucket closes; DDP's ``bucket_cap_mb`` times 2**20, 25 MiB where none is given.
        first_cap: bytes at which the first bucket closes; 1 MiB in DDP where no cap is given, else None: as the others.

    >>> bucket_plan([4, 4, 4, 4, 4], cap=8)
    [[0, 1], [2, 3], [4]]
    """
    plan: list[list[int]] = [[]]
    for place, _ in enumerate(sizes):
        plan[-1].append(place)
        limit = cap if first_cap is None or len(plan) > 1 else first_cap
        if sum(sizes[k] for k in plan[-1]) >= limit:
            plan.append([])
    return plan if plan[-1] else plan[:-1]


def average_gradients(model: nn.Module, group: Any = None) -> None:
    """Replace each gradient by its mean over the ranks: one all-reduce a parameter, after the backward pass."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=group)
        parameter.grad /= dist.get_world_size(group)


class Buckets:
    """Averages gradients in buckets while the backward pass still runs: what DDP does, in Python.

    Gradients arrive from the last layer to the first, so buckets are filled in reverse order of the parameters. A full
    bucket starts its all-reduce and the backward pass goes on; :meth:`finish` waits for all of them.

    Args:
        parameters: of a model that is the same on all ranks.
        cap: bytes at which a bucket closes.
        group: process group, None for all ranks.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], cap: float = 25 * MIB, group: Any = None) -> None:
        arriving = list(parameters)[::-1]
        plan = bucket_plan([p.numel() * p.element_size() for p in arriving], cap)
        self.buckets = [[arriving[place] for place in part] for part in plan]
        self.group, self.missing = group, [len(bucket) for bucket in self.buckets]
        self.flying: list[tuple[int, Tensor, Any]] = []
        for number, bucket in enumerate(self.buckets):
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(partial(self._arrived, number))

    def _arrived(self, number: int, _: Tensor) -> None:
        """A gradient is there: if it was the last of its bucket, send the bucket on its way."""
        self.missing[number] -= 1
        if self.missing[number] == 0:
            flat = torch.cat([parameter.grad.flatten() for parameter in self.buckets[number]])
            self.flying.append((number, flat, dist.all_reduce(flat, group=self.group, async_op=True)))

    def finish(self) -> None:
        """Wait for the buckets and put the means where the gradients were."""
        for number, flat, work in self.flying:
            work.wait()
            flat /= dist.get_world_size(self.group)
            bucket = self.buckets[number]
            for parameter, mean in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                parameter.grad.copy_(mean.view_as(parameter))
        self.flying, self.missing = [], [len(bucket) for bucket in self.buckets]


def _step(model: nn.Module, inputs: Tensor, targets: Tensor, finish: Callable[[], None]) -> None:
    """One step of plain gradient descent on this process's part of the batch."""
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    optimizer.zero_grad()
    squared_error(model(inputs), targets).backward()
    finish()
    optimizer.step()


def twin(steps: int = 3, samples: int = 24) -> list[Tensor]:
    """Return the parameters after ``steps`` on one process that takes the whole batch."""
    model, (inputs, targets) = mlp(), data(samples)
    for _ in range(steps):
        _step(model, inputs, targets, lambda: None)
    return [parameter.detach() for parameter in model.parameters()]


def _one_by_one(model: nn.Module) -> tuple[nn.Module, Callable[[], None]]:
    return model, lambda: average_gradients(model)


def _in_buckets(model: nn.Module) -> tuple[nn.Module, Callable[[], None]]:
    return model, Buckets(list(model.parameters()), cap=4096).finish


def _replicated(model: nn.Module) -> tuple[nn.Module, Callable[[], None]]:
    return DistributedDataParallel(model, bucket_cap_mb=4096 / MIB), lambda: None


WAYS = {"one by one": _one_by_one, "buckets by hand": _in_buckets, "DDP": _replicated}
"""How gradients are averaged: a model goes in; the model to call and what to do after its backward pass come out."""


def train(way: str = "DDP", steps: int = 3, samples: int = 24) -> list[Tensor]:
    """Return the parameters after ``steps`` in a rank, each rank on its own part of the batch.

    Raises:
        ValueError: for an unknown way, or samples that do not divide among the ranks.
    """
    if way not in WAYS:
        raise ValueError(f"unknown way {way!r}; there are: {', '.join(WAYS)}")
    inputs, targets = (my_part(part) for part in data(samples))
    model, finish = WAYS[way](mlp())
    for _ in range(steps):
        _step(model, inputs, targets, finish)
    return [parameter.detach() for parameter in model.parameters()]


@dataclass(frozen=True)
class Fired:
    """One bucket on its way: step, place in the step, the gradients it holds, bytes, and how many had arrived by then.

    ``names`` are of the parameters, in the order in which they lie in the bucket.
    """

    step: int
    place: int
    names: tuple[str, ...]
    nbytes: int
    arrived: int

    def __str__(self) -> str:
        names = ", ".join(self.names)
        return f"step {self.step}, bucket {self.place}: {self.nbytes:>9,} B  after {self.arrived:>2} gradients: {names}"


def fired_buckets(model: nn.Module, inputs: Tensor, steps: int = 2, **options: Any) -> list[Fired]:
    """Train ``model`` under DDP with these options in a rank; return its buckets in the order in which they fired."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    fired, now = [], {"step": 0, "arrived": 0}

    def count(_: Tensor) -> None:
        now["arrived"] += 1

    def note(_: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        inside = tuple(names[id(parameter)] for parameter in bucket.parameters())
        nbytes = bucket.buffer().numel() * bucket.buffer().element_size()
        fired.append(Fired(now["step"], bucket.index(), inside, nbytes, now["arrived"]))
        return allreduce_hook(dist.group.WORLD, bucket)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(count)
    replica = DistributedDataParallel(model, **options)
    replica.register_comm_hook(None, note)
    for now["step"] in range(steps):
        now["arrived"] = 0
        replica.zero_grad()
        replica(inputs).sum().backward()
    return fired


def accumulate(micro_batches: int = 4, quiet: bool = True) -> list[Tensor]:
    """Return gradients of a batch taken in ``micro_batches`` pieces under DDP; ``quiet`` sends on the last one only."""
    inputs, targets = (my_part(part) for part in data(24))
    model = DistributedDataParallel(mlp())
    pieces = list(zip(inputs.chunk(micro_batches), targets.chunk(micro_batches), strict=True))
    for number, (piece, wanted) in enumerate(pieces):
        silent = quiet and number < len(pieces) - 1
        with model.no_sync() if silent else nullcontext():
            (squared_error(model(piece), wanted) / micro_batches).backward()
    return [parameter.grad.detach() for parameter in model.parameters()]


def lab() -> str:
    """Train each way in a rank; return how far each is from the twin."""
    _, ranks = own_rank()
    wanted = twin(samples=8 * ranks)
    errors = {way: worst(apart(train(way, samples=8 * ranks), wanted)) for way in WAYS}
    return "\n".join([ranks_of(), *(f"{way:<16} {error:.1e} from the twin" for way, error in errors.items())])


def main() -> None:
    """Run the lab from the command line."""
    start(lab, ranks=2)


if __name__ == "__main__":
    main()
