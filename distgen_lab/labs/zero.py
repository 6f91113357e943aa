"""ZeRO by hand: optimiser state, gradients and parameters cut into one part a rank, with reduce-scatter and all-gather.

``python -m distgen_lab.labs.zero``, or under torchrun or srun: see ``distgen_lab.labs``. Stage 0 is plain data
parallelism; stage 1 cuts the optimiser state, 2 the gradients too, 3 the parameters too. Every stage is held against
the twin on one process, and so are DDP and torch's own ``fully_shard``.

Source: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC 2020.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from distgen_lab.labs import ranks_of
from distgen_lab.labs.parallel import (
    apart,
    data,
    device,
    gathered,
    mlp,
    my_part,
    own_rank,
    share,
    squared_error,
    start,
    worst,
)
from distgen_lab.parallelism import STAGES, Held

__all__ = ["ZeroMLP", "lab", "main", "reference", "train"]

LEARNING_RATE, BETA1, BETA2, EPSILON = 0.01, 0.9, 0.999, 1e-8
WIDTHS = (8, 32, 32, 8)
"""Each layer's parameters (288, 1,056, 264) divide among 2, 4 and 8 ranks."""


class _Adam:
    """Adam on one stretch of parameters: two moments, and in half precision a master copy in FP32."""

    def __init__(self, values: Tensor) -> None:
        wide = torch.float32 if values.dtype in (torch.bfloat16, torch.float16) else values.dtype
        self.master = values.to(wide, copy=True) if values.dtype != wide else None
        self.mean, self.square, self.steps = (
            torch.zeros_like(values, dtype=wide),
            torch.zeros_like(values, dtype=wide),
            0,
        )

    @property
    def nbytes(self) -> int:
        parts = [self.mean, self.square] + ([] if self.master is None else [self.master])
        return sum(part.numel() * part.element_size() for part in parts)

    def step(self, values: Tensor, gradient: Tensor) -> None:
        """Change ``values`` in place."""
        self.steps += 1
        gradient = gradient.to(self.mean.dtype)
        self.mean.lerp_(gradient, 1 - BETA1)
        self.square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        root = (self.square / (1 - BETA2**self.steps)).sqrt() + EPSILON
        exact = values if self.master is None else self.master
        exact -= LEARNING_RATE / (1 - BETA1**self.steps) * self.mean / root
        if self.master is not None:
            values.copy_(self.master)


class _Layer:
    """One linear layer: what this rank keeps of its flat parameters, their gradient and the optimiser's state."""

    def __init__(self, linear: nn.Linear, stage: int, dtype: torch.dtype) -> None:
        self.stage, self.shape, (self.rank, self.ranks) = stage, linear.weight.shape, own_rank()
        flat = torch.cat([linear.weight.detach().flatten(), linear.bias.detach()]).to(dtype)
        self.each = share("parameters of a layer", len(flat), self.ranks)
        self.kept = self.part(flat).clone() if stage == 3 else flat
        self.gradient: Tensor | None = None
        self.optimizer = _Adam(flat if stage == 0 else self.part(flat))

    def part(self, flat: Tensor) -> Tensor:
        """This rank's stretch of the layer."""
        return flat[self.rank * self.each : (self.rank + 1) * self.each]

    def whole(self) -> tuple[Tensor, Tensor]:
        """Weight and bias; stage 3 gathers them anew each time they are needed, and forgets them."""
        return self.split(self.gather(self.kept) if self.stage == 3 else self.kept)

    def split(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """A flat layer as weight and bias."""
        out, into = self.shape
        return flat[: out * into].view(out, into), flat[out * into :]

    def seen(self) -> Tensor:
        """The whole flat layer, to look at."""
        return gathered(self.kept) if self.stage == 3 else self.kept

    def gather(self, part: Tensor) -> Tensor:
        flat = part.new_empty(self.each * self.ranks)
        dist.all_gather_single(flat, part.contiguous())
        return flat

    def take(self, gradient: Tensor) -> None:
        """A gradient has arrived: average it (0), keep it whole until the step (1), or keep this rank's part (2, 3)."""
        if self.stage == 0:
            dist.all_reduce(gradient)
            gradient /= self.ranks
        self.gradient = self.scatter(gradient) if self.stage >= 2 else gradient

    def scatter(self, gradient: Tensor) -> Tensor:
        mean = gradient.new_empty(self.each)
        dist.reduce_scatter_single(mean, gradient)
        return mean / self.ranks

    def step(self) -> None:
        """Update what this rank is responsible for; in stages 1 and 2 tell the others."""
        if self.stage == 1:
            self.gradient = self.scatter(self.gradient)
        own = self.part(self.kept) if self.stage in (1, 2) else self.kept
        self.optimizer.step(own, self.gradient)
        if self.stage in (1, 2):
            self.kept = self.gather(own)


class _Linear(torch.autograd.Function):
    """A linear map that holds on to its input and its layer, not to the layer's weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: _Layer) -> Tensor:
        ctx.save_for_backward(x)
        ctx.layer = layer
        weight, bias = layer.whole()
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        weight, _ = ctx.layer.whole()
        ctx.layer.take(torch.cat([(arriving.T @ x).flatten(), arriving.sum(0)]))
        return arriving @ weight, None


class ZeroMLP:
    """The small model under a stage of ZeRO, with Adam; a layer is the unit that is gathered and scattered.

    Args:
        stage: 0 to 3.
        dtype: of parameters and gradients; bfloat16 brings FP32 moments and an FP32 master copy with it.

    Raises:
        ValueError: for another stage, or layers that do not divide among the ranks.
    """

    def __init__(self, stage: int, dtype: torch.dtype = torch.float64) -> None:
        if stage not in STAGES:
            raise ValueError(f"stage is {stage!r}; 0 (plain data parallelism), 1, 2 or 3 is needed")
        linears = [layer for layer in mlp(WIDTHS) if isinstance(layer, nn.Linear)]
        self.layers, self.dtype = [_Layer(linear, stage, dtype) for linear in linears], dtype

    def __call__(self, x: Tensor) -> Tensor:
        """Map (samples, width) to the same shape."""
        x = x.to(self.dtype).requires_grad_()
        for number, layer in enumerate(self.layers):
            x = _Linear.apply(x if number == 0 else functional.gelu(x), layer)
        return x

    def step(self) -> None:
        """Take one step of Adam with the gradients of the last backward pass."""
        for layer in self.layers:
            layer.step()

    def held(self) -> Held:
        """Return the bytes this rank keeps, counted from its tensors; call it between backward pass and step."""
        sizes = [
            [part.numel() * part.element_size() for part in (layer.kept, layer.gradient) if part is not None]
            for layer in self.layers
        ]
        state = sum(layer.optimizer.nbytes for layer in self.layers)
        return Held(sum(size[0] for size in sizes), sum(sum(size[1:]) for size in sizes), state)

    def parameters(self) -> list[Tensor]:
        """Return whole weights and biases, layer by layer; in stage 3 they are gathered for it, as objects."""
        return [part for layer in self.layers for part in layer.split(layer.seen())]


def train(
    stage: int, steps: int = 3, samples: int = 24, dtype: torch.dtype = torch.float64
) -> tuple[list[Tensor], Held]:
    """Train under a stage in a rank; return the whole parameters after ``steps``, and what the rank held."""
    inputs, targets = (my_part(part) for part in data(samples))
    model = ZeroMLP(stage, dtype)
    for _ in range(steps):
        squared_error(model(inputs), targets.to(dtype)).backward()
        held = model.held()
        model.step()
    return model.parameters(), held


def reference(how: str, steps: int = 3, samples: int = 24) -> list[Tensor]:
    """Return the parameters after ``steps``: "twin" (one process, whole batch), "DDP" or "fully_shard" of torch.

    Raises:
        ValueError: for another name.
    """
    model, batch = mlp(WIDTHS), data(samples)
    inputs, targets = batch if how == "twin" else (my_part(part) for part in batch)
    run = _wrapped(model, how)
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, (BETA1, BETA2), EPSILON)
    for _ in range(steps):
        optimizer.zero_grad()
        squared_error(run(inputs), targets).backward()
        optimizer.step()
    return [_whole(parameter) for parameter in model.parameters()]


def _wrapped(model: nn.Module, how: str) -> nn.Module:
    if how == "DDP":
        return DistributedDataParallel(model)
    if how == "fully_shard":
        mesh = dist.init_device_mesh(device(), (dist.get_world_size(),))
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    if how != "twin":
        raise ValueError(f"unknown reference {how!r}; there are: twin, DDP, fully_shard")
    return model


def _whole(parameter: Any) -> Tensor:
    return (parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter).detach()


def _errors(wanted: Sequence[Tensor], samples: int) -> dict[str, float]:
    found = {f"ZeRO stage {stage}": train(stage, samples=samples)[0] for stage in STAGES}
    found |= {how: reference(how, samples=samples) for how in ("DDP", "fully_shard")}
    return {name: worst(apart(parameters, wanted)) for name, parameters in found.items()}


def lab() -> str:
    """Train under each stage in a rank; return distances from the twin and bytes a parameter in mixed precision."""
    samples = 8 * own_rank()[1]
    errors = _errors(reference("twin", samples=samples), samples)
    lines = [f"{name:<13} {error:.1e} from the twin" for name, error in errors.items()]
    count = sum(parameter.numel() for parameter in mlp(WIDTHS).parameters())
    for stage in STAGES:
        held = train(stage, 1, samples, torch.bfloat16)[1]
        lines.append(f"stage {stage}: {held.total / count:.2f} bytes a parameter on each rank")
    return "\n".join([ranks_of(), *lines])


def main() -> None:
    """Run the lab from the command line."""
    start(lab, ranks=2)


if __name__ == "__main__":
    main()
