"""``distgen check``: run a student's own notebook from top to bottom in a fresh kernel and answer in words."""

from pathlib import Path

from nbformat.v4 import new_code_cell, new_notebook

from distgen_lab.checks import answer_key, explain
from distgen_lab.grading.master import Question
from distgen_lab.grading.run import CellResult, Job, run
from distgen_lab.grading.submission import Submission, UnreadableSubmission

__all__ = ["feedback"]


def feedback(path: Path) -> tuple[list[str], int, int]:
    """Return one sentence for each question of the notebook, the number that are right, and the number of questions.

    Raises:
        UnreadableSubmission: if the file is no exercise notebook of the course.
    """
    if not path.exists():
        raise UnreadableSubmission(f"{path}: no such file")
    try:
        submission = Submission.read(path)
    except UnreadableSubmission as error:
        raise UnreadableSubmission(f"{path}: {error}") from error
    key = answer_key(submission.section or path.stem)
    if not key:
        raise UnreadableSubmission(
            f"{path}: not an exercise of the course (section {submission.section or path.stem!r})"
        )
    cells = _run(submission, key)
    lines = [_sentence(check, entry, cells) for check, entry in key.items()]
    return [text for _, text in lines], sum(right for right, _ in lines), len(lines)


def _run(submission: Submission, key: dict[str, dict]) -> dict[str, CellResult]:
    """Run all code cells as they are; only the first cell of each check's id counts as that check."""
    notebook, seen = new_notebook(), set()
    for name, source in submission.cells:
        named = name in key or (name or "").endswith("-answer")
        cell = new_code_cell(source, **({"id": name} if named and name not in seen else {}))
        if cell.id in key:
            cell.metadata["distgen"] = {"role": "visible"}
        seen.add(name)
        notebook.cells.append(cell)
    questions = [Question(check, seconds=entry.get("seconds", 20.0), visible=check) for check, entry in key.items()]
    return run(Job({"notebook": notebook}, questions))["notebook"]


def _sentence(check: str, entry: dict, cells: dict[str, CellResult]) -> tuple[bool, str]:
    """Whether the question is right, and one sentence about it."""
    result, answer = cells.get(check), cells.get(check.replace("-visible", "-answer"))
    if result is None:
        return False, f"{entry['title']}: the check cell {check} is not in the notebook; take it from a fresh copy"
    if result.state == "reported":
        right, words = explain(check, result.value)
        return bool(right), words
    if result.error and result.error.startswith("NotImplementedError"):
        return False, f"{entry['title']}: not answered yet"
    why = (
        (answer and answer.error)
        or result.error
        or {"timeout": f"no end within the time limit of {check}"}.get(result.state or "", result.state)
    )
    return False, f"{entry['title']}: {why}"
