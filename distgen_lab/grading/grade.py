"""Grade a folder of submissions: one row per student and question, whatever the submissions hold."""

import csv
import io
import json
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from distgen_lab.checks import explain
from distgen_lab.grading.master import Master, Question
from distgen_lab.grading.run import CellResult, Job, run
from distgen_lab.grading.sandbox import why_not
from distgen_lab.grading.submission import Submission, UnreadableSubmission, merge
from distgen_lab.judging import difference

__all__ = ["GradingError", "Row", "blame", "find_submissions", "grade", "reference", "write_grades"]

FIELDS = ("student", "question", "points", "out_of", "reason", "sandbox")
"""Columns of ``grades.csv``."""


class GradingError(RuntimeError):
    """Grading cannot start or its result cannot be written; the message says why and what to do."""


@dataclass(frozen=True)
class Row:
    """One student's result for one question. Points are decimal text; the reason is never empty.

    ``sandbox`` is "no" where the code ran with the rights of whoever graded.
    """

    student: str
    question: str
    points: str
    out_of: str
    reason: str
    sandbox: str = "yes"


def find_submissions(folder: Path) -> dict[str, list[Path]]:
    """Return the notebooks of each student: a folder per student, or a notebook per student.

    Raises:
        GradingError: if the folder is missing or holds neither.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise GradingError(f"{folder} {what}; name the folder that holds one folder or one notebook per student")
    found = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            found[path.name] = sorted(p for p in path.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
        elif path.suffix.lower() == ".ipynb":
            found.setdefault(path.stem, []).append(path)
    if not found:
        raise GradingError(f"{folder}: holds no student folders and no notebooks")
    return found


def reference(master: Master, seed: str, done: Callable[[str], None] = lambda name: None) -> dict[str, Any]:
    """Run the solution with ``seed`` and return what its checks report, by check id.

    Raises:
        GradingError: if a check of the solution itself reports nothing.
    """
    solution = Submission(
        tuple((c.id, c.source) for c in master.notebook.cells if c.cell_type == "code"), master.section
    )
    merged = merge(master, solution)
    results = run(Job({"visible": merged.visible, "hidden": merged.hidden}, master.all, seed=seed, workers=2), done)
    cells = results["visible"] | results["hidden"]
    checks = [check for q in master.all for check in (q.visible, q.hidden)]
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
) -> list[Row]:
    """Grade every student on every master; return rows ordered by student, section and question.

    Raises:
        GradingError: if a solution does not run, or a sandbox is wanted and cannot be had here.
    """
    if sandbox and (missing := why_not()):
        raise GradingError(
            f"{missing}. Grade on a machine where it works, or with --no-sandbox: students' code then runs "
            "with your rights, and every row says so"
        )
    rows: list[Row] = []
    for section, master in masters.items():
        progress(f"{section}: running the solution with seed {seed}")
        wanted = reference(master, seed)
        rows += _grade_section(master, submissions, wanted, seed, workers, progress, sandbox)
    rows = rows if sandbox else [replace(row, sandbox="no") for row in rows]
    return sorted(rows, key=lambda row: row.student)


def _grade_section(
    master: Master,
    submissions: dict[str, list[Path]],
    wanted: dict[str, Any],
    seed: str,
    workers: int,
    progress: Callable[[str], None],
    sandbox: bool,
) -> list[Row]:
    """Merge, run and judge all submissions of one section."""
    found, notebooks, refused = {}, {}, {}
    for number, (student, paths) in enumerate(submissions.items()):
        try:
            merged = merge(master, _choose(paths, master.section))
        except UnreadableSubmission as error:
            refused[student] = str(error)
            continue
        found[student] = (number, merged.found)
        notebooks |= {f"{number}-visible": merged.visible, f"{number}-hidden": merged.hidden}
    finished: set[str] = set()

    def done(name: str) -> None:
        finished.add(name)
        progress(f"{master.section}: {len(finished)} of {len(notebooks)} runs")

    results = run(Job(notebooks, master.all, seed, workers, sandbox=sandbox), done)
    rows = []
    for student in submissions:
        if student in refused:
            rows += [_row(student, q, False, refused[student]) for q in master.all]
            continue
        number, states = found[student]
        cells = results[f"{number}-visible"] | _graded_cells(results[f"{number}-hidden"])
        _compare(master, cells, wanted)
        rows += [_judge(student, q, states[q.key], cells) for q in master.all]
    return rows


def _compare(master: Master, cells: dict[str, CellResult], wanted: dict[str, Any]) -> None:
    """Judge every report: here, in the process that holds the reference, and on plain data alone."""
    for question in master.all:
        for check in (question.visible, question.hidden):
            result = cells.get(check)
            if result is not None and result.state == "reported":
                result.detail = difference(result.value, wanted[check], question.rel)
                result.state = "match" if result.detail is None else "differs"


def _graded_cells(cells: dict[str, CellResult]) -> dict[str, CellResult]:
    """Of the hidden run only the hidden checks: its answer cells ran in the visible run as well."""
    return {name: result for name, result in cells.items() if name.endswith("-hidden")}


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


def _judge(student: str, question: Question, found: str, cells: dict[str, CellResult]) -> Row:
    """Full points if both checks matched; else none, and the first thing that went wrong as the reason."""
    if found == "blank":
        return _row(student, question, False, "blank: the answer cell is as it was handed out")
    answer, visible, hidden = (cells.get(name, CellResult("not run")) for name in _cells(question))
    if visible.state == hidden.state == "match":
        return _row(student, question, True, "right")
    if found == "missing":
        return _row(student, question, False, "missing: the submission has no cell for this answer")
    return _row(student, question, False, _reason(question, answer, visible, hidden) + blame(question, cells))


def blame(question: Question, cells: dict[str, CellResult]) -> str:
    """Return, in brackets, which cell ended the kernel before this question was reached; "" if none did."""
    fatal = next((name for name, result in cells.items() if result.state in ("died", "timeout", "incomplete")), None)
    own = fatal in _cells(question) or cells.get(question.answer, CellResult("not run")).state != "not run"
    return "" if fatal is None or own else f" (the kernel ended in {fatal}: {cells[fatal].state})"


def _cells(question: Question) -> tuple[str, str, str]:
    return question.answer, question.visible, question.hidden


def _reason(question: Question, answer: CellResult, visible: CellResult, hidden: CellResult) -> str:
    """Say what went wrong first: the answer cell, then the worked input, then the graded inputs."""
    if answer.error or answer.state:
        return f"answer cell: {answer.error or answer.state}"
    if visible.state == "differs":
        known, words = explain(question.visible, visible.value)
        hint = words.removeprefix(f"{question.title}: ") if known is False else f"{visible.detail}"
        return f"wrong: {hint}"
    if visible.state != "match":
        return f"worked input: {visible.error or visible.state}"
    if hidden.state == "differs":
        return f"right for the worked input, wrong for others: {hidden.detail}"
    return f"graded inputs: {hidden.error or hidden.state}"


def _row(student: str, question: Question, right: bool, reason: str) -> Row:
    points = question.points if right else Fraction(0)
    return Row(student, question.key, _decimal(points), _decimal(question.points), _one_line(reason))


def _decimal(points: Fraction) -> str:
    """Points as decimal text, rounded once, to two places."""
    exact = Decimal(points.numerator) / Decimal(points.denominator)
    return format(exact.quantize(Decimal("0.01")).normalize(), "f")


def _one_line(text: str, limit: int = 300) -> str:
    """Printable text on one line: a student's error message ends up here."""
    return re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in text)).strip()[:limit]


def write_grades(rows: list[Row], out: Path) -> None:
    """Write ``grades.csv`` and ``grades.json`` into ``out``, whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(FIELDS)
    writer.writerows([_safe_cell(value) for value in asdict(row).values()] for row in rows)
    totals = _totals(rows)
    text = json.dumps({"totals": totals, "rows": [asdict(row) for row in rows]}, indent=1, ensure_ascii=False)
    for name, content in (("grades.csv", table.getvalue()), ("grades.json", text + "\n")):
        _write_whole(out / name, content)


def _safe_cell(text: str) -> str:
    """Keep a spreadsheet from reading a student's text as a formula."""
    return "'" + text if text[:1] in ("=", "+", "-", "@", "\t") else text


def _totals(rows: list[Row]) -> dict[str, dict[str, str]]:
    """Points and maximum per student."""
    totals: dict[str, list[Decimal]] = {}
    for row in rows:
        entry = totals.setdefault(row.student, [Decimal(0), Decimal(0)])
        entry[0] += Decimal(row.points)
        entry[1] += Decimal(row.out_of)
    return {student: {"points": str(got), "out_of": str(most)} for student, (got, most) in totals.items()}


def _write_whole(path: Path, content: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8", newline="") as file:
        file.write(content)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)
