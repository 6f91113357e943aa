"""Grade a folder of submissions: one row per student and question, whatever the submissions hold."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from distgen_lab.checks import explain
from distgen_lab.grading.collect import find_submissions
from distgen_lab.grading.gradebook import CheckLine, GradingError, Row, decimal_text, one_line, write_grades
from distgen_lab.grading.master import Master, Question
from distgen_lab.grading.resume import run_kept
from distgen_lab.grading.run import CellResult, Job, Results, run
from distgen_lab.grading.sandbox import why_not
from distgen_lab.grading.selfcheck import fault, probes
from distgen_lab.grading.submission import OWN, Submission, UnreadableSubmission, merge, only
from distgen_lab.grading.variants import number_of, seeded
from distgen_lab.judging import difference

__all__ = ["GradingError", "Row", "blame", "find_submissions", "grade", "references", "write_grades"]


def references(master: Master, seeds: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Run the solution with each seed, all in one batch; return what its checks report, by seed and check id.

    Raises:
        GradingError: if a check of the solution itself reports nothing.
    """
    notebooks = _solutions(master, list(dict.fromkeys(seeds)))
    return _reports(master, list(dict.fromkeys(seeds)), run(Job(notebooks, master.all, workers=2)))


def _solutions(master: Master, seeds: list[str]) -> dict[str, NotebookNode]:
    """The solution's two notebooks for each seed, by name."""
    code = [(c.id, c.source) for c in master.notebook.cells if c.cell_type == "code"]
    notebooks = {}
    for number, seed in enumerate(seeds):
        merged = seeded(merge(master, Submission(tuple(code), master.section)), seed)
        notebooks |= {f"solution-{number}-visible": merged.visible, f"solution-{number}-hidden": merged.hidden}
    return notebooks


def _reports(master: Master, seeds: list[str], results: Results) -> dict[str, dict[str, Any]]:
    """What each check of the solution reported, by seed."""
    return {seed: _reported(master, _joined(master, f"solution-{n}", results)) for n, seed in enumerate(seeds)}


def _reported(master: Master, cells: dict[str, CellResult]) -> dict[str, Any]:
    checks = [check for q in master.all for check in q.checks]
    silent = [check for check in checks if cells.get(check, CellResult()).state != "reported"]
    if silent:
        why = cells.get(silent[0], CellResult("not run"))
        raise GradingError(f"{master.path}: check {silent[0]} of the solution: {why.error or why.state}; mend it first")
    return {check: cells[check].value for check in checks}


def grade(
    masters: dict[str, Master],
    submissions: dict[str, list[Path]],
    seed: str = "0",
    workers: int = 1,
    progress: Callable[[str], None] = lambda text: None,
    sandbox: bool = True,
    seeds: Mapping[str, str] | None = None,
    keep: Path | None = None,
) -> list[Row]:
    """Grade every student on every master; return rows ordered by student, section and question.

    ``seeds`` gives single students graded inputs of their own (see :func:`distgen_lab.grading.variants.seeds_of`).
    Results of runs are kept in the folder ``keep`` as they come, so that an interrupted batch goes on where it stopped
    and what has not changed is not run again.

    Raises:
        GradingError: if a solution does not run, stubs or forgeries score, or a sandbox is wanted and cannot be had.
        WorkerError: if nbval or no kernel starts.
    """
    if sandbox and (missing := why_not()):
        raise GradingError(
            f"{missing}. Grade on a machine where it works, or with --no-sandbox: students' code then runs "
            "with your rights, and every row says so"
        )
    rows: list[Row] = []
    for section, master in masters.items():
        own = {student: (seeds or {}).get(student, seed) for student in submissions}
        progress(f"{section}: running the solution with seed {', '.join(sorted(set(own.values())))}")
        rows += _Section(master, own, submissions, progress).grade(workers, sandbox, keep)
    rows = rows if sandbox else [replace(row, sandbox="no") for row in rows]
    return sorted(rows, key=lambda row: row.student)


@dataclass
class _Section:
    """All submissions of one section, run together with the solution and the probes of the grader itself."""

    master: Master
    seeds: dict[str, str]
    submissions: dict[str, list[Path]]
    progress: Callable[[str], None]
    opening: dict[str, NotebookNode] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    found: dict[str, dict[str, str]] = field(default_factory=dict)
    known: Results = field(default_factory=dict)
    wanted: dict[str, dict[str, Any]] = field(default_factory=dict)

    def grade(self, workers: int, sandbox: bool, keep: Path | None) -> list[Row]:
        """Merge, run and judge."""
        self.opening = _solutions(self.master, self._distinct()) | probes(self.master)
        self.notebooks = self.opening | self._hand_ins()
        results = run_kept(Job(self.notebooks, self.master.all, workers=workers, sandbox=sandbox), keep, self._done)
        self._open(results)
        return [row for number, student in enumerate(self.submissions) for row in self._rows(number, student, results)]

    def _distinct(self) -> list[str]:
        return list(dict.fromkeys(self.seeds.values()))

    def _hand_ins(self) -> dict[str, NotebookNode]:
        """The two notebooks of each submission that can be read, with the questions it answers."""
        notebooks = {}
        for number, (student, paths) in enumerate(self.submissions.items()):
            try:
                merged = seeded(merge(self.master, _choose(paths, self.master.section)), self.seeds[student])
            except UnreadableSubmission as error:
                self.refused[student] = str(error)
                continue
            self.found[student] = merged.found
            if merged.answered:
                kinds = {"visible": merged.visible, "hidden": merged.hidden}
                notebooks |= {f"{number}-{kind}": only(merged.answered, kinds[kind]) for kind in kinds}
        return notebooks

    def _done(self, name: str, cells: dict[str, CellResult]) -> None:
        """Say how far it is; refuse to go on as soon as the solution or a probe has scored wrong."""
        self.known[name] = cells
        if name in self.opening and self.opening.keys() <= self.known.keys():
            self._open(self.known)
        self.progress(f"{self.master.section}: {len(self.known)} of {len(self.notebooks)} runs")

    def _open(self, results: Results) -> None:
        self.wanted = _reports(self.master, self._distinct(), results)
        faults = (fault(self.master, results, wanted, number_of(seed)) for seed, wanted in self.wanted.items())
        wrong = next(filter(None, faults), None)
        if wrong:
            raise GradingError(f"{self.master.path}: {wrong}. Nothing is graded until this is mended")

    def _rows(self, number: int, student: str, results: Results) -> list[Row]:
        if student in self.refused:
            return [_row(self.master, student, q, Fraction(0), self.refused[student]) for q in self.master.all]
        cells = _joined(self.master, str(number), results)
        seed = self.seeds[student]
        _compare(self.master, cells, self.wanted[seed], number_of(seed))
        return [_judge(self.master, student, q, self.found[student][q.key], cells) for q in self.master.all]


def _compare(master: Master, cells: dict[str, CellResult], wanted: dict[str, Any], number: int) -> None:
    """Judge every report: here, in the process that holds the reference, and on plain data alone.

    ``number`` is the variant of the worked inputs; a wrong report of one of them gets its hint.
    """
    for question in master.all:
        for check in question.checks:
            result = cells.get(check)
            if result is not None and result.state == "reported":
                result.detail = difference(result.value, wanted[check], question.rel)
                result.state = "match" if result.detail is None else "differs"
        worked = cells.get(question.visible)
        if worked is not None and worked.state == "differs":
            worked.detail = _hint(question, worked, number)


def _joined(master: Master, name: str, results: Results) -> dict[str, CellResult]:
    """The visible run's results, and of the hidden run its checks: its answer cells ran in the visible run as well."""
    cells, run_again = (dict(results.get(f"{name}-{kind}", {})) for kind in ("visible", "hidden"))
    for question in master.all:
        answer = run_again.get(question.answer, CellResult())
        for check in question.hidden:
            result = run_again.get(check, CellResult("not run"))
            cells[check] = CellResult(answer.state) if answer.state in LETHAL and result.error else result
    return cells


def _choose(paths: list[Path], section: str) -> Submission:
    """Return the submission for ``section`` among a student's notebooks: by what it says it is, else by its name.

    Raises:
        UnreadableSubmission: if there is none, or several.
    """
    if not paths:
        raise UnreadableSubmission("no notebook was handed in")
    readable, errors = _read_all(paths)
    named = [(p, s) for p, s in readable if s.section == section or (s.section is None and p.stem.startswith(section))]
    fallback = [(p, s) for p, s in readable if s.section is None] if len(paths) == 1 else []
    chosen = named or fallback
    if len({s.cells for _, s in chosen}) > 1:
        names = ", ".join(p.name for p, _ in chosen)
        raise UnreadableSubmission(f"{len(chosen)} different notebooks for section {section} ({names}); hand in one")
    if not chosen:
        raise UnreadableSubmission(errors[0] if errors else f"no notebook for section {section}")
    return chosen[0][1]


def _read_all(paths: list[Path]) -> tuple[list[tuple[Path, Submission]], list[str]]:
    readable, errors = [], []
    for path in paths:
        try:
            readable.append((path, Submission.read(path)))
        except UnreadableSubmission as error:
            errors.append(f"{path.name}: {error}")
    return readable, errors


def _judge(master: Master, student: str, question: Question, found: str, cells: dict[str, CellResult]) -> Row:
    """Points for the hidden checks that matched if the visible one did; the reason is what went wrong first."""
    if found == "blank":
        return _row(master, student, question, Fraction(0), "blank: the answer cell is as it was handed out")
    answer, visible = (cells.get(name, CellResult("not run")) for name in (question.answer, question.visible))
    hidden = {name: cells[name] for name in question.hidden}
    right = [name for name, result in hidden.items() if result.state == visible.state == "match"]
    points = sum((question.hidden[name] for name in right), Fraction(0))
    if len(right) == len(hidden):
        reason = "right"
    elif found == "missing":
        reason = "missing: the submission has no cell for this answer"
    else:
        first = next(result for result in hidden.values() if result.state != "match" or not right)
        part = f"partly right, {len(right)} of {len(hidden)} graded checks: " if right else ""
        reason = part + _reason(question, answer, visible, first) + blame(question, cells)
    lines = [_check_line(question, name, cells.get(name, CellResult("not run")), answer) for name in question.checks]
    return _row(master, student, question, points, reason, tuple(lines))


def _check_line(question: Question, name: str, result: CellResult, answer: CellResult) -> CheckLine:
    """What its student may read of a check: of a hidden one no value, no error text."""
    states = {"match": "right", "differs": "wrong", "timeout": "timeout", "died": "died", "not run": "not run"}
    state, visible = states.get(result.state or "", "error"), name == question.visible
    words = ""
    if visible and state == "wrong":
        words = result.detail or ""
    elif visible and state != "right":
        words = answer.error or (answer.state and _words(question, answer)) or _words(question, result)
    elif state == "wrong":
        words = question.nudge
    worth = decimal_text(question.hidden[name]) if name in question.hidden else ""
    return CheckLine(name, "visible" if visible else "hidden", state, one_line(words), worth)


def _hint(question: Question, visible: CellResult, number: int) -> str:
    """What the author has to say to this wrong answer to the worked input; else what differs."""
    known, words = explain(question.visible, visible.value, number)
    return words.removeprefix(f"{question.title}: ") if known is False else f"{visible.detail}"


def blame(question: Question, cells: dict[str, CellResult]) -> str:
    """Return, in brackets, that a cell of the student's own did not run to its end; "" if none is at fault."""
    lost = next((cells[name].state for name in cells if name.startswith(OWN) and cells[name].state in LETHAL), None)
    if lost is None or any(cells.get(name, CellResult()).state in LETHAL for name in question.cells):
        return ""
    return f" (a cell of the student's own is left out: {LETHAL[lost]})"


LETHAL = {"died": "it ended the kernel", "timeout": "no end in time", "incomplete": "it was lost in two runs"}
"""States of a cell that was not run to its end, in words."""


def _words(question: Question, result: CellResult) -> str:
    """What came of a cell: its error, or its state in words."""
    why = f"no end within {question.seconds:g} s" if result.state == "timeout" else LETHAL.get(result.state or "")
    return result.error or (f"{result.state}: {why}" if why else result.state or "")


def _reason(question: Question, answer: CellResult, visible: CellResult, hidden: CellResult) -> str:
    """Say what went wrong first: the answer cell, then the worked input, then the graded inputs."""
    if answer.error or answer.state:
        return f"answer cell: {_words(question, answer)}"
    if visible.state == "differs":
        return f"wrong: {visible.detail}"
    if visible.state != "match":
        return f"worked input: {_words(question, visible)}"
    if hidden.state == "differs":
        return f"right for the worked input, wrong for others: {hidden.detail}"
    return f"graded inputs: {_words(question, hidden)}"


def _row(
    master: Master, student: str, question: Question, points: Fraction, reason: str, checks: tuple[CheckLine, ...] = ()
) -> Row:
    facts = {"section": master.section, "title": question.title, "checks": checks}
    return Row(student, question.key, decimal_text(points), decimal_text(question.points), one_line(reason), **facts)
