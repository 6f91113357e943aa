"""Make the answer key of a section: what its visible checks report, and what known wrong answers report."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from distgen_lab.grading.grade import references
from distgen_lab.grading.master import Master, MasterError, Question
from distgen_lab.grading.run import CellResult, Job, default_workers, run
from distgen_lab.grading.submission import Submission, merge, only
from distgen_lab.grading.variants import choices, seeded
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
        GradingError: if a check of the solution itself reports nothing.
    """
    inputs = choices(master)
    seeds = [f"0/bundle-{number}" for number in range(max(inputs.values()))]
    solved, results = references(master, seeds[:1])[seeds[0]], _run_known(master, seeds, inputs)
    key = {}
    for question in master.all:
        values = [solved[question.visible]]
        values += [_reported(master, question, results[seed][0]) for seed in seeds[1 : inputs[question.key]]]
        entries = [
            _known(master, question, value, results[seed][1:]) for value, seed in zip(values, seeds, strict=False)
        ]
        others = {"variants": entries[1:]} if entries[1:] else {}
        key[question.visible] = _entry(question, entries[0].pop("value")) | entries[0] | others
    path = key_path(master.section)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(key, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return key


def _known(master: Master, question: Question, value: Any, runs: list[dict[str, CellResult]]) -> dict[str, Any]:
    """What the key says of one worked input: the solution's report, and each wrong answer's with its hint."""
    seen = [cells.get(question.visible, CellResult("not run")) for cells in runs[: len(question.wrong)]]
    _check_wrong_answers(master, question, value, seen)
    hints = [{"value": one.value, "hint": wrong.hint} for one, wrong in zip(seen, question.wrong, strict=True)]
    return {"value": value, "hints": hints}


def _run_known(master: Master, seeds: list[str], inputs: dict[str, int]) -> dict[str, list[dict[str, CellResult]]]:
    """Run the solution and the k-th wrong answers of all questions with each seed; return the cells by seed, in order.

    With the first seed the solution is left out, with the others every question that has no worked input of its own
    for them: its answers are known already, and a section may take a minute.
    """
    sheets = [answer_sheet(master, sources) for sources in ({}, *variants(master, "wrong"))]
    notebooks = {}
    for number, seed in enumerate(seeds):
        asked = {key for key, count in inputs.items() if count > number}
        for k in range(0 if number else 1, len(sheets)):
            notebooks[f"{number}-{k}"] = only(asked, seeded(merge(master, sheets[k]), seed).visible)
    results = run(Job(notebooks, master.all, workers=default_workers(), environment={"DISTGEN_KEY": "off"}))
    return {seed: [results.get(f"{n}-{k}", {}) for k, _ in enumerate(sheets)] for n, seed in enumerate(seeds)}


def _reported(master: Master, question: Question, cells: dict[str, CellResult]) -> Any:
    """What the solution reported of a further worked input."""
    result = cells.get(question.visible, CellResult("not run"))
    if result.state != "reported":
        why = result.error or result.state
        raise MasterError(f"{master.path}: {question.title}: a further worked input makes the solution fail ({why})")
    return result.value


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
