"""Labs on the field's own launchers: none, torchrun, mpiexec, srun, and two hosts that are network namespaces."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from distgen_lab import labs
from distgen_lab.alphabeta import Link
from distgen_lab.collectives import algorithms, ring_all_gather, ring_all_reduce
from distgen_lab.labs import collectives, link, schedules
from distgen_lab.ranks import launch, world
from distgen_lab.simulate import price
from distgen_lab.topology import crossbar

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
LINK = ["-m", "distgen_lab.labs.link", "--smallest", "64", "--largest", "1024"]


def text_of(command, seconds=90, **environment):
    """Run a command; return what it printed."""
    env = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    with tempfile.TemporaryDirectory() as folder:  # torchrun leaves a log folder
        env |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TMPDIR": folder} | environment
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=env, start_new_session=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_without_a_launcher_two_ranks_of_this_machine_run():
    out = text_of([sys.executable, *LINK])
    assert out.startswith("2 ranks over gloo on ")
    assert out.count("alpha") == 1


def test_torchrun_starts_a_lab():
    out = text_of([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", *LINK])
    assert out.startswith("3 ranks over gloo on ")
    assert out.count("alpha") == 1


def test_mpiexec_starts_the_same_lab():
    mpiexec = BIN / "mpiexec"
    if not mpiexec.exists():
        pytest.skip("no mpiexec beside this Python")
    out = text_of([mpiexec, "-n", "3", sys.executable, "-m", "mpi4py", *LINK], HYDRA_LAUNCHER="fork")
    assert out.startswith("3 ranks over mpi on ")


def test_mpiexec_without_mpi4py_is_told_how(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.delitem(sys.modules, "mpi4py", raising=False)
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeError, match="python -m mpi4py -m"):
        world.launcher()


SRUN = """#!/bin/bash
# What srun does to a task, for two tasks on this machine.
export SLURM_NTASKS=2
for task in 0 1; do SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NTASKS_PER_NODE=2 "$@" & done
wait
"""


def test_the_batch_script_runs_under_a_stand_in_for_slurm(tmp_path):
    for name, text in (("srun", SRUN), ("scontrol", '#!/bin/sh\necho "$3"\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    script = Path(labs.__file__).with_name("slurm.sh")
    slurm = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "localhost", "PYTHON": sys.executable}
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    out = text_of(["bash", script, *LINK[1:]], PATH=path, **slurm)
    assert out.startswith("2 ranks over gloo on ")
    assert out.count("alpha") == 1


def test_srun_without_a_meeting_place_is_told():
    with pytest.raises(RuntimeError, match="export MASTER_ADDR"):
        world._from_slurm({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"})
    given = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_TASKS_PER_NODE": "2(x4)"}
    found = world._from_slurm(given | {"SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1", "SLURM_JOB_ID": "20007"})
    assert (found["RANK"], found["WORLD_SIZE"], found["LOCAL_WORLD_SIZE"]) == ("3", "8", "2")
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("10.0.0.1", "20007")


@pytest.mark.parametrize("backend", ["gloo", "mpi"])
def test_world_moves_what_it_is_told_to(backend):
    if backend == "mpi" and not (BIN / "mpiexec").exists():
        pytest.skip("no mpiexec beside this Python")

    def work():
        here = world.current()
        got = here.full(3, -1)
        here.exchange([((here.rank + 1) % 3, here.full(3, here.rank))], [((here.rank - 1) % 3, got)])
        here.barrier()
        return [float(x) for x in got], here.gather(here.rank * 10), here.backend

    run = launch(work, ranks=3, backend=backend)
    assert run.values == [([float((rank - 1) % 3)] * 3, [0, 10, 20], backend) for rank in range(3)]


def test_no_rank_is_no_world(monkeypatch):
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    with pytest.raises(RuntimeError, match="this process is no rank"):
        world.current()


def test_one_rank_has_no_link():
    with pytest.raises(Exception, match="one rank has no link"):
        launch(link.one_way_times, ranks=1)


def test_exchange_and_table_in_ranks():
    seconds = launch(link.exchange_times, ranks=2, args=((64, 4096), 3)).values
    assert seconds[0] == seconds[1]
    assert all(value > 0 for value in seconds[0])
    table = launch(collectives.lab, ranks=2, args=(("broadcast",), 64, 1024, 2))[0].value
    assert table.count("\n") == 5  # the ranks, the operation, the header, 64, 256 and 1,024 bytes


def test_schedules_are_compared_with_their_price():
    table = launch(schedules.lab, ranks=2, args=("broadcast", (64,)), record=False)[0].value
    assert "simultaneous exchange: alpha" in table
    assert sum("model" in line for line in table.splitlines()) == len(algorithms("broadcast", 2))
    link = Link(2e-3, 1e-9)
    found = launch(schedules.compare, 4, args=(ring_all_gather(4), 4_096, link, 0.0, 2), network=link)[0].value
    assert found.nbytes == 4_096
    assert found.predicted == pytest.approx(3 * link.time(1_024))
    assert found.measured >= found.predicted


def test_rounds_that_cost_a_line_predict_what_the_line_does():
    link, gamma, sizes = Link(3e-6, 2e-9), 1e-9, np.array([64.0, 4_096.0, 1e6])
    line = link.alpha + sizes * link.beta
    costs = schedules.RoundCosts(sizes, line, line + gamma * sizes, np.full(3, 5e-6), np.full(3, 7e-6))
    for build, start in ((ring_all_reduce, 7e-6), (ring_all_gather, 5e-6)):
        wanted = price(build(4), crossbar(4, link), 8_192, gamma).seconds
        assert costs.seconds(build(4), 8_192) == pytest.approx(start + wanted)


def test_rounds_are_measured_between_two_ranks():
    costs = launch(schedules.measured_rounds, 2, args=((64, 4_096), 3), record=False)[0].value
    assert costs.sizes.tolist() == [64, 4_096]
    for round_, start in ((costs.copying, costs.start_copying), (costs.adding, costs.start_adding)):
        assert (round_ + start > 0).all()  # a run of one round


def test_actions_in_turns_come_back_in_their_order():
    def waits():
        return schedules.in_turns([partial(time.sleep, wait) for wait in (0.02, 0.0, 0.01)], 2)

    long, none, short = launch(waits, 2, record=False)[0].value
    assert none < short < long


def test_more_ranks_than_cores_are_told():
    crowd = 2 * (os.cpu_count() or 1)
    assert "more ranks than cores" in launch(labs.ranks_of, ranks=min(crowd, 64), record=False)[0].value
    assert "more ranks than cores" not in launch(labs.ranks_of, ranks=1, record=False)[0].value


def test_an_unknown_operation_is_named(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["collectives", "smoke"])
    with pytest.raises(SystemExit):
        collectives.main()
    assert "unknown operation 'smoke'" in capsys.readouterr().err


# ------------------------------------------------------------------ two hosts on one machine


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True)


@pytest.fixture
def hosts():
    """Two network namespaces joined by a cable: names, and the name of each one's end of it."""
    if not (hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("ip") and shutil.which("tc")):
        pytest.skip("two hosts on one machine need root, and ip and tc of iproute2")
    word = uuid.uuid4().hex[:6]
    names = [f"dgl{word}{end}" for end in "ab"]
    with ExitStack() as stack:
        for name in names:
            made = ip("netns", "add", name)
            if made.returncode:
                pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
            stack.callback(ip, "netns", "del", name)
        ends = [("name", name, "netns", name) for name in names]
        made = ip("link", "add", *ends[0][1:], "type", "veth", "peer", *ends[1])
        if made.returncode:
            pytest.skip(f"no veth pairs here: {made.stderr.strip()}")
        for number, name in enumerate(names, 1):
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", name)
            for device in (name, "lo"):
                assert ip("-n", name, "link", "set", device, "up").returncode == 0
        yield names


def shape(names, megabits):
    """Limit both directions of the cable."""
    for name in names:
        limit = ["tbf", "rate", f"{megabits}mbit", "burst", "32kb", "latency", "400ms"]
        done = subprocess.run(
            ["tc", "-n", name, "qdisc", "replace", "dev", name, "root", *limit], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"no token-bucket filter here: {done.stderr.strip()}")


def on_both(names, arguments):
    """Run torchrun on both hosts as one job."""
    run = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    meet = ["--master-addr=10.77.0.1", "--master-port=29400"]  # the namespace is ours alone: the port is free
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, *run, f"--node-rank={rank}", *meet, *arguments],
            env=env | {"GLOO_SOCKET_IFNAME": name},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, name in enumerate(names)
    ]
    try:
        answers = [process.communicate(timeout=120) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], answers[0][1][-2000:]
    return answers[0][0]


@pytest.mark.slow
def test_the_fitted_beta_follows_the_rate_of_a_shaped_cable(hosts, tmp_path):
    found = {}
    for megabits in (100, 400):
        shape(hosts, megabits)
        file = tmp_path / f"{megabits}.json"
        sizes = ["--smallest", str(2**17), "--largest", str(2**20), "--factor", "2"]
        out = on_both(hosts, ["-m", "distgen_lab.labs.link", *sizes, "--json", str(file)])
        assert out.startswith("2 ranks over gloo")
        found[megabits] = json.loads(file.read_text())["link"]["beta"]
    assert found[100] * 100e6 / 8 == pytest.approx(1, rel=0.15)
    assert found[400] * 400e6 / 8 == pytest.approx(1, rel=0.15)
