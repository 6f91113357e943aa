"""The corpus of hostile and hapless submissions, graded in one batch: each gets the points it deserves."""

import copy
import json
import os
import stat
import time
from pathlib import Path

import psutil
import pytest

from distgen_lab.grading.collect import find_submissions
from distgen_lab.grading.grade import grade
from tests.grading import corpus
from tests.grading.conftest import NO_SANDBOX
from tests.grading.corpus import ANSWERS, CODE, FILES, FULL, HONEST, NAMES, NO_2, NO_3, NONE, NOTEBOOKS, RANKS

pytestmark = pytest.mark.slow
inside = pytest.mark.skipif(bool(NO_SANDBOX), reason=NO_SANDBOX or "there is one")
DANGEROUS = {"ends_the_worker", "kills_itself"}
"""Not to be run without a sandbox."""
ODD = {
    "with_bom": (FULL, "right"),
    "crlf": (FULL, "right"),
    "blank": (NONE, "blank"),
    "nothing": (NONE, "no notebook was handed in"),
    "two_files": (NONE, "2 different notebooks for section 09_test (copy.ipynb, hw.ipynb)"),
    "same_twice": (FULL, "right"),
    "linked": (NONE, "not a regular file"),
    "link_to_nowhere": (NONE, "not a regular file"),
    "a_folder": (NONE, "no notebook was handed in"),
    "a_queue": (NONE, "not a regular file"),
}
answers = {name: case for name, case in ANSWERS.items() if not NO_SANDBOX or name not in DANGEROUS}


def put(folder, student, content):
    (folder / student).mkdir(parents=True)
    data = content if isinstance(content, bytes) else content.encode()
    (folder / student / "hw.ipynb").write_bytes(data)


def put_odd(folder, hand_in, blank):
    """Submissions whose files, not cells, are odd."""
    put(folder, "with_bom", "\ufeff" + json.dumps(hand_in()))
    put(folder, "crlf", json.dumps(hand_in(), indent=1).replace("\n", "\r\n").replace("\\n", "\\r\\n"))
    put(folder, "blank", json.dumps(blank))
    put(folder, "two_files", json.dumps(hand_in()))
    (folder / "two_files" / "copy.ipynb").write_text(json.dumps(hand_in({"q9-1": "double = None"})))
    put(folder, "same_twice", json.dumps(hand_in()))
    (folder / "same_twice" / "hw (1).ipynb").write_text(json.dumps(hand_in()))
    for name in ("nothing", "linked", "link_to_nowhere", "a_queue"):
        (folder / name).mkdir()
    (folder / "linked" / "hw.ipynb").symlink_to(folder / "with_bom" / "hw.ipynb")
    (folder / "link_to_nowhere" / "hw.ipynb").symlink_to(folder / "nowhere")
    (folder / "a_folder" / "hw.ipynb").mkdir(parents=True)
    os.mkfifo(folder / "a_queue" / "hw.ipynb")
    for name in NAMES:
        put(folder, name, json.dumps(hand_in()))


def put_sandboxed(folder, hand_in):
    for student, (source, _, _) in CODE.items():
        put(folder, student, json.dumps(hand_in({"q9-2": source})))
    for student, source in RANKS.items():
        put(folder, student, json.dumps(hand_in({"q9-3": source})))
    put(folder, "spreads_over_processes", json.dumps(hand_in({"q9-3": corpus.HOARD})))


@pytest.fixture(scope="module")
def graded(master, hand_in, tmp_path_factory):
    """Grade everything in one batch; return rows by student and question. Nothing may be left behind."""
    folder, blank = tmp_path_factory.mktemp("submissions"), json.loads(json.dumps(master.student_version()))
    corpus.STUB[:] = [next(cell for cell in blank["cells"] if cell["id"] == "q9-1-answer")]
    for student, (source, _) in answers.items():
        put(folder, student, json.dumps(hand_in({"q9-2": source})))
    for student, source in HONEST.items():
        put(folder, student, json.dumps(hand_in({"q9-2": source})))
    for student, (change, _, _) in NOTEBOOKS.items():
        put(folder, student, json.dumps(change(copy.deepcopy(hand_in()))))
    for student, (content, _) in FILES.items():
        put(folder, student, content)
    put_odd(folder, hand_in, blank)
    if not NO_SANDBOX:
        put_sandboxed(folder, hand_in)
    before = left_behind()
    rows = grade({"09_test": master}, find_submissions(folder), seed="7", workers=2, sandbox=not NO_SANDBOX)
    deadline = time.monotonic() + 10
    while (left := left_behind() - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == set()
    return {(row.student, row.question): row for row in rows}


def left_behind():
    """Processes of the sandbox's users, kernels and sleepers of ours; sockets, folders and shared memory."""
    mine = psutil.Process().children(recursive=True)
    found = {f"{process.pid} {process.name()}" for process in mine}
    for process in psutil.process_iter(["cmdline", "uids"]):
        uids = process.info["uids"]
        started = process.info["cmdline"] == ["sleep", "4242"]
        if started or (uids and 61_000 <= uids.real < 65_000 and str(os.getpid()) in str(process.info["cmdline"])):
            found.add(str(process.pid))
    folders = {str(path) for path in Path("/tmp").glob(f"distgen-grade-{os.getpid()}-*")}
    shared = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm") if name.startswith(("psm_", "mpich"))}
    return found | folders | {path for path in shared if os.path.exists(path) and _of_the_sandbox(path)}


def _of_the_sandbox(path):
    return 61_000 <= os.stat(path).st_uid < 65_000 and stat.S_ISREG(os.stat(path).st_mode)


def points(graded, student):
    return {key: graded[student, key].points for key in FULL}


def reasons(graded, student):
    return " / ".join(graded[student, key].reason for key in FULL)


def gets(graded, student, wanted, word):
    """The points are these, and the word stands in a reason."""
    assert points(graded, student) == wanted, reasons(graded, student)
    assert word in reasons(graded, student)


def test_the_corpus_is_large():
    cases = [*ANSWERS, *HONEST, *NOTEBOOKS, *FILES, *ODD, *NAMES, *CODE, *RANKS]
    assert len(set(cases)) == len(cases) >= 100


@pytest.mark.parametrize("student", answers)
def test_bad_answer_costs_its_question_and_no_other(graded, student):
    gets(graded, student, corpus.SPREADS.get(student, NO_2), "")
    assert ANSWERS[student][1] in graded[student, "q9-2"].reason


@pytest.mark.parametrize("student", HONEST)
def test_honest_answer_written_another_way_gets_its_points(graded, student):
    gets(graded, student, FULL, "right")


@pytest.mark.parametrize("student", NOTEBOOKS)
def test_changed_notebook_gets_what_it_deserves(graded, student):
    gets(graded, student, *NOTEBOOKS[student][1:])


@pytest.mark.parametrize("student", FILES)
def test_unreadable_file_gets_rows_with_the_reason(graded, student):
    gets(graded, student, NONE, FILES[student][1])


@pytest.mark.parametrize("student", ODD)
def test_odd_hand_in(graded, student):
    gets(graded, student, *ODD[student])


@pytest.mark.parametrize("student", NAMES)
def test_odd_name_gets_its_points(graded, student):
    gets(graded, student, FULL, "right")


@inside
@pytest.mark.parametrize("student", CODE)
def test_code_that_wants_out_gets_what_it_deserves(graded, student):
    gets(graded, student, *CODE[student][1:])


@inside
@pytest.mark.parametrize("student", RANKS)
def test_real_ranks_and_many_processes_run_inside(graded, student):
    gets(graded, student, FULL, "right")


@inside
def test_memory_is_bounded_over_all_processes(graded):
    gets(graded, "spreads_over_processes", NO_3, "died")


def test_every_student_has_a_row_for_every_question(graded):
    students = {student for student, _ in graded}
    assert len(graded) == 3 * len(students)
    assert all(row.reason and row.out_of == "10" for row in graded.values())
    assert {row.sandbox for row in graded.values()} == {"no" if NO_SANDBOX else "yes"}
