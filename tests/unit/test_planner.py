"""Plans of a training run: FLOP, memory, collectives, the pipeline, bad input, the search and the command."""

import json
import math
import subprocess
import sys
from itertools import product

import pytest

from distgen_lab import overlap, sample
from distgen_lab.cli import main
from distgen_lab.models import ModelShape
from distgen_lab.nccl_recorded import recorded
from distgen_lab.planner import Batch, Cluster, Layout, cluster, fitted, model_flops, plan, search
from distgen_lab.planner.layout import RECOMPUTE
from distgen_lab.planner.machine import collective_time
from distgen_lab.planner.price import layer_seconds, parts, stack
from distgen_lab.planner.searching import layouts
from distgen_lab.planner.work import step_work

LLAMA = {  # hidden, layers, heads, key and value heads, inner, vocabulary
    "8B": (4096, 32, 32, 8, 14336, 128256),
    "70B": (8192, 80, 64, 8, 28672, 128256),
    "405B": (16384, 126, 128, 8, 53248, 128256),
}


def llama(size):
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
    config = dict(zip((*names, "vocab_size"), LLAMA[size], strict=True))
    return ModelShape.from_config({"model_type": "llama", "tie_word_embeddings": False, **config}, size)


@pytest.fixture(scope="module")
def small():
    config = {"model_type": "gpt2", "n_embd": 1024, "n_layer": 8, "n_head": 16, "n_positions": 1024}
    return ModelShape.from_config(config | {"vocab_size": 32000}, "small")


@pytest.fixture(scope="module")
def llama70():
    return llama("70B")


# ------------------------------------------------------------------------------------------------------- FLOP


@pytest.mark.parametrize("size", LLAMA)
def test_flops_are_those_of_megatrons_own_formula(size):
    h, layers, heads, kv, inner, vocab = LLAMA[size]
    s, sequences = 8192, 3
    # Megatron-LM, megatron/training/training.py, num_floating_point_operations, with causal attention
    inside = 1 + kv / heads + s / h / 2 + inner / h * 1.5 + vocab / (2 * layers * h)
    assert model_flops(llama(size), Batch(sequences, s)) == pytest.approx(
        12 * sequences * s * layers * h * h * inside, rel=1e-4
    )


@pytest.mark.parametrize(
    ("size", "tokens_per_second", "tflops"),
    [("8B", 31508, 1622), ("70B", 1633, 734), ("70B", 7397, 3321), ("405B", 1413, 3575), ("405B", 1048, 2646)],
)
def test_flops_agree_with_nvidias_printed_rates(size, tokens_per_second, tflops):
    """Megatron-Bridge prints both tokens/s and TFLOP/s of a GPU, rounded to three or four digits."""
    per_token = model_flops(llama(size), Batch(1, 8192)) / 8192
    assert per_token * tokens_per_second / 1e12 == pytest.approx(tflops, rel=3e-3)


def test_recomputation_is_a_third_more_work_and_not_model_work(llama70):
    machine, batch = cluster("DGX H100", 64), Batch(128, 4096)
    once, twice = (plan(llama70, machine, batch, Layout(data=8, tensor=8, recompute=r)) for r in ("none", "full"))
    assert once.hfu == once.mfu and once.flops == twice.flops
    layers = llama70.matmul_parameters - llama70.vocab * llama70.hidden
    more = 2 * layers * batch.tokens + 2 * 80 * batch.sequences * 4096**2 * 8192  # scores and their sum, half of them
    assert twice.hardware_flops - once.hardware_flops == pytest.approx(more, rel=1e-9)


# ------------------------------------------------------------------------------------------------------- seconds


@pytest.mark.parametrize(
    ("layout", "sequences"),
    [
        (Layout(data=2, tensor=2, pipe=2, overlap=False), 32),
        (Layout(pipe=8, recompute="full"), 24),
        (Layout(pipe=4, tensor=2, micro_batch=2), 64),
        (Layout(data=8, overlap=False), 16),
    ],
    ids=str,
)
def test_the_simulated_schedule_takes_as_long(small, layout, sequences):
    p = plan(small, cluster("DGX A100", 8), Batch(sequences, 1024), layout)
    simulated = p.execution()
    # Messages run beside the computation there and between it here.
    assert simulated.seconds + p.seconds["optimizer"] == pytest.approx(p.step_time, rel=0.02)
    assert sum(p.seconds.values()) == pytest.approx(p.step_time) and min(p.seconds.values()) >= 0
    assert json.loads(simulated.chrome_trace())["traceEvents"]


def test_data_parallel_communication_hides_as_layer_by_layer(small):
    """The same step on the simulator: equal layers, each reduced when its gradient is there."""
    machine, layout = cluster("DGX A100", 8, network=1e9), Layout(data=8, stage=0)
    work = step_work(small, machine, Batch(8, 1024), layout)
    backward = float(layer_seconds(work.backward, fitted()))
    for slower in (0.1, 1, 10):
        one = work.behind / 8 * slower
        seconds = overlap.simulate(overlap.layerwise([backward] * 8, [one] * 8)).seconds
        stretched = parts(type(work)(**(vars(work) | {"behind": 8 * one})), fitted())
        assert float(stretched["data"]) == pytest.approx(seconds - 8 * backward)


@pytest.mark.parametrize(
    ("node", "nodes", "measured"),
    [("DGX A100", 2, 192e9), ("DGX H100", 4, 365.84e9), ("DGX A100", 1, None)],
    ids=["2 DGX A100", "4 DGX H100", "1 DGX A100"],
)
def test_all_reduces_take_what_was_measured(node, nodes, measured):
    """NVIDIA/nccl issue 812, nccl-tests issue 309, and a recorded sweep: bus bandwidth of a large all-reduce."""
    ranks = 8 * nodes
    busbw = 2 * (ranks - 1) / ranks * 2**33 / collective_time("all_reduce", 2**33, ranks, 1, cluster(node, ranks))
    assert busbw == pytest.approx(measured or max(recorded("A100").busbw), rel=0.06)


def test_groups_side_by_side_share_the_ports():
    machine = cluster("DGX H100", 64)
    alone = collective_time("reduce_scatter", 1e10, 64, 1, machine)
    beside = collective_time("reduce_scatter", 1e10, 8, 8, machine)  # eight groups, a device of each in every node
    assert beside / alone == pytest.approx(8 * 7 / 8 / (63 / 64), rel=0.06)
    assert collective_time("all_reduce", 1e6, 1, 1, machine) == 0
    inside, outside = (collective_time("all_to_all", 1e9, 8, stride, machine) for stride in (1, 8))
    assert outside > 5 * inside


def test_many_steps_priced_at_once_are_each_the_same(small):
    machine, batch = cluster("DGX A100", 16), Batch(64, 1024)
    chosen = layouts(small, machine, batch)[::17]
    works = [step_work(small, machine, batch, layout) for layout in chosen]
    together = sum(parts(stack(works), fitted()).values())
    assert together.tolist() == pytest.approx([plan(small, machine, batch, one).step_time for one in chosen])


def test_a_slower_network_exposes_more_and_costs_more(llama70):
    batch, layout = Batch(64, 4096), Layout(data=64, stage=3, recompute="full")
    fast, slow = (plan(llama70, cluster("DGX H100", 64, network=b), batch, layout) for b in (50e9, 2e9))
    assert slow.exposed > 3 * fast.exposed and slow.hidden > fast.hidden and slow.cost(1e12) > fast.cost(1e12)
    assert fast.cost(1e12) == pytest.approx(2.0 * 64 * fast.days(1e12) * 24)


def test_interleaving_shrinks_the_bubble_and_keeps_more():
    model, machine, batch = llama("70B"), cluster("DGX H100", 64), Batch(64, 4096)
    plain, cut = (plan(model, machine, batch, Layout(data=2, tensor=4, pipe=8, chunks=v)) for v in (1, 2))
    assert cut.seconds["bubble"] < 0.6 * plain.seconds["bubble"]
    assert cut.memory.activations == pytest.approx(plain.memory.activations * (1 + 7 / 16))


# ------------------------------------------------------------------------------------------------------- memory


def test_more_zero_never_holds_more(llama70):
    machine, batch = cluster("DGX H100", 64), Batch(64, 4096)
    totals = [plan(llama70, machine, batch, Layout(data=8, tensor=8, stage=s)).memory.state for s in range(4)]
    assert totals == sorted(totals, reverse=True) and totals[3] < totals[0] / 7


def test_state_is_eighteen_bytes_a_parameter_over_all_devices(llama70):
    p = plan(llama70, cluster("DGX H100", 64), Batch(64, 4096), Layout(data=64, stage=3))
    assert p.memory.state == pytest.approx(18 * llama70.parameters / 64, rel=1e-6)


@pytest.mark.parametrize("attention", ["naive", "flash"])
def test_recomputing_more_keeps_less(llama70, attention):
    machine, batch = cluster("DGX H100", 64), Batch(64, 4096)
    plans = [plan(llama70, machine, batch, Layout(8, 8, recompute=r, attention=attention)) for r in RECOMPUTE]
    kept = [p.memory.activations for p in plans]
    assert kept[0] >= kept[1] > kept[2] and (kept[0] == kept[1]) == (attention == "flash")


# ------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (Layout(tensor=7, data=9), "64 heads do not divide among tensor = 7"),
        (Layout(tensor=16, data=4), "8 key and value heads"),
        (Layout(pipe=64), "80 layers do not divide among pipe x chunks = 64"),
        (Layout(data=32, micro_batch=3, tensor=2), "128 sequences do not divide among data x micro_batch = 96"),
        (Layout(data=32, tensor=8), "is 256 devices, but the cluster has 64"),
        (Layout(data=8, tensor=8, expert=4), "has no experts"),
        (Layout(data=8, tensor=8, chunks=2), "there is no pipeline"),
        (Layout(data=8, pipe=8, micro_batch=2, chunks=5), "16 micro-batches"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_does_not_divide_is_named(llama70, layout, words):
    sequences = 256 if "micro-batches" in words else 128
    if words.startswith("8 key"):
        assert plan(llama70, cluster("DGX H100", 64), Batch(128, 8192), layout)  # copies of keys and values are fine
        return
    if "micro-batches" in words:
        sequences = 8 * 2 * 12
        words = "12 micro-batches (interleaved) do not divide among pipe = 8"
    with pytest.raises(ValueError, match=words.replace("(", r"\(").replace(")", r"\)")):
        plan(llama70, cluster("DGX H100", 64), Batch(sequences, 8192), layout)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cluster("DGX H10"), "did you mean DGX H100"),
        (lambda: cluster("H1000"), "H100"),
        (lambda: cluster("DGX H100", 12), "a multiple of the 8 of a node"),
        (lambda: cluster("DGX H100", 0), "devices is 0"),
        (lambda: cluster("DGX H100", network=-1.0), "network is -1.0"),
        (lambda: Batch(0, 4096), "sequences is 0"),
        (lambda: Batch(8, 4096.5), "context is 4096.5"),
        (lambda: Layout(stage=4), "stage is 4; there are 0, 1, 2, 3"),
        (lambda: Layout(recompute="some"), "none, selective, full"),
        (lambda: Layout(tensor=True), "tensor is True"),
    ],
    ids=range(10),
)
def test_bad_values_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_only_decoders_and_known_precisions_are_planned(small):
    bert = ModelShape.from_config({"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2,
                                   "num_attention_heads": 2, "intermediate_size": 128, "vocab_size": 100,
                                   "max_position_embeddings": 512, "type_vocab_size": 2})  # fmt: skip
    with pytest.raises(ValueError, match="decoder-only"):
        plan(bert, cluster("DGX H100"), Batch(8, 512), Layout(data=8))
    with pytest.raises(ValueError, match="A100 has no fp8 rate"):
        plan(small, cluster("DGX A100"), Batch(8, 512), Layout(data=8, precision="fp8"))


def test_a_plan_that_does_not_fit_says_by_how_much(llama70):
    p = plan(llama70, cluster("DGX H100"), Batch(8, 4096), Layout(tensor=8))
    assert not p.fits and p.headroom < 0
    assert f"{-p.headroom / 1e9:.3g} GB more than the 77 GB" in p.problem and "does not fit" in repr(p)


# ------------------------------------------------------------------------------------------------------- search


def test_the_search_finds_what_trying_everything_finds(small):
    machine, batch = cluster("DGX A100", 8), Batch(16, 1024)
    best = (math.inf, "")
    powers = (1, 2, 4, 8)
    for data, tensor, pipe, mb, stage, again in product(powers, powers, powers, (1, 2, 4, 8, 16), (1, 2, 3), RECOMPUTE):
        layout = Layout(data, tensor, pipe, micro_batch=mb, stage=stage, recompute=again)
        if data * tensor * pipe == 8 and 16 % (data * mb) == 0:
            p = plan(small, machine, batch, layout)
            best = min(best, (p.step_time if p.fits else math.inf, str(layout)))
    found = search(small, machine, batch, chunks=1)
    assert found.best.step_time == pytest.approx(best[0], rel=1e-6)
    assert [p.step_time for p in found.plans] == pytest.approx(sorted(p.step_time for p in found.plans), rel=1e-5)


def test_every_loser_has_its_reason(llama70):
    calls = []
    found = search(llama70, cluster("DGX H100", 64), Batch(128, 4096), progress=lambda *n: calls.append(n), keep=5)
    assert found.tried == len(found.plans) + len(found.refused) == 1 + len(found.losers) == calls[-1][0]
    assert sum(found.reasons.values()) == len(found.losers) and len(found.ranked) == 5
    assert all(loser.reason for loser in found.losers)
    over = next(loser for loser in found.losers if loser.step_time is None)
    p = plan(llama70, found.cluster, found.batch, over.layout)
    assert over.reason.startswith("needs ") and not p.fits
    second = found.losers[0]
    slower = found.plans[1].step_time / found.best.step_time - 1
    assert second.reason.startswith(f"{slower:.1%} slower") or second.reason.startswith("as fast")
    assert found.why(found.best.layout) == "it is the best" and found.why(second.layout) == second.reason
    assert "heads do not divide" in found.why(Layout(tensor=7)) and "not tried" in found.why(Layout(64, stage=0))
    assert "<table>" in found._repr_html_() and str(found.best.layout) in repr(found)


def test_constraints_and_fixed_values_hold(llama70):
    machine, batch = cluster("DGX H100", 64), Batch(128, 4096)

    def within(p):
        return "" if p.bubble < 0.02 else "too much bubble"

    found = search(llama70, machine, batch, within=within, tensor=(4, 8), recompute="full", stage=1)
    assert found.reasons["too much bubble"] > 0 and all(p.bubble < 0.02 for p in found.plans)
    assert {p.layout.tensor for p in found.plans} <= {4, 8} and {p.layout.recompute for p in found.plans} == {"full"}
    with pytest.raises(ValueError, match="tensr is no value of a layout"):
        search(llama70, machine, batch, tensr=8)
    with pytest.raises(ValueError, match="too much bubble"):
        _ = search(llama70, machine, batch, within=lambda p: "too much bubble").best


def test_a_model_that_fits_nowhere_says_by_how_much():
    found = search(sample("deepseek-v3.json"), cluster("DGX H100"), Batch(64, 4096))
    with pytest.raises(ValueError, match=r"fits under none of \d+ layouts.*TB too many"):
        _ = found.best
    assert "fits under none" in repr(found) and "fits under none" in found._repr_html_()


@pytest.mark.parametrize("name", ["TPU v4 pod", "MI300X platform", "GB200 NVL72", "Gaudi 3", "V100"])
def test_other_machines_are_planned_too(small, name):
    machine = cluster(name, 8, per_node=8)
    assert isinstance(machine, Cluster) and "each device and direction" in str(machine)
    assert 0.02 < search(small, machine, Batch(64, 1024)).best.mfu < 0.75


def test_experts_are_spread_and_their_messages_counted():
    machine, batch = cluster("DGX H100", 64), Batch(128, 4096)
    one, eight = (plan(sample("mixtral-8x7b.json"), machine, batch, Layout(data=64, expert=e)) for e in (1, 8))
    assert one.seconds["expert"] == 0 < eight.seconds["expert"]
    assert eight.memory.weights < one.memory.weights / 4


# ------------------------------------------------------------------------------------------------------- command


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("llama-3-70b --devices 64 --sequences 128 --top 2", 0, "layouts fit and are accepted"),
        ("llama-3-70b --devices 64 --tensor 8 --pipe 4", 0, "data 2 x tensor 8 x pipe 4"),
        ("llama-3-70b --devices 8 --tensor 8", 1, "does not fit"),
        ("llama-3-70b --devices 64 --tensor 7", 2, "64 heads do not divide among tensor = 7"),
        ("deepseek-v3 --devices 8", 2, "fits under none of"),
        ("llama-3-70b --cluster DGX-H10O", 2, "did you mean DGX H100"),
        ("nowhere.json", 2, "nowhere.json"),
        ("", 2, "name a config.json"),
    ],
)
def test_the_command_plans(capsys, words, code, says):
    assert main(["plan", *words.split()]) == code
    told = capsys.readouterr()
    assert says in told.out + told.err and "Traceback" not in told.err


def test_the_command_writes_json(capsys):
    assert main(["plan", "llama-2-7b", "--tensor", "2", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["layout"]["data"] == 4 and told["step_time"] == pytest.approx(sum(told["seconds"].values()))


def test_the_planner_takes_no_heavy_package():
    code = "import sys, distgen_lab.planner; print([m for m in ('torch', 'matplotlib', 'scipy') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
