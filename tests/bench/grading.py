"""Seconds a submission, side by side: distgen grade, nbgrader and otter on copies of the same three-cell assignment.

    python tests/bench/grading.py [N] [--otter PATH/TO/otter] [--many 200]

The three cells are a set-up, one function, and its check. Each submission differs by a comment. nbgrader
grades all in one command; otter is asked once a submission, for two of them. ``--many`` also grades that many in one
batch and prints the largest memory of the grading process at a quarter of them and at the end.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil
from nbformat.v4 import new_code_cell, new_notebook, new_raw_cell

from distgen_lab.grading.collect import find_submissions
from distgen_lab.grading.grade import grade
from distgen_lab.grading.master import Master
from distgen_lab.grading.release import nbgrader_source
from distgen_lab.grading.run import default_workers

SECTION, ANSWER = "09_square", "def square(x):\n    return x * x"


def _cell(kind: str, source: str, **facts: object) -> nbformat.NotebookNode:
    name, answer = f"q9-1-{kind}", kind == "answer"
    marks = {"schema_version": 3, "grade_id": name, "grade": not answer, "solution": answer, "locked": not answer}
    marks |= {"task": False} | ({} if answer else {"points": facts.get("points", 0)})
    roles = {"role": kind, "question": "q9-1"} | facts
    return new_code_cell(source, id=name, metadata={"nbgrader": marks, "distgen": roles})


def _master(folder: Path) -> Master:
    solution = ANSWER.replace("\n", "\n    ### BEGIN SOLUTION\n") + "\n    ### END SOLUTION"
    visible = "from distgen_lab import checks\n\nchecks.report('q9-1-visible', square(7))"
    drawn = "checks.report('q9-1-hidden', square(checks.rng('q9-1-hidden').random()))"
    hidden = f"### BEGIN HIDDEN TESTS\nfrom distgen_lab import checks\n\n{drawn}\n### END HIDDEN TESTS"
    wrong = new_raw_cell("hint: squared, not doubled\ndef square(x):\n    return x + x", id="q9-1-wrong-1")
    wrong.metadata["distgen"] = {"role": "wrong", "question": "q9-1"}
    checks = [_cell("visible", visible, title="Exercise 9.1", points=10), _cell("hidden", hidden)]
    cells = [new_code_cell("import math", id="t-setup"), _cell("answer", solution), *checks, wrong]
    kernel = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(new_notebook(cells=cells, metadata={"distgen": {"section": SECTION}, "kernelspec": kernel}),
                   folder / f"{SECTION}.ipynb")  # fmt: skip
    return Master(folder / f"{SECTION}.ipynb")


def _hand_in(notebook: nbformat.NotebookNode, number: int, place: Callable[[int], Path]) -> None:
    for student in range(number):
        for cell in notebook.cells:
            if cell.id == "q9-1-answer":
                cell.source = f"{ANSWER}  # {student}"
        place(student).parent.mkdir(parents=True)
        nbformat.write(notebook, place(student))


def _distgen(master: Master, folder: Path, number: int) -> float:
    _hand_in(master.student_version(), number, lambda k: folder / f"s{k}" / f"{SECTION}.ipynb")
    start = time.perf_counter()
    rows = grade({SECTION: master}, find_submissions(folder), workers=default_workers())
    seconds = time.perf_counter() - start
    assert [row.points for row in rows] == ["10"] * number
    return seconds


def _nbgrader(master: Master, folder: Path, number: int) -> float:
    source = folder / "source" / SECTION / f"{SECTION}.ipynb"
    source.parent.mkdir(parents=True)
    nbformat.write(nbgrader_source(master), source)
    place = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = {"cwd": folder, "env": os.environ | {"PATH": place}, "check": True, "capture_output": True}
    subprocess.run(["nbgrader", "generate_assignment", SECTION], **command)
    released = nbformat.read(folder / "release" / SECTION / f"{SECTION}.ipynb", as_version=4)
    _hand_in(released, number, lambda k: folder / "submitted" / f"s{k}" / SECTION / f"{SECTION}.ipynb")
    start = time.perf_counter()
    subprocess.run(["nbgrader", "autograde", SECTION], **command)
    return time.perf_counter() - start


def _otter(otter: Path, folder: Path, number: int) -> float:
    """Make otter's own form of the assignment with ``otter assign`` and run two submissions, one command each."""
    cells = [
        new_raw_cell("# ASSIGNMENT CONFIG\nsolutions_pdf: false\ngenerate: true\nexport_cell: false"),
        new_code_cell("import math"),
        new_raw_cell("# BEGIN QUESTION\nname: q1\npoints: 10"),
        new_raw_cell("# BEGIN SOLUTION"),
        new_code_cell(f"{ANSWER} # SOLUTION"),
        new_raw_cell("# END SOLUTION"),
        new_raw_cell("# BEGIN TESTS"),
        new_code_cell("square(7) == 49"),
        new_raw_cell("# END TESTS"),
        new_raw_cell("# END QUESTION"),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), folder / "ex.ipynb")
    place = os.pathsep.join([str(otter.parent), os.environ["PATH"]])
    command = {"cwd": folder, "env": os.environ | {"PATH": place}, "check": True, "capture_output": True}
    subprocess.run([otter, "assign", "ex.ipynb", "dist", "--no-run-tests"], **command)
    [package] = folder.glob("dist/autograder/*.zip")
    start = time.perf_counter()
    for _ in range(few := 2):
        subprocess.run([otter, "run", "dist/autograder/ex.ipynb", "-a", package, "-o", "out", "--no-logo"], **command)
    return (time.perf_counter() - start) / few * number


def _memory(master: Master, folder: Path, number: int) -> tuple[float, float]:
    """Largest resident MB of this process after a quarter of the submissions, and after all."""
    _hand_in(master.student_version(), number, lambda k: folder / f"s{k}" / f"{SECTION}.ipynb")
    me, seen = psutil.Process(), []
    grade({SECTION: master}, find_submissions(folder), workers=default_workers(),
          progress=lambda text: seen.append(me.memory_info().rss / 1e6))  # fmt: skip
    return max(seen[: len(seen) // 4]), max(seen)


def main() -> None:
    """Print seconds a submission for each grader, and how many times distgen's time each takes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("number", nargs="?", type=int, default=20)
    parser.add_argument("--otter", type=Path)
    parser.add_argument("--many", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        master = _master(folder)
        graders = {"distgen grade": _distgen, "nbgrader autograde": _nbgrader}
        times = {}
        for turn in range(2):  # twice in turn, the better one counts: a busy moment hits all alike
            for grader, measure in graders.items():
                seconds = measure(master, folder / f"{turn}-{grader.split()[0]}", options.number)
                times[grader] = min(seconds, times.get(grader, seconds))
        if options.otter:
            (folder / "otter" / "out").mkdir(parents=True)
            times["otter run"] = _otter(options.otter.absolute(), folder / "otter", options.number)
        for grader, seconds in times.items():
            ratio = seconds / times["distgen grade"]
            each = seconds / options.number
            print(f"{grader:18} {options.number} submissions {seconds:6.1f} s, {each:5.2f} s each, {ratio:.1f} x")
        if options.many:
            early, late = _memory(master, folder / "many", options.many)
            print(f"{options.many} in one batch: {early:.0f} MB after a quarter, {late:.0f} MB at the end")


if __name__ == "__main__":
    main()
