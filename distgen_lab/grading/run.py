"""Run many notebooks under nbval with the grader's plugin, in a few worker processes that are watched from outside."""

import contextlib
import json
import os
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import nbformat
import psutil
from nbformat import NotebookNode

from distgen_lab.checks import SEED_VARIABLE
from distgen_lab.grading.master import Question

__all__ = ["CellResult", "Job", "WorkerError", "default_workers", "run"]

STARTUP = 180.0
"""Seconds until a worker's first event: start of the process, imports, a slow machine."""
KERNEL = 120.0
"""Seconds a kernel has to start; the worker gives it 60."""
SILENCE = 30.0
"""Seconds after which a silent worker is given up; a healthy one is heard every second."""
TRIES = 6
"""Workers that one notebook may lose before it is left as it is."""


class WorkerError(RuntimeError):
    """A worker process ran nothing at all: the installation is at fault, not a notebook."""


@dataclass
class CellResult:
    """What came of one cell: its state (``reported``, ``timeout``, ...), reported value, and error text.

    For a check that was judged the state is ``match`` or ``differs``, and ``detail`` says what differs.
    """

    state: str | None = None
    value: Any = None
    detail: str | None = None
    error: str | None = None
    seconds: float = 0.0


@dataclass
class Job:
    """Notebooks to run (by name), and the questions in them."""

    notebooks: dict[str, NotebookNode]
    questions: list[Question]
    seed: str = "0"
    workers: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    sandbox: bool = False
    stop: threading.Event = field(default_factory=threading.Event)
    token: str = field(default_factory=lambda: secrets.token_hex(16))

    def settings(self, records: int, culprits: dict[str, list[str]]) -> str:
        """Return the plugin's job as JSON; ``culprits`` are cells that are left out."""
        facts = {"records": records, "token": self.token, "seconds": self.seconds(), "sandbox": self.sandbox}
        return json.dumps(facts | {"culprits": culprits})

    def seconds(self) -> dict[str, float]:
        """Return the time limit of each cell of a question."""
        return {cell: q.seconds for q in self.questions for cell in q.cells}


Results = dict[str, dict[str, CellResult]]


def default_workers() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Done = Callable[[str, dict[str, CellResult]], None]


def run(job: Job, done: Done = lambda name, cells: None) -> Results:
    """Run the job's notebooks; return the result of each cell by notebook name and cell id.

    ``done`` is called with a notebook's name and results when nothing more will be heard of it. A notebook in which a
    worker is lost is run again in a fresh one, for the fault may be the machine's; if a cell loses a second worker it
    is left out and stays ``incomplete``. The others go on in the fresh worker.

    Raises:
        WorkerError: if nbval or no kernel starts.
    """
    _sweep()
    names = list(job.notebooks)
    parts = [names[i :: job.workers] for i in range(job.workers) if names[i :: job.workers]]
    results: Results = {name: {} for name in names}
    with ThreadPoolExecutor(max(1, len(parts))) as pool:
        running = [pool.submit(_Part(job, part, results, done).run) for part in parts]
        try:
            for part in running:
                part.result()
        except BaseException:  # an interrupt, or a worker that did not start: the others end too
            job.stop.set()
            raise
    return results


@dataclass
class _Part:
    """Notebooks that are run one after the other, by one worker or, if it is lost, by the next one."""

    job: Job
    names: list[str]
    results: Results
    done: Done
    current: str = ""
    losses: Counter[str] = field(default_factory=Counter)
    culprits: dict[str, list[str]] = field(default_factory=dict)

    def run(self) -> None:
        while self.names and not self.job.stop.is_set():
            self.current = self.names[0]
            finished, unable = False, ""
            for event in _worker(self.job, self.names, self.culprits):
                finished = finished or "end" in event
                unable = event.get("unable", unable)
                self._hear(event)
            if self.job.stop.is_set():
                return
            if finished:
                self._finish(self.current)
            else:
                self._lost(unable)

    def _hear(self, event: dict[str, Any]) -> None:
        """Note an event; when another notebook begins the one before is done."""
        name = event.get("notebook")
        if name in self.names and name != self.current:
            self._finish(self.current)
            self.current = name
        _note(event, self.results)

    def _finish(self, name: str) -> None:
        self.names = self.names[self.names.index(name) + 1 :]
        self.done(name, self.results[name])

    def _lost(self, unable: str) -> None:
        """Run the notebook in which the worker was lost again, the second time without the cell it was lost in."""
        name, cells = self.current, self.results[self.current]
        self.losses[name] += 1
        if len(cells) == sum(cell.cell_type == "code" for cell in self.job.notebooks[name].cells):
            self._finish(name)  # all had run: the worker was lost when it put the kernel away
            return
        if unable and self.losses[name] >= TRIES // 2:
            raise WorkerError(f"no kernel starts: {unable}")
        if self.losses[name] >= TRIES:
            self._finish(name)
            return
        last = [cell for cell, result in cells.items() if result.state == "incomplete"]
        if self.losses[name] > 1:
            self.culprits.setdefault(name, []).extend(last)
        self.results[name] = {cell: CellResult("incomplete") for cell in self.culprits.get(name, ())}


def _note(event: dict[str, Any], results: Results) -> None:
    """Keep one recorded event; a cell that began and never ended stays ``incomplete``, what is no event is dropped.

    A cell that reports its end twice has been tampered with: neither counts.
    """
    cells = results.get(event.get("notebook", ""))
    if cells is None:
        return
    if "begin" in event:
        cells.setdefault(str(event["begin"]), CellResult("incomplete"))
    elif "cell" in event:
        name = str(event["cell"])
        facts = {key: event[key] for key in ("state", "value", "error", "seconds") if key in event}
        again = name in cells and cells[name].state != "incomplete"
        cells[name] = CellResult("recorded twice") if again else CellResult(**facts)


def _worker(job: Job, names: list[str], culprits: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    """Start one pytest process on the notebooks and yield its events until it ends or falls silent."""
    with tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-", ignore_cleanup_errors=True) as folder:
        for name in names:
            nbformat.write(job.notebooks[name], Path(folder) / f"{name}.ipynb")
        reader, writer = os.pipe()
        with open(Path(folder, "log"), "wb") as log:
            process = subprocess.Popen(
                [*_COMMAND, "--rootdir", folder, *(f"{folder}/{name}.ipynb" for name in names)],
                **{"stdin": subprocess.PIPE, "stdout": log, "stderr": log, "text": True},
                **{"cwd": folder, "env": _environment(job, folder), "pass_fds": [writer]},
            )
        os.close(writer)
        try:
            with contextlib.suppress(BrokenPipeError):  # it ended at once: no events will come
                process.stdin.write(job.settings(writer, culprits))
                process.stdin.close()
            events = _events(reader, job)
            first = next(events, None)
            if first is None and not job.stop.is_set():
                raise WorkerError(f"nbval did not start: {Path(folder, 'log').read_text('utf-8', 'replace')[-500:]}")
            yield from events if first is None else chain([first], events)
        finally:
            os.close(reader)
            _end(process, 0.1 if job.stop.is_set() else 5.0)


_FOLDER = "distgen-grade-"


def _sweep() -> None:
    """Remove what graders left behind that were killed: their folders are named after their process."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*-*"):
        number = folder.name.removeprefix(_FOLDER).partition("-")[0]
        if number.isdigit() and not psutil.pid_exists(int(number)):
            shutil.rmtree(folder, ignore_errors=True)


_COMMAND = [
    *(sys.executable, "-P", "-m", "pytest", "-p", "distgen_lab.grading.lean"),
    *("-p", "nbval.plugin", "-p", "distgen_lab.grading.plugin"),
    *("-p", "no:cacheprovider", "-c", os.devnull, "--noconftest", "--capture=no", "--tb=no"),  # no source in the log
    *("--nbval-lax", "--nbval-kernel-name=python3"),
]


def _environment(job: Job, folder: str) -> dict[str, str]:
    """A small environment: no tokens, no plugins, nothing of the caller's home."""
    kept = {k: os.environ[k] for k in ("PATH", "SYSTEMROOT", "TMPDIR", "LD_LIBRARY_PATH") if k in os.environ}
    own = {"HOME": folder, "LANG": "C.UTF-8", "PYTHONUTF8": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return kept | own | {SEED_VARIABLE: job.seed} | job.environment


def _events(reader: int, job: Job) -> Iterator[dict[str, Any]]:
    """Yield the worker's events until the pipe closes, the job is stopped, or the worker is silent for too long."""
    text, deadline = b"", time.monotonic() + STARTUP
    while time.monotonic() < deadline and not job.stop.is_set():
        if not select.select([reader], [], [], 0.2)[0]:
            continue
        chunk = os.read(reader, 65536)
        if not chunk:
            return
        *lines, text = (text + chunk).split(b"\n")
        for event in filter(None, (_event(line, job.token) for line in lines)):
            deadline = time.monotonic() + (KERNEL if "start" in event else SILENCE)
            yield event


def _event(line: bytes, token: str) -> dict[str, Any] | None:
    """One event of the worker; None for a line that is none, or has come from elsewhere."""
    with contextlib.suppress(ValueError, RecursionError):
        event = json.loads(line)
        return event if isinstance(event, dict) and event.get("token") == token else None


def _end(process: subprocess.Popen, patience: float) -> None:
    """End the worker if it does not end by itself, with its kernels and what they started."""
    try:
        process.wait(timeout=patience)
        return
    except subprocess.TimeoutExpired:
        family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    for member in family:
        with contextlib.suppress(psutil.Error):
            member.kill()
