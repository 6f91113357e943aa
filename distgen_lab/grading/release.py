"""Write what a class gets: the course without solutions, hidden checks and tests."""

import shutil
from importlib.resources import files
from pathlib import Path

import nbformat

from distgen_lab.grading.master import Master, MasterError

__all__ = ["release"]

_PARTS = ("LICENSE", "pyproject.toml", "constraints.txt", "environment.yml", "notebooks", "distgen_lab")
_DEVELOPERS = "\n# For developers"
"""Where the part of the Makefile begins that needs tests and solutions."""
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "*.pyc", ".*")


def release(root: Path, masters: dict[str, Master], out: Path) -> list[Path]:
    """Write the class bundle into the new folder ``out``; return the exercise notebooks written.

    Everything is made in a neighbouring folder first and moved into place whole.

    Raises:
        FileExistsError: if ``out`` exists and is not an empty folder.
        MasterError: if a line of a solution or a hidden check would ship.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} exists; name a new folder")
    out = out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        _fill(root, masters, draft)
        if out.exists():
            out.rmdir()
        draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return [out / "exercises" / f"{section}.ipynb" for section in masters]


def _fill(root: Path, masters: dict[str, Master], draft: Path) -> None:
    (draft / "exercises").mkdir(parents=True)
    for part in _PARTS:
        if (root / part).is_dir():
            shutil.copytree(root / part, draft / part, ignore=_LEFT_OUT)
        elif (root / part).is_file():
            shutil.copy2(root / part, draft / part)
    readme = (files("distgen_lab") / "data" / "class_readme.md").read_text("utf-8")
    (draft / "README.md").write_text(readme, encoding="utf-8")
    if (root / "Makefile").is_file():
        makefile = (root / "Makefile").read_text("utf-8").partition(_DEVELOPERS)[0]
        (draft / "Makefile").write_text(makefile, encoding="utf-8")
    for section, master in masters.items():
        nbformat.write(master.student_version(), draft / "exercises" / f"{section}.ipynb")
    for master in masters.values():
        _refuse_leaks(master, draft)


def _refuse_leaks(master: Master, draft: Path) -> None:
    """No line of a solution, a hidden check or a known wrong answer may stand in any exercise notebook."""
    secrets = master.secrets()
    for path in sorted(draft.glob("exercises/*.ipynb")):
        text = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
        leak = min((line for line in secrets if line in text), default=None)
        if leak:
            raise MasterError(f"{master.path}: this line would ship in {path.name}: {leak!r}")
