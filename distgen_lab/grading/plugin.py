"""nbval plugin of the grader: runs merged notebooks and takes each check's one report.

Loaded as ``pytest -p nbval.plugin -p distgen_lab.grading.plugin``. The job comes as JSON on standard input,
``{"records": descriptor, "token": word, "seconds": {cell id: limit}}``, and what happened goes, one JSON line per
event, to the descriptor; a line without the token is not ours. Prints, warnings and stored outputs count for nothing.
nbval's comparison of outputs is replaced: here a check passes if it made its one report. What the report is worth is
decided by the process that started this one, and only there is the reference: a kernel that finds its way into this
process finds nothing to copy and no verdict to change.
"""

import contextlib
import ctypes
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from queue import Empty
from subprocess import DEVNULL
from typing import Any

import nbval.plugin
import psutil
import pytest
from jupyter_client import KernelManager
from nbval.kernel import RunningKernel, start_new_kernel

from distgen_lab.checks import MIME
from distgen_lab.grading.sandbox import MEMORY, Sandbox

__all__ = ["KEPT_BYTES", "WatchedKernel"]

KEPT_BYTES = 4_000_000
"""Bytes of output kept of one cell; text and pictures beyond it are dropped, reports and errors are kept."""
GRACE = 5.0
"""Seconds a cell has to end after it was interrupted at its limit."""
LOST = 2.0
"""Seconds to wait, once the cell has replied, for outputs that are still on their way."""

_PR_SET_DUMPABLE = 4
_job: dict[str, Any] = {}


class CellTimeout(Exception):
    """The cell did not end within its time limit."""


class KernelDied(Exception):
    """The kernel process ended while the cell ran."""


class WatchedKernel(RunningKernel):
    """A kernel with a home of its own whose outputs are read while it runs, and which is ended at the time limit."""

    limit, next_look = 20.0, 0.0

    def __init__(self, kernel_name: str, cwd: str | None = None, startup_timeout: float = 60) -> None:
        """Start the kernel in a fresh folder, in a sandbox if the job asks for it; ``cwd`` is ignored."""
        self.buffer: list[dict] = []
        self.sandbox = Sandbox.new(Path.cwd()) if _job.get("sandbox") else None
        self.home = str(self.sandbox.sockets) if self.sandbox else tempfile.mkdtemp(prefix="home-", dir=os.getcwd())
        if self.sandbox:
            self.km, self.kc = _start_inside(self.sandbox, kernel_name, startup_timeout)
        else:
            env = os.environ | {"HOME": self.home, "IPYTHONDIR": f"{self.home}/.ipython", "MPLBACKEND": "Agg"}
            quiet = {"stdout": DEVNULL, "stderr": DEVNULL}
            self.km, self.kc = start_new_kernel(startup_timeout, kernel_name, cwd=self.home, env=env, **quiet)
        self._ensure_iopub_up()

    def await_reply(self, msg_id: str, timeout: float | None = None) -> None:
        """Wait for the reply while reading outputs, so that no flood can fill the channel.

        Raises:
            KernelDied: as soon as the process is gone.
            CellTimeout: at the limit; the cell is interrupted first, the kernel ended if that does not help.
        """
        self.buffer, self.kept, self.running = [], 0, msg_id
        if self._reply_within(msg_id, self.limit):
            return
        self.km.interrupt_kernel()
        if not self._reply_within(msg_id, GRACE):
            self.stop()
        raise CellTimeout(f"no end within {self.limit:g} s")

    def _reply_within(self, msg_id: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._drain()
            if self._replied(msg_id):
                return True
            if not self.is_alive() or self._too_large():
                self.stop()
                raise KernelDied("the kernel ended")
        return False

    def _too_large(self) -> bool:
        """Whether the sandbox holds more memory than it may; looked at twice a second."""
        if self.sandbox is None or time.monotonic() < self.next_look:
            return False
        self.next_look = time.monotonic() + 0.5
        return _held(self.km) > MEMORY

    def _replied(self, msg_id: str) -> bool:
        try:
            return super().get_message("shell", timeout=0)["parent_header"].get("msg_id") == msg_id
        except Empty:
            return False

    def _drain(self) -> None:
        """Move outputs to the buffer as they come, for 50 ms at least; past ``KEPT_BYTES`` what the verdict needs."""
        with contextlib.suppress(Empty):
            for wait in chain([0.05], repeat(0, 2000)):
                self._keep(super().get_message("iopub", timeout=wait))

    def _keep(self, message: dict) -> None:
        size = len(str(message["content"]))
        if self.kept + size <= KEPT_BYTES or _needed(message):
            self.buffer.append(message)
            self.kept += size

    def get_message(self, stream: str, timeout: float | None = None) -> dict:
        """Serve buffered outputs first. If the end-of-cell message was lost in a flood, the reply stands for it."""
        if stream != "iopub":
            return super().get_message(stream, timeout)
        if self.buffer:
            return self.buffer.pop(0)
        try:
            return super().get_message(stream, min(timeout or LOST, LOST))
        except Empty:
            idle = {"msg_type": "status", "content": {"execution_state": "idle"}}
            return idle | {"parent_header": {"msg_id": self.running}}

    def stop(self) -> None:
        """End the kernel with all its children, and remove its home."""
        for process in _family(self.km):
            process.kill()
        super().stop()
        shutil.rmtree(self.home, ignore_errors=True)


def _start_inside(sandbox: Sandbox, kernel_name: str, patience: float) -> tuple[Any, Any]:
    """Start a kernel in the sandbox, reached through its folder of sockets; return its manager and client."""
    place = {"ip": str(sandbox.sockets / "k"), "connection_file": str(sandbox.sockets / "k.json")}
    manager = KernelManager(kernel_name=kernel_name, transport="ipc", **place)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    inside = {name: value for name, value in os.environ.items() if name.startswith(("DISTGEN_", "LANG", "PYTHONUTF8"))}
    quiet = ["--IPKernelApp.capture_fd_output=False", "--HistoryManager.hist_file=:memory:"]
    manager.kernel_spec.argv = sandbox.command([*argv, *quiet], inside | {"MPLBACKEND": "Agg"})
    manager.kernel_spec.interrupt_mode = "message"  # a signal would end the sandbox
    manager.write_connection_file()
    sandbox.hand_over(Path(manager.connection_file))
    manager.start_kernel(cwd="/", env={"PATH": os.environ["PATH"]}, stdout=DEVNULL, stderr=DEVNULL)
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=patience)
    return manager, client


def _held(manager: Any) -> int:
    """Bytes that the kernel and all it started hold together, what they share counted once."""
    family = _family(manager)
    if _sum(lambda process: process.memory_info().rss, family) < MEMORY:
        return 0  # cannot be too much; the exact figure is slow to get
    return _sum(lambda process: process.memory_full_info().pss, family)


def _sum(measure: Callable[[psutil.Process], int], family: list[psutil.Process]) -> int:
    total = 0
    for process in family:
        with contextlib.suppress(psutil.Error):
            total += measure(process)
    return total


def _needed(message: dict) -> bool:
    """A message that decides the verdict: a report, an error, or the end of the cell."""
    return message["msg_type"] in ("status", "error") or MIME in message["content"].get("data", {})


def _family(manager: Any) -> list[psutil.Process]:
    try:
        return psutil.Process(manager.provisioner.pid).children(recursive=True)
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
    return {"state": "reported", "value": found[0]["value"]}


def _compare(item: Any, outputs: list[dict], stored: list[dict], skip_compare: Any = None) -> bool:
    """Stand in for nbval's comparison of outputs."""
    item.verdict = collect(item.cell.id, outputs)
    item.comparison_traceback = [item.verdict["state"]]
    return item.verdict["state"] == "reported"


def pytest_configure(config: pytest.Config) -> None:
    """Take the job from standard input and put our kernel and comparison into nbval."""
    _close_to_neighbours()
    _job.update(json.load(sys.stdin))
    nbval.plugin.RunningKernel = WatchedKernel
    nbval.plugin.IPyNbCell.compare_outputs = _compare


def _close_to_neighbours() -> None:
    """Keep processes of the same user from reading this one's memory and descriptors (Linux; root may all the same)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Decide by the master's metadata alone which cells are compared; remove the notebooks from the disk."""
    for item in items:
        check = item.cell.metadata.get("distgen", {}).get("role") in ("visible", "hidden")
        item.options.clear()
        item.options.update(check=check, check_exception=check)
        item.cell.execution_count, item.verdict = 1, None
    for path in {item.path for item in items}:
        Path(path).unlink()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Iterator[None]:
    """Tell which cell begins, so that a run that never ends has a name."""
    _record({"begin": item.cell.id, "notebook": item.path.stem})
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    """Set the cell's time limit and record what came of it."""
    item.parent.kernel.limit = _job["seconds"].get(item.cell.id, WatchedKernel.limit)
    start, error = time.monotonic(), None
    try:
        return (yield)
    except BaseException as caught:
        error = caught
        raise
    finally:
        _record(_outcome(item, error) | {"notebook": item.path.stem, "seconds": time.monotonic() - start})


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
    _record({"end": True})


def _record(event: dict[str, Any]) -> None:
    os.write(_job["records"], (json.dumps(event | {"token": _job["token"]}) + "\n").encode())
