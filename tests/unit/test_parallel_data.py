"""Data parallelism and ZeRO on real ranks: the twin, torch's own DDP and FSDP, counted bytes, published tables."""

import csv
import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab.labs import ddp, parallel, zero
from distgen_lab.labs.parallel import apart, least_bytes
from distgen_lab.parallelism import STAGES, zero_memory, zero_traffic
from distgen_lab.ranks import RankError, launch
from distgen_lab.timeline import Span
from distgen_lab.units import MIB

pytestmark = pytest.mark.slow

ROUNDING = 1e-14
PARAMETERS = sum((a + 1) * b for a, b in ((8, 32), (32, 32), (32, 8)))


def plain_training(steps, samples):
    """The twin written again without the lab: gradients by autograd, steps by hand."""
    model, (x, y) = parallel.mlp(), parallel.data(samples)
    values = [p.detach().clone().requires_grad_() for p in model.parameters()]
    for _ in range(steps):
        h = x
        for k in range(0, 6, 2):
            h = h @ values[k].T + values[k + 1]
            h = torch.nn.functional.gelu(h) if k < 4 else h
        loss = ((h - y) ** 2).sum(1).mean() / 2
        grads = torch.autograd.grad(loss, values)
        values = [(v - 0.1 * g).detach().requires_grad_() for v, g in zip(values, grads, strict=True)]
    return [v.detach() for v in values]


# ------------------------------------------------------------------ what the labs share


def test_the_least_bytes_of_recorded_collectives():
    group = (0, 1, 2, 3)

    def spans(op, nbytes, **facts):
        return [Span(0, op, 0.0, 1.0, nbytes=nbytes, group=group, **facts)]

    assert least_bytes(spans("all_reduce", 400)) == 600
    assert least_bytes(spans("reduce_scatter_single", 400)) == 300
    assert least_bytes(spans("all_gather_single", 100)) == 300
    assert least_bytes(spans("all_to_all_single", 400)) == 300
    assert least_bytes(spans("broadcast", 400, root=0)) == 400
    assert least_bytes(spans("broadcast", 400, root=1)) == 0
    assert least_bytes([Span(0, "isend", 0.0, 1.0, nbytes=7, peer=1), Span(0, "recv", 0.0, 1.0, nbytes=9, peer=1)]) == 7
    assert least_bytes(spans("barrier", 0) + spans("all_gather_object", 0)) == 0


@pytest.mark.parametrize(
    ("count", "words"), [(10, "10 heads do not divide among 4 ranks"), (2, "rank 2 would have none")]
)
def test_what_does_not_divide_is_named(count, words):
    with pytest.raises(ValueError, match=words):
        parallel.share("heads", count, 4)


def test_shapes_are_compared_before_values():
    with pytest.raises(ValueError, match="shapes differ"):
        apart(torch.ones(2), torch.ones(3))
    assert apart(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0])) == 0.5


def test_without_ranks_there_is_no_device():
    with pytest.raises(RuntimeError, match="no process group"):
        parallel.device()


# ------------------------------------------------------------------ buckets


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 120))
@settings(max_examples=60, deadline=None)
def test_every_gradient_lies_in_one_bucket_that_closes_at_its_cap(sizes, cap):
    plan = ddp.bucket_plan(sizes, cap)
    assert [place for part in plan for place in part] == list(range(len(sizes)))
    totals = [[sum(sizes[k] for k in part[:end]) for end in range(1, len(part) + 1)] for part in plan]
    assert all(max(total[:-1], default=0) < cap for total in totals)
    assert all(total[-1] >= cap for total in totals[:-1])


@pytest.mark.parametrize("cap", [None, 0.05, 0.0645, 0.5])
def test_the_plan_is_that_of_ddp_after_its_first_step(cap):
    widths = (64, 512, 512, 64) if cap is None else (64, 128, 128, 64)

    def watch():
        model = parallel.mlp(widths).float()
        return ddp.fired_buckets(model, torch.ones(2, 64), 3, **({} if cap is None else {"bucket_cap_mb": cap}))

    fired = launch(watch, ranks=2)[0].value
    sizes = [p.numel() * 4 for p in list(parallel.mlp(widths).parameters())[::-1]]
    plan = ddp.bucket_plan(sizes, *((25 * MIB, 1 * MIB) if cap is None else (cap * MIB,)))
    assert [(f.place, f.nbytes) for f in fired if f.step == 0] == [(0, sum(sizes))]
    for step in (1, 2):
        assert [f.nbytes for f in fired if f.step == step] == [sum(sizes[k] for k in part) for part in plan]
    arrived = [f.arrived for f in fired if f.step == 1]
    assert arrived == [sum(map(len, plan[: k + 1])) for k in range(len(plan))]


# ------------------------------------------------------------------ data parallelism


def test_the_twin_is_right():
    assert apart(ddp.twin(3, 24), plain_training(3, 24)) < ROUNDING


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("way", ddp.WAYS)
def test_data_parallel_training_equals_its_twin(way, ranks):
    for value in launch(ddp.train, ranks, args=(way, 3, 24)).values:
        assert apart(value, plain_training(3, 24)) < ROUNDING


def test_each_way_sends_the_same_bytes_in_its_own_number_of_messages():
    runs = {way: launch(ddp.train, 4, args=(way, 1, 24)) for way in ddp.WAYS}
    spans = {way: [s for s in run[1].events if s.op == "all_reduce"] for way, run in runs.items()}
    assert all(sum(s.nbytes for s in mine) == 8 * PARAMETERS for mine in spans.values())
    assert all(least_bytes(mine) == 1.5 * 8 * PARAMETERS for mine in spans.values())
    assert [len(mine) for mine in spans.values()] == [6, 2, 1]


def test_buckets_by_hand_start_before_the_backward_pass_has_ended():
    def work():
        model, (x, y) = parallel.mlp(), parallel.data()
        buckets = ddp.Buckets(list(model.parameters()), cap=1)
        first = model[0].weight
        seen = []
        first.register_hook(lambda gradient: seen.append(len(buckets.flying)))
        parallel.squared_error(model(x), y).backward()
        buckets.finish()
        return seen[0], len(buckets.buckets)

    for flying, buckets in launch(work, 2).values:
        assert buckets == 6
        assert flying in (4, 5)  # all but the first layer's own: weight, and bias if it comes later


def test_no_sync_sends_once_and_gives_the_same_gradient():
    quiet, loud = (launch(ddp.accumulate, 2, args=(4, quiet)) for quiet in (True, False))
    assert [run.timeline.traffic()[0].collectives["all_reduce"] for run in (quiet, loud)] == [1, 4]
    assert apart(quiet.values[0], loud.values[1]) < ROUNDING


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("smoke",), "unknown way 'smoke'"), (("DDP", 1, 2), "rank 2 would have none"), (("DDP", 1, 7), "do not divide")],
)
def test_bad_input_of_data_parallelism(arguments, words):
    with pytest.raises(RankError, match=words):
        launch(ddp.train, 3, args=arguments)


# ------------------------------------------------------------------ ZeRO


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("stage", STAGES)
def test_zero_equals_twin_ddp_and_fully_shard(stage, ranks):
    wanted = zero.reference("twin")
    for parameters, _ in launch(zero.train, ranks, args=(stage,)).values:
        assert apart(parameters, wanted) < ROUNDING
    if stage == 3:
        for how in ("DDP", "fully_shard"):
            assert apart(launch(zero.reference, ranks, args=(how,))[1].value, wanted) < ROUNDING


@pytest.mark.parametrize("stage", STAGES)
def test_zero_holds_and_sends_what_its_table_says(stage):
    run = launch(zero.train, 4, args=(stage, 1, 24, torch.bfloat16))
    assert {held for _, held in run.values} == {zero_memory(PARAMETERS, stage, 4)}
    for result in run:
        assert least_bytes(result.events) == zero_traffic(2 * PARAMETERS, stage, 4)
    gathers = sum(span.op == "all_gather_single" for span in run[0].events)
    assert gathers == {0: 0, 1: 3, 2: 3, 3: 6}[stage]


def test_the_formula_is_the_published_table(shared):
    stages = {"Pos": 1, "Pos+g": 2, "Pos+g+p": 3}
    rows = list(csv.DictReader((shared / "data" / "zero_memory_table.csv").open()))
    checked = 0
    for row in rows:
        stage = stages.get(row["stage"])
        if stage is None:
            continue
        held = zero_memory(round(float(row["params_B"]) * 1e9), stage, int(row["dp_degree"]))
        assert held.total / 1e9 == pytest.approx(float(row["formula_GB"]), abs=6e-5)
        checked += 1
    assert checked >= 30


def test_bad_input_of_zero():
    with pytest.raises(ValueError, match="stage is 4"):
        zero_memory(10, 4, 2)
    with pytest.raises(RankError, match="stage is 4"):
        launch(zero.train, 2, args=(4,))
    with pytest.raises(RankError, match="parameters of a layer do not divide among 5 ranks"):
        launch(zero.train, 5, args=(1, 1, 25))
    with pytest.raises(RankError, match="unknown reference 'smoke'"):
        launch(zero.reference, 2, args=("smoke",))


# ------------------------------------------------------------------ launchers


@pytest.mark.slow
@pytest.mark.parametrize("lab", ["ddp", "zero"])
def test_the_lab_runs_under_torchrun_without_a_warning(lab):
    env = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    env |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", f"distgen_lab.labs.{lab}"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=90, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("2 ranks over gloo on ")
    assert done.stdout.count("from the twin") == {"ddp": 3, "zero": 6}[lab]
    assert "deprecated" not in done.stderr.lower()


def test_no_process_group_is_left_over():
    assert not dist.is_initialized()
