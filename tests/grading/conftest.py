"""A small master of three questions with short time limits, and a way to hand in answers to it."""

import json

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_raw_cell

from distgen_lab.grading.master import Master
from distgen_lab.grading.sandbox import why_not
from distgen_lab.notebooks import write

SOLUTIONS = {
    "q9-1": "def double(x):\n    ### BEGIN SOLUTION\n    return x + x + 0 * 1234567890\n    ### END SOLUTION",
    "q9-2": "def squares(n):\n    ### BEGIN SOLUTION\n    return [i * i for i in range(0, n)]\n    ### END SOLUTION",
    "q9-3": "def parts(x):\n    ### BEGIN SOLUTION\n    return {'half': x / 2, 'name': 'part'}\n    ### END SOLUTION",
}
CALLS = {"q9-1": "double({})", "q9-2": "squares({})", "q9-3": "parts({})"}
WRONG = {
    "q9-1": ("This triples.", "def double(x):\n    return 3 * x"),
    "q9-2": ("Start at 0.", "def squares(n):\n    return [(i + 1) ** 2 for i in range(n)]"),
    "q9-3": ("Half, not a third.", "def parts(x):\n    return {'half': x / 3, 'name': 'part'}"),
}


def cell(kind, key, source, **facts):
    marks = {"schema_version": 3, "grade_id": f"{key}-{kind}", "grade": kind != "answer", "solution": kind == "answer"}
    marks |= {"locked": kind != "answer", "task": False} | ({"points": 10} if kind != "answer" else {})
    metadata = {"nbgrader": marks, "distgen": {"role": kind, "question": key} | facts}
    return new_code_cell(source, id=f"{key}-{kind}", metadata=metadata)


def question_cells(key, number):
    title = f"Exercise 9.{number}"
    hint, wrong = WRONG[key]
    hidden = f"""### BEGIN HIDDEN TESTS
from distgen_lab import checks
inputs = [checks.rng("{key}-hidden").randint(2, 9) for _ in range(3)]
checks.report("{key}-hidden", [{CALLS[key].format("i")} for i in inputs])
### END HIDDEN TESTS"""
    visible = f'from distgen_lab import checks\n\nchecks.report("{key}-visible", {CALLS[key].format(4)})'
    return [
        cell("answer", key, SOLUTIONS[key]),
        cell("visible", key, visible, title=title, points=10, seconds=40.0 if key == "q9-3" else 4.0),
        cell("hidden", key, hidden),
        new_raw_cell(
            f"hint: {hint}\n{wrong}", id=f"{key}-wrong-1", metadata={"distgen": {"role": "wrong", "question": key}}
        ),
        new_raw_cell("x = 1", id=f"{key}-other-1", metadata={"distgen": {"role": "other", "question": key}}),
    ]


NO_SANDBOX = why_not()
"""Why no sandbox can be had here, "" if one can."""


@pytest.fixture(scope="session")
def master(tmp_path_factory):
    cells = [new_markdown_cell("# Chapter section 9: test", id="t-title"), new_code_cell("import math", id="t-setup")]
    for number, key in enumerate(SOLUTIONS, 1):
        cells += question_cells(key, number)
    path = tmp_path_factory.mktemp("course") / "09_test.ipynb"
    write(new_notebook(cells=cells, metadata={"distgen": {"section": "09_test"}}), path)
    return Master(path)


RIGHT = {
    "q9-1": "def double(x):\n    return 2 * x",
    "q9-2": "def squares(n):\n    return (i**2 for i in range(n))",
    "q9-3": "def parts(x):\n    return dict(name='part', half=0.5 * x)",
}


@pytest.fixture(scope="session")
def hand_in(master):
    """Return a function that makes a submission as JSON data: right answers unless told otherwise."""

    def make(answers=None, **rest):
        notebook = json.loads(json.dumps(master.student_version()))
        for entry in notebook["cells"]:
            key = entry["id"].removesuffix("-answer")
            if entry["id"].endswith("-answer"):
                entry["source"] = {**RIGHT, **(answers or {})}[key]
        return notebook | rest

    return make
