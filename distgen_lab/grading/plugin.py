"""nbval plugin of the grader: runs merged notebooks and takes each check's one report.

Loaded as ``pytest -p distgen_lab.grading.lean -p nbval.plugin -p distgen_lab.grading.plugin``. The job comes as JSON on
standard input, ``{"records": descriptor, "token": word, "seconds": {cell id: limit}, "culprits": {notebook: [cell
id]}}``, and what happened goes, one JSON line per event, to the descriptor; a line without the token is not ours.
Prints, warnings and stored outputs count for nothing. nbval's comparison of outputs is replaced: here a check passes if
it made its one report. What the report is worth is decided by the process that started this one, and only there is the
reference: a kernel that finds its way into this process finds nothing to copy and no verdict to change.

A cell that ends the kernel costs no other cell: the next one finds a fresh kernel in which everything before it ran
again, except the cells that did not end in time or ended the kernel.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from queue import Empty
from subprocess import DEVNULL
from typing import Any

import nbval.plugin
import psutil
import pytest
import zmq
from jupyter_client import KernelManager
from nbval.kernel import NbvalKernelspecManager, RunningKernel

from distgen_lab.checks import MIME
from distgen_lab.grading import warm
from distgen_lab.grading.sandbox import HOME, LIMITS, MEMORY, Sandbox
from distgen_lab.plain import encode

__all__ = ["KEPT_BYTES", "WatchedKernel"]

KEPT_BYTES = 20_000_000
"""Bytes of reports and errors kept of one cell; text and pictures are dropped at once."""
MESSAGE_BYTES = 50_000_000
"""A kernel that sends a larger message loses it, and its connection."""
GRACE = 5.0
"""Seconds a cell has to end after it was interrupted at its limit."""
LOST = 2.0
"""Seconds to wait, once the cell has replied, for outputs that are still on their way."""
STARTS = 30
"""After so many kernels for one notebook nothing is run again: each cell stands alone."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_job: dict[str, Any] = {}
_servers: list[warm.Warm] = []
"""This worker's warm server, once there is one."""


class CellTimeout(Exception):
    """The cell did not end within its time limit."""


class KernelDied(Exception):
    """The kernel process ended while the cell ran."""


class WatchedKernel(RunningKernel):
    """A kernel with a home of its own whose outputs are read while it runs, and which is ended at the time limit."""

    limit, next_look, next_pulse, waiter, deaf = 20.0, 0.0, 0.0, 0, False

    def __init__(self, kernel_name: str, cwd: str | None = None, startup_timeout: float = 60) -> None:
        """Start the kernel in a fresh folder, in a sandbox if the job asks for it; ``cwd`` is ignored.

        Raises:
            RuntimeError: if it does not start; nothing is left of it.
        """
        self.buffer: list[dict] = []
        self.sandbox = Sandbox.new(Path.cwd()) if _job.get("sandbox") else None
        self.home = str(self.sandbox.sockets) if self.sandbox else tempfile.mkdtemp(prefix="home-", dir=os.getcwd())
        self.km = self._inside(kernel_name) if self.sandbox else self._outside(kernel_name)
        self.kc = self.km.client(context=self.km.context)  # with the limits set there
        self.kc.start_channels(hb=False)  # its thread cannot be ended once the kernel has broken the connection
        self.channels = [self.kc.shell_channel.socket, self.kc.iopub_channel.socket]
        try:
            self.wait_until_ready(startup_timeout)
        except BaseException:
            self.stop()
            raise

    def wait_until_ready(self, seconds: float = 60) -> None:
        """Ask until both channels have answered; jupyter_client's own way then waits 0.2 s for what may still come.

        Raises:
            RuntimeError: if they do not within ``seconds``, or the kernel ends.
        """
        deadline, ask_again, asked = time.monotonic() + seconds, 0.0, set()
        silent = {self.kc.shell_channel, self.kc.iopub_channel}
        while silent:
            if time.monotonic() > ask_again:
                ask_again = time.monotonic() + 0.5
                asked.add(self.kc.kernel_info())
            zmq.select(self.channels, [], [], 0.05)
            silent = {channel for channel in silent if not _heard(channel, asked)}
            if time.monotonic() > deadline or not self.is_alive():
                raise RuntimeError(f"the kernel ended, or did not answer within {seconds:g} s")

    def _outside(self, kernel_name: str) -> KernelManager:
        """Start a kernel without a sandbox."""
        manager = _manager(kernel_name=kernel_name, kernel_spec_manager=NbvalKernelspecManager())
        env = os.environ | {"HOME": self.home, "IPYTHONDIR": f"{self.home}/.ipython", "MPLBACKEND": "Agg"}
        manager.start_kernel(cwd=self.home, env=env, stdout=DEVNULL, stderr=DEVNULL)
        return manager

    def _inside(self, kernel_name: str) -> KernelManager:
        """Start a kernel in the sandbox, reached through its folder of sockets."""
        place = {"ip": f"{self.home}/k", "connection_file": f"{self.home}/k.json"}
        manager = _manager(kernel_name=kernel_name, transport="ipc", **place)
        kept = {name: word for name, word in os.environ.items() if name.startswith(("DISTGEN_", "LANG", "PYTHONUTF8"))}
        quiet = ["--IPKernelApp.capture_fd_output=False", "--HistoryManager.hist_file=:memory:"]
        inside, argv = kept | {"MPLBACKEND": "Agg"}, ["-f", place["connection_file"], *quiet]
        server = _warm_server()
        cold = [sys.executable, "-m", "ipykernel_launcher", *argv]
        manager.kernel_spec.argv = self.sandbox.command(
            warm.doorkeeper(self.sandbox.sockets) if server else cold, inside
        )
        manager.kernel_spec.interrupt_mode = "message"  # a signal would end the sandbox
        manager.write_connection_file()
        self.sandbox.hand_over(Path(manager.connection_file))
        if server:
            server.open_door(self.sandbox.sockets, self.sandbox.user)
        manager.start_kernel(cwd="/", env={"PATH": os.environ["PATH"]}, stdout=DEVNULL, stderr=DEVNULL)
        if server:
            place = {"user": self.sandbox.user, "home": HOME, "limits": LIMITS}
            place["environment"] = self.sandbox.environment(inside)
            self.waiter = server.start(self.sandbox.sockets, manager.provisioner.pid, argv, **place)
        return manager

    def replay(self, source: str) -> None:
        """Run a cell again; what it shows counts for nothing.

        Raises:
            KernelDied, CellTimeout: as in :meth:`await_reply`.
        """
        self.await_reply(self.execute_cell_input(source, allow_stdin=False))

    def await_reply(self, msg_id: str, timeout: float | None = None) -> None:
        """Wait for the reply while reading outputs, so that no flood can fill the channel.

        Raises:
            KernelDied: as soon as the process is gone, or if the cell asked it to go (``exit()``).
            CellTimeout: at the limit; the cell is interrupted first, the kernel ended if that does not help.
        """
        self.buffer, self.kept, self.running, self.leaving = [], 0, msg_id, False
        if self._reply_within(msg_id, self.limit):
            if self.leaving:
                self.stop()
                raise KernelDied("exit() ended the kernel")
            return
        with contextlib.suppress(zmq.Again):
            self.km.interrupt_kernel()
        if not self._reply_within(msg_id, GRACE):
            self.stop()
        raise CellTimeout(f"no end within {self.limit:g} s")

    def _reply_within(self, msg_id: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._pulse()
            zmq.select(self.channels, [], [], 0.05)
            self._drain()
            if self._replied(msg_id):
                return True
            if not self.is_alive() or self._too_large():
                self.stop()
                raise KernelDied("the kernel ended")
        return False

    def _pulse(self) -> None:
        """Say once a second that this process is well: a cell may be silent for its whole time."""
        if time.monotonic() >= self.next_pulse:
            self.next_pulse = time.monotonic() + 1.0
            _record({"alive": True})

    def _too_large(self) -> bool:
        """Whether the sandbox holds more memory than it may; looked at twice a second."""
        if self.sandbox is None or time.monotonic() < self.next_look:
            return False
        self.next_look = time.monotonic() + 0.5
        return _held(self._family()) > MEMORY

    def _replied(self, msg_id: str) -> bool:
        with contextlib.suppress(Empty):
            while True:
                message = self.kc.shell_channel.get_msg(timeout=0)
                if message["parent_header"].get("msg_id") == msg_id:
                    self.leaving = _asks_to_leave(message["content"].get("payload"))
                    return True
        return False

    def _drain(self) -> None:
        """Move outputs to the buffer as they come; past ``KEPT_BYTES`` what the verdict needs."""
        with contextlib.suppress(Empty):
            for _ in repeat(None, 2000):
                self._keep(self.kc.iopub_channel.get_msg(timeout=0))

    def _keep(self, message: dict) -> None:
        """Keep what decides the verdict: the end of the cell, and reports and errors within ``KEPT_BYTES``."""
        if message["msg_type"] == "status":
            self.buffer.append(message)
        elif message["msg_type"] == "error" or MIME in message["content"].get("data", {}):
            self.kept += len(str(message["content"]))
            if self.kept <= KEPT_BYTES:
                self.buffer.append(message)

    def get_message(self, stream: str, timeout: float | None = None) -> dict:
        """Serve buffered outputs first. If the end-of-cell message was lost in a flood, the reply stands for it.

        A kernel that sent too large a message is never heard again: it is ``deaf``, and the next cell gets another.
        """
        if stream != "iopub":
            return super().get_message(stream, timeout)
        if self.buffer:
            return self.buffer.pop(0)
        try:
            return super().get_message(stream, min(timeout or LOST, LOST))
        except Empty:
            self.deaf = not self._hears()
            idle = {"msg_type": "status", "content": {"execution_state": "idle"}}
            return idle | {"parent_header": {"msg_id": self.running}}

    def _hears(self) -> bool:
        with contextlib.suppress(RuntimeError):
            self.wait_until_ready(LOST)
            return True
        return False

    def stop(self) -> None:
        """End the kernel with all its children, and remove its home."""
        if not hasattr(self, "km"):
            return
        self.km.kernel_spec.interrupt_mode = "signal"  # a message may find no way any more
        for process in self._family():
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(psutil.Error):  # else super().stop() looks for its end ten times a second
            outermost = psutil.Process(self.km.provisioner.pid)
            outermost.kill()
            outermost.wait(GRACE)
        super().stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def _family(self) -> list[psutil.Process]:
        """All processes of the kernel: below the sandbox, and below the process that waits for a warm one."""
        return [process for pid in (self.km.provisioner.pid, self.waiter) if pid for process in _children(pid)]


def _heard(channel: Any, asked: set[str]) -> bool:
    """Whether an answer to one of these requests has come; what else has come is dropped."""
    with contextlib.suppress(Empty):
        while channel.get_msg(timeout=0)["parent_header"].get("msg_id") not in asked:
            pass
        return True
    return False


def _manager(**facts: Any) -> KernelManager:
    """A kernel manager whose sockets take no message larger than ``MESSAGE_BYTES`` and never wait long to send one."""
    manager = KernelManager(**facts)
    manager.context.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES)
    manager.context.setsockopt(zmq.SNDTIMEO, 2000)
    manager.context.setsockopt(zmq.RECONNECT_IVL, 5)  # ms until it tries again to reach a kernel that is starting
    return manager


def _asks_to_leave(payload: Any) -> bool:
    """Whether a reply says that the cell called ``exit()`` or ``quit()``: the kernel ends a moment later."""
    items = payload if isinstance(payload, list) else []
    return any(isinstance(one, dict) and one.get("source") == "ask_exit" for one in items)


def _warm_server() -> warm.Warm | None:
    """The server that kernels of this worker are forked from; None where that cannot be done."""
    if not _servers and warm.usable():
        _servers.append(warm.Warm())
    return _servers[0] if _servers else None


def _held(family: list[psutil.Process]) -> int:
    """Bytes that the kernel and all it started hold together, what they share counted once."""
    if _sum(lambda process: process.memory_info().rss, family) < MEMORY:
        return 0  # cannot be too much; the exact figure is slow to get
    return _sum(lambda process: process.memory_full_info().pss, family)


def _sum(measure: Callable[[psutil.Process], int], family: list[psutil.Process]) -> int:
    total = 0
    for process in family:
        with contextlib.suppress(psutil.Error):
            total += measure(process)
    return total


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def reports(outputs: list[dict]) -> list[dict]:
    """Return the reports among a cell's outputs."""
    data = [output["data"] for output in outputs if output["output_type"] == "display_data"]
    found = [bundle[MIME] for bundle in data if MIME in bundle]
    return [report if isinstance(report, dict) else {} for report in found]


def collect(check_id: str, outputs: list[dict]) -> dict[str, Any]:
    """Return the state of one check cell (``reported``, ``no report``, ``several reports``) and what it reported."""
    found = reports(outputs)
    if len(found) != 1 or found[0].get("id") != check_id or "value" not in found[0]:
        return {"state": "several reports" if len(found) > 1 else "no report"}
    try:
        return {"state": "reported", "value": encode(found[0]["value"])}
    except (TypeError, ValueError) as error:  # not made by checks.report
        return {"state": "no report", "error": str(error)[:300]}


def _compare(item: Any, outputs: list[dict], stored: list[dict], skip_compare: Any = None) -> bool:
    """Stand in for nbval's comparison of outputs."""
    item.verdict = collect(item.cell.id, outputs)
    item.comparison_traceback = [item.verdict["state"]]
    return item.verdict["state"] == "reported"


def pytest_configure(config: pytest.Config) -> None:
    """Take the job from standard input and put our kernel and comparison into nbval."""
    _leave_with_the_grader()
    _job.update(json.load(sys.stdin))
    os.set_inheritable(_job["records"], False)
    nbval.plugin.RunningKernel = WatchedKernel
    nbval.plugin.IPyNbFile.setup = lambda notebook: None  # each cell sees to its kernel
    nbval.plugin.IPyNbCell.compare_outputs = _compare


def _leave_with_the_grader() -> None:
    """End when the grader is killed; keep processes of the same user from this one's memory and descriptors (Linux)."""
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Decide by the master's metadata alone which cells are compared; remove the notebooks from the disk."""
    for item in items:
        check = item.cell.metadata.get("distgen", {}).get("role") in ("visible", "hidden")
        item.options.clear()
        item.options.update(check=check, check_exception=check)
        item.cell.execution_count, item.verdict, item.parent.ran = 1, None, []
        item.parent.starts = 0
    for path in {item.path for item in items}:
        Path(path).unlink()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    """See to the kernel, set the cell's time limit, and record what came of it."""
    if item.cell.id in _job["culprits"].get(item.path.stem, ()):
        pytest.skip("it ended two runs before")
    _prepare(item.parent)
    _record({"begin": item.cell.id, "notebook": item.path.stem})
    item.parent.kernel.limit = _limit(item)
    start, error = time.monotonic(), None
    try:
        return (yield)
    except BaseException as caught:
        error = caught
        raise
    finally:
        if not isinstance(error, CellTimeout | KernelDied) and not item.parent.kernel.deaf:
            item.parent.ran.append(item)
        _record(_outcome(item, error) | {"notebook": item.path.stem, "seconds": time.monotonic() - start})


def _limit(item: Any) -> float:
    return _job["seconds"].get(item.cell.id, WatchedKernel.limit)


def _prepare(notebook: Any) -> None:
    """Give the notebook a kernel if it has none, in which what ran before has run again."""
    while notebook.kernel is None or notebook.kernel.deaf or not notebook.kernel.is_alive():
        if notebook.kernel is not None:
            notebook.kernel.stop()
        notebook.starts += 1
        if notebook.starts > STARTS:
            notebook.ran.clear()
        notebook.kernel = _start(notebook.path.stem)
        _replay(notebook)


def _start(name: str) -> WatchedKernel:
    """Start a kernel; if that fails it is the machine's fault, not the notebook's, and another process tries again."""
    _record({"start": name, "notebook": name})
    try:
        return nbval.plugin.RunningKernel("python3")
    except Exception as error:
        _record({"unable": f"{type(error).__name__}: {error}", "notebook": name})
        os._exit(1)


def _replay(notebook: Any) -> None:
    """Run again what ran before; a cell that now fails to end is left out from here on, and the kernel ended."""
    for item in list(notebook.ran):
        notebook.kernel.limit = _limit(item)
        try:
            notebook.kernel.replay(item.cell.source)
        except Exception:
            notebook.ran.remove(item)
            notebook.kernel.stop()
            return


def _outcome(item: Any, error: BaseException | None) -> dict[str, Any]:
    """What is known of a cell that has run: its id, its verdict if it is a check, and its error."""
    outcome = {"cell": item.cell.id} | (item.verdict or {})
    raised = [out for out in item.test_outputs or [] if out["output_type"] == "error"]
    if isinstance(error, CellTimeout | KernelDied):
        outcome["state"] = "timeout" if isinstance(error, CellTimeout) else "died"
    elif raised:
        outcome["error"] = f"{raised[-1]['ename']}: {raised[-1]['evalue']}"[:300]
    elif error is not None and item.verdict is None:
        outcome["state"] = "not run"
    return outcome


def pytest_sessionfinish() -> None:
    """Say that the run is complete."""
    while _servers:
        _servers.pop().close()
    _record({"end": True})


def _record(event: dict[str, Any]) -> None:
    os.write(_job["records"], (json.dumps(event | {"token": _job["token"]}) + "\n").encode())
