"""Labs: code on real tensors and real ranks, called from the notebooks and runnable on its own.

A lab that needs ranks is started by any launcher of the field, or by none (then two ranks on this machine)::

    python -m distgen_lab.labs.link
    torchrun --nnodes=2 --nproc-per-node=1 ... -m distgen_lab.labs.link
    mpiexec -n 2 python -m mpi4py -m distgen_lab.labs.link
    sbatch slurm.sh distgen_lab.labs.link          # slurm.sh lies beside the labs
"""

from collections.abc import Callable
from typing import Any

from distgen_lab.ranks.world import current, join, launcher

__all__ = ["ranks_of", "run"]


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
    """Return the ranks in words: how many, over what, on which hosts."""
    import socket

    world = current()
    hosts = dict.fromkeys(world.gather(socket.gethostname()))
    return f"{world.size} ranks over {world.backend} on {', '.join(hosts)}"
