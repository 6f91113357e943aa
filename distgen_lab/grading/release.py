"""Write what a class gets: the course without solutions, hidden checks and tests. Folder, zip, or nbgrader's course."""

import copy
import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

import nbformat
from nbformat import NotebookNode

from distgen_lab.grading.master import Master, MasterError, role
from distgen_lab.grading.refusals import blind_checks, refusals, stored_report
from distgen_lab.grading.variants import choices
from distgen_lab.judging import difference

__all__ = ["nbgrader_course", "nbgrader_source", "release"]

ZIP_FOLDER = "distgen-lab"
"""The one folder inside a zip, so that unpacking it does not fill the folder it lies in."""
_PARTS = ("LICENSE", "pyproject.toml", "constraints.txt", "environment.yml", "notebooks", "distgen_lab")
_DEVELOPERS = "\n# For developers"
"""Where the part of the Makefile begins that needs tests and solutions."""
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "*.pyc", ".*")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_SECTION_DATA = {"exercises": "ipynb", "key": "json"}
"""Folders of the library's data that hold one file a section."""

Progress = Callable[[str], None]


def release(
    root: Path,
    masters: dict[str, Master],
    out: Path,
    quick: bool = False,
    progress: Progress = lambda text: None,
    extra: Mapping[str, str] = MappingProxyType({}),
) -> list[Path]:
    """Write the class bundle; return the exercise notebooks in it.

    Args:
        root: the course's folder.
        masters: the sections to hand out, by name.
        out: a new folder, or a new file that ends in ``.zip``. The same course gives the same bytes.
        quick: do not run the blank and the known wrong answers.
        progress: called with a sentence now and then.
        extra: texts of further files, by their path in the bundle.

    Everything is made in a neighbouring folder first, searched for hidden lines, and moved into place whole.

    Raises:
        FileExistsError: if ``out`` exists and is not an empty folder.
        MasterError: if a master must not be handed out, or a line of a solution or a hidden check would ship.
    """
    _refuse_existing(out)
    _refuse_masters(masters, root)
    zipped = out.suffix.lower() == ".zip"
    with _draft(out) as draft:
        _fill(root, masters, draft / ZIP_FOLDER)
        for name, text in extra.items():
            (draft / ZIP_FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
            (draft / ZIP_FOLDER / name).write_text(text, encoding="utf-8")
        _refuse_leaks(masters, draft / ZIP_FOLDER)
        if zipped:
            _pack(draft / ZIP_FOLDER, draft / "bundle.zip")
            _refuse_hidden_lines(masters, _unpacked(draft / "bundle.zip"))
        _refuse_blind(masters, quick, progress)
        _move(draft / ("bundle.zip" if zipped else ZIP_FOLDER), out.resolve())
    return [out / "exercises" / f"{section}.ipynb" for section in masters]


def nbgrader_course(
    masters: dict[str, Master], out: Path, quick: bool = False, progress: Progress = lambda text: None
) -> list[Path]:
    """Write a course folder for nbgrader, one assignment a section; return the source notebooks in it.

    ``nbgrader generate_assignment SECTION`` makes the students' version there, ``nbgrader autograde SECTION`` gives
    provisional points by the visible checks.

    Raises:
        FileExistsError: if ``out`` exists and is not an empty folder.
        MasterError: if a master must not be handed out.
    """
    _refuse_existing(out)
    _refuse_masters(masters)
    _refuse_blind(masters, quick, progress)
    names = [Path("source", section, f"{section}.ipynb") for section in masters]
    with _draft(out) as draft:
        for name, master in zip(names, masters.values(), strict=True):
            (draft / "course" / name).parent.mkdir(parents=True)
            nbformat.write(nbgrader_source(master), draft / "course" / name)
        config = (files("distgen_lab") / "data" / "nbgrader_config.py.txt").read_text("utf-8")
        (draft / "course" / "nbgrader_config.py").write_text(config, encoding="utf-8")
        _move(draft / "course", out.resolve())
    return [out / name for name in names]


def nbgrader_source(master: Master) -> NotebookNode:
    """Return the master as nbgrader's source: without known answers, which nbgrader would hand out, and outputs."""
    notebook = copy.deepcopy(master.notebook)
    notebook.cells = [cell for cell in notebook.cells if role(cell) not in ("wrong", "other")]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


# --------------------------------------------------------------------------------------------------- refusing


def _refuse_existing(out: Path) -> None:
    empty = out.is_dir() and not any(out.iterdir())
    if out.exists() and not empty:
        raise FileExistsError(f"{out} exists; name a new {'file' if out.suffix.lower() == '.zip' else 'folder'}")


def _refuse_masters(masters: dict[str, Master], root: Path | None = None) -> None:
    found = [text for master in masters.values() for text in refusals(master)]
    if not found and root:
        found = [text for master in masters.values() for text in _stale_key(root, master)]
    if found:
        raise MasterError("\n".join(found))


def _refuse_blind(masters: dict[str, Master], quick: bool, progress: Progress) -> None:
    found = [] if quick else list(blind_checks(masters, progress))
    if found:
        raise MasterError("\n".join(found))


def _stale_key(root: Path, master: Master) -> Iterator[str]:
    """The key that ships must say of each worked input what the solution says."""
    path = root / "distgen_lab" / "data" / "key" / f"{master.section}.json"
    if not path.parent.is_dir():
        return
    try:
        key = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        yield f"{path}: no readable key of {master.path.name} ({error}); run python -m distgen_lab.notebooks build"
        return
    inputs = choices(master)
    for question in master.all:
        if question.visible not in key:
            what = "is not in the key"
        elif len(key[question.visible].get("variants", [])) + 1 != inputs[question.key]:
            what = f"has {inputs[question.key]} worked inputs, not as many as the key"
        elif difference(stored_report(master.cell(question.visible)), key[question.visible]["value"], question.rel):
            what = "reports something else than the key says"
        else:
            continue
        yield f"{master.path}: cell {question.visible!r} {what}, {path}; run python -m distgen_lab.notebooks build"


def _refuse_leaks(masters: dict[str, Master], folder: Path) -> None:
    """No line of a solution, a hidden check or a known answer may stand in an exercise; no hidden line anywhere."""
    for master in masters.values():
        secrets = master.secrets()
        for path in sorted(folder.glob("exercises/*.ipynb")):
            text = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
            _refuse_lines(master, secrets, text, path.name)
    every = ((path.relative_to(folder).as_posix(), path.read_bytes()) for path in _files(folder))
    _refuse_hidden_lines(masters, every)


def _refuse_hidden_lines(masters: dict[str, Master], contents: Iterable[tuple[str, bytes]]) -> None:
    """Search every file for the lines of every hidden check, as they are and as JSON writes them."""
    hidden = {section: _hidden_lines(master) for section, master in masters.items()}
    for name, content in contents:
        text = content.decode("utf-8", "replace")
        for section, master in masters.items():
            _refuse_lines(master, hidden[section], text, name)


def _hidden_lines(master: Master) -> set[str]:
    sources = [cell.source for cell in master.notebook.cells if role(cell) == "hidden"]
    lines = {line.strip() for source in sources for line in source.splitlines()} & master.secrets()
    return lines | {json.dumps(line, ensure_ascii=False)[1:-1] for line in lines}


def _refuse_lines(master: Master, lines: set[str], text: str, name: str) -> None:
    leak = min((line for line in lines if line in text), default=None)
    if leak:
        raise MasterError(f"{master.path}: this line would ship in {name}: {leak!r}; take it out there")


# ---------------------------------------------------------------------------------------------------- writing


@contextmanager
def _draft(out: Path) -> Iterator[Path]:
    """A folder on the same disk as ``out``, gone afterwards."""
    above = next(folder for folder in out.resolve().parents if folder.is_dir())
    with tempfile.TemporaryDirectory(prefix=".distgen-release-", dir=above) as folder:
        yield Path(folder)


def _move(made: Path, out: Path) -> None:
    if out.is_dir():
        out.rmdir()
    out.parent.mkdir(parents=True, exist_ok=True)
    os.replace(made, out)


def _fill(root: Path, masters: dict[str, Master], folder: Path) -> None:
    (folder / "exercises").mkdir(parents=True)
    for part in _PARTS:
        if (root / part).is_dir():
            shutil.copytree(root / part, folder / part, ignore=_LEFT_OUT)
        elif (root / part).is_file():
            shutil.copy2(root / part, folder / part)
    readme = (files("distgen_lab") / "data" / "class_readme.md").read_text("utf-8")
    (folder / "README.md").write_text(_for_sections(readme, masters), encoding="utf-8")
    if (root / "Makefile").is_file():
        makefile = (root / "Makefile").read_text("utf-8").partition(_DEVELOPERS)[0]
        (folder / "Makefile").write_text(makefile, encoding="utf-8")
    data = folder / "distgen_lab" / "data"
    for place in [folder / "exercises", *([data / "exercises"] if data.is_dir() else [])]:
        place.mkdir(exist_ok=True)
        for section, master in masters.items():
            nbformat.write(master.student_version(), place / f"{section}.ipynb")
    for kind, ending in _SECTION_DATA.items():
        for path in (data / kind).glob(f"*.{ending}"):
            if path.stem not in masters:  # a section that is not handed out
                path.unlink()


def _for_sections(readme: str, masters: dict[str, Master]) -> str:
    """The class's README, with the first section handed out for its example."""
    return re.sub(r"(?<=exercises/)\w+(?=\.ipynb)", next(iter(masters)), readme)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _pack(folder: Path, path: Path) -> None:
    """Zip the folder so that the same files give the same bytes: in order of names, with one date."""
    with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED, compresslevel=9) as bundle:
        for member in _files(folder):
            entry = zipfile.ZipInfo(member.relative_to(folder.parent).as_posix(), _EPOCH)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            entry.external_attr = (0o100755 if os.access(member, os.X_OK) else 0o100644) << 16
            bundle.writestr(entry, member.read_bytes())


def _unpacked(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as bundle:
        for name in bundle.namelist():
            yield name, bundle.read(name)
