"""The master of an exercise: a solution notebook, its questions, and what a student gets of it.

Cells carry nbgrader's metadata (schema 3) and, under ``distgen``, their role:

``answer``   the student's cell; the part between ``### BEGIN SOLUTION`` and ``### END SOLUTION`` is replaced by a stub
``visible``  the check of the worked input; holds the question's title, points, tolerance and time limit
``hidden``   a check of drawn inputs, between ``### BEGIN HIDDEN TESTS`` and ``### END HIDDEN TESTS``; never released
``wrong``    a raw cell: a known wrong answer, its first line ``hint: ...``; never released
``other``    a raw cell: another right answer; never released

A question's points are earned by its hidden checks: in equal shares, or as each says under ``points``, which then add
up to the question's. The visible check earns nothing by itself, but without it the hidden ones earn nothing either.
"""

import copy
import json
import re
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from distgen_lab.plain import REL

__all__ = ["Master", "MasterError", "Question", "WrongAnswer", "role"]

_SOLUTION = re.compile(r"(?ms)^([ \t]*)### BEGIN SOLUTION[^\n]*\n.*?^[ \t]*### END SOLUTION[^\n]*$")
_HIDDEN = re.compile(r"(?ms)^[ \t]*### BEGIN HIDDEN TESTS[^\n]*\n.*?^[ \t]*### END HIDDEN TESTS[^\n]*\n?")
_MARKER = re.compile(r"### (BEGIN|END) (SOLUTION|HIDDEN TESTS)")
_COMMON = ("import ", "from ", "def ", "with checks.withheld(", "###")
"""Beginnings of lines that visible and hidden cells may share."""
_AUTHOR_ONLY = {"wrong", "other", "hidden"}


class MasterError(ValueError):
    """A solution notebook that cannot serve as a master; the message names the file, the cell and the cure."""


@dataclass(frozen=True)
class WrongAnswer:
    """A known wrong answer: source of the answer cell, and the hint that names the misconception."""

    source: str
    hint: str


@dataclass
class Question:
    """One question of a master.

    Attributes:
        key: the question's id, e.g. ``q1-3``.
        title: e.g. ``Exercise 1.3``.
        points: what a right answer earns.
        rel: relative tolerance of its comparison.
        seconds: time limit of each of its cells.
        nudge: what to look at, said after a wrong answer that no hint knows.
        answer, visible: ids of its cells.
        hidden: the points of each hidden check, by the cell's id, in order.
        wrong: known wrong answers.
        other: sources of other right answers.
    """

    key: str
    title: str = ""
    points: Fraction = Fraction(0)
    rel: float = REL
    seconds: float = 20.0
    nudge: str = ""
    answer: str = ""
    visible: str = ""
    hidden: dict[str, Fraction] = field(default_factory=dict)
    wrong: list[WrongAnswer] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    @property
    def checks(self) -> list[str]:
        """The ids of its checks, the visible one first."""
        return [self.visible, *self.hidden]

    @property
    def cells(self) -> list[str]:
        """The ids of its code cells: the answer, the visible check, the hidden ones."""
        return [self.answer, *self.checks]

    def missing(self) -> list[str]:
        """Return the names of the parts the question lacks."""
        return [part for part in ("title", "points", "answer", "visible", "hidden", "wrong") if not getattr(self, part)]


def role(cell: NotebookNode) -> str | None:
    """Return the cell's role in an exercise, or None for prose and set-up."""
    return cell.metadata.get("distgen", {}).get("role")


class Master:
    """A solution notebook with its questions in order.

    Raises:
        MasterError: if the notebook is unreadable, an id occurs twice, a region is open or a question lacks a part.
    """

    def __init__(self, path: Path, released: bool = False) -> None:
        """Read the solution notebook at ``path``; or, if ``released``, the exercise made of one."""
        self.path = Path(path)
        self.notebook = self._read()
        self.section = self.path.stem
        self.questions: dict[str, Question] = {}
        self._check_cells()
        for cell in self.notebook.cells:
            self._collect(cell)
        for question in self.questions.values():
            self._share_points(question)
        if not released:
            self._check_questions()

    def _read(self) -> NotebookNode:
        try:
            raw = json.loads(self.path.read_text("utf-8"))
            self._ids = [cell.get("id") for cell in raw["cells"]]  # nbformat renames a second one in silence
            return nbformat.reads(json.dumps(raw), as_version=4)
        except Exception as error:
            raise MasterError(f"{self.path}: not a readable notebook ({type(error).__name__}: {error})") from error

    def _check_cells(self) -> None:
        """Ids occur once, and every region that begins also ends."""
        twice = next((name for name in self._ids if self._ids.count(name) > 1), None)
        if twice is not None:
            raise MasterError(f"{self.path}: the cell id {twice!r} occurs twice; give each cell its own")
        for cell in self.notebook.cells:
            if _MARKER.search(_HIDDEN.sub("", _SOLUTION.sub("", cell.source))):
                raise MasterError(f"{self.path}: cell {cell.id!r} has a BEGIN without its END, or an END alone")

    def _collect(self, cell: NotebookNode) -> None:
        """Add what one cell says to its question."""
        facts = cell.metadata.get("distgen", {})
        kind = facts.get("role")
        if kind is None:
            return
        question = self.questions.setdefault(facts["question"], Question(facts["question"]))
        if kind == "wrong":
            hint, _, source = cell.source.partition("\n")
            question.wrong.append(WrongAnswer(source, hint.removeprefix("hint:").strip()))
        elif kind == "other":
            question.other.append(cell.source)
        else:
            self._collect_code(question, kind, cell)

    def _collect_code(self, question: Question, kind: str, cell: NotebookNode) -> None:
        facts = cell.metadata.distgen
        if kind == "hidden":
            question.hidden[cell.id] = Fraction(str(facts.get("points", 0)))
            return
        if getattr(question, kind):
            raise MasterError(f"{self.path}: question {question.key} has two {kind} cells; one is enough")
        setattr(question, kind, cell.id)
        if kind == "visible":
            question.title, question.points = facts.title, Fraction(str(facts.points))
            question.rel, question.seconds = facts.get("rel", REL), facts.get("seconds", 20.0)
            question.nudge = facts.get("nudge", "")

    def _share_points(self, question: Question) -> None:
        """Equal shares where no hidden check says what it is worth; else all must, and add up."""
        if question.hidden and not any(question.hidden.values()):
            question.hidden = dict.fromkeys(question.hidden, question.points / len(question.hidden))
        total = sum(question.hidden.values(), Fraction(0))
        if question.hidden and (total != question.points or min(question.hidden.values()) <= 0):
            raise MasterError(
                f"{self.path}: question {question.key} is worth {question.points}, its hidden checks earn "
                f"{' + '.join(map(str, question.hidden.values()))}; give each its points, or none of them"
            )

    def _check_questions(self) -> None:
        if not self.questions:
            raise MasterError(f"{self.path}: no cell has a role under metadata.distgen, so there is nothing to grade")
        for question in self.questions.values():
            lacks = question.missing()
            if lacks:
                raise MasterError(f"{self.path}: question {question.key} lacks: {', '.join(lacks)}")

    @property
    def all(self) -> list[Question]:
        """The questions in order."""
        return list(self.questions.values())

    @property
    def points(self) -> Fraction:
        """Sum of all questions' points."""
        return sum((q.points for q in self.all), Fraction(0))

    def stub(self, key: str) -> str:
        """Return the source of a question's answer cell as the student gets it."""
        question = self.questions[key]
        return _stub(self.cell(question.answer).source, question.title)

    def cell(self, cell_id: str) -> NotebookNode:
        """Return the cell of that id."""
        return next(cell for cell in self.notebook.cells if cell.get("id") == cell_id)

    def student_version(self) -> NotebookNode:
        """Return the notebook a student gets: stubs for answers, no hidden checks, no outputs."""
        notebook = copy.deepcopy(self.notebook)
        notebook.cells = [cell for cell in notebook.cells if role(cell) not in _AUTHOR_ONLY]
        for cell in notebook.cells:
            if role(cell) == "answer":
                cell.source = self.stub(cell.metadata.distgen.question)
            if cell.cell_type == "code":
                cell.source = _HIDDEN.sub("", cell.source)
                cell.outputs, cell.execution_count = [], None
        notebook.metadata.pop("widgets", None)
        return notebook

    def secrets(self) -> set[str]:
        """Return the telling lines of solutions, hidden checks and known answers: none may stand in a released file."""
        texts = [c.source for c in self.notebook.cells if role(c) in _AUTHOR_ONLY]
        texts += [m.group(0) for c in self.notebook.cells for m in _SOLUTION.finditer(c.source)]
        lines = {line.strip() for text in texts for line in text.splitlines()}
        return {line for line in lines if len(line) >= 20 and not line.startswith(_COMMON)}


def _stub(source: str, title: str) -> str:
    """Replace each solution region by a line that says which exercise is meant."""
    return _SOLUTION.sub(lambda m: f'{m.group(1)}raise NotImplementedError("{title}: your code here")', source)
