"""Run many notebooks under nbval with the grader's plugin, in a few worker processes that are watched from outside."""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
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

STARTUP = 90.0
"""Seconds beyond the cell's limit after which a silent worker is given up: kernel start, imports, a slow machine."""


class WorkerError(RuntimeError):
    """A worker process ran nothing at all: the installation is at fault, not a notebook."""


@dataclass
class CellResult:
    """What came of one cell: its state (``match``, ``differs``, ``timeout``, ...), reported value, and error text."""

    state: str | None = None
    value: Any = None
    detail: str | None = None
    error: str | None = None
    seconds: float = 0.0


@dataclass
class Job:
    """Notebooks to run (by name), the questions in them, and what their checks are compared with."""

    notebooks: dict[str, NotebookNode]
    questions: list[Question]
    reference: dict[str, Any] = field(default_factory=dict)
    seed: str = "0"
    workers: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)

    def settings(self, records: int) -> str:
        """Return the plugin's job as JSON."""
        cells = [(q, cell) for q in self.questions for cell in (q.answer, q.visible, q.hidden)]
        seconds = {cell: q.seconds for q, cell in cells}
        rel = {cell: q.rel for q, cell in cells}
        return json.dumps({"records": records, "reference": self.reference, "rel": rel, "seconds": seconds})


Results = dict[str, dict[str, CellResult]]


def default_workers() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(job: Job, done: Callable[[str], None] = lambda name: None) -> Results:
    """Run the job's notebooks; return the result of each cell by notebook name and cell id.

    ``done`` is called with a notebook's name when nothing more will be heard of it. A notebook that brings its worker
    down, or keeps it silent for too long, keeps what was recorded before; the others go on in a fresh worker.

    Raises:
        WorkerError: if nbval does not start.
    """
    names = list(job.notebooks)
    parts = [names[i :: job.workers] for i in range(job.workers) if names[i :: job.workers]]
    results: Results = {name: {} for name in names}
    with ThreadPoolExecutor(max(1, len(parts))) as pool:
        running = [pool.submit(_run_part, job, part, results, done) for part in parts]
        try:
            for part in running:
                part.result()
        except BaseException:  # an interrupt, or a worker that did not start: the others end too
            job.stop.set()
            raise
    return results


def _run_part(job: Job, names: list[str], results: Results, done: Callable[[str], None]) -> None:
    """Run notebooks one after the other; start again behind one that ended the worker."""
    while names and not job.stop.is_set():
        current, finished = names[0], False
        for event in _worker(job, names):
            finished = finished or "end" in event
            if event.get("notebook", current) != current:
                done(current)
                current = event["notebook"]
            _note(event, results)
        done(current)
        names = [] if finished else names[names.index(current) + 1 :]


def _note(event: dict[str, Any], results: Results) -> None:
    """Keep one recorded event; a cell that began and never ended stays ``incomplete``."""
    if "begin" in event:
        results[event["notebook"]][event["begin"]] = CellResult("incomplete")
    elif "cell" in event:
        facts = {key: event[key] for key in ("state", "value", "detail", "error", "seconds") if key in event}
        results[event["notebook"]][event["cell"]] = CellResult(**facts)


def _worker(job: Job, names: list[str]) -> Iterator[dict[str, Any]]:
    """Start one pytest process on the notebooks and yield its events until it ends or falls silent."""
    with tempfile.TemporaryDirectory(prefix="distgen-grade-") as folder:
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
                process.stdin.write(job.settings(writer))
                process.stdin.close()
            patience = STARTUP + max((q.seconds for q in job.questions), default=0.0)
            events = _events(reader, patience, job.stop)
            first = next(events, None)
            if first is None and not job.stop.is_set():
                raise WorkerError(f"nbval did not start: {Path(folder, 'log').read_text('utf-8', 'replace')[-500:]}")
            yield from events if first is None else chain([first], events)
        finally:
            os.close(reader)
            _end(process, 0.1 if job.stop.is_set() else 5.0)


_COMMAND = [
    *(sys.executable, "-P", "-m", "pytest", "-p", "nbval.plugin", "-p", "distgen_lab.grading.plugin"),
    *("-p", "no:cacheprovider", "-c", os.devnull, "--noconftest", "--capture=no", "--tb=no"),  # no source in the log
    *("--nbval-lax", "--nbval-kernel-name=python3"),
]


def _environment(job: Job, folder: str) -> dict[str, str]:
    """A small environment: no tokens, no plugins, nothing of the caller's home."""
    kept = {k: os.environ[k] for k in ("PATH", "SYSTEMROOT", "TMPDIR", "LD_LIBRARY_PATH") if k in os.environ}
    own = {"HOME": folder, "LANG": "C.UTF-8", "PYTHONUTF8": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return kept | own | {SEED_VARIABLE: job.seed} | job.environment


def _events(reader: int, patience: float, stop: threading.Event) -> Iterator[dict[str, Any]]:
    """Yield the JSON lines of a pipe until it closes, nothing comes for ``patience`` seconds, or ``stop`` is set."""
    text, deadline = b"", time.monotonic() + patience
    while time.monotonic() < deadline and not stop.is_set():
        if not select.select([reader], [], [], 0.2)[0]:
            continue
        chunk = os.read(reader, 65536)
        if not chunk:
            return
        deadline = time.monotonic() + patience
        *lines, text = (text + chunk).split(b"\n")
        yield from map(json.loads, lines)


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
