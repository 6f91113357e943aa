"""Labs on MPI ranks: what they compute and count, against definitions and a single process; and life without MPI."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distgen_lab.course import course_root
from distgen_lab.labs import mpi_collectives, mpi_messages, mpi_progress, mpi_ranks, mpi_server, mpi_trainer
from distgen_lab.labs.mpi_collectives import FLOWS, label
from distgen_lab.labs.mpi_ranks import Skipped, causal_rounds, in_flight, measured, outcome, report_of
from distgen_lab.ranks import LaunchError, RankError
from distgen_lab.ranks import launch as launch_on
from distgen_lab.timeline import Span, Timeline

pytestmark = pytest.mark.slow

MPI = pytest.importorskip("mpi4py.MPI", reason="mpi4py is not installed")
BIN = Path(sys.executable).parent
LABS = ("mpi_collectives", "mpi_messages", "mpi_progress", "mpi_server", "mpi_trainer")


def mean_squared_error(weights, x, y):
    """The loss whose gradients the trainer computes."""
    w1, b1, w2, b2 = weights
    return float(((np.tanh(x @ w1 + b1) @ w2 + b2 - y) ** 2).mean())


def launch(function, ranks=2, **more):
    return launch_on(function, ranks=ranks, backend="mpi", **more)


@pytest.fixture(scope="module")
def mpiexec():
    """Skip where there are no MPI ranks. Not at import: ranks import this module too."""
    try:
        assert launch(lambda: MPI.COMM_WORLD.size).values == [2, 2]
    except (LaunchError, RankError) as error:
        pytest.skip(f"no MPI ranks here: {error}")


# ------------------------------------------------------------------ collectives


def defined(name, ranks, root):
    """What each rank holds after a collective, by its definition, as sets of (rank, place)."""
    one = {
        "Bcast": lambda r: [{(root, 0)}],
        "Reduce": lambda r: [{(s, 0) for s in range(ranks)} if r == root else set()],
        "Allreduce": lambda r: [{(s, 0) for s in range(ranks)}],
        "Gather": lambda r: [{(s, 0)} if r == root else set() for s in range(ranks)],
        "Allgather": lambda r: [{(s, 0)} for s in range(ranks)],
        "Scatter": lambda r: [{(root, r)}],
        "Reduce_scatter": lambda r: [{(s, r) for s in range(ranks)}],
        "Alltoall": lambda r: [{(s, r)} for s in range(ranks)],
        "Scan": lambda r: [{(s, 0) for s in range(r + 1)}],
    }[name]
    return [one(rank) for rank in range(ranks)]


@pytest.mark.parametrize(("ranks", "root"), [(3, 2), (4, 0)])
def test_flows_are_those_of_the_standards_definition(mpiexec, ranks, root):
    values = launch(lambda: {name: mpi_collectives.flow(name, root) for name in FLOWS}, ranks).values
    for name in FLOWS:
        found = [[set(block) for block in rank[name][1]] for rank in values]
        assert found == defined(name, ranks, root), name
        held = sum(len(block) for rank in values for block in rank[name][0])
        assert held == {"Bcast": 1, "Scatter": ranks}.get(name, ranks * len(values[0][name][0])), name


def test_flows_refuse_bad_input(mpiexec):
    for arguments, words in ((("Gossip",), "name is 'Gossip'; there are: Bcast"), (("Bcast", 2), "root is 2; a rank")):
        found = outcome(mpi_collectives.flow, 2, args=arguments)
        assert found["ended"] == "error" and words in found["why"]


def test_labels_name_ranks_and_places():
    cases = {(): "", ((1, 2),): "B2", ((0, 3), (1, 3)): "Σ3", ((0, 0),): "A0"}
    assert [label(block, 2) for block in cases] == list(cases.values())
    assert label(((0, 0), (1, 0)), 4) == "A+B"


# ------------------------------------------------------------------ messages


def filled(way, root):
    data = np.full(2000, float(root) if MPI.COMM_WORLD.rank == root else -1.0)
    way(data, root)
    return float(data.sum())


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "root"), [(8, 0), (6, 4), (1, 0)])
def test_broadcasts_fill_every_rank_in_the_rounds_of_theory(mpiexec, ranks, root):
    for way, rounds in (
        (mpi_messages.linear_broadcast, ranks - 1),
        (mpi_messages.binomial_broadcast, (ranks - 1).bit_length()),
    ):
        run = launch(filled, ranks, args=(way, root))
        assert run.values == [2000.0 * root] * ranks
        assert causal_rounds(run.timeline) == rounds
        assert sum(rank.sent_messages for rank in run.timeline.traffic()) == ranks - 1


def test_the_eager_limit_separates_what_returns_from_what_waits(mpiexec):
    (limit, other) = launch(mpi_messages.eager_limit).values
    assert 0 < limit == other < mpi_messages.LARGEST
    checked = launch(lambda: [mpi_messages.returns_early(n) for n in (limit, limit + 1)]).values[0]
    assert checked == [True, False]


def test_work_is_stolen_once_and_only_once(mpiexec):
    run = launch(mpi_messages.steal_work, 4, args=([0.001] * 9,))
    assert run.values[0][0] == 0 and sum(run.values[0]) == 9
    assert sum(rank.sent_messages for rank in run.timeline.traffic()) == 2 * (9 + 3)


@pytest.mark.parametrize("function", [mpi_messages.eager_limit, lambda: mpi_messages.steal_work([1])])
def test_one_rank_is_too_few(mpiexec, function):
    assert "start two" in outcome(function, 1)["why"]


# ------------------------------------------------------------------ the trainer


@pytest.mark.parametrize("step", [0, 7])
def test_gradients_are_those_of_finite_differences(step):
    weights, (x, y) = mpi_trainer.new_weights(3), mpi_trainer.batch(step)
    for place, gradient in mpi_trainer.backward(weights, x, y):
        for index in list(np.ndindex(gradient.shape))[:: max(1, gradient.size // 7)]:
            moved = [[w.copy() for w in weights] for _ in range(2)]
            moved[0][place][index] += 1e-6
            moved[1][place][index] -= 1e-6
            slope = (mean_squared_error(moved[0], x, y) - mean_squared_error(moved[1], x, y)) / 2e-6
            assert gradient[index] == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_shards_together_are_the_batch():
    x, y = mpi_trainer.batch(4)
    parts = [mpi_trainer.shard(4, rank, 3) for rank in range(3)]
    assert sorted(map(tuple, np.concatenate([p[0] for p in parts]))) == sorted(map(tuple, x))
    assert np.concatenate([p[1] for p in parts]).sum() == pytest.approx(y.sum())
    with pytest.raises(ValueError, match="size is 5; a divisor of the 48 samples"):
        mpi_trainer.shard(0, 0, 5)


@pytest.mark.slow
@pytest.mark.parametrize("sync", mpi_trainer.SYNCS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_training_equals_its_single_process_twin_step_by_step(mpiexec, sync, ranks):
    run = launch(mpi_trainer.train, ranks, args=(5, sync))
    assert max(mpi_trainer.distance(history, mpi_trainer.twin(5)) for history in run.values) < 1e-14
    calls = {rank.collectives["all_reduce"] for rank in run.timeline.traffic()}
    assert calls == {10 if sync == "bucketed" else 20}
    assert in_flight(run.timeline) == (4 if sync == "overlapped" else 1)


def test_the_twin_learns():
    history = mpi_trainer.twin(60)
    losses = [mean_squared_error(weights, *mpi_trainer.batch(999)) for weights in (history[0], history[-1])]
    assert losses[1] < 0.8 * losses[0]


def test_each_mistake_has_its_own_symptoms(mpiexec):
    names = ("", "no broadcast", "sum, not mean", "the same data", "no all-reduce")
    seen = launch(lambda: {name: mpi_trainer.symptoms(name) for name in names}, 4).values
    assert seen == [seen[0]] * 4
    wrong = {name: (far > 1e-3, apart > 1e-3, shards) for name, (far, apart, shards) in seen[0].items()}
    assert wrong == {
        "": (False, False, 4), "no broadcast": (True, True, 4), "sum, not mean": (True, False, 4),
        "the same data": (True, False, 1), "no all-reduce": (True, True, 4),
    }  # fmt: skip


def test_aliased_buffers_and_unknown_names_are_refused(mpiexec):
    assert "aliased" in outcome(mpi_trainer.train, 2, args=(1, "one by one", "aliased buffers"))["why"]
    assert "there are: one by one, bucketed" in outcome(mpi_trainer.train, 1, args=(1, "ring"))["why"]
    assert "there are: no broadcast" in outcome(mpi_trainer.train, 1, args=(1, "bucketed", "tired"))["why"]


def test_counts_beyond_an_int_are_cut_into_calls_that_fit():
    parts = mpi_trainer.chunks_of_count(7_000_000_000)
    assert len(parts) == 4 and parts[0] == (0, 2**31 - 1) and parts[-1][1] == 7_000_000_000
    assert all(stop - start <= 2**31 - 1 for start, stop in parts)
    assert [a[1] for a in parts[:-1]] == [b[0] for b in parts[1:]]
    assert mpi_trainer.chunks_of_count(0) == []
    with pytest.raises(ValueError, match="count is -1"):
        mpi_trainer.chunks_of_count(-1)


# ------------------------------------------------------------------ progress, windows


def test_all_reduce_beside_compute_gives_each_rank_a_time(mpiexec):
    for test in (False, True):
        times = launch(mpi_progress.all_reduce_beside_compute, args=(test, 0.05, 64)).values
        assert times[0] >= 0.05 and times[1] > 0


def test_ranks_under_a_progress_thread_have_the_switch_and_it_is_put_back(mpiexec, monkeypatch):
    monkeypatch.setenv(mpi_progress.ASYNC, "0")
    with mpi_progress.progress_thread():
        assert launch(lambda: os.environ[mpi_progress.ASYNC]).values == ["1", "1"]
    assert os.environ[mpi_progress.ASYNC] == "0"
    monkeypatch.delenv(mpi_progress.ASYNC)
    with mpi_progress.progress_thread():
        pass
    assert mpi_progress.ASYNC not in os.environ


@pytest.mark.parametrize("epoch", mpi_server.EPOCHS)
def test_no_update_is_lost_and_no_message_is_sent(mpiexec, epoch):
    run = launch(mpi_server.push_updates, 3, args=(epoch, 7, 5, 0.02))
    assert run.values[0]["weights"] == [14.0] * 5 and run.values[1]["weights"] == []
    assert sum(rank.sent_messages for rank in run.timeline.traffic()) == 0


def test_an_unknown_epoch_is_named(mpiexec):
    assert "epoch is 'soon'; there are: Lock_all" in outcome(mpi_server.push_updates, 1, args=("soon",))["why"]


# ------------------------------------------------------------------ what a recording tells


def spans(*rows):
    """Spans from (lane, op, peer, start, end)."""
    return Timeline([Span(lane, op, start, end, peer=peer) for lane, op, peer, start, end in rows], lanes=4)


def test_rounds_follow_from_the_order_of_calls_not_from_the_clock():
    chain = spans((0, "send", 1, 0, 1), (1, "recv", 0, 0, 5), (1, "send", 2, 6, 7), (2, "recv", 1, 0, 9))
    assert causal_rounds(chain) == 2
    both = spans((0, "isend", 1, 0, 3), (0, "recv", 1, 1, 3), (1, "isend", 0, 0, 3), (1, "recv", 0, 1, 3))
    assert causal_rounds(both) == 1
    posted = spans((0, "irecv", 1, 0, 3), (0, "isend", 1, 1, 3), (1, "irecv", 0, 0, 3), (1, "isend", 0, 1, 3))
    assert causal_rounds(posted) == 1
    star = spans((0, "send", 1, 0, 1), (0, "send", 2, 1, 2), (1, "recv", 0, 0, 1), (2, "recv", 0, 0, 2))
    assert causal_rounds(star) == 2 and causal_rounds(spans()) == 0


def test_in_flight_counts_what_is_open_at_once():
    one = spans((0, "a", None, 0, 2), (0, "b", None, 1, 3), (0, "c", None, 3, 4), (1, "d", None, 0, 9))
    assert in_flight(one) == 2 and in_flight(one, 1) == 1 and in_flight(one, 2) == 0


def test_outcomes_are_told_apart(mpiexec):
    def hangs():
        MPI.COMM_WORLD.Recv(np.empty(1), source=1 - MPI.COMM_WORLD.rank)

    def disagrees():
        MPI.COMM_WORLD.Allreduce(np.ones(2), np.empty(2), op=MPI.MAX if MPI.COMM_WORLD.rank else MPI.SUM)

    assert outcome(lambda: MPI.COMM_WORLD.rank, 2) == {"ended": "values", "values": [0, 1]}
    found = [outcome(function, 2) for function in (hangs, disagrees, lambda: 1 / 0)]
    assert [one["ended"] for one in found] == ["deadlock", "mismatch", "error"]
    for one, words in zip(
        found, ("waits in recv from rank", "disagree about the reduction", "ZeroDivision"), strict=True
    ):
        assert words in one["why"]


def test_a_report_holds_the_facts_asked_for_and_no_words(mpiexec, capsys):
    def work():
        comm = MPI.COMM_WORLD
        comm.Sendrecv(np.ones(4), 1 - comm.rank, recvbuf=np.empty(4), source=1 - comm.rank)
        comm.Barrier()
        return comm.allreduce(1)

    facts = ("messages", "most_messages", "bytes", "most_bytes", "rounds", "collectives", "groups", "order")
    assert report_of(work, 2, *facts) == {
        "ended": "values", "values": [2, 2], "messages": 2, "most_messages": 1, "bytes": 64, "most_bytes": 32,
        "rounds": 1, "collectives": [{"all_reduce": 1}] * 2, "groups": [(0, 1)],
        "order": ["isend", "recv", "barrier", "all_reduce"],
    }  # fmt: skip
    assert report_of(lambda: 1 / 0, 1) == {"ended": "error"}
    assert "Rank 0 raised ZeroDivisionError" in capsys.readouterr().out
    with pytest.raises(ValueError, match="facts holds 'colour'; there are: messages"):
        report_of(work, 2, "colour")


@pytest.mark.parametrize(("seconds", "words"), [(0.412, "0.41 s"), (0.0052, "5.2 ms"), (float("nan"), "(skipped)")])
def test_measured_times_are_rounded(seconds, words):
    assert measured(seconds) == words


# ------------------------------------------------------------------ the labs as programs


@pytest.mark.slow
@pytest.mark.parametrize("name", LABS)
def test_every_lab_is_a_program_for_mpiexec(mpiexec, name):
    command = [BIN / "mpiexec", "-n", "2", sys.executable, "-m", "mpi4py", "-m", f"distgen_lab.labs.{name}"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=os.environ | {"HYDRA_LAUNCHER": "fork"}, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("2 ranks over mpi on ")


def test_a_lab_without_a_launcher_starts_ranks_itself(mpiexec):
    done = subprocess.run(
        [sys.executable, "-m", "distgen_lab.labs.mpi_server"], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.startswith("3 ranks over mpi on ") and "weights [20.0" in done.stdout


def test_no_lab_module_starts_mpi_where_it_is_imported():
    probe = f"""
import importlib
for name in {LABS!r}: importlib.import_module("distgen_lab.labs." + name)
from mpi4py import MPI
print(MPI.Is_initialized())
"""
    assert subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout == "False\n"


# ------------------------------------------------------------------ without MPI


def test_what_was_skipped_stands_for_every_result():
    gone = Skipped("no mpiexec")
    assert repr(gone.values[0].timeline.traffic()) == "skipped: no mpiexec" == str(gone - 1) == str(2 * gone)
    assert f"{gone:.2f}" == "(skipped)" and list(gone) == [] and len(gone) == 0 and sum(gone.values) == 0
    assert np.isnan(float(gone["x"])) and not (gone < 3)
    assert isinstance(causal_rounds(gone), Skipped)
    with pytest.raises(AttributeError):
        _ = gone._repr_html_


def test_without_mpiexec_launch_says_so_and_goes_on(monkeypatch, capsys):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    found = mpi_ranks.launch(lambda: 1, ranks=2)
    assert isinstance(found, Skipped) and isinstance(outcome(lambda: 1, 2), Skipped)
    assert "skipped: there is no mpiexec" in capsys.readouterr().out
    with pytest.raises(LaunchError, match="no mpiexec"):
        report_of(lambda: 1, 2)
    with pytest.raises(LaunchError, match="ranks is 0"):
        mpi_ranks.launch(lambda: 1, ranks=0)


RUN_ALL = """
import json, os, sys
import matplotlib
matplotlib.use("Agg")
sys.modules["mpi4py"] = None
names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code" and "compile_and_run" not in "".join(cell["source"]):
        exec("".join(cell["source"]), names)
print("the end")
"""


@pytest.mark.slow
def test_the_notebook_runs_to_its_end_without_mpi():
    notebook = course_root() / "notebooks" / "05_mpi.ipynb"
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, str(notebook)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("the end\n") and done.stdout.count("skipped: there is no mpi4py") > 20


def test_the_notebook_calls_every_mpi_function_that_the_chapter_names(shared):
    """The names of audit.md, section 6, in Python cells or in the C programs that the notebook runs."""
    text = (shared / "chapter" / "audit.md").read_text("utf-8")
    line = next(row for row in text.splitlines() if row.startswith("- **MPI functions"))
    notebook = json.loads((course_root() / "notebooks" / "05_mpi.ipynb").read_text("utf-8"))
    cells = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    ran = [name for name in importlib.import_module("distgen_lab.labs.mpi_c").PROGRAMS if f'run("{name}"' in cells]
    c = "\n".join(importlib.import_module("distgen_lab.labs.mpi_c").listing(name).source for name in ran)
    wanted = set(re.findall(r"MPI_\w+", line))
    assert len(wanted) >= 27
    missing = {n for n in wanted if f".{n.removeprefix('MPI_')}" not in cells and n not in c}
    assert missing <= {"MPI_Datatype", "MPI_Comm"}
