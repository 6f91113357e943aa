"""A warm start for sandboxed kernels: Python and ipykernel are imported once, and each kernel is a fork of that.

Starting a kernel costs a third of a second of processor time, nearly all of it imports. A server that never runs a
student's code has imported them; a fork of it enters a waiting sandbox by its namespaces (Linux ``setns``), gives up
every privilege as the sandbox's own command would have, and becomes the kernel. Nothing passes from one kernel to the
next: each is a fresh copy of the server. The server knows no seed, no reference and no submission.

Only root can enter a sandbox this way; others start kernels cold.
"""

import contextlib
import ctypes
import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Warm", "WarmError", "doorkeeper", "usable"]

NAMESPACES = {"ipc": 0x08000000, "uts": 0x04000000, "net": 0x40000000, "cgroup": 0x02000000, "pid": 0x20000000,
              "mnt": 0x00020000}  # fmt: skip
"""Namespaces of a sandbox, in the order in which they are entered, with the numbers of ``setns``."""
PRELOAD = ("ipykernel.kernelapp", "ipykernel.ipkernel", "numpy", "distgen_lab.checks",
           "ipykernel.debugger", "tornado.platform.asyncio", "IPython.core.oinspect", "IPython.extensions.storemagic",
           "IPython.core.completerlib", "sqlite3", "numpy.random")  # fmt: skip
"""What every kernel imports while it starts, and nearly every answer."""
PATIENCE = 30.0
"""Seconds to wait for a sandbox to open, or for the server to answer."""
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_DOOR = "door"
_said: dict[str, str] = {}
"""Environment variables that the imports have set, as they would in a kernel started cold."""


class WarmError(RuntimeError):
    """The server did not start a kernel; the message says why."""


@cache
def usable() -> bool:
    """Return whether kernels can be started warm here: on Linux, as root, where entering a namespace is allowed."""
    return sys.platform == "linux" and os.geteuid() == 0 and _may_enter()


def _may_enter() -> bool:
    """Whether a process may enter the namespaces of another: tried with its own, in a fork."""
    libc = ctypes.CDLL(None)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            spaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in NAMESPACES]
            os._exit(any(libc.setns(space, kind) for space, kind in zip(spaces, NAMESPACES.values(), strict=True)))
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def doorkeeper(sockets: Path) -> list[str]:
    """Return the command that a sandbox runs while it waits for its kernel, and as long as the kernel lives."""
    return ["sh", "-c", 'read -r _ < "$1"', "sh", str(sockets / _DOOR)]


class Warm:
    """The server, as the grader sees it. One call at a time."""

    def __init__(self, preload: Sequence[str] = ()) -> None:
        """Start the server; ``preload`` names more modules to import, of which no state may matter."""
        command = [sys.executable, "-m", __name__, *PRELOAD, *preload]
        env = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "MPLBACKEND": "Agg"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd="/", env=env, text=True, **pipes)

    def open_door(self, sockets: Path, user: int) -> None:
        """Make the door of a sandbox before the sandbox is started."""
        os.mkfifo(sockets / _DOOR, 0o600)
        os.chown(sockets / _DOOR, user, user)

    def start(self, sockets: Path, launcher: int, argv: Sequence[str], **place: Any) -> int:
        """Start a kernel in the sandbox whose outer process is ``launcher``; return the process that waits for it.

        Args:
            sockets: the sandbox's folder.
            launcher: process id of bwrap.
            argv: arguments of ipykernel.
            place: ``user`` (id to run as), ``home`` (folder inside), ``environment`` and ``limits`` (by rlimit name).

        Raises:
            WarmError: if the sandbox does not open or the server is gone.
        """
        request = {"door": str(sockets / _DOOR), "launcher": launcher, "argv": list(argv)} | place
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline() or '{"error": "the server has ended"}')
        except (OSError, ValueError) as error:
            raise WarmError(f"the warm server does not answer ({error})") from error
        if "error" in answer:
            raise WarmError(answer["error"])
        return answer["pid"]

    def close(self) -> None:
        """End the server. Kernels that still run are not touched: their sandbox ends them."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


# ------------------------------------------------------------------------------------------------- the server


def _serve(preload: Sequence[str]) -> None:
    """Import, then start a kernel for each line on standard input; answer with one line each."""
    del sys.path[0]  # the folder it was started in
    before = dict(os.environ)
    for name in preload:
        with contextlib.suppress(ImportError):
            __import__(name)
    _said.update(item for item in os.environ.items() if item not in before.items())
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        try:
            answer = {"pid": _let_in(json.loads(line))}
        except OSError as error:
            answer = {"error": f"the sandbox does not open: {error}"}
        print(json.dumps(answer), flush=True)


def _let_in(request: dict[str, Any]) -> int:
    """Fork a process that enters the sandbox and forks the kernel there; return its id."""
    door = _wait_at(request["door"])
    try:
        spaces = _namespaces(request["launcher"])
        inside, tell = os.pipe()
        try:
            waiting = os.fork()
            if waiting == 0:
                _enter(request, door, spaces, tell)
        finally:
            for descriptor in (*spaces, tell):
                os.close(descriptor)
        with open(inside, "rb") as answer:
            if not answer.read():
                raise PermissionError("its namespaces cannot be entered")
    finally:
        os.close(door)
    return waiting


def _wait_at(path: str) -> int:
    """Open the door's writing end as soon as the sandbox's doorkeeper has the other; nobody else will find it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            door = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.unlink(path)
            return door
        except OSError:
            if time.monotonic() > deadline or not os.path.exists(path):
                raise
            time.sleep(0.002)


def _namespaces(launcher: int) -> list[int]:
    """Descriptors of the namespaces of the innermost process that ``launcher`` started."""
    inner = launcher
    while children := Path(f"/proc/{inner}/task/{inner}/children").read_text().split():
        inner = int(children[0])
    return [os.open(f"/proc/{inner}/ns/{name}", os.O_RDONLY) for name in NAMESPACES]


def _enter(request: dict[str, Any], door: int, spaces: list[int], tell: int) -> None:
    """Enter, say so, fork the kernel inside, and hold the door open until the kernel ends. Does not return."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        for space, kind in zip(spaces, NAMESPACES.values(), strict=True):
            if libc.setns(space, kind):
                os._exit(1)
        os.write(tell, b"inside")
        os.close(tell)
        kernel = os.fork()
        if kernel == 0:
            _become_kernel(request, libc)
        os.closerange(0, door)
        os.closerange(door + 1, 256)
        os.waitpid(kernel, 0)
    finally:
        os._exit(0)


def _become_kernel(request: dict[str, Any], libc: Any) -> None:
    """Give up what the server has, then run the kernel. Does not return."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        os.closerange(3, 256)
        os.setsid()
        _give_up_privileges(request["user"], request["limits"], libc)
        os.chdir(request["home"])
        os.environ.clear()
        os.environ.update(_said | request["environment"], PWD=request["home"])
        sys.argv = ["ipykernel_launcher", *request["argv"]]
        gc.unfreeze()
        _run_kernel(request["argv"])
    finally:
        os._exit(0)


def _give_up_privileges(user: int, limits: dict[str, int], libc: Any) -> None:
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), (value, value))
    for capability in range(64):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)  # from root to another user: every capability goes
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or os.geteuid() == 0:
        os._exit(1)
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # as after an exec: the kernel may look at its own /proc


def _run_kernel(argv: list[str]) -> None:
    from ipykernel.kernelapp import launch_new_instance

    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # not the same numbers in every kernel
    launch_new_instance(argv=argv)


if __name__ == "__main__":
    _serve(sys.argv[1:])
