"""Trials of readers' functions: right and wrong ones leave values and bytes that can be told apart."""

import time

import pytest
import torch
import torch.distributed as dist

from distgen_lab.labs import trials
from distgen_lab.ranks import DeadlockError

pytestmark = pytest.mark.slow


def test_sums_hold_values_and_messages():
    def shout(data):
        request = dist.isend(data, 1 - dist.get_rank())
        got = torch.empty_like(data)
        dist.recv(got, 1 - dist.get_rank())
        request.wait()
        data += got

    assert trials.sums(shout, 2, [1, 2]) == {"values": [[3, 6]] * 2, "sent": [[1, 16]] * 2}
    assert trials.sums(dist.all_reduce, 3, [1], power=2) == {"values": [[14]] * 3, "sent": [[0, 0]] * 3}


def test_averages_hold_means_and_bytes():
    def average(gradients, cap):
        for gradient in gradients:
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()

    found = trials.averages(average, 2, [(2,), (3, 1)], 8)
    assert found["bytes"] == [[16, 24]] * 2
    wanted = []
    for rank in range(2):
        torch.manual_seed(rank)
        wanted.append([torch.randn(2, dtype=torch.float64), torch.randn(3, 1, dtype=torch.float64)])
    mean = [((a + b) / 2).flatten().tolist() for a, b in zip(*wanted, strict=True)]
    assert found["values"] == [mean, mean]


def test_steps_hold_parameters_momentum_and_calls():
    def step(parameters, gradient, momentum, rate, beta):
        dist.all_reduce(gradient)
        momentum += 1
        parameters -= rate

    found = trials.zero_steps(step, 2, 4, 3, 0.5, 0.9)
    assert found["values"] == [[[-1.5, -0.5, 0.5, 1.5], [3, 3]]] * 2
    assert found["calls"] == [[["all_reduce", 32]] * 3] * 2


def test_outputs_of_an_mlp_are_those_of_one_process():
    def dense(x, up, up_bias, down, down_bias):
        return torch.relu(x @ up + up_bias) @ down + down_bias

    found = trials.mlp_outputs(dense, 2, 3, 2, 4)
    torch.manual_seed(3)
    given = [torch.randn(shape, dtype=torch.float64) for shape in ((3, 2), (2, 4), (4,), (4, 2), (2,))]
    assert found == {"values": [dense(*given).tolist()] * 2, "calls": [[], []]}


def test_answers_of_experts_and_uneven_bytes():
    def own_expert(tokens, choice, apply):
        got = torch.empty_like(tokens)
        mine = [len(tokens) if rank == dist.get_rank() else 0 for rank in range(2)]
        dist.all_to_all_single(got, tokens, mine, mine)
        return apply(got)

    found = trials.expert_answers(own_expert, 2, [[0], [1, 1]])
    assert found == {"values": [[[1, 2]], [[1010, 1020], [1030, 1040]]], "bytes": [[16], [32]]}


def test_ranks_that_take_too_long_end_before_their_cell_would(monkeypatch):
    monkeypatch.setattr(trials, "PATIENCE", 3.0)
    with pytest.raises(DeadlockError, match="No end within 3 s"):
        trials.sums(lambda data: time.sleep(100), 2, [1])
