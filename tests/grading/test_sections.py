"""Every section of the course: the solution scores full, the blank 0, each known wrong answer loses its question."""

import csv
import json

import nbformat
import pytest

from distgen_lab.cli import main
from distgen_lab.course import course_root
from distgen_lab.grading.key import key_path, variants
from distgen_lab.grading.master import Master
from distgen_lab.grading.sandbox import why_not

SOLUTIONS = sorted((course_root() / "solutions").glob("*.ipynb"))
pytestmark = pytest.mark.slow


def answered(master, answers):
    """The exercise notebook with the given answers; the solution's answer where none is given."""
    notebook = master.student_version()
    for cell in notebook.cells:
        if cell.metadata.get("distgen", {}).get("role") == "answer":
            cell.source = answers.get(cell.metadata.distgen.question, master.cell(cell.id).source)
    return notebook


@pytest.fixture(scope="module", params=SOLUTIONS, ids=lambda path: path.stem)
def section(request, tmp_path_factory):
    """A section's master and the graded rows of its solution, blank, wrong and other answers, in one batch."""
    master, folder = Master(request.param), tmp_path_factory.mktemp("class")
    students = {"solution": answered(master, {}), "blank": master.student_version()}
    students |= {f"wrong-{k}": answered(master, a) for k, a in enumerate(variants(master, "wrong"))}
    students |= {f"other-{k}": answered(master, a) for k, a in enumerate(variants(master, "other"))}
    for student, notebook in students.items():
        (folder / "in" / student).mkdir(parents=True)
        nbformat.write(notebook, folder / "in" / student / request.param.name)
    options = ["--no-sandbox"] if why_not() else []
    assert (
        main(
            [
                "grade",
                str(folder / "in"),
                "--out",
                str(folder / "out"),
                "--seed",
                "a class",
                "--variants",
                "1",
                *options,
            ]
        )
        == 0
    )
    return master, folder / "out"


def rows(folder):
    with open(folder / "grades.csv", encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    return {(row["student"], row["question"]): row for row in table}


def test_solution_scores_full(section):
    master, out = section
    graded = rows(out)
    assert sum(float(graded["solution", key]["points"]) for key in master.questions) == 100


def test_blank_scores_nothing(section):
    master, out = section
    assert {rows(out)["blank", key]["points"] for key in master.questions} == {"0"}


def test_each_wrong_answer_loses_exactly_its_question_and_shows_its_hint(section):
    master, out = section
    graded = rows(out)
    for k, answers in enumerate(variants(master, "wrong")):
        for key, question in master.questions.items():
            row = graded[f"wrong-{k}", key]
            if key in answers:
                assert (row["points"], row["reason"]) == ("0", f"wrong: {question.wrong[k].hint}"[:300])
            else:
                assert row["points"] == row["out_of"]


def test_other_right_answers_score_full(section):
    master, out = section
    graded = rows(out)
    for k, _ in enumerate(variants(master, "other")):
        lost = [graded[f"other-{k}", q] for q in master.questions if graded[f"other-{k}", q]["reason"] != "right"]
        assert lost == []


def test_json_holds_the_same_rows_and_totals(section):
    _, out = section
    data = json.loads((out / "grades.json").read_text("utf-8"))
    assert [(row["student"], row["question"]) for row in data["rows"]] == list(rows(out))
    assert data["totals"]["solution"] == {"points": "100", "out_of": "100"}


def test_report_differs_between_solution_and_every_wrong_answer(section):
    master, _ = section
    key = json.loads(key_path(master.section).read_text("utf-8"))
    for entry in key.values():
        reports = [entry["value"], *(hint["value"] for hint in entry["hints"])]
        assert len({json.dumps(report) for report in reports}) == len(reports)
        assert not any(isinstance(report, bool) for report in reports)
