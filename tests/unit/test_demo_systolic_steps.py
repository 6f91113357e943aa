"""The systolic demo: each step is the array's, and it ends with the product."""

import inspect

import numpy as np
import pytest

from distgen_lab.demos.panel import picture
from distgen_lab.demos.systolic_steps import data, draw, systolic_steps, words
from distgen_lab.systolic import DATAFLOWS


def product(side):
    """The demo's two matrices, written out another way."""
    a = [[(2 * i + j) % 4 + 1 for j in range(side)] for i in range(side)]
    b = [[(i + 3 * j) % 5 + 1 for j in range(side)] for i in range(side)]
    return [[sum(a[i][k] * b[k][j] for k in range(side)) for j in range(side)] for i in range(side)]


@pytest.mark.parametrize("flow", DATAFLOWS)
@pytest.mark.parametrize("side", range(2, 7))
def test_the_last_step_holds_the_product(flow, side):
    last = data(flow, side, 100)
    assert last.state.finished.tolist() == product(side)
    assert last.state.cycle == last.cycles == 3 * side - 2
    assert last.macs == side**3 and last.fetched == 2 * side * side
    assert last.utilisation == pytest.approx(side / (3 * side - 2))
    assert words(last).endswith("The product is complete.")


@pytest.mark.parametrize("flow", DATAFLOWS)
def test_steps_follow_each_other(flow):
    steps = [data(flow, 4, step) for step in range(1, 11)]
    assert [step.state.cycle for step in steps] == list(range(1, 11))
    assert [step.macs for step in steps] == [1, 4, 10, 20, 32, 44, 54, 60, 63, 64]  # diagonals of a 4 x 4 x 4 cube
    done = [int(np.isfinite(step.state.finished).sum()) for step in steps]
    assert done == sorted(done) and done[-1] == 16 and "complete" not in words(steps[-2])


def test_it_is_pure_and_the_words_hold_the_numbers():
    first, second = data(DATAFLOWS[1], 4, 5), data(DATAFLOWS[1], 4, 5)
    assert words(first) == words(second)
    assert words(first) == (
        "Cycle 5 of 10: 32 multiply-adds for 26 values fetched, 2.46 FLOP a value; 40% of the cells used so far."
    )


def test_every_control_changes_the_picture_which_is_small():
    shown = systolic_steps()
    first, found = (
        shown.image.value,
        dict(zip(inspect.signature(data).parameters, shown.children[0].children, strict=True)),
    )
    for name, value in (("dataflow", DATAFLOWS[1]), ("side", 6), ("step", 1)):
        before = found[name].value
        found[name].value = value
        assert shown.image.value != first, name
        found[name].value = before
        assert shown.image.value == first, name
    assert len(first) < 100_000
    step = data(DATAFLOWS[0], 4, 4)
    assert first == picture(lambda figure: draw(figure, step), (9, 4.6))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [(("rows", 4, 1), "dataflow is 'rows'; there are weight-stationary"), ((DATAFLOWS[0], 7, 1), "side is 7; 2 to 6"),
     ((DATAFLOWS[0], 4, 0), "step is 0; 1 or more")],
)  # fmt: skip
def test_bad_input_is_named(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        data(*values)
