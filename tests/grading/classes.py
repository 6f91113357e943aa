"""A class made of a master's own solution, other right answers, known wrong ones and blank cells.

``python -m tests.grading.classes FOLDER 01`` writes one, named as by Canvas: for looking at the grader's pages.
"""

import json
import random
import sys
from pathlib import Path

from distgen_lab.course import course_root
from distgen_lab.grading.master import Master

CRASH = "raise NameError(\"name 'parms' is not defined\")"


def make_class(master, students, seed="class"):
    """Return notebooks by student: the later the abler; the fourth and the fifth handed in the same."""
    notebooks = {}
    for number in range(students):
        draw = random.Random(f"{seed}/{number}")
        ability = 0.15 + 0.85 * (number + 1) / students
        notebooks[f"s{number + 1:02}"] = answered(master, number, ability, draw)
    notebooks["s04"] = notebooks["s05"]  # copied, not even renamed
    return notebooks


def answered(master, number, ability, draw):
    notebook = json.loads(json.dumps(master.student_version()))
    cells = {cell["id"]: cell for cell in notebook["cells"]}
    for position, question in enumerate(master.all):
        source = pick(master, question, ability - 0.05 * position, draw)
        if source is not None:
            cells[question.answer]["source"] = f"_try = {number}\n{source}"
    return notebook


def pick(master, question, chance, draw):
    """An answer's source, None for a blank."""
    if draw.random() < chance:
        return draw.choice([master.cell(question.answer).source, *question.other])
    kind = draw.random()
    if kind < 0.2:
        return None
    if kind < 0.3:
        return CRASH
    return draw.choices(question.wrong, [2.0**-k for k in range(len(question.wrong))])[0].source


def main(folder, section):
    (path,) = (course_root() / "solutions").glob(f"{section}*.ipynb")
    Path(folder).mkdir(parents=True)
    for number, (student, notebook) in enumerate(make_class(Master(path), 24).items()):
        late = "LATE_" if number % 8 == 3 else ""
        name = f"{student}_{late}{100 + number}_{900 + number}_{path.name}"
        Path(folder, name).write_text(json.dumps(notebook), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
