"""The engine around the runs: partial credit, resuming, proving itself, and workers that are lost."""

import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from distgen_lab.grading import grade as grading
from distgen_lab.grading import resume, run, sandbox
from distgen_lab.grading.grade import GradingError, grade
from distgen_lab.grading.master import Master, MasterError
from distgen_lab.grading.submission import Submission, bound_names, merge
from distgen_lab.notebooks import write
from tests.grading.conftest import RIGHT, question_cells

pytestmark = pytest.mark.slow


def shared_master(folder, points=(None, None)):
    """A master with one question whose two hidden checks look at small and at large numbers."""
    cells = [new_markdown_cell("# Chapter section 8: test", id="t-title"), new_code_cell("import math", id="t-setup")]
    cells += question_cells("q9-1", 1)
    second = new_code_cell(cells[4].source.replace("q9-1-hidden", "q9-1-large").replace("(2, 9)", "(100, 900)"))
    second.id, second.metadata = "q9-1-large", json.loads(json.dumps(cells[4].metadata))
    cells.insert(5, second)
    for cell, worth in zip(cells[4:6], points, strict=True):
        cell.metadata["distgen"] |= {} if worth is None else {"points": worth}
    write(new_notebook(cells=cells, metadata={"distgen": {"section": "08_test"}}), folder / "08_test.ipynb")
    return Master(folder / "08_test.ipynb")


def hand_in(master, folder, answers):
    """Write one notebook per student; return what ``grade`` takes."""
    found = {}
    for student, source in answers.items():
        notebook = master.student_version()
        for cell in notebook.cells:
            cell.source = source if cell.id.endswith("-answer") else cell.source
        nbformat.write(notebook, folder / f"{student}.ipynb")
        found[student] = [folder / f"{student}.ipynb"]
    return found


def test_points_are_shared_by_the_hidden_checks(tmp_path):
    master = shared_master(tmp_path, (4, 6))
    answers = {
        "all": "def double(x):\n    return 2 * x",
        "small": "def double(x):\n    return 2 * x if x < 50 else 0",
        "large": "def double(x):\n    return 2 * x if x == 4 or x > 50 else 0",
        "not_the_worked_one": "def double(x):\n    return 2 * x if x > 50 else 0",
        "dies_on_large": "import os\ndef double(x):\n    return 2 * x if x < 50 else os._exit(1)",
    }
    rows = {row.student: row for row in grade({"08": master}, hand_in(master, tmp_path, answers), sandbox=False)}
    assert {student: row.points for student, row in rows.items()} == {
        **{"all": "10", "small": "4", "large": "6", "not_the_worked_one": "0", "dies_on_large": "4"}
    }
    assert "partly right, 1 of 2 graded checks" in rows["small"].reason
    assert [line.state for line in rows["dies_on_large"].checks] == ["right", "right", "died"]


def test_shares_are_equal_unless_said_and_must_add_up(tmp_path):
    assert shared_master(tmp_path).questions["q9-1"].hidden == {"q9-1-hidden": Fraction(5), "q9-1-large": Fraction(5)}
    for wrong in ((4, 4), (10, None), (12, -2)):
        with pytest.raises(MasterError, match="q9-1 is worth 10, its hidden checks earn"):
            shared_master(tmp_path, wrong)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("sum = 0\nfor max in range(3):\n    sum += max", {"sum", "max"}),
        ("import numpy as np\ndef list(x):\n    len = 3\n    return [id for id in x]", {"np", "list"}),
        ("if True:\n    print = None", {"print"}),
        ("sum(", set()),
    ],
)
def test_names_a_cell_binds_are_those_python_binds(source, names):
    assert bound_names(source) == names
    if names:
        space = {}
        exec(source, space)
        assert space.keys() - {"__builtins__"} == names


@pytest.fixture
def course(master, tmp_path):
    """A course folder whose one section is the test master, and six students whose answers take a second each."""
    (tmp_path / "course" / "solutions").mkdir(parents=True)
    (tmp_path / "course" / "solutions" / "09_test.ipynb").write_bytes(master.path.read_bytes())
    for number in range(6):
        notebook = master.student_version()
        for cell in notebook.cells:
            key = cell.id.removesuffix("-answer")
            cell.source = RIGHT[key] + f"\nimport time\ntime.sleep(0.3)  # {number}" if key in RIGHT else cell.source
        (tmp_path / "in").mkdir(exist_ok=True)
        nbformat.write(notebook, tmp_path / "in" / f"s{number}.ipynb")
    return tmp_path


GRADE = """
import sys
from pathlib import Path
from distgen_lab.grading.collect import find_submissions
from distgen_lab.grading.grade import grade
from distgen_lab.grading.gradebook import write_whole
from distgen_lab.grading.master import Master
folder = Path(sys.argv[1])
master = Master(folder / "course" / "solutions" / "09_test.ipynb")
rows = grade({"09_test": master}, find_submissions(folder / "in"), workers=2, sandbox=False, keep=folder / "kept")
write_whole(folder / "points", str([(row.student, row.question, row.points, row.reason) for row in rows]))
"""


def start(folder):
    return subprocess.Popen([sys.executable, "-c", GRADE, str(folder)], stderr=subprocess.PIPE)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_batch_that_is_ended_goes_on_where_it_stopped(course, how):
    kept = course / "kept"
    process = start(course)
    try:
        wait_for(lambda: kept.is_dir() and len(list(kept.glob("*.json"))) >= 8, process)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(how)
        process.communicate(timeout=60)
        assert process.returncode
        assert psutil.wait_procs(family, timeout=20)[1] == []
    finally:
        process.kill()
        process.communicate()
    before = {path.name: path.stat().st_mtime_ns for path in kept.glob("*.json")}
    assert 8 <= len(before) < 16 and not (course / "points").exists()
    second = start(course)
    assert second.wait(timeout=300) == 0, second.stderr.read()
    second.stderr.close()
    after = {path.name: path.stat().st_mtime_ns for path in kept.glob("*.json")}
    assert len(after) == 16 and before.items() <= after.items()
    assert (course / "points").read_text().count("'10', 'right'") == 18


def wait_for(ready, process):
    deadline = time.monotonic() + 200
    while not ready():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


def test_what_has_not_changed_is_not_run_again(tmp_path, monkeypatch):
    master = shared_master(tmp_path)
    students = hand_in(master, tmp_path, {"one": RIGHT["q9-1"], "two": "def double(x):\n    return 3 * x"})
    ran = []
    real = run.run
    monkeypatch.setattr(resume, "run", lambda job, done: ran.append(set(job.notebooks)) or real(job, done))
    options = {"sandbox": False, "keep": tmp_path / "kept"}
    first = grade({"08": master}, students, **options)
    assert grade({"08": master}, students, **options) == first
    assert len(ran) == 1
    students |= hand_in(master, tmp_path, {"two": RIGHT["q9-1"] + "  # mended"})
    again = grade({"08": master}, students, **options)
    assert ran[1:] == [{"1-visible", "1-hidden"}]
    assert [row.points for row in first] == ["10", "0"] and [row.points for row in again] == ["10", "10"]
    for path in (tmp_path / "kept").glob("*.json"):
        path.write_text("{broken")
    assert grade({"08": master}, students, **options) == again
    assert len(ran[2]) == 8


def test_a_run_that_lost_its_worker_is_not_kept(tmp_path, monkeypatch):
    master = shared_master(tmp_path)
    notebook = merge(master, Submission((("q9-1-answer", RIGHT["q9-1"]),), "08_test")).visible
    lost = {cell.id: run.CellResult("incomplete") for cell in notebook.cells}
    monkeypatch.setattr(resume, "run", lambda job, done: done("a", lost) or {"a": lost})
    job = run.Job({"a": notebook}, master.all)
    good = {cell.id: run.CellResult("reported", value=8) for cell in notebook.cells}
    path = tmp_path / f"{resume.run_key(job, notebook)}.json"
    assert resume.run_kept(job, tmp_path) == {"a": lost} and not path.exists()
    resume.save(path, good)
    assert resume.run_kept(job, tmp_path) == {"a": good}


# A plugin for the workers: nbval as it might become one day, or a worker that is ended from outside, once or always.
GULLIBLE = """
import distgen_lab.grading.plugin as p
def yes(check, outputs):
    return {"state": "reported", "value": WANTED}
p.collect = yes
"""
LOSES = """
import os, pathlib
import distgen_lab.grading.plugin as p
old = p._record
def record(event):
    old(event)
    if event.get("begin") == "q9-1-answer" and event["notebook"].startswith("0") and (ALWAYS or not mark.exists()):
        mark.touch()
        os._exit(9) if not HANGS else __import__("time").sleep(600)
mark = pathlib.Path(MARK)
p._record = record
"""


def with_plugin(monkeypatch, folder, text):
    """Let the workers load a plugin made of ``text``."""
    (folder / "broken_plugin.py").write_text(text)
    monkeypatch.setattr(run, "_COMMAND", [*run._COMMAND, "-p", "broken_plugin"])
    real = run._environment
    monkeypatch.setattr(run, "_environment", lambda job, home: real(job, home) | {"PYTHONPATH": str(folder)})


def test_grading_refuses_where_an_empty_answer_scores(tmp_path, monkeypatch):
    master = shared_master(tmp_path)
    with_plugin(monkeypatch, tmp_path, GULLIBLE.replace("WANTED", "8"))
    with pytest.raises(GradingError, match=r"q9-1-visible scored in a notebook that answers nothing.*nbval 0"):
        grade({"08": master}, hand_in(master, tmp_path, {"one": RIGHT["q9-1"]}), sandbox=False)


def test_grading_refuses_a_solution_that_the_key_calls_wrong(tmp_path, monkeypatch):
    master = shared_master(tmp_path)
    monkeypatch.setattr("distgen_lab.grading.selfcheck.explain", lambda *given: (False, "no"))
    with pytest.raises(GradingError, match="q9-1 is wrong by the answer key"):
        grade({"08": master}, hand_in(master, tmp_path, {"one": RIGHT["q9-1"]}), sandbox=False)


@pytest.mark.parametrize(("always", "hangs", "points"), [(False, False, "10"), (False, True, "10"), (True, False, "0")])
def test_a_lost_worker_is_no_students_fault_the_first_time(tmp_path, monkeypatch, always, hangs, points):
    master = shared_master(tmp_path)
    text = LOSES.replace("ALWAYS", str(always)).replace("HANGS", str(hangs)).replace("MARK", repr(str(tmp_path / "m")))
    with_plugin(monkeypatch, tmp_path, text)
    monkeypatch.setattr(run, "SILENCE", 15.0)
    students = hand_in(master, tmp_path, {"one": RIGHT["q9-1"], "two": RIGHT["q9-1"]})
    rows = {row.student: row for row in grade({"08": master}, students, sandbox=False)}
    assert rows["one"].points == points, rows["one"].reason
    assert points == "10" or "answer cell: incomplete: it was lost in two runs" in rows["one"].reason
    assert rows["two"].points == "10"


def test_folders_of_killed_graders_are_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(run.tempfile, "gettempdir", lambda: str(tmp_path))
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    ).stdout
    for name in (f"{gone.strip()}-a", f"{os.getpid()}-b", "word-c"):
        (tmp_path / f"distgen-grade-{name}").mkdir()
    run._sweep()
    assert {path.name for path in tmp_path.iterdir()} == {f"distgen-grade-{os.getpid()}-b", "distgen-grade-word-c"}


@pytest.mark.skipif(bool(sandbox.why_not()), reason="no sandbox here")
def test_the_probe_finds_what_an_open_door_lets_through(monkeypatch, tmp_path):
    """Without the sandbox's own flags the same probe must complain."""
    monkeypatch.setattr(sandbox, "_privileges", lambda: ["--ro-bind", str(Path("/tmp")), "/outside"])
    kept = [flag for flag in sandbox._OUTER if flag not in ("--unshare-net", "--unshare-pid")]
    monkeypatch.setattr(sandbox, "_OUTER", kept)
    monkeypatch.setattr(sandbox, "_LIMITS", ["env"])
    assert "leaks" in sandbox.why_not()


def test_without_a_sandbox_grading_refuses_unless_told(tmp_path, monkeypatch):
    master = shared_master(tmp_path)
    monkeypatch.setattr(grading, "why_not", lambda: "the sandbox needs bwrap")
    students = hand_in(master, tmp_path, {"one": RIGHT["q9-1"]})
    with pytest.raises(GradingError, match=r"needs bwrap.*--no-sandbox"):
        grade({"08": master}, students)
    assert {(row.points, row.sandbox) for row in grade({"08": master}, students, sandbox=False)} == {("10", "no")}
