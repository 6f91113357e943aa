"""Overlap: the simulator against a clock that ticks, networkx, torch's own buckets and every partition there is."""

import csv
import json
from fractions import Fraction
from itertools import combinations, pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab import overlap
from distgen_lab.alphabeta import Link
from distgen_lab.overlap import COMMUNICATION, COMPUTE, Task, simulate

times = st.integers(0, 9)
layers = st.lists(st.tuples(times, times), min_size=1, max_size=12)
fractions = st.fractions(0, 10, max_denominator=60)


def ticking(backward, all_reduce, channels):
    """A step of whole-second tasks on a clock that ticks: layers ready in a queue, channels that take from it.

    Layers are dealt out to the channels in turn, last layer first. Shares nothing with the library.
    """
    left = [(layer, backward[layer]) for layer in reversed(range(len(backward)))]
    queues = [[] for _ in range(channels)]
    busy, now, done, dealt = [0] * channels, 0, 0, 0
    while done < len(backward):
        while left and left[0][1] == 0:
            queues[dealt % channels].append(all_reduce[left.pop(0)[0]])
            dealt += 1
        for channel, queue in enumerate(queues):
            while not busy[channel] and queue:
                busy[channel] = queue.pop(0)
                done += not busy[channel]
        if done == len(backward):
            return now
        if left:
            left[0] = (left[0][0], left[0][1] - 1)
        now += 1
        for channel in range(channels):
            if busy[channel]:
                busy[channel] -= 1
                done += not busy[channel]
    return now


def partitions(size):
    """Every way to cut layers size..1 into neighbouring buckets."""
    for count in range(size):
        for cuts in combinations(range(1, size), count):
            edges = [0, *cuts, size]
            yield [tuple(size - i for i in range(a, b)) for a, b in pairwise(edges)]


# ------------------------------------------------------------------------------------------ layers on channels


@given(layers)
def test_layerwise_closed_form_simulator_and_clock_agree(rows):
    backward, reduces = zip(*rows, strict=True)
    simulated = simulate(overlap.layerwise(backward, reduces)).seconds
    assert simulated == overlap.layerwise_time(backward, reduces) == ticking(backward, reduces, 1)


@given(layers, st.integers(1, 4))
def test_several_channels_agree_with_the_clock(rows, channels):
    backward, reduces = zip(*rows, strict=True)
    simulated = simulate(overlap.layerwise(backward, reduces, channels=channels)).seconds
    assert simulated == ticking(backward, reduces, channels)


@given(layers)
def test_a_channel_a_layer(rows):
    backward, reduces = zip(*rows, strict=True)
    simulated = simulate(overlap.layerwise(backward, reduces, channels=None)).seconds
    assert simulated == overlap.layerwise_time_many_channels(backward, reduces) == ticking(backward, reduces, len(rows))


def test_the_chapters_formula_by_hand():
    one, two = [1] * 4, [2] * 4
    assert overlap.layerwise_time_printed(one, one) == overlap.layerwise_time_printed(one, two) == 4
    assert overlap.layerwise_time(one, one) == 5
    assert overlap.layerwise_time(one, two) == 9
    assert overlap.layerwise_time_many_channels(one, two) == 6


@given(st.lists(st.tuples(fractions, fractions), min_size=1, max_size=8), fractions)
def test_results_are_exact_and_the_printed_formula_never_too_large(rows, forward):
    backward, reduces = zip(*rows, strict=True)
    whole = simulate(overlap.layerwise(backward, reduces, forward)).seconds
    assert whole == overlap.layerwise_time(backward, reduces, forward) and isinstance(whole, int | Fraction)
    assert overlap.layerwise_time_printed(backward, reduces) <= whole - forward
    assert whole >= forward + sum(backward) + reduces[0]
    assert whole <= simulate(overlap.blocking(backward, reduces, forward)).seconds


@given(layers)
def test_blocking_is_the_sum(rows):
    backward, reduces = zip(*rows, strict=True)
    run = simulate(overlap.blocking(backward, reduces, 3))
    assert run.seconds == 3 + sum(backward) + sum(reduces) == run.naive
    assert run.exposed() == run.communication() == sum(reduces)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e3)), min_size=200, max_size=1000))
def test_a_thousand_layers(rows):
    backward, reduces = zip(*rows, strict=True)
    assert simulate(overlap.layerwise(backward, reduces)).seconds == pytest.approx(
        overlap.layerwise_time(backward, reduces), rel=1e-9, abs=1e-9
    )


# --------------------------------------------------------------------------------------------------- two phases


@given(st.fractions(0, 100), st.fractions(0, 100))
def test_two_phases_gain_at_most_two(compute, communication):
    if not compute and not communication:
        return
    at_once, in_turn = (simulate(overlap.two_phases(compute, communication, flag)) for flag in (True, False))
    speedup = overlap.hiding_speedup(compute, communication)
    assert at_once.seconds == max(compute, communication) and in_turn.seconds == compute + communication
    assert speedup == Fraction(in_turn.seconds) / at_once.seconds and 1 <= speedup <= 2
    assert (speedup == 2) == (compute == communication)


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.floats(0.01, 0.95))
def test_interference_agrees_with_its_closed_form(compute, communication, share):
    run = simulate(overlap.two_phases(compute, communication), share)
    assert run.seconds == pytest.approx(overlap.interfered_time(compute, communication, share))


@given(layers, st.floats(0.01, 0.9))
def test_interference_only_slows_and_keeps_the_work(rows, share):
    backward, reduces = zip(*rows, strict=True)
    free, slowed = (simulate(overlap.layerwise(backward, reduces), lost) for lost in (0, share))
    hidden = slowed.communication() - slowed.exposed()
    assert slowed.seconds >= free.seconds - 1e-9
    # Every second of compute work is done, at the rate 1 - share while hidden communication runs beside it.
    assert slowed.compute() - share * hidden == pytest.approx(sum(backward), abs=1e-9)
    assert slowed.seconds == pytest.approx(slowed.compute() + slowed.exposed(), abs=1e-9)


@given(layers)
def test_hardly_any_interference_is_none(rows):
    backward, reduces = zip(*rows, strict=True)
    assert simulate(overlap.layerwise(backward, reduces), 1e-9).seconds == pytest.approx(
        overlap.layerwise_time(backward, reduces), rel=1e-6
    )


# -------------------------------------------------------------------------------------------- tasks in general


@st.composite
def task_graphs(draw):
    """Tasks on up to four lanes that wait for some of the earlier ones."""
    tasks = []
    for k in range(draw(st.integers(1, 12))):
        after = draw(st.lists(st.integers(0, k - 1), unique=True, max_size=3)) if k else []
        lane, kind = draw(st.integers(0, 3)), draw(st.sampled_from([COMPUTE, COMMUNICATION]))
        tasks.append(Task(f"t{k}", draw(times), f"lane {lane}", tuple(f"t{j}" for j in after), kind))
    return tasks


@given(task_graphs())
def test_the_time_is_the_longest_path_that_networkx_finds(tasks):
    graph, last = nx.DiGraph(), {}
    for task in tasks:
        graph.add_edge("start", task.name, weight=0)
        for earlier in [*task.after, *last.get(task.lane, [])]:
            graph.add_edge(earlier, task.name, weight=next(t.seconds for t in tasks if t.name == earlier))
        graph.add_edge(task.name, "end", weight=task.seconds)
        last[task.lane] = [task.name]
    run = simulate(tasks)
    assert run.seconds == nx.dag_longest_path_length(graph)
    path = run.critical_path()
    assert sum(t.seconds for t in tasks if t.name in path) == run.seconds
    assert run.of(path[0])[0] == 0 and run.of(path[-1])[1] == run.seconds
    assert run.bound <= run.seconds <= run.naive


intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda p: (p[0], p[0] + p[1])), max_size=8)


@given(intervals, intervals)
def test_exposed_time_counts_ticks(spoken, worked):
    cover = [{tick for start, end in part for tick in range(start, end)} for part in (spoken, worked)]
    assert overlap.exposed_time(spoken, worked) == len(cover[0] - cover[1])


def test_efficiency_and_an_empty_run():
    run = simulate(overlap.layerwise([1] * 4, [2] * 4))
    assert (run.compute(), run.communication(), run.exposed(), run.efficiency()) == (4, 8, 5, 0.375)
    assert run.critical_path() == ["bwd 4", "AR 4", "AR 3", "AR 2", "AR 1"]
    empty = simulate([])
    assert (empty.seconds, empty.critical_path(), empty.efficiency(), empty.bound) == (0, [], 1.0, 0)


def test_timeline_and_chrome_trace_hold_every_task():
    run = simulate(overlap.layerwise([1, 2], [3, 4], forward=5, channels=2))
    assert run.lanes == ("compute", "channel 1", "channel 2")
    assert {(s.name, s.start, s.end) for s in run.timeline.spans} == {
        (t.name, s, e) for t, s, e in zip(run.tasks, run.start, run.end, strict=True)
    }
    events = json.loads(run.chrome_trace())["traceEvents"]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == set(run.lanes)
    slices = {e["name"]: (e["ts"], e["dur"], e["pid"]) for e in events if e["ph"] == "X"}
    assert slices["bwd 2"] == (5e6, 2e6, 0) and slices["AR 1"] == (8e6, 3e6, 2)


# ------------------------------------------------------------------------------------------------------ buckets


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 2_000_000), min_size=1, max_size=30), st.none() | st.integers(1, 3_000_000))
def test_buckets_are_those_of_torch(numbers, cap):
    torch = pytest.importorskip("torch")
    import torch.distributed as dist

    tensors = [torch.empty(number, device="meta") for number in reversed(numbers)]
    limits = [dist._DEFAULT_FIRST_BUCKET_BYTES, 25 * 2**20] if cap is None else [cap]
    theirs, _ = dist._compute_bucket_assignment_by_size(tensors, limits)
    ours = overlap.torch_buckets([4 * number for number in numbers], cap)
    assert ours == [tuple(len(numbers) - place for place in bucket) for bucket in theirs]


@given(layers, st.integers(1, 20), st.integers(0, 3), st.integers(0, 5))
def test_buckets_closed_form_against_the_simulator(rows, cap, start, forward):
    backward, nbytes = zip(*rows, strict=True)
    buckets = overlap.torch_buckets(nbytes, cap)

    def cost(size):
        return start + size

    run = simulate(overlap.bucketed(backward, nbytes, buckets, cost, forward))
    assert run.seconds == overlap.bucketed_time(backward, nbytes, buckets, cost, forward)
    merged = [sum(backward[layer - 1] for layer in bucket) for bucket in reversed(buckets)]
    sizes = [sum(nbytes[layer - 1] for layer in bucket) for bucket in reversed(buckets)]
    assert run.seconds == forward + ticking(merged, [cost(size) for size in sizes], 1)


@settings(max_examples=60)
@given(st.lists(st.tuples(times, st.integers(1, 9)), min_size=1, max_size=7), st.integers(0, 5))
def test_best_buckets_are_the_best_of_all_partitions(rows, start):
    backward, nbytes = zip(*rows, strict=True)

    def cost(size):
        return start + size

    buckets, seconds = overlap.best_buckets(backward, nbytes, cost)
    tried = [overlap.bucketed_time(backward, nbytes, some, cost) for some in partitions(len(rows))]
    assert seconds == min(tried) == overlap.bucketed_time(backward, nbytes, buckets, cost)
    assert overlap.best_bucket_cap(backward, nbytes, cost)[1] >= seconds


def test_the_order_of_the_buckets_matters():
    backward, nbytes, cost = [4, 1, 1], [1, 1, 1], Link(0, 2).time
    right = simulate(overlap.bucketed(backward, nbytes, [(3,), (2,), (1,)], cost)).seconds
    wrong = simulate(overlap.bucketed(backward, nbytes, [(1,), (2,), (3,)], cost)).seconds
    assert (right, wrong) == (8, 12)


def test_the_best_cap_lies_between_start_up_and_exposure():
    link, backward, nbytes = Link(1e-3, 1e-9), [0.01] * 40, [4_000_000] * 40
    seconds = overlap.best_bucket_cap(backward, nbytes, link.time)[1]
    for other in (1, sum(nbytes)):
        buckets = overlap.torch_buckets(nbytes, other)
        assert seconds <= overlap.bucketed_time(backward, nbytes, buckets, link.time)
    assert overlap.best_bucket_cap(backward, nbytes, link.time, caps=[5e6])[0] == 5e6


# --------------------------------------------------------------- sharding, pipelines, accumulation, published gains


@given(st.lists(st.tuples(times, times, times, times), min_size=1, max_size=6), st.integers(0, 3))
def test_sharded_steps_keep_their_promises(rows, prefetch):
    parts = tuple(zip(*rows, strict=True))
    forward, backward, gather, scatter = parts
    run = simulate(overlap.sharded(*parts, prefetch))
    assert sum(t.seconds for t in run.tasks if t.kind == COMMUNICATION) == sum(gather) + sum(gather[:-1]) + sum(scatter)
    assert run.compute() == sum(forward) + sum(backward)
    for k in range(1, len(rows) + 1):
        assert run.of(f"gather fwd {k}")[1] <= run.of(f"fwd {k}")[0]
        assert run.of(f"bwd {k}")[1] <= run.of(f"scatter {k}")[0]
    if not prefetch:
        gathers = sum(gather) + sum(gather[:-1])
        assert run.seconds >= sum(forward) + sum(backward) + gathers + scatter[0]


def test_sharded_by_hand():
    ones, twos = [1] * 4, [2] * 4
    assert [simulate(overlap.sharded(ones, twos, ones, ones, ahead)).seconds for ahead in (0, 1, 2)] == [20, 14, 14]
    # Nothing to prefetch across: one layer gathers once, computes both ways and scatters.
    assert simulate(overlap.sharded([1], [2], [3], [4])).seconds == 10


@given(st.integers(1, 6), st.integers(1, 10), fractions, fractions)
def test_pipelines_agree_with_their_closed_form(stages, microbatches, forward, backward):
    run = simulate(overlap.one_forward_one_backward(stages, microbatches, forward, backward))
    assert run.seconds == overlap.pipeline_time(stages, microbatches, forward, backward)
    work = microbatches * (forward + backward)
    if work:
        assert (run.seconds - work) / work == pytest.approx(overlap.bubble_fraction(stages, microbatches))


def test_no_stage_keeps_more_microbatches_than_stages():
    run = simulate(overlap.one_forward_one_backward(4, 12, 1, 2))
    for stage in range(4):
        alive = [
            sum(run.of(f"F{k} on {stage}")[1] <= t < run.of(f"B{k} on {stage}")[1] for k in range(12))
            for t in range(run.seconds)
        ]
        assert max(alive) <= 4 - stage


def test_messages_between_stages_cost_time_and_are_partly_hidden():
    free, sent = (simulate(overlap.one_forward_one_backward(4, 8, 2, 4, send)) for send in (0, 1))
    assert free.seconds == 66 and sent.seconds > free.seconds
    assert sum(task.kind == COMMUNICATION for task in sent.tasks) == 2 * 3 * 8
    assert sent.seconds < free.seconds + 2 * 3 * 8


def test_accumulation_communicates_once():
    quiet, loud = (simulate(overlap.accumulated(1, [1, 1], [2, 2], 3, flag)) for flag in (False, True))
    one = 1 + overlap.layerwise_time([1, 1], [2, 2])
    assert quiet.seconds == 2 * 3 + one and loud.seconds == 3 * one
    assert (quiet.communication(), loud.communication()) == (4, 12)


def test_published_gains_stay_below_two(shared):
    with open(shared / "data" / "ddp_overlap.csv") as file:
        saved = [float(row["overlap_speedup_pct"]) / 100 for row in csv.DictReader(file)]
    assert all(1 / (1 - share) < 2 for share in saved)
    with open(shared / "data" / "megascale_overlap_ablation.csv") as file:
        mfu = {row["step"]: float(row["mfu_pct"]) for row in csv.DictReader(file)}
    assert 1 < mfu["+DP overlap"] / mfu["+sliding window attention"] < 2


# --------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "1", True, None])
def test_bad_durations_are_named(seconds):
    with pytest.raises(ValueError, match="seconds of bwd 1 is"):
        overlap.layerwise([seconds], [1])


def test_cycles_are_shown():
    tasks = [Task("a", 1, "x", ("c",)), Task("b", 1, "y", ("a",)), Task("c", 1, "z", ("b",))]
    with pytest.raises(ValueError, match="wait for each other: a -> c -> b -> a"):
        simulate(tasks)


def test_a_lane_that_contradicts_what_its_tasks_wait_for_is_a_cycle():
    with pytest.raises(ValueError, match="wait for each other: first -> second -> first"):
        simulate([Task("first", 1, "lane", ("second",)), Task("second", 1, "lane")])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: simulate([Task("a", 1, "x"), Task("a", 1, "y")]), "two tasks are named 'a'"),
        (lambda: simulate([Task("a", 1, "x", ("b",))]), "a waits for 'b', but no task has that name"),
        (lambda: simulate([], interference=1), "interference is 1"),
        (lambda: simulate([], interference=-0.1), "interference is -0.1"),
        (lambda: Task("a", 1, "x", kind="sleep"), "kind of a is 'sleep'"),
        (lambda: overlap.layerwise([1, 2], [1]), r"\[2, 1\] entries"),
        (lambda: overlap.layerwise_time([], []), r"\[0, 0\] entries"),
        (lambda: overlap.layerwise([1], [1], channels=0), "channels is 0"),
        (lambda: overlap.hiding_speedup(0, 0), "nothing to hide"),
        (lambda: overlap.hiding_speedup(-1, 1), "compute is -1"),
        (lambda: overlap.bucketed([1, 1], [1, 1], [(2,)], float), r"buckets hold the layers \[2\]"),
        (lambda: overlap.torch_buckets([1], cap=0), "cap is 0"),
        (lambda: overlap.exposed_time([(2, 1)], []), "ends before it starts"),
        (lambda: overlap.sharded([1], [1], [1], [1], prefetch=-1), "prefetch is -1"),
        (lambda: overlap.pipeline_time(0, 1, 1, 1), "stages is 0"),
        (lambda: overlap.accumulated(1, [1], [1], 1.5), "steps is 1.5"),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
