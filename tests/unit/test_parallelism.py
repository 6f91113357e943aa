"""Formulas of parallel training: published plans and tables, and laws they must obey (the labs count real bytes)."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distgen_lab import parallelism, sample
from distgen_lab.models import ModelShape
from distgen_lab.parallelism import plan, zero_memory, zero_traffic

SHAPE = ModelShape.from_config(sample("llama-3-70b.json"))


@given(st.integers(1, 10**12), st.sampled_from(parallelism.STAGES), st.integers(1, 4096))
def test_a_higher_stage_never_keeps_more(parameters, stage, ranks):
    held = zero_memory(parameters, stage, ranks)
    assert held.total <= zero_memory(parameters, max(0, stage - 1), ranks).total
    assert held.total * ranks >= 16 * parameters  # together they keep everything
    assert zero_memory(parameters, stage, 1).total == 16 * parameters


def test_zero_traffic_is_one_and_a_half_times_as_much_in_stage_3():
    assert zero_traffic(8.0, 0, 4) == zero_traffic(8.0, 2, 4) == 12.0
    assert zero_traffic(8.0, 3, 4) == 18.0


def test_memory_is_that_of_the_published_table(shared):
    rows = csv.DictReader((shared / "data" / "zero_memory_table.csv").open())
    stages = {"Pos": 1, "Pos+g": 2, "Pos+g+p": 3}
    for row in (r for r in rows if r["stage"] in stages):
        held = zero_memory(round(float(row["params_B"]) * 1e9), stages[row["stage"]], int(row["dp_degree"]))
        assert held.total / 1e9 == pytest.approx(float(row["formula_GB"]), abs=6e-5)


def test_a_plan_divides_what_it_cuts():
    one = plan(SHAPE, 1, 1, 1, 0)
    assert one.sent == {"tensor": 0, "pipe": 0, "data": 0} and one.bubble == 0 and one.devices == 1
    many = plan(SHAPE, 8, 4, 8, 0)
    assert many.devices == 256
    assert many.held.total == pytest.approx(one.held.total / 32, rel=1e-6)
    assert many.bubble == pytest.approx(3 / (256 / 8 + 3))
    assert many.micro_batches == 32


def test_tensor_parallel_volume_counts_four_all_reduces_a_layer():
    found = plan(SHAPE, 1, 1, 8, 1, sequences=4, context=1024).sent["tensor"]
    activations = 4 * 1024 * SHAPE.hidden * 2
    assert found == pytest.approx(SHAPE.layers * 4 * 2 * 7 / 8 * activations)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((1, 1, 3), "64 heads do not divide among tensor = 3"), ((1, 7, 1), "80 layers do not divide among pipe = 7"),
     ((7, 1, 1), "256 sequences do not divide among data = 7"), ((0, 1, 1), "data is 0")],
)  # fmt: skip
def test_a_plan_that_does_not_divide_is_told(arguments, words):
    with pytest.raises(ValueError, match=words):
        plan(SHAPE, *arguments)


def test_bad_input_of_the_formulas():
    for call in (
        lambda: zero_memory(1, 4, 2), lambda: zero_traffic(1, 1, 0), lambda: parallelism.tensor_traffic(1, 0),
        lambda: parallelism.sequence_traffic("smoke", 1, 2), lambda: parallelism.bubble(0, 2),
        lambda: parallelism.bubble(2, 0), lambda: parallelism.expert_traffic(1, 0, 1),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"needed|there are"):
            call()
