"""Pipeline parallelism: the layers cut into stages, the batch into micro-batches; GPipe and 1F1B on real ranks.

``python -m distgen_lab.labs.pipeline``, or under torchrun or srun: see ``distgen_lab.labs``. An *order* says what each
stage does and when: ``("F", 3)`` is the forward pass of micro-batch 3, ``("B", 3)`` its backward pass.

Source: Huang et al., GPipe, 2019; Narayanan et al., PipeDream-Flush (1F1B), in Memory-Efficient Pipeline-Parallel DNN
Training, 2021; bubble (p-1)/(m+p-1).
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from distgen_lab.labs import ranks_of
from distgen_lab.labs.parallel import apart, data, mlp, own_rank, share, squared_error, start, worst
from distgen_lab.timeline import Timeline

__all__ = [
    "ORDERS", "Pipe", "bubble", "compare", "gpipe", "in_flight", "lab", "main", "one_f_one_b",
    "order_of", "slots", "train", "twin",
]  # fmt: skip

Work = tuple[str, int]
"""("F" or "B", micro-batch)."""
WIDTHS = (8,) * 9
LEARNING_RATE = 0.1


def gpipe(stages: int, micro_batches: int) -> list[list[Work]]:
    """Return what each stage does in GPipe: all forward passes, then all backward passes, the last one first.

    >>> gpipe(2, 2)[0]
    [('F', 0), ('F', 1), ('B', 1), ('B', 0)]
    """
    forward = [("F", k) for k in range(micro_batches)]
    return [forward + [("B", k) for k in reversed(range(micro_batches))] for _ in range(stages)]


def one_f_one_b(stages: int, micro_batches: int) -> list[list[Work]]:
    """Return what each stage does in 1F1B: as many forward passes as stages follow it, then one of each in turn.

    >>> one_f_one_b(2, 2)[0]
    [('F', 0), ('F', 1), ('B', 0), ('B', 1)]
    """
    return [_in_turn(min(stages - 1 - stage, micro_batches), micro_batches) for stage in range(stages)]


def _in_turn(warm_up: int, micro_batches: int) -> list[Work]:
    order: list[Work] = [("F", k) for k in range(warm_up)]
    for k in range(micro_batches):
        order += [("F", k + warm_up)] if k + warm_up < micro_batches else []
        order.append(("B", k))
    return order


ORDERS: dict[str, Callable[[int, int], list[list[Work]]]] = {"GPipe": gpipe, "1F1B": one_f_one_b}
"""The orders by name: functions of stages and micro-batches."""


def slots(order: Sequence[Sequence[Work]], forward: int = 1, backward: int = 1) -> dict[tuple[int, str, int], int]:
    """Return when each (stage, pass, micro-batch) begins, if messages take no time and everyone starts when possible.

    Args:
        order: what each stage does, in order.
        forward, backward: time of a pass, in slots.

    Raises:
        ValueError: if the order cannot be carried out: some pass waits for one that comes after it.
    """
    lasts = {"F": forward, "B": backward}
    begin: dict[tuple[int, str, int], int] = {}
    free, place = [0] * len(order), [0] * len(order)
    moved = True
    while moved:
        moved = False
        for stage, works in enumerate(order):
            while place[stage] < len(works) and (need := _needs(stage, works[place[stage]], len(order), begin)) != -1:
                kind, micro = works[place[stage]]
                ready = 0 if need is None else begin[need] + lasts[need[1]]
                begin[stage, kind, micro] = max(free[stage], ready)
                free[stage] = begin[stage, kind, micro] + lasts[kind]
                place[stage], moved = place[stage] + 1, True
    stuck = [stage for stage, works in enumerate(order) if place[stage] < len(works)]
    if stuck:
        kind, micro = order[stuck[0]][place[stuck[0]]]
        raise ValueError(f"the order never ends: stage {stuck[0]} waits before ({kind!r}, {micro}) for ever")
    return begin


def _needs(stage: int, work: Work, stages: int, done: dict) -> Any:
    """The pass that must have ended before: None if there is none, -1 if it has not been placed yet."""
    kind, micro = work
    if kind == "F":
        before = None if stage == 0 else (stage - 1, "F", micro)
    else:
        before = (stage, "F", micro) if stage == stages - 1 else (stage + 1, "B", micro)
    return -1 if before is not None and before not in done else before


def bubble(order: Sequence[Sequence[Work]], forward: int = 1, backward: int = 1) -> Fraction:
    """Return the share of all slots, of all stages, in which a stage stands idle.

    >>> bubble(gpipe(4, 8)), bubble(one_f_one_b(4, 8))
    (Fraction(3, 11), Fraction(3, 11))
    """
    lasts = {"F": forward, "B": backward}
    begin = slots(order, forward, backward)
    length = max(start + lasts[kind] for (_, kind, _), start in begin.items())
    busy = sum(lasts[kind] for _, kind, _ in begin)
    return 1 - Fraction(busy, length * len(order))


def in_flight(order: Sequence[Sequence[Work]]) -> list[int]:
    """Return, for each stage, the most micro-batches whose activations it holds at once."""
    most = []
    for works in order:
        held = [sum(1 if kind == "F" else -1 for kind, _ in works[: k + 1]) for k in range(len(works))]
        most.append(max(held, default=0))
    return most


def order_of(timeline: Timeline) -> list[list[Work]]:
    """Return the order in which recorded ranks worked, from the tags of what they sent and received."""
    return [_works(span.tag for span in timeline.on(lane) if span.peer is not None) for lane in range(timeline.lanes)]


def _works(tags: Iterable[int]) -> list[Work]:
    """A pass sends and receives under the same tag: each tag once, in the order of its first message."""
    return [("FB"[tag % 2], tag // 2) for tag in dict.fromkeys(tags)]


class Pipe:
    """One stage of a pipeline on a rank.

    Args:
        module: this rank's layers.
        ranks: the global ranks of the stages, in order; None: all ranks. All of them make their stage at the same time.

    Activations and gradients travel in process groups of their own: on NCCL messages of one group wait for each other,
    and two neighbours that both send first would wait for ever.
    """

    def __init__(self, module: nn.Module, ranks: Sequence[int] | None = None) -> None:
        self.module = module
        self.ranks = list(range(dist.get_world_size())) if ranks is None else list(ranks)
        self.groups = [dist.new_group(self.ranks, use_local_synchronization=True) for _ in "FB"]
        self.stage = self.ranks.index(dist.get_rank())
        self.last = self.stage == len(self.ranks) - 1
        self.held: dict[int, tuple[Tensor, Tensor]] = {}
        self.sending: list[Any] = []

    def run(
        self, works: Sequence[Work], inputs: Sequence[Tensor], loss: Callable[[Tensor, int], Tensor], like: Tensor
    ) -> float:
        """Do ``works`` in order, together with the other stages; gradients add up in the module's parameters.

        Args:
            works: what this stage does.
            inputs: micro-batches; only the first stage looks at them.
            loss: of the last stage's output and the number of the micro-batch; only the last stage calls it.
            like: a tensor of the shape that travels between stages.

        Returns:
            The sum of the losses on the last stage, 0 elsewhere.
        """
        total = 0.0
        for kind, micro in works:
            if kind == "F":
                total += self._forward(micro, inputs, loss, like)
            else:
                self._backward(micro, like)
        for work in self.sending:
            work.wait()
        self.sending.clear()
        return total

    def _forward(self, micro: int, inputs: Sequence[Tensor], loss: Callable, like: Tensor) -> float:
        x = inputs[micro].clone() if self.stage == 0 else self._receive(-1, 2 * micro, like)
        x.requires_grad_()
        out = self.module(x)
        if self.last:
            out = loss(out, micro)
        else:
            self._send(out.detach(), 1, 2 * micro)
        self.held[micro] = x, out
        return float(out.detach()) if self.last else 0.0

    def _backward(self, micro: int, like: Tensor) -> None:
        x, out = self.held.pop(micro)
        out.backward(None if self.last else self._receive(1, 2 * micro + 1, like))
        if self.stage > 0:
            self._send(x.grad, -1, 2 * micro + 1)

    def _receive(self, step: int, tag: int, like: Tensor) -> Tensor:
        got = torch.empty_like(like)
        dist.recv(got, self.ranks[self.stage + step], group=self.groups[tag % 2], tag=tag)
        return got

    def _send(self, tensor: Tensor, step: int, tag: int) -> None:
        """Send without waiting: a stage that waited for its neighbour to receive could wait for ever in 1F1B."""
        to, group = self.ranks[self.stage + step], self.groups[tag % 2]
        self.sending.append(dist.isend(tensor.contiguous(), to, group=group, tag=tag))


def twin(samples: int = 24) -> list[Tensor]:
    """Return the gradients of the whole batch on one process."""
    model, (inputs, targets) = mlp(WIDTHS), data(samples)
    squared_error(model(inputs), targets).backward()
    return [parameter.grad for parameter in model.parameters()]


def _piece(model: nn.Sequential, stage: int, stages: int) -> nn.Sequential:
    """The layers of one stage: equally many linear ones, each with the GELU before it."""
    each = share("layers", len(WIDTHS) - 1, stages)
    return model[max(0, 2 * each * stage - 1) : 2 * each * (stage + 1) - 1]


def train(name: str = "1F1B", micro_batches: int = 8, samples: int = 24) -> list[Tensor]:
    """Run one batch through the pipeline of all ranks; return the gradients of this rank's stage.

    Raises:
        ValueError: for an unknown order, or samples or layers that do not divide.
    """
    if name not in ORDERS:
        raise ValueError(f"unknown order {name!r}; there are: {', '.join(ORDERS)}")
    rank, stages = own_rank()
    inputs, targets = data(samples)
    each = share("samples", samples, micro_batches)
    wanted = targets.split(each)
    pipe = Pipe(_piece(mlp(WIDTHS), rank, stages))

    def loss(out: Tensor, micro: int) -> Tensor:
        return squared_error(out, wanted[micro]) / micro_batches

    pipe.run(ORDERS[name](stages, micro_batches)[rank], inputs.split(each), loss, inputs[:each])
    return [parameter.grad for parameter in pipe.module.parameters()]


def compare(name: str = "1F1B", micro_batches: int = 8, samples: int = 24) -> float:
    """Return how far this rank's gradients are from the twin's."""
    rank, stages = own_rank()
    found, whole = train(name, micro_batches, samples), twin(samples)
    each = len(whole) // stages
    return apart(found, whole[rank * each : (rank + 1) * each])


def lab() -> str:
    """Run both orders in a rank, compare with the twin; return the table with the bubble of each."""
    stages, lines = own_rank()[1], []
    for name, order in ORDERS.items():
        error, works = worst(compare(name)), order(stages, 8)
        held = max(in_flight(works))
        lines.append(f"{name:<6} {error:.1e} from the twin, bubble {bubble(works)}, at most {held} micro-batches held")
    return "\n".join([ranks_of(), *lines])


def main() -> None:
    """Run the lab from the command line."""
    start(lab, ranks=2)


if __name__ == "__main__":
    main()
