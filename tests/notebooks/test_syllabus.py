"""The README's syllabus says the minutes of notebooks and questions; the workflow calls the README's command."""

import json
import re
import subprocess
import sys
import tomllib

import pytest
import yaml


def markdown(path):
    """The cells of text of a notebook."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


@pytest.fixture(scope="module")
def syllabus(repo):
    """Section name -> minutes of the notebook and of its exercises, as the README says."""
    text = (repo / "README.md").read_text("utf-8").partition("## Syllabus")[2].partition("\n## ")[0]
    rows = re.findall(r"\| [\d-]+ \| \[(\w+)\]\(notebooks/\w+\.ipynb\) \| (\d+) \| (\d+) \|", text)
    return {name: (int(minutes), int(more)) for name, minutes, more in rows}, text


def test_the_syllabus_has_every_notebook_with_its_own_minutes(repo, syllabus):
    rows, _ = syllabus
    assert list(rows) == sorted(path.stem for path in (repo / "notebooks").glob("0*.ipynb"))
    for name, (minutes, exercises) in rows.items():
        (said,) = re.findall(r"about (\d+) minutes", markdown(repo / "notebooks" / f"{name}.ipynb")[0])
        head, *boxes = re.findall(r"about (\d+) minutes", "\n".join(markdown(repo / "exercises" / f"{name}.ipynb")))
        assert (minutes, exercises) == (int(said), sum(map(int, boxes))), name
        assert head == str(exercises), f"{name}: {head} minutes at the head of the exercises, {exercises} in its boxes"


def test_each_path_adds_up(syllabus):
    rows, text = syllabus
    by_number = {name[:2]: minutes for name, (minutes, _) in rows.items()}
    paths = re.findall(r"\((\d+) minutes[^)]*\): ([\d, and then]+)", text)
    assert len(paths) == 2
    for total, names in paths:
        assert int(total) == sum(by_number[name] for name in re.findall(r"\d\d", names))


def test_the_workflow_runs_make_test_on_every_system_with_old_and_new_dependencies(repo):
    job = yaml.safe_load((repo / ".github" / "workflows" / "test.yml").read_text("utf-8"))["jobs"]["test"]
    assert any(step.get("run", "").startswith("make test") for step in job["steps"])
    matrix = job["strategy"]["matrix"]
    assert {system.partition("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert {"oldest", "newest"} <= set(matrix["dependencies"])


@pytest.mark.parametrize("which", ["oldest", "pinned", "newest", "latest"])
def test_constraints_follow_from_the_project(repo, which):
    done = subprocess.run(
        [sys.executable, repo / ".github" / "constraints.py", which], capture_output=True, text=True, check=False
    )
    project = tomllib.loads((repo / "pyproject.toml").read_text("utf-8"))["project"]
    if which == "oldest":
        wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
        assert [line.replace("==", ">=", 1).replace(".*", "", 1) for line in done.stdout.splitlines()] == wanted
    elif which == "latest":
        assert done.returncode and "oldest, pinned or newest" in done.stderr
    else:
        assert done.stdout == ((repo / "constraints.txt").read_text("utf-8") if which == "pinned" else "")
