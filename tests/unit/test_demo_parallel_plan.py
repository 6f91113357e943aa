"""Demo of parallel plans: its numbers by hand, its words hold them, refusals stay sentences, every control redraws."""

import pytest

from distgen_lab.demos.panel import picture
from distgen_lab.demos.parallel_plan import MFU, MODELS, data, draw, parallel_plan, words


def test_the_numbers_are_right_by_hand():
    view = data("GPT-3 175B", tensor=8, pipe=4, replicas=8, stage=0)
    parameters = 96 * 12 * 12288**2 + 50257 * 12288 + 2048 * 12288
    assert view.plan.held.total == pytest.approx(16 * parameters / 32, rel=1e-3)
    compute = 6 * parameters * 512 * 4096 / (256 * 989.4e12 * MFU)
    assert view.seconds["compute"] == pytest.approx(compute, rel=2e-3)
    assert view.seconds["bubble"] == pytest.approx(compute * 3 / 64, rel=2e-3)  # m = 512 / 8 micro-batches
    activations = 2 * 64 * 4096 * 12288
    assert view.seconds["tensor"] == pytest.approx(24 * 2 * 2 * 2 * 7 / 8 * activations / 450e9)
    assert view.seconds["pipe"] == pytest.approx(2 * activations / 8 / 50e9)
    assert view.seconds["data"] == pytest.approx(2 * 7 / 8 * 2 * parameters / 32 / 50e9, rel=1e-3)
    assert not view.fits and data("GPT-3 175B", 8, 16, 32, 1).fits


def test_one_device_sends_nothing():
    view = data("Llama 2 7B", 1, 1, 1, 3)
    assert [view.seconds[kind] for kind in ("bubble", "tensor", "pipe", "data")] == [0, 0, 0, 0]


def test_the_words_hold_the_numbers():
    view = data("Llama 3 70B", 8, 4, 8, 1)
    said = words(view)
    for text in ("Llama 3 70B on 256 H100s", "64 micro-batches", "the bubble takes 4%", "if none hides"):
        assert text in said


def test_a_layout_that_does_not_divide_is_told_and_the_picture_stays():
    with pytest.raises(ValueError, match="80 layers do not divide among pipe = 3"):
        data("Llama 3 70B", 1, 3, 1, 0)
    demo = parallel_plan()
    before = demo.image.value
    demo.children[0].children[0].value = "Llama 2 7B"
    assert demo.image.value != before
    for control, value in zip(demo.children[0].children[1:], (1, 1, 512, 3), strict=True):
        control.value = value
    assert "Llama 2 7B on 512" in demo.caption.value


@pytest.mark.parametrize("model", MODELS)
def test_it_draws(model):
    view = data(model, 4, 2, 16, 2)
    assert picture(lambda figure: draw(figure, view), (9, 3.4)).startswith(b"\x89PNG")
