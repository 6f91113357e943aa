"""Checks: one report a cell, words for the reader, inputs from a seed, and library functions withheld."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from distgen_lab import checks, scale
from distgen_lab.checks import MIME, CheckFailed, explain, report, rng, withheld
from distgen_lab.models import ModelShape
from distgen_lab.scale import all_reduce_volume

KEY = {
    "q9-1-visible": {
        "title": "Exercise 9.1",
        "value": 14e9,
        "nudge": "Count bytes, not bits.",
        "hints": [{"value": 28e9, "hint": "28 GB is FP32; BF16 takes 2 bytes a parameter"}],
    },
    "q9-2-visible": {"title": "Exercise 9.2", "value": [1, 2], "rel": 0.1, "hints": []},
}


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setattr(checks, "answer_key", lambda section="": KEY)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A real IPython shell, as in a kernel, without history; gone after the test."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setattr(HistoryManager, "enabled", False)
    yield InteractiveShell.instance(colors="nocolor")
    InteractiveShell.clear_instance()


def run(shell, code):
    """Run a cell; return what it displayed, its error, and its text on both streams."""
    with capture_output() as captured:
        result = shell.run_cell(code)
    return captured.outputs, result.error_in_exec, captured.stdout + captured.stderr


# ------------------------------------------------------------------------------------------------- report


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("14e9", 14e9),
        ("np.float32(7)", 7.0),
        ("(i for i in range(3))", [0, 1, 2]),
        ("{'a': np.arange(2)}", {"a": [0, 1]}),
        ("[True]", [True]),
        ("float('nan')", "nan"),
        ("None", None),
    ],
)
def test_a_report_is_one_display_of_plain_data(shell, source, value):
    cell = f"import numpy as np\nfrom distgen_lab import checks\nchecks.report('some-hidden', {source})"
    outputs, error, text = run(shell, cell)
    assert error is None and text == "" and len(outputs) == 1
    assert outputs[0].data[MIME] == {"id": "some-hidden", "value": value}
    assert set(outputs[0].data) == {MIME, "text/plain", "text/markdown"}
    assert outputs[0].data["text/plain"] == "some-hidden: reported."
    assert json.loads(json.dumps(outputs[0].data)) == outputs[0].data


def test_a_right_worked_input_is_answered_in_words(shell, key):
    outputs, error, _ = run(shell, "from distgen_lab import checks; checks.report('q9-1-visible', 14_000_000_000)")
    assert error is None
    assert [o.data["text/plain"] for o in outputs] == ["Exercise 9.1: right."]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("28e9", "Exercise 9.1: 28 GB is FP32; BF16 takes 2 bytes a parameter"),
        ("1.5", "Exercise 9.1: Not yet: the answer is 1.5. Count bytes, not bits."),
        ("None", "Exercise 9.1: Not yet: the answer is None. Count bytes, not bits."),
    ],
)
@pytest.mark.parametrize("under_pytest", [True, False])
def test_a_wrong_worked_input_shows_its_hint_and_fails_the_cell_without_a_traceback(
    shell, key, value, words, monkeypatch, under_pytest
):
    if not under_pytest:
        monkeypatch.delenv("PYTEST_CURRENT_TEST")
    outputs, error, text = run(shell, f"from distgen_lab import checks; checks.report('q9-1-visible', {value})")
    assert type(error) is CheckFailed and isinstance(error, AssertionError) and str(error) == words
    assert [o.data["text/plain"] for o in outputs] == [words] and outputs[0].data["text/markdown"] == words
    said = words if under_pytest else "see the sentence above"  # nbval prints errors, but no displays
    assert f"CheckFailed: {said}" in text and "Traceback" not in text and "File" not in text


@pytest.mark.parametrize(
    ("variables", "raises"),
    [
        ({}, True),  # some program executes the notebook and counts errors
        ({"NBGRADER_EXECUTION": "autograde", "DISTGEN_SEED": "3", "JPY_SESSION_NAME": "x.ipynb"}, True),
        ({"DISTGEN_SEED": "3"}, False),  # the grader
        ({"PYTEST_CURRENT_TEST": "x.ipynb::Cell 1 (setup)"}, False),  # nbval compares with the stored report
        ({"JPY_SESSION_NAME": "x.ipynb"}, False),  # a person looks at it
    ],
)
def test_a_report_that_nobody_judges_fails_the_cell_and_says_where_points_come_from(
    shell, monkeypatch, variables, raises
):
    for name in ("NBGRADER_EXECUTION", "DISTGEN_SEED", "PYTEST_CURRENT_TEST", "JPY_SESSION_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    outputs, error, text = run(shell, "from distgen_lab import checks; checks.report('q0-0-hidden', [3])")
    assert len(outputs) == 1 and (type(error) is CheckFailed) == raises
    words = "CheckFailed: q0-0-hidden found no judge here; trusted points come only from distgen grade"
    assert text.strip() == (words if raises else "")


@pytest.mark.parametrize("verdict", [True, False, np.bool_(True), np.array(False)])
def test_a_verdict_is_no_report(monkeypatch, verdict):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda *a, **k: shown.append(a))
    with pytest.raises(TypeError, match=r"check q reports a verdict \((True|False)\); report what was computed"):
        report("q", verdict)
    assert shown == []


@pytest.mark.parametrize("value", [object(), b"1", [1j]])
def test_what_is_no_plain_data_is_not_displayed(monkeypatch, value):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda *a, **k: shown.append(a))
    with pytest.raises(TypeError, match="the answer holds a"):
        report("q", value)
    assert shown == []


def test_explain_uses_the_questions_tolerance_and_survives_a_missing_nudge(key):
    assert explain("q9-2-visible", [1.05, 2]) == (True, "Exercise 9.2: right.")
    assert explain("q9-2-visible", [1.2, 2]) == (False, "Exercise 9.2: Not yet: item 1 is 1.2.")
    assert explain("unknown", 5) == (None, "unknown: reported.")


# --------------------------------------------------------------------------------------------- answer key


def test_the_courses_own_key_knows_right_from_wrong_and_names_each_misconception():
    whole = checks.answer_key()
    assert whole
    for check, entry in whole.items():
        assert explain(check, entry["value"]) == (True, f"{entry['title']}: right.")
        assert len(entry["hints"]) >= 2, check
        for hint in entry["hints"]:
            assert explain(check, hint["value"]) == (False, f"{entry['title']}: {hint['hint']}")


def test_no_key_is_used_while_it_is_made(monkeypatch):
    monkeypatch.setenv("DISTGEN_KEY", "off")
    checks.answer_key.cache_clear()
    try:
        assert checks.answer_key() == {}
        assert explain("q1-1-visible", 5)[0] is None
    finally:
        checks.answer_key.cache_clear()


# ---------------------------------------------------------------------------------------------------- rng


def draws(check, seed=None):
    """Twenty draws in a fresh Python, with another hash seed."""
    code = f"from distgen_lab.checks import rng; r = rng({check!r}); print([r.random() for _ in range(20)])"
    environment = {k: v for k, v in os.environ.items() if k != "DISTGEN_SEED"} | {"PYTHONHASHSEED": "12345"}
    environment |= {"DISTGEN_SEED": seed} if seed is not None else {}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    return json.loads(done.stdout)


def test_draws_are_the_same_in_every_process_for_one_seed_and_id(monkeypatch):
    monkeypatch.delenv("DISTGEN_SEED", raising=False)
    here = rng("q1-1-hidden")
    assert draws("q1-1-hidden") == draws("q1-1-hidden", "0") == [here.random() for _ in range(20)]


def test_draws_differ_by_seed_and_by_id(monkeypatch):
    seen = set()
    for seed in ("0", "1", "01", "autumn"):
        monkeypatch.setenv("DISTGEN_SEED", seed)
        for check in ("q1-1-hidden", "q1-2-hidden", "q1-11-hidden"):
            seen.add(rng(check).random())
    assert len(seen) == 12


def test_a_generator_does_not_touch_the_global_one():
    import random

    random.seed(1)
    want = random.random()
    random.seed(1)
    rng("q").random()
    assert random.random() == want


# ----------------------------------------------------------------------------------------------- withheld

REFUSAL = "this exercise asks you to write it yourself"


def test_a_withheld_function_refuses_under_every_name():
    copy = {"f": scale.all_reduce_volume}
    with withheld("scale.all_reduce_volume"):
        for call in (scale.all_reduce_volume, all_reduce_volume, copy["f"]):
            with pytest.raises(RuntimeError, match=REFUSAL):
                call(1e9, 8)
            with pytest.raises(RuntimeError, match=REFUSAL):
                call(nbytes=1e9, workers=8)
        assert scale.forward_flops(2, 3) == 12
    assert all_reduce_volume(8.0, 4) == scale.all_reduce_volume(8.0, 4) == 12.0


def test_the_library_itself_cannot_call_a_withheld_function_for_the_student():
    with withheld("scale.forward_flops"), pytest.raises(RuntimeError, match=REFUSAL):
        scale.training_flops(1e9, 1e9)
    assert scale.training_flops(1, 1) == 6


def test_methods_class_methods_and_properties_can_be_withheld():
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 16, "n_positions": 4}
    shape, state = ModelShape.from_config(config), scale.model_state(10)
    before = shape.kv_bytes_per_token()
    with withheld("models.ModelShape.from_config", "models.ModelShape.kv_bytes_per_token", "scale.ModelState.total"):
        for call in (
            lambda: ModelShape.from_config(config),
            lambda: shape.kv_bytes_per_token(),
            lambda: ModelShape.kv_bytes_per_token(shape),
            lambda: state.total,
        ):
            with pytest.raises(RuntimeError, match=REFUSAL):
                call()
        assert state.weights == 20
    assert ModelShape.from_config(config) == shape
    assert shape.kv_bytes_per_token() == before == 2 * 2 * 8 * 2
    assert state.total == 160


def test_functions_come_back_after_an_error_and_after_nesting():
    with pytest.raises(ZeroDivisionError), withheld("scale.mfu", "scale.kv_cache"):
        raise ZeroDivisionError
    assert scale.kv_cache(1, 1, 1, 1) == 4
    with withheld("scale.kv_cache"):
        with withheld("scale.kv_cache", "scale.kv_cache"):
            pass
        with pytest.raises(RuntimeError, match=REFUSAL):
            scale.kv_cache(1, 1, 1, 1)
    assert scale.kv_cache(1, 1, 1, 1) == 4


@pytest.mark.parametrize("name", ["checks.answer_key", "scale.ModelState", "scale.RECIPES", "hardware.ACCELERATORS"])
def test_what_cannot_be_withheld_is_named_and_leaves_the_others_as_they_were(name):
    with pytest.raises(TypeError, match=f"{name} cannot be withheld"), withheld("scale.mfu", name):
        pass
    assert scale.mfu(1, 1, 1, 6.0) == 1.0


@pytest.mark.parametrize("name", ["scale.no_such", "no_such.function"])
def test_a_name_that_is_not_there_is_an_error(name):
    with pytest.raises((AttributeError, ImportError)), withheld(name):
        pass


def test_the_public_names_exist():
    assert all(hasattr(checks, name) for name in checks.__all__)
