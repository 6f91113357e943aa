"""A systolic array against the matrix product, and against when and where its values must be by its wiring."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab.systolic import DATAFLOWS, intensity, multiply, steps

SIZE = st.integers(1, 7)
FLOWS = st.sampled_from(DATAFLOWS)


def factors(rows, inner, cols, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(-9, 10, (rows, inner)).astype(float), random.integers(-9, 10, (inner, cols)).astype(float)


@settings(max_examples=80, deadline=None)
@given(SIZE, SIZE, SIZE, FLOWS, st.integers(0, 99))
def test_the_array_computes_the_product_in_rows_inner_cols_less_two_cycles(rows, inner, cols, flow, seed):
    a, b = factors(rows, inner, cols, seed)
    states = list(steps(a, b, flow))
    assert np.array_equal(states[-1].finished, a @ b)
    assert [state.cycle for state in states] == list(range(1, rows + inner + cols - 1))
    assert sum(int(state.active.sum()) for state in states) == rows * inner * cols
    shape = (inner, cols) if flow == DATAFLOWS[0] else (rows, cols)
    assert all(state.held.shape == state.active.shape == state.left.shape == shape for state in states)


@settings(max_examples=40, deadline=None)
@given(SIZE, SIZE, SIZE)
def test_weight_stationary_cells_hold_what_the_wiring_says(rows, inner, cols):
    """Cell (k, j) multiplies row i at cycle i + k + j, and has then the sum of the first k + 1 products."""
    a, b = factors(rows, inner, cols)
    for state in steps(a, b, DATAFLOWS[0]):
        for k, j in np.ndindex(inner, cols):
            i = state.cycle - 1 - k - j
            assert state.active[k, j] == (0 <= i < rows)
            if 0 <= i < rows:
                assert state.left[k, j] == a[i, k] and state.down[k, j] == a[i, : k + 1] @ b[: k + 1, j]
        for i, j in np.ndindex(rows, cols):
            done = state.cycle - 1 >= i + inner - 1 + j
            assert state.finished[i, j] == (a @ b)[i, j] if done else np.isnan(state.finished[i, j])


@settings(max_examples=40, deadline=None)
@given(SIZE, SIZE, SIZE)
def test_output_stationary_cells_hold_what_the_wiring_says(rows, inner, cols):
    """Cell (i, j) multiplies the k-th pair at cycle i + j + k."""
    a, b = factors(rows, inner, cols)
    for state in steps(a, b, DATAFLOWS[1]):
        for i, j in np.ndindex(rows, cols):
            k = state.cycle - 1 - i - j
            assert state.active[i, j] == (0 <= k < inner)
            if 0 <= k < inner:
                assert (state.left[i, j], state.down[i, j]) == (a[i, k], b[k, j])
            assert state.held[i, j] == a[i, : max(k + 1, 0)] @ b[: max(k + 1, 0), j]


@settings(max_examples=40, deadline=None)
@given(SIZE, SIZE, SIZE, FLOWS)
def test_every_operand_enters_once(rows, inner, cols, flow):
    a, b = factors(rows, inner, cols)
    entered = sum(state.entering for state in steps(a, b, flow))
    assert entered == a.size + (b.size if flow == DATAFLOWS[1] else 0)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.integers(1, 6), FLOWS)
def test_tiles_add_up_to_the_product(rows, inner, cols, side, flow):
    a, b = factors(rows, inner, cols)
    run = multiply(a, b, side, flow)
    assert np.array_equal(run.product, a @ b)
    assert run.macs == rows * inner * cols and 0 < run.utilisation <= 1
    across = -(-cols // side)
    if flow == DATAFLOWS[0]:
        assert run.operands == rows * inner * across + inner * cols
        assert run.results == rows * cols * -(-inner // side)
    else:
        assert run.operands == rows * inner * across + inner * cols * -(-rows // side)
        assert run.results == rows * cols


@given(st.integers(1, 8), st.integers(1, 30), FLOWS)
@settings(max_examples=40, deadline=None)
def test_one_tile_takes_the_cycles_of_scale_sim(side, stream, flow):
    """Samajdar et al. 2018: 2 S_R + S_C + T - 2 for an array of S_R x S_C and T values streamed."""
    a, b = factors(*((stream, side, side) if flow == DATAFLOWS[0] else (side, stream, side)))
    assert multiply(a, b, side, flow).cycles == 2 * side + side + stream - 2


def test_a_long_stream_fills_the_array_and_a_single_row_starves_it():
    a, b = factors(400, 8, 8)
    assert multiply(a, b, 8).utilisation == pytest.approx(1, abs=0.06)
    a, b = factors(1, 64, 64)
    assert multiply(a, b, 8).utilisation < 1 / 8


@pytest.mark.parametrize("side", [4, 8, 16])
def test_the_intensity_is_the_side_per_value_and_half_of_it_per_byte_of_bf16(side):
    a, b = factors(side, 5 * side, side)
    run = multiply(a, b, side, "output-stationary")
    assert run.intensity(1) == side == intensity(side, 1)
    assert run.intensity(2) == side / 2 == intensity(side)
    assert run.intensity(2, results=True) < side / 2


def test_a_side_of_128_has_64_flop_a_byte_in_bf16():
    a, b = factors(128, 20, 128)
    assert multiply(a, b, 128, "output-stationary").intensity(2) == 64 == intensity(128)
    assert intensity(128, 1) == 128


def test_weights_that_stay_cost_less_the_more_rows_pass():
    a, b = factors(64, 8, 8)
    few, many = multiply(a[:8], b, 8), multiply(a, b, 8)
    assert few.intensity(1) == 8 < many.intensity(1) < 16


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: steps(np.ones((2, 3)), np.ones((2, 3))), r"shapes \(2, 3\) and \(2, 3\) do not multiply"),
        (lambda: multiply(np.ones((2, 3)), np.ones(3)), "do not multiply"),
        (lambda: steps(np.ones((2, 0)), np.ones((0, 3))), "do not multiply"),
        (lambda: steps(np.ones((2, 2)), np.ones((2, 2)), "input"), "dataflow is 'input'; there are weight-stationary"),
        (lambda: multiply(np.ones((2, 2)), np.ones((2, 2)), 4, "input"), "dataflow is 'input'"),
        (lambda: multiply(np.ones((2, 2)), np.ones((2, 2)), 0), "side is 0; 1 or more"),
        (lambda: intensity(0), "side is 0 and bytes_per_value 2"),
        (lambda: intensity(8, -1), "bytes_per_value -1"),
    ],
)
def test_bad_input_is_named(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
