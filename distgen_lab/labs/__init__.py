"""Labs: code on real tensors and real ranks, called from the notebooks and runnable on its own.

A lab that needs ranks is started by any launcher of the field, or by none (then two ranks on this machine)::

    python -m distgen_lab.labs.link
    torchrun --nnodes=2 --nproc-per-node=1 ... -m distgen_lab.labs.link
    mpiexec -n 2 python -m mpi4py -m distgen_lab.labs.link
    sbatch slurm.sh distgen_lab.labs.link          # slurm.sh lies beside the labs
"""

import os
import socket
from collections.abc import Callable
from typing import Any

from distgen_lab.ranks.world import current, join, launcher

__all__ = ["PATIENCE", "ranks_of", "run"]

PATIENCE = 30.0
"""Seconds that the ranks of an exercise may take: less than its cells may, so that the launcher says who waits."""


def run(lab: Callable[..., str], *args: Any) -> None:
    """Run ``lab(*args)`` on the ranks that a launcher started, else on two of this machine; rank 0 prints its text."""
    if launcher():
        with join() as world:
            text = lab(*args)
            if world.rank == 0:
                print(text, flush=True)
    else:
        from distgen_lab.ranks import launch

        print(launch(lab, ranks=2, args=args, timeout=600, record=False)[0].value)


def ranks_of() -> str:
    """Return the ranks in words: how many, over what, on which hosts; and whether they have a core each."""
    world = current()
    found = world.gather((socket.gethostname(), os.cpu_count() or 1))
    hosts = dict(found)
    text = f"{world.size} ranks over {world.backend} on {', '.join(hosts)}"
    crowded = [host for host, cores in hosts.items() if sum(host == name for name, _ in found) > cores]
    if crowded:
        text += (
            f"\nmore ranks than cores on {', '.join(crowded)}: count messages and bytes there, the times say nothing"
        )
    return text
