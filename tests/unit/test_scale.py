"""Scale arithmetic against published tables, simulated rings, brute force and hand arithmetic."""

import csv
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import constants

from distgen_lab import scale
from distgen_lab.scale import RECIPES, Recipe

# ------------------------------------------------------------------------------------------------- compute


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_six_n_d_is_what_chinchilla_used(shared):
    table = rows(shared / "data" / "chinchilla_table3.csv")
    assert len(table) == 9
    for row in table:
        flops = scale.training_flops(float(row["params_B"]) * 1e9, float(row["tokens_B"]) * 1e9)
        ratio = flops / float(row["train_flops"])
        assert ratio == pytest.approx(1, abs=0.05)
        assert ratio == pytest.approx(float(row["ratio_6ND_over_C"]), abs=0.00051)


@pytest.mark.parametrize(
    ("millions", "flops"),
    [(125, 2.25e20), (356, 6.41e20), (760, 1.37e21), (1320, 2.38e21), (2650, 4.77e21), (6660, 1.20e22),
     (12850, 2.31e22), (174600, 3.14e23)],
)  # fmt: skip
def test_the_compute_of_the_gpt3_family(millions, flops):
    """Brown et al. 2020, table D.1: parameters, 300 billion tokens, total train compute to three digits."""
    assert scale.training_flops(millions * 1e6, 300e9) == pytest.approx(flops, rel=0.003)


@given(st.integers(1, 10**12), st.integers(1, 10**14))
def test_forward_backward_and_training_are_two_four_and_six(n, d):
    assert scale.forward_flops(n, d) == 2 * n * d
    assert scale.backward_flops(n, d) == 4 * n * d
    assert scale.training_flops(n, d) == 6 * n * d


@pytest.mark.parametrize(("layers", "context", "heads", "head"), [(1, 1, 1, 1), (2, 5, 3, 4), (3, 8, 2, 2)])
def test_attention_flops_count_every_product_of_a_score(layers, context, heads, head):
    """Walk over all (query, key) pairs: a score and a weighted value each cost head multiply-adds, three passes."""
    full = causal = 0
    for _ in range(layers * heads):
        for query in range(context):
            for key in range(context):
                cost = 3 * 2 * (2 * head)
                full += cost
                causal += cost if key < query else cost / 2 if key == query else 0
    assert scale.attention_flops(layers, context, heads * head, context) == full
    assert scale.attention_flops(layers, context, heads * head, context, causal=True) == causal
    assert scale.attention_flops(layers, context, heads * head, 10 * context) == 10 * full


@pytest.mark.parametrize(
    ("parameters", "tokens", "devices", "achieved", "days"),
    [(175e9, 300e9, 1024, 140e12, 34), (1e12, 450e9, 3072, 163e12, 84)],
)
def test_training_times_of_narayanan_2021(parameters, tokens, devices, achieved, days):
    """Section 5.1 there: 8 ND / (n X) seconds (activations recomputed), in days, for A100s of 312 TFLOP/s."""
    flops = scale.training_flops(parameters, tokens) + scale.forward_flops(parameters, tokens)
    seconds = scale.training_time(flops, devices, 312e12, achieved / 312e12)
    assert seconds / constants.day == pytest.approx(days, rel=0.02)


def test_one_v100_would_need_a_lifetime():
    assert scale.training_time(3.15e23, 1, 125e12) == pytest.approx(2.52e9)
    assert scale.training_time(3.15e23, 1, 312e12) / constants.Julian_year == pytest.approx(31.99, abs=0.01)


def test_mfu_of_palm():
    """Chowdhery et al. 2022, appendix B: 540.35e9 parameters, 238.3e3 tokens/s on 6,144 TPU v4: 45.7 % without
    attention; full recomputation adds a third."""
    mfu = scale.mfu(540.35e9, 238.3e3, 6144, 275e12)
    assert mfu == pytest.approx(0.457, abs=0.0006)
    assert scale.hfu(540.35e9, 238.3e3, 6144, 275e12) == pytest.approx(mfu * 4 / 3)
    assert scale.hfu(540.35e9, 238.3e3, 6144, 275e12, recomputed=0) == pytest.approx(mfu)
    assert scale.hfu(1e9, 1e3, 1, 1e15, recomputed=0.5) == pytest.approx(7e12 / 1e15)


@given(st.floats(1e6, 1e12), st.floats(1, 1e6), st.integers(1, 10**5), st.floats(1e12, 1e16))
def test_mfu_and_training_time_agree(parameters, rate, devices, peak):
    share = scale.mfu(parameters, rate, devices, peak)
    if share <= 1:
        seconds = scale.training_time(scale.training_flops(parameters, 1e9), devices, peak, share)
        assert seconds == pytest.approx(1e9 / rate)


# -------------------------------------------------------------------------------------------------- memory


def test_model_state_is_the_one_of_zero(shared):
    """Stage by stage: optimiser state, then gradients, then weights are divided by the data-parallel degree."""
    table = rows(shared / "data" / "zero_memory_table.csv")
    assert {row["stage"] for row in table} == {"Pos", "Pos+g", "Pos+g+p"}
    for row in table:
        state, degree = scale.model_state(float(row["params_B"]) * 1e9), int(row["dp_degree"])
        kept = {
            "Pos": state.weights + state.gradients + state.optimizer / degree,
            "Pos+g": state.weights + (state.gradients + state.optimizer) / degree,
            "Pos+g+p": state.total / degree,
        }[row["stage"]]
        assert kept / 1e9 == pytest.approx(float(row["formula_GB"]), abs=0.00006)
        if degree == 1:
            assert kept == 16 * float(row["params_B"]) * 1e9


@pytest.mark.parametrize(
    ("recipe", "weights", "gradients", "optimizer"),
    [
        ("BF16 + Adam, no master copy (the chapter's 12N)", 2, 2, 8),
        ("mixed-precision Adam", 2, 2, 12),
        ("mixed-precision Adam, FP32 gradients", 2, 4, 12),
        ("mixed-precision 8-bit Adam", 2, 2, 6),
        ("FP32 Adam", 4, 4, 8),
        ("BF16 SGD with momentum", 2, 2, 2),
        ("BF16 SGD", 2, 2, 0),
    ],
)
def test_recipes_by_hand(recipe, weights, gradients, optimizer):
    state = scale.model_state(7e9, recipe)
    assert (state.weights, state.gradients, state.optimizer) == (7e9 * weights, 7e9 * gradients, 7e9 * optimizer)
    assert state.total == 7e9 * (weights + gradients + optimizer) == 7e9 * RECIPES[recipe].bytes_per_parameter


def test_every_recipe_is_tested_and_a_readers_own_works():
    assert len(RECIPES) == 7 and all(name == recipe.name for name, recipe in RECIPES.items())
    assert scale.model_state(10, Recipe("own", 1, 2, 3, 4)).total == 100


def test_an_unknown_recipe_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown recipe 'adam'; there are: .*; mixed-precision Adam; .*BF16 SGD"):
        scale.model_state(7e9, "adam")


@pytest.mark.parametrize(
    ("layers", "kv_heads", "head_dim", "per_token"),
    [
        (96, 96, 128, 4_718_592),  # GPT-3 175B, 4.5 MiB
        (32, 32, 128, 524_288),  # Llama 2 7B, 0.5 MiB
        (32, 8, 128, 131_072),  # Mistral 7B and Llama 3 8B, 128 KiB
        (80, 8, 128, 327_680),  # Qwen 2.5 72B and Llama 3 70B: 327.680 KB (DeepSeek-AI 2025, ISCA, table 1)
        (126, 8, 128, 516_096),  # Llama 3.1 405B: 516.096 KB (same table)
    ],
)
def test_kv_cache_of_known_models(layers, kv_heads, head_dim, per_token):
    assert scale.kv_cache(layers, kv_heads, head_dim, 1) == per_token
    assert scale.kv_cache(layers, kv_heads, head_dim, 4096, batch=3) == 3 * 4096 * per_token
    assert scale.kv_cache(layers, kv_heads, head_dim, 1, bytes_per_value=1) == per_token / 2


def test_kv_cache_of_deepseek_v3():
    """DeepSeek-AI 2025 (ISCA), table 1: 70.272 KB a token."""
    assert scale.kv_cache_latent(61, 512, 64, 1) == 70_272
    assert scale.kv_cache_latent(61, 512, 64, 1000, batch=2, bytes_per_value=1) == 70_272_000


def test_activation_tensors_by_hand():
    assert scale.activation_tensor(320, 64, 64) == 2_621_440
    assert scale.activation_tensor(3, 2, 5, frames=7, bytes_per_value=4) == 840
    assert scale.activation_tensor(3, 2, 5, 7) == np.zeros((3, 2, 5, 7), np.float16).nbytes


# ------------------------------------------------------------------------------------------- communication


def ring_all_reduce(workers: int, chunk_bytes: int) -> list[int]:
    """Run a ring all-reduce on numbers; check its result; return the bytes each rank sent."""
    data = np.random.default_rng(workers).integers(0, 1000, (workers, workers))
    wanted, sent = data.sum(axis=0), [0] * workers
    for first, add in ((0, True), (1, False)):
        for step in range(workers - 1):
            messages = [(rank, (rank + first - step) % workers) for rank in range(workers)]
            values = [data[rank, chunk] for rank, chunk in messages]
            for (rank, chunk), value in zip(messages, values, strict=True):
                to = (rank + 1) % workers
                data[to, chunk] = data[to, chunk] + value if add else value
                sent[rank] += chunk_bytes
    assert (data == wanted).all()
    return sent


@pytest.mark.parametrize("workers", range(1, 65))
def test_all_reduce_volume_is_what_a_ring_sends(workers):
    chunk = 12_345
    assert {Fraction(scale.all_reduce_volume(workers * chunk, workers))} == set(
        map(Fraction, ring_all_reduce(workers, chunk))
    )


@given(st.integers(1, 2**53), st.integers(1, 10**6))
def test_all_reduce_volume_is_exact_then_rounded_once(nbytes, workers):
    assert scale.all_reduce_volume(nbytes, workers) == float(Fraction(2 * (workers - 1) * nbytes, workers))
    assert scale.all_reduce_volume(float(nbytes), workers) == scale.all_reduce_volume(nbytes, workers) <= 2 * nbytes


def test_all_reduce_volume_by_hand():
    assert [scale.all_reduce_volume(350e9, k) / 1e9 for k in (1, 2, 4, 8)] == [0, 350, 525, 612.5]
    assert scale.communication_time(350e9, 50e9) == 7.0
    assert scale.communication_time(0.0, 50e9) == 0.0


SHARES = st.sampled_from([1.0, 0.5, 0.75, 0.875])


@given(st.integers(1, 10**6), st.integers(1000, 10**5), SHARES)
def test_fewest_devices_is_the_first_that_holds_it(nbytes, memory, usable):
    devices = 1
    while devices * memory * Fraction(usable) < nbytes:
        devices += 1
    assert scale.fewest_devices(nbytes, memory, usable) == devices


def test_fewest_devices_by_hand_and_where_floats_fail():
    assert scale.fewest_devices(2.8e12, 80e9) == 35
    assert scale.fewest_devices(2.8e12 + 512, 80e9) == 36
    assert scale.fewest_devices(112e9, 80e9, usable=0.5) == 3
    assert scale.fewest_devices(3 * 10**30, 10**30) == 3
    assert type(scale.fewest_devices(112e9, 80e9)) is int


@pytest.mark.parametrize(("nbytes", "usable"), [(56e9, 0.7), (24e9, 0.3), (48e9, 0.6)])
def test_a_share_of_seven_tenths_is_seven_tenths(nbytes, usable):
    assert [scale.fewest_devices(k * nbytes, 80e9, usable) for k in range(1, 20)] == list(range(1, 20))


# ---------------------------------------------------------------------------------------------- three walls


def test_three_walls_by_hand():
    walls = scale.three_walls(175e9, 300e9, 1000, 80e9, 312e12, 25e9, 4e6, mfu=0.5)
    assert walls.state == 2.8e12 and walls.per_device == 2.8e9 and walls.device_memory == 80e9
    assert walls.devices_for_state == 35 and walls.fits
    assert walls.seconds == pytest.approx(3.15e23 / 1.56e17)
    assert walls.step_compute == pytest.approx(4.2e18 / 1.56e17)
    assert walls.step_communication == pytest.approx(2 * 0.999 * 350e9 / 25e9)


def test_the_memory_wall_stands_where_the_sharded_state_no_longer_fits():
    def fits(devices):
        return scale.three_walls(175e9, 300e9, devices, 80e9, 312e12, 25e9, 4e6).fits

    assert [fits(34), fits(35), fits(36)] == [False, True, True]
    sgd = scale.three_walls(175e9, 300e9, 9, 80e9, 312e12, 25e9, 4e6, recipe="BF16 SGD")
    assert sgd.state == 700e9 and sgd.fits


# ----------------------------------------------------------------------------------------------- bad input

GOOD = {
    "forward_flops": {"parameters": 1e9, "tokens": 1e9},
    "backward_flops": {"parameters": 1e9, "tokens": 1e9},
    "training_flops": {"parameters": 1e9, "tokens": 1e9},
    "attention_flops": {"layers": 2, "context": 4, "width": 8, "tokens": 4},
    "training_time": {"flops": 1e20, "devices": 8, "peak_flops": 1e15, "mfu": 0.5},
    "mfu": {"parameters": 1e9, "tokens_per_second": 1e4, "devices": 8, "peak_flops": 1e15},
    "hfu": {"parameters": 1e9, "tokens_per_second": 1e4, "devices": 8, "peak_flops": 1e15, "recomputed": 1.0},
    "model_state": {"parameters": 1e9},
    "kv_cache": {"layers": 2, "kv_heads": 2, "head_dim": 4, "context": 8, "batch": 1, "bytes_per_value": 2},
    "kv_cache_latent": {"layers": 2, "latent": 2, "rope": 4, "context": 8, "batch": 1, "bytes_per_value": 2},
    "all_reduce_volume": {"nbytes": 1e9, "workers": 8},
    "communication_time": {"volume": 1e9, "bandwidth": 1e9},
    "fewest_devices": {"nbytes": 1e12, "device_memory": 80e9, "usable": 0.5},
    "activation_tensor": {"channels": 3, "height": 4, "width": 5, "frames": 2, "bytes_per_value": 2},
    "three_walls": {
        "parameters": 1e9, "tokens": 1e9, "devices": 8, "device_memory": 80e9, "peak_flops": 1e15, "network": 1e9,
        "batch_tokens": 1e6, "mfu": 0.4,
    },
}  # fmt: skip
BAD = {"zero": 0, "negative": -1.5, "nan": math.nan, "inf": math.inf, "true": True}
ZERO_IS_RIGHT = {("hfu", "recomputed"), ("communication_time", "volume")}
CASES = [(function, name, kind) for function, arguments in GOOD.items() for name in arguments for kind in BAD]


def bad_call(function, name, kind):
    return pytest.param(function, name, BAD[kind], id=f"{function}-{name}-{kind}")


@pytest.mark.parametrize("function", GOOD)
def test_the_good_arguments_are_good(function):
    assert getattr(scale, function)(**GOOD[function]) is not None


@pytest.mark.parametrize(
    ("function", "name", "value"), [bad_call(*c) for c in CASES if not (c[2] == "zero" and c[:2] in ZERO_IS_RIGHT)]
)
def test_bad_input_is_refused_by_name_and_value(function, name, value):
    with pytest.raises(ValueError, match=rf"^{name} is {re.escape(str(value))}\b.*needed"):
        getattr(scale, function)(**GOOD[function] | {name: value})


@pytest.mark.parametrize("share", [1.0001, 2, 40])
def test_a_share_above_one_is_refused(share):
    with pytest.raises(ValueError, match=rf"mfu is {share}; a share of the peak"):
        scale.training_time(1e20, 8, 1e15, share)
    with pytest.raises(ValueError, match=rf"usable is {share}; a share, above 0 and at most 1"):
        scale.fewest_devices(1e12, 80e9, share)


def test_half_a_worker_is_refused():
    with pytest.raises(ValueError, match=r"workers is 2\.5; a whole number"):
        scale.all_reduce_volume(1e9, 2.5)


@pytest.mark.parametrize("value", ["7B", None, [1]])
def test_what_is_no_number_is_refused_by_name(value):
    with pytest.raises((TypeError, ValueError), match=r"^parameters is "):
        scale.training_flops(value, 1e9)


def test_the_public_names_exist():
    assert all(hasattr(scale, name) for name in scale.__all__)
