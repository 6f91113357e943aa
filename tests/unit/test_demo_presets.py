"""Every demo: its buttons set what they name, its large type is larger, and the way back leads to the first picture."""

import importlib
import inspect
import struct

import pytest

from distgen_lab import demos
from distgen_lab.demos.panel import LARGE, START


@pytest.fixture(scope="module", params=demos.__all__)
def demo(request):
    """A demo in large type, its module, its controls by the argument they set, and its buttons by name."""
    module = importlib.import_module(f"distgen_lab.demos.{request.param}")
    shown = getattr(module, request.param)(large=True)
    controls = dict(zip(inspect.signature(module.data).parameters, shown.children[0].children, strict=True))
    return module, shown, controls, {button.description: button for button in shown.buttons}


def values(controls):
    return {name: control.value for name, control in controls.items()}


def test_every_button_sets_what_it_names_and_start_leads_back(demo):
    module, shown, controls, buttons = demo
    first, picture, seen = values(controls), shown.image.value, set()
    assert len(module.PRESETS) >= 3
    for name, preset in module.PRESETS.items():
        buttons[name].click()
        assert values(controls) == first | preset, name
        assert shown.caption.value == module.words(module.data(**values(controls))), name
        seen.add(shown.image.value)
    assert len(seen) == len(module.PRESETS), "two buttons show the same picture"
    buttons[START].click()
    assert values(controls) == first and shown.image.value == picture


def test_large_type_is_larger_and_leaves_again(demo):
    _, shown, _, buttons = demo
    large = struct.unpack(">II", shown.image.value[16:24])
    assert "distgen-large" in shown._dom_classes
    buttons["large type"].value = False
    small = struct.unpack(">II", shown.image.value[16:24])
    assert "distgen-large" not in shown._dom_classes
    assert large == pytest.approx([LARGE * side for side in small], abs=1)
    assert (shown.image.width, shown.image.height) == tuple(map(str, small))
    buttons["large type"].value = True
    assert struct.unpack(">II", shown.image.value[16:24]) == large


def test_the_stored_picture_is_small(demo):
    assert len(demo[1].still()) < 30_000
