"""The ranks a piece of code finds itself among, whoever started them: ``launch``, torchrun, mpiexec or srun.

A lab written on a :class:`World` runs unchanged on a laptop and on a cluster. Where only one library is wanted, write
its own calls instead: ``torch.distributed`` or mpi4py.
"""

import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

__all__ = ["MpiWorld", "TorchWorld", "World", "current", "join", "launcher"]


class World(Protocol):
    """What a lab needs of the ranks; buffers are tensors with torch and NumPy arrays with MPI."""

    rank: int
    size: int
    backend: str

    def full(self, count: int, value: float) -> Any:
        """Return a buffer of ``count`` float32 elements, all ``value``, where the backend wants it."""

    def exchange(self, sends: Sequence[tuple[int, Any]], receives: Sequence[tuple[int, Any]]) -> None:
        """Send each buffer to its rank and receive into each buffer from its rank, all at once; wait for all."""

    def barrier(self) -> None:
        """Wait until all ranks are here."""

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in order, on every rank."""


class TorchWorld:
    """The default process group of ``torch.distributed``."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self.rank, self.size, self.backend = dist.get_rank(), dist.get_world_size(), dist.get_backend()
        self.device = "cuda" if self.backend == "nccl" else "cpu"

    def full(self, count: int, value: float) -> Any:
        """Return a float32 tensor on the backend's device."""
        import torch

        return torch.full((count,), float(value), device=self.device)

    def exchange(self, sends: Sequence[tuple[int, Any]], receives: Sequence[tuple[int, Any]]) -> None:
        """Exchange tensors; NCCL needs them in one batch, or two ranks that both send first wait for ever."""
        import torch.distributed as dist

        if self.backend == "nccl":
            calls = [dist.P2POp(dist.isend, data, peer) for peer, data in sends]
            calls += [dist.P2POp(dist.irecv, data, peer) for peer, data in receives]
            requests = dist.batch_isend_irecv(calls) if calls else []
        else:
            requests = [dist.irecv(data, peer) for peer, data in receives]
            requests += [dist.isend(data, peer) for peer, data in sends]
        for request in requests:
            request.wait()
        self._finish()

    def _finish(self) -> None:
        """NCCL's requests are done for the stream when ``wait`` returns, not yet for the host."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        import torch.distributed as dist

        dist.barrier()
        self._finish()

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks."""
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values


class MpiWorld:
    """``MPI.COMM_WORLD`` of mpi4py."""

    backend = "mpi"

    def __init__(self) -> None:
        from mpi4py import MPI

        self.comm = MPI.COMM_WORLD
        self.rank, self.size = self.comm.rank, self.comm.size

    def full(self, count: int, value: float) -> Any:
        """Return a float32 array."""
        import numpy as np

        return np.full(count, value, np.float32)

    def exchange(self, sends: Sequence[tuple[int, Any]], receives: Sequence[tuple[int, Any]]) -> None:
        """Exchange arrays."""
        requests = [self.comm.Irecv(data, peer) for peer, data in receives]
        requests += [self.comm.Isend(data, peer) for peer, data in sends]
        for request in requests:
            request.Wait()

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.comm.Barrier()

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks."""
        return self.comm.allgather(value)


def current() -> World:
    """Return the world this process is a rank of.

    Raises:
        RuntimeError: if it is none.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_initialized():
        return TorchWorld()
    if "mpi4py.MPI" in sys.modules:
        return MpiWorld()
    raise RuntimeError("this process is no rank: call the function through distgen_lab.launch, or join() first")


def launcher() -> str:
    """Return who started this process as a rank: "mpi4py", "torchrun", "srun", or "" if nobody did.

    Raises:
        RuntimeError: for a rank of mpiexec that was not started through mpi4py: it could not see the others.
    """
    by_mpi = any(name in os.environ for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"))
    if by_mpi and "mpi4py" in sys.modules:
        return "mpi4py"
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return "torchrun"
    if "SLURM_PROCID" in os.environ:
        return "srun"
    if by_mpi:
        raise RuntimeError("mpiexec started this without mpi4py; write: mpiexec -n 4 python -m mpi4py -m MODULE")
    return ""


@contextlib.contextmanager
def join() -> Iterator[World]:
    """Join the ranks that a launcher started, and leave them at the end.

    Under torchrun and srun the backend is NCCL where this node has a GPU for each of its ranks, else Gloo.

    Raises:
        RuntimeError: if no launcher started this process, or srun has not said where the ranks shall meet.
    """
    found = launcher()
    if found == "mpi4py":
        yield MpiWorld()
        return
    if not found:
        raise RuntimeError("no launcher started this process: use torchrun, mpiexec or srun")
    if found == "srun":
        os.environ |= _from_slurm(os.environ)
    import torch
    import torch.distributed as dist

    local, beside = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    enough = torch.cuda.is_available() and dist.is_nccl_available() and torch.cuda.device_count() >= beside
    if enough:
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if enough else "gloo")
    try:
        yield TorchWorld()
        dist.barrier()  # a rank that leaves early closes connections under the others' feet
    finally:
        gc.collect()  # replicas and their threads go before the group they use
        dist.destroy_process_group()


def _from_slurm(given: "os._Environ[str] | dict[str, str]") -> dict[str, str]:
    """What torch.distributed wants to know, from what srun says."""
    if "MASTER_ADDR" not in given and "SLURM_LAUNCH_NODE_IPADDR" not in given:
        raise RuntimeError(
            "export MASTER_ADDR=<name of the first node> in the batch script: ranks must know where to meet"
        )
    host = given.get("MASTER_ADDR") or given["SLURM_LAUNCH_NODE_IPADDR"]
    port = given.get("MASTER_PORT") or str(20_000 + int(given.get("SLURM_JOB_ID", 0)) % 20_000)
    each = given.get("SLURM_NTASKS_PER_NODE") or given.get("SLURM_TASKS_PER_NODE", "1").partition("(")[0]
    return {
        "RANK": given["SLURM_PROCID"], "WORLD_SIZE": given["SLURM_NTASKS"], "LOCAL_RANK": given["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": each, "MASTER_ADDR": host, "MASTER_PORT": port,
    }  # fmt: skip
