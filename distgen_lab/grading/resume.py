"""Results of runs, kept as they come: a batch that was interrupted goes on where it stopped.

A run is kept under the hash of all it depends on: what it runs (the student's answers in the master, the seed), its
time limits, whether in a sandbox, and the library and its tools. So what is found is right; nothing is thrown away.
"""

import hashlib
import json
from dataclasses import asdict, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from platform import python_version

from nbformat import NotebookNode

from distgen_lab.grading.gradebook import write_whole
from distgen_lab.grading.run import CellResult, Done, Job, Results, run

__all__ = ["environment", "load", "run_kept", "run_key", "save"]

_TOOLS = ("nbval", "pytest", "ipykernel", "ipython", "numpy", "torch", "mpi4py")


def run_kept(job: Job, keep: Path | None, done: Done = lambda name, cells: None) -> Results:
    """Run the job's notebooks, those aside whose results lie in the folder ``keep``; return the results of all.

    Each result is written there as soon as it is known, unless a worker was lost over it. ``keep`` None keeps nothing.

    Raises:
        WorkerError: if nbval or no kernel starts.
    """
    if keep is None:
        return run(job, done)
    keep.mkdir(parents=True, exist_ok=True)
    paths = {name: keep / f"{run_key(job, notebook)}.json" for name, notebook in job.notebooks.items()}
    known = {name: cells for name, path in paths.items() if (cells := load(path)) is not None}
    for name, cells in known.items():
        done(name, cells)

    def keep_and_tell(name: str, cells: dict[str, CellResult]) -> None:
        if _complete(job.notebooks[name], cells):
            save(paths[name], cells)
        done(name, cells)

    rest = {name: notebook for name, notebook in job.notebooks.items() if name not in known}
    results = known | (run(replace(job, notebooks=rest), keep_and_tell) if rest else {})
    return {name: results[name] for name in job.notebooks}


def run_key(job: Job, notebook: NotebookNode) -> str:
    """Return the hash of all that the notebook's results depend on."""
    cells = [[cell.source, cell.metadata.get("distgen")] for cell in notebook.cells if cell.cell_type == "code"]
    facts = [cells, job.seconds(), job.seed, job.environment, job.sandbox, environment()]
    return _sha(json.dumps(facts, sort_keys=True).encode())


@cache
def environment() -> str:
    """Return the hash of the library, file by file, and of the versions of what runs it."""
    root = Path(str(files("distgen_lab")))
    paths = sorted(path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    contents = [f"{path.relative_to(root)} {_sha(path.read_bytes())}" for path in paths]
    tools = [f"{tool} {_version(tool)}" for tool in _TOOLS]
    return _sha("\n".join([python_version(), *tools, *contents]).encode())


def _version(tool: str) -> str:
    try:
        return version(tool)
    except PackageNotFoundError:
        return "absent"


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _complete(notebook: NotebookNode, cells: dict[str, CellResult]) -> bool:
    """Whether every cell was run to an end that is its own: a lost worker may be the machine's fault."""
    wanted = {cell.id for cell in notebook.cells if cell.cell_type == "code"}
    return wanted <= cells.keys() and all(cell.state != "incomplete" for cell in cells.values())


def save(path: Path, cells: dict[str, CellResult]) -> None:
    """Write the results of one run, whole or not at all."""
    write_whole(path, json.dumps({name: asdict(cell) for name, cell in cells.items()}) + "\n")


def load(path: Path) -> dict[str, CellResult] | None:
    """Return the results of a run, None if they are not there or cannot be read."""
    try:
        data = json.loads(path.read_text("utf-8"))
        return {name: CellResult(**cell) for name, cell in data.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None
