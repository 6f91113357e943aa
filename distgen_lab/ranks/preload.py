"""Imported once by the server that forks the ranks, so that no rank has to import torch again."""

import torch
import torch._dynamo
import torch.distributed.algorithms.ddp_comm_hooks.default_hooks
import torch.distributed.fsdp
import torch.distributed.tensor.parallel
import torch.nn.parallel

__all__ = ["torch"]
