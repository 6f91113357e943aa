"""``distgen check``: run a student's answers in a fresh kernel, as grading will, and answer in words."""

from importlib.resources import as_file, files
from pathlib import Path

from distgen_lab.checks import VARIANT_VARIABLE, explain, variant
from distgen_lab.grading.grade import blame
from distgen_lab.grading.master import Master, Question
from distgen_lab.grading.run import CellResult, Job, run
from distgen_lab.grading.submission import Submission, UnreadableSubmission, merge, only

__all__ = ["exercises", "feedback"]


def exercises() -> dict[str, Path]:
    """Return the exercise notebooks that travel with the library, as they were handed out, by section."""
    with as_file(files("distgen_lab") / "data" / "exercises") as folder:
        return {path.stem: path for path in sorted(folder.glob("*.ipynb"))}


def feedback(path: Path) -> tuple[list[str], int, int]:
    """Return one sentence for each question of the notebook, the number that are right, and the number of questions.

    The answers are put into the exercise as it was handed out, so deleted or edited checks make no difference.

    Raises:
        UnreadableSubmission: if the file is no exercise notebook of the course.
    """
    if not path.exists():
        raise UnreadableSubmission(f"{path}: no such file")
    try:
        submission = Submission.read(path)
    except UnreadableSubmission as error:
        raise UnreadableSubmission(f"{path}: {error}") from error
    master = _exercise(path, submission)
    merged = merge(master, submission)
    if set(merged.found.values()) == {"missing"}:
        raise UnreadableSubmission(f"{path}: holds no answer cell of {master.section}; is it an exercise notebook?")
    own = {VARIANT_VARIABLE: str(variant())}  # the worker imports the installed library, which may be another bundle
    asked = {"notebook": only(merged.answered, merged.visible)} if merged.answered else {}
    cells = run(Job(asked, master.all, environment=own)).get("notebook", {})
    lines = [_sentence(question, merged.found[question.key], cells) for question in master.all]
    return [text for _, text in lines], sum(right for right, _ in lines), len(lines)


def _exercise(path: Path, submission: Submission) -> Master:
    """The exercise as it was handed out: by what the notebook says it is, else by its name."""
    known, section = exercises(), submission.section or path.stem
    if section not in known:
        raise UnreadableSubmission(f"{path}: {section!r} is no section with exercises; there are: {', '.join(known)}")
    return Master(known[section], released=True)


def _sentence(question: Question, found: str, cells: dict[str, CellResult]) -> tuple[bool, str]:
    """Whether the question is right, and one sentence about it."""
    missing = CellResult("not run")
    answer, check = cells.get(question.answer, missing), cells.get(question.visible, missing)
    if found in ("blank", "missing"):
        words = "not answered yet" if found == "blank" else "its answer cell is not in the notebook"
        return False, f"{question.title}: {words}"
    if check.state == "reported":
        right, words = explain(question.visible, check.value)
        return bool(right), words
    why = answer.error or answer.state or check.error or check.state or "no report"
    limit = f"no end within {question.seconds:g} s" if why == "timeout" else why
    return False, f"{question.title}: {limit}{blame(question, cells)}"
