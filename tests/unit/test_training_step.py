"""The training-step lab: FLOP and bytes against formulas, the update against NumPy, the model against transformers."""

import math

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend

from distgen_lab.labs import training_step
from distgen_lab.labs.training_step import (
    CONFIG,
    MixedPrecisionAdam,
    TinyGPT,
    batch,
    counted_flops,
    device,
    matmul_rate,
    measured_state,
    tokens_per_second,
    train_step,
)
from distgen_lab.models import ModelShape

SMALL = {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 64, "n_positions": 16}
CONFIGS = [CONFIG, SMALL, {**SMALL, "n_layer": 3, "n_head": 4, "n_positions": 24}]


def gpt2_parameters(layers, width, vocabulary, positions):
    """Vaswani/Radford by hand: embeddings, per layer 12 d^2 + 13 d, last norm 2 d; the head is tied."""
    return vocabulary * width + positions * width + layers * (12 * width**2 + 13 * width) + 2 * width


@pytest.mark.parametrize("config", CONFIGS)
def test_the_model_has_the_parameters_of_its_config(config):
    counted = sum(weight.numel() for weight in TinyGPT(config).parameters())
    assert counted == ModelShape.from_config(config).parameters
    assert counted == gpt2_parameters(*(config[k] for k in ("n_layer", "n_embd", "vocab_size", "n_positions")))


def test_the_model_is_gpt2():
    """Same weights, same logits and loss as Hugging Face's GPT-2."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        **{k: v for k, v in SMALL.items() if k != "model_type"}, activation_function="gelu",
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs, ours = transformers.GPT2LMHeadModel(config).eval(), TinyGPT(SMALL)
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    names = {"norm1": "ln_1", "norm2": "ln_2", "qkv": "attn.c_attn", "out": "attn.c_proj", "up": "mlp.c_fc",
             "down": "mlp.c_proj"}  # fmt: skip
    state = {
        f"blocks.{i}.{own}.{part}": layer.get_parameter(f"{name}.{part}")
        for i, layer in enumerate(theirs.transformer.h)
        for own, name in names.items()
        for part in ("weight", "bias")
    }
    state = {k: v.T if v.dim() == 2 else v for k, v in state.items()}
    outer = {"tokens.weight": "wte.weight", "positions.weight": "wpe.weight", "norm.weight": "ln_f.weight",
             "norm.bias": "ln_f.bias"}  # fmt: skip
    ours.load_state_dict(state | {k: theirs.transformer.get_parameter(v) for k, v in outer.items()})
    ids = batch(3, SMALL).cpu()
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours.loss(ids), theirs(ids, labels=ids).loss, rtol=1e-4, atol=1e-4)


def test_the_loss_is_the_mean_surprise_at_the_next_token():
    torch.manual_seed(1)
    model, ids = TinyGPT(SMALL), batch(2, SMALL).cpu()
    with torch.no_grad():
        logits = model(ids).double().numpy()
    surprises = []
    for row, tokens in zip(logits, ids.tolist(), strict=True):
        for scores, following in zip(row, tokens[1:], strict=False):
            surprises.append(math.log(sum(math.exp(s) for s in scores)) - scores[following])
    assert model.loss(ids).item() == pytest.approx(sum(surprises) / len(surprises), rel=1e-5)


# -------------------------------------------------------------------------------------------------- FLOP


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("sequences", [1, 3])
def test_counted_flops_are_six_n_d_and_attention(config, sequences):
    model, ids = TinyGPT(config), batch(sequences, config).cpu()
    matmul = sum(weight.numel() for name, weight in model.named_parameters()
                 if weight.dim() == 2 and "positions" not in name)  # fmt: skip
    assert matmul == ModelShape.from_config(config).matmul_parameters
    tokens = sequences * config["n_positions"]
    attention = 12 * config["n_layer"] * config["n_positions"] * config["n_embd"] * tokens
    math_kernel = counted_flops(model, ids, SDPBackend.MATH)
    assert math_kernel.total == 6 * matmul * tokens + attention
    assert 3 * math_kernel.forward == math_kernel.total
    assert math_kernel.backward == 2 * math_kernel.forward
    fused = counted_flops(model, ids, SDPBackend.FLASH_ATTENTION)
    assert (fused.forward, fused.total) == (2 * matmul * tokens, 6 * matmul * tokens)


def test_counting_leaves_no_gradients_and_no_changed_weights():
    model = TinyGPT(SMALL)
    before = [weight.clone() for weight in model.parameters()]
    counted_flops(model, batch(1, SMALL).cpu())
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


# ------------------------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize(
    ("precision", "parts"), [("fp32", (4, 4, 0, 8)), ("bf16", (2, 2, 0, 4)), ("mixed", (2, 2, 4, 8))]
)
def test_state_is_sixteen_eight_and_sixteen_bytes_a_parameter(precision, parts):
    state = measured_state(precision)
    n = gpt2_parameters(4, 256, 2048, 128)
    assert (state.parameters, state.weights, state.gradients, state.master, state.moments) == (
        n, *(n * part for part in parts)
    )  # fmt: skip
    assert state.per_parameter == sum(parts) == {"fp32": 16, "bf16": 8, "mixed": 16}[precision]


@pytest.mark.parametrize("precision", ["fp16", "", None, "FP32"])
def test_another_precision_is_refused(precision):
    with pytest.raises(ValueError, match=f"precision is {precision!r}; 'fp32', 'bf16' or 'mixed' is needed"):
        measured_state(precision)


# ------------------------------------------------------------------------------------------------ update


def to_bf16(values: np.ndarray) -> np.ndarray:
    """Round float32 to BF16, to nearest and ties to even, on its bits."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)


def numpy_adamw(weights, gradients, steps, rate=1e-3, b1=0.9, b2=0.999, eps=1e-8, decay=0.01):
    """Loshchilov and Hutter 2019, algorithm 2, in float64; yield the weights after each step."""
    w, m, v = weights.astype(np.float64), 0.0, 0.0
    for t in range(1, steps + 1):
        g = gradients[t - 1].astype(np.float64)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        w = w - rate * decay * w - rate * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        yield w


def test_a_mixed_precision_step_is_adam_on_the_master_copy():
    torch.manual_seed(2)
    model = torch.nn.Linear(5, 7).bfloat16()
    optimizer = MixedPrecisionAdam(model)
    start = model.weight.detach().float().numpy().copy()
    drawn = np.random.default_rng(3).normal(size=(6, 7, 5)).astype(np.float32)
    gradients = [to_bf16(g) for g in drawn]
    for gradient, want in zip(gradients, numpy_adamw(start, gradients, 6), strict=True):
        model.weight.grad = torch.from_numpy(gradient).bfloat16()
        model.bias.grad = torch.zeros(7, dtype=torch.bfloat16)
        optimizer.step()
        master = optimizer.master[0].detach().numpy()
        np.testing.assert_allclose(master, want, rtol=2e-6, atol=1e-8)
        np.testing.assert_array_equal(model.weight.detach().float().numpy(), to_bf16(master))
        optimizer.zero_grad()
        assert model.weight.grad is None and optimizer.master[0].grad is None
    assert model.weight.dtype == torch.bfloat16 and optimizer.master[0].dtype == torch.float32


def test_the_master_copy_keeps_updates_that_bf16_cannot_hold():
    """At 1, BF16 steps down by 2^-8 = 0.0039: an update of 0.001 is lost there, and not in the master copy."""
    model = torch.nn.Linear(1, 1, bias=False).bfloat16()
    with torch.no_grad():
        model.weight.fill_(1)
    optimizer, seen = MixedPrecisionAdam(model), []
    for _ in range(5):
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
        seen.append((model.weight.item(), optimizer.master[0].item()))
    assert seen[0][0] == 1.0 and seen[0][1] == pytest.approx(0.99899, abs=1e-6)
    assert [master for _, master in seen] == pytest.approx([1 - 0.00101 * k for k in range(1, 6)], abs=1e-6)
    assert seen[-1][0] == 1 - 2**-8


@pytest.mark.parametrize("mixed", [False, True])
def test_training_on_one_batch_learns_it(mixed):
    torch.manual_seed(4)
    model, ids = TinyGPT(SMALL).to(device()), batch(2, SMALL)
    model = model.bfloat16() if mixed else model
    optimizer = MixedPrecisionAdam(model) if mixed else torch.optim.AdamW(model.parameters())
    losses = [train_step(model, optimizer, ids) for _ in range(20)]
    assert losses[-1] < 0.9 * losses[0]
    assert all(weight.grad is None for weight in model.parameters())


# ------------------------------------------------------------------------------------------------- rest


def test_a_batch_is_drawn_from_its_seed():
    assert torch.equal(batch(3), batch(3)) and not torch.equal(batch(3), batch(3, seed=1))
    ids = batch(50, SMALL)
    assert ids.shape == (50, 16) and (ids.min().item(), ids.max().item()) == (0, 63)
    state = torch.random.get_rng_state()
    batch(3)
    assert torch.equal(state, torch.random.get_rng_state())


def test_speeds_are_counts_over_the_shortest_time(monkeypatch):
    calls = []

    def best(work, repeats):
        work()
        calls.append(repeats)
        return 0.5

    monkeypatch.setattr(training_step, "_best_seconds", best)
    assert matmul_rate(size=10, repeats=3) == 2 * 10**3 / 0.5
    assert tokens_per_second(sequences=2, repeats=4) == 2 * 128 / 0.5
    assert calls == [3, 4]


def test_the_shortest_of_the_repeats_counts_and_the_first_does_not(monkeypatch):
    clock = iter([0.0, 3.0, 10.0, 11.0, 20.0, 22.0])
    monkeypatch.setattr(training_step.time, "perf_counter", lambda: next(clock))
    runs = []
    assert training_step._best_seconds(lambda: runs.append(1), 3) == 1.0
    assert len(runs) == 4
