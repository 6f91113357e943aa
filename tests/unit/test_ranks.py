"""Real Gloo ranks: results, output, errors in words, deadlocks, silent mistakes, and nothing left behind."""

import gc
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist

from distgen_lab.ranks import DeadlockError, LaunchError, MismatchError, RankError, diagnose, launch
from distgen_lab.timeline import Span

launching = importlib.import_module("distgen_lab.ranks.launch")


def other():
    return 1 - dist.get_rank()


# ------------------------------------------------------------------ what works


def test_values_come_back_in_order():
    run = launch(lambda offset: dist.get_rank() + offset, ranks=3, args=(10,))
    assert run.values == [10, 11, 12]
    assert [result.rank for result in run] == [0, 1, 2]
    assert all(result.seconds > 0 for result in run)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_all_reduce_equals_the_sum_in_one_process(ranks):
    def work():
        value = torch.arange(5, dtype=torch.float64) * (dist.get_rank() + 1)
        dist.all_reduce(value)
        return value.numpy()

    wanted = np.arange(5) * sum(range(1, ranks + 1))
    assert all((value == wanted).all() for value in launch(work, ranks=ranks).values)


def test_closures_lambdas_and_functions_of_modules_travel():
    factor = 3
    assert launch(lambda: factor * dist.get_rank(), ranks=2).values == [0, 3]
    assert launch(dist.get_world_size, ranks=2).values == [2, 2]
    assert launch(other, ranks=2).values == [1, 0]


def test_output_comes_in_order_of_the_ranks_and_never_mixed_in_a_line(capsys):
    def work():
        for number in range(50):
            print("rank", dist.get_rank(), "line", number, flush=True)
        os.system("echo from a child process")

    run = launch(work, ranks=3)
    lines = capsys.readouterr().out.splitlines()
    assert [int(line[1]) for line in lines] == [0] * 51 + [1] * 51 + [2] * 51
    assert lines[7] == "[0] rank 0 line 7"
    assert run[2].stdout.splitlines()[-1] == "from a child process"


def test_seeds_differ_by_rank_and_repeat():
    def draw():
        return torch.rand(1).item()

    first, second = (launch(draw, ranks=2, seed=5).values for _ in range(2))
    assert first == second
    assert first[0] != first[1]


def test_a_script_without_a_main_guard_is_not_run_again(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from distgen_lab.ranks import launch\nprint('once')\nprint(launch(lambda: 7, ranks=2).values)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["once", "[7, 7]"], done.stderr


def test_recorded_ring_has_the_messages_it_was_written_with():
    def ring():
        rank, size = dist.get_rank(), dist.get_world_size()
        data, got = torch.ones(1000), torch.empty(1000)
        for _ in range(size - 1):
            request = dist.isend(data, dst=(rank + 1) % size)
            dist.recv(got, src=(rank - 1) % size)
            request.wait()

    for traffic in launch(ring, ranks=4).timeline.traffic():
        assert (traffic.sent_messages, traffic.received_messages) == (3, 3)
        assert (traffic.sent_bytes, traffic.received_bytes) == (12_000, 12_000)


def test_recorded_collective_names_group_type_and_place():
    def work():
        part = dist.new_group([0, 2])
        if dist.get_rank() != 1:
            dist.broadcast(torch.ones(3, dtype=torch.int64), src=2, group=part)
        dist.barrier()

    events = launch(work, ranks=3)[0].events
    assert [(e.op, e.group, e.root, e.dtype, e.nbytes) for e in events if e.op == "broadcast"] == [
        ("broadcast", (0, 2), 2, "int64", 24)
    ]
    assert Path(events[0].file).name == Path(__file__).name
    assert all(e.end is not None for e in events)


def test_recording_can_be_switched_off():
    assert launch(dist.barrier, ranks=2, record=False)[0].events == ()


def train(steps=3):
    """A few steps of a replicated model; returns the gradient of its first weight, and DDP's own list of buckets."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256, bias=False) for _ in range(3)))
    replica = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.3)
    for _ in range(steps):
        replica.zero_grad()
        replica(torch.ones(2, 256) * (1 + dist.get_rank())).sum().backward()
    known = replica._get_ddp_logging_data()
    first, later = (sizes.split(",") for sizes in (known["bucket_sizes"], known["rebuilt_bucket_sizes"]))
    return model[0].weight.grad.clone(), [int(size) for size in first + later * (steps - 1)]


def test_ddp_is_recorded_bucket_by_bucket_and_computes_the_same():
    recorded, plain = launch(train, ranks=2), launch(train, ranks=2, record=False)
    assert torch.equal(recorded[0].value[0], plain[0].value[0])
    buckets = recorded[0].value[1]
    assert [e.nbytes for e in recorded[0].events if e.op == "all_reduce"] == buckets
    assert sum(buckets) == 3 * 3 * 256 * 256 * 4
    assert recorded[0].events[0].op == "broadcast"
    start = train.__code__.co_firstlineno
    assert all(start < e.line < start + 9 and e.end for e in recorded[0].events)


def test_a_hook_of_the_reader_is_left_alone():
    def work():
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        replica = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64, bias=False))
        replica.register_comm_hook(None, fp16_compress_hook)
        replica(torch.ones(1, 64)).sum().backward()

    events = launch(work, ranks=2)[0].events
    assert [(e.dtype, e.nbytes) for e in events if e.op == "all_reduce"] == [("float16", 64 * 64 * 2)]


def test_a_sharded_model_is_recorded_as_gathers_and_scatters():
    def work():
        model = torch.nn.Linear(128, 64, bias=False)
        torch.distributed.fsdp.fully_shard(model)
        model(torch.ones(2, 128)).sum().backward()

    events = launch(work, ranks=2)[0].events
    assert events[0].op.startswith("all_gather")
    assert any(e.op.startswith("reduce_scatter") and e.reduce_op == "AVG" for e in events)


MEBI = 2**20


def shares(function, ranks=4):
    """Bytes between ranks in mebibytes, headers rounded away."""
    wire = launch(function, ranks=ranks).wire
    return [[round(count / MEBI, 1) for count in row] for row in wire]


@pytest.mark.skipif(not hasattr(__import__("socket"), "TCP_INFO"), reason="the kernel does not tell bytes of a socket")
def test_the_kernel_shows_what_library_collectives_send():
    """Gloo: all_reduce and all_gather are rings, broadcast a binomial tree, reduce_scatter a whole all_reduce."""
    ring = shares(lambda: dist.all_reduce(torch.ones(MEBI // 4)))
    assert ring == [[1.5 if to == (rank - 1) % 4 else 0.0 for to in range(4)] for rank in range(4)]
    tree = shares(lambda: dist.broadcast(torch.ones(MEBI // 4), src=0))
    assert [sum(map(bool, row)) for row in tree] == [2, 1, 0, 0]
    assert [sum(column) for column in zip(*tree, strict=True)] == [0, 1, 1, 1]
    scatter = shares(lambda: dist.reduce_scatter_single(torch.ones(MEBI // 16), torch.ones(MEBI // 4)))
    assert [sum(row) for row in scatter] == [1.5] * 4  # 0.75 is what a reduce-scatter needs
    gather = shares(lambda: dist.all_gather_single(torch.ones(MEBI // 4), torch.ones(MEBI // 16)))
    assert [sum(row) for row in gather] == [pytest.approx(0.75, abs=0.06)] * 4


def test_no_bytes_are_told_where_nothing_is_recorded():
    assert launch(dist.barrier, ranks=2, record=False).wire == []


def test_timeline_exports_a_chrome_trace():
    trace = launch(dist.barrier, ranks=2).timeline.chrome_trace()
    assert trace.count('"barrier"') == 2


# ------------------------------------------------------------------ mistakes that end with an error


def fails(function, ranks=2, error=RankError, timeout=20.0):
    """Launch, and return the message of the error that must come, well before the deadline."""
    start = time.monotonic()
    with pytest.raises(error) as caught:
        launch(function, ranks=ranks, timeout=timeout)
    assert type(caught.value) is error
    assert time.monotonic() - start < timeout
    return str(caught.value)


def test_an_exception_names_rank_line_and_source():
    def work():
        if dist.get_rank() == 1:
            raise KeyError("no such weight")
        dist.barrier()

    text = fails(work, ranks=3)
    assert "Rank 1 raised KeyError: 'no such weight'" in text
    assert 'raise KeyError("no such weight")' in text
    assert f"test_ranks.py, line {work.__code__.co_firstlineno + 2}, in work" in text
    assert "Rank 0 waits in barrier" in text
    assert "rank 1 has failed" in text


def both_receive_first():
    data = torch.ones(2)
    dist.recv(data, src=other())
    dist.send(data, dst=other())


def ring_of_receives():
    data, rank = torch.ones(2), dist.get_rank()
    dist.recv(data, src=(rank + 1) % 3)
    dist.send(data, dst=(rank - 1) % 3)


def one_misses_the_barrier():
    if dist.get_rank() != 2:
        dist.barrier()


def one_misses_the_last_all_reduce():
    for _ in range(3 if dist.get_rank() else 2):
        dist.all_reduce(torch.ones(1))


def tag_never_matches():
    data = torch.ones(1)
    if dist.get_rank() == 0:
        dist.send(data, dst=1, tag=7)
    else:
        dist.recv(data, src=0, tag=8)


def waits_for_an_irecv_nobody_sends():
    if dist.get_rank() == 0:
        dist.irecv(torch.ones(1), src=1).wait()


def receives_once_too_often():
    data = torch.ones(1)
    if dist.get_rank() == 0:
        dist.send(data, dst=1)
    else:
        dist.recv(data, src=0)
        dist.recv(data, src=0)


def receives_from_any_when_all_have_gone():
    if dist.get_rank() == 0:
        dist.recv(torch.ones(1))


def collective_against_receive():
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1))
    else:
        dist.recv(torch.ones(1), src=0)


DEADLOCKS = {
    both_receive_first: (2, "0 -> 1 -> 0", "recv from rank 1"),
    ring_of_receives: (3, "in a circle", "recv from rank 2"),
    one_misses_the_barrier: (3, "rank 2 has finished without it", "waits in barrier"),
    one_misses_the_last_all_reduce: (2, "rank 0 has finished without it", "all_reduce(SUM) of 1 float32"),
    tag_never_matches: (2, "with tag 8", "recv from rank 0"),
    waits_for_an_irecv_nobody_sends: (2, "rank 1 has finished without it", "irecv from rank 1"),
    receives_once_too_often: (2, "rank 0 has finished without it", "recv from rank 0"),
    receives_from_any_when_all_have_gone: (3, "recv from any rank", "rank 1 has finished without it"),
    collective_against_receive: (2, "in a circle", "rank 1 itself waits in recv from rank 0"),
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
        if dist.get_rank() == 1:
            time.sleep(60)
        dist.barrier()

    with pytest.raises(DeadlockError, match=r"(?s)No end within 2 s.*Rank 0 waits in barrier.*Still computing: rank 1"):
        launch(work, ranks=2, timeout=2)


def test_a_slow_partner_is_no_deadlock():
    def work():
        data = torch.zeros(1)
        if dist.get_rank() == 0:
            time.sleep(2.5)
            dist.send(data + 5, dst=1)
        else:
            dist.recv(data, src=0)
        return data.item()

    assert launch(work, ranks=2).values == [0, 5]


def test_another_size_is_an_abort_that_is_explained():
    def work():
        data = torch.ones(4 + dist.get_rank())
        dist.all_reduce(data)

    text = fails(work)
    assert "signal SIGABRT" in text or "raised RuntimeError" in text
    assert "disagree about the number of elements of collective 1" in text


def test_a_rank_that_is_killed_is_named_with_its_signal():
    def work():
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()

    text = fails(work)
    assert "Rank 1 died (signal SIGKILL)" in text


def test_a_rank_that_exits_is_named_with_its_code():
    text = fails(lambda: os._exit(3) if dist.get_rank() == 1 else dist.barrier())
    assert "Rank 1 died (exit code 3)" in text


# ------------------------------------------------------------------ mistakes that finish with wrong numbers


def another_type():
    data = torch.ones(4, dtype=torch.float32 if dist.get_rank() else torch.int32)
    dist.all_reduce(data)


def another_reduction():
    data = torch.ones(4)
    dist.all_reduce(data, op=dist.ReduceOp.MAX if dist.get_rank() else dist.ReduceOp.SUM)


def another_order():
    weights, biases = torch.ones(4), torch.zeros(4)
    for data in (weights, biases) if dist.get_rank() else (biases, weights):
        dist.all_reduce(data)


def another_order_in_branches():
    weights, biases = torch.ones(4), torch.zeros(4)
    if dist.get_rank() == 0:
        dist.all_reduce(weights)
        dist.all_reduce(biases)
    else:
        dist.all_reduce(biases)
        dist.all_reduce(weights)


SILENT = {
    another_type: "the type of collective 1",
    another_reduction: "the reduction of collective 1",
    another_order: "another order",
    another_order_in_branches: "another order",
}


@pytest.mark.parametrize("function", SILENT, ids=lambda f: f.__name__)
def test_a_silent_mistake_is_told_after_a_run_that_finished(function):
    with pytest.raises(MismatchError) as caught:
        launch(function, ranks=2)
    assert SILENT[function] in str(caught.value)
    assert len(caught.value.run) == 2


def roots_differ():
    dist.broadcast(torch.ones(2), src=dist.get_rank())


def operations_differ():
    data = torch.ones(4)
    if dist.get_rank():
        dist.all_reduce(data)
    else:
        dist.broadcast(data, src=0)


@pytest.mark.parametrize("function", [roots_differ, operations_differ], ids=lambda f: f.__name__)
def test_ranks_that_disagree_and_wait_are_told_so_before_the_deadline(function):
    text = fails(function, 2, DeadlockError)
    assert "The ranks disagree about" in text
    assert "of collective 1" in text


def test_a_collective_that_the_others_finish_without_a_rank_is_told():
    """The root of a gather needs all, but a rank that only sends small data need not wait for one that has left."""

    def work():
        if dist.get_rank() != 2:
            dist.all_reduce(torch.ones(1), async_op=True)

    with pytest.warns(RuntimeWarning, match="Rank 0 never waited"), pytest.raises(MismatchError) as caught:
        launch(work, ranks=3)
    assert "Rank 2 took part in 0 of 1 collectives: all_reduce(SUM) of 1 float32" in str(caught.value)


def test_a_request_that_no_one_waited_for_is_warned_of():
    def work():
        data = torch.ones(3)
        if dist.get_rank() == 0:
            request = dist.isend(data, dst=1)
        else:
            dist.recv(data, src=0)
        dist.barrier()
        return dist.get_rank() or repr(request)  # kept to the end: a request that is dropped may lose its message

    with pytest.warns(RuntimeWarning, match=r"Rank 0 never waited for its isend to rank 1 \(line \d+: request ="):
        launch(work, ranks=2)


def test_a_message_that_its_sender_did_not_wait_for_may_never_come():
    """It depends on the moment whether Gloo sends it, so the verdict is tested on what such ranks record."""
    sent, awaited = Span(0, "isend", 1.0, peer=1, blocking=False), Span(1, "recv", 1.0, peer=0)
    running = {0: diagnose.Rank(diagnose.RUNNING, (sent,)), 1: diagnose.Rank(diagnose.RUNNING, (awaited,))}
    assert not diagnose.stuck(running)
    gone = running | {0: diagnose.Rank(diagnose.FINISHED, (sent,))}
    assert diagnose.stuck(gone) == {1: [0]}
    assert "Rank 0 never waited for its isend to rank 1" in "\n".join(diagnose.waits(gone))


def test_two_branches_that_do_the_same_are_no_mistake():
    def work():
        data = torch.ones(2)
        if dist.get_rank() == 0:
            dist.all_reduce(data)
            dist.broadcast(data, src=0)
        else:
            dist.all_reduce(data)
            dist.broadcast(data, src=0)
        return data[0].item()

    assert launch(work, ranks=2).values == [2, 2]


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ranks": 0}, "ranks is 0"),
        ({"ranks": -1}, "ranks is -1"),
        ({"ranks": 2.0}, "ranks is 2.0"),
        ({"ranks": True}, "ranks is True"),
        ({"ranks": 100_000}, "from 1 to 256"),
        ({"backend": "smoke"}, "backend is 'smoke'; there are: auto, gloo"),
        ({"timeout": 0}, "timeout is 0"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(LaunchError, match=words):
        launch(dist.barrier, **arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_nccl_without_gpus_says_how_many_there_are():
    with pytest.raises(LaunchError, match="2 ranks, 0 GPUs"):
        launch(dist.barrier, ranks=2, backend="nccl")


def test_what_cannot_be_sent_is_refused_with_the_cure():
    lock = threading.Lock()
    with pytest.raises(LaunchError, match=r"cannot be sent to the ranks.*inside the function"):
        launch(lambda: lock.acquire(), ranks=2)
    with pytest.raises(LaunchError, match="something that can be called"):
        launch(3, ranks=2)


def test_a_value_that_cannot_come_back_is_named():
    assert "what rank 0 returned (a lock) cannot be sent back" in fails(threading.Lock, ranks=1)


def test_a_value_that_is_too_large_is_named():
    text = fails(lambda: np.ones(40_000_000), ranks=1)
    assert "MiB, at most 256" in text


# ------------------------------------------------------------------ other ways to start


@pytest.mark.slow
def test_where_nothing_can_be_forked_ranks_are_spawned(monkeypatch, capsys):
    monkeypatch.setattr(launching.multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    factor = 3

    def work():
        data = torch.ones(2) * factor
        dist.all_reduce(data)
        print("here", dist.get_rank())
        return data[0].item()

    run = launch(work, ranks=2)
    assert run.values == [6, 6]
    assert capsys.readouterr().out.splitlines() == ["[0] here 0", "[1] here 1"]
    assert run.timeline.traffic()[1].collectives == {"all_reduce": 1}
    assert "waits in recv from rank 1" in fails(both_receive_first, 2, DeadlockError)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
def test_nccl_runs_on_as_many_ranks_as_there_are_gpus():
    def work():
        data = torch.ones(1000, device="cuda") * (dist.get_rank() + 1)
        dist.all_reduce(data)
        return dist.get_backend(), data.sum().item()

    ranks = min(torch.cuda.device_count(), 4)
    run = launch(work, ranks=ranks)
    assert run.values == [("nccl", 1000 * ranks * (ranks + 1) / 2)] * ranks
    assert run.timeline.traffic()[0].collectives == {"all_reduce": 1}
    with pytest.raises(LaunchError, match="needs a GPU a rank"):
        launch(work, ranks=torch.cuda.device_count() + 1, backend="nccl")


# ------------------------------------------------------------------ nothing survives


def folders_of_launches():
    """The folders of launches there are now, beside the server's and in it."""
    temporary = Path(tempfile.gettempdir())
    return {*temporary.glob("distgen-ranks-*"), *temporary.glob("pymp-*/distgen-ranks-*")}


def snapshot():
    """Processes below this one that are not multiprocessing's own, open descriptors, threads, folders."""
    gc.collect()
    me = psutil.Process()
    own = ("forkserver", "resource_tracker")
    children = [p for p in me.children(recursive=True) if not any(name in " ".join(p.cmdline()) for name in own)]
    servers = [p for p in me.children() if "forkserver" in " ".join(p.cmdline())]
    return {
        "processes": len(children) + sum(len(server.children()) for server in servers),
        "descriptors": me.num_fds() + sum(server.num_fds() for server in servers),
        "threads": me.num_threads(),
        "folders": len(folders_of_launches()),
    }


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_many_launches_leave_nothing_behind(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    launch(dist.barrier, ranks=2)
    before = snapshot()
    for _ in range(30):
        launch(dist.barrier, ranks=2)
    for _ in range(3):
        with pytest.raises(DeadlockError):
            launch(both_receive_first, ranks=2)
    deadline = time.monotonic() + 5  # the server takes a moment to bury what it forked
    while snapshot() != before and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    assert snapshot() == before


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_five_hundred_launches_and_twenty_killed_ones_leave_nothing_and_grow_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def killed():
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()

    for _ in range(20):
        launch(dist.barrier, ranks=2)
    before, memory, shared = snapshot(), used_memory(), set(os.listdir("/dev/shm"))
    for _ in range(500):
        launch(dist.barrier, ranks=2)
    for _ in range(20):
        with pytest.raises(RankError):
            launch(killed, ranks=2)
    deadline = time.monotonic() + 5
    while snapshot() != before and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    assert snapshot() == before
    assert set(os.listdir("/dev/shm")) <= shared
    assert used_memory() - memory < 20e6


def used_memory():
    """Bytes of this process and of the server that forks its ranks."""
    gc.collect()
    me = psutil.Process()
    return sum(p.memory_info().rss for p in [me, *me.children()])


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_ranks_end_with_the_process_that_launched_them(how, tmp_path):
    folders = folders_of_launches()
    script = tmp_path / "caller.py"
    script.write_text(
        textwrap.dedent(f"""
        import os, signal, torch, torch.distributed as dist
        from distgen_lab.ranks import launch
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits it ignored
        def work():
            open(r"{tmp_path}/" + str(os.getpid()), "w").close()
            if dist.get_rank() == 0:
                while True: pass
            dist.recv(torch.ones(1), src=0)
        launch(work, ranks=2, timeout=100)
        """)
    )
    caller = subprocess.Popen([sys.executable, script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ranks = wait_for(lambda: [int(p.name) for p in tmp_path.iterdir() if p.name.isdigit()], 2, 60)
    caller.send_signal(how)
    caller.wait(timeout=20)
    assert wait_for(lambda: [pid for pid in ranks if not psutil.pid_exists(pid)], 2, 10)
    wait_for(lambda: [1] if not folders_of_launches() - folders else [], 1, 10)


def wait_for(look, count, seconds):
    """Look until there are ``count`` items."""
    deadline = time.monotonic() + seconds
    while len(found := look()) < count:
        assert time.monotonic() < deadline, f"only {found}"
        threading.Event().wait(0.05)
    return found
