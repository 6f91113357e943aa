"""The command ``distgen``: wrong use is answered in one line and changes nothing; a bundle holds no secret."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, new_raw_cell

from distgen_lab.checks import MIME
from distgen_lab.cli import main
from distgen_lab.grading import grade as grade_module
from distgen_lab.grading.master import Master
from distgen_lab.grading.sandbox import why_not

SOLUTION = "width = sum(len(part) for part in parts)"
HIDDEN = 'checks.report("q1-1-hidden", joined_width(["drawn", "inputs"]))'


def cell(make, source, name, role=None, **facts):
    made = make(source, id=name)
    if role:
        made.metadata["distgen"] = {"role": role, "question": "q1-1", **facts}
        made.metadata["nbgrader"] = {"grade_id": name, "solution": role == "answer", "grade": role != "answer"}
    if role in ("visible", "hidden"):
        made.outputs = [new_output("display_data", {MIME: {"id": name, "value": 3 if role == "visible" else 11}})]
    return made


def make_master(path: Path, hidden: str = HIDDEN) -> None:
    """A solution notebook of one question."""
    answer = f"def joined_width(parts):\n    ### BEGIN SOLUTION\n    {SOLUTION}\n    return width\n    ### END SOLUTION"
    cells = [
        cell(new_markdown_cell, "# Section 1", "title"),
        cell(new_code_cell, "from distgen_lab import checks", "setup"),
        cell(new_code_cell, answer, "q1-1-answer", "answer"),
        cell(new_code_cell, 'checks.report("q1-1-visible", joined_width(["a", "bc"]))', "q1-1-visible", "visible",
             title="Exercise 1.1", points=2.0),
        cell(new_code_cell, f"### BEGIN HIDDEN TESTS\n{hidden}\n### END HIDDEN TESTS", "q1-1-hidden", "hidden"),
        cell(new_raw_cell, "hint: that is the number of parts\ndef joined_width(parts): return len(parts)",
             "q1-1-wrong", "wrong"),
    ]  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}, "distgen": {"section": path.stem}}
    nbformat.write(new_notebook(cells=cells, metadata=metadata), path)


@pytest.fixture
def course(tmp_path):
    """A small course with a master of one question."""
    root = tmp_path / "course"
    make_master(root / "solutions" / "01_widths.ipynb")
    for name in ("notebooks/01.ipynb", "notebooks/.ipynb_checkpoints/01.ipynb", "tests/unit/test_it.py",
                 "distgen_lab/scale.py", "distgen_lab/__pycache__/scale.pyc", "README.md", ".git/config",
                 "exercises/old.ipynb"):  # fmt: skip
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"this is {name}", encoding="utf-8")
    return root


@pytest.fixture
def submissions(tmp_path, course):
    folder = tmp_path / "submissions"
    (folder / "ada").mkdir(parents=True)
    nbformat.write(Master(course / "solutions" / "01_widths.ipynb").student_version(), folder / "ada" / "01.ipynb")
    return folder


def snapshot(folder):
    """Every path below the folder with its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def wrong(capsys, tmp_path, *arguments):
    """Run a command that is used wrongly; return its one line. Nothing may change below the test's folder."""
    before = snapshot(tmp_path)
    assert main([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.endswith("\n") and printed.err.count("\n") == 1
    assert printed.err.startswith(f"distgen {arguments[0]}: ") and "Traceback" not in printed.err
    assert snapshot(tmp_path) == before
    return printed.err.removesuffix("\n")


# -------------------------------------------------------------------------------------------------- grade


def test_grade_of_a_missing_folder(capsys, tmp_path, course):
    line = wrong(capsys, tmp_path, "grade", tmp_path / "none", "--out", tmp_path / "out", "--course", course)
    assert "none does not exist" in line


def test_grade_of_an_empty_folder(capsys, tmp_path, course):
    (tmp_path / "empty" / ".hidden").mkdir(parents=True)
    (tmp_path / "empty" / "readme.txt").write_text("no notebook", encoding="utf-8")
    line = wrong(capsys, tmp_path, "grade", tmp_path / "empty", "--out", tmp_path / "out", "--course", course)
    assert "empty: holds no student folders and no notebooks" in line


def test_grades_that_exist_are_kept(capsys, tmp_path, course, submissions):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "grades.csv").write_text("precious", encoding="utf-8")
    line = wrong(capsys, tmp_path, "grade", submissions, "--out", tmp_path / "out", "--course", course)
    assert "grades.csv exists; name another folder, or say --force" in line


def test_an_unknown_section_lists_the_known_ones(capsys, tmp_path, course, submissions):
    for command in (["grade", submissions, "--out", tmp_path / "out"], ["release", tmp_path / "bundle"]):
        line = wrong(capsys, tmp_path, *command, "--course", course, "--section", "01", "--section", "nine")
        assert line.endswith("no section is called 'nine'; there are: 01_widths")


@pytest.mark.parametrize("jobs", ["0", "-3"])
def test_no_jobs_at_all(capsys, tmp_path, course, submissions, jobs):
    line = wrong(capsys, tmp_path, "grade", submissions, "--out", tmp_path / "out", "--course", course, "--jobs", jobs)
    assert line.endswith(f"--jobs is {jobs}; 1 or more is needed")


def test_a_course_without_solutions_cannot_grade_or_release(capsys, tmp_path, course, submissions):
    (course / "solutions" / "01_widths.ipynb").unlink()
    for command in (["grade", submissions, "--out", tmp_path / "out"], ["release", tmp_path / "bundle"]):
        line = wrong(capsys, tmp_path, *command, "--course", course)
        assert "solutions holds no notebooks; release and grade need the instructor's copy" in line


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[:40], "not a readable notebook"),
        (lambda text: text.replace("### END SOLUTION", ""), "has a BEGIN without its END"),
        (lambda text: text.replace('"wrong"', '"other"'), "question q1-1 lacks: wrong"),
    ],
)
def test_a_master_that_cannot_serve_names_its_file(capsys, tmp_path, course, submissions, change, said):
    path = course / "solutions" / "01_widths.ipynb"
    path.write_text(change(path.read_text("utf-8")), encoding="utf-8")
    for command in (["grade", submissions, "--out", tmp_path / "out"], ["release", tmp_path / "bundle"]):
        line = wrong(capsys, tmp_path, *command, "--course", course)
        assert "01_widths.ipynb" in line and said in line


@pytest.mark.filterwarnings("ignore:Non-unique cell id")
def test_a_master_with_one_cell_id_twice_is_refused(capsys, tmp_path, course):
    path = course / "solutions" / "01_widths.ipynb"
    path.write_text(path.read_text("utf-8").replace('"q1-1-hidden"', '"q1-1-answer"'), encoding="utf-8")
    line = wrong(capsys, tmp_path, "release", tmp_path / "bundle", "--course", course)
    assert "the cell id 'q1-1-answer' occurs twice" in line


def test_a_course_that_does_not_exist(capsys, tmp_path):
    line = wrong(capsys, tmp_path, "release", tmp_path / "bundle", "--course", tmp_path / "none", "--section", "??")
    assert "none" in line


def test_an_out_that_is_a_file_is_told_before_grading(capsys, tmp_path, course, submissions, monkeypatch):
    (tmp_path / "out").write_text("a file", encoding="utf-8")
    monkeypatch.setattr(grade_module, "grade", lambda *args, **options: pytest.fail("graded first"))
    wrong(capsys, tmp_path, "grade", submissions, "--out", tmp_path / "out", "--course", course)


def test_an_interrupted_grading_writes_no_grades(capsys, tmp_path, course, submissions, monkeypatch):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(grade_module, "grade", interrupt)
    before = snapshot(tmp_path)
    assert main(["grade", str(submissions), "--out", str(tmp_path / "out"), "--course", str(course)]) == 130
    assert capsys.readouterr().err == (
        "distgen grade: interrupted; the runs so far are kept, the same command goes on from there\n"
    )
    assert snapshot(tmp_path) == before


def test_force_replaces_grades(capsys, tmp_path, course, submissions, monkeypatch):
    rows = [grade_module.Row("ada", "q1-1", "0", "2", "blank", section="01_widths")]
    monkeypatch.setattr(grade_module, "grade", lambda *args, **options: rows)
    out = tmp_path / "out"
    out.mkdir()
    (out / "grades.csv").write_text("old", encoding="utf-8")
    assert main(["grade", str(submissions), "--out", str(out), "--course", str(course), "--force"]) == 0
    assert (out / "grades.csv").read_text("utf-8").splitlines()[1] == "ada,,01_widths,q1-1,,0,2,,,,0,blank,,,yes"
    assert json.loads((out / "grades.json").read_text("utf-8"))["rows"][0]["student"] == "ada"
    assert capsys.readouterr().out.startswith(f"1 students, 1 rows: {out / 'grades.csv'}, ")


# -------------------------------------------------------------------------------------------------- check


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such file"),
        (b"", "not JSON"),
        (b"# a python file", "not JSON (line 1"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"[1, 2]", "not a notebook: the file holds no JSON object"),
        (b"{}", "notebook format None is not supported"),
        (b'{"nbformat": 4}', "not a notebook: it has no list of cells"),
        (b'{"nbformat": 4, "nbformat": 4}', "a key occurs twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"nbformat": 4, "cells": []}', "'mine' is no section with exercises"),
        (
            b'{"nbformat": 4, "cells": [], "metadata": {"distgen": {"section": "99_none"}}}',
            "'99_none' is no section with exercises",
        ),
        (
            b'{"nbformat": 4, "cells": [], "metadata": {"distgen": {"section": [1]}}}',
            "'mine' is no section with exercises",
        ),
    ],
)
def test_check_of_what_is_no_exercise(capsys, tmp_path, content, said):
    path = tmp_path / "mine.ipynb"
    if content is not None:
        path.write_bytes(content)
    line = wrong(capsys, tmp_path, "check", path)
    assert line.startswith(f"distgen check: {path}: ") and said in line


def test_check_of_a_folder_and_of_a_link(capsys, tmp_path):
    (tmp_path / "real.ipynb").write_text("{}", encoding="utf-8")
    (tmp_path / "link.ipynb").symlink_to("real.ipynb")
    for name in (".", "link.ipynb"):
        assert wrong(capsys, tmp_path, "check", tmp_path / name).endswith("not a regular file")


# ------------------------------------------------------------------------------------------------ release


def texts(folder):
    return {p: p.read_text("utf-8") for p in folder.rglob("*") if p.is_file()}


def test_a_bundle_holds_the_course_and_no_secret(capsys, tmp_path, course):
    bundle = tmp_path / "new" / "bundle"
    master = Master(course / "solutions" / "01_widths.ipynb")
    assert {SOLUTION, HIDDEN} <= set(master.secrets())
    before = snapshot(course)
    assert main(["release", str(bundle), "--quick", "--course", str(course)]) == 0
    assert capsys.readouterr().out == f"{bundle / 'exercises' / '01_widths.ipynb'}: 1 questions\n"
    assert [str(p.relative_to(bundle)) for p in sorted(bundle.rglob("*")) if p.is_file()] == [
        "README.md", "distgen_lab/scale.py", "exercises/01_widths.ipynb", "notebooks/01.ipynb"
    ]  # fmt: skip
    for path, text in texts(bundle).items():
        for secret in (SOLUTION, "return width", "drawn", "BEGIN", "number of parts", *master.secrets()):
            assert secret not in text and json.dumps(secret)[1:-1] not in text, path
    released = nbformat.read(bundle / "exercises" / "01_widths.ipynb", as_version=4)
    assert [c.id for c in released.cells] == ["title", "setup", "q1-1-answer", "q1-1-visible"]
    assert 'raise NotImplementedError("Exercise 1.1: your code here")' in released.cells[2].source
    assert [p.name for p in bundle.parent.iterdir()] == ["bundle"]  # no draft
    assert snapshot(course) == before


def test_a_release_fills_an_empty_folder(tmp_path, course):
    (tmp_path / "bundle").mkdir()
    assert main(["release", str(tmp_path / "bundle"), "--quick", "--course", str(course)]) == 0
    assert (tmp_path / "bundle" / "exercises" / "01_widths.ipynb").is_file()


def test_a_folder_with_something_in_it_is_left_alone(capsys, tmp_path, course):
    (tmp_path / "full" / "deep").mkdir(parents=True)
    (tmp_path / "full" / "deep" / "thesis.tex").write_text("years of work", encoding="utf-8")
    (tmp_path / "file").write_text("a file", encoding="utf-8")
    for name in ("full", "file"):
        line = wrong(capsys, tmp_path, "release", tmp_path / name, "--course", course)
        assert line.endswith(f"{name} exists; name a new folder")
    wrong(capsys, tmp_path, "release", course, "--course", course)


def quote(path, line, replace=""):
    """Let the title cell of a master show a line; replace the master's own solution line if asked."""
    notebook = nbformat.read(path, as_version=4)
    for made in notebook.cells:
        made.source = made.source.replace(SOLUTION, replace or SOLUTION)
    notebook.cells[0].source += f"\n\n    {line}\n\nThink of this."
    nbformat.write(notebook, path)


def test_a_solution_line_left_in_its_own_exercise_stops_the_release(capsys, tmp_path, course):
    quote(course / "solutions" / "01_widths.ipynb", SOLUTION)
    line = wrong(capsys, tmp_path, "release", tmp_path / "bundle", "--course", course)
    assert "would ship in 01_widths.ipynb" in line and SOLUTION in line


@pytest.mark.parametrize(
    ("section", "other"),
    [
        ("02_more", "01_widths"),
        pytest.param(
            "01_widths",
            "02_more",
        ),
    ],
)
def test_a_solution_line_in_another_exercise_stops_the_release(capsys, tmp_path, course, section, other):
    make_master(course / "solutions" / "02_more.ipynb")
    own = "width = len(str().join(parts))"
    quote(course / "solutions" / f"{section}.ipynb", "Read on.", replace=own)
    quote(course / "solutions" / f"{other}.ipynb", own)
    line = wrong(capsys, tmp_path, "release", tmp_path / "bundle", "--course", course)
    assert f"would ship in {other}.ipynb" in line and own in line


def test_a_release_that_breaks_midway_leaves_no_draft(capsys, tmp_path, course, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("distgen_lab.grading.release.nbformat.write", fail)
    assert "No space left" in wrong(capsys, tmp_path, "release", tmp_path / "bundle", "--quick", "--course", course)


def test_a_release_into_the_current_empty_folder(tmp_path, course, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["release", ".", "--quick", "--course", str(course)]) in (0, 2)


def test_the_real_course_can_be_released_and_holds_no_secret(tmp_path, repo):
    bundle = tmp_path / "bundle"
    assert main(["release", str(bundle), "--quick", "--course", str(repo)]) == 0
    assert not {"solutions", "tests", ".git", ".venv"} & {p.name for p in bundle.iterdir()}
    assert [p for p in tmp_path.iterdir() if p != bundle] == []
    for path in sorted((repo / "solutions").glob("*.ipynb")):
        master = Master(path)
        exercise = nbformat.read(bundle / "exercises" / path.name, as_version=4)
        text = "\n".join(made.source for made in exercise.cells)
        secrets = set(master.secrets())
        assert len(secrets) > 20 and not secrets & {line.strip() for line in text.splitlines()}
        assert not any(f'"{q.hidden}"' in json.dumps(exercise) for q in master.all)
        assert "HIDDEN TESTS" not in text and "SOLUTION" not in text
        assert all(not made.get("outputs") for made in exercise.cells)


# ------------------------------------------------------------------------------------ the command as such


@pytest.mark.parametrize(
    "arguments", [[], ["teach"], ["check"], ["grade", "x"], ["grade", "x", "--out", "y", "--jobs", "many"], ["release"]]
)
def test_argparse_explains_what_is_missing(capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2 and "usage: distgen" in capsys.readouterr().err


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    text = capsys.readouterr().out
    assert caught.value.code == 0 and all(name in text for name in ("doctor", "check", "release", "grade"))


def test_the_installed_command_gives_the_exit_code(tmp_path):
    command = Path(sys.executable).parent / "distgen"
    done = subprocess.run([command, "check", "none.ipynb"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "distgen check: none.ipynb: no such file\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_notebook_is_checked_and_graded_from_end_to_end(capsys, tmp_path, repo):
    """The exercise as handed out: no answer is right, nothing is written beside it, every student gets a row."""
    path = tmp_path / "class" / "ada" / "01_scale_arithmetic.ipynb"
    path.parent.mkdir(parents=True)
    path.write_bytes((repo / "exercises" / "01_scale_arithmetic.ipynb").read_bytes())
    before = copy.copy(snapshot(tmp_path))
    assert main(["check", str(path)]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines and all(line.endswith(": not answered yet") for line in lines)
    assert last == f"0 of {len(lines)} questions are right for the worked input."
    assert snapshot(tmp_path) == before
    out = tmp_path / "out"
    options = ["--no-sandbox"] if why_not() else []
    assert main(["grade", str(tmp_path / "class"), "--out", str(out), "--course", str(repo), *options]) == 0
    rows = json.loads((out / "grades.json").read_text("utf-8"))["rows"]
    assert len(rows) == len(lines) and {(row["student"], row["points"]) for row in rows} == {("ada", "0")}
