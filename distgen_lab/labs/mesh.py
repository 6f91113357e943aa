"""Three kinds of parallelism at once: 2 x 2 x 2 ranks on a ``DeviceMesh``, data x pipeline x tensor.

``python -m distgen_lab.labs.mesh`` starts 8 ranks; or under torchrun or srun: see ``distgen_lab.labs``. Tensor
parallelism talks most, so its ranks are neighbours; data parallelism talks least, so its ranks are furthest apart.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from distgen_lab.labs import ranks_of
from distgen_lab.labs.ddp import average_gradients
from distgen_lab.labs.parallel import apart, data, device, my_part, own_rank, share, squared_error, start, worst
from distgen_lab.labs.pipeline import Pipe, one_f_one_b
from distgen_lab.labs.tensor_parallel import MLP, ParallelMLP

__all__ = ["AXES", "compare", "lab", "main", "make_mesh", "train", "twin"]

AXES = ("data", "pipe", "tensor")
LEARNING_RATE = 0.1


def make_mesh(shape: tuple[int, int, int] = (2, 2, 2)) -> DeviceMesh:
    """Return the ranks as a mesh of data x pipe x tensor: rank = (d x pipes + p) x tensors + t.

    Raises:
        ValueError: if the shape does not hold exactly the ranks there are.
    """
    ranks = dist.get_world_size()
    if len(shape) != 3 or torch.Size(shape).numel() != ranks:
        needed = torch.Size(shape).numel()
        raise ValueError(f"a mesh of {' x '.join(map(str, shape))} needs {needed} ranks, there are {ranks}")
    return init_device_mesh(device(), shape, mesh_dim_names=AXES)


def _blocks(count: int, width: int) -> list[MLP]:
    torch.manual_seed(0)
    return [MLP(width, 4 * width).to(device() if dist.is_initialized() else "cpu") for _ in range(count)]


def twin(steps: int = 2, samples: int = 16, width: int = 8, blocks: int = 2) -> list[Tensor]:
    """Return the parameters of all blocks after ``steps`` on one process."""
    model, (inputs, targets) = nn.Sequential(*_blocks(blocks, width)), data(samples, width)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    for _ in range(steps):
        optimizer.zero_grad()
        squared_error(model(inputs), targets).backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def train(
    shape: tuple[int, int, int] = (2, 2, 2), steps: int = 2, samples: int = 16, width: int = 8, micro_batches: int = 2
) -> list[Tensor]:
    """Return this rank's parameters (its tensor part of its stage's block) after ``steps`` with the mesh of all ranks.

    Raises:
        ValueError: if the shape does not hold the ranks, or samples or hidden units do not divide.
    """
    mesh = make_mesh(shape)
    groups = {axis: mesh[axis].get_group() for axis in AXES}
    stage = mesh.get_local_rank("pipe")
    block = ParallelMLP(_blocks(shape[1], width)[stage], groups["tensor"])
    inputs, targets = (my_part(part, group=groups["data"]) for part in data(samples, width))
    pipe = Pipe(block, dist.get_process_group_ranks(groups["pipe"]))
    for _ in range(steps):
        _step(pipe, groups["data"], inputs, targets, micro_batches)
    return [parameter.detach() for parameter in block.parameters()]


def _step(pipe: Pipe, replicas: Any, inputs: Tensor, targets: Tensor, micro_batches: int) -> None:
    """Micro-batches through the pipeline, gradients averaged over the replicas, one step of gradient descent."""
    each = share("samples of a replica", len(inputs), micro_batches)
    wanted = targets.split(each)
    works = one_f_one_b(len(pipe.ranks), micro_batches)[pipe.stage]
    optimizer = torch.optim.SGD(pipe.module.parameters(), LEARNING_RATE)
    optimizer.zero_grad()
    pipe.run(works, inputs.split(each), lambda out, k: squared_error(out, wanted[k]) / micro_batches, inputs[:each])
    average_gradients(pipe.module, replicas)
    optimizer.step()


def compare(shape: tuple[int, int, int] = (2, 2, 2), steps: int = 2, samples: int = 16, width: int = 8) -> float:
    """Return how far this rank's parameters are from its part of the twin's."""
    found, whole = train(shape, steps, samples, width), twin(steps, samples, width, shape[1])
    stage, part = dist.get_rank() // shape[2] % shape[1], dist.get_rank() % shape[2]
    up, up_bias, down, down_bias = whole[4 * stage : 4 * stage + 4]
    cut = [up.chunk(shape[2])[part], up_bias.chunk(shape[2])[part], down.chunk(shape[2], 1)[part], down_bias]
    return apart(found, [cut[k] for k in (0, 1, 2, 3)])


def lab() -> str:
    """Train on the mesh in a rank; return how far it is from the twin and who talks to whom."""
    ranks = own_rank()[1]
    shape = (share("ranks", ranks, 4), 2, 2)
    error = worst(compare(shape, samples=8 * shape[0]))
    lines = [f"{' x '.join(map(str, shape))} ({' x '.join(AXES)}): {error:.1e} from the twin"]
    return "\n".join([ranks_of(), *lines])


def main() -> None:
    """Run the lab from the command line."""
    start(lab, ranks=8)


if __name__ == "__main__":
    main()
