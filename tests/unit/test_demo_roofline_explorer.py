"""The roofline demo: right by hand, pure, legible at the ends of its sliders, and in words for what it refuses."""

import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab.demos.panel import picture
from distgen_lab.demos.roofline_explorer import OPERATIONS, data, draw, roofline_explorer, words
from distgen_lab.hardware import ACCELERATORS

MATMUL = "matmul, size x size weights"


def controls(shown):
    return dict(zip(inspect.signature(data).parameters, shown.children[0].children, strict=True))


def test_a_matmul_by_hand():
    placed = data("H100", "bf16", MATMUL, 8192, 4096).placed
    assert placed.work.flops == 2 * 4096 * 8192 * 8192
    assert placed.work.traffic == 2 * (2 * 4096 * 8192 + 8192 * 8192)
    assert placed.limit == "compute" and placed.attainable == 989.4e12
    thin = data("H100", "bf16", MATMUL, 8192, 1).placed
    assert thin.limit == "HBM" and thin.attainable == pytest.approx(thin.work.intensity * 3.35e12)


def test_other_peaks_of_the_device_are_shown_once_each():
    others = data("H100", "bf16", MATMUL, 64, 64).others
    assert list(others.values()) == [("fp32",), ("tf32",), ("fp8", "int8")]
    assert list(others) == pytest.approx([66.9e12, 494.7e12, 1978.9e12])


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(ACCELERATORS)), st.sampled_from(sorted(OPERATIONS)), st.floats(3, 1e5), st.floats(1, 1e5))
def test_it_is_a_pure_function_of_its_controls(device, operation, size, batch):
    first, second = (data(device, "bf16", operation, size, batch) for _ in range(2))
    assert first == second and words(first) == words(second)
    placed = first.placed
    roof = ACCELERATORS[device]
    assert placed.attainable == min(roof.flops["bf16"], placed.work.intensity * roof.memory_bandwidth)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_is_drawn_and_described(operation):
    explored = data("B200", "fp8", operation, 2048, 16)
    said = words(explored)
    assert said.startswith(explored.placed.work.name) and ("HBM limits it" in said or "arithmetic limits it" in said)
    assert len(picture(lambda figure: draw(figure, explored), (9, 4.2))) < 100_000


def test_the_words_hold_the_numbers():
    said = words(data("H100", "bf16", MATMUL, 8192, 1))
    for text in (
        "134 MFLOP",
        "134 MB",
        "1 FLOP/B",
        "ridge of 295",
        "HBM limits it",
        "3.35 TFLOP/s",
        "0.339 %",
        "40.1 us",
    ):
        assert text in said
    assert " 100 % of the peak" in words(data("H100", "bf16", MATMUL, 8192, 8192))


def test_every_control_changes_the_picture_and_what_a_device_lacks_is_told():
    shown = roofline_explorer()
    first = shown.image.value
    found = controls(shown)
    for name, value in (("device", "A100"), ("precision", "fp8"), ("operation", "layernorm"), ("size", 100.0),
                        ("batch", 1000.0)):  # fmt: skip
        before = found[name].value
        found[name].value = value
        assert shown.image.value != first, name
        found[name].value = before
        assert shown.image.value == first, name
    found["device"].value = "A100"
    kept = shown.image.value
    found["precision"].value = "fp8"
    assert shown.caption.value == "<b>A100 has no fp8 rate here; it has fp32, tf32, bf16, int8</b>"
    assert shown.image.value == kept


@pytest.mark.parametrize("end", [0, -1])
def test_the_ends_of_the_sliders_are_drawn(end):
    shown = roofline_explorer()
    for name in ("size", "batch"):
        control = controls(shown)[name]
        control.index = end if end == 0 else len(control.options) - 1
        values = {name: control.value for name, control in controls(shown).items()}
    assert shown.caption.value == words(data(**values))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [(("H10", "bf16", MATMUL, 8, 8), "unknown accelerator 'H10'; did you mean .*H100"),
     (("H100", "bf16", "sort", 8, 8), "operation is 'sort'; there are: matmul"),
     (("H100", "bf16", MATMUL, 0, 8), "inner is 0; a positive whole number"),
     (("V100", "fp4", MATMUL, 8, 8), "V100 has no fp4 rate here")],
)  # fmt: skip
def test_bad_input_is_named(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        data(*values)
