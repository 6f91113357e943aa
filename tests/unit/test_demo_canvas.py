"""The canvas of the demos: the same words, ticks and curves at the same places as matplotlib's own."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from distgen_lab.demos.canvas import Sketch, pixels


def figure():
    made = Figure(figsize=(6, 4), dpi=100)
    ax = made.add_axes((0.15, 0.15, 0.8, 0.75))
    ax.plot([1, 10, 1000], [0, 40, 10])
    ax.set(xscale="log", xlabel="size", ylabel="seconds", title="a title", ylim=(0, 50))
    ax.text(20, 20, "turned", rotation=40)
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    return made


def plain(made):
    canvas = FigureCanvasAgg(made)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def blurred(drawn):
    """The ink in squares of 10 x 10 pixels: what moves by a pixel changes it little."""
    ink = 255.0 - drawn[..., :3].mean(axis=2)
    return ink.reshape(ink.shape[0] // 10, 10, -1, 10).mean(axis=(1, 3))


def test_it_draws_what_matplotlib_draws():
    ours, theirs = blurred(pixels(figure())), blurred(plain(figure()))
    assert ours.shape == theirs.shape
    assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.9
    assert ours.sum() == pytest.approx(theirs.sum(), rel=0.05)


def test_axes_switched_off_stay_off():
    made = Figure(figsize=(2, 2), dpi=100)
    made.add_axes((0.2, 0.2, 0.7, 0.7)).axis("off")
    assert (pixels(made)[..., :3] == 255).all()


def test_axes_without_labels_of_ticks_have_their_frame_in_its_place():
    def rows(kind, draw):
        made = kind(figsize=(4, 4), dpi=100)
        made.subplots(2, 1, sharex=True)[0].set(xlim=(0, 1), ylim=(-1, 3))
        return list(np.flatnonzero((draw(made)[:200, 100:300, 0] < 50).all(axis=1)))

    assert rows(Sketch, pixels) == rows(Figure, plain)
