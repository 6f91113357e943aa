"""A Jupyter kernel whose ranks are blocked in C: interrupted, restarted, shut down or killed, it leaves nothing."""

import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from jupyter_client.manager import start_new_kernel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc"),
]

GLOO = """
import os, torch, torch.distributed as dist
from distgen_lab import launch
def work():
    open(os.path.join({folder!r}, str(os.getpid())), "w").close()
    if dist.get_rank() == 0:
        while True: pass
    dist.recv(torch.ones(1), src=0)
launch(work, ranks=2, timeout=100)
"""
MPI = """
import os
from distgen_lab import launch
def work():
    import numpy as np
    from mpi4py import MPI
    open(os.path.join({folder!r}, str(os.getpid())), "w").close()
    if MPI.COMM_WORLD.rank == 0:
        while True: pass
    MPI.COMM_WORLD.Recv(np.empty(1), source=0)
launch(work, ranks=2, backend="mpi", timeout=100)
"""


def interrupt(manager, client):
    manager.interrupt_kernel()
    assert client.get_shell_msg(timeout=20)["content"]["status"] == "error"
    assert answer(client, "40 + 2") == "42"  # the kernel lives


def kill(manager, client):
    os.kill(manager.provisioner.pid, signal.SIGKILL)


def restart(manager, client):
    manager.restart_kernel(now=True)


def shutdown(manager, client):
    manager.shutdown_kernel(now=False)


def answer(client, code):
    """What an expression gives in the kernel."""
    reply = client.execute("", user_expressions={"it": code}, reply=True, timeout=30)
    return reply["content"]["user_expressions"]["it"]["data"]["text/plain"]


def wait_for(look, seconds, what):
    """Look until something is found."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.05)
    return found


def alive(pids):
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def left_over(folder):
    """Temporary folders of the kernel, and shared memory of MPI's ranks."""
    mine = {p for p in folder.iterdir() if not p.name.startswith("torchinductor")}  # torch's cache stays for the next
    return mine | {p for pattern in ("mpich_*", "ucx_*") for p in Path("/dev/shm").glob(pattern)}


@pytest.mark.parametrize("how", [interrupt, kill, restart, shutdown], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", ["gloo", "mpi"])
def test_blocked_ranks_end_with_the_cell_or_the_kernel(backend, how, tmp_path, tmp_path_factory, monkeypatch):
    if backend == "mpi" and not shutil.which("mpiexec", path=str(Path(sys.executable).parent)):
        pytest.skip("no mpiexec beside this Python")
    folder = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(folder))
    before = left_over(folder)
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(tmp_path))
    try:
        below = [psutil.Process(manager.provisioner.pid)]
        client.execute((GLOO if backend == "gloo" else MPI).format(folder=str(tmp_path)))
        ranks = wait_for(lambda: pids if len(pids := started(tmp_path)) == 2 else [], 60, "the ranks did not start")
        below += below[0].children(recursive=True)
        how(manager, client)
        wait_for(lambda: not alive(ranks), 20, "ranks are still running")
        if how is not interrupt:
            wait_for(lambda: not alive([p.pid for p in below]), 20, f"left: {[p for p in below if alive([p.pid])]}")
        if how is interrupt:
            manager.shutdown_kernel()  # the server that forks ranks lives as long as the kernel
        wait_for(lambda: left_over(folder) <= before, 20, f"left: {left_over(folder) - before}")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def started(folder):
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
