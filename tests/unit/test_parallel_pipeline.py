"""Pipelines and the mesh on real ranks: gradients of the twin and of torch's pipeline, bubbles, who talks to whom."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab.labs import mesh, parallel, pipeline
from distgen_lab.parallelism import bubble
from distgen_lab.ranks import RankError, launch

pytestmark = pytest.mark.slow

ROUNDING = 1e-13


def idle_share(order, forward, backward):
    """Time step by step, one slot at a time, without the lab's event clock: idle slots over all slots."""
    stages, done, works = len(order), {}, [list(part) for part in order]
    busy_until, busy, now = [0] * stages, 0, 0
    while any(works):
        for stage in range(stages):
            if not works[stage] or busy_until[stage] > now:
                continue
            kind, k = works[stage][0]
            before = (stage - 1, "F", k) if kind == "F" else (stage + 1, "B", k)
            if kind == "B" and stage == stages - 1:
                before = (stage, "F", k)
            if before[0] >= 0 and done.get(before, now + 1) > now:
                continue
            length = forward if kind == "F" else backward
            busy_until[stage] = done[stage, kind, k] = now + length
            busy += length
            works[stage].pop(0)
        now += 1
    return 1 - Fraction(busy, max(done.values()) * stages)


@given(
    st.integers(1, 6), st.integers(1, 9), st.integers(1, 3), st.integers(1, 3), st.sampled_from(list(pipeline.ORDERS))
)
@settings(max_examples=60, deadline=None)
def test_the_bubble_is_that_of_a_clock_and_of_the_formula(stages, micro, forward, backward, name):
    order = pipeline.ORDERS[name](stages, micro)
    assert pipeline.bubble(order, forward, backward) == idle_share(order, forward, backward)
    assert pipeline.bubble(order, forward, backward) == bubble(stages, micro)
    for works in order:
        assert sorted(works) == sorted((kind, k) for kind in "FB" for k in range(micro))


def test_1f1b_holds_no_more_than_there_are_stages():
    assert pipeline.in_flight(pipeline.gpipe(4, 16)) == [16] * 4
    assert pipeline.in_flight(pipeline.one_f_one_b(4, 16)) == [4, 3, 2, 1]
    assert pipeline.in_flight(pipeline.one_f_one_b(4, 2)) == [2, 2, 2, 1]


def test_an_order_that_waits_for_itself_is_told():
    order = pipeline.gpipe(2, 2)
    order[0] = [("F", 0), ("B", 0), ("F", 1), ("B", 1)]
    order[1] = [("F", 0), ("F", 1), ("B", 1), ("B", 0)]
    with pytest.raises(ValueError, match=r"the order never ends: stage 0 waits before \('B', 0\)"):
        pipeline.slots(order)


@pytest.mark.parametrize(("name", "stages"), [("GPipe", 2), ("GPipe", 4), ("1F1B", 2), ("1F1B", 4), ("1F1B", 8)])
def test_a_pipeline_on_real_ranks_equals_its_twin_and_works_in_its_order(name, stages):
    run = launch(pipeline.train, stages, args=(name, 8))
    whole = pipeline.twin()
    found = [gradient for value in run.values for gradient in value]
    assert parallel.apart(found, whole) < ROUNDING
    recorded = pipeline.order_of(run.timeline)
    assert recorded == pipeline.ORDERS[name](stages, 8)
    assert pipeline.bubble(recorded) == Fraction(stages - 1, 8 + stages - 1)
    for rank, traffic in enumerate(run.timeline.traffic()):
        neighbours = (rank > 0) + (rank < stages - 1)
        assert (traffic.sent_messages, traffic.received_messages) == (8 * neighbours, 8 * neighbours)
        assert traffic.sent_bytes == 8 * neighbours * 3 * 8 * 8  # 3 samples of 8 float64 a micro-batch


def torch_pipeline(name):
    """The same stages under torch's own schedules; returns how far the gradients are from the twin's."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    rank, stages = parallel.own_rank()
    inputs, targets = parallel.data()
    module = pipeline._piece(parallel.mlp(pipeline.WIDTHS), rank, stages)
    stage = PipelineStage(module, rank, stages, torch.device("cpu"))
    schedule = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}[name](stage, 8, loss_fn=parallel.squared_error)
    if rank == 0:
        schedule.step(inputs)
    else:
        schedule.step(**({"target": targets} if rank == stages - 1 else {}))
    whole = pipeline.twin()
    each = len(whole) // stages
    return parallel.apart([p.grad for p in stage.submod.parameters()], whole[rank * each : (rank + 1) * each])


@pytest.mark.parametrize("name", pipeline.ORDERS)
def test_torch_gives_the_same_gradients(name):
    assert max(launch(torch_pipeline, 4, args=(name,)).values) < ROUNDING


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("smoke",), "unknown order 'smoke'"), (("GPipe", 7), "24 samples do not divide among 7"),
     (("GPipe", 25), "rank 24 would have none")],
)  # fmt: skip
def test_bad_input_of_a_pipeline(arguments, words):
    with pytest.raises(RankError, match=words):
        launch(pipeline.train, 2, args=arguments)
    with pytest.raises(RankError, match="8 layers do not divide among 3 ranks"):
        launch(pipeline.train, 3)


# ------------------------------------------------------------------ data x pipeline x tensor


def test_eight_ranks_on_a_mesh_equal_one_process():
    run = launch(mesh.compare, 8)
    assert max(run.values) < ROUNDING


@pytest.mark.parametrize("shape", [(4, 2, 1), (1, 2, 4), (2, 4, 1), (8, 1, 1)])
def test_other_shapes_of_the_mesh(shape):
    assert max(launch(mesh.compare, 8, args=(shape,)).values) < ROUNDING


def test_every_axis_talks_within_its_own_ranks():
    run = launch(mesh.train, 8, args=((2, 2, 2), 1))
    for result in run:
        d, p, t = result.rank // 4, result.rank // 2 % 2, result.rank % 2
        sums = [span.group for span in result.events if span.op == "all_reduce"]
        tensor, replicas = (4 * d + 2 * p, 4 * d + 2 * p + 1), (2 * p + t, 4 + 2 * p + t)
        assert sums.count(tensor) == 2 * 2  # a sum forward and one backward for each of two micro-batches
        assert sums.count(replicas) == 4  # one for each of the block's four tensors
        assert len(sums) == 8
        peers = {span.peer for span in result.events if span.op == "isend"}
        assert peers == {result.rank + (2 if p == 0 else -2)}


def test_a_mesh_needs_its_ranks():
    with pytest.raises(RankError, match="a mesh of 2 x 2 x 2 needs 8 ranks, there are 4"):
        launch(mesh.train, 4)
