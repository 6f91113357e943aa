"""Demo of costs: its data are the closed forms, its words hold its numbers, its picture follows every control."""

import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab.demos.alpha_beta_explorer import (
    COLLECTIVES,
    RANKS,
    SIZE,
    SIZES,
    alpha_beta_explorer,
    data,
    draw,
    words,
)
from distgen_lab.demos.panel import picture


def test_the_data_are_right_by_hand():
    shown = data("all_reduce", alpha=1.0, bandwidth=25.0, ranks=256.0, nbytes=5e6)
    seconds = dict(zip((row.algorithm for row in shown.rows), shown.seconds, strict=True))
    assert seconds["ring"] == pytest.approx(510e-6 + 2 * 255 / 256 * 5e6 / 25e9)
    assert seconds["Rabenseifner"] == pytest.approx(16e-6 + 2 * 255 / 256 * 5e6 / 25e9)
    assert seconds["recursive doubling"] == pytest.approx(8 * (1e-6 + 5e6 / 25e9))
    assert shown.rows[shown.best].algorithm == "Rabenseifner"
    assert shown.bound == pytest.approx(2 * 255 / 256 * 5e6 / 25e9) and shown.winners.shape == (len(RANKS), len(SIZES))
    # 8 alpha + 8 n beta = 16 alpha + 2 (255/256) n beta
    ((size, _),) = shown.takeovers
    assert size == pytest.approx(8 * 1e-6 * 25e9 / (8 - 2 * 255 / 256))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(COLLECTIVES), st.floats(0.1, 1e5), st.floats(1e-3, 1e3), st.sampled_from(RANKS),
       st.floats(1e2, 1e10))  # fmt: skip
def test_the_best_is_no_slower_than_any_and_no_faster_than_the_bound(collective, alpha, bandwidth, ranks, nbytes):
    shown = data(collective, alpha, bandwidth, float(ranks), nbytes)
    assert shown.seconds[shown.best] <= min(shown.seconds) * (1 + 1e-9)
    assert shown.seconds[shown.best] >= shown.bound * (1 - 1e-9)
    assert all(SIZES[0] <= size <= SIZES[-1] * (1 + 1e-9) for size, _ in shown.takeovers)
    again = data(collective, alpha, bandwidth, float(ranks), nbytes)
    assert (again.winners == shown.winners).all() and words(again) == words(shown)


def test_the_winner_at_a_size_of_the_map_is_the_best_of_the_curves():
    for place in (0, 40, 80):
        shown = data("all_reduce", 2.0, 50.0, 64.0, float(SIZES[place]))
        assert shown.winners[RANKS.index(64), place] == shown.rows[shown.best].algorithm


def test_the_words_hold_the_numbers():
    said = words(data("all_reduce", 1.0, 25.0, 256.0, 5e6))
    for text in ("5 MB", "Rabenseifner is fastest with 414 us", "n_half of the link is 25 kB", "at 33.3 kB",
                 "less than 398 us"):  # fmt: skip
        assert text in said
    assert "The same one wins at every size shown" in words(data("scatter", 1.0, 25.0, 8.0, 1e6))


def test_the_same_data_make_the_same_picture_of_the_same_size():
    shown = data("broadcast", 1.0, 20.0, 100.0, 1e5)
    first, second = (picture(lambda figure: draw(figure, shown), SIZE) for _ in range(2))
    assert first == second and first[16:24] == (780).to_bytes(4, "big") + (320).to_bytes(4, "big")
    assert len(first) < 100_000


def test_every_control_changes_the_picture():
    shown = alpha_beta_explorer()
    controls = dict(zip(inspect.signature(data).parameters, shown.children[0].children, strict=True))
    first = shown.image.value
    for name, control in controls.items():
        before, options = control.value, [o[1] if isinstance(o, tuple) else o for o in control.options]
        control.value = options[0] if options[0] != before else options[-1]
        assert shown.image.value != first and shown.caption.value, name
        control.value = before
        assert shown.image.value == first, name


@pytest.mark.parametrize("end", [0, -1])
def test_the_ends_of_the_sliders_are_drawn(end):
    shown = alpha_beta_explorer()
    controls = shown.children[0].children
    for control in controls:
        control.index = end if end == 0 else len(control.options) - 1
    assert shown.caption.value == words(data(*(control.value for control in controls)))
