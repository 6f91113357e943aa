"""The demo of the planner: what it shows is what the plan says."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from distgen_lab import overlap, plots
from distgen_lab.demos.panel import picture
from distgen_lab.demos.run_planner import PRESETS, data, draw, words

START = {"model": "Llama 3 70B", "machine": "DGX H100", "devices": 64, "sequences": 128, "context": 8192}
START |= {"tensor": 8, "pipe": 4, "stage": 1, "recompute": "selective"}


@pytest.mark.parametrize("name", [None, *PRESETS])
def test_every_preset_is_drawn_and_told(name):
    shown = data(**(START | PRESETS.get(name, {})))
    assert picture(lambda figure: draw(figure, shown), (9, 4.6)).startswith(b"\x89PNG")
    said = words(shown)
    assert ("does not fit" in said) is not shown.plan.fits
    assert str(shown.plan.layout) in said


def test_the_bars_add_up_to_the_plan():
    shown, figure = data(**START), Figure()
    draw(figure, shown)
    held, spent, _ = (sum(bar.get_width() for bar in ax.patches) for ax in figure.axes)
    assert held == pytest.approx(shown.plan.memory.total)
    assert spent == pytest.approx(shown.plan.step_time)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"tensor": 16, "pipe": 8}, "64 devices are not divided by tensor 16 x pipeline 8"),
        ({"model": "GPT-3 175B", "devices": 128, "tensor": 1, "pipe": 64}, "layers"),
        ({"devices": 512, "sequences": 8}, "sequences"),
    ],
)
def test_what_does_not_divide_is_told(change, word):
    with pytest.raises(ValueError, match=word):
        data(**(START | change))


def test_a_row_of_pixels_shows_when_a_stage_works():
    run = overlap.simulate(overlap.one_forward_one_backward(2, 2, 1.0, 2.0))
    ax = plots.stage_rows(Figure().add_subplot(), run, columns=900)
    busy = (np.asarray(ax.images[0].get_array()) != 1).any(axis=2).mean(axis=1)
    assert busy == pytest.approx([run.compute(stage) / run.seconds for stage in (0, 1)], abs=0.01)
