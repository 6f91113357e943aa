"""Students with other numbers: bundles that differ, a key with an entry for each, grading that knows whose is whose."""

import copy
import json
import shutil
import subprocess
import sys

import pytest
from nbformat.v4 import new_output

from distgen_lab.checks import MIME, worked
from distgen_lab.cli import main
from distgen_lab.course import course_root
from distgen_lab.grading import key as key_module
from distgen_lab.grading.grade import _compare
from distgen_lab.grading.gradebook import read_book
from distgen_lab.grading.master import Master, MasterError
from distgen_lab.grading.run import CellResult
from distgen_lab.grading.variants import choices, seeded, seeds_of, variant
from distgen_lab.notebooks import write
from tests.grading.conftest import NO_SANDBOX

VARIED = 'from distgen_lab import checks\n\nchecks.report("q9-1-visible", double(**checks.worked(x=[4, 5, 6])))'
STORED = {"q9-1-visible": 8, "q9-2-visible": [0, 1, 4, 9], "q9-3-visible": {"half": 2.0, "name": "part"}}
SOLUTIONS = sorted((course_root() / "solutions").glob("*.ipynb"))
SEED = "winter term"  # with it no graded input of a variant is 4, as the first worked one is
ASK = """
import json, sys
from distgen_lab import checks
verdicts = [checks.explain("q9-1-visible", value) for value in (8, 10, 12, 15)]
print(json.dumps([checks.variant(), checks.worked(x=[4, 5, 6])["x"], *verdicts]))
"""


def varied(master, path, source=VARIED):
    """The test master with several worked inputs for its first question, its reports stored."""
    notebook = copy.deepcopy(master.notebook)
    for cell in notebook.cells:
        if cell.id == "q9-1-visible":
            cell.source = source
        if cell.id in STORED or cell.id.endswith("-hidden"):
            data = {MIME: {"id": cell.id, "value": STORED.get(cell.id, [0, cell.id])}}
            cell.outputs = [new_output("display_data", data=data)]
    write(notebook, path)
    return Master(path)


def test_students_are_spread_over_the_variants():
    students = [f"m{i}" for i in range(800)]
    counts = [sum(variant(student, SEED, 8) == k for student in students) for k in range(8)]
    assert sum(counts) == 800 and min(counts) > 60  # 100 +- 4 standard deviations
    moved = sum(variant(student, SEED, 8) != variant(student, "another class", 8) for student in students)
    assert moved > 600
    assert set(seeds_of(students, SEED, 1).values()) == {SEED}
    assert set(seeds_of(students, SEED, 2).values()) == {f"{SEED}/0", f"{SEED}/1"}
    assert set(seeds_of(students, SEED, 2, bundles=True).values()) == {f"{SEED}/bundle-0", f"{SEED}/bundle-1"}
    with pytest.raises(ValueError, match="variants is 0"):
        variant("m1", SEED, 0)


def test_worked_takes_the_same_place_of_each_list(monkeypatch):
    lists = {"x": [4, 5, 6], "y": ["a", "b", "c"]}
    for number, wanted in enumerate([(4, "a"), (5, "b"), (6, "c"), (4, "a")]):
        monkeypatch.setenv("DISTGEN_VARIANT", str(number))
        assert tuple(worked(**lists).values()) == wanted
    for bad in ({}, {"x": []}, {"x": [1], "y": [1, 2]}):
        with pytest.raises(ValueError, match="lists of one length"):
            worked(**bad)


@pytest.mark.parametrize("source", ["checks.worked(x=[1, 2], y=[1])", "numbers = [1]\nchecks.worked(x=numbers)"])
def test_lists_that_cannot_be_counted_are_refused(master, tmp_path, source):
    with pytest.raises(MasterError, match="'q9-1-visible': write the lists of"):
        choices(varied(master, tmp_path / "09_test.ipynb", source))


def test_choices_are_counted_and_seeds_set_the_variant(master, tmp_path):
    assert choices(varied(master, tmp_path / "09_test.ipynb")) == {"q9-1": 3, "q9-2": 1, "q9-3": 1}
    sheet = key_module.answer_sheet(master, {})
    for seed, number in (("2027", "0"), ("2027/5", "0"), ("a class/bundle-12", "12")):
        first = seeded(key_module.merge(master, sheet), seed).hidden.cells[0].source
        assert f"'DISTGEN_SEED': {seed!r}, 'DISTGEN_VARIANT': {number!r}" in first


@pytest.fixture(scope="module")
def course(master, repo, tmp_path_factory):
    """A course with a library of its own, whose key was made for the varied master."""
    root = tmp_path_factory.mktemp("course")
    shutil.copytree(repo / "distgen_lab", root / "distgen_lab", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("solutions", "notebooks", "exercises"):
        (root / name).mkdir()
    made = varied(master, root / "solutions" / "09_test.ipynb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_module, "key_path", lambda section: root / "distgen_lab" / "data" / "key" / f"{section}.json")
        key_module.make_key(made)
    return root


@pytest.mark.slow
def test_the_key_has_an_entry_for_each_worked_input(course):
    key = json.loads((course / "distgen_lab" / "data" / "key" / "09_test.json").read_text("utf-8"))
    first = key["q9-1-visible"]
    assert [entry["value"] for entry in (first, *first["variants"])] == [8, 10, 12]
    assert [entry["hints"][0]["value"] for entry in (first, *first["variants"])] == [12, 15, 18]
    assert "variants" not in key["q9-2-visible"]


@pytest.mark.slow
def test_each_bundle_asks_and_answers_with_its_own_numbers(course, tmp_path):
    (tmp_path / "roster.csv").write_text("student,name\nm1,Ada\nm2,Bob\nm3,=Eve\n", "utf-8")
    options = ["--variants", "3", "--seed", SEED, "--roster", str(tmp_path / "roster.csv"), "--quick"]
    assert main(["release", str(tmp_path / "out"), "--course", str(course), *options]) == 0
    for number, (right, x) in enumerate([(8, 4), (10, 5), (12, 6)]):
        bundle = tmp_path / "out" / str(number)
        command = [sys.executable, "-c", ASK]
        done = subprocess.run(
            command, cwd=bundle, env={"PYTHONPATH": str(bundle)}, capture_output=True, text=True, check=True
        )
        said_variant, said_x, *verdicts = json.loads(done.stdout)
        assert (said_variant, said_x) == (number, x)
        assert [value for value, (good, _) in zip((8, 10, 12, 15), verdicts, strict=True) if good] == [right]
        assert verdicts[3][1] == "Exercise 9.1: This triples."  # 15 is a known wrong answer in one of the bundles
    rows = (tmp_path / "out" / "variants.csv").read_text("utf-8").splitlines()
    assert rows == [
        "student,name,bundle",
        *(f"m{i},{n},{variant(f'm{i}', SEED, 3)}" for i, n in ((1, "Ada"), (2, "Bob"), (3, "'=Eve"))),
    ]


def test_one_bundle_is_enough_where_nothing_varies(master, tmp_path, capsys):
    for name in ("solutions", "notebooks", "exercises"):
        (tmp_path / name).mkdir()
    shutil.copy(master.path, tmp_path / "solutions" / "09_test.ipynb")
    assert main(["release", str(tmp_path / "out"), "--course", str(tmp_path), "--variants", "3", "--quick"]) == 2
    assert "no question here has several worked inputs" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_number_copied_from_another_variant_is_wrong(course, hand_in, tmp_path):
    students = {}
    for i in range(100):
        students.setdefault(variant(f"s{i}", SEED, 3), f"s{i}")
    (tmp_path / "in").mkdir()
    for student in students.values():
        copied = {"q9-1": "def double(x):\n    return 8"}  # what the first variant's worked input gives
        (tmp_path / "in" / f"{student}.ipynb").write_text(json.dumps(hand_in(copied)), "utf-8")
        (tmp_path / "in" / f"right{student}.ipynb").write_text(json.dumps(hand_in()), "utf-8")
    options = ["--no-sandbox"] if NO_SANDBOX else []
    command = ["grade", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--course", str(course), "--seed", SEED]
    assert main([*command, "--variants", "3", "--bundles", *options]) == 0
    rows = {(row.student, row.question): row for row in read_book(tmp_path / "out").rows}
    visible = {number: rows[student, "q9-1"].checks[0].state for number, student in students.items()}
    assert visible == {0: "right", 1: "wrong", 2: "wrong"}
    assert all(rows[student, "q9-1"].points == "0" for student in students.values())
    assert all(row.points == "10" for (student, _), row in rows.items() if student.startswith("right"))


def test_the_hint_is_that_of_the_bundle():
    """What is right in the first bundle is a wrong answer in the third, and is told so in words."""
    master = Master(next(path for path in SOLUTIONS if path.stem.startswith("01")))
    key = json.loads(key_module.key_path(master.section).read_text("utf-8"))
    name = next(name for name in key if "variants" in key[name])
    third, copied = key[name]["variants"][1], CellResult("reported", key[name]["value"])
    typical = CellResult("reported", third["hints"][0]["value"])
    for cell, words in ((copied, "This is the result for other numbers"), (typical, third["hints"][0]["hint"])):
        _compare(master, {name: cell}, {name: third["value"]}, 2)
        assert cell.state == "differs" and cell.detail.startswith(words)


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_each_section_of_the_course_has_eight_sets_of_numbers(path):
    several = {question: count for question, count in choices(Master(path)).items() if count > 1}
    assert several and set(several.values()) == {8}
    key = json.loads(key_module.key_path(path.stem).read_text("utf-8"))
    for entry in (key[f"{question}-visible"] for question in several):
        every = [entry, *entry["variants"]]
        assert len({json.dumps(one["value"]) for one in every}) == 8
        for one in every:  # a wrong answer is told from the right one and from the others, whatever the numbers
            reports = [json.dumps(one["value"]), *(json.dumps(hint["value"]) for hint in one["hints"])]
            assert len(set(reports)) == len(reports) == len(entry["hints"]) + 1


DRAGONFLIES = [  # of 15 and of 19 ports, by hand: a = 2h, a h + 1 groups, a (a - 1) / 2 cables in each
    {"h": 4, "a": 8, "groups": 33, "hosts": 33 * 32, "local": 33 * 28, "global": 33 * 32 // 2},
    {"h": 5, "a": 10, "groups": 51, "hosts": 51 * 50, "local": 51 * 45, "global": 51 * 50 // 2},
]
ASK_COURSE = """
import json, sys
from distgen_lab import checks
print(json.dumps([checks.explain("q3-5-visible", value) for value in json.loads(sys.argv[1])]))
"""


@pytest.mark.slow
def test_two_bundles_of_a_real_section_differ_in_what_they_hold_for_right(repo, tmp_path):
    options = ["--section", "03", "--variants", "2", "--seed", SEED, "--quick", "--course", str(repo)]
    assert main(["release", str(tmp_path / "out"), *options]) == 0
    bundles = [tmp_path / "out" / str(number) for number in range(2)]
    one, other = ({p.relative_to(b): p.read_bytes() for p in b.rglob("*") if p.is_file()} for b in bundles)
    assert one.keys() == other.keys()
    assert {path.name for path in one if one[path] != other[path]} == {"class.json"}
    for number, bundle in enumerate(bundles):
        command = [sys.executable, "-c", ASK_COURSE, json.dumps(DRAGONFLIES)]
        said = subprocess.run(command, cwd=bundle, env={"PYTHONPATH": str(bundle)}, capture_output=True, check=True)
        assert [right for right, _ in json.loads(said.stdout)] == [number == 0, number == 1]
