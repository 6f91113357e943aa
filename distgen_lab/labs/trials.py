"""Try a reader's function on real ranks: what each rank ends up with, and what it sent, as plain data.

The exercises of section 6 report what these functions return, for a worked input and for others. The reader's function
is called on every rank with tensors that follow from the arguments; results come back as lists, bytes as numbers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from distgen_lab.labs import PATIENCE
from distgen_lab.ranks import Run, launch

__all__ = ["averages", "expert_answers", "mlp_outputs", "sums", "zero_steps"]

Trial = dict[str, list[Any]]


def sums(function: Callable[[Tensor], None], ranks: int, numbers: Sequence[float], power: int = 1) -> Trial:
    """Return {"values", "sent"} of an all-reduce in place: rank r starts with ``numbers`` x (r+1)**power.

    "sent" holds messages and bytes that each rank sent point to point.
    """

    def work() -> list[float]:
        given = torch.tensor(list(numbers), dtype=torch.float64) * (dist.get_rank() + 1) ** power
        function(given)
        return given.tolist()

    run = launch(work, ranks, timeout=PATIENCE)
    return {"values": run.values, "sent": [[row.sent_messages, row.sent_bytes] for row in run.timeline.traffic()]}


def averages(
    function: Callable[[list[Tensor], float], None], ranks: int, shapes: Sequence[Sequence[int]], cap: float
) -> Trial:
    """Return {"values", "bytes"} of gradients of these shapes, averaged in place; the bytes are of each all-reduce."""

    def work() -> list[list[float]]:
        torch.manual_seed(dist.get_rank())
        given = [torch.randn(tuple(shape), dtype=torch.float64) for shape in shapes]
        function(given, cap)
        return [tensor.flatten().tolist() for tensor in given]

    run = launch(work, ranks, timeout=PATIENCE)
    return {"values": run.values, "bytes": [[size for op, size in mine if op == "all_reduce"] for mine in _calls(run)]}


def zero_steps(function: Callable[..., None], ranks: int, count: int, steps: int, rate: float, beta: float) -> Trial:
    """Return {"values", "calls"} of ``steps`` with momentum on ``count`` parameters, a part of the momentum a rank.

    "values" holds parameters and the part of the momentum of each rank, "calls" the operations with their bytes.
    """

    def work() -> list[list[float]]:
        whole = torch.arange(float(count), dtype=torch.float64)
        part = torch.zeros(count // dist.get_world_size(), dtype=torch.float64)
        for step in range(steps):
            function(whole, torch.cos(whole * (dist.get_rank() + 1) + step), part, rate, beta)
        return [whole.tolist(), part.tolist()]

    run = launch(work, ranks, timeout=PATIENCE)
    return {"values": run.values, "calls": _calls(run)}


def mlp_outputs(function: Callable[..., Tensor], ranks: int, tokens: int, width: int, hidden: int) -> Trial:
    """Return {"values", "calls"} of an MLP whose input and weights are the same on all ranks."""

    def work() -> list[list[float]]:
        torch.manual_seed(3)
        shapes = [(tokens, width), (width, hidden), (hidden,), (hidden, width), (width,)]
        return function(*(torch.randn(shape, dtype=torch.float64) for shape in shapes)).tolist()

    run = launch(work, ranks, timeout=PATIENCE)
    return {"values": run.values, "calls": _calls(run)}


def expert_answers(function: Callable[..., Tensor], ranks: int, choices: Sequence[Sequence[int]]) -> Trial:
    """Return {"values", "bytes"} of tokens sent to experts: rank r's tokens go to ``choices[r]``, expert e times 10**e.

    The bytes are of each all-to-all of float64, what a rank hands over.
    """

    def work() -> list[list[float]]:
        rank = dist.get_rank()
        choice = torch.tensor(list(choices[rank]), dtype=torch.int64)
        tokens = torch.arange(1.0, 2 * len(choice) + 1, dtype=torch.float64).view(-1, 2) + 100 * rank
        return function(tokens, choice, lambda rows: rows * 10**rank).tolist()

    run = launch(work, ranks, timeout=PATIENCE)
    moved = [[s for s in result.events if s.op == "all_to_all_single" and s.dtype == "float64"] for result in run]
    return {"values": run.values, "bytes": [[span.nbytes for span in mine] for mine in moved]}


def _calls(run: Run) -> list[list[list[Any]]]:
    """Operation and bytes of everything each rank recorded, by the name without torch 2.13's ``_single``."""
    return [[[span.op.removesuffix("_single"), span.nbytes] for span in result.events] for result in run]
