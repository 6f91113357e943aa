"""Lecture demos: pure data, a picture that changes with its controls and keeps its size, sentences for errors."""

import importlib
import inspect
import struct
from base64 import b64decode
from io import BytesIO

import ipywidgets as widgets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from distgen_lab.demos.panel import Panel, log_slider, panel, picture
from distgen_lab.demos.three_walls import data, draw, three_walls, words
from distgen_lab.hardware import ACCELERATORS


def size(png: bytes) -> tuple[int, int]:
    """Width and height from the header of a PNG."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and png[12:16] == b"IHDR"
    return struct.unpack(">II", png[16:24])


def controls(shown: Panel, function=data) -> dict:
    """The controls by the name of the argument they set."""
    return dict(zip(inspect.signature(function).parameters, shown.children[0].children, strict=True))


def test_the_data_are_right_by_hand():
    walls = data(175e9, 300e9, "A100", 1000.0, 4e6)
    assert walls.state == 2.8e12 and walls.per_device == 2.8e9 and walls.devices_for_state == 35
    assert walls.device_memory == 80e9
    assert walls.seconds == pytest.approx(3.15e23 / (1000 * 312e12 * 0.4))
    assert walls.step_compute == pytest.approx(6 * 175e9 * 4e6 / (1000 * 312e12 * 0.4))
    assert walls.step_communication == pytest.approx(2 * 0.999 * 350e9 / 25e9)


@settings(max_examples=30)
@given(st.floats(1e8, 1e13), st.floats(1e9, 1e14), st.sampled_from(sorted(ACCELERATORS)), st.floats(1, 1e5),
       st.floats(1e5, 1e9))  # fmt: skip
def test_the_data_are_a_pure_function_of_the_controls(parameters, tokens, device, devices, batch):
    before = dict(ACCELERATORS)
    first, second = (data(parameters, tokens, device, devices, batch) for _ in range(2))
    assert first == second and before == ACCELERATORS
    assert first.seconds == pytest.approx(
        6 * parameters * tokens / (int(devices) * ACCELERATORS[device].flops["bf16"] * 0.4)
    )
    assert first.step_compute == pytest.approx(first.seconds * batch / tokens)
    assert words(first) == words(second)


def test_the_words_hold_the_numbers():
    said = words(data(175e9, 300e9, "A100", 1000.0, 4e6))
    for text in ("2.8 TB", "at least 35 devices", "29.2 days", "40% MFU", "33.7 s", "28 s"):
        assert text in said


def test_the_same_data_make_the_same_picture():
    walls = data(7e9, 2e12, "H100", 512, 4e6)
    first, second = (picture(lambda figure: draw(figure, walls), (9, 3.4)) for _ in range(2))
    assert first == second and size(first) == (900, 340) and len(first) < 100_000


def test_every_control_changes_the_picture_and_none_its_size():
    shown = three_walls()
    seen = [shown.image.value]
    for name, control in controls(shown).items():
        before = control.value
        options = [option[1] if isinstance(option, tuple) else option for option in control.options]
        control.value = options[0] if options[0] != before else options[-1]
        seen.append(shown.image.value)
        assert seen[-1] != seen[-2], name
        control.value = before
        assert shown.image.value == seen[0], name
    assert {size(png) for png in seen} == {(900, 340)}
    assert (shown.image.width, shown.image.height) == ("900", "340")
    assert (shown.image.layout.width, shown.image.layout.height) == ("900px", "340px")


@pytest.mark.parametrize("end", [0, -1])
def test_the_ends_of_the_sliders_are_drawn(end):
    shown = three_walls()
    for control in controls(shown).values():
        control.index = end if end == 0 else len(control.options) - 1
    values = {name: control.value for name, control in controls(shown).items()}
    assert shown.caption.value == words(data(**values))
    assert shown.image.value == picture(lambda figure: draw(figure, data(**values)), (9, 3.4))


def small(refuse=lambda n: False):
    """A panel of one control that draws a line of its height."""

    def get(n):
        if refuse(n):
            raise ValueError(f"n is {n}; a number under 4 is needed")
        return n

    def line(figure, n):
        figure.subplots().plot([0, n])

    return panel({"n": widgets.IntSlider(1, 1, 5, description="n")}, get, line, lambda n: f"n is {n}.", size=(2, 1.5))


def test_a_refused_value_shows_its_sentence_and_keeps_the_picture():
    shown = small(lambda n: n > 3)
    slider = shown.children[0].children[0]
    slider.value = 3
    last = shown.image.value
    slider.value = 5
    assert shown.caption.value == "<b>n is 5; a number under 4 is needed</b>"
    assert shown.image.value == last
    slider.value = 2
    assert shown.caption.value == "n is 2." and shown.image.value != last
    assert size(shown.image.value) == size(last) == (200, 150)


def test_an_error_that_is_no_sentence_for_the_reader_is_not_hidden():
    def broken(n):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        panel({"n": widgets.IntSlider()}, broken, lambda figure, n: None, str)


def test_the_sentence_of_an_error_is_escaped():
    def refuse(n):
        raise ValueError("n < 4 is needed, not <i>")

    shown = panel({"n": widgets.IntSlider()}, refuse, lambda figure, n: None, str)
    assert shown.caption.value == "<b>n &lt; 4 is needed, not &lt;i&gt;</b>"


def test_where_no_widget_lives_the_picture_stands():
    shown = small()
    bundle = shown._repr_mimebundle_()
    still = Image.open(BytesIO(b64decode(bundle["image/png"])))
    assert still.mode == "P" and still.size == size(shown.image.value)
    live = np.asarray(Image.open(BytesIO(shown.image.value)), float)
    assert np.abs(np.asarray(still.convert("RGB"), float) - live).mean() < 1
    assert bundle["text/plain"] == "n is 1."
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_a_log_slider_has_three_steps_a_decade_and_the_given_value():
    slider = log_slider("devices", 10, 1e3, 300.0)
    assert [value for _, value in slider.options] == [10, 20, 50, 100, 200, 300, 500, 1000]
    assert [label for label, _ in slider.options][-2:] == ["500", "1 k"]
    assert slider.value == 300.0 and slider.description == "devices"


def test_every_demo_is_a_pure_function_a_drawing_and_a_panel():
    demos = importlib.import_module("distgen_lab.demos")
    assert "three_walls" in demos.__all__
    for name in demos.__all__:
        module = importlib.import_module(f"distgen_lab.demos.{name}")
        assert getattr(demos, name) is getattr(module, name)
        assert {"data", "draw", "words", name} <= set(module.__all__)
