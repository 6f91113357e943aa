"""Counted kernels against NumPy's results, counts against cache simulation, formulas and published bounds."""

import math
from itertools import product

import numpy as np
import pytest
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import from_numpy

from distgen_lab import memory
from distgen_lab.memory import (
    Memory,
    attention_memory,
    flash_attention,
    flash_blocks,
    flash_bound,
    least_loads,
    naive_attention,
    naive_matmul,
    online_softmax,
    tiled_matmul,
)  # fmt: skip

SIZE = st.integers(1, 20)


def arrays(*shapes, seed=0):
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape) for shape in shapes]


# ----------------------------------------------------------------------------- matmul


@settings(max_examples=50, deadline=None)
@given(SIZE, SIZE, SIZE)
def test_the_naive_product_is_right_and_fetches_a_row_and_a_column_for_each_result(rows, inner, cols):
    a, b = arrays((rows, inner), (inner, cols))
    found, traffic = naive_matmul(a, b)
    assert np.allclose(found, a @ b, atol=1e-12)
    assert (traffic.reads, traffic.writes) == (2 * rows * inner * cols, rows * cols)
    assert traffic.most_held == 2 * inner and traffic.held == 0
    assert traffic.nbytes(8) == 8 * traffic.total


@settings(max_examples=60, deadline=None)
@given(SIZE, SIZE, SIZE, st.lists(st.integers(1, 12), min_size=1, max_size=3), st.integers(0, 6))
def test_the_tiled_product_is_right_whatever_the_tiles(rows, inner, cols, tiles, depth):
    a, b = arrays((rows, inner), (inner, cols))
    found, levels = tiled_matmul(a, b, sorted(tiles, reverse=True), depth)
    assert np.allclose(found, a @ b, atol=1e-12)
    assert len(levels) == len(tiles) and all(level.held == 0 for level in levels)
    assert levels[0].writes == rows * cols


@settings(max_examples=60, deadline=None)
@given(SIZE, SIZE, SIZE, st.integers(1, 12), st.integers(0, 6))
def test_every_tile_fetches_its_rows_and_columns_once(rows, inner, cols, side, depth):
    a, b = arrays((rows, inner), (inner, cols))
    _, (level,) = tiled_matmul(a, b, (side,), depth)
    assert level.reads == inner * (rows * math.ceil(cols / side) + cols * math.ceil(rows / side))
    step = min(depth or side, inner)
    m, n = min(side, rows), min(side, cols)
    assert level.most_held == m * n + step * (m + n)


@settings(max_examples=60, deadline=None)
@given(SIZE, SIZE, SIZE, st.integers(1, 12), st.integers(0, 6))
def test_no_schedule_beats_the_lower_bound(rows, inner, cols, side, depth):
    a, b = arrays((rows, inner), (inner, cols))
    _, (level,) = tiled_matmul(a, b, (side,), depth)
    assert level.reads >= least_loads(rows, inner, cols, level.most_held) - 1e-9


def test_thin_steps_come_close_to_the_bound():
    a, b = arrays((96, 96), (96, 96))
    over = []
    for side in (8, 16, 24):
        _, (level,) = tiled_matmul(a, b, (side,), 1)
        over.append(level.reads / least_loads(96, 96, 96, level.most_held))
    assert over == sorted(over, reverse=True) and 1 < over[-1] < 1.1


def test_each_level_of_tiles_shields_the_one_outside():
    a, b = arrays((64, 64), (64, 64))
    _, (hbm, shared) = tiled_matmul(a, b, (32, 8))
    assert (hbm.name, shared.name) == ("HBM", "shared memory")
    assert hbm.reads == 2 * 64**3 / 32
    assert shared.reads == 2 * 64**3 / 8 + 2 * 64 * 64  # operands for tiles of 8, and results of two steps of 32
    naive = naive_matmul(a, b)[1]
    assert naive.reads / hbm.reads == 32 and hbm.reads < shared.reads < naive.reads


class Lru:
    """A fully associative cache of single values."""

    def __init__(self, size):
        self.size, self.lines, self.misses = size, {}, 0

    def touch(self, key):
        if key not in self.lines:
            self.misses += 1
            if len(self.lines) == self.size:
                del self.lines[next(iter(self.lines))]
        else:
            del self.lines[key]
        self.lines[key] = None


@pytest.mark.parametrize("side", [4, 8])
def test_a_cache_in_front_of_the_same_tiles_misses_as_often_as_the_count_says(side):
    """What the kernel fetches by hand a cache of the size it holds (and a step's worth of room) would fetch itself."""
    n = 16
    a, b = arrays((n, n), (n, n))
    _, (level,) = tiled_matmul(a, b, (side,))
    cache = Lru(4 * side * side)
    for i0, j0, k0 in product(range(0, n, side), repeat=3):
        for i, k, j in product(range(i0, i0 + side), range(k0, k0 + side), range(j0, j0 + side)):
            for key in (("a", i, k), ("b", k, j), ("c", i, j)):
                cache.touch(key)
    reused = level.reads + n * n - cache.misses  # the cache may keep a tile that is used again in the next step
    assert 0 <= reused <= 0.1 * level.reads


# ----------------------------------------------------------------------------- attention


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 12), st.integers(1, 16), st.integers(1, 16), st.booleans(), st.integers(0, 99)
)
def test_both_attentions_are_equal_to_1e_12_and_to_torchs(tokens, head, block_q, block_k, causal, seed):
    q, k, v = arrays(*[(tokens, head)] * 3, seed=seed)
    naive, flash = naive_attention(q, k, v, causal=causal), flash_attention(q, k, v, block_q, block_k, causal=causal)
    assert np.abs(naive - flash).max() < 1e-12
    expected = F.scaled_dot_product_attention(*(from_numpy(x)[None] for x in (q, k, v)), is_causal=causal)[0].numpy()
    assert np.abs(naive - expected).max() < 1e-12


def test_large_scores_overflow_neither():
    q, k, v = (100 * x for x in arrays(*[(20, 4)] * 3))
    assert np.isfinite(flash_attention(q, k, v, 4, 4)).all()
    assert np.abs(flash_attention(q, k, v, 4, 4) - naive_attention(q, k, v)).max() < 1e-10


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-500, 500), min_size=1, max_size=30), st.integers(1, 40))
def test_the_online_softmax_is_the_softmax(scores, block):
    scores = np.array(scores)
    top = np.exp(scores - scores.max())
    assert np.allclose(online_softmax(scores, block), top / top.sum(), rtol=1e-12, atol=1e-300)


def test_memory_is_linear_against_quadratic():
    needed = {kind: [attention_memory(*arrays(*[(n, 8)] * 3), kind).scratch_values for n in (32, 64, 128)]
              for kind in ("naive", "flash")}  # fmt: skip
    assert needed == {"naive": [2 * n * n for n in (32, 64, 128)], "flash": [0, 0, 0]}


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 20), st.integers(1, 20))
def test_flash_reads_keys_and_values_once_for_each_block_of_queries(tokens, head, block_q, block_k):
    counted = Memory()
    flash_attention(*arrays(*[(tokens, head)] * 3), block_q, block_k, counted)
    assert counted.traffic.reads == tokens * head * (1 + 2 * math.ceil(tokens / block_q))
    assert counted.traffic.writes == tokens * head and counted.traffic.held == 0
    q, k = min(block_q, tokens), min(block_k, tokens)
    assert counted.traffic.most_held == 2 * q * head + 2 * q + 2 * k * head + q * k


def test_a_causal_mask_halves_what_flash_fetches():
    full, causal = Memory(), Memory()
    q, k, v = arrays(*[(256, 8)] * 3)
    flash_attention(q, k, v, 8, 8, full)
    flash_attention(q, k, v, 8, 8, causal, causal=True)
    assert causal.traffic.reads / full.traffic.reads == pytest.approx(0.5, abs=0.03)


def test_flash_moves_what_its_theorem_says():
    """Doubling the tokens quadruples the traffic, doubling the fast memory halves it: N^2 d^2 / M with one constant."""
    head, over = 16, []
    for tokens, fast in product((256, 512, 1024), (512, 1024, 2048)):
        moved = attention_memory(*arrays(*[(tokens, head)] * 3), "flash", fast).traffic
        assert moved.total >= flash_bound(tokens, head, fast)
        assert moved.most_held < 2 * fast
        over.append(moved.total / flash_bound(tokens, head, fast))
    assert min(over) > 8 and max(over) <= 9


def test_naive_moves_the_scores_four_times_and_flash_moves_less_when_the_fast_memory_is_large():
    naive = attention_memory(*arrays(*[(256, 16)] * 3), "naive").traffic
    assert naive.total == 4 * 256 * 16 + 4 * 256 * 256
    small, large = (attention_memory(*arrays(*[(256, 16)] * 3), "flash", fast).traffic.total for fast in (256, 4096))
    assert large < naive.total < small


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: naive_matmul(np.ones((2, 3)), np.ones((2, 3))), r"shapes \(2, 3\) and \(2, 3\) do not multiply"),
        (lambda: tiled_matmul(np.ones((2, 3)), np.ones(3)), r"shapes \(2, 3\) and \(3,\) do not multiply"),
        (lambda: tiled_matmul(np.ones((0, 3)), np.ones((3, 1))), "do not multiply"),
        (lambda: tiled_matmul(np.ones((2, 2)), np.ones((2, 2)), (4, 8)), r"tiles is \(4, 8\) and depth 0; .*falling"),
        (lambda: tiled_matmul(np.ones((2, 2)), np.ones((2, 2)), (0,)), r"tiles is \(0,\)"),
        (lambda: tiled_matmul(np.ones((2, 2)), np.ones((2, 2)), ()), r"tiles is \(\)"),
        (lambda: least_loads(2, 2, 2, 0), "fast 0; all must be 1 or more"),
        (lambda: naive_attention(*np.ones((3, 4))), r"q, k, v have the shapes \(4,\)"),
        (lambda: flash_attention(np.ones((4, 2)), np.ones((4, 3)), np.ones((4, 2))), r"\(4, 3\).*tokens x head size"),
        (lambda: flash_attention(*np.ones((3, 4, 2)), block_k=0), "block_k is 0; 1 or more"),
        (lambda: online_softmax(np.ones(3), 0), "block is 0; 1 or more"),
        (lambda: flash_blocks(10, 8), "fast is 10; 32 values or more are needed for heads of 8"),
        (lambda: flash_bound(0, 8, 8), "context is 0; 1 or more"),
        (lambda: attention_memory(*np.ones((3, 4, 2)), "fast"), "kind is 'fast'; there are naive, flash"),
    ],
)
def test_bad_input_is_named(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_the_public_names_exist():
    assert all(hasattr(memory, name) for name in memory.__all__)
