"""Real MPI ranks: results, recording, errors in words, deadlocks, silent mistakes, and nothing left behind."""

import gc
import linecache
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import psutil
import pytest

from distgen_lab.ranks import DeadlockError, LaunchError, MismatchError, RankError
from distgen_lab.ranks import launch as launch_on
from distgen_lab.ranks import mpi as mpi_launcher
from distgen_lab.ranks.mpi_child import segments

MPI = pytest.importorskip("mpi4py.MPI", reason="mpi4py is not installed")

pytestmark = pytest.mark.slow


def launch(function, ranks=2, **more):
    return launch_on(function, ranks=ranks, backend="mpi", **more)


@pytest.fixture(scope="module", autouse=True)
def mpiexec():
    """Skip where there are no MPI ranks. Not at import: ranks import this module too."""
    try:
        assert launch(lambda: MPI.COMM_WORLD.size).values == [2, 2]
    except (LaunchError, RankError) as error:
        pytest.skip(f"no MPI ranks here: {error}")


def me():
    return MPI.COMM_WORLD.rank


def other():
    return 1 - MPI.COMM_WORLD.rank


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left(mpiexec, tmp_path_factory):
    """No process, descriptor, folder or segment of this module's launches outlives it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("launches")))
        patch.setattr(tempfile, "tempdir", None)
        before = left()
        yield
        wait_for(lambda: [1] if left() == before else [], 1, 10)


def left():
    """What launches could leave: processes, descriptors, threads, folders, and segments that no process has."""
    gc.collect()
    process = psutil.Process()
    return {
        "processes": len(
            [p for p in psutil.process_iter(["cmdline"]) if folder() in " ".join(p.info["cmdline"] or [])]
        ),
        "descriptors": process.num_fds(),
        "threads": process.num_threads(),
        "folders": len(list(Path(folder()).iterdir())),
        "segments": len(orphans()),
    }


def folder():
    return os.environ["TMPDIR"]


def orphans():
    """Shared-memory segments of MPICH that no process has open or mapped."""
    names = {path.name for path in Path("/dev/shm").glob("mpich_shm_*")}
    for pid in psutil.pids() if names else []:
        names -= segments(pid)
    return names


# ------------------------------------------------------------------ what works


def test_values_come_back_in_order():
    run = launch(lambda offset: MPI.COMM_WORLD.rank + offset, ranks=3, args=(10,))
    assert run.values == [10, 11, 12]
    assert [result.rank for result in run] == [0, 1, 2]
    assert all(result.seconds > 0 for result in run)


def test_ranks_import_mpi_themselves_and_no_torch():
    def work():
        import sys

        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        return comm.Get_rank(), comm.Get_size(), "torch" in sys.modules, isinstance(comm, MPI.Intracomm)

    assert launch(work).values == [(0, 2, False, True), (1, 2, False, True)]


@pytest.mark.parametrize("ranks", [1, 3, 4])
@pytest.mark.parametrize("record", [True, False])
def test_collectives_equal_what_one_process_computes(ranks, record):
    def work():
        comm = MPI.COMM_WORLD
        value = np.arange(4.0) * (comm.rank + 1)
        total, gathered, exscan = np.empty(4), np.empty((comm.size, 4)), np.zeros(4)
        comm.Allreduce(value, total)
        comm.Allgather(value, gathered)
        comm.Exscan(value, exscan, op=MPI.MAX)
        part = np.empty(1)
        comm.Reduce_scatter_block(np.arange(float(comm.size)), part)
        return total, gathered, exscan, part, comm.allreduce(comm.rank), comm.scan(1), comm.alltoall([7] * comm.size)

    values = launch(work, ranks=ranks, record=record).values
    rows = np.array([np.arange(4.0) * (rank + 1) for rank in range(ranks)])
    for rank, (total, gathered, exscan, part, whole, scan, exchanged) in enumerate(values):
        assert (total == rows.sum(0)).all()
        assert (gathered == rows).all()
        assert (exscan == (rows[:rank].max(0) if rank else np.zeros(4))).all()
        assert part.tolist() == [rank * ranks]
        assert (whole, scan, exchanged) == (sum(range(ranks)), rank + 1, [7] * ranks)


def test_closures_lambdas_and_functions_of_modules_travel():
    factor = 3
    assert launch(lambda: factor * MPI.COMM_WORLD.rank).values == [0, 3]
    assert launch(os.getcwd).values == [os.getcwd()] * 2
    assert launch(other).values == [1, 0]


def test_a_communicator_of_the_caller_becomes_the_ranks_own():
    comm = MPI.COMM_WORLD
    run = launch(lambda: comm.allreduce(1))
    assert run.values == [2, 2]
    assert run[0].events[0].op == "all_reduce"


def test_a_function_of_a_cell_is_named_with_its_line():
    file, source = "/tmp/ipykernel_1/1.py", "def work():\n    comm = MPI.COMM_WORLD\n    comm.recv(source=comm.rank)\n"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    cell = {"MPI": MPI, "__name__": "__main__"}
    exec(compile(source, file, "exec"), cell)
    assert "(line 3: comm.recv(source=comm.rank))" in fails(cell["work"], 1, DeadlockError)
    raises = {"__name__": "__main__"}
    exec(compile("def work():\n    return 1 / 0\n", "/tmp/ipykernel_1/2.py", "exec"), raises)
    assert "the cell, line 2, in work" in fails(raises["work"])


def test_output_comes_in_order_of_the_ranks(capsys):
    def work():
        for number in range(20):
            print("rank", me(), "line", number, flush=True)
        os.system("echo from a child process")

    run = launch(work, ranks=3)
    lines = capsys.readouterr().out.splitlines()
    assert [int(line[1]) for line in lines] == [0] * 21 + [1] * 21 + [2] * 21
    assert run[2].stdout.splitlines()[-1] == "from a child process"


def test_seeds_differ_by_rank_and_repeat():
    def draw():
        import random

        return random.random(), np.random.rand()

    first, second = (launch(draw, seed=5).values for _ in range(2))
    assert first == second
    assert first[0] != first[1]


# ------------------------------------------------------------------ recording


def ring():
    comm = MPI.COMM_WORLD
    data, got = np.full(1000, float(comm.rank)), np.empty(1000)
    total = data.copy()
    for _ in range(comm.size - 1):
        request = comm.Isend(data, dest=(comm.rank + 1) % comm.size)
        comm.Recv(got, source=(comm.rank - 1) % comm.size)
        request.Wait()
        data = got.copy()
        total += data
    return total


def test_ring_has_its_messages_and_the_sum_of_one_process():
    run = launch(ring, ranks=4)
    assert all((value == 6).all() for value in run.values)
    for traffic in run.timeline.traffic():
        assert (traffic.sent_messages, traffic.received_messages) == (3, 3)
        assert (traffic.sent_bytes, traffic.received_bytes) == (24_000, 24_000)


def facts(events, *names):
    return [tuple(getattr(event, name) for name in names) for event in events]


def test_a_recorded_call_names_type_count_root_and_place():
    def work():
        comm, weights = MPI.COMM_WORLD, np.ones(3, dtype=np.float32)
        comm.Bcast([weights, 2, MPI.FLOAT], root=1)
        comm.Reduce(weights, np.empty(3, np.float32) if comm.rank == 0 else None, op=MPI.MAX)
        comm.Gather(MPI.IN_PLACE if comm.rank == 0 else weights, np.empty((2, 3), np.float32), root=0)
        comm.Scatter(np.ones(6), np.empty(3), root=0)
        comm.bcast("object")
        comm.Barrier()

    run = launch(work)
    assert facts(run[0].events, "op", "dtype", "count", "root", "reduce_op", "group") == [
        ("broadcast", "float32", 2, 1, "", (0, 1)),
        ("reduce", "float32", 3, 0, "MAX", (0, 1)),
        ("gather", "float32", 3, 0, "", (0, 1)),
        ("scatter", "float64", 3, 0, "", (0, 1)),
        ("broadcast", "object", 1, 0, "", (0, 1)),
        ("barrier", "", 0, None, "", (0, 1)),
    ]
    first = run[1].events[0]
    assert (Path(first.file).name, first.line, first.name) == (
        "test_ranks_mpi.py",
        work.__code__.co_firstlineno + 2,
        "weights",
    )
    assert all(event.end is not None for result in run for event in result.events)


def test_what_goes_through_derived_communicators_has_ranks_of_the_world():
    def work():
        comm = MPI.COMM_WORLD
        half = comm.Split(comm.rank % 2, key=-comm.rank)
        half.send("x", dest=1 - half.rank)
        half.recv(source=1 - half.rank)
        comm.Dup().Barrier()
        grid = comm.Create_cart([2, 2], periods=[True, False])
        row = grid.Sub([False, True])
        row.allreduce(1)
        source, dest = grid.Shift(1, 1)
        grid.Sendrecv(np.ones(1), dest, recvbuf=np.empty(1), source=source)
        outer = comm.Create_group(comm.Get_group().Incl([0, 3]))
        if outer:
            outer.Bcast(np.ones(1), root=1)
        return [type(c).__name__ for c in (half, grid, row)]

    run = launch(work, ranks=4)
    assert run.values[0] == ["RecordedIntracomm", "RecordedCartcomm", "RecordedCartcomm"]
    assert facts(run[0].events, "op", "peer", "group") == [
        ("split", None, (0, 1, 2, 3)),
        ("send", 2, ()),
        ("recv", 2, ()),
        ("dup", None, (0, 1, 2, 3)),
        ("barrier", None, (0, 1, 2, 3)),
        ("create_cart", None, (0, 1, 2, 3)),
        ("sub", None, (0, 1, 2, 3)),
        ("all_reduce", None, (0, 1)),
        ("isend", 1, ()),
        ("create_group", None, (0, 3)),
        ("broadcast", None, (0, 3)),
    ]
    assert [(e.op, e.root) for e in run[3].events if e.op == "broadcast"] == [("broadcast", 3)]


def test_receives_from_any_know_afterwards_from_whom_and_how_much():
    def work():
        comm = MPI.COMM_WORLD
        if comm.rank:
            comm.Send(np.ones(2 * comm.rank, dtype=np.int32), dest=0, tag=comm.rank + 5)
            return None
        status, got = MPI.Status(), []
        comm.Probe(status=status)
        for _ in range(2):
            comm.Recv(np.empty(100, np.int32), status=status)
            got.append((status.source, status.tag))
        return sorted(got)

    run = launch(work, ranks=3)
    assert run.values[0] == [(1, 6), (2, 7)]
    events = [event for event in run[0].events if event.op == "recv"]
    assert sorted(facts(events, "peer", "tag", "nbytes", "count")) == [(1, 6, 8, 2), (2, 7, 16, 4)]


def test_requests_work_in_all_their_forms():
    def work():
        comm, peer = MPI.COMM_WORLD, other()
        into = np.empty(3)
        MPI.Request.Waitall([comm.Irecv(into, peer), comm.Isend(np.full(3, 1.0 + comm.rank), peer)])
        objects = MPI.Request.waitall([comm.irecv(source=peer), comm.isend("word", peer)])[0]
        sending = comm.isend([1, 2], peer, tag=4)
        receiving = comm.irecv(source=peer, tag=4)
        done, message = receiving.test()
        while not done:
            done, message = receiving.test()
        sending.wait()
        requests = [comm.Irecv(np.empty(1), peer), comm.Isend(np.ones(1), peer)]
        while MPI.Request.Waitany(requests) != MPI.UNDEFINED:
            pass
        total = np.zeros(2)
        comm.Iallreduce(np.ones(2), total).Wait()
        kept = [comm.Send_init(np.ones(1), peer), comm.Recv_init(np.empty(1), peer)]
        for _ in range(2):
            MPI.Prequest.Startall(kept)
            MPI.Request.Waitall(kept)
        for request in kept:
            request.Free()
        assert isinstance(sending, MPI.Request)
        assert isinstance(kept[0], MPI.Request)
        return into[0], objects, message, total[0]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = launch(work)
    assert run.values == [(2, "word", [1, 2], 2), (1, "word", [1, 2], 2)]
    assert all(event.end is not None for event in run[0].events)
    traffic = run.timeline.traffic()[0]
    assert (traffic.sent_messages, traffic.received_messages) == (6, 6)


def test_pickled_messages_have_the_size_of_the_pickle():
    def work():
        if me():
            MPI.COMM_WORLD.send(list(range(1000)), dest=0)
        else:
            MPI.COMM_WORLD.recv(source=1)

    receive, send = launch(work)
    assert send.events[0].nbytes == receive.events[0].nbytes > 1000
    assert send.events[0].dtype == "object"


def test_a_derived_type_counts_as_what_it_is_made_of():
    def work():
        column = MPI.DOUBLE.Create_vector(3, 1, 3).Commit()
        if me():
            MPI.COMM_WORLD.Send([np.arange(9.0), 1, column], dest=0)
            return None
        got = np.empty(3)
        MPI.COMM_WORLD.Recv(got, source=1)
        return got.tolist()

    run = launch(work)
    assert run.values[0] == [0, 3, 6]
    assert facts(run[1].events, "dtype", "count", "nbytes") == [("float64", 3, 24)]


def test_messages_to_nobody_are_not_recorded():
    def work():
        MPI.COMM_WORLD.Send(np.ones(1), dest=MPI.PROC_NULL)
        MPI.COMM_WORLD.Recv(np.ones(1), source=MPI.PROC_NULL)

    assert launch(work)[0].events == ()


def test_recording_can_be_switched_off():
    assert launch(lambda: MPI.COMM_WORLD.Barrier(), record=False)[0].events == ()


def test_requests_left_open_are_warned_of():
    def work():
        MPI.COMM_WORLD.isend("x", dest=other())
        MPI.COMM_WORLD.recv(source=other())
        MPI.COMM_WORLD.Send_init(np.ones(1), dest=other())

    with pytest.warns(RuntimeWarning) as caught:
        launch(work)
    texts = sorted(str(warning.message) for warning in caught)
    assert "Rank 0 never freed the persistent request of line" in texts[0]
    assert "Rank 0 never waited for its isend to rank 1 (line" in texts[1]
    assert 'MPI.COMM_WORLD.isend("x", dest=other())' in texts[1]


# ------------------------------------------------------------------ mistakes that end with an error


def fails(function, ranks=2, error=RankError, timeout=20.0):
    """Launch, and return the message of the error that must come, well before the deadline."""
    start = time.monotonic()
    with pytest.raises(error) as caught:
        launch(function, ranks=ranks, timeout=timeout)
    assert type(caught.value) is error
    assert time.monotonic() - start < timeout
    print(f"--- {function.__name__}\n{caught.value}")
    return str(caught.value)


def test_an_exception_names_rank_line_and_source():
    def work():
        if MPI.COMM_WORLD.rank == 1:
            raise KeyError("no such weight")
        MPI.COMM_WORLD.Barrier()

    text = fails(work, ranks=3)
    assert "Rank 1 raised KeyError: 'no such weight'" in text
    assert 'raise KeyError("no such weight")' in text
    assert f"test_ranks_mpi.py, line {work.__code__.co_firstlineno + 2}, in work" in text
    assert "Rank 0 waits in barrier" in text
    assert "rank 1 has failed" in text


def truncated():
    if me():
        MPI.COMM_WORLD.Send(np.ones(8), dest=0)
    else:
        MPI.COMM_WORLD.Recv(np.empty(4), source=1)


def no_such_rank():
    if me():
        MPI.COMM_WORLD.send(1, dest=7)


def test_errors_of_mpi_name_rank_call_and_line():
    text = fails(truncated)
    assert "Rank 0 raised MPI.Exception: " in text
    assert "truncated (" in text
    assert "64" in text
    assert "error stack" not in text
    assert "in recv from rank 1" in text
    assert "MPI.COMM_WORLD.Recv(np.empty(4), source=1)" in text
    assert "in send to rank 7" in fails(no_such_rank)


def both_receive_first():
    MPI.COMM_WORLD.Recv(np.empty(2), source=other())
    MPI.COMM_WORLD.Send(np.empty(2), dest=other())


def circle_of_receives():
    comm = MPI.COMM_WORLD
    comm.recv(source=(comm.rank + 1) % 3)
    comm.send(1, dest=(comm.rank - 1) % 3)


def one_misses_the_barrier():
    if me() != 2:
        MPI.COMM_WORLD.Barrier()


def one_misses_the_last_all_reduce():
    for _ in range(3 if me() else 2):
        MPI.COMM_WORLD.Allreduce(np.ones(1), np.empty(1))


def tag_never_matches():
    if me() == 0:
        MPI.COMM_WORLD.Send(np.ones(1), dest=1, tag=7)
    else:
        MPI.COMM_WORLD.Recv(np.ones(1), source=0, tag=8)


def both_send_much_first():
    data = np.ones(1_000_000)
    MPI.COMM_WORLD.Send(data, dest=other())
    MPI.COMM_WORLD.Recv(data, source=other())


def waits_for_an_irecv_nobody_sends():
    if me() == 0:
        MPI.COMM_WORLD.Irecv(np.ones(1), source=1).Wait()


def receives_once_too_often():
    if me() == 0:
        MPI.COMM_WORLD.send(1, dest=1)
    else:
        MPI.COMM_WORLD.recv(source=0)
        MPI.COMM_WORLD.recv(source=0)


def receives_from_any_when_all_have_gone():
    if me() == 0:
        MPI.COMM_WORLD.recv()


def collective_against_receive():
    if me() == 0:
        MPI.COMM_WORLD.Allreduce(np.ones(1), np.empty(1))
    else:
        MPI.COMM_WORLD.Recv(np.ones(1), source=0)


def waitall_with_one_that_never_comes():
    comm = MPI.COMM_WORLD
    requests = [comm.isend(0, other())]
    requests += [comm.irecv(source=other(), tag=tag) for tag in (0, 1)]
    MPI.Request.waitall(requests)


def split_without_all():
    if me():
        MPI.COMM_WORLD.Split(0)


def sub_ranks_receive_first():
    half = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank // 2)
    half.recv(source=1 - half.rank, tag=3)


DEADLOCKS = {
    both_receive_first: (2, "0 -> 1 -> 0", "recv from rank 1"),
    circle_of_receives: (3, "in a circle", "recv from rank 2"),
    one_misses_the_barrier: (3, "rank 2 has finished without it", "waits in barrier"),
    one_misses_the_last_all_reduce: (2, "rank 0 has finished without it", "all_reduce(SUM) of 1 float64"),
    tag_never_matches: (2, "with tag 8", "recv from rank 0"),
    both_send_much_first: (2, "0 -> 1 -> 0", "send to rank 1", "8,000,000 bytes does not return before its receiver"),
    waits_for_an_irecv_nobody_sends: (2, "rank 1 has finished without it", "irecv from rank 1"),
    receives_once_too_often: (2, "rank 0 has finished without it", "recv from rank 0"),
    receives_from_any_when_all_have_gone: (3, "recv from any rank (", "rank 1 has finished without it"),
    collective_against_receive: (2, "in a circle", "rank 1 itself waits in recv from rank 0"),
    waitall_with_one_that_never_comes: (2, "0 -> 1 -> 0", "irecv from rank 1 with tag 1"),
    split_without_all: (2, "rank 0 has finished without it", "waits in split"),
    sub_ranks_receive_first: (4, "0 -> 1 -> 0", "recv from rank 3 with tag 3"),
}


@pytest.mark.parametrize("function", DEADLOCKS, ids=lambda f: f.__name__)
def test_a_deadlock_is_proved_before_the_deadline_and_explained(function):
    ranks, *words = DEADLOCKS[function]
    text = fails(function, ranks, DeadlockError)
    assert "wait for ever" in text
    first = function.__code__.co_firstlineno
    assert any(f"(line {line}: " in text for line in range(first, first + 9))
    for word in words:
        assert word in text


def test_a_rank_that_computes_for_too_long_is_named_at_the_deadline():
    def work():
        if me() == 1:
            time.sleep(60)
        MPI.COMM_WORLD.Barrier()

    with pytest.raises(DeadlockError, match=r"(?s)No end within 5 s.*Rank 0 waits in barrier.*Still computing: rank 1"):
        launch(work, timeout=5)


def test_a_slow_partner_is_no_deadlock():
    def work():
        if me() == 0:
            time.sleep(1.5)
            MPI.COMM_WORLD.send(5, dest=1, tag=9)
            return 5
        return MPI.COMM_WORLD.recv()

    assert launch(work).values == [5, 5]


def killed():
    if me() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    MPI.COMM_WORLD.Barrier()


def exits():
    MPI.COMM_WORLD.Barrier()
    if me() == 1:
        os._exit(0)
    MPI.COMM_WORLD.Barrier()


def aborts():
    if me() == 1:
        MPI.COMM_WORLD.Abort(7)
    MPI.COMM_WORLD.Barrier()


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (killed, "Rank 1 died (signal SIGKILL) before it communicated."),
        (exits, "Rank 1 died (exit code 0) in or after barrier"),
    ],
)
def test_a_rank_that_dies_is_named_with_how(function, words):
    text = fails(function)
    assert words in text
    assert "Rank 0 waits in barrier (line" in text
    assert "but rank 1 has died" in text


def test_a_rank_that_aborts_all_is_named():
    assert "Rank 1 died (MPI_Abort with code 7) before it communicated." in fails(aborts)


# ------------------------------------------------------------------ mistakes that finish with wrong numbers


def another_type():
    MPI.COMM_WORLD.Allreduce(
        np.ones(4, np.float32 if me() else np.int32), np.empty(4, np.float32 if me() else np.int32)
    )


def another_reduction():
    MPI.COMM_WORLD.Allreduce(np.ones(4), np.empty(4), op=MPI.MAX if me() else MPI.SUM)


def another_root():
    MPI.COMM_WORLD.Bcast(np.full(4, 1.0 * me()), root=me())


def another_count():
    MPI.COMM_WORLD.Reduce(np.ones(4 + me()), np.empty(4 + me()), root=0)


def another_operation():
    data = np.full(1, 1.0 * me())
    if me():
        MPI.COMM_WORLD.Bcast(data, root=1)
    else:
        MPI.COMM_WORLD.Scatter(np.ones(2) if me() else None, data, root=1)


def upper_against_lower_case():
    if me() == 0:
        MPI.COMM_WORLD.bcast(np.ones(4), root=0)
    else:
        MPI.COMM_WORLD.Bcast(np.ones(400), root=0)


def another_order():
    weights, biases, out = np.ones(4), np.zeros(4), np.empty(4)
    for data in (weights, biases) if me() else (biases, weights):
        MPI.COMM_WORLD.Allreduce(data, out)


def one_misses_the_broadcast():
    if me() != 2:
        MPI.COMM_WORLD.Bcast(np.ones(1), root=0)


SILENT = {
    another_type: (2, "the type of collective 1"),
    another_reduction: (2, "the reduction of collective 1"),
    another_root: (2, "the root of collective 1"),
    another_count: (2, "the number of elements of collective 1"),
    another_operation: (2, "the operation"),
    upper_against_lower_case: (2, "the type"),
    another_order: (2, "another order"),
    one_misses_the_broadcast: (3, "Rank 2 took part in 0 of 1 collectives: broadcast"),
}


@pytest.mark.parametrize("function", SILENT, ids=lambda f: f.__name__)
def test_ranks_that_disagree_are_told_however_the_run_ends(function):
    ranks, words = SILENT[function]
    with pytest.raises(RankError) as caught:
        launch(function, ranks=ranks, timeout=20)
    print(f"--- {function.__name__}: {type(caught.value).__name__}\n{caught.value}")
    assert words in str(caught.value)


@pytest.mark.parametrize("function", [another_reduction, another_root, another_order], ids=lambda f: f.__name__)
def test_a_silent_mistake_is_told_after_a_run_that_finished(function):
    with pytest.raises(MismatchError) as caught:
        launch(function)
    assert len(caught.value.run) == 2


# ------------------------------------------------------------------ bad input


def test_bad_arguments_are_named():
    with pytest.raises(LaunchError, match="ranks is 0"):
        launch(me, ranks=0)
    with pytest.raises(LaunchError, match="something that can be called"):
        launch(3)
    lock = threading.Lock()
    with pytest.raises(LaunchError, match=r"cannot be sent to the ranks.*inside the function"):
        launch(lambda: lock.acquire())


def test_a_value_that_cannot_come_back_is_named():
    assert "what rank 0 returned (a lock) cannot be sent back" in fails(threading.Lock, ranks=1)


def test_no_mpiexec_says_how_to_get_one(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(LaunchError, match=r"there is no mpiexec: pip install.*distgen doctor"):
        launch(me)


def script(path, text):
    path.write_text("#!/bin/sh\n" + textwrap.dedent(text))
    path.chmod(0o755)
    return str(path)


def test_a_foreign_mpiexec_is_told_by_the_size_it_gives(monkeypatch, tmp_path):
    foreign = script(tmp_path / "mpiexec", 'n=$2; shift 2; for i in $(seq $n); do "$@" & done; wait')
    monkeypatch.setattr(mpi_launcher, "_mpiexec", lambda: foreign)
    with pytest.raises(LaunchError, match=r"2 ranks, but each is alone.*another MPI than mpi4py's.*distgen doctor"):
        launch(me)


def test_an_mpiexec_that_fails_is_quoted(monkeypatch, tmp_path):
    broken = script(tmp_path / "mpiexec", "echo 'no such host' >&2; exit 3")
    monkeypatch.setattr(mpi_launcher, "_mpiexec", lambda: broken)
    with pytest.raises(LaunchError, match=r"could not start the ranks: no such host"):
        launch(me)


# ------------------------------------------------------------------ nothing survives


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_launches_leave_nothing_behind():
    launch(me)
    before = left()
    for _ in range(2):
        launch(ring)
        with pytest.raises(RankError):
            launch(killed)
    with pytest.raises(DeadlockError):
        launch(both_send_much_first)
    wait_for(lambda: [1] if left() == before else [], 1, 10)


CALLER = """
import os, signal, time
from distgen_lab.ranks import launch
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits it ignored
def work():
    from mpi4py import MPI
    comm = MPI.COMM_WORLD
    open(r"{folder}/" + str(os.getpid()), "w").close()
    open(r"{folder}/" + str(os.getppid()), "w").close()
    if comm.rank == 0:
        while True: pass
    comm.Recv(bytearray(1), source=0)
launch(work, ranks=2, backend="mpi", timeout=100)
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_ranks_end_with_the_process_that_launched_them(how, tmp_path):
    before = left()
    file = tmp_path / "caller.py"
    file.write_text(CALLER.format(folder=tmp_path))
    caller = subprocess.Popen([sys.executable, file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ranks = wait_for(lambda: [int(p.name) for p in tmp_path.iterdir() if p.name.isdigit()], 4, 60)
    mpiexec = psutil.Process(caller.pid).children(recursive=True)
    caller.send_signal(how)
    caller.wait(timeout=20)
    pids = {*ranks, *(process.pid for process in mpiexec)}
    wait_for(lambda: [pid for pid in pids if gone(pid)], len(pids), 10)
    wait_for(lambda: [1] if left() == before else [], 1, 10)


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_for(look, count, seconds):
    """Look until there are ``count`` items."""
    deadline = time.monotonic() + seconds
    while len(found := look()) < count:
        assert time.monotonic() < deadline, f"only {found}"
        threading.Event().wait(0.05)
    return found


def test_how_long_a_warm_launch_takes(capsys):
    def work():
        total = np.empty(4)
        MPI.COMM_WORLD.Allreduce(np.ones(4), total)
        return total[0]

    seconds = []
    for _ in range(5):
        start = time.monotonic()
        assert launch(work, ranks=4).values == [4] * 4
        seconds.append(time.monotonic() - start)
    with capsys.disabled():
        print(f"\n4 MPI ranks with an all-reduce: median {statistics.median(seconds):.2f} s")
