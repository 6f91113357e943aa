"""Other programs read our notebooks: nbgrader makes and grades them; plain nbval tells a student which cells fail."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from distgen_lab.cli import main
from distgen_lab.course import course_root
from distgen_lab.grading.master import Master
from tests.grading.conftest import NO_SANDBOX

COURSE = course_root()
SECTION = "01_scale_arithmetic"
WRONG = "q1-2"
"""The question that the half-answered notebook gets wrong; of the others it answers the first five."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def section():
    return Master(COURSE / "solutions" / f"{SECTION}.ipynb")


def outside():
    """The environment of a person's terminal: no trace of pytest or of a grader."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "DISTGEN", "JPY"))}
    return own | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), own["PATH"]])}


def answered(notebook, section, keys, wrong=()):
    """The notebook with the solution's answers to some questions and known wrong answers to others."""
    given = {section.questions[key].answer: section.cell(section.questions[key].answer).source for key in keys}
    given |= {section.questions[key].answer: section.questions[key].wrong[0].source for key in wrong}
    notebook = nbformat.from_dict(notebook)
    for cell in notebook.cells:
        cell.source = given.get(cell.id, cell.source)
    return notebook


@pytest.fixture(scope="module")
def nbgrader(section, tmp_path_factory):
    """A course for nbgrader, generated, with three students collected and autograded."""
    pytest.importorskip("nbgrader", reason="nbgrader is not installed: pip install -e '.[test]' brings it")
    course = tmp_path_factory.mktemp("nbgrader") / "course"
    assert main(["release", str(course), "--nbgrader", "--quick", "--section", SECTION, "--course", str(COURSE)]) == 0

    def run(*words):
        done = subprocess.run(["nbgrader", *words], cwd=course, env=outside(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]

    run("generate_assignment", SECTION)
    released = nbformat.read(course / "release" / SECTION / f"{SECTION}.ipynb", as_version=4)
    keys = list(section.questions)
    students = {"solution": keys, "blank": [], "half": keys[:5]}
    for student, right in students.items():
        folder = course / "submitted" / student / SECTION
        folder.mkdir(parents=True)
        wrong = [WRONG] if student == "half" else []
        nbformat.write(answered(released, section, right, wrong), folder / f"{SECTION}.ipynb")
    run("autograde", SECTION)
    return course


def test_what_nbgrader_hands_out_holds_no_secret(nbgrader, section):
    text = (nbgrader / "release" / SECTION / f"{SECTION}.ipynb").read_text("utf-8")
    cells = nbformat.reads(text, as_version=4).cells
    source = "\n".join(cell.source for cell in cells)
    assert [line for line in section.secrets() if line in source] == []
    assert "SOLUTION" not in source and "HIDDEN TESTS" not in source
    ids = [cell.id for cell in cells if "nbgrader" in cell.metadata]
    assert ids == [name for q in section.all for name in q.cells]


def test_nbgrader_gives_the_solution_full_points_and_the_blank_none(nbgrader, section):
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{nbgrader / 'gradebook.db'}") as book:
        found = {name: book.find_submission(SECTION, name) for name in ("solution", "blank", "half")}
        scores = {name: (one.score, one.max_score) for name, one in found.items()}
    some = sum(section.questions[key].points for key in list(section.questions)[:5] if key != WRONG)
    assert scores == {"solution": (100, 100), "blank": (0, 100), "half": (float(some), 100)}


def test_hidden_checks_fail_under_nbgrader_and_say_where_points_come_from(nbgrader, section):
    path = nbgrader / "autograded" / "solution" / SECTION / f"{SECTION}.ipynb"
    cells = {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}
    for question in section.all:
        assert [out for out in cells[question.visible].outputs if out.output_type == "error"] == []
        for check in question.hidden:
            [error] = [out for out in cells[check].outputs if out.output_type == "error"]
            words = f"{check} found no judge here; trusted points come only from distgen grade"
            assert (error.ename, error.evalue) == ("CheckFailed", words)


def test_distgen_grades_what_nbgrader_collected(nbgrader, section, tmp_path):
    options = ["--no-sandbox"] if NO_SANDBOX else []
    arguments = [str(nbgrader / "submitted"), "--out", str(tmp_path / "out"), "--section", SECTION, *options]
    arguments += ["--course", str(COURSE)]
    assert main(["grade", *arguments]) == 0
    totals = json.loads((tmp_path / "out" / "grades.json").read_text("utf-8"))["totals"]
    some = sum(section.questions[key].points for key in list(section.questions)[:5] if key != WRONG)
    assert {name: float(entry["points"]) for name, entry in totals.items()} == {
        "solution": 100, "blank": 0, "half": some
    }  # fmt: skip


# ---------------------------------------------------------------------------------- a student's own two commands


@pytest.fixture(scope="module")
def half(section, tmp_path_factory):
    """An exercise notebook of a student half way: five questions answered, one of them wrong."""
    path = tmp_path_factory.mktemp("student") / "exercises" / f"{SECTION}.ipynb"
    path.parent.mkdir()
    nbformat.write(answered(section.student_version(), section, list(section.questions)[:5], [WRONG]), path)
    return path


def test_nbval_lax_tells_a_student_which_cells_fail(half, section):
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "-p", "no:cacheprovider", str(half)]
    done = subprocess.run(command, cwd=half.parent, env=outside(), capture_output=True, text=True)
    keys = list(section.questions)
    failing = {section.questions[key].visible for key in [*keys[5:], WRONG]}
    code = [cell for cell in nbformat.read(half, as_version=4).cells if cell.cell_type == "code"]
    wanted = {f"Cell {number}" for number, cell in enumerate(code) if cell.id in failing}
    found = set(re.findall(r"FAILED .*::(Cell \d+)", done.stdout))
    assert done.returncode == 1 and found == wanted
    assert f"{len(wanted)} failed, {len(code) - len(wanted)} passed" in done.stdout
    assert f"CheckFailed: {section.questions[WRONG].title}: {section.questions[WRONG].wrong[0].hint}" in done.stdout
    assert all(f"{section.questions[key].title}: your code here" in done.stdout for key in keys[5:])


def test_distgen_check_says_it_in_words(half, section, capsys):
    assert main(["check", str(half)]) == 1
    lines = capsys.readouterr().out.splitlines()
    for question, line in zip(section.all, lines[:-1], strict=True):
        number = list(section.questions).index(question.key)
        right = f"{question.title}: right."
        hint = f"{question.title}: {question.wrong[0].hint}"
        said = hint if question.key == WRONG else right if number < 5 else f"{question.title}: not answered yet"
        assert line == said
    assert lines[-1] == f"4 of {len(section.all)} questions are right for the worked input."
