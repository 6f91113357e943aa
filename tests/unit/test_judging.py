"""Schedules in answers: judged by what they do, not by how they are written."""

import pytest

from distgen_lab import collectives, judging
from distgen_lab.collectives import Schedule
from distgen_lab.plain import encode

BINOMIAL = encode(collectives.binomial_broadcast(8).arrays())


def broadcast(rounds, ranks=8, root=0):
    return encode(Schedule.from_transfers("broadcast", ranks, rounds, root=root).arrays())


def other_tree():
    """Halving distances, as against the library's order."""
    return broadcast([[(rank, rank + step, 0, "copy") for rank in range(0, 8, 2 * step)] for step in (4, 2, 1)])


def linear():
    return broadcast([[(0, rank, 0, "copy")] for rank in range(1, 8)])


def test_another_right_schedule_is_as_good():
    assert other_tree() != BINOMIAL
    assert judging.difference(other_tree(), BINOMIAL) is None
    assert judging.difference([3, {"s": other_tree()}], [3.0, {"s": BINOMIAL}]) is None


def test_more_rounds_or_bytes_are_said_in_numbers():
    assert judging.difference(linear(), BINOMIAL) == "it takes 7 rounds, 3 are enough"
    doubling, ring = (
        encode(build(8).arrays()) for build in (collectives.recursive_doubling_all_reduce, collectives.ring_all_reduce)
    )
    assert judging.difference(ring, doubling) == "it takes 14 rounds, 3 are enough"
    assert judging.difference(doubling, ring) == "one rank sends or receives 3 n bytes, 1.75 n are enough"


def test_more_messages_at_a_time_are_no_shortcut():
    pairs, direct = (
        encode(build(4).arrays())
        for build in (collectives.recursive_doubling_all_gather, collectives.direct_all_gather)
    )
    words = judging.difference(direct, pairs)
    assert words == "one rank sends or receives 3 messages in one round, 1 at a time are allowed"


def test_a_wrong_schedule_is_told_its_first_fault():
    short = broadcast([[(0, 4, 0, "copy")], [(0, 2, 0, "copy")]])
    assert "rank 1" in judging.difference(short, BINOMIAL)
    early = broadcast([[(3, 1, 0, "copy")]])
    assert "round 0" in judging.difference(early, BINOMIAL)


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (5, "the answer is a int, a schedule is wanted"),
        ({"name": "x"}, "a schedule is wanted"),
        (broadcast([[(0, 1, 0, "copy")]], ranks=2), "the schedule's ranks is 2, 8 is wanted"),
        (encode(collectives.binomial_broadcast(8, 3).arrays()), "the schedule's root is 3, 0 is wanted"),
        (encode(collectives.ring_all_reduce(8).arrays()), "the schedule's collective is all_reduce, broadcast"),
        (BINOMIAL | {"parts": "many"}, "parts is 'many'"),
        (BINOMIAL | {"rounds": [{"source": [0]}]}, "round 0 does not have the columns"),
    ],
)
def test_what_is_no_such_schedule_is_named(got, words):
    assert words in judging.difference(got, BINOMIAL)


def test_what_holds_no_schedule_is_compared_as_ever():
    assert judging.difference([1, 2.0], [1, 2]) is None
    assert judging.difference([1, 3], [1, 2]) == "item 2 is 3"
    assert judging.difference([1], [1, 2]) == "the answer has 1 items, 2 are wanted"
    assert judging.difference([BINOMIAL], [BINOMIAL, BINOMIAL]) == "the answer has 1 items, 2 are wanted"
    assert "has the keys" in judging.difference({"a": 1}, {"b": BINOMIAL})


def priced(schedule, network="dgx_pair", nbytes=1e9):
    return {"schedule": encode(schedule.arrays()), "network": network, "nbytes": nbytes}


def test_on_a_network_only_right_and_fast_count():
    good, slow = collectives.hierarchical_all_reduce(2, 8), collectives.ring_all_reduce(16)
    assert judging.difference(priced(good), priced(good)) is None
    assert "s on that network" in judging.difference(priced(slow), priced(good))
    assert judging.difference(priced(good), priced(slow)) is None
    assert judging.difference(good.arrays(), priced(good)) == "the answer is a dict, a schedule is wanted"


def test_the_reader_cannot_choose_network_or_size():
    good, slow = collectives.hierarchical_all_reduce(2, 8), collectives.ring_all_reduce(16)
    assert judging.difference(priced(slow, "none", 0.0), priced(good)) is not None


def test_the_same_are_those_that_cost_alike():
    assert judging.same(other_tree(), BINOMIAL)
    assert not judging.same(linear(), BINOMIAL)
    assert judging.same([1, linear()], [1, linear()])
    assert not judging.same(1, 2)


def test_every_network_can_be_routed():
    for build in judging.NETWORKS.values():
        network = build()
        assert len(network.route(0, network.hosts - 1)) >= 2
