"""Make the answer key of a section: what its visible checks report, and what known wrong answers report."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from distgen_lab.grading.grade import reference
from distgen_lab.grading.master import Master, MasterError, Question
from distgen_lab.grading.run import Job, default_workers, run
from distgen_lab.grading.submission import Submission, merge
from distgen_lab.plain import REL, difference

__all__ = ["answer_sheet", "key_path", "make_key", "variants"]


def key_path(section: str) -> Path:
    """Return where the key of a section lies, in the library's data."""
    return Path(str(files("distgen_lab"))) / "data" / "key" / f"{section}.json"


def answer_sheet(master: Master, answers: dict[str, str]) -> Submission:
    """Return a submission that answers each question (by key) with the given source, the others with the solution."""
    cells = ((q.answer, answers.get(q.key, master.cell(q.answer).source)) for q in master.all)
    return Submission(tuple(cells), master.section)


def variants(master: Master, kind: str) -> list[dict[str, str]]:
    """Return answer sources such that the k-th entry holds the k-th ``wrong`` or ``other`` answer of every question."""
    lists = {q.key: [getattr(a, "source", a) for a in getattr(q, kind)] for q in master.all}
    most = max((len(sources) for sources in lists.values()), default=0)
    return [{key: sources[k] for key, sources in lists.items() if k < len(sources)} for k in range(most)]


def make_key(master: Master) -> dict[str, Any]:
    """Run the solution and each wrong answer; write and return the key of the section's visible checks.

    Raises:
        MasterError: if a wrong answer reports nothing, or reports what the solution reports.
    """
    wanted = reference(master, "0")
    rounds = variants(master, "wrong")
    notebooks = {str(k): merge(master, answer_sheet(master, sources)).visible for k, sources in enumerate(rounds)}
    results = run(Job(notebooks, master.all, workers=default_workers(), environment={"DISTGEN_KEY": "off"}))
    key = {}
    for question in master.all:
        entry = {"title": question.title, "points": float(question.points), "value": wanted[question.visible]}
        entry |= {"rel": question.rel} if question.rel != REL else {}
        entry |= {"seconds": question.seconds} if question.seconds != Question.seconds else {}
        entry |= {"nudge": question.nudge} if question.nudge else {}
        hints = []
        for k, wrong in enumerate(question.wrong):
            result = results[str(k)].get(question.visible)
            if result is None or result.state != "reported":
                why = (result and (result.error or result.state)) or "not run"
                raise MasterError(f"{master.path}: {question.title}: wrong answer {k + 1} reports nothing ({why})")
            if difference(result.value, entry["value"], question.rel) is None:
                raise MasterError(
                    f"{master.path}: {question.title}: wrong answer {k + 1} is right for the worked input"
                )
            hints.append({"value": result.value, "hint": wrong.hint})
        key[question.visible] = entry | {"hints": hints}
    path = key_path(master.section)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(key, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return key
