"""Demo of conjugate gradients: its times are the model written out, its words hold its numbers, its picture follows."""

import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab.demos.cg_latency import RANKS, SIDES, SIZE, cg_latency, data, draw, words
from distgen_lab.demos.panel import picture


def test_the_data_are_right_by_hand():
    shown = data(2.0, 4096, 2048)
    reduction = 12 * (2e-6 + 24 / 12.5e9)
    product = 2048**2 / 4096 * 9e-9 + 2e-6 + 8 * 2048 / 12.5e9
    rows = 2048**2 / 4096 * 1e-9
    assert (shown.reduction, shown.product) == pytest.approx((reduction, product))
    assert sum(shown.parts["classic"]) == pytest.approx(2 * reduction + product + rows + 10 * rows)
    assert sum(shown.parts["Chronopoulos-Gear"]) == pytest.approx(reduction + product + rows + 12 * rows)
    assert sum(shown.parts["Gropp"]) == pytest.approx(max(reduction, product) + max(reduction, rows) + 14 * rows)
    assert sum(shown.parts["pipelined"]) == pytest.approx(max(reduction, product + rows) + 20 * rows)
    assert shown.best == "pipelined"


@settings(max_examples=40, deadline=None)
@given(st.floats(0.1, 1000), st.sampled_from(RANKS), st.sampled_from(SIDES))
def test_exposed_time_is_never_negative_and_the_crossing_is_on_the_curves(alpha, ranks, side):
    shown = data(alpha, ranks, side)
    assert all(work > 0 and exposed >= -1e-12 for work, exposed in shown.parts.values())
    ahead = [a < b for a, b in zip(shown.curves["pipelined"], shown.curves["classic"], strict=True)]
    if shown.crossing is None:
        assert not any(ahead)
    else:
        first = ahead.index(True)
        assert (RANKS[first - 1] if first else 0) < shown.crossing <= RANKS[first]
    assert words(shown) == words(data(alpha, ranks, side))


def test_the_words_hold_the_numbers():
    said = words(data(2.0, 4096, 2048))
    for text in ("P = 4,096", "a reduction takes 24 us", "Fastest is pipelined", "1.61 times", "from 1,025 ranks"):
        assert text in said


def test_the_same_data_make_the_same_picture_of_the_same_size():
    shown = data(5.0, 256, 512)
    first, second = (picture(lambda figure: draw(figure, shown), SIZE) for _ in range(2))
    assert first == second and first[16:24] == (720).to_bytes(4, "big") + (280).to_bytes(4, "big")
    assert len(first) < 100_000


def test_every_control_changes_the_picture():
    shown = cg_latency()
    controls = dict(zip(inspect.signature(data).parameters, shown.children[0].children, strict=True))
    first = shown.image.value
    for name, control in controls.items():
        before = control.index
        control.index = 0
        assert shown.image.value != first and shown.caption.value, name
        control.index = before
        assert shown.image.value == first, name
