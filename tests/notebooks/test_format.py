"""The course's notebooks keep the course's rules, and what is generated agrees with what it is generated from."""

import base64
import contextlib
import importlib
import io
import json
import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

from distgen_lab import checks
from distgen_lab.course import course_root
from distgen_lab.grading.feedback import exercises
from distgen_lab.grading.key import key_path, make_key
from distgen_lab.grading.master import Master
from distgen_lab.labs import PATIENCE
from distgen_lab.notebooks import FOLDERS, canonical, main, paths_of, problems, write

ROOT = course_root()
NOTEBOOKS = paths_of(ROOT, *FOLDERS)
SOLUTIONS = paths_of(ROOT, "solutions")


def name(path):
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebook_keeps_the_rules(path):
    assert list(problems(path, executed=path.parent.name != "exercises")) == []


@pytest.mark.parametrize("path", SOLUTIONS, ids=name)
def test_exercise_is_what_the_solution_generates(path, tmp_path):
    write(Master(path).student_version(), tmp_path / "generated.ipynb")
    wanted = (tmp_path / "generated.ipynb").read_bytes()
    for exercise in (ROOT / "exercises" / path.name, exercises()[path.stem]):
        assert exercise.read_bytes() == wanted, f"run: make notebooks ARGS={path}"


@pytest.mark.slow
@pytest.mark.parametrize("path", SOLUTIONS, ids=name)
def test_answer_key_is_what_the_solution_makes(path):
    stored = key_path(path.stem).read_text("utf-8")
    assert make_key(Master(path)) == json.loads(stored)
    assert key_path(path.stem).read_text("utf-8") == stored


@pytest.mark.parametrize("path", SOLUTIONS, ids=name)
def test_what_a_check_withholds_is_there(path):
    code = "\n".join(cell.source for cell in nbformat.read(path, 4).cells)
    calls = re.findall(r"checks\.withheld\(([^)]*)\)", code)
    names = {function for call in calls for function in re.findall(r'"([\w.]+)"', call)}
    for owner in {function.rpartition(".")[0] for function in names}:
        with contextlib.suppress(ImportError):  # a class
            importlib.import_module(f"distgen_lab.{owner}")
    with checks.withheld(*names):
        pass


@pytest.mark.parametrize("path", SOLUTIONS, ids=name)
def test_exercise_holds_no_secret(path):
    cells = nbformat.read(ROOT / "exercises" / path.name, as_version=4).cells
    secrets = Master(path).secrets()
    assert len(secrets) > 5 * len(Master(path).questions)
    text = "\n".join(cell.source for cell in cells)
    assert [line for line in secrets if line in text] == []


@pytest.mark.parametrize("path", SOLUTIONS, ids=name)
def test_questions_say_their_points_and_add_up_to_100(path):
    master = Master(path)
    prose = "\n".join(cell.source for cell in master.notebook.cells if cell.cell_type == "markdown")
    for question in master.all:
        box = re.search(rf"## {re.escape(question.title)}: .*?(?=\n## |\Z)", prose, re.DOTALL).group()
        assert f"**{question.points} points**" in box
        assert all(word in box for word in ("minutes", "*Objective*", "roughly"))
        assert 2 <= len(question.wrong) <= 4
        assert question.other, f"{question.title} needs another right answer"
        assert all(wrong.hint.endswith((".", "?")) for wrong in question.wrong)
        stub = master.stub(question.key)
        assert f'raise NotImplementedError("{question.title}' in stub
        assert '"""' in stub
    assert master.points == 100
    fewest = 6 if master.section == "08_planning" else 8  # there most questions are a search of one's own
    assert fewest <= len(master.questions) <= 11


RANKS = re.compile(r"\b(?:report_of|watch_blocks|trials\.\w+|launch)\(")
"""What starts ranks in a check."""


@pytest.mark.parametrize("path", SOLUTIONS, ids=name)
def test_ranks_of_a_check_end_before_their_cell(path):
    """Else the time limit of the cell hides the launcher's sentence on who waits for whom."""
    master = Master(path)
    for question in master.all:
        source = "\n".join(master.cell(cell).source for cell in question.cells)
        limits = [float(text) for text in re.findall(r"\btimeout=(\d+)", source)]
        assert len(limits) == source.count("launch("), question.key
        if RANKS.search(source):
            assert question.seconds >= max([PATIENCE, *limits]) + 15, question.key


def test_links_between_notebooks_lead_somewhere():
    later = re.compile(r"0[2-7]_\w+\.ipynb")
    for path in NOTEBOOKS:
        for cell in nbformat.read(path, as_version=4).cells:
            for target in re.findall(r"\]\(([^)#]+\.ipynb)\)", cell.source):
                assert (path.parent / target).exists() or later.search(target), f"{path}: {target}"


BAD_CELLS = {
    "!ls": "starts a shell with !",
    "%pip install x": "calls pip",
    "%%writefile a.py\nx = 1": "uses %%writefile",
    "import sys\nsys.path.append('.')": "touches sys.path",
    "open('/home/me/file')": "names an absolute path",
    "import requests": "uses the network",
    "\n".join(f"x{i} = {i}" for i in range(21)): "has 21 lines",
    "def f(:": "does not parse",
}


@pytest.mark.parametrize("source", BAD_CELLS)
def test_checker_finds_a_bad_cell(source, tmp_path):
    title = "# Chapter section 9: try\n\n*You will do* *You will learn* *You need*"
    cells = [new_markdown_cell(title, id="t-title"), new_code_cell(source, id="t-code", execution_count=1)]
    write(new_notebook(cells=cells), tmp_path / "bad.ipynb")
    assert any(BAD_CELLS[source] in text for text in problems(tmp_path / "bad.ipynb"))


def test_checker_finds_what_is_wrong_with_a_notebook(tmp_path):
    path = tmp_path / "bad.ipynb"
    cells = [
        new_code_cell("1", outputs=[new_output("execute_result", {"text/plain": "1"})], execution_count=k)
        for k in (2, 1)
    ]
    nbformat.write(new_notebook(cells=cells), path)
    text = "\n".join(problems(path))
    for part in ("canonical form", "first cell", "not readable", "not executed from top to bottom", "both print"):
        assert part in text


def test_fix_makes_canonical_and_changes_no_source(tmp_path):
    path = tmp_path / "messy.ipynb"
    notebook = new_notebook(
        cells=[new_code_cell("x = 1   \n\n")],
        metadata={"widgets": {"x": 1}, "kernelspec": {"name": "other", "display_name": "Other"}},
    )
    notebook.cells[0].outputs = [new_output("stream", name="stderr", text="noise")]
    nbformat.write(notebook, path)
    assert main(["fix", str(path)]) == 0
    fixed = nbformat.read(path, as_version=4)
    assert fixed.metadata.kernelspec.name == "python3"
    assert "widgets" not in fixed.metadata
    assert fixed.cells[0].source == "x = 1"
    assert fixed.cells[0].outputs == []
    assert nbformat.writes(canonical(fixed)) + "\n" == path.read_text("utf-8")


def test_pictures_get_a_palette_and_keep_their_lines():
    picture = Image.new("RGBA", (400, 300), "white")
    for x in range(400):
        picture.putpixel((x, 100 + x // 8), (0, 114, 178, 255))
    noise = Image.effect_noise((60, 60), 80).convert("RGB").quantize(256)

    def stored(image):
        file = io.BytesIO()
        image.save(file, "PNG")
        return base64.b64encode(file.getvalue()).decode()

    outputs = [new_output("display_data", {"image/png": text}) for text in (stored(picture), stored(noise), "bm9uZQ==")]
    kept = canonical(new_notebook(cells=[new_code_cell("1", outputs=outputs)])).cells[0].outputs
    light = Image.open(io.BytesIO(base64.b64decode(kept[0].data["image/png"])))
    assert light.mode == "P" and len(kept[0].data["image/png"]) < len(stored(picture))
    assert light.convert("RGB").tobytes() == picture.convert("RGB").tobytes()  # few colours: none is lost
    assert [output.data["image/png"] for output in kept[1:]] == [stored(noise), "bm9uZQ=="]


def test_tool_answers_a_missing_file_in_one_line(capsys, tmp_path):
    assert main(["check", str(tmp_path / "none.ipynb")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
