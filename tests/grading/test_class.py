"""A whole class from the command line: downloads of an LMS in, gradebook and pages out, and what happens afterwards."""

import ast
import csv
import json
import shutil
from pathlib import Path

import pytest

from distgen_lab.cli import main
from distgen_lab.grading.gradebook import read_book
from distgen_lab.grading.variants import variant
from tests.grading.conftest import NO_SANDBOX, WRONG
from tests.grading.test_collect import archive

pytestmark = pytest.mark.slow
OPTIONS = ["--no-sandbox"] if NO_SANDBOX else []
ROSTER = """student,name,canvas_id,extension,submitted
m1,Ada Lovelace,11,,2027-02-01T09:00+01:00
m2,Alan Turing,12,,
m3,Grace Hopper,13,24,
m4,Barbara Liskov,14,,
m5,Edsger Dijkstra,15,,
m6,Leslie Lamport,16,,
"""
TYPED_IN = "def squares(n):\n    return [0, 1, 4, 9]"


@pytest.fixture(scope="module")
def course(master, tmp_path_factory):
    """A course whose only section is the test master."""
    root = tmp_path_factory.mktemp("course")
    for name in ("solutions", "notebooks", "exercises"):
        (root / name).mkdir()
    shutil.copy(master.path, root / "solutions" / "09_test.ipynb")
    return root


@pytest.fixture(scope="module")
def download(hand_in, tmp_path_factory):
    """What Canvas lets one download, still packed: late, twice, broken, dangerous, of nobody."""
    folder = tmp_path_factory.mktemp("download")
    wrong = {"q9-1": WRONG["q9-1"][1]}
    notebooks = {
        "lovelaceada_11_901_hw.ipynb": hand_in(wrong),
        "lovelaceada_11_950_hw-1.ipynb": hand_in(),
        "turingalan_LATE_12_902_hw.ipynb": hand_in(wrong),
        "hoppergrace_LATE_13_903_hw.ipynb": hand_in({"q9-2": TYPED_IN}),
        "evil_99_906_hw.ipynb": hand_in(),
    }
    files = {name: json.dumps(notebook).encode() for name, notebook in notebooks.items()}
    files["liskovbarbara_14_904_work.zip"] = archive({"../../hw.ipynb": json.dumps(hand_in()).encode()})
    files["dijkstraedsger_15_905_hw.ipynb"] = b'{"cells": ['
    (folder / "submissions.zip").write_bytes(archive(files))
    (folder / "roster.csv").write_text(ROSTER, encoding="utf-8")
    return folder


def arguments(course, download, out, *more):
    late = ["--deadline", "2027-02-01T00:00+01:00", "--late", "10", "--roster", str(download / "roster.csv")]
    source = [str(download / "submissions.zip"), "--out", str(out), "--course", str(course)]
    return ["grade", *source, *late, "--seed", "a class", "--variants", "3", *OPTIONS, *more]


@pytest.fixture(scope="module")
def graded(course, download, tmp_path_factory):
    """The class, graded by the command."""
    out = tmp_path_factory.mktemp("graded") / "GRADES"
    assert main(arguments(course, download, out)) == 1  # one hand-in is of nobody
    return out


def table(out):
    with open(out / "grades.csv", encoding="utf-8", newline="") as file:
        return {(row["student"], row["question"]): row for row in csv.DictReader(file)}


def test_everybody_on_the_roster_has_a_row_for_every_question(graded):
    rows = table(graded)
    assert list(rows) == [(f"m{i}", f"q9-{k}") for i in range(1, 7) for k in (1, 2, 3)]
    totals = {student: total["points"] for student, total in read_book(graded).totals().items()}
    # ada is a day late by the roster, alan by the mark of Canvas; grace has more time; the others bring nothing
    assert totals == {"m1": "27", "m2": "18", "m3": "20", "m4": "0", "m5": "0", "m6": "0"}


@pytest.mark.parametrize(
    ("student", "column", "words"),
    [
        ("m1", "attempt", "hw-1.ipynb"),
        ("m1", "note", "1 earlier attempt not counted; late: 1 day begun (roster 2027-02-01 09:00+01:00)"),
        ("m2", "note", "late: marked by Canvas; one day is counted, no time of hand-in is known"),
        ("m3", "note", "not deducted: more time was granted"),
        ("m4", "reason", "refused: hw.ipynb: its path leads out of the archive"),
        ("m5", "reason", "hw.ipynb: not JSON"),
        ("m6", "reason", "missing: no notebook was handed in"),
    ],
)
def test_each_row_says_what_happened(graded, student, column, words):
    assert words in table(graded)[student, "q9-2"][column]


def test_variants_draw_other_inputs(graded):
    used = {student: variant(student, "a class", 3) for student in ("m1", "m2", "m3")}
    assert len(set(used.values())) > 1, "choose a seed with which the three students have different variants"
    assert table(graded)["m3", "q9-2"]["reason"].startswith("right for the worked input, wrong for others")


def test_pages_and_exports_are_there(graded):
    names = {str(path.relative_to(graded)) for path in graded.rglob("*") if path.suffix in (".csv", ".xml", ".html")}
    pages = {f"feedback/m{i}.html" for i in range(1, 7)}
    assert names == {"grades.csv", "canvas.csv", "moodle.csv", "junit.xml", "report.html"} | pages
    assert "evil_99" in (graded / "report.html").read_text("utf-8")
    feedback = (graded / "feedback" / "m3.html").read_text("utf-8")
    assert "Graded inputs: not right" in feedback and "wanted" not in feedback


def test_parts_put_together_are_the_class(graded, course, download, tmp_path, capsys):
    parts = [tmp_path / "1", tmp_path / "2"]
    for number, part in enumerate(parts, 1):
        assert main(arguments(course, download, part, "--shard", f"{number}/2")) == 1
    assert {row.student for row in read_book(parts[0]).rows} == {"m1", "m3", "m5"}
    assert main(["grade", "--merge", *map(str, parts), "--out", str(tmp_path / "whole")]) == 1
    for name in ("grades.csv", "canvas.csv", "moodle.csv", "junit.xml", "report.html", "feedback/m3.html"):
        assert (tmp_path / "whole" / name).read_bytes() == (graded / name).read_bytes()


def test_regrade_says_whose_marks_change_before_it_writes(graded, course, tmp_path, capsys):
    mended, grades = tmp_path / "course", tmp_path / "GRADES"
    shutil.copytree(course, mended)
    shutil.copytree(graded, grades)
    path = mended / "solutions" / "09_test.ipynb"
    path.write_text(path.read_text("utf-8").replace("x + x + 0 * 1234567890", "3 * x + 0 * 1234567890"), "utf-8")
    (grades / "adjustments.csv").write_text("student,question,manual,override,note\nm6,q9-3,,7,oral exam\n", "utf-8")
    before = (grades / "grades.json").read_bytes()
    again = ["regrade", str(grades), "--course", str(mended), "--void", "q9-2"]
    assert main(again) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "m1, q9-1: 9 -> 0 (wrong: " in " ".join(lines) and lines[-1] == "Nothing was written; say --yes to write."
    assert "m2: 18 of 30 -> 28 of 30 points" in lines
    assert (grades / "grades.json").read_bytes() == before
    assert main([*again, "--yes"]) == 1
    totals = {student: total["points"] for student, total in read_book(grades).totals().items()}
    assert totals == {"m1": "19", "m2": "28", "m3": "20", "m4": "10", "m5": "10", "m6": "17"}
    assert read_book(grades).settings["voided"] == ["q9-2"]


def test_explain_shows_got_and_expected(graded, course, capsys):
    assert main(["explain", "m3", "q9-2", "--grades", str(graded), "--course", str(course)]) == 0
    text = capsys.readouterr().out
    assert "return [0, 1, 4, 9]" in text and "q9-2-visible: right" in text
    got, _, expected = text.partition("q9-2-hidden: ")[2].partition("expected:")
    assert "[0, 1, 4, 9]" in got
    drawn = ast.literal_eval(expected.strip())
    assert len(drawn) == 3 and all(values == [i**2 for i in range(len(values))] for values in drawn)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["explain", "m9", "q9-2"], "no student is called 'm9'; there are: m1, m2"),
        (["explain", "m1", "q8-2"], "no question is called 'q8-2'; there are: q9-1, q9-2, q9-3"),
    ],
)
def test_explain_of_what_is_not_there(graded, course, command, words, capsys):
    assert main([*command, "--grades", str(graded), "--course", str(course)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--shard", "3/2"], "--shard is '3/2'"),
        (["--shard", "one"], "--shard is 'one'"),
        (["--variants", "0"], "--variants is 0"),
        (["--late", "101"], "--late is '101'"),
        (["--late", "NaN"], "--late is 'NaN'"),
        (["--grace", "-1"], "--grace is -1"),
        (["--deadline", "2027-02-01T12:00"], "--deadline is '2027-02-01T12:00', without a time zone"),
        (["--roster", "none.csv"], "none.csv: the roster cannot be read"),
        (["--adjust", "none.csv"], "none.csv: cannot be read"),
        (["--out", "taken"], "grades.json exists"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(course, download, tmp_path, monkeypatch, capsys, more, words):
    monkeypatch.setattr("distgen_lab.grading.grade.grade", lambda *args, **options: pytest.fail("graded first"))
    monkeypatch.chdir(tmp_path)
    Path("taken").mkdir()
    Path("taken", "grades.json").write_text("{}", "utf-8")
    assert main(arguments(course, download, tmp_path / "out", *more)) == 2
    assert words in capsys.readouterr().err and not (tmp_path / "out").exists()
