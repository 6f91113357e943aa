"""Keep the course's notebooks in one form: ``python -m distgen_lab.notebooks {check,fix,run,build} [PATH...]``.

``check`` lists what breaks the rules, ``fix`` puts notebooks into canonical form, ``run`` executes them and stores the
outputs, and ``build`` does everything that follows an edit: runs notebooks and solutions, makes the answer key of the
visible checks, and generates ``exercises/`` from ``solutions/``.
"""

import argparse
import ast
import base64
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import nbformat
from nbformat import NotebookNode
from PIL import Image, UnidentifiedImageError

from distgen_lab.checks import SEED_VARIABLE
from distgen_lab.course import course_root
from distgen_lab.grading.grade import GradingError
from distgen_lab.grading.key import key_path, make_key
from distgen_lab.grading.master import Master, MasterError, role
from distgen_lab.grading.run import WorkerError

__all__ = ["canonical", "execute", "main", "problems"]

KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python", "pygments_lexer": "ipython3"}
WIDGET = "application/vnd.jupyter.widget-view+json"
FOLDERS = ("notebooks", "solutions", "exercises")
MOST_LINES, MOST_BYTES, MOST_PICTURE_BYTES, MEDIAN_LINES = 20, 300_000, 100_000, 4
MOST_COLORS = 64
_FORBIDDEN = (
    (re.compile(r"(?m)^\s*!"), "starts a shell with !"),
    (re.compile(r"(?m)^\s*%?%?pip\b"), "calls pip"),
    (re.compile(r"(?m)^%%writefile"), "uses %%writefile"),
    (re.compile(r"\bsys\.path\b"), "touches sys.path"),
    (re.compile(r"[\"'](~/|[A-Z]:\\|/(home|Users|root|work|tmp|usr|opt|mnt|var|etc)\b)"), "names an absolute path"),
    (re.compile(r"\b(urllib|requests|http\.client)\b"), "uses the network"),
)


def canonical(notebook: NotebookNode) -> NotebookNode:
    """Return the notebook in canonical form: format 4.5, our kernelspec, no volatile metadata, no trailing blanks.

    Its pictures have a palette instead of four bytes a pixel: a drawing of lines then takes a quarter.
    """
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    kept = {key: notebook.metadata[key] for key in ("distgen",) if key in notebook.metadata}
    notebook.metadata = nbformat.from_dict(kept | {"kernelspec": KERNELSPEC, "language_info": LANGUAGE})
    for cell in notebook.cells:
        cell.source = "\n".join(line.rstrip() for line in cell.source.rstrip().splitlines())
        cell.metadata.pop("execution", None)
        cell.metadata.pop("collapsed", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_stderr(output)]
            for output in cell.outputs:  # a stored widget has no model behind it; its picture stands for it
                output.get("data", {}).pop(WIDGET, None)
                if "image/png" in output.get("data", {}):
                    output.data["image/png"] = _with_palette(output.data["image/png"])
    return notebook


def _with_palette(picture: str) -> str:
    """The PNG in base64 with at most 64 colours; as it is if it has a palette or nothing is gained."""
    try:
        image = Image.open(io.BytesIO(base64.b64decode(picture)))
        if image.mode == "P":
            return picture
        few = image.convert("RGB").quantize(MOST_COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    except (UnidentifiedImageError, OSError, ValueError):
        return picture
    saved = io.BytesIO()
    few.save(saved, format="PNG", optimize=True)
    light = base64.b64encode(saved.getvalue()).decode()
    return light if len(light) < len(picture) else picture


def _is_stderr(output: NotebookNode) -> bool:
    return output.output_type == "stream" and output.name == "stderr"


def problems(path: Path, executed: bool = True) -> Iterator[str]:
    """Yield one sentence for each rule of the course that the notebook at ``path`` breaks."""
    notebook = nbformat.read(path, as_version=4)
    if nbformat.writes(canonical(nbformat.from_dict(notebook))) + "\n" != path.read_text("utf-8"):
        yield f"{path}: not in canonical form; run: python -m distgen_lab.notebooks fix {path}"
    if path.stat().st_size > MOST_BYTES:
        yield f"{path}: {path.stat().st_size:,} bytes; {MOST_BYTES:,} at most"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    yield from _structure(path, notebook, code)
    for cell in code:
        yield from (f"{path}: cell {cell.id} {what}" for what in _cell_problems(cell))
    counts = [cell.execution_count for cell in code]
    if executed and counts != list(range(1, len(code) + 1)):
        yield f"{path}: not executed from top to bottom in a fresh kernel; run: make notebooks"
    if not executed and any(counts):
        yield f"{path}: has outputs; exercises are generated without"


def _structure(path: Path, notebook: NotebookNode, code: list[NotebookNode]) -> Iterator[str]:
    """Rules about the notebook as a whole."""
    first = notebook.cells[0].source if notebook.cells else ""
    needed = ("*You will do*", "*You will learn*", "*You need*")
    if not first.startswith(("# Chapter section ", "# All sections together: ")) or not all(x in first for x in needed):
        yield f"{path}: the first cell needs a title '# Chapter section N: ...' and {', '.join(needed)}"
    ids = [cell.id for cell in notebook.cells]
    yield from (f"{path}: cell id {i!r} is not readable, like 'ch04-ring-check'" for i in ids if _random_id(i))
    teaching = [len(_code_lines(cell)) for cell in code if role(cell) is None]
    if teaching and median(teaching) > MEDIAN_LINES:
        yield f"{path}: code cells have a median of {median(teaching)} lines; {MEDIAN_LINES} at most"
    for one, two in zip(notebook.cells, notebook.cells[1:], strict=False):
        if _prints(one) and _prints(two):
            yield f"{path}: cells {one.id} and {two.id} both print; a sentence belongs between them"


def _prints(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and bool(cell.outputs) and role(cell) is None


def _random_id(cell_id: str) -> bool:
    return bool(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f-]+)?", cell_id)) or "-" not in cell_id


def _code_lines(cell: NotebookNode) -> list[str]:
    return [line for line in cell.source.splitlines() if line.strip() and not line.strip().startswith("#")]


def _cell_problems(cell: NotebookNode) -> Iterator[str]:
    """Rules about one code cell."""
    if len(_code_lines(cell)) > MOST_LINES and role(cell) != "answer":
        yield f"has {len(_code_lines(cell))} lines; {MOST_LINES} at most"
    yield from (what for pattern, what in _FORBIDDEN if pattern.search(cell.source))
    try:
        ast.parse(cell.source)
    except SyntaxError as error:
        yield f"does not parse: {error}"
    for output in cell.outputs:
        picture = output.get("data", {}).get("image/png", "")
        if len(picture) * 3 // 4 > MOST_PICTURE_BYTES:
            yield f"holds a picture of {len(picture) * 3 // 4:,} bytes; {MOST_PICTURE_BYTES:,} at most"
        if output.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", []):
            yield f"ended in {output.ename}: {output.evalue}"


def execute(notebook: NotebookNode, folder: Path, key: bool = True, timeout: float = 600) -> NotebookNode:
    """Run the notebook's code cells in a fresh kernel in ``folder``; return it with outputs, counted 1 to n."""
    from nbclient import NotebookClient

    environment = {SEED_VARIABLE: "0"} | os.environ | ({} if key else {"DISTGEN_KEY": "off"})
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=timeout, kernel_name="python3", resources=resources)
    client.store_widget_state = False
    client.execute(env=environment)
    return notebook


def write(notebook: NotebookNode, path: Path) -> None:
    """Write the notebook in canonical form."""
    path.write_text(nbformat.writes(canonical(notebook)) + "\n", encoding="utf-8")


def generate(master: Master, folder: Path) -> None:
    """Write the exercise notebook of a master into ``exercises/``, and the copy of it that travels with the library."""
    for place in (folder, key_path(master.section).parents[1] / "exercises"):
        place.mkdir(exist_ok=True)
        write(master.student_version(), place / master.path.name)


def paths_of(root: Path, *folders: str) -> list[Path]:
    """Return the notebooks of the named folders of the course, in order."""
    return [path for folder in folders for path in sorted((root / folder).glob("*.ipynb"))]


def _check(paths: list[Path]) -> int:
    found = [text for path in paths for text in problems(path, executed=path.parent.name != "exercises")]
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(paths)} notebooks checked, {len(found)} problems")
    return 1 if found else 0


def _fix(paths: list[Path]) -> int:
    for path in paths:
        write(nbformat.read(path, as_version=4), path)
    return 0


def _run(paths: list[Path]) -> int:
    for path in paths:
        print(f"running {path}", flush=True)
        write(execute(nbformat.read(path, as_version=4), path.parent), path)
    return 0


def _build(paths: list[Path]) -> int:
    """Run what is not generated; for solutions make the key first, then the exercises."""
    for path in (p for p in paths if p.parent.name != "exercises"):
        if path.parent.name == "solutions":
            print(f"making the key of {path}", flush=True)
            make_key(Master(path))
            generate(Master(path), path.parents[1] / "exercises")
        _run([path])
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    actions = {"check": _check, "fix": _fix, "run": _run, "build": _build}
    parser = argparse.ArgumentParser(prog="python -m distgen_lab.notebooks", description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=actions)
    parser.add_argument("paths", nargs="*", type=Path, help="notebooks; all of the course where none is named")
    options = parser.parse_args(arguments)
    try:
        return actions[options.action](options.paths or paths_of(course_root(), *FOLDERS))
    except (OSError, MasterError, GradingError, WorkerError, nbformat.ValidationError, json.JSONDecodeError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
