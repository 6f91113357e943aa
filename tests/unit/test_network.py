"""The emulated link: real messages, right data, never faster than alpha + n beta, and no library collectives."""

import time

import pytest
import torch
import torch.distributed as dist

from distgen_lab.alphabeta import Link
from distgen_lab.ranks import RankError, launch

LINK = Link(alpha=0.02, beta=1e-6)


def timed(work):
    dist.barrier()
    start = time.monotonic()
    result = work()
    return time.monotonic() - start, result


def test_a_message_takes_at_least_alpha_plus_n_beta_and_arrives_whole():
    def work():
        data = torch.arange(1250, dtype=torch.float64) if dist.get_rank() == 0 else torch.zeros(1250).double()
        step = dist.send if dist.get_rank() == 0 else dist.recv
        return (*timed(lambda: step(data, 1 - dist.get_rank())), data.sum().item())

    for seconds, _, total in launch(work, ranks=2, network=LINK).values:
        assert seconds >= LINK.time(10_000) - 0.002
        assert total == sum(range(1250))


def test_a_receiver_that_waits_counts_from_the_moment_the_sender_began():
    def work():
        data = torch.ones(1)
        if dist.get_rank() == 0:
            time.sleep(0.3)
            dist.send(data, 1)
            return 0.0
        return timed_from_now(lambda: dist.recv(data, 0))

    def timed_from_now(receive):
        start = time.monotonic()
        receive()
        return time.monotonic() - start

    assert launch(work, ranks=2, network=LINK).values[1] >= 0.3 + LINK.alpha - 0.05


def test_a_rank_sends_one_message_at_a_time():
    def work():
        if dist.get_rank() == 0:
            requests = [dist.isend(torch.ones(1), peer) for peer in (1, 2, 3)]
            return timed(lambda: [request.wait() for request in requests])[0]
        data = torch.zeros(1)
        dist.recv(data, 0)
        dist.barrier()
        return data.item()

    values = launch(work, ranks=4, network=Link(0.1, 0)).values
    assert values[1:] == [1, 1, 1]


def test_tags_and_any_source_find_their_messages():
    def work():
        rank = dist.get_rank()
        if rank:
            requests = [dist.isend(torch.tensor([float(10 * rank + tag)]), 0, tag=tag) for tag in (2, 1)]
            for request in requests:
                request.wait()
            return None
        got = {tag: [] for tag in (1, 2)}
        for tag in (1, 2):
            for _ in (1, 2):
                data = torch.zeros(1)
                source = dist.recv(data, tag=tag)
                got[tag].append((source, data.item()))
        return {tag: sorted(pairs) for tag, pairs in got.items()}

    value = launch(work, ranks=3, network=Link(1e-3, 0)).values[0]
    assert value == {1: [(1, 11.0), (2, 21.0)], 2: [(1, 12.0), (2, 22.0)]}


def test_recorded_spans_last_as_long_as_the_link_makes_them():
    def work():
        other, data = 1 - dist.get_rank(), torch.ones(2500)
        request = dist.isend(data, other)
        dist.recv(torch.empty(2500), other)
        request.wait()

    run = launch(work, ranks=2, network=LINK)
    for result, partner in zip(run, reversed(run), strict=True):
        assert [event.op for event in result.events] == ["isend", "recv"]
        assert result.events[0].seconds >= LINK.time(10_000) - 0.002
        assert result.events[1].end >= partner.events[0].start + LINK.time(10_000) - 0.002


def test_is_completed_turns_true_only_when_the_message_is_through():
    def work():
        if dist.get_rank() == 0:
            dist.send(torch.ones(1), 1)
            return None
        request, looks = dist.irecv(torch.zeros(1), 0), 0
        while not request.is_completed():
            looks += 1
            time.sleep(0.005)
        return looks

    assert launch(work, ranks=2, network=Link(0.05, 0)).values[1] >= 3


@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "all_gather_into_tensor"])
def test_a_library_collective_is_refused_with_the_reason(name):
    def work():
        getattr(dist, name)(torch.ones(1), torch.ones(1)) if "gather" in name else getattr(dist, name)(torch.ones(1), 0)

    with pytest.raises(RankError, match=f"{name} communicates inside the library"):
        launch(work, ranks=2, network=LINK)
