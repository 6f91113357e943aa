"""Kernels that are forks of a warm server: the same as cold ones, and nothing passes from one to the next."""

import os
import signal

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from distgen_lab.grading import run, warm
from tests.grading.conftest import NO_SANDBOX

needs_warm = pytest.mark.skipif(bool(NO_SANDBOX) or not warm.usable(), reason="needs a sandbox, Linux, and root")


def report(source):
    """What a notebook of this one check cell is: it reports ``found``."""
    facts = {"distgen": {"role": "hidden", "question": "q9-1"}}
    last = "\nfrom distgen_lab import checks as _checks\n_checks.report('q9-1-hidden', found)"
    return new_notebook(cells=[new_code_cell(source + last, id="q9-1-hidden", metadata=facts)])


def found_in(sources):
    """What each cell reported, one kernel each, one worker after the other's kernels have ended."""
    job = run.Job({str(k): report(source) for k, source in enumerate(sources)}, [], sandbox=True)
    cells = [results["q9-1-hidden"] for results in run.run(job).values()]
    assert [cell.state for cell in cells] == ["reported"] * len(sources), cells
    return [cell.value for cell in cells]


PLACE = """
import os, re, resource, socket, sys
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
mounts = [line.split() for line in open("/proc/self/mountinfo")]
links = {os.readlink(f"/proc/self/fd/{f}") for f in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{f}")}
kinds = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
found = {
    "rights": {kind: status[kind].strip() for kind in kinds},
    "limits": {name: list(resource.getrlimit(getattr(resource, name))) for name in limits},
    "environment": dict(os.environ), "cwd": os.getcwd(), "path": sys.path, "umask": os.umask(0o22),
    "mounts": sorted([m[4], m[5]] for m in mounts), "network": [name for _, name in socket.if_nameindex()],
    "files": sorted({re.sub(r"\\d+", "N", link) for link in links if link.startswith("/")}),
    "names": sorted(name for name in globals() if not name.startswith("_")), "home": os.listdir("."),
}
own = {str(os.getuid()): "USER", os.path.dirname(sys.argv[2]): "SOCKETS"}
found = __import__("json").loads(re.sub("|".join(own), lambda m: own[m[0]], __import__("json").dumps(found)))
"""
COLD = "from distgen_lab.grading import warm\nwarm.usable = lambda: False\n"


@pytest.mark.slow
@needs_warm
def test_a_warm_kernel_is_what_a_cold_one_is(tmp_path, monkeypatch):
    [warmly] = found_in([PLACE])
    (tmp_path / "cold_plugin.py").write_text(COLD)
    monkeypatch.setattr(run, "_COMMAND", [*run._COMMAND, "-p", "cold_plugin"])
    real = run._environment
    monkeypatch.setattr(run, "_environment", lambda job, home: real(job, home) | {"PYTHONPATH": str(tmp_path)})
    [coldly] = found_in([PLACE])
    assert warmly["rights"]["CapEff"] == warmly["rights"]["CapBnd"] == "0" * 16
    assert warmly["rights"]["Uid"] == warmly["rights"]["Gid"] == "\t".join(["USER"] * 4) and warmly["network"] == ["lo"]
    assert warmly == coldly


POLLUTES = """
import builtins, os, random, subprocess, sys
import numpy
import distgen_lab
numpy.left_behind = distgen_lab.left_behind = sys.left_behind = builtins.left_behind = "mine"
os.environ["LEFT_BEHIND"] = "mine"
random.seed(7), numpy.random.seed(7)
for folder in ("/home/student", "/tmp", "/dev/shm"):
    open(f"{folder}/left_behind", "w").write("mine")
subprocess.Popen(["sleep", "600"], start_new_session=True)
found = "polluted"
"""
LOOKS = """
import builtins, os, random, sys
import numpy
import distgen_lab
places = {"numpy": numpy, "distgen_lab": distgen_lab, "sys": sys, "builtins": builtins}
found = [name for name, place in places.items() if hasattr(place, "left_behind")]
found += [folder for folder in ("/home/student", "/tmp", "/dev/shm") if os.path.exists(f"{folder}/left_behind")]
found += [name for name in os.environ if name == "LEFT_BEHIND"]
commands = [open(f"/proc/{p}/cmdline").read() for p in os.listdir("/proc") if p.isdigit()]
found += [command for command in commands if "sleep" in command]
found = {"seen": found, "random": random.random(), "numpy": float(numpy.random.random())}
"""


@pytest.mark.slow
@needs_warm
def test_nothing_passes_from_one_kernel_to_the_next():
    _, one, _, two = found_in([POLLUTES, LOOKS, POLLUTES, LOOKS])
    assert one["seen"] == two["seen"] == []
    assert one["random"] != two["random"] and one["numpy"] != two["numpy"]


def test_where_no_namespace_can_be_entered_kernels_start_cold(monkeypatch):
    if not warm._may_enter():
        pytest.skip("needs Linux and root")
    monkeypatch.setitem(warm.NAMESPACES, "net", warm.NAMESPACES["ipc"])  # not what it is: the kernel says no
    assert not warm._may_enter()


@needs_warm
def test_a_server_that_cannot_start_a_kernel_says_why(tmp_path):
    server = warm.Warm()
    try:
        place = {"user": 61000, "home": "/", "environment": {}, "limits": {}}
        with pytest.raises(warm.WarmError, match=r"the sandbox does not open: .*door"):
            server.start(tmp_path, os.getpid(), [], **place)
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        with pytest.raises(warm.WarmError, match=r"the server has ended|does not answer"):
            server.start(tmp_path, os.getpid(), [], **place)
    finally:
        server.close()
