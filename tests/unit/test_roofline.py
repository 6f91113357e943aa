"""Work and traffic against what torch counts and what an instrumented run counts; roofs against the published table."""

import csv
import math
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from distgen_lab import memory, roofline
from distgen_lab.hardware import ACCELERATORS, BYTES
from distgen_lab.roofline import Roof, Work, place, roof, roofs

SMALL = st.integers(1, 24)


def torch_flops(call) -> float:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        call()
    return counter.get_total_flops()


class Counted(np.ndarray):
    """An array that counts the arithmetic done on it, one for each result (n - 1 for a sum or maximum of n)."""

    flops = 0
    FREE = ("conjugate", "positive")

    def __array_ufunc__(self, ufunc, method, *inputs, **keywords):
        plain = [np.asarray(x) for x in inputs]
        keywords.pop("out", None)
        result = getattr(ufunc, method)(*plain, **keywords)
        if ufunc.__name__ not in self.FREE:
            Counted.flops += np.size(plain[0]) - np.size(result) if method == "reduce" else np.size(result)
        return np.asarray(result).view(Counted)


def numpy_flops(call, *arrays) -> int:
    Counted.flops = 0
    call(*(array.view(Counted) for array in arrays))
    return Counted.flops


# ----------------------------------------------------------------------------- work


@settings(max_examples=25, deadline=None)
@given(SMALL, SMALL, SMALL, st.integers(1, 4))
def test_a_matmul_has_the_flop_that_torch_counts(rows, inner, cols, batch):
    a, b = torch.rand(batch, rows, inner), torch.rand(batch, inner, cols)
    assert roofline.matmul(rows, inner, cols, batch=batch).flops == torch_flops(lambda: torch.bmm(a, b))


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 40), st.integers(1, 16), st.integers(1, 3), st.integers(1, 3))
def test_attention_has_the_flop_that_torch_counts(context, head, heads, batch):
    q, k, v = (torch.rand(batch, heads, context, head) for _ in range(3))
    for kind in roofline.KINDS:
        counted = torch_flops(lambda: torch.softmax(q @ k.mT, -1) @ v)
        assert roofline.attention(context, head, heads, batch, kind=kind).flops == counted


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), SMALL, SMALL, st.integers(3, 12), st.integers(3, 12), st.integers(1, 3), st.integers(1, 3),
       st.integers(0, 2))  # fmt: skip
def test_a_convolution_has_the_flop_and_the_outputs_of_torch(batch, c, f, h, w, kernel, stride, padding):
    image, filters = torch.rand(batch, c, h, w), torch.rand(f, c, kernel, kernel)
    work = roofline.convolution(batch, c, f, h, w, kernel, stride, padding, "fp32")
    counted = torch_flops(lambda: F.conv2d(image, filters, stride=stride, padding=padding))
    result = F.conv2d(image, filters, stride=stride, padding=padding)
    assert work.flops == counted
    assert work.traffic == sum(array.nbytes for array in (image, filters, result))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 20), st.integers(2, 40))
def test_a_layernorm_has_the_flop_of_an_instrumented_one(tokens, width):
    def layernorm(x, gain, bias):
        mean = np.add.reduce(x, axis=1, keepdims=True) / width
        centred = x - mean
        variance = np.add.reduce(centred * centred, axis=1, keepdims=True) / width
        return centred * (1.0 / np.sqrt(variance + 1e-5)) * gain + bias

    x, gain, bias = np.random.default_rng(0).random((tokens, width)), np.ones(width), np.zeros(width)
    work = roofline.layernorm(tokens, width, "fp64")
    assert work.flops == numpy_flops(layernorm, x, gain, bias)
    assert work.traffic == 2 * x.nbytes + gain.nbytes + bias.nbytes
    expected = F.layer_norm(torch.from_numpy(x), (width,))
    assert np.allclose(np.asarray(layernorm(x, gain, bias)), expected, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 20), st.integers(2, 40))
def test_a_softmax_has_the_flop_of_an_instrumented_one(rows, cols):
    def softmax(x):
        top = np.exp(x - np.maximum.reduce(x, axis=1, keepdims=True))
        return top / np.add.reduce(top, axis=1, keepdims=True)

    x = np.random.default_rng(0).random((rows, cols))
    assert roofline.softmax(rows, cols).flops == numpy_flops(softmax, x)
    assert np.allclose(softmax(x), torch.softmax(torch.from_numpy(x), -1), atol=1e-14)


def test_an_adam_step_has_the_flop_of_an_instrumented_one_and_is_torchs():
    rate, b1, b2, epsilon, decay, step = 1e-3, 0.9, 0.999, 1e-8, 0.01, 1
    c1, c2 = 1 - b1**step, 1 - b2**step

    def adamw(w, g, m, v):
        w = w * (1 - rate * decay)
        m = m * b1 + g * (1 - b1)
        v = v * b2 + (g * g) * (1 - b2)
        return w - m * (rate / c1) / (np.sqrt(v * (1 / c2)) + epsilon)

    random = np.random.default_rng(0)
    w, g = random.random(1000), random.random(1000)
    m, v = np.zeros(1000), np.zeros(1000)
    assert numpy_flops(adamw, w, g, m, v) == roofline.adam_step(1000).flops
    weights = torch.from_numpy(w.copy()).requires_grad_()
    weights.grad = torch.from_numpy(g)
    torch.optim.AdamW([weights], lr=rate, weight_decay=decay).step()
    assert np.allclose(adamw(w, g, m, v), weights.detach(), atol=1e-12)


@pytest.mark.parametrize(
    ("recipe", "read", "written"),
    [("mixed-precision Adam", 2 + 4 + 8, 2 + 4 + 8), ("FP32 Adam", 4 + 4 + 8, 4 + 8),
     ("mixed-precision Adam, FP32 gradients", 4 + 4 + 8, 2 + 4 + 8)],
)  # fmt: skip
def test_an_adam_step_moves_the_bytes_of_its_recipe(recipe, read, written):
    assert roofline.adam_step(10, recipe).traffic == 10 * (read + written)


# ----------------------------------------------------------------------------- traffic


@settings(max_examples=25, deadline=None)
@given(SMALL, SMALL, SMALL, st.sampled_from(["fp64", "fp32", "bf16"]))
def test_a_matmul_moves_both_factors_and_the_product(rows, inner, cols, precision):
    kind = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    a, b = torch.ones(rows, inner, dtype=kind), torch.ones(inner, cols, dtype=kind)
    assert roofline.matmul(rows, inner, cols, precision).traffic == a.nbytes + b.nbytes + (a @ b).nbytes


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 70), st.integers(1, 16), st.integers(1, 40))
def test_attention_moves_what_an_executed_one_reads_and_writes(context, head, block):
    q, k, v = np.random.default_rng(0).random((3, context, head))
    for kind in roofline.KINDS:
        counted = memory.Memory()
        if kind == "naive":
            memory.naive_attention(q, k, v, counted)
        else:
            memory.flash_attention(q, k, v, block, 5, counted)
        work = roofline.attention(context, head, precision="fp64", kind=kind, block=block)
        assert work.traffic == counted.traffic.nbytes(8)


def test_an_embedding_moves_rows_and_indices_and_computes_nothing():
    table, ids = torch.rand(50, 8), torch.randint(0, 50, (30,))
    out = F.embedding(ids, table)
    work = roofline.embedding(30, 8, "fp32")
    assert work.traffic == 2 * out.nbytes + ids.nbytes
    assert work.flops == work.intensity == torch_flops(lambda: F.embedding(ids, table)) == 0


def test_an_elementwise_sum_moves_three_arrays():
    a, b = np.ones(100), np.ones(100)
    work = roofline.elementwise(100, "fp64", inputs=2)
    assert work.flops == numpy_flops(lambda x, y: x + y, a, b)
    assert work.traffic == 3 * a.nbytes and work.intensity == 1 / 24


def test_decode_is_a_product_with_every_weight_and_an_attention_over_the_cache():
    layers, heads, kv, head, width, inner, vocabulary, context, batch = 2, 4, 2, 8, 32, 64, 100, 21, 3
    shapes = [(width, heads * head), (width, kv * head), (width, kv * head), (heads * head, width), (width, inner),
              (inner, width)] * layers + [(width, vocabulary)]  # fmt: skip
    weights = [torch.rand(shape) for shape in shapes]
    cache = torch.rand(2, layers, batch, kv, context, head)

    def step():
        for weight in weights:
            torch.rand(batch, weight.shape[0]) @ weight
        for keys, values in zip(*cache, strict=True):
            scores = torch.rand(batch, kv, heads // kv, head) @ keys.mT
            scores @ values

    parameters = sum(weight.numel() for weight in weights)
    work = roofline.decode(parameters, layers, context, heads, head, kv, batch, "fp32")
    assert work.flops == torch_flops(step)
    assert work.traffic == sum(weight.nbytes for weight in weights) + cache.nbytes


def test_decode_gains_from_a_batch_until_the_cache_outweighs_the_weights():
    at = [roofline.decode(70e9, 80, 4096, 64, 128, 8, batch).intensity for batch in (1, 16, 256, 4096)]
    assert at == sorted(at) and at[0] < 1.1
    limit = 4 * 80 * 4096 * 64 * 128 / (2 * 80 * 8 * 128 * 4096 * 2) + 2 * 70e9 / (2 * 80 * 8 * 128 * 4096 * 2)
    assert at[-1] < limit == pytest.approx(roofline.decode(70e9, 80, 4096, 64, 128, 8, 10**9).intensity, rel=1e-3)


def test_the_intensity_of_naive_attention_is_half_the_head_size_at_any_batch():
    for batch in (1, 8, 64):
        assert roofline.attention(100_000, 128, 16, batch).intensity == pytest.approx(64, rel=2e-3)
    flash = roofline.attention(100_000, 128, 16, kind="flash", block=128)
    assert flash.intensity == pytest.approx(128, rel=3e-3)


@given(st.integers(1, 500), st.sampled_from(sorted(BYTES)))
def test_a_square_product_has_a_third_of_its_side_in_flop_a_value(side, precision):
    assert roofline.matmul(side, side, side, precision).intensity == pytest.approx(2 * side / 3 / BYTES[precision])


def test_two_operations_add_up():
    both = Work("a", 10, 4) + Work("b", 2, 8)
    assert (both.name, both.flops, both.traffic, both.intensity) == ("a + b", 12, 12, 1)


# ----------------------------------------------------------------------------- roofs


@pytest.fixture(scope="module")
def ridges(shared):
    with (shared / "data" / "accelerators.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {re.split(r"-SXM| \(|-HGX", row["accelerator"])[0]: float(row["ridge_flop_per_byte"]) for row in rows}


@pytest.mark.parametrize("name", ACCELERATORS)
def test_the_ridge_is_the_published_one(ridges, name):
    assert roof(name).ridge() == pytest.approx(ridges[name], abs=0.06)


def test_the_ridge_depends_on_precision_and_level():
    assert roof("H100", "fp32").ridge() == pytest.approx(20, abs=0.1)
    assert roof("H100").ridge("shared memory and L1") == pytest.approx(29.6, abs=0.1)
    assert set(roofs("H100")) == {"fp32", "tf32", "bf16", "fp8", "int8"}
    assert roofs("H100")["fp8"].peak / roofs("H100")["bf16"].peak == pytest.approx(2, rel=1e-3)


@given(st.floats(0, 1e6), st.sampled_from(sorted(ACCELERATORS)))
def test_attainable_is_the_lower_of_both_roofs(intensity, name):
    over = roof(name)
    row = ACCELERATORS[name]
    assert over.attainable(intensity) == min(row.flops["bf16"], intensity * row.memory_bandwidth)


@given(st.floats(1, 1e15), st.floats(1, 1e12))
def test_the_least_time_is_work_over_what_is_attainable(flops, traffic):
    work, over = Work("any", flops, traffic), Roof("x", "fp32", 1e13, {"cache": 1e13, "DRAM": 1e12})
    placed = place(work, over)
    assert placed.seconds == pytest.approx(flops / placed.attainable)
    assert placed.limit == ("compute" if flops / 1e13 >= traffic / 1e12 else "DRAM")


def test_a_measured_operation_has_its_share_of_the_roof():
    work = roofline.layernorm(4096, 8192)
    placed = place(work, "H100", measured=2 * roof("H100").seconds(work))
    assert placed.share == pytest.approx(0.5) and placed.limit == "HBM"
    assert placed.achieved == pytest.approx(placed.attainable / 2)
    assert placed.peak_share < 0.01
    assert str(placed).endswith("(50%)") and "HBM limits" in str(placed)
    assert place(work, "H100").achieved is None and place(work, "H100").share is None


def test_lower_levels_can_be_asked_for():
    work = roofline.matmul(64, 64, 64)
    assert place(work, "H100").limit == "HBM"
    assert place(work, "H100", "shared memory and L1").limit == "shared memory and L1"
    assert place(roofline.matmul(99, 99, 99), "H100", "shared memory and L1").limit == "compute"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: roof("H10"), "unknown accelerator 'H10'; did you mean .*H100"),
        (lambda: roof("A100", "fp8"), "A100 has no fp8 rate here; it has fp32, tf32, bf16, int8"),
        (lambda: roof("H100").ridge("L9"), "level is 'L9'; H100 has shared memory and L1, HBM"),
        (lambda: roof("H100").attainable(-1), "intensity is -1; a number of at least 0"),
        (lambda: roofline.matmul(0, 2, 3), "rows is 0; a positive whole number"),
        (lambda: roofline.matmul(1, 2.5, 3), "inner is 2.5; a positive whole number"),
        (lambda: roofline.matmul(1, 2, math.nan), "cols is nan; a positive whole number"),
        (lambda: roofline.matmul(1, 2, True), "cols is True"),
        (lambda: roofline.matmul(1, 2, 3, "fp12"), "unknown precision 'fp12'; there are fp64"),
        (lambda: roofline.attention(8, 8, kind="fast"), "kind is 'fast'; there are naive, flash"),
        (lambda: roofline.convolution(1, 1, 1, 2, 2, kernel=3), "kernel is 3 and padding 0; the kernel must fit"),
        (lambda: roofline.elementwise(3, flops=-1), "flops is -1"),
        (lambda: roofline.decode(-1, 1, 1, 1, 1), "parameters is -1; a positive number"),
        (lambda: roofline.decode(1, 1, 1, 1, 1, kv_heads=0), "kv_heads is 0"),
        (lambda: roofline.adam_step(10, "BF16 SGD"), "recipe is 'BF16 SGD'; there are: .*mixed-precision Adam"),
        (lambda: place(Work("x", 1, 1), "H100", measured=0), "measured is 0; a positive number"),
    ],
)
def test_bad_input_is_named(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
