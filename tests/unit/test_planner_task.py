"""Planning tasks with several right answers: judged by what a plan does."""

import json
from dataclasses import replace

import pytest

from distgen_lab import plain
from distgen_lab.judging import difference, same
from distgen_lab.planner import Layout, Task

SMALL = Task("llama-2-7b.json", {"DGX A100": 2.0, "DGX H100": 3.0}, 32, 64, 4096, "step")
BEST = Layout(data=16, tensor=2, micro_batch=2, recompute="none")


def encoded(task, layout, machine=None):
    """A report as it arrives at the judge."""
    return json.loads(json.dumps(plain.encode(task.report(layout, machine))))


def test_a_report_says_all_of_task_layout_and_machine():
    layout = replace(BEST, overlap=False)
    task, found, machine = Task.read(encoded(SMALL, layout, "DGX H100"))
    assert (task, found, machine) == (SMALL, layout, "DGX H100")


@pytest.mark.parametrize("layout", [BEST, replace(BEST, data=8, tensor=4), replace(BEST, recompute="full")])
def test_any_plan_that_fits_is_right_where_that_is_asked(layout):
    task = replace(SMALL, goal="fit")
    assert difference(encoded(task, layout), encoded(task, BEST)) is None


@pytest.mark.parametrize(
    ("change", "layout", "words"),
    [
        ({}, replace(BEST, tensor=8, data=4, recompute="full"), "are possible"),
        ({}, replace(BEST, data=32, tensor=1, stage=0, micro_batch=2), "does not fit"),
        ({}, replace(BEST, data=64, tensor=1, micro_batch=1), "64 devices, 32 are there"),
        ({"goal": "fit", "exposed": 1e-3}, BEST, "exposed communication"),
        ({"goal": "fit", "step": 1e-3}, BEST, "are allowed"),
        ({"goal": "fit", "tokens": 1e12, "days": 1}, BEST, "days, 1 are allowed"),
        ({}, replace(BEST, data=3), "sequences"),
    ],
)
def test_what_a_plan_lacks_is_told(change, layout, words):
    task = replace(SMALL, **change)
    assert words in difference(encoded(task, layout), encoded(task, BEST))


def test_the_task_is_the_reference_s_and_not_the_report_s():
    easy = replace(SMALL, goal="fit", devices=10**6, exposed=1e9)
    assert difference(encoded(easy, replace(BEST, recompute="full")), encoded(SMALL, BEST))


def test_the_cheapest_machine_is_found_by_price():
    task = replace(SMALL, goal="cost")
    dear, cheap = sorted(task.machines, key=lambda name: -task.plan(BEST, name).cost(1.0))
    assert "a million" in difference(encoded(task, BEST, dear), encoded(task, BEST, cheap))
    assert difference(encoded(task, BEST, cheap), encoded(task, BEST, cheap)) is None


@pytest.mark.parametrize("got", [7, {"task": {}, "layout": {}, "machine": 3}, {"task": 1, "layout": 2, "machine": "x"}])
def test_what_is_no_plan_is_told(got):
    assert difference(got, encoded(SMALL, BEST))


def test_plans_that_do_alike_are_the_same():
    assert same(encoded(SMALL, BEST), encoded(SMALL, BEST))
    assert not same(encoded(SMALL, BEST), encoded(SMALL, replace(BEST, recompute="full")))


def test_no_layout_and_no_such_machine():
    with pytest.raises(TypeError, match=r"a planner\.Layout is wanted"):
        SMALL.report("data 4")
    with pytest.raises(ValueError, match="there are DGX A100, DGX H100"):
        SMALL.plan(BEST, "DGX Z")
