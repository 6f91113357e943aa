"""Tensor, sequence and expert parallelism on real ranks against their dense twins, torch's own, and counted bytes."""

import pytest
import torch

from distgen_lab.labs import moe, parallel, tensor_parallel
from distgen_lab.labs import sequence_parallel as sequence
from distgen_lab.labs.parallel import least_bytes
from distgen_lab.parallelism import sequence_traffic, tensor_traffic
from distgen_lab.ranks import RankError, launch

pytestmark = pytest.mark.slow

ROUNDING = 1e-13
DOUBLE = 8


# ------------------------------------------------------------------ the twins themselves


def test_attention_of_the_twin_is_that_of_torch():
    torch.manual_seed(3)
    query, key, value = torch.randn(3, 5, 8, dtype=torch.float64)
    for head in range(2):
        part = slice(4 * head, 4 * head + 4)
        scores = query[:, part] @ key[:, part].T / 2
        scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
        wanted = scores.softmax(-1) @ value[:, part]
        assert parallel.apart(tensor_parallel.attend(query, key, value, 2)[:, part], wanted) < ROUNDING


def test_the_dense_mixture_is_a_weighted_sum_of_experts():
    torch.manual_seed(0)
    model, x = moe.DenseMoE(4, 8, experts=3, active=3), torch.randn(5, 4, dtype=torch.float64)
    every = torch.stack([expert(x) for expert in model.experts], 1)
    assert parallel.apart(model(x), (model.router(x).softmax(-1).unsqueeze(-1) * every).sum(1)) < ROUNDING


# ------------------------------------------------------------------ tensor parallelism


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("kind", ["MLP", "attention"])
def test_a_cut_layer_equals_its_dense_twin(kind, ranks):
    run = launch(tensor_parallel.compare, ranks, args=(kind,))
    assert max(max(errors.values()) for errors in run.values) < ROUNDING
    activations = 12 * 16 * DOUBLE
    for result in run:
        reduces = [span for span in result.events if span.op == "all_reduce"]
        assert [span.nbytes for span in reduces] == [activations, activations]  # one forward, one backward
        assert least_bytes(result.events) == tensor_traffic(activations, ranks)


def test_torch_cuts_the_same_mlp_to_the_same_result():
    assert max(max(errors.values()) for errors in launch(tensor_parallel.compare_torch, 4).values) < ROUNDING


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("MLP", 12, 16, 62), "62 hidden units do not divide among 4 ranks"), (("smoke",), "unknown part 'smoke'"),
     (("attention", 12, 16, 2), "2 heads for 4 ranks: rank 2 would have none")],
)  # fmt: skip
def test_bad_input_of_tensor_parallelism(arguments, words):
    with pytest.raises(RankError, match=words):
        launch(tensor_parallel.compare, 4, args=arguments)


# ------------------------------------------------------------------ sequence parallelism


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("way", sequence.WAYS)
def test_attention_cut_by_tokens_equals_its_dense_twin(way, ranks):
    run = launch(sequence.compare, ranks, args=(way,))
    assert max(max(errors.values()) for errors in run.values) < ROUNDING
    for result in run:
        assert least_bytes(result.events) == 2 * sequence_traffic(way, 16 * 16 * DOUBLE, ranks)
    counted = run.timeline.traffic()[0].collectives
    counted.pop("all_gather_object")
    wanted = {"Megatron": {"all_gather_single": 2, "reduce_scatter_single": 2}, "Ulysses": {"all_to_all_single": 8}}
    assert counted == wanted[way]


def test_ulysses_sends_less_the_more_ranks_there_are():
    sent = [sequence_traffic("Ulysses", 1.0, ranks) for ranks in (2, 4, 8, 16)]
    assert sent == sorted(sent, reverse=True)
    assert sequence_traffic("Megatron", 1.0, 4) / sequence_traffic("Ulysses", 1.0, 4) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("smoke",), "unknown way 'smoke'"), (("Megatron", 18), "18 tokens do not divide"),
     (("Ulysses", 16, 16, 2), "rank 2 would have none")],
)  # fmt: skip
def test_bad_input_of_sequence_parallelism(arguments, words):
    with pytest.raises(RankError, match=words):
        launch(sequence.compare, 4, args=arguments)
    with pytest.raises(ValueError, match="unknown way"):
        sequence_traffic("smoke", 1, 2)


# ------------------------------------------------------------------ mixture of experts


@pytest.mark.parametrize(("ranks", "active"), [(2, 1), (4, 1), (4, 2), (8, 2)])
def test_a_mixture_over_ranks_equals_its_dense_twin(ranks, active):
    run = launch(moe.compare, ranks, args=(24, 8, active))
    for value in run.values:
        assert sum(value.pop("rows sent")) == 24 // ranks * active
        assert max(value.values()) < ROUNDING


def test_uneven_pieces_travel_and_are_counted():
    run = launch(moe.compare, 4)
    table = [value["rows sent"] for value in run.values]
    assert len({tuple(row) for row in table}) > 1  # uneven, or the test says nothing
    for rank, result in enumerate(run):
        spans = [span for span in result.events if span.op == "all_to_all_single"]
        assert [span.count for span in spans[:3]] == [4, 12, 12 * 8] or [span.count for span in spans[:3]] == [
            4,
            96,
            12,
        ]
        received = sum(row[rank] for row in table)
        assert [span.count for span in spans[3:]] == [8 * received, 96, 8 * received]


def test_a_rank_without_tokens_and_an_expert_without_any_are_served():
    def work():
        rank = parallel.own_rank()[0]
        torch.manual_seed(0)
        dense = moe.DenseMoE(4, 8, experts=4, active=1)
        x = torch.randn(3, 4, dtype=torch.float64)[: 0 if rank else 3]
        return parallel.apart(moe.ParallelMoE(dense)(x), dense(x)) if len(x) else len(moe.ParallelMoE(dense)(x))

    values = launch(work, 4).values
    assert values[0] < ROUNDING and values[1:] == [0, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((24, 10), "10 experts do not divide among 4 ranks"), ((4, 8), "8 experts for 4 tokens"),
     ((24, 8, 9), "active is 9"), ((24, 8, 0), "active is 0")],
)  # fmt: skip
def test_bad_input_of_a_mixture(arguments, words):
    with pytest.raises(RankError, match=words):
        launch(moe.compare, 4, args=arguments)


def test_rows_must_add_up():
    with pytest.raises(ValueError, match="out adds up to 3 rows; there are 4"):
        moe.swap(torch.ones(4, 2), [1, 2], [2, 2])
