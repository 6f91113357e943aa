"""What runs in a rank that the fork server made: set up, call the function, hand back what came of it."""

import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgen_lab.ranks import wire

if TYPE_CHECKING:  # importing it would load numpy into every rank
    from distgen_lab.alphabeta import Link

__all__ = ["MOST_BYTES", "Order", "answer", "remove", "run_rank"]

MOST_BYTES = 256 * 2**20
"""Largest pickled value a rank may return."""


@dataclass(frozen=True)
class Order:
    """What a rank is told: which it is, where the folder of this launch lies, and the pickled function."""

    rank: int
    ranks: int
    backend: str
    folder: Path
    payload: bytes
    seed: int | None
    timeout: float
    record: bool
    network: "Link | None" = None


def run_rank(order: Order, pipe: Connection) -> None:
    """Run one rank to its end. Never returns: no interpreter shut-down can hang or complain."""
    try:
        _watch_parent(order.folder)
        _redirect(order.folder / f"{order.rank}.out")
        _join(order)
        before = wire.written() if order.record else {}
        packed = answer(order)
        if order.record:
            wire.note(order.folder / f"{order.rank}.wire", before)
    except BaseException as error:
        packed = _describe(error)
    sys.stdout.flush()
    sys.stderr.flush()
    pipe.send_bytes(packed)
    wait([pipe], timeout=order.timeout)  # until all have finished: an early exit would cut the others' connections
    os._exit(0)


def _watch_parent(folder: Path) -> None:
    """End with the process that asked for us, even while blocked in C, and remove the folder it can no longer remove.

    Its Ctrl-C is ignored: it ends the ranks itself. A session of their own keeps the ranks alive for that moment when a
    whole group of processes is killed, as Jupyter does with a kernel it restarts.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setsid"):
        os.setsid()
    sentinel = parent_process().sentinel

    def watch() -> None:
        wait([sentinel])
        remove(folder)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def remove(folder: Path) -> None:
    """Remove a folder in which another process may just be making a file."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.05)


def _redirect(path: Path) -> None:
    """Send standard output and error, those of C code too, to a file."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def answer(order: Order) -> bytes:
    """Call the function and pickle what it returns.

    Raises:
        TypeError, ValueError: if that cannot be pickled, or is too large to send back.
    """
    import cloudpickle

    function, args = cloudpickle.loads(order.payload)
    value = function(*args)
    try:
        packed = cloudpickle.dumps(("value", value))
    except Exception as error:
        kind = type(value).__name__
        raise TypeError(f"what rank {order.rank} returned (a {kind}) cannot be sent back: {error}") from None
    if len(packed) > MOST_BYTES:
        size = f"{len(packed) / 2**20:,.0f} MiB, at most {MOST_BYTES / 2**20:,.0f} can be sent back"
        raise ValueError(f"what rank {order.rank} returned takes {size}; return a part or a summary of it")
    return packed


def _join(order: Order) -> None:
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    from distgen_lab.ranks.network import EmulatedNetwork
    from distgen_lab.ranks.record import Recorder, record_torch
    from distgen_lab.ranks.record_ddp import record_ddp

    torch.set_num_threads(1)
    os.environ |= {"RANK": str(order.rank), "WORLD_SIZE": str(order.ranks), "LOCAL_RANK": str(order.rank)}
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if order.seed is not None:
        torch.manual_seed(order.seed + order.rank)
        random.seed(order.seed + order.rank)
    events = order.folder / f"{order.rank}.events"
    recorder = Recorder(events, order.rank, _library("torch")) if order.record else None
    link = order.network
    network = link and EmulatedNetwork(link, dist.isend, dist.irecv, order.rank, order.folder)
    if recorder or network:
        record_torch(recorder, network)
    if recorder:
        record_ddp(recorder)
    if order.backend == "nccl":
        torch.cuda.set_device(order.rank)
    store = f"file://{order.folder / 'store'}"
    limit = timedelta(seconds=order.timeout + 60)  # the launcher's deadline comes first, and explains
    dist.init_process_group(order.backend, init_method=store, rank=order.rank, world_size=order.ranks, timeout=limit)


def _library(name: str) -> str:
    """The folder of an imported library: its frames are not the caller's."""
    module = sys.modules.get(name)
    return os.path.dirname(os.path.abspath(module.__file__)) + os.sep if module else "\0"


def _describe(error: BaseException) -> bytes:
    """An exception as plain data: its type, text and frames; the launcher adds the source lines it knows."""
    import pickle

    here = os.path.dirname(os.path.abspath(__file__)) + os.sep
    frames: list[tuple[str, int, str]] = [
        (frame.filename, frame.lineno or 0, frame.name)
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((here, _library("torch")))
    ]
    facts: dict[str, Any] = {"type": type(error).__name__, "text": str(error), "frames": frames}
    return pickle.dumps(("error", facts))
