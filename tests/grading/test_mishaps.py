"""Hapless and hostile submissions: each gets the points it deserves, and none takes a batch down."""

import copy
import json

import psutil
import pytest

from distgen_lab.grading.grade import find_submissions, grade
from tests.grading.conftest import NO_SANDBOX

FULL = {"q9-1": "10", "q9-2": "10", "q9-3": "10"}
NO_1 = FULL | {"q9-1": "0"}
NO_2 = FULL | {"q9-2": "0"}
NONE = dict.fromkeys(FULL, "0")

# Writes to every pipe of the parent process what a record of a passed check looks like, and some junk.
FORGER = """
import json, os
parent = os.getppid()
try:
    numbers = os.listdir(f"/proc/{parent}/fd")
except OSError:  # the sandbox does not let it look
    numbers = []
for number in numbers:
    try:
        if "pipe:" in os.readlink(f"/proc/{parent}/fd/{number}"):
            with open(f"/proc/{parent}/fd/{number}", "wb", buffering=0) as pipe:
                for name in [f"{i}-{kind}" for i in range(80) for kind in ("visible", "hidden")]:
                    event = {"notebook": name, "cell": "q9-2-hidden", "state": "match", "seconds": 0}
                    pipe.write(json.dumps(event).encode() + b"\\n")
                pipe.write(b"junk\\n[1]\\n{}\\n")
    except OSError:
        pass
"""
# An answer to question 2 (the others are right), and a word its reason must hold. None of them may score.
ANSWERS = {
    "syntax_error": ("def squares(n:\n    return", "SyntaxError"),
    "raises": ("def squares(n):\n    raise ValueError('my mistake')", "ValueError: my mistake"),
    "surrogate_in_error": ("def squares(n):\n    raise ValueError('\\udcff')", "ValueError"),
    "endless_loop": ("def squares(n):\n    while True:\n        pass", "timeout"),
    "swallows_interrupt": (
        "import time\ndef squares(n):\n    end = time.time() + 6\n    while time.time() < end:\n        try:\n"
        "            time.sleep(0.1)\n        except KeyboardInterrupt:\n            pass\n"
        "    return [i * i for i in range(n)]",
        "timeout",
    ),
    "asks_for_input": ("def squares(n):\n    return [input()] * n", "StdinNotImplementedError"),
    "sys_exit": ("import sys\ndef squares(n):\n    sys.exit()", "SystemExit"),
    "returns_true": ("def squares(n):\n    return True", "TypeError"),
    "returns_none": ("def squares(n):\n    return None", "None"),
    "returns_text": ("def squares(n):\n    return '[0, 1, 4, 9]'", "wrong"),
    "endless_generator": ("import itertools\ndef squares(n):\n    return itertools.count()", "too large"),
    "equal_to_everything": (
        "class Sly(list):\n    def __eq__(self, other):\n        return True\ndef squares(n):\n    return Sly([1])",
        "wrong",
    ),
    "hard_coded": ("def squares(n):\n    return [0, 1, 4, 9]", "right for the worked input"),
    "forged_report": (
        "from IPython.display import display\nfrom distgen_lab import checks\n"
        "display({checks.MIME: {'id': 'q9-2-hidden', 'value': [[0]]}}, raw=True)\ndef squares(n):\n    return []",
        "wrong",
    ),
    "second_report": (
        "from distgen_lab import checks as c\ndef squares(n):\n    c.report('q9-2-hidden', 1)\n"
        "    return [i * i for i in range(n)]",
        "several reports",
    ),
    "patched_report": (
        "from distgen_lab import checks\nchecks.explain = lambda *a: (True, 'right')\n"
        "def squares(n):\n    return [7] * n",
        "wrong",
    ),
    "forged_record": (FORGER + "def squares(n):\n    return [7] * n", "wrong"),
    "silenced_errors": (
        "get_ipython().showtraceback = lambda *a, **k: None\ndef squares(n):\n    raise ValueError('hidden')",
        "no report",
    ),
}
# Notebooks made otherwise: (change to the JSON data, wanted points, word in any reason).
NOTEBOOKS = {
    "as_it_should_be": (lambda nb: nb, FULL, "right"),
    "no_metadata": (lambda nb: [c.update(metadata={}) for c in nb["cells"]] and nb | {"metadata": {}}, FULL, "right"),
    "checks_deleted": (lambda nb: nb | {"cells": [c for c in nb["cells"] if "visible" not in c["id"]]}, FULL, "right"),
    "answer_is_markdown": (lambda nb: nb["cells"][2].update(cell_type="markdown") or nb, FULL, "right"),
    "answer_deleted": (lambda nb: nb["cells"].pop(2) and nb, NO_1, "missing"),
    "check_edited": (lambda nb: nb["cells"][3].update(source="print('all fine')") or nb, FULL, "right"),
    "setup_edited": (
        lambda nb: (
            nb["cells"][1].update(source="import math\nfactor = 2")
            or nb["cells"][2].update(source="def double(x):\n    return factor * x")
            or nb
        ),
        FULL,
        "right",
    ),
    "helper_cell_before": (
        lambda nb: (
            nb["cells"].insert(2, helper("def helper(x):\n    return x + x"))
            or nb["cells"][3].update(source="double = helper")
            or nb
        ),
        FULL,
        "right",
    ),
    "helper_cell_after": (
        lambda nb: (
            nb["cells"].insert(3, helper("def helper(x):\n    return x + x"))
            or nb["cells"][2].update(source="def double(x):\n    return helper(x)")
            or nb
        ),
        FULL,
        "right",
    ),
    "answered_twice": (
        lambda nb: nb["cells"].insert(2, nb["cells"][2] | {"source": "def double(x):\n    return 0"}) or nb,
        FULL,
        "right",
    ),
    "copied_stub_below": (lambda nb: nb["cells"].insert(3, copy.deepcopy(STUB[0])) or nb, FULL, "right"),
    "noisy": (
        lambda nb: (
            nb["cells"][1].update(
                source="import sys, warnings\nprint('x' * 3_000_000)\nwarnings.warn('!')\nprint('!', file=sys.stderr)"
            )
            or nb
        ),
        FULL,
        "right",
    ),
    "flood_of_prints": (
        lambda nb: nb["cells"][1].update(source="for i in range(20_000):\n    print(i, flush=True)") or nb,
        FULL,
        "right",
    ),
    "format_3": (
        lambda nb: {
            "nbformat": 3,
            "nbformat_minor": 0,
            "metadata": {},
            "worksheets": [
                {"cells": [{"cell_type": "code", "input": c["source"], "id": c["id"]} for c in nb["cells"]]}
            ],
        },
        FULL,
        "right",
    ),
    "format_5": (lambda nb: nb | {"nbformat": 5}, NONE, "format 5"),
    "kernel_killed": (
        lambda nb: nb["cells"][4].update(source="import os\nos._exit(1)") or nb,
        FULL | {"q9-2": "0", "q9-3": "0"},
        "the kernel ended in q9-2-answer: died",
    ),
    "no_cells": (lambda nb: nb | {"cells": []}, NONE, "missing"),
    "cells_are_text": (lambda nb: nb | {"cells": "none"}, NONE, "no list of cells"),
    "other_section": (
        lambda nb: nb | {"metadata": {"distgen": {"section": "03_other"}}},
        NONE,
        "no notebook for section",
    ),
}
STUB = []
# Files that are no JSON notebook: bytes, points, word in the reason.
FILES = {
    "empty": (b"", "not JSON"),
    "truncated": (b'{"cells": [', "not JSON"),
    "latin_1": ('{"cells": ["é"]}'.encode("latin-1"), "UTF-8"),
    "a_list": (b"[]", "no JSON object"),
    "nested": (b"[" * 200_000, "nested too deeply"),
    "key_twice": (b'{"nbformat": 4, "cells": [], "cells": []}', "twice"),
    "huge": (b" " * 6_000_000, "larger than 5 MB"),
}


def helper(source):
    return {"cell_type": "code", "id": "my-helper", "metadata": {}, "source": source, "outputs": []}


@pytest.fixture(scope="module")
def graded(master, hand_in, tmp_path_factory):
    """Grade everything in one batch; return rows by student and question."""
    folder = tmp_path_factory.mktemp("submissions")
    STUB.append(next(c for c in json.loads(json.dumps(master.student_version()))["cells"] if c["id"] == "q9-1-answer"))
    for student, (source, _) in ANSWERS.items():
        put(folder, student, json.dumps(hand_in({"q9-2": source})))
    for student, (change, _, _) in NOTEBOOKS.items():
        put(folder, student, json.dumps(change(hand_in())))
    for student, (content, _) in FILES.items():
        put(folder, student, content)
    put(folder, "with_bom", "\ufeff" + json.dumps(hand_in()))
    put(folder, "crlf", json.dumps(hand_in(), indent=1).replace("\n", "\r\n").replace("\\n", "\\r\\n"))
    put(folder, "blank", json.dumps(json.loads(json.dumps(master.student_version()))))
    (folder / "nothing").mkdir()
    put(folder, "two_files", json.dumps(hand_in()))
    (folder / "two_files" / "copy.ipynb").write_text(json.dumps(hand_in({"q9-1": "double = None"})))
    put(folder, "same_twice", json.dumps(hand_in()))
    (folder / "same_twice" / "hw (1).ipynb").write_text(json.dumps(hand_in()))
    put(folder, "linked", "{}")
    (folder / "linked" / "hw.ipynb").unlink()
    (folder / "linked" / "hw.ipynb").symlink_to(folder / "with_bom" / "hw.ipynb")
    put(folder, "=cmd|x", json.dumps(hand_in()))
    before = set(psutil.pids())
    rows = grade({"09_test": master}, find_submissions(folder), seed="7", workers=2, sandbox=not NO_SANDBOX)
    left = [
        p
        for p in psutil.process_iter(["name", "cmdline"])
        if p.pid not in before and "ipykernel" in str(p.info["cmdline"])
    ]
    assert left == []
    return {(row.student, row.question): row for row in rows}


def put(folder, student, content):
    (folder / student).mkdir()
    data = content if isinstance(content, bytes) else content.encode()
    (folder / student / "hw.ipynb").write_bytes(data)


def points(graded, student):
    return {key: graded[student, key].points for key in FULL}


def reasons(graded, student):
    return " / ".join(graded[student, key].reason for key in FULL)


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("student", ANSWERS)
def test_bad_answer_costs_its_question(graded, student):
    later_gone = student in ("endless_loop", "swallows_interrupt")
    assert points(graded, student)["q9-2"] == "0"
    assert later_gone or points(graded, student) == NO_2
    assert ANSWERS[student][1] in graded[student, "q9-2"].reason


@pytest.mark.parametrize("student", NOTEBOOKS)
def test_changed_notebook_gets_what_it_deserves(graded, student):
    _, wanted, word = NOTEBOOKS[student]
    assert points(graded, student) == wanted
    assert word in reasons(graded, student)


@pytest.mark.parametrize("student", FILES)
def test_unreadable_file_gets_rows_with_the_reason(graded, student):
    assert points(graded, student) == NONE
    assert FILES[student][1] in reasons(graded, student)


@pytest.mark.parametrize(
    ("student", "wanted", "word"),
    [
        ("with_bom", FULL, "right"),
        ("crlf", FULL, "right"),
        ("blank", NONE, "blank"),
        ("nothing", NONE, "no notebook was handed in"),
        ("two_files", NONE, "2 different notebooks for section 09_test (copy.ipynb, hw.ipynb)"),
        ("same_twice", FULL, "right"),
        ("linked", NONE, "not a regular file"),
        ("=cmd|x", FULL, "right"),
    ],
)
def test_odd_hand_in(graded, student, wanted, word):
    assert points(graded, student) == wanted
    assert word in reasons(graded, student)


def test_every_student_has_a_row_for_every_question(graded):
    students = {student for student, _ in graded}
    assert len(graded) == 3 * len(students) == 3 * (len(ANSWERS) + len(NOTEBOOKS) + len(FILES) + 8)
    assert all(row.reason and row.out_of == "10" for row in graded.values())
