"""Record what ``DistributedDataParallel`` sends: its reducer is C++, below the reach of replaced Python functions.

A replica whose owner has registered no communication hook gets torch's own averaging hook, which computes the same and
goes through ``torch.distributed.all_reduce``: each bucket of gradients becomes one span. A hook of the owner's is left
alone: what it calls is recorded anyway.
"""

import functools
from collections.abc import Callable
from typing import Any

from distgen_lab.ranks.record import Recorder, data_facts

__all__ = ["record_ddp"]


def record_ddp(recorder: Recorder) -> None:
    """Have the gradient buckets of every replica recorded, and the broadcast of the weights it starts with."""
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.nn.parallel import DistributedDataParallel

    dist._broadcast_coalesced = _recorded_broadcast(recorder, dist._broadcast_coalesced)
    original = DistributedDataParallel._pre_forward

    @functools.wraps(original)
    def _pre_forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        if not self._comm_hooks:
            self.register_comm_hook(self.process_group, allreduce_hook)
        return original(self, *inputs, **kwargs)

    DistributedDataParallel._pre_forward = _pre_forward


def _recorded_broadcast(recorder: Recorder, original: Callable) -> Callable:
    """The coalesced broadcast of weights or buffers as one broadcast of all their bytes."""
    import torch.distributed as dist

    @functools.wraps(original)
    def broadcast(group: Any, tensors: list[Any], size: int, source: int = 0) -> None:
        ranks = dist.get_process_group_ranks(group)
        facts = data_facts(list(tensors)) | {"group": ranks, "root": ranks[source]}
        number = recorder.begin("broadcast", **facts)
        original(group, tensors, size, source)
        recorder.end(number)

    return broadcast
