"""Run one student's notebook again and show what each check of one question got beside what was expected."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from pprint import pformat
from typing import Any

from distgen_lab.grading.assess import Settings
from distgen_lab.grading.collect import HandIn, choose, collect
from distgen_lab.grading.grade import references
from distgen_lab.grading.gradebook import GradingError, Row
from distgen_lab.grading.master import Master, Question
from distgen_lab.grading.roster import Roster, tie
from distgen_lab.grading.run import CellResult, Job, run
from distgen_lab.grading.submission import Submission, merge
from distgen_lab.grading.variants import seeded
from distgen_lab.judging import difference

__all__ = ["inspect_answer"]

LONGEST = 4000
"""Characters shown of one value."""


def inspect_answer(master: Master, settings: Settings, row: Row) -> str:
    """Return the answer's source and, for each check, what it reported and what the solution reports.

    Raises:
        GradingError: if the student's notebook is no longer there.
    """
    question = master.questions[row.question]
    with tempfile.TemporaryDirectory(prefix="distgen-collect-") as work:
        submission = _submission(master, settings, row.student, Path(work))
    seed = settings.seeds([row.student])[row.student]
    merged = seeded(merge(master, submission), seed)
    notebooks = {"visible": merged.visible, "hidden": merged.hidden}
    results = run(Job(notebooks, master.all, workers=2, sandbox=settings.sandbox))
    wanted = references(master, [seed])[seed]
    source = next((c.source for c in merged.visible.cells if c.id == question.answer), "")
    head = f"{row.student}, {question.title}: {row.total} of {row.out_of} points ({row.reason})"
    parts = [head, "The answer:", _indented(source)]
    for check in question.checks:
        parts += _check(question, check, results["visible" if check == question.visible else "hidden"], wanted)
    return "\n".join(parts)


def _submission(master: Master, settings: Settings, student: str, work: Path) -> Submission:
    """The notebook that counted for the student."""
    hand_ins: Mapping[str, HandIn] = collect(Path(settings.submissions), work)
    people = settings.people()
    if people:
        hand_ins = tie(Roster(tuple(people.values())), dict(hand_ins)).hand_ins
    paths = choose(hand_ins[student], [master.section]).paths if student in hand_ins else []
    for path in paths:
        submission = Submission.read(path)
        if submission.section == master.section or path.stem.startswith(master.section) or len(paths) == 1:
            return submission
    raise GradingError(f"{settings.submissions}: no notebook of {student} for {master.section} is there")


def _check(question: Question, check: str, cells: Mapping[str, CellResult], wanted: Mapping[str, Any]) -> list[str]:
    result = cells.get(check, CellResult("not run"))
    answer = cells.get(question.answer, CellResult("not run"))
    if result.state != "reported":
        return [
            f"{check}: {answer.error or answer.state or result.error or result.state}",
            "expected:",
            _shown(wanted[check]),
        ]
    found = difference(result.value, wanted[check], question.rel)
    if found is None:
        return [f"{check}: right", _shown(result.value)]
    return [f"{check}: {found}", "got:", _shown(result.value), "expected:", _shown(wanted[check])]


def _shown(value: Any) -> str:
    text = pformat(value, width=110, compact=True, sort_dicts=False)
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text)} characters)"
    return _indented(cut)


def _indented(text: str) -> str:
    printable = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    return "\n".join(f"    {line}" for line in printable.splitlines())
