"""Imported once by the server that forks the ranks, so that no rank has to import torch again."""

import atexit
import os
import shutil

import torch
import torch._dynamo
import torch.distributed.algorithms.ddp_comm_hooks.default_hooks
import torch.distributed.fsdp
import torch.distributed.tensor.parallel
import torch.nn.parallel

__all__ = ["torch"]

# Jupyter kills a kernel's whole process group. In a session of its own the server lives on for a moment: it sees that
# the kernel is gone, ends, and removes the folder of its socket, which the kernel could not.
if folder := os.environ.pop("DISTGEN_SERVER_FOLDER", None):
    os.setsid()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
