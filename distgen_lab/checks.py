"""Checks of the exercises: they report what a student's code computed, and answer in words.

A check cell ends in ``report(id, value)``. The report is plain data, never a verdict: the judge compares it in the
grading process with what the solution reports. In the student's own kernel the same comparison is made for the
*worked input* of the question, whose result is known, and is answered with a sentence; the graded checks use other
inputs, drawn from a seed.
"""

import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, reduce
from importlib import import_module
from importlib.resources import files
from types import CodeType
from typing import Any

from distgen_lab.judging import difference, same
from distgen_lab.plain import REL, encode

__all__ = ["MIME", "CheckFailed", "answer_key", "explain", "report", "rng", "withheld"]

MIME = "application/vnd.distgen+json"
"""The media type under which a check cell displays its report: ``{"id": ..., "value": ...}``."""
SEED_VARIABLE = "DISTGEN_SEED"
"""Environment variable that holds the seed of the graded inputs; "0" where it is not set."""


class CheckFailed(AssertionError):
    """A visible check found a wrong answer; the sentence is its message."""

    def _render_traceback_(self) -> list[str]:
        return [f"CheckFailed: {self}"]


def report(check_id: str, value: Any) -> None:
    """Display ``value`` as the report of ``check_id``; for a worked input also say in words whether it is right.

    Raises:
        TypeError, ValueError: if the value is a bool, or is no plain data (see :func:`distgen_lab.plain.encode`).
        CheckFailed: if the worked input's result is known and this one differs.
    """
    from IPython.display import display

    plain = encode(value)
    if isinstance(plain, bool):
        raise TypeError(f"check {check_id} reports a verdict ({plain}); report what was computed instead")
    right, words = explain(check_id, plain)
    data = {MIME: {"id": check_id, "value": plain}, "text/plain": words, "text/markdown": words}
    display(data, raw=True)
    if right is False:
        raise CheckFailed("see the sentence above")


def explain(check_id: str, value: Any) -> tuple[bool | None, str]:
    """Compare an encoded report with the key; return (right or wrong, or None where no key exists; sentence)."""
    key = answer_key().get(check_id)
    if key is None:
        return None, f"{check_id}: reported."
    rel = key.get("rel", REL)
    found = difference(value, key["value"], rel)
    if found is None:
        return True, f"{key['title']}: right."
    hints = (hint for hint in key["hints"] if same(value, hint["value"], rel))
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
