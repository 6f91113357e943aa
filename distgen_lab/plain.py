"""Plain data: how an answer travels from a student's kernel to the judge, and how two answers are compared.

The kernel encodes (numpy scalars, tuples, generators and the like become the numbers, lists and dicts of JSON); the
judge, in another process, decodes JSON only: no pickles, and no objects whose ``__eq__`` could have an opinion.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import count, islice
from numbers import Integral, Real
from typing import Any

__all__ = ["MAX_ITEMS", "REL", "difference", "encode"]

MAX_ITEMS = 100_000
"""Most items a report may hold in all."""
REL = 1e-6
"""Relative tolerance of a comparison unless a question states its own."""


def encode(value: Any) -> Any:
    """Return ``value`` as JSON data: None, bool, int, finite float, str, list, or dict with text keys.

    Numbers of numpy, torch and ``fractions`` become Python numbers (a whole ``Fraction`` an int), arrays and tensors
    nested lists, sets sorted lists, any other iterable a list. NaN and infinities become the texts ``"nan"``,
    ``"inf"``, ``"-inf"``, which equal no number.

    Raises:
        TypeError: for anything else, naming its type.
        ValueError: for more than ``MAX_ITEMS`` items or nesting deeper than 50.

    >>> encode((1, 2.0, {"a": range(2)}))
    [1, 2.0, {'a': [0, 1]}]
    """
    return _encode(value, [MAX_ITEMS], 50)


def _encode(value: Any, budget: list[int], depth: int) -> Any:
    """Encode one value; ``budget`` counts the items left in the whole report."""
    budget[0] -= 1
    if budget[0] < 0 or depth < 0:
        raise ValueError(f"the answer is too large: at most {MAX_ITEMS:,} items, nested at most 50 deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        budget[0] -= len(value) // 100
        return value if budget[0] >= 0 else _encode(value, budget, depth)
    if hasattr(value, "tolist"):  # numpy scalars and arrays, torch tensors
        value = value.tolist() if math.prod(value.shape) <= budget[0] else count(0)
    if isinstance(value, Real) and not isinstance(value, bool):
        return _number(value)
    return value if isinstance(value, bool) else _container(value, budget, depth - 1)


def _number(value: Real) -> int | float | str:
    """Return an int or a finite float; NaN and infinities as text."""
    if isinstance(value, Integral) or getattr(value, "denominator", None) == 1:
        return int(value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    return number if math.isfinite(number) else str(number)


def _container(value: Any, budget: list[int], depth: int) -> Any:
    """Encode a dict with text keys or any iterable of values."""
    if isinstance(value, Mapping):
        names = [str(key) for key in value]
        twice = next((name for name, times in Counter(names).items() if times > 1), None)
        if twice is not None:
            raise TypeError(f"two keys of a dict in the answer read {twice!r}; use text keys")
        return {name: _encode(item, budget, depth) for name, item in zip(names, value.values(), strict=True)}
    if isinstance(value, set | frozenset):
        value = _sorted(value)
    if not isinstance(value, Iterable) or isinstance(value, bytes | bytearray):
        raise TypeError(f"the answer holds a {type(value).__name__}; numbers, text, lists and dicts can be reported")
    return [_encode(item, budget, depth) for item in islice(value, budget[0] + 1)]


def _sorted(values: set | frozenset) -> list:
    """A set in an order that does not depend on the run."""
    try:
        return sorted(values)
    except TypeError as error:
        raise TypeError("the answer holds a set whose items cannot be sorted; report a list") from error


def difference(got: Any, want: Any, rel: float = REL, where: str = "") -> str | None:
    """Compare two encoded values; return None when equal, else one sentence that says where they differ.

    ``5`` equals ``5.0``; a bool equals only a bool; numbers agree within ``rel`` relative to ``want`` (and absolutely
    when ``want`` is 0); text is compared without surrounding blanks; lists and dicts item by item.

    >>> difference([1, 2.0], [1, 3])
    'item 2 is 2.0'
    """
    if isinstance(want, list | dict):
        return _container_difference(got, want, rel, where)
    if _is_number(want) and _is_number(got):
        equal = _close(got, want, rel)
    elif isinstance(want, str) and isinstance(got, str):
        equal = got.strip() == want.strip()
    else:
        equal = type(got) is type(want) and got == want
    return None if equal else f"{where or 'the answer'} is {_shorten(got)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _close(got: float, want: float, rel: float) -> bool:
    """Integers of any size compare exactly when equal; else relative to the wanted value."""
    try:
        return got == want or abs(got - want) <= rel * (abs(want) or 1)
    except OverflowError:
        return False


def _container_difference(got: Any, want: list | dict, rel: float, where: str) -> str | None:
    """First difference between two lists or two dicts."""
    name = where or "the answer"
    kind = list if isinstance(want, list) else dict
    if not isinstance(got, kind):
        return f"{name} is {_shorten(got)}, a {kind.__name__} is wanted"
    if isinstance(want, list):
        if len(got) != len(want):
            return f"{name} has {len(got)} items, {len(want)} are wanted"
        pairs = [(f"item {i + 1}", got[i], want[i]) for i in range(len(want))]
    else:
        if got.keys() != want.keys():
            return f"{name} has the keys {_shorten(sorted(got))}, wanted are {_shorten(sorted(want))}"
        pairs = [(f"{key!r}", got[key], want[key]) for key in want]
    prefix = f"{where}, " if where else ""
    found = (difference(a, b, rel, prefix + label) for label, a, b in pairs)
    return next((text for text in found if text), None)


def _shorten(value: Any, limit: int = 60) -> str:
    if isinstance(value, float):
        return f"{value:,.10g}"
    text = f"a number of {value.bit_length()} bits" if isinstance(value, int) and abs(value) > 10**400 else repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
