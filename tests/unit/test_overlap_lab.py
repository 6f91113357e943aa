"""Overlap on real ranks: torch's own buckets, a channel that is never early, averaged gradients, recordings."""

import json
import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from distgen_lab import launch, overlap
from distgen_lab.alphabeta import Link
from distgen_lab.units import MIB

pytestmark = pytest.mark.slow

lab = pytest.importorskip("distgen_lab.labs.overlap")
LINK = Link(1e-3, 1e-9)
CAPS = (lab.BLOCKING, lab.LAYERWISE, 1 * MIB, 5 * MIB)


@pytest.fixture(scope="module")
def compared():
    return launch(lab.compare, ranks=1, args=(CAPS, LINK, False, 1), record=False)[0].value


def test_ddp_sends_the_buckets_that_the_rule_says(compared):
    profile, rows = compared
    assert sum(profile.nbytes) == 4 * sum(a * b for a, b in pairwise(lab.WIDTHS))
    for cap, row in zip(CAPS, rows, strict=True):
        expected = [
            sum(profile.nbytes[layer - 1] for layer in bucket) for bucket in overlap.torch_buckets(profile.nbytes, cap)
        ]
        assert [nbytes for _, _, nbytes in row.step.buckets] == expected
        assert row.buckets == len(expected)
    assert [row.label for row in rows] == ["blocking", "layer-wise", "1 MiB", "5 MiB"]


def test_the_channel_is_never_early_and_takes_one_after_the_other(compared):
    _, rows = compared
    for row in rows:
        for begin, end, nbytes in row.step.buckets:
            assert end - begin >= LINK.time(nbytes) * (1 - 1e-9)
        ends, begins = [e for _, e, _ in row.step.buckets[:-1]], [b for b, _, _ in row.step.buckets[1:]]
        # The next begins when the one before was due, and that one is seen to end no earlier.
        assert all(begin <= end + 1e-9 or begin > end for begin, end in zip(begins, ends, strict=True))
        assert row.step.seconds >= max(end for _, end, _ in row.step.buckets)


def test_nothing_is_sent_before_its_gradient_is_ready(compared):
    _, rows = compared
    for row in rows:
        buckets = overlap.torch_buckets(compared[0].nbytes, row.cap)
        last = 0
        for bucket, (begin, _, _) in zip(buckets, row.step.buckets, strict=True):
            last += len(bucket)
            assert begin >= row.step.ready[last - 1] - 1e-4
    blocking = rows[0].step
    assert blocking.exposed >= LINK.time(sum(compared[0].nbytes)) * 0.99


def test_measured_and_predicted_steps_have_one_shape(compared):
    profile, rows = compared
    step, simulated = rows[1].step, overlap.simulate(profile.tasks(lab.LAYERWISE, LINK))
    assert {(s.lane, s.op, s.name) for s in step.timeline.spans} == {
        (s.lane, s.op, s.name) for s in simulated.timeline.spans
    }
    assert profile.predict(lab.BLOCKING, Link(1.0, 0)) == pytest.approx(
        profile.forward + sum(profile.backward) + 1 + profile.rest
    )
    events = json.loads(step.timeline.chrome_trace())["traceEvents"]
    assert len(events) == 1 + 2 * len(profile.nbytes)


def averaged():
    """Gradients of a replica with the channel's real hook beside the average of all ranks' own gradients."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))
    replica = DistributedDataParallel(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)), bucket_cap_mb=1e-4)
    replica.module.load_state_dict(plain.state_dict())
    channel = lab.Channel(Link(1e-3, 0), real=True)
    replica.register_comm_hook(None, channel.hook)
    data = torch.randn(3, 6, generator=torch.Generator().manual_seed(dist.get_rank()))
    for model in (plain, replica):
        model(data).square().sum().backward()
    channel.close()
    wanted = []
    for weight in plain.parameters():
        dist.all_reduce(weight.grad)
        wanted.append((weight.grad / dist.get_world_size()).tolist())
    return wanted, [weight.grad.tolist() for weight in replica.parameters()]


def test_a_real_all_reduce_underneath_averages():
    run = launch(averaged, ranks=2)
    for wanted, got in run.values:
        for one, other in zip(wanted, got, strict=True):
            assert np.array(other) == pytest.approx(np.array(one), rel=1e-5)
    assert run.values[0][1] == run.values[1][1]


def test_phases_start_communication_before_the_computation():
    run = launch(lab.phases, ranks=2, args=(2**12, "exchange", 1), network=Link(1e-3, 1e-9))
    for found in run.values:
        assert found == run.values[0]
        assert min(found.compute, found.communication, found.sequential, found.overlapped) > 0
        assert found.communication >= LINK.time(2**12)
        assert found.speedup == found.sequential / found.overlapped
    sends = [span for span in run.timeline.on(0) if span.op == "isend"]
    assert len(sends) == 4 and {span.nbytes for span in sends} == {2**12}


def test_phases_on_bare_gloo_run_real_all_reduces():
    run = launch(lab.phases, ranks=2, args=(2**12, "all_reduce", 1))
    assert run.timeline.traffic()[0].collectives["all_reduce"] == 4


@pytest.mark.slow
def test_the_lab_runs_on_its_own():
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "distgen_lab.labs.overlap", "--repeats", "1"]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, check=True).stdout
    assert out.count("blocking") == out.count("layer-wise") == out.count("25 MiB") == 2


def in_turn(compute, blocks):
    import torch.distributed as dist

    sums = []
    for k in range(blocks):
        sums.append(compute(k))
        dist.all_reduce(sums[-1])
    return sums


def at_once(compute, blocks):
    import torch.distributed as dist

    sums = [compute(0)]
    works = [dist.all_reduce(sums[0], async_op=True)]
    for k in range(1, blocks):
        sums.append(compute(k))
        works.append(dist.all_reduce(sums[-1], async_op=True))
    for work in works:
        work.wait()
    return sums


def all_first(compute, blocks):
    import torch.distributed as dist

    sums = [compute(k) for k in range(blocks)]
    for block in sums:
        dist.all_reduce(block)
    return sums


@pytest.mark.parametrize(("function", "before", "beside"), [(in_turn, 1, 0), (at_once, 1, 3), (all_first, 4, 0)])
def test_the_order_of_work_is_read_from_the_recording(function, before, beside):
    wanted = {"sums": [3.0, 6.0, 9.0, 12.0], "all_reduces": 4, "before": before, "beside": beside}
    assert lab.watch_blocks(function, 4) == [wanted, wanted]
