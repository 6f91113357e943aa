"""What is handed out: masters that must not be are refused; the bundle is whole, the same again, and has no secret."""

import copy
import json
import os
import random
import re
import stat
import zipfile

import nbformat
import pytest

from distgen_lab.checks import MIME
from distgen_lab.course import course_root
from distgen_lab.grading.master import Master, MasterError
from distgen_lab.grading.refusals import blind_checks, refusals
from distgen_lab.grading.release import nbgrader_course, release

STORED = {"q9-1-visible": 8, "q9-2-visible": [0, 1, 4, 9], "q9-3-visible": {"half": 2.0, "name": "part"}}
COMPUTE = {
    "q9-1-hidden": lambda x: 2 * x,
    "q9-2-hidden": lambda n: [i * i for i in range(n)],
    "q9-3-hidden": lambda x: {"half": x / 2, "name": "part"},
}


def stored(check):
    """What a check of the small master reports, worked out here."""
    if check in STORED:
        return STORED[check]
    draw = random.Random(f"0:{check}")
    return [COMPUTE[check](draw.randint(2, 9)) for _ in range(3)]


@pytest.fixture(scope="module")
def executed(master):
    """The small master as JSON data, with the reports of its checks stored."""
    data = json.loads(json.dumps(master.notebook))
    for cell in data["cells"]:
        if cell["id"] in (*STORED, *COMPUTE):
            report = {MIME: {"id": cell["id"], "value": stored(cell["id"])}}
            cell["outputs"] = [{"output_type": "display_data", "data": report, "metadata": {}}]
    return data


@pytest.fixture
def course(tmp_path, executed):
    """A small course: one section, a key that agrees with it, a library with a script."""
    root = tmp_path / "course"
    key = {name: {"title": name, "value": value, "hints": []} for name, value in STORED.items()}
    data = root / "distgen_lab" / "data"
    for path, text in {
        root / "solutions" / "09_test.ipynb": json.dumps(executed),
        data / "key" / "09_test.json": json.dumps(key),
        data / "key" / "01_other.json": "{}",
        data / "exercises" / "01_other.ipynb": "{}",
        data / "exercises" / "09_test.ipynb": "an older one",
        root / "distgen_lab" / "run.sh": "#!/bin/sh",
        root / "notebooks" / "09_test.ipynb": "a notebook",
        root / "Makefile": "lab:\n\techo\n\n# For developers\ntest:\n",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (root / "distgen_lab" / "run.sh").chmod(0o755)
    return root


def change(executed, cell_id, **facts):
    """The master's data with one cell changed; ``source`` may be a function of the old source."""
    data = copy.deepcopy(executed)
    cell = next(cell for cell in data["cells"] if cell["id"] == cell_id)
    for name, value in facts.items():
        if name == "report":
            cell["outputs"][0]["data"][MIME]["value"] = value
        else:
            cell[name] = value(cell[name]) if callable(value) else value
    return data


def report(value, cell_id="q9-1-visible", before=""):
    return f'from distgen_lab import checks\n{before}\nchecks.report("{cell_id}", {value})'


def marks(**facts):
    return lambda metadata: metadata | {"nbgrader": metadata["nbgrader"] | facts}


# Name: (cell, what is changed in it, words of the refusal).
MASTERS = {
    "cell id twice": ("q9-2-answer", {"id": "q9-1-answer"}, "the cell id 'q9-1-answer' occurs twice; give"),
    "grade id twice": ("q9-2-answer", {"metadata": marks(grade_id="q9-1-answer")}, "'q9-1-answer' occurs twice; give"),
    "no grade id": ("q9-1-hidden", {"metadata": lambda m: {"distgen": m["distgen"]}}, "needs metadata.nbgrader with"),
    "answer no solution": ("q9-1-answer", {"metadata": marks(solution=False)}, "nbgrader.solution to true"),
    "region open": ("q9-1-answer", {"source": lambda s: s.replace("### END", "# end")}, "BEGIN without its END"),
    "end alone": ("q9-1-visible", {"source": lambda s: s + "\n### END HIDDEN TESTS"}, "or an END alone"),
    "mark misspelt": ("q9-1-answer", {"source": lambda s: s.replace("### ", "# ")}, "has the mark '# BEGIN SOLUTION'"),
    "answer unmarked": ("q9-1-answer", {"source": "def double(x):\n    return x + x"}, "the answer would ship; put"),
    "hidden outside": ("q9-1-hidden", {"source": lambda s: f"left = 1\n{s}"}, "nbgrader would ship; move"),
    "same title": (
        "q9-2-visible",
        {"metadata": lambda m: m | {"distgen": m["distgen"] | {"title": "Exercise 9.1"}}},
        "two questions have the title 'Exercise 9.1'",
    ),
    "no report": ("q9-1-visible", {"source": "print(double(4))"}, "calls checks.report 0 times; a check ends in one"),
    "two reports": ("q9-1-visible", {"source": report("double(4)") + "\n" + report("double(5)")}, "report 2 times"),
    "another's id": ("q9-1-visible", {"source": report("double(4)", "q9-2-visible")}, "reports as 'q9-2-visible'"),
    "comparison": (
        "q9-1-hidden",
        {"source": lambda s: s.replace("[double(i)", "[double(i) == 4")},
        "reports a verdict",
    ),
    "all of them": ("q9-1-visible", {"source": report("all([double(4)])")}, "reports a verdict, 'all([double(4)])'"),
    "negated": ("q9-1-visible", {"source": report("not double(4)")}, "report what was computed"),
    "constant": ("q9-1-visible", {"source": report("42")}, "holds nothing a student made; report what their function"),
    "no syntax": ("q9-1-visible", {"source": "checks.report("}, "does not parse (line 1"),
    "not executed": ("q9-1-hidden", {"outputs": []}, "0 reports among its stored outputs"),
    "stored booleans": ("q9-1-hidden", {"report": [True, False]}, "nothing but true and false"),
    "stored none": ("q9-1-hidden", {"report": None}, "reports None, which says nothing"),
    "stored empty": ("q9-2-visible", {"report": []}, "reports [], which says nothing"),
    "value in sight": (
        "q9-1-visible",
        {"source": report("double(2061.5)", before="# 4123\nto_reach = 4123.0"), "report": 4123},
        "holds 4123, which is its result",
    ),
    "list in sight": (
        "q9-2-visible",
        {"source": report("squares(4)", "q9-2-visible", "[0, 1, 4, 9]")},
        "holds [0, 1, 4",
    ),
    "named expected": ("q9-1-visible", {"source": report("double(4)", before="expected = 8")}, "holds expected = 8"),
    "asserts": ("q9-1-visible", {"source": report("double(4)", before="assert double(4) == 8")}, "asserts by itself"),
    "input is output": ("q9-1-visible", {"source": report("double(2061.5)"), "report": 2061.5}, "holds 2061.5"),
}

CURE = re.compile("; |set metadata|needs metadata|BEGIN without its END")


@pytest.mark.parametrize("name", MASTERS)
@pytest.mark.filterwarnings("ignore:Non-unique cell id")
def test_a_master_is_refused_with_its_file_the_cell_and_a_cure(tmp_path, course, executed, name):
    cell_id, facts, words = MASTERS[name]
    path = course / "solutions" / "09_test.ipynb"
    path.write_text(json.dumps(change(executed, cell_id, **facts)), encoding="utf-8")
    with pytest.raises(MasterError) as caught:
        release(course, {"09_test": Master(path)}, tmp_path / "bundle")
    told = str(caught.value).splitlines()
    assert all(line.startswith(f"{path}: ") and CURE.search(line) for line in told)
    assert words in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["course"]


@pytest.mark.filterwarnings("ignore::nbformat.warnings.MissingIDFieldWarning", "ignore:Cell is missing an id field")
def test_a_cell_without_an_id_is_refused(tmp_path, course, executed):
    data = copy.deepcopy(executed)
    number = next(k for k, cell in enumerate(data["cells"]) if cell["id"] == "q9-2-answer")
    del data["cells"][number]["id"]
    (tmp_path / "m.ipynb").write_text(json.dumps(data), encoding="utf-8")
    told = list(refusals(Master(tmp_path / "m.ipynb")))
    assert f"{tmp_path / 'm.ipynb'}: cell {number + 1} (answer) has no id; give it one like 'q1-1-answer'" in told


def test_the_small_master_itself_is_not_refused(course):
    assert list(refusals(Master(course / "solutions" / "09_test.ipynb"))) == []


# A worked input may stand in the result by chance: none of these tells a student anything.
@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("double(4)", 8),
        ("[double(x) for x in (4, 2.5)]", [8, 5.0]),
        ("[double(1e9), double(2e9)]", [2e9, 4e9]),  # one of two, and among the inputs
        ("{'a': double(7.5), 'b': double(0.25)}", {"a": 15.0, "b": 0.5}),
    ],
)
def test_inputs_that_resemble_results_are_let_through(tmp_path, executed, source, value):
    data = change(executed, "q9-1-visible", source=report(source), report=value)
    (tmp_path / "m.ipynb").write_text(json.dumps(data), encoding="utf-8")
    assert list(refusals(Master(tmp_path / "m.ipynb"))) == []


@pytest.mark.slow
def test_checks_that_the_blank_or_a_wrong_answer_passes_are_found_by_running_them(tmp_path, executed):
    changes = {
        "sound": executed,
        "blank": change(executed, "q9-1-visible", source=report("double.__name__"), report="double"),
        "wrong": change(executed, "q9-3-hidden", source=lambda s: s.replace("parts(i)", "parts(i)['name']")),
        "broken": change(executed, "q9-2-hidden", source=lambda s: s.replace("squares(i)", "cubes(i)")),
    }
    masters = {}
    for name, data in changes.items():
        (tmp_path / f"{name}.ipynb").write_text(json.dumps(data), encoding="utf-8")
        masters[name] = Master(tmp_path / f"{name}.ipynb")
    counted = []
    told = list(blind_checks(masters, counted.append))
    cure = "as for the solution, so it cannot fail; choose inputs that tell them apart"
    assert told == [
        f"{tmp_path}/blank.ipynb: cell 'q9-1-visible' reports the same for the blank stub {cure}",
        f"{tmp_path}/blank.ipynb: cell 'q9-1-visible' reports the same for wrong answer 1 {cure}",
        f"{tmp_path}/wrong.ipynb: cell 'q9-3-hidden' reports the same for wrong answer 1 {cure}",
        f"{tmp_path}/broken.ipynb: cell 'q9-2-hidden' reports nothing for the solution "
        "(NameError: name 'cubes' is not defined); mend it",
    ]
    assert counted[-1] == "running the known wrong answers: 24 of 24"


# ------------------------------------------------------------------------------------------------ the bundle


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def masters_of(course):
    return {path.stem: Master(path) for path in sorted((course / "solutions").glob("*.ipynb"))}


def test_folder_and_zip_hold_the_same_and_come_out_the_same_again(tmp_path, course):
    release(course, masters_of(course), tmp_path / "folder", quick=True)
    release(course, masters_of(course), tmp_path / "one.zip", quick=True)
    for path in course.rglob("*"):  # other dates, and a stricter mask: still the same course
        os.utime(path, (1_000_000_000, 1_000_000_000))
    release(course, masters_of(course), tmp_path / "two.zip", quick=True)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as bundle:
        assert bundle.testzip() is None and bundle.namelist() == sorted(bundle.namelist())
        assert {e.date_time for e in bundle.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        modes = {e.filename: stat.filemode(e.external_attr >> 16) for e in bundle.infolist()}
        zipped = {name.removeprefix("distgen-lab/"): bundle.read(name) for name in bundle.namelist()}
    assert zipped == contents(tmp_path / "folder")
    assert modes["distgen-lab/distgen_lab/run.sh"] == "-rwxr-xr-x" and modes["distgen-lab/README.md"] == "-rw-r--r--"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["course", "folder", "one.zip", "two.zip"]


def test_a_bundle_of_one_section_holds_no_other_and_checks_what_it_hands_out(tmp_path, course):
    written = release(course, masters_of(course), tmp_path / "bundle", quick=True)
    assert written == [tmp_path / "bundle" / "exercises" / "09_test.ipynb"]
    bundle = contents(tmp_path / "bundle")
    assert [name for name in bundle if "data/" in name] == [
        "distgen_lab/data/exercises/09_test.ipynb", "distgen_lab/data/key/09_test.json"
    ]  # fmt: skip
    assert bundle["distgen_lab/data/exercises/09_test.ipynb"] == bundle["exercises/09_test.ipynb"]
    assert b"exercises/09_test.ipynb" in bundle["README.md"] and bundle["Makefile"] == b"lab:\n\techo\n"


HIDDEN_LINE = 'inputs = [checks.rng("q9-1-hidden").randint(2, 9) for _ in range(3)]'


@pytest.mark.parametrize("place", ["notebooks/09_test.ipynb", "distgen_lab/run.sh", "distgen_lab/data/key/old.json"])
@pytest.mark.parametrize("write", [str, json.dumps])
def test_a_hidden_line_anywhere_stops_the_release(tmp_path, course, place, write):
    if place.endswith("old.json"):  # no section of that name is handed out: it does not ship
        place = place.replace("key", "samples")
        (course / place).parent.mkdir()
    (course / place).write_text(f"before\n    {write(HIDDEN_LINE)}\nafter", encoding="utf-8")
    for out in ("bundle", "bundle.zip"):
        with pytest.raises(MasterError, match=rf"09_test.ipynb: this line would ship in {place}: .*; take it out"):
            release(course, masters_of(course), tmp_path / out, quick=True)
    assert [p.name for p in tmp_path.iterdir()] == ["course"]


@pytest.mark.parametrize(
    ("change_key", "words"),
    [
        (lambda path: path.unlink(), "no readable key"),
        (lambda path: path.write_text("{"), "no readable key"),
        (
            lambda path: path.write_text(path.read_text().replace('"value": 8', '"value": 9')),
            "something else than the key",
        ),
        (lambda path: path.write_text("{}"), "is not in the key"),
        (
            lambda path: path.write_text(path.read_text().replace('"value": 8', '"variants": [{}], "value": 8')),
            "1 worked inputs, not as many as the key",
        ),
    ],
)
def test_a_key_that_does_not_fit_the_solution_stops_the_release(tmp_path, course, change_key, words):
    change_key(course / "distgen_lab" / "data" / "key" / "09_test.json")
    with pytest.raises(MasterError, match=rf"{words}.*run python -m distgen_lab.notebooks build"):
        release(course, masters_of(course), tmp_path / "bundle", quick=True)
    assert [p.name for p in tmp_path.iterdir()] == ["course"]


def test_an_existing_zip_is_kept(tmp_path, course):
    (tmp_path / "bundle.zip").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=r"bundle\.zip exists; name a new file"):
        release(course, masters_of(course), tmp_path / "bundle.zip", quick=True)
    assert (tmp_path / "bundle.zip").read_bytes() == b"mine"


def test_a_zip_that_breaks_midway_leaves_nothing(tmp_path, course, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", fail)
    with pytest.raises(OSError, match="No space left"):
        release(course, masters_of(course), tmp_path / "deep" / "bundle.zip", quick=True)
    assert [p.name for p in tmp_path.iterdir()] == ["course"]


def test_what_nbgrader_gets_holds_no_known_answer(tmp_path, course):
    [path] = nbgrader_course(masters_of(course), tmp_path / "course_for_nbgrader", quick=True)
    assert path == tmp_path / "course_for_nbgrader" / "source" / "09_test" / "09_test.ipynb"
    roles = [cell.metadata.distgen.role for cell in nbformat.read(path, 4).cells if "distgen" in cell.metadata]
    assert roles == ["answer", "visible", "hidden"] * 3
    assert "Trusted points come only from:  distgen grade" in (path.parents[2] / "nbgrader_config.py").read_text()


@pytest.mark.parametrize("path", sorted((course_root() / "solutions").glob("*.ipynb")), ids=lambda path: path.stem)
def test_no_section_of_the_course_is_refused(path):
    assert list(refusals(Master(path))) == []
