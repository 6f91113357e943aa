"""What the library pulls in, which floor stands on which, and that no test leaves a process behind."""

import ast
import importlib
import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "ipywidgets", "mpi4py")
LIGHT_MODULES = (
    "units", "hardware", "models", "history", "scale", "claims", "symbols", "plain", "alphabeta", "topology",
    "collectives", "simulate", "nccl_tuner", "timeline", "judging", "roofline", "simt", "memory", "systolic",
    "occupancy", "overlap", "cg", "planner", "errata", "readers", "course", "checks", "predict", "plots",
)  # fmt: skip
UPPER = {"cli", "doctor", "demos", "grading", "labs", "notebooks", "ranks", "bench"}

_PROBE = """
import importlib, json, sys
heavy, names = json.loads(sys.argv[1])
found, before = {}, set()
for name in names:
    importlib.import_module(name)
    now = {h for h in heavy if h in sys.modules}
    found[name], before = sorted(now - before), now
print(json.dumps(found))
"""


def heavy_imports(heavy, *names):
    """Import modules in a fresh Python one after the other; return what each was the first to bring in."""
    command = [sys.executable, "-c", _PROBE, json.dumps([heavy, names])]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_the_probe_sees_a_heavy_import():
    assert heavy_imports(["decimal", "json"], "textwrap", "decimal") == {"textwrap": ["json"], "decimal": ["decimal"]}


def test_importing_the_package_takes_no_heavy_one():
    heavy = [*HEAVY, "matplotlib", "numpy", "networkx", "nbformat", "IPython"]
    assert heavy_imports(heavy, "distgen_lab") == {"distgen_lab": []}


@pytest.fixture(scope="module")
def taken():
    names = [f"distgen_lab.{name}" for name in LIGHT_MODULES]
    return heavy_imports([*HEAVY, "matplotlib"], *names)


@pytest.mark.parametrize("name", LIGHT_MODULES)
def test_a_light_module_takes_no_heavy_one(taken, name):
    assert taken[f"distgen_lab.{name}"] == (["matplotlib"] if name == "plots" else [])


def test_the_command_line_starts_without_torch():
    assert heavy_imports([*HEAVY, "matplotlib"], "distgen_lab.cli", "distgen_lab.doctor") == {
        "distgen_lab.cli": [], "distgen_lab.doctor": []
    }  # fmt: skip


@pytest.mark.parametrize("name", LIGHT_MODULES)
def test_a_lower_floor_does_not_stand_on_an_upper_one(repo, name):
    one, package = repo / "distgen_lab" / f"{name}.py", repo / "distgen_lab" / name
    files = sorted(package.glob("*.py")) if package.is_dir() else [one]
    used = set()
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8")))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "distgen_lab":
            used |= {f"{node.module}.{alias.name}".split(".")[1] for alias in node.names}
        elif isinstance(node, ast.Import):
            used |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("distgen_lab.")}
        assert not (isinstance(node, ast.ImportFrom) and node.level), "relative import"
    assert not used & UPPER
    assert used or name in {
        "units",
        "plain",
        "course",
        "models",
        "history",
        "scale",
        "timeline",
        "simt",
        "memory",
        "systolic",
    }


@pytest.mark.parametrize(
    "name", [*LIGHT_MODULES, "cli", "doctor", "notebooks", "demos", "demos.panel", "demos.three_walls",
             "labs.training_step", "labs.link", "labs.collectives", "labs.schedules", "ranks.world", "ranks.execute"]
)  # fmt: skip
def test_every_public_name_exists_and_is_described(name):
    module = importlib.import_module(f"distgen_lab.{name}")
    assert module.__doc__ and module.__all__ and len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        thing = getattr(module, public)
        assert not callable(thing) or thing.__doc__, public


# ----------------------------------------------------------------------------- the fixture in tests/conftest.py

STARTS = """
import subprocess, sys

def child(code, **more):
    return subprocess.Popen([sys.executable, "-c", code], **more)
"""


def inner_pytest(repo, tmp_path, *bodies):
    """Run test files under a copy of our conftest with little patience; return the output."""
    conftest = (repo / "tests" / "conftest.py").read_text("utf-8")
    assert "PATIENCE = 5.0" in conftest
    (tmp_path / "conftest.py").write_text(conftest.replace("PATIENCE = 5.0", "PATIENCE = 0.3"), encoding="utf-8")
    for number, body in enumerate(bodies):
        (tmp_path / f"test_inner{number}.py").write_text(STARTS + body, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_a_test_that_leaves_a_process_fails_and_the_process_is_gone(repo, tmp_path):
    out = inner_pytest(
        repo, tmp_path,
        "import pathlib\n"
        "def test_leaves():\n"
        "    kept = child('input()', stdin=subprocess.PIPE)\n"
        "    pathlib.Path('pid').write_text(str(kept.pid))\n"
        "    globals()['kept'] = kept\n"
        "    assert False, 'it failed as well'\n",
        "import psutil, pathlib\n"
        "def test_is_gone():\n"
        "    pid = int(pathlib.Path('pid').read_text())\n"
        "    assert not psutil.pid_exists(pid)\n",
    )  # fmt: skip
    assert "1 process(es) left running: " in out and "input()" in out and "it failed as well" in out
    assert "1 failed, 1 passed, 1 error" in out


def test_a_grandchild_counts_and_one_that_ends_soon_does_not(repo, tmp_path):
    out = inner_pytest(
        repo, tmp_path,
        "def test_grandchild():\n"
        "    shell = child('import subprocess, sys; subprocess.Popen([sys.executable, \"-c\", \"input()\"],'\n"
        "                  'stdin=subprocess.PIPE); print(flush=True); input()',\n"
        "                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "    shell.stdout.readline()\n"
        "    globals()['shell'] = shell\n",
        "def test_ends_soon():\n"
        "    child('pass')\n"
        "def test_ended():\n"
        "    child('pass').wait()\n",
    )  # fmt: skip
    assert "2 process(es) left running" in out and "3 passed, 1 error" in out


def test_processes_that_were_there_before_and_multiprocessings_own_are_left_alone(repo, tmp_path):
    out = inner_pytest(
        repo, tmp_path,
        "import multiprocessing, pytest\n"
        "@pytest.fixture(scope='module')\n"
        "def server():\n"
        "    process = child('input()', stdin=subprocess.PIPE)\n"
        "    yield process\n"
        "    process.communicate(b'\\n')\n"
        "def test_uses(server):\n"
        "    assert server.poll() is None\n"
        "def test_uses_again(server):\n"
        "    assert server.poll() is None\n"
        "def test_forkserver(server):\n"
        "    process = multiprocessing.get_context('forkserver').Process(target=print)\n"
        "    process.start(); process.join()\n"
        "    assert process.exitcode == 0\n"
        "    again = multiprocessing.get_context('forkserver').Process(target=sum, args=([],))\n"
        "    again.start(); again.join()\n"
        "def test_forked_rank_is_left(server):\n"
        "    from threading import Event\n"
        "    process = multiprocessing.get_context('forkserver').Process(target=input_for_ever, daemon=True)\n"
        "    process.start()\n"
        "def input_for_ever():\n"
        "    import os\n"
        "    os.read(os.pipe()[0], 1)\n",
    )  # fmt: skip
    assert "4 passed, 1 error" in out and "1 process(es) left running" in out
    assert out.count("ERROR test_inner0.py::test_forked_rank_is_left") == 1
