"""The sandbox in which students' code runs: bubblewrap around the kernel (Linux).

Inside are Python, the course's library and an empty home, all but the home read-only; no other file of this machine, no
network but loopback, no other process, no privileges, and limits on memory, processes and files. ``solutions/`` lies
nowhere inside. The kernel is reached through sockets in a folder of its own.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import distgen_lab

__all__ = ["HOME", "LIMITS", "MEMORY", "Sandbox", "why_not"]

HOME = "/home/student"
"""Where the student's code runs, inside."""
MEMORY = 4 * 2**30
"""Bytes that all processes of a kernel may hold together; more ends the kernel."""
ADDRESS_SPACE, PROCESSES, FILE_BYTES, HOME_BYTES, SHARED_BYTES = 4 * 2**30, 512, 2**26, 2**28, 2**28
LIMITS = {"RLIMIT_AS": ADDRESS_SPACE, "RLIMIT_NPROC": PROCESSES, "RLIMIT_FSIZE": FILE_BYTES, "RLIMIT_CORE": 0}
"""Limits of each process inside."""
_FIRST_USER = 61_000
_LONGEST_PATH = 80
"""A socket's path may have 107 bytes."""
_QUIET = {"UCX_LOG_LEVEL": "fatal", "HWLOC_HIDE_ERRORS": "2"}


@dataclass(frozen=True)
class Sandbox:
    """One sandbox: the folder of its sockets (a short path), and the user it runs as where this process is root."""

    sockets: Path
    user: int

    @classmethod
    def new(cls, folder: Path | None = None) -> "Sandbox":
        """Return a sandbox with a folder for its sockets that its user owns; in ``folder`` if that path is short."""
        short = folder is not None and len(str(folder)) < _LONGEST_PATH
        sockets = Path(tempfile.mkdtemp(prefix="dg", dir=folder if short else "/tmp"))
        sandbox = cls(sockets, _FIRST_USER + os.getpid() % 4_000)
        sandbox.hand_over(sandbox.sockets)
        return sandbox

    def hand_over(self, path: Path) -> None:
        """Give a file or folder to the sandbox's user."""
        if _root():
            os.chown(path, self.user, self.user)

    def command(self, argv: Sequence[str], environment: dict[str, str]) -> list[str]:
        """Return the command that runs ``argv`` inside."""
        own = self.environment(environment)
        setenv = [word for name, value in own.items() for word in ("--setenv", name, value)]
        return [*_OUTER, *_privileges(), *self._mounts(), *setenv, "--", *_demotion(self.user), *_LIMITS, *argv]

    @staticmethod
    def environment(more: dict[str, str]) -> dict[str, str]:
        """Return all environment variables that are set inside."""
        return {"HOME": HOME, "USER": "student", "PATH": f"{sys.prefix}/bin:/usr/bin:/bin", **_QUIET, **more}

    def _mounts(self) -> list[str]:
        """What is seen inside: system libraries, Python, the library, an empty home and the sockets."""
        shown = dict.fromkeys((sys.base_prefix, sys.prefix, str(Path(distgen_lab.__file__).parent)))
        places = [*map(Path, shown), self.sockets]
        parents = dict.fromkeys(str(p) for path in places for p in reversed(path.parents) if len(p.parts) > 1)
        mounts = [
            *_SYSTEM,
            *(word for p in parents if p not in ("/usr", "/tmp") for word in ("--perms", "0755", "--dir", p)),
        ]
        mounts += [word for path in shown for word in ("--ro-bind", path, path)]
        home = [
            "--perms",
            "0755",
            "--dir",
            "/home",
            "--size",
            str(HOME_BYTES),
            "--tmpfs",
            HOME,
            "--chmod",
            "1777",
            HOME,
        ]
        sockets = str(self.sockets)
        return [
            *mounts,
            *home,
            "--bind",
            sockets,
            sockets,
            "--remount-ro",
            "/dev",
            "--remount-ro",
            "/",
            "--chdir",
            HOME,
        ]

    def remove(self) -> None:
        """Remove the folder of the sockets."""
        shutil.rmtree(self.sockets, ignore_errors=True)


_OUTER = [
    "bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
    "--die-with-parent", "--new-session", "--clearenv",
]  # fmt: skip
_SYSTEM = [
    "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
    "--symlink", "usr/lib64", "/lib64", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache",
    "--proc", "/proc", "--dev", "/dev", "--size", str(HOME_BYTES), "--tmpfs", "/tmp", "--chmod", "1777", "/tmp",
    "--size", str(SHARED_BYTES), "--tmpfs", "/dev/shm", "--chmod", "1777", "/dev/shm",
]  # fmt: skip
_LIMITS = ["prlimit", f"--as={ADDRESS_SPACE}", f"--nproc={PROCESSES}", f"--fsize={FILE_BYTES}", "--core=0", "--"]


def _root() -> bool:
    return os.geteuid() == 0


def _privileges() -> list[str]:
    """An ordinary user becomes nobody in a user namespace; root gives up its privileges inside."""
    return (
        [] if _root() else ["--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--uid", "1000", "--gid", "1000"]
    )


def _demotion(user: int) -> list[str]:
    """As root: take another user and drop every capability."""
    if not _root():
        return []
    ids = [f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    return ["setpriv", *ids, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]


def why_not() -> str:
    """Return "" if a sandbox can be had here and holds, else one sentence on what is missing or leaks."""
    if not sys.platform.startswith("linux"):
        return f"the sandbox needs Linux, this is {sys.platform}"
    missing = [tool for tool in ("bwrap", "setpriv", "prlimit") if shutil.which(tool) is None]
    if missing:
        return f"the sandbox needs {', '.join(missing)}; install bubblewrap and util-linux"
    sandbox = Sandbox.new()
    try:
        secret = sandbox.sockets.with_name(f"{sandbox.sockets.name}-secret")
        secret.write_text("secret")
        return _leak(sandbox, secret)
    finally:
        secret.unlink(missing_ok=True)
        sandbox.remove()


def _leak(sandbox: Sandbox, secret: Path) -> str:
    """Try to get out; return what succeeded, or how the attempt failed."""
    command = sandbox.command([sys.executable, "-I", "-c", _PROBE, str(secret), str(os.getpid())], {})
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the sandbox does not start: {error}"
    if done.returncode or not done.stdout.startswith("tried"):
        return f"the sandbox does not start: {(done.stderr or done.stdout).strip()[-300:]}"
    leaks = done.stdout.split()[1:]
    return f"the sandbox leaks: {', '.join(leaks)}" if leaks else ""


_PROBE = """
import os, socket, sys
secret, launcher = sys.argv[1:]
found = []
def tries(name, action):
    try:
        action()
        found.append(name)
    except (OSError, AssertionError, ValueError):
        pass
def forks():
    children = []
    try:
        for _ in range(600):
            child = os.fork()
            if not child:
                import time; time.sleep(20); os._exit(0)
            children.append(child)
    finally:
        for child in children:
            os.kill(child, 9); os.waitpid(child, 0)
def network():
    names = [name for _, name in socket.if_nameindex() if name != "lo"]
    assert names
tries("reads-outside-files", lambda: open(secret).read())
tries("writes-outside", lambda: open("/usr/written", "w"))
tries("writes-library", lambda: open(sys.prefix + "/written", "w"))
tries("sees-processes", lambda: open(f"/proc/{launcher}/cmdline").read() if int(launcher) > 100 else 1 / 0)
tries("forks-600", forks)
tries("network", network)
tries("connects", lambda: socket.create_connection(("1.1.1.1", 53), 2))
tries("becomes-root", lambda: os.setuid(0))
def remount():
    assert os.system("mount -o remount,rw /usr 2>/dev/null") == 0
tries("remounts", remount)
print("tried", *found)
"""
