"""Checks of the exercises: they report what a student's code computed, and answer in words.

A check cell ends in ``report(id, value)``. The report is plain data, never a verdict: the judge compares it in the
grading process with what the solution reports. In the student's own kernel the same comparison is made for the
*worked input* of the question, whose result is known, and is answered with a sentence; the graded checks use other
inputs, drawn from a seed.
"""

import json
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, reduce
from importlib import import_module
from importlib.resources import files
from itertools import chain
from types import CodeType
from typing import Any

from distgen_lab.judging import difference, same
from distgen_lab.plain import REL, encode

__all__ = [
    *("MIME", "CheckFailed", "answer_key", "explain", "recover", "report", "rng", "shelter", "variant", "withheld"),
    "worked",
]

MIME = "application/vnd.distgen+json"
"""The media type under which a check cell displays its report: ``{"id": ..., "value": ...}``."""
SEED_VARIABLE = "DISTGEN_SEED"
"""Environment variable that holds the seed of the graded inputs; "0" where it is not set."""
VARIANT_VARIABLE = "DISTGEN_VARIANT"
"""Environment variable that holds the number of the worked inputs' variant; where it is not set the bundle says it."""
_OTHER_NUMBERS = "This is the result for other numbers than those in your notebook; compute it from yours."
UNDER_PYTEST = "PYTEST_CURRENT_TEST"
JUDGES = (SEED_VARIABLE, UNDER_PYTEST, "JPY_SESSION_NAME")
"""Variables that tell who looks at reports: the grader, nbval (it compares the stored ones), a person in Jupyter."""


class CheckFailed(AssertionError):
    """A visible check found a wrong answer, or a hidden one found no judge; the sentence is its message."""

    shown = False
    """Whether the sentence was displayed already."""

    def _render_traceback_(self) -> list[str]:
        seen = self.shown and UNDER_PYTEST not in os.environ  # nbval prints errors, but no displays
        return [f"CheckFailed: {'see the sentence above' if seen else self}"]


def report(check_id: str, value: Any) -> None:
    """Display ``value`` as the report of ``check_id``; for a worked input also say in words whether it is right.

    Raises:
        TypeError, ValueError: if the value is a bool, or is no plain data (see :func:`distgen_lab.plain.encode`).
        CheckFailed: if the worked input's result is known and this one differs; or if it is not known and nobody is
            here to judge the report, as where another program executes the notebook and counts errors.
    """
    from IPython.display import display

    plain = encode(value)
    if isinstance(plain, bool):
        raise TypeError(f"check {check_id} reports a verdict ({plain}); report what was computed instead")
    right, words = explain(check_id, plain)
    data = {MIME: {"id": check_id, "value": plain}, "text/plain": words, "text/markdown": words}
    display(data, raw=True)
    if right is False:
        failure = CheckFailed(words)
        failure.shown = True
        raise failure
    if right is None and not _judged():
        raise CheckFailed(f"{check_id} found no judge here; trusted points come only from distgen grade")


def _judged() -> bool:
    """Whether someone looks at reports whose right value is not known here; nbgrader looks at errors alone."""
    return "NBGRADER_EXECUTION" not in os.environ and any(name in os.environ for name in JUDGES)


def explain(check_id: str, value: Any, number: int | None = None) -> tuple[bool | None, str]:
    """Compare an encoded report with the key; return (right or wrong, or None where no key exists; sentence).

    ``number`` is the variant whose worked input was reported; where none is given, this bundle's.
    """
    key = answer_key().get(check_id)
    if key is None:
        return None, f"{check_id}: reported."
    rel, every = key.get("rel", REL), [key, *key.get("variants", [])]
    own = every[(variant() if number is None else number) % len(every)]
    found = difference(value, own["value"], rel)
    if found is None:
        return True, f"{key['title']}: right."
    others = [{"value": other["value"], "hint": _OTHER_NUMBERS} for other in every]
    known = chain(own["hints"], others, *(other["hints"] for other in every))
    hints = (hint for hint in known if same(value, hint["value"], rel))
    hint = next(hints, {"hint": f"Not yet: {found}. {key.get('nudge', '')}".strip()})
    return False, f"{key['title']}: {hint['hint']}"


@cache
def answer_key() -> dict[str, dict]:
    """Return worked results, known wrong ones and their hints by check id, for the whole course."""
    if os.environ.get("DISTGEN_KEY") == "off":  # while the key itself is being made
        return {}
    folder = files("distgen_lab") / "data" / "key"
    names = sorted(f.name for f in folder.iterdir() if f.name.endswith(".json"))
    parts = [json.loads((folder / name).read_text("utf-8")) for name in names]
    return {check_id: entry for part in parts for check_id, entry in part.items()}


def variant() -> int:
    """Return the number of this class bundle's variant, 0 where nothing says another one."""
    if VARIANT_VARIABLE in os.environ:
        return int(os.environ[VARIANT_VARIABLE])
    file = files("distgen_lab") / "data" / "class.json"
    return int(json.loads(file.read_text("utf-8"))["variant"]) if file.is_file() else 0


def worked(**choices: Sequence[Any]) -> dict[str, Any]:
    """Return the worked input of this variant: of each list one value, the first for variant 0, and round again.

    The lists are written out in the visible check itself, all of one length, so that the answer key can hold an entry
    for each.

    Raises:
        ValueError: if the lists are empty or of different lengths.
    """
    lengths = {len(values) for values in choices.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"worked needs lists of one length, at least 1; these have {sorted(lengths)}")
    return {name: values[variant() % len(values)] for name, values in choices.items()}


def rng(check_id: str) -> random.Random:
    """Return the random generator that draws the inputs of a graded check: same seed and id, same inputs."""
    return random.Random(f"{os.environ.get(SEED_VARIABLE, '0')}:{check_id}")


@contextmanager
def withheld(*names: str) -> Iterator[None]:
    """While the block runs, the named functions of the library refuse to answer: the exercise asks for them.

    A reminder, not a lock: it reaches every name bound to a function, an imported one too, because its code is what is
    exchanged, but who means to get round it can.

    Args:
        names: functions and methods, e.g. ``"scale.kv_cache"``, ``"models.ModelShape.from_config"``.

    Raises:
        TypeError: for something whose code cannot be exchanged (a class, a built-in function).
    """
    plain = [_code_owner(name) for name in names]
    saved: list[tuple[Any, CodeType]] = [(f, f.__code__) for f in plain]
    try:
        for function, _ in saved:
            function.__code__ = _refuse.__code__
        yield
    finally:
        for function, code in saved:
            function.__code__ = code


def _code_owner(name: str) -> Any:
    """The Python function of that name in the library."""
    module, _, path = name.partition(".")
    found = reduce(getattr, path.split("."), import_module(f"distgen_lab.{module}"))
    found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    if not hasattr(found, "__code__"):
        raise TypeError(f"{name} cannot be withheld; only functions and methods written in Python can")
    return found


def _refuse(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError("this exercise asks you to write it yourself: this function is withheld here")


_sheltered: dict[str, Any] = {}
_ABSENT = object()


def shelter(*names: str) -> None:
    """Remember what the names mean in the notebook, until :func:`recover`: a question is about to bind them anew."""
    _sheltered.clear()
    _sheltered.update((name, _notebook().get(name, _ABSENT)) for name in names)


def recover() -> None:
    """Give names their meaning back, so that one question's ``sum = 0`` does not break the next question."""
    for name, value in _sheltered.items():
        if value is _ABSENT:
            _notebook().pop(name, None)
        else:
            _notebook()[name] = value
    _sheltered.clear()


def _notebook() -> dict[str, Any]:
    from IPython import get_ipython

    return get_ipython().user_ns
