"""Code that wants out of the sandbox, or more than its share: it gains nothing, and nothing of it is left."""

import json
import os
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from distgen_lab.grading import sandbox
from distgen_lab.grading.grade import GradingError, find_submissions, grade

FULL = {"q9-1": "10", "q9-2": "10", "q9-3": "10"}
NO_2 = FULL | {"q9-2": "0"}
DEAD = FULL | {"q9-2": "0", "q9-3": "0"}
NO_3 = FULL | {"q9-3": "0"}
LIST = "def squares(n):\n    return [i * i for i in range(n)]\n"
WRONG = "def squares(n):\n    return found or [7] * n\n"

# What stands before an answer to question 2 (a right one unless WRONG), the points, and a word of a reason.
CODE = {
    "reads_the_solutions": (
        "import os\nfound = [os.path.join(d, f) for d, _, fs in os.walk('/') for f in fs if f.endswith('.ipynb')\n"
        "         and 'exercises' not in d and 'site-packages' not in d]\n" + WRONG,
        NO_2,
        "",
    ),
    "reads_passwords": ("found = open('/etc/passwd').read()\n" + WRONG, NO_2, "Error"),
    "reads_its_checks": (
        "import glob\nfound = [open(f).read() for f in glob.glob('/tmp/**', recursive=True) if f.endswith('nb')]\n"
        + WRONG,
        NO_2,
        "wrong",
    ),
    "writes_to_the_library": (
        "import distgen_lab\nopen(distgen_lab.__file__, 'a').write('# mine')\n" + LIST,
        NO_2,
        "Error",
    ),
    "asks_the_network": (
        "import socket\nfound = socket.create_connection(('1.1.1.1', 53), 2)\n" + WRONG,
        NO_2,
        "unreachable",
    ),
    "is_not_root": ("import os\nos.setuid(0)\n" + LIST, NO_2, "PermissionError"),
    "kills_everyone": (
        "import os\nfor pid in range(2, 40000):\n    try:\n        os.kill(pid, 9) if pid != os.getpid() else 0\n"
        "    except OSError:\n        pass\n" + LIST,
        DEAD,
        "died",
    ),
    "leaves_children": (
        "import subprocess\nsubprocess.Popen(['sleep', '4242'], start_new_session=True)\n" + LIST,
        FULL,
        "right",
    ),
    "forks_without_end": (
        "import os, time\nmade = 0\ntry:\n    while made < 5000:\n"
        "        if not os.fork():\n            time.sleep(60)\n"
        "            os._exit(0)\n        made += 1\nexcept OSError:\n    pass\nassert made < 600\n" + LIST,
        FULL,
        "right",
    ),
    "wants_all_memory": ("found = bytearray(2**36)\n" + WRONG, NO_2, "MemoryError"),
    "fills_the_disk": (
        "with open('big', 'wb') as file:\n    for _ in range(1000):\n        file.write(bytes(2**20))\n" + LIST,
        NO_2,
        "File too large",
    ),
    "fills_the_home": (
        "for k in range(100):\n    with open(f'big{k}', 'wb') as file:\n        file.write(bytes(2**25))\n" + LIST,
        NO_2,
        "No space left",
    ),
    "startup_file_for_others": (
        "import os\nos.makedirs('.ipython/profile_default/startup', exist_ok=True)\n"
        "open('.ipython/profile_default/startup/00.py', 'w').write('import builtins; builtins.sum = None')\n" + LIST,
        FULL,
        "right",
    ),
    "shadow_modules": ("open('random.py', 'w').write('raise SystemExit')\n" + LIST, FULL, "right"),
    "talks_to_the_worker": (
        'import os\nfor fd in range(3, 256):\n    try:\n        os.write(fd, b\'{"cell": "q9-2-hidden"}\')\n'
        "    except OSError:\n        pass\n" + "def squares(n):\n    return [7] * n\n",
        DEAD,
        "",
    ),
}
HOARD = """def parts(x):
    import os, time
    for _ in range(8):
        if not os.fork():
            kept = b"x" * 2**30
            time.sleep(60)
            os._exit(0)
    time.sleep(30)
    return {"half": x / 2, "name": "part"}"""
# Right answers to question 3 on real ranks.
RANKS = {
    "gloo_inside": "def parts(x):\n    from distgen_lab import launch\n"
    "    halves = launch(lambda: x / 2, ranks=2).values\n    return {'half': halves[0], 'name': 'part'}",
    "mpi_inside": "def parts(x):\n    from distgen_lab import launch\n"
    "    halves = launch(lambda: x / 2, ranks=2, backend='mpi').values\n    return {'half': halves[1], 'name': 'part'}",
}
NO_SANDBOX = sandbox.why_not()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(NO_SANDBOX), reason=NO_SANDBOX or "there is one")]


@pytest.fixture(scope="module")
def graded(master, hand_in, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sandboxed")
    answers = {student: {"q9-2": source} for student, (source, _, _) in CODE.items()}
    answers |= {student: {"q9-3": source} for student, source in RANKS.items()}
    answers |= {"spreads_over_processes": {"q9-3": HOARD}, "the_last": {}}
    for student, given in answers.items():
        (folder / student).mkdir()
        (folder / student / "hw.ipynb").write_text(json.dumps(hand_in(given)))
    sockets, shared = set(Path("/tmp").glob("dg*")), set(os.listdir("/dev/shm"))
    rows = grade({"09_test": master}, find_submissions(folder), seed="7", workers=2)
    deadline = time.monotonic() + 5
    while (left := strays()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    assert set(Path("/tmp").glob("dg*")) - sockets == set()
    assert set(os.listdir("/dev/shm")) <= shared
    return {(row.student, row.question): row for row in rows}


def strays():
    """Processes of the sandbox's users, and sleepers that submissions started."""
    found = []
    for process in psutil.process_iter(["cmdline", "uids"]):
        uids = process.info["uids"]
        if (uids and uids.real >= 61_000 and uids.real < 65_000) or process.info["cmdline"] == ["sleep", "4242"]:
            found.append(process.info["cmdline"])
    return found


@pytest.mark.parametrize("student", CODE)
def test_code_gets_what_it_deserves(graded, student):
    _, wanted, word = CODE[student]
    found = {key: graded[student, key].points for key in FULL}
    assert found == wanted or (wanted == DEAD and found == NO_2)  # a kernel it broke may or may not go on
    assert word in " / ".join(graded[student, key].reason for key in FULL)


@pytest.mark.parametrize("student", [*RANKS, "the_last"])
def test_real_ranks_and_later_students_get_their_points(graded, student):
    assert {key: graded[student, key].points for key in FULL} == FULL, graded[student, "q9-3"].reason


def test_memory_is_bounded_over_all_processes(graded):
    assert {key: graded["spreads_over_processes", key].points for key in FULL} == NO_3
    assert "died" in graded["spreads_over_processes", "q9-3"].reason


def test_rows_say_that_the_sandbox_was_there(graded):
    assert {row.sandbox for row in graded.values()} == {"yes"}


def test_the_probe_finds_what_an_open_door_lets_through(monkeypatch):
    """Without the sandbox's own flags the same probe must complain."""
    monkeypatch.setattr(sandbox, "_privileges", lambda: ["--ro-bind", tempfile.gettempdir(), "/outside"])
    monkeypatch.setattr(
        sandbox, "_OUTER", [flag for flag in sandbox._OUTER if flag not in ("--unshare-net", "--unshare-pid")]
    )
    monkeypatch.setattr(sandbox, "_LIMITS", ["env"])
    assert "leaks" in sandbox.why_not()


def test_without_a_sandbox_grading_refuses_unless_told(master, hand_in, tmp_path, monkeypatch):
    monkeypatch.setattr("distgen_lab.grading.grade.why_not", lambda: "the sandbox needs bwrap")
    (tmp_path / "one.ipynb").write_text(json.dumps(hand_in()))
    with pytest.raises(GradingError, match=r"needs bwrap.*--no-sandbox"):
        grade({"09_test": master}, find_submissions(tmp_path))
    rows = grade({"09_test": master}, find_submissions(tmp_path), sandbox=False)
    assert {(row.points, row.sandbox) for row in rows} == {("10", "no")}
