"""What ``mpiexec`` starts: a rank, and a guard beside it that knows how the rank ended and ends it in time.

The guard is the process that ``mpiexec`` knows; the rank is its child. When a rank dies, the guard notes how and stays,
so that ``mpiexec`` does not kill the others, whose state explains what happened. When the launching process is gone,
the guard ends the rank, whatever that does, and removes what the launch would leave behind.
"""

import contextlib
import os
import pickle
import random
import select
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

__all__ = ["main", "remove_segments", "segments"]

PAUSE = 0.001
"""Seconds between two looks of a rank that has answered: it goes on to serve the others' messages."""
LOOK = 0.05
"""Seconds between two looks of the guard where the system cannot wake it."""
LINGER = 0.3
"""Seconds a guard that has cleaned up leaves to the others: mpiexec kills them as soon as one has gone."""
PR_SET_PDEATHSIG = 1
SHARED = Path("/dev/shm")
PREFIXES = (f"{SHARED}/mpich_shm_", f"{SHARED}/ucx_shm_posix_")


def main(folder: Path) -> None:
    """Guard one rank until it has ended or the launching process is gone. Never returns."""
    _die_with_parent()
    with contextlib.suppress(FileNotFoundError):
        order, launcher, sys.path[:] = pickle.loads((folder / "order").read_bytes())
        told, tell = os.pipe()
        child = os.fork()
        if not child:
            os.close(told)
            _run(order, tell)
        os.close(tell)
        _guard(folder, child, launcher, told)
    os._exit(1)


def _guard(folder: Path, child: int, launcher: int, told: int) -> None:
    """Wait for the end of the rank or of the launching process; after a death stay, for the others' sake."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if _first_to_end(child, launcher) == child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        rank = os.read(told, 16).decode()
        if not rank:  # it has not got so far as to know its rank: there is no team
            return
        _put(folder, f"{rank}.died", pickle.dumps(status))
        _first_to_end(launcher)
    _clean(folder, _kill(child))
    time.sleep(LINGER)


def _first_to_end(*pids: int) -> int:
    """Wait until one of the processes has ended; return which."""
    try:
        watched = {os.pidfd_open(pid): pid for pid in pids}
    except ProcessLookupError:
        return pids[-1]
    except (AttributeError, OSError):
        return _poll(*pids)
    ready, _, _ = select.select(list(watched), [], [])
    return watched[ready[0]]


def _poll(*pids: int) -> int:
    """What :func:`_first_to_end` does where there are no process descriptors."""
    while True:
        for pid in pids:
            if _ended(pid):
                return pid
        time.sleep(LOOK)


def _ended(pid: int) -> bool:
    import psutil

    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _kill(child: int) -> set[str]:
    """Kill the rank; return the shared memory it had. It is stopped first, so that it can make no more of it."""
    left: set[str] = set()
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        left = segments(child)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return left


def _clean(folder: Path, left: set[str]) -> None:
    """Remove the folder and the shared memory of a launch whose launching process is gone."""
    with contextlib.suppress(FileNotFoundError):  # another guard may have been faster
        for file in folder.glob("*.shared"):
            left |= set(file.read_text().split())
    remove_segments(left)
    shutil.rmtree(folder, ignore_errors=True)


def segments(pid: int | str) -> set[str]:
    """Return the names of MPICH's and UCX's shared-memory segments that a process has open or mapped."""
    process, paths = Path(f"/proc/{pid}"), []
    with contextlib.suppress(OSError):
        paths += [line.split()[-1] for line in (process / "maps").read_text().splitlines() if line.strip()]
        paths += [os.readlink(entry.path) for entry in os.scandir(process / "fd")]
    return {Path(path).name for path in paths if path.startswith(PREFIXES) and " " not in path}  # " (deleted)"


def remove_segments(names: set[str]) -> None:
    """Remove shared-memory segments: MPICH leaves them behind when it is killed."""
    for name in names:
        (SHARED / name).unlink(missing_ok=True)


def _put(folder: Path, name: str, content: bytes) -> None:
    """Write a file that is complete as soon as it is seen."""
    new = folder / f"{name}.new"
    new.write_bytes(content)
    new.rename(folder / name)


# ------------------------------------------------------------------ the rank itself


def _run(order: Any, tell: int) -> None:
    """Run one rank; having answered, serve the others' messages until the launching process ends it."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from mpi4py import MPI

    from distgen_lab.ranks.child import _redirect

    comm = MPI.COMM_WORLD
    order = replace(order, rank=comm.rank)
    _put(order.folder, f"{os.getpid()}.shared", "\n".join(segments("self")).encode())
    if comm.size != order.ranks:
        _put(order.folder, "0.answer", pickle.dumps(("size", comm.size)))
        os._exit(0)
    os.write(tell, str(comm.rank).encode())
    _redirect(order.folder / f"{comm.rank}.out")
    answer = _answer(order)
    sys.stdout.flush()
    sys.stderr.flush()
    _put(order.folder, f"{comm.rank}.answer", answer)
    with contextlib.suppress(MPI.Exception):
        while not MPI.Is_finalized():
            comm.Iprobe()
            time.sleep(PAUSE)
    signal.pause()


def _die_with_parent() -> None:
    """Ask Linux to kill this process should its parent be killed: mpiexec's for the guard, the guard for the rank."""
    import ctypes

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            os._exit(1)


def _answer(order: Any) -> bytes:
    """Call the function; return its value pickled, or what it raised."""
    from distgen_lab.ranks import child

    recorder = None
    try:
        recorder = _prepare(order)
        value = child.answer(order)
        if recorder is not None and recorder.kept:
            _put(order.folder, f"{order.rank}.kept", pickle.dumps(list(recorder.kept.values())))
        return value
    except BaseException as error:
        return _describe(error, recorder.failed if recorder is not None else 0)


def _prepare(order: Any) -> Any:
    """Seed the rank and have its communication recorded."""
    if order.seed is not None:
        random.seed(order.seed + order.rank)
        with contextlib.suppress(ImportError):
            import numpy as np

            np.random.seed((order.seed + order.rank) % 2**32)
    if not order.record:
        return None
    from distgen_lab.ranks.child import _library
    from distgen_lab.ranks.record_mpi import MpiRecorder, record_mpi

    recorder = MpiRecorder(order.folder / f"{order.rank}.events", order.rank, _library("mpi4py"))
    record_mpi(recorder)
    return recorder


def _describe(error: BaseException, failed: int) -> bytes:
    """An exception as plain data; of one of MPI's also the number of the call."""
    from mpi4py import MPI

    from distgen_lab.ranks import child

    kind, facts = pickle.loads(child._describe(error))
    facts["frames"] = [frame for frame in facts["frames"] if "mpi4py" not in frame[0]]
    if isinstance(error, MPI.Exception):
        facts |= {"type": "MPI.Exception", "call": failed, "text": _plain(str(error))}
    return pickle.dumps((kind, facts))


def _plain(text: str) -> str:
    """The first and the last line of MPI's error stack, which say what and why, without its own places."""
    first, *more = text.strip().split("\n")
    last = more[-1] if more else ""
    reason = last.partition("): ")[2]
    return first.removesuffix(", error stack:") + (f" ({reason})" if reason else "")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
