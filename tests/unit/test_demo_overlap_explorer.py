"""Demo of overlap: its times are closed forms, its words hold its numbers, its picture follows every control."""

import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab.demos.overlap_explorer import CHANNELS, LAYERS, SIZE, data, draw, overlap_explorer, words
from distgen_lab.demos.panel import picture


def ring(nbytes, alpha, bandwidth):
    """An all-reduce of 64 ranks, written out."""
    return 126 * alpha * 1e-6 + 2 * 63 / 64 * nbytes / (bandwidth * 1e9)


def test_the_data_are_right_by_hand():
    shown = data(4, compute=10.0, mbytes=100.0, bucket=200.0, alpha=5.0, bandwidth=20.0, channels=1)
    pair = ring(200e6, 5, 20)
    assert shown.buckets == 2 and shown.compute == pytest.approx(0.04)
    assert shown.run.seconds == pytest.approx(max(0.02 + 2 * pair, 0.04 + pair))
    assert shown.naive.seconds == pytest.approx(0.04 + ring(400e6, 5, 20))
    assert shown.communication == pytest.approx(2 * pair)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(LAYERS), st.floats(0.1, 100), st.floats(0.1, 1000), st.floats(0.1, 1e4), st.floats(0.1, 1000),
       st.floats(1, 1000), st.sampled_from(CHANNELS))  # fmt: skip
def test_a_step_lies_between_its_bound_and_the_sum(layers, compute, mbytes, bucket, alpha, bandwidth, channels):
    shown = data(layers, compute, mbytes, bucket, alpha, bandwidth, channels)
    assert shown.bound * (1 - 1e-9) <= shown.run.seconds <= (shown.compute + shown.communication) * (1 + 1e-9)
    assert shown.run.seconds == pytest.approx(shown.compute + shown.run.exposed())
    assert words(shown) == words(data(layers, compute, mbytes, bucket, alpha, bandwidth, channels))


def test_the_words_hold_the_numbers():
    said = words(data(12, 5.0, 50.0, 100.0, 5.0, 20.0, 1))
    for text in (
        "6 buckets",
        "72.8 ms",
        "12.8 ms is exposed",
        "80% of it is hidden",
        "120 ms",
        "1.64 times",
        "62.8 ms",
    ):
        assert text in said
    assert words(data(1, 5.0, 50.0, 100.0, 5.0, 20.0, 1)).startswith("1 bucket: ")


def test_the_same_data_make_the_same_picture_of_the_same_size():
    shown = data(64, 5.0, 50.0, 10.0, 5.0, 20.0, 8)
    first, second = (picture(lambda figure: draw(figure, shown), SIZE) for _ in range(2))
    assert first == second and first[16:24] == (720).to_bytes(4, "big") + (350).to_bytes(4, "big")
    assert len(first) < 100_000


def test_every_control_changes_the_picture():
    shown = overlap_explorer()
    controls = dict(zip(inspect.signature(data).parameters, shown.children[0].children, strict=True))
    first = shown.image.value
    for name, control in controls.items():
        before = control.index
        control.index = len(control.options) - 1
        assert shown.image.value != first and shown.caption.value, name
        control.index = before
        assert shown.image.value == first, name


@pytest.mark.parametrize("end", [0, -1])
def test_the_ends_of_the_sliders_are_drawn(end):
    shown = overlap_explorer()
    controls = shown.children[0].children
    for control in controls:
        control.index = 0 if end == 0 else len(control.options) - 1
    assert shown.caption.value == words(data(*(control.value for control in controls)))
