"""Make the answer key of a section: what its visible checks report, and what known wrong answers report."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from distgen_lab.grading.grade import reference
from distgen_lab.grading.master import Master, MasterError, Question
from distgen_lab.grading.run import CellResult, Job, default_workers, run
from distgen_lab.grading.submission import Submission, merge
from distgen_lab.judging import difference, same
from distgen_lab.plain import REL

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
        MasterError: if a wrong answer reports nothing, what the solution reports, or what another one reports.
    """
    wanted = reference(master, "0")
    rounds = variants(master, "wrong")
    notebooks = {str(k): merge(master, answer_sheet(master, sources)).visible for k, sources in enumerate(rounds)}
    results = run(Job(notebooks, master.all, workers=default_workers(), environment={"DISTGEN_KEY": "off"}))
    key = {}
    for question in master.all:
        seen = [results[str(k)].get(question.visible, CellResult("not run")) for k in range(len(question.wrong))]
        _check_wrong_answers(master, question, wanted[question.visible], seen)
        hints = [{"value": one.value, "hint": wrong.hint} for one, wrong in zip(seen, question.wrong, strict=True)]
        key[question.visible] = _entry(question, wanted[question.visible]) | {"hints": hints}
    path = key_path(master.section)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(key, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return key


def _entry(question: Question, value: Any) -> dict[str, Any]:
    """What the key says of a question, defaults left out."""
    entry = {"title": question.title, "points": float(question.points), "value": value}
    optional = {"rel": REL, "nudge": ""}
    return entry | {
        name: getattr(question, name) for name, default in optional.items() if getattr(question, name) != default
    }


def _check_wrong_answers(master: Master, question: Question, value: Any, seen: list[CellResult]) -> None:
    """Each must report something, and something of its own, or its hint would be shown to the wrong people."""
    where = f"{master.path}: {question.title}"
    for k, result in enumerate(seen, 1):
        if result.state != "reported":
            raise MasterError(f"{where}: wrong answer {k} reports nothing ({result.error or result.state})")
        if difference(result.value, value, question.rel) is None:
            raise MasterError(f"{where}: wrong answer {k} is right for the worked input; choose another worked input")
        for j, other in enumerate(seen[: k - 1], 1):
            if same(result.value, other.value, question.rel):
                raise MasterError(f"{where}: wrong answers {j} and {k} report the same; choose another worked input")
