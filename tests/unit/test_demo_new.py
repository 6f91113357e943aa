"""Demos of a budget, of ring against tree, of recorded and simulated ranks, and of a recorded GPU run, by hand."""

import json
from importlib.resources import files

import pytest

from distgen_lab.demos.mpi_spacetime import MOMENTS, RECORDED, SIMULATED
from distgen_lab.demos.mpi_spacetime import data as space_time
from distgen_lab.demos.mpi_spacetime import words as said_of_time
from distgen_lab.demos.recorded_run import data as replay
from distgen_lab.demos.recorded_run import words as said_of_replay
from distgen_lab.demos.ring_against_tree import FAR, TREES
from distgen_lab.demos.ring_against_tree import data as race
from distgen_lab.demos.training_budget import data as budget
from distgen_lab.demos.training_budget import words as said_of_budget

MEASURED = files("distgen_lab") / "data" / "measured"


def test_a_budget_by_hand():
    of = budget(70e9, 20, "H100", 1000.0, 40)
    assert of.flops == pytest.approx(6 * 70e9 * 1.4e12)
    assert of.seconds == pytest.approx(of.flops / (1000 * 989.4e12 * 0.4), rel=1e-3)
    assert of.energy == pytest.approx(of.seconds * 1000 * 700)
    assert of.balanced == pytest.approx((70e9, 1.4e12))
    assert "17.2 days on 1,000 H100 at 40% MFU" in said_of_budget(of)


def test_ring_and_binomial_tree_by_hand():
    of = race(TREES[0], 8, 1e6, 5.0, 20.0)
    assert of.ring_run.seconds == pytest.approx(14 * (5e-6 + 1e6 / 8 / 20e9))
    assert of.tree_run.seconds == pytest.approx(6 * (5e-6 + 1e6 / 20e9))
    ring = [2 * (p - 1) * (5e-6 + 1e6 / p / 20e9) for p in FAR]
    tree = [2 * (p.bit_length() - 1) * (5e-6 + 1e6 / 20e9) for p in FAR]
    assert of.ring_seconds == pytest.approx(ring) and of.tree_seconds == pytest.approx(tree)
    assert of.crossing == next(p for p, r, t in zip(FAR, ring, tree, strict=True) if t < r)
    with pytest.raises(ValueError, match="tree is 'oak'; there are: binomial tree"):
        race("oak", 8, 1e6, 5.0, 20.0)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_run_is_what_lies_in_the_file(name):
    stored = json.loads((MEASURED / "mpi_runs.json").read_text("utf-8"))
    row, first = stored["runs"][name], min(begin for _, begin, _ in stored["runs"][name]["work"])
    of = space_time(name, 8, 1e6, MOMENTS)
    assert len(of.timeline.spans) == len(row["spans"]) and of.timeline.lanes == 6
    assert of.now == pytest.approx(1e-6 * (max(span[3] for span in row["spans"]) - first))
    assert sum(len(intervals) for intervals in of.work) == len(row["work"])
    assert len(of.timeline.messages()) == sum("send" in span[1] for span in row["spans"])
    said = said_of_time(of)
    assert f"Recorded {stored['date']}" in said and "MPICH" in said


def test_overlapping_waits_less_than_blocking():
    blocking, overlapped = (sum(space_time(name, 8, 1e6, MOMENTS).waited(1.0)) for name in RECORDED[:2])
    assert 0 < overlapped < blocking


def test_a_moment_shows_what_has_begun_by_then():
    for name in (*RECORDED, *SIMULATED):
        whole = space_time(name, 8, 1e6, MOMENTS).timeline
        for moment in (0, 13, MOMENTS):
            of = space_time(name, 8, 1e6, moment)
            assert len(of.past.spans) == sum(span.start <= of.now for span in whole.spans)
            assert all(span.end is None or span.end <= of.now for span in of.past.spans)
    with pytest.raises(ValueError, match="moment is 41; 0 to 40"):
        space_time("linear broadcast", 8, 1e6, 41)
    with pytest.raises(ValueError, match="run is 'gossip'; recorded are"):
        space_time("gossip", 8, 1e6, 0)


def test_a_linear_broadcast_takes_a_message_for_each_rank():
    assert space_time("linear broadcast", 8, 1e6, MOMENTS).now == pytest.approx(7 * (5e-6 + 1e6 / 10e9))


def test_a_replay_shows_the_recorded_figures_and_says_so():
    stored = json.loads((MEASURED / "nccl_tests.json").read_text("utf-8"))["sweeps"]["H100"]
    of = replay("H100", 24, "bus bandwidth", "nothing")
    assert of.sizes == 24 and of.sweep.seconds == tuple(stored["seconds"])
    said = said_of_replay(of)
    assert said.startswith("Recorded: 67.1 MB over 8 GPUs took 327 us, busbw 360 GB/s") and stored["source"] in said
    assert replay("H100", 2, "time", "B200").link is None and replay("A100", 99, "time", "nothing").sizes == 20
    for bad in (("H100", 0, "time", "nothing"), ("H100", 1, "sound", "nothing"), ("H99", 1, "time", "nothing")):
        with pytest.raises(ValueError, match=r"there are|1 or more|recorded run"):
            replay(*bad)
