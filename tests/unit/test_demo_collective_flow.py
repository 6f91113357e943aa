"""Demo of collectives round by round: its states are those of the definition, its picture follows every control."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab.collectives import ALGORITHMS
from distgen_lab.demos.collective_flow import CHOICES, RANKS, collective_flow, data, draw, states, words
from distgen_lab.demos.panel import picture


def fitting(name, ranks):
    return ALGORITHMS[CHOICES[name]].takes(ranks)


def wanted(schedule):
    """By definition: (rank, chunk) that must be held in the end, each with its contributors."""
    ranks, everyone, block = schedule.ranks, frozenset(range(schedule.ranks)), schedule.parts // schedule.ranks
    for rank in range(ranks):
        for chunk in range(schedule.chunks):
            if schedule.collective == "all_reduce" or (schedule.collective == "reduce" and rank == schedule.root):
                yield rank, chunk, everyone
            elif schedule.collective == "broadcast":
                yield rank, chunk, {schedule.root}
            elif schedule.collective == "all_gather" or (schedule.collective == "gather" and rank == schedule.root):
                yield rank, chunk, {chunk // block}
            elif schedule.collective == "reduce_scatter" and chunk // block == rank:
                yield rank, chunk, everyone
            elif schedule.collective == "scatter" and chunk // block == rank:
                yield rank, chunk, {schedule.root}
            elif schedule.collective == "all_to_all" and chunk % ranks == rank:
                yield rank, chunk, {chunk // ranks}


@pytest.mark.parametrize("name", CHOICES)
def test_at_the_end_everyone_holds_what_the_collective_promises(name):
    for ranks in (p for p in RANKS if fitting(name, p)):
        shown = data(name, ranks, 1, 99)
        promised = list(wanted(shown.schedule))
        assert promised
        assert all(shown.held[rank][chunk] == holders for rank, chunk, holders in promised)


@pytest.mark.parametrize("name", [n for n in CHOICES if "reduce" in n])
def test_states_agree_with_sums_of_real_numbers(name):
    schedule = data(name, 8, 3, 0).schedule
    held = np.repeat(10.0 ** np.arange(8)[:, None], schedule.chunks, axis=1)
    for item, state in zip(schedule.rounds(), list(states(schedule))[1:], strict=True):
        before = held.copy()
        for source, target, chunk, reduce in item.rows():
            came = before[source, chunk]
            held[target, chunk] = held[target, chunk] + came if reduce else came
        sums = [[sum(10.0**r for r in holders) for holders in row] for row in state]
        assert (held == sums).all()


def test_the_rounds_are_right_by_hand():
    shown = data("broadcast: binomial broadcast", 8, 0, 2)
    assert [rank for rank, row in enumerate(shown.held) if row[0]] == [0, 2, 4, 6]
    assert shown.number == 2 and len(shown.states) == 4
    assert data("broadcast: binomial broadcast", 8, 0, 0).round is None
    assert data("broadcast: linear broadcast", 5, 99, 99).number == 4


def test_the_words_hold_the_numbers():
    assert "Round 2: 2 messages, copied" in words(data("broadcast: binomial broadcast", 8, 0, 2))
    said = words(data("all_reduce: ring all reduce", 8, 0, 0))
    assert "14 rounds" in said and "112 messages" in said and "7/4 n" in said
    assert "8 messages, added to" in words(data("all_reduce: ring all reduce", 8, 0, 3))


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(CHOICES)), st.sampled_from(RANKS), st.integers(0, 7), st.integers(0, 14))
def test_every_combination_is_shown_or_refused_in_words(name, ranks, root, number):
    try:
        shown = data(name, ranks, root, number)
    except ValueError as error:
        assert not fitting(name, ranks) and str(ranks) in str(error)
        return
    assert len(picture(lambda figure: draw(figure, shown), (9, 3.6))) < 100_000
    assert words(shown) == words(data(name, ranks, root, number))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="collective is 'gossip'; there are: broadcast"):
        data("gossip", 4, 0, 0)
    with pytest.raises(ValueError, match="ranks is 9; 2 to 8"):
        data("broadcast: binomial broadcast", 9, 0, 0)


def test_every_control_changes_the_picture_and_a_refused_one_keeps_it():
    shown = collective_flow()
    controls = dict(zip(inspect.signature(data).parameters, shown.children[0].children, strict=True))
    first = shown.image.value
    for name, value in (("collective", "all_reduce: ring all reduce"), ("ranks", 5), ("root", 3), ("number", 1)):
        before, controls[name].value = controls[name].value, value
        assert shown.image.value != first, name
        controls[name].value = before
        assert shown.image.value == first, name
    controls["ranks"].value = 6
    kept = shown.image.value
    controls["collective"].value = "all_gather: recursive doubling all gather"
    assert shown.image.value == kept and "<b>" in shown.caption.value
