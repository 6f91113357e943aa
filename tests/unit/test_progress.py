"""How far a student is: nothing is run where nothing was answered, and what counts are the answers, not old outputs."""

import shutil
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_output

from distgen_lab import course
from distgen_lab import progress as module
from distgen_lab.checks import MIME
from distgen_lab.cli import main
from distgen_lab.grading.feedback import exercises
from distgen_lab.grading.master import Master
from distgen_lab.progress import Progress, Standing, progress, standings

SECTION = "01_scale_arithmetic"


@pytest.fixture
def folder(tmp_path):
    """A folder with the exercises as they are handed out."""
    for path in exercises().values():
        shutil.copy(path, tmp_path)
    return tmp_path


def answer(path: Path, source: str, question: int = 0) -> None:
    notebook = nbformat.read(path, as_version=4)
    cells = [c for c in notebook.cells if c.metadata.get("distgen", {}).get("role") == "answer"]
    cells[question].source = source
    nbformat.write(notebook, path)


def test_blank_exercises_are_not_run(folder, monkeypatch):
    monkeypatch.setattr(module, "feedback", lambda path: pytest.fail(f"{path} was run"))
    found = list(standings(folder))
    assert [row.section for row in found] == list(exercises())
    assert all((row.right, row.answered, row.next_step) == (0, 0, "not started") for row in found)
    assert [row.total for row in found] == [len(Master(p, released=True).all) for p in exercises().values()]


def test_a_stored_output_counts_for_nothing(folder, monkeypatch):
    path = folder / f"{SECTION}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.metadata.get("distgen", {}).get("role") == "visible":
            cell.outputs = [new_output("display_data", {MIME: {"id": cell.id, "value": 1}, "text/plain": "right."})]
    nbformat.write(notebook, path)
    assert next(standings(folder, ["01"])).right == 0


def test_a_missing_and_a_broken_notebook_do_not_stop_the_others(folder):
    (folder / f"{SECTION}.ipynb").unlink()
    (folder / "02_gpu_hierarchy.ipynb").write_text("{", encoding="utf-8")
    first, second, third, *_ = standings(folder)
    assert "is not in" in first.next_step and "not JSON" in second.next_step and third.next_step == "not started"
    assert first.total == 0 or first.right == 0


@pytest.mark.slow
def test_a_right_and_a_wrong_answer_are_run_and_told_apart(folder, repo, capsys):
    master = Master(repo / "solutions" / f"{SECTION}.ipynb")
    path, questions = folder / f"{SECTION}.ipynb", list(master.questions.values())
    answer(path, master.cell(questions[0].answer).source)
    answer(path, questions[1].wrong[0].source, 1)
    assert main(["progress", "1", "--folder", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert f"1 of {len(questions)} questions are right" in out and SECTION in err
    assert "■▫" in out and questions[1].wrong[0].hint[:40] in out


def test_an_unknown_section_is_named(folder, capsys):
    assert main(["progress", "12", "--folder", str(folder)]) == 2
    assert "no section is called 12" in capsys.readouterr().err


def test_the_cells_function_looks_at_the_course_it_is_in(folder, monkeypatch, capsys):
    root = folder / "course"
    (root / "notebooks").mkdir(parents=True)
    shutil.copytree(folder, root / "exercises", ignore=shutil.ignore_patterns("course"))
    monkeypatch.chdir(root / "notebooks")
    table = course.progress("02", "03")
    assert [row.section for row in table.rows] == ["02_gpu_hierarchy", "03_topologies"]
    assert "02_gpu_hierarchy: 0 of" in capsys.readouterr().out


def test_the_table_says_the_same_in_both_forms():
    rows = (
        Standing("01", 2, 3, 4, ("Exercise 1.1: right.", "Exercise 1.2: right.", "Exercise 1.3: <too> large.")),
        Standing("02", 1, 1, 1, ("Exercise 2.1: right.",)),
    )
    table = Progress(rows)
    assert "■■▫□" in repr(table) and "Exercise 1.3: <too> large." in repr(table) and "3 of 5 questions" in repr(table)
    assert "&lt;too&gt;" in table._repr_html_() and rows[1].next_step == "done"
    assert progress(Path("/nonexistent"), ["01"]).rows[0].problem
