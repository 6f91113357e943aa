"""Read what a student handed in, and put their answers into the master.

Of a submission only the *source* of its code cells is used. Structure, order, checks, points, metadata and kernel come
from the master.
"""

import ast
import builtins
import copy
import json
import symtable
import warnings
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from distgen_lab.grading.master import Master, Question, role

__all__ = ["MAX_BYTES", "OWN", "Merged", "Submission", "UnreadableSubmission", "bound_names", "merge", "only"]

MAX_BYTES = 5_000_000
"""Largest notebook that is read; outputs are not used, so a larger one needs only its outputs cleared."""

OWN = "own-"
"""How the ids of cells begin that a student added."""


class UnreadableSubmission(ValueError):
    """The file is no notebook that can be graded; the message says why."""


@dataclass(frozen=True)
class Submission:
    """The code cells of a submission: (cell id or grade id, source) in order, and the section it says it is."""

    cells: tuple[tuple[str | None, str], ...]
    section: str | None

    @classmethod
    def read(cls, path: Path) -> "Submission":
        """Read a notebook of format 3 or 4 without trusting any of it.

        Raises:
            UnreadableSubmission: for a file that is missing, too large, no UTF-8, no JSON or no notebook.
        """
        data = _load(Path(path))
        if not isinstance(data, dict):
            raise UnreadableSubmission("not a notebook: the file holds no JSON object")
        if data.get("nbformat") not in (3, 4):
            raise UnreadableSubmission(f"notebook format {data.get('nbformat')!r} is not supported, 3 and 4 are")
        cells = _cells(data)
        metadata = data.get("metadata")
        facts = metadata.get("distgen") if isinstance(metadata, dict) else None
        section = facts.get("section") if isinstance(facts, dict) else None
        return cls(tuple(_code_cells(cells)), section if isinstance(section, str) else None)


def _load(path: Path) -> Any:
    try:
        if not path.is_file() or path.is_symlink():
            raise UnreadableSubmission("not a regular file")
        if path.stat().st_size > MAX_BYTES:
            raise UnreadableSubmission(f"larger than {MAX_BYTES / 1e6:g} MB; clear the outputs and hand in again")
        return json.loads(path.read_bytes().decode("utf-8-sig"), object_pairs_hook=_no_duplicates)
    except OSError as error:
        raise UnreadableSubmission(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnreadableSubmission("not UTF-8 text") from error
    except RecursionError as error:
        raise UnreadableSubmission("nested too deeply") from error
    except json.JSONDecodeError as error:
        raise UnreadableSubmission(f"not JSON (line {error.lineno}: {error.msg})") from error


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise UnreadableSubmission("a key occurs twice in one JSON object")
    return dict(pairs)


def _cells(data: dict) -> list:
    sheets = data.get("worksheets")  # format 3
    if isinstance(sheets, list) and sheets and isinstance(sheets[0], dict):
        data = sheets[0]
    cells = data.get("cells")
    if not isinstance(cells, list):
        raise UnreadableSubmission("not a notebook: it has no list of cells")
    return [cell for cell in cells if isinstance(cell, dict)]


def _code_cells(cells: list[dict]) -> list[tuple[str | None, str]]:
    """Code cells, and cells of another type that carry an answer's id (a type changed by accident)."""
    found = []
    for cell in cells:
        name = _name(cell)
        if cell.get("cell_type") == "code" or (name or "").endswith("-answer"):
            found.append((name, _source(cell.get("source", cell.get("input", "")))))
    return found


def _name(cell: dict) -> str | None:
    """The grade id if there is one, else the cell id."""
    metadata = cell.get("metadata")
    facts = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    name = facts.get("grade_id") if isinstance(facts, dict) else None
    name = name or cell.get("id")
    return name if isinstance(name, str) else None


def _source(source: Any) -> str:
    text = "".join(map(str, source)) if isinstance(source, list) else str(source)
    text = text.replace("\r\n", "\n").replace("\0", "")
    return text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate would break the kernel's channel


@dataclass
class Merged:
    """The master with a student's answers in it, as the two notebooks that are run."""

    visible: NotebookNode
    hidden: NotebookNode
    found: dict[str, str] = field(default_factory=dict)
    """Per question: ``answered``, ``blank`` (the stub as released), ``missing`` (no such cell), ``several``."""

    @property
    def answered(self) -> set[str]:
        """The questions with an answer of the student's own; the others earn nothing, whatever their cells do."""
        return {key for key, state in self.found.items() if state not in ("blank", "missing")}


def only(asked: set[str], notebook: NotebookNode) -> NotebookNode:
    """Take the cells of all other questions out of the notebook; return it."""
    facts = (cell.metadata.get("distgen", {}) for cell in notebook.cells)
    keep = ["question" not in fact or fact["question"] in asked for fact in facts]
    notebook.cells = [cell for cell, kept in zip(notebook.cells, keep, strict=True) if kept]
    return notebook


def merge(master: Master, submission: Submission) -> Merged:
    """Put the submission's answers, and the student's own extra cells at their place, into the master.

    Of several cells with one answer's id the last that differs from the stub counts.
    """
    known = {cell.id: cell.source for cell in master.student_version().cells}
    answers = {q.answer: q.key for q in master.questions.values()}
    given: dict[str, list[str]] = {}
    extras: dict[str | None, list[str]] = {}
    waiting: list[str] = []
    for name, source in submission.cells:
        if name in known and name not in extras:
            extras[name], waiting = waiting, []
        if name in answers:
            given.setdefault(name, []).append(source)
        elif _is_extra(master, name, source, known):
            waiting.append(source)
    extras[None] = waiting
    chosen = {answer: _choose(given.get(answer, []), known[answer]) for answer in answers}
    found = {answers[answer]: state for answer, (state, _) in chosen.items()}
    sources = {answer: source for answer, (_, source) in chosen.items()}
    return Merged(*(_assemble(master, sources, extras, kind) for kind in ("visible", "hidden")), found)


def _is_extra(master: Master, name: str | None, source: str, known: dict[str | None, str]) -> bool:
    """A cell of the student's own, or a set-up cell they edited; checks are always the master's."""
    if name not in known:
        return bool(source.strip())
    return role(master.cell(name)) is None and source.strip() != known[name].strip()


def _choose(sources: list[str], stub: str) -> tuple[str, str]:
    """Return what was found and the source that counts."""
    if not sources:
        return "missing", stub
    edited = [source for source in sources if source.strip() != stub.strip()]
    if not edited:
        return "blank", stub
    return ("several" if len(set(edited)) > 1 else "answered"), edited[-1]


def _assemble(master: Master, answers: dict[str, str], extras: dict[str | None, list[str]], kind: str) -> NotebookNode:
    """The master's code cells with answers and extras in place; of the checks those of ``kind`` only."""
    notebook = copy.deepcopy(master.notebook)
    notebook.cells = []
    common, number = _common_names(master), count(1)

    def own_cell(source: str) -> NotebookNode:
        return new_code_cell(source, id=f"{OWN}{next(number)}")

    for original in master.notebook.cells:
        name = original.id
        notebook.cells += [own_cell(source) for source in extras.get(name, [])]
        if original.cell_type == "code" and role(original) in (None, "answer", kind):
            cell = new_code_cell(answers.get(name, original.source), id=name)
            cell.metadata["distgen"] = dict(original.metadata.get("distgen", {}))
            notebook.cells.append(cell)
    notebook.cells += [own_cell(source) for source in extras[None]]
    for question in master.all:
        _shelter(notebook, question, common & bound_names(answers.get(question.answer, "")))
    return notebook


def _shelter(notebook: NotebookNode, question: Question, names: set[str]) -> None:
    """Put a question between two cells that give names like ``sum`` and ``np`` their meaning back after it."""
    places = [i for i, cell in enumerate(notebook.cells) if cell.id in question.cells]
    if names:
        notebook.cells.insert(places[-1] + 1, new_code_cell(f"{_CHECKS}.recover()"))
        notebook.cells.insert(places[0], new_code_cell(f"{_CHECKS}.shelter({', '.join(map(repr, sorted(names)))})"))


_CHECKS = "__import__('distgen_lab.checks', fromlist=['checks'])"
"""Without an import statement, which would put a name into the student's cells."""


def _common_names(master: Master) -> set[str]:
    """Names that every question may use: Python's own and those of the master's set-up cells."""
    setup = (cell.source for cell in master.notebook.cells if cell.cell_type == "code" and role(cell) is None)
    return set(dir(builtins)).union(*map(bound_names, setup))


def bound_names(source: str) -> set[str]:
    """Return the names that a cell binds at its top level; of ``from m import *`` all that Python itself has."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(source)
            table = symtable.symtable(source, "cell", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    star = any(isinstance(line, ast.ImportFrom) and line.names[0].name == "*" for line in tree.body)
    return names | set(dir(builtins)) if star else names
