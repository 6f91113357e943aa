"""Plain data: what an answer becomes on its way to the judge, and which answers count as equal."""

import json
import math
from collections import OrderedDict, UserList, deque, namedtuple
from decimal import Decimal
from fractions import Fraction
from itertools import count, repeat

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from distgen_lab.plain import MAX_ITEMS, REL, difference, encode

NUMBERS = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=8)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=5),
    max_leaves=30,
)


def travel(value):
    """The way of a report: encoded in the kernel, JSON on the wire, decoded by the judge."""
    return json.loads(json.dumps(encode(value), allow_nan=False))


@given(VALUES)
def test_plain_values_arrive_unchanged(value):
    assert travel(value) == value
    assert difference(travel(value), travel(value)) is None


@given(st.recursive(LEAVES | st.fractions(), lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=20))
def test_what_was_encoded_equals_itself_after_the_journey(value):
    assert difference(travel(value), encode(value)) is None
    assert encode(encode(value)) == encode(value)


@given(st.lists(st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9), min_size=1, max_size=8), st.data())
def test_a_changed_number_is_found_and_named(numbers, data):
    place = data.draw(st.integers(0, len(numbers) - 1))
    changed = list(numbers)
    changed[place] += data.draw(st.sampled_from([-1, 1])) * (abs(changed[place]) * 1e-3 + 0.1)
    said = difference(travel(changed), travel(numbers))
    assert said is not None and said.startswith(f"item {place + 1} is ")
    inside = difference(travel({"a": [[0], changed]}), travel({"a": [[0], numbers]}))
    assert inside is not None and inside.startswith(f"'a', item 2, item {place + 1} is ")


@given(st.integers(-(2**53), 2**53))
def test_an_int_equals_the_same_float(number):
    assert difference(number, float(number)) is None
    assert difference(float(number), number) is None


@given(st.booleans(), NUMBERS | st.none() | st.text())
def test_a_bool_equals_only_a_bool(flag, other):
    assert difference(flag, other) is not None
    assert difference(other, flag) is not None
    assert difference(flag, flag) is None and difference(flag, not flag) is not None


@given(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12), st.floats(0, 0.1))
def test_tolerance_is_relative_to_the_wanted_number(got, want, rel):
    gap, allowed = abs(Fraction(got) - Fraction(want)), Fraction(rel) * (abs(Fraction(want)) or 1)
    assume(abs(gap - allowed) > Fraction(1, 10**9) * (gap + allowed))  # not at the edge, where floats round
    assert (difference(got, want, rel) is None) == (gap < allowed)


def test_tolerance_by_hand():
    assert difference(100.9, 100, 0.01) is None and difference(101.1, 100, 0.01) is not None
    assert difference(0.009, 0, 0.01) is None and difference(0.011, 0, 0.01) is not None
    assert REL == 1e-6 and difference(1 + 5e-7, 1) is None and difference(1 + 5e-6, 1) is not None


@pytest.mark.parametrize(
    ("got", "want", "said"),
    [
        (2, 3, "the answer is 2"),
        ("2", 2, "the answer is '2'"),
        (2, "2", "the answer is 2"),
        (None, 2, "the answer is None"),
        (2, None, "the answer is 2"),
        ([1], 1, "the answer is [1]"),
        (1, [1], "the answer is 1, a list is wanted"),
        ({"a": 1}, [1], "the answer is {'a': 1}, a list is wanted"),
        ([1], {"a": 1}, "the answer is [1], a dict is wanted"),
        ([1, 2], [1], "the answer has 2 items, 1 are wanted"),
        ({"a": 1}, {"b": 1}, "the answer has the keys ['a'], wanted are ['b']"),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "'a', 'b', item 2 is 2"),
        ("nan", math.inf, "the answer is 'nan'"),
        (10**400, 1.0, "the answer is " + ("1" + "0" * 400)[:57] + "..."),
    ],
)
def test_the_sentence_says_where(got, want, said):
    assert difference(got, want) == said


def test_text_is_compared_without_blanks_at_its_ends_and_huge_numbers_exactly():
    assert difference(" ring \n", "ring") is None
    assert difference("ri ng", "ring") is not None
    assert difference(10**400, 10**400) is None
    assert difference(10**400, 10**400 // 3) is not None
    assert difference(1e308, -1e308) is not None


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (np.float64(2.5), 2.5), (np.float32(0.5), 0.5), (np.int64(7), 7), (np.uint8(255), 255), (np.bool_(True), True),
        (np.longdouble(1.5), 1.5), (np.array(3), 3), (np.array([]), []), (np.array([True, False]), [True, False]),
        (torch.tensor(4), 4), (torch.tensor([0.5, 2.0], requires_grad=True), [0.5, 2.0]),
        (torch.tensor([1.5], dtype=torch.bfloat16), [1.5]), (torch.ones(2, 2, dtype=torch.int64), [[1, 1], [1, 1]]),
        (Fraction(8, 2), 4), (Fraction(1, 4), 0.25), ([Fraction(3), Fraction(-1, 2)], [3, -0.5]),
        ({3, 1, 2}, [1, 2, 3]), (frozenset("ba"), ["a", "b"]), ({(1, 2), (0, 5)}, [[0, 5], [1, 2]]),
        (range(3), [0, 1, 2]), ((i * i for i in range(4)), [0, 1, 4, 9]), (map(abs, [-1, 2]), [1, 2]),
        (deque([1, 2]), [1, 2]), (UserList([1, (2,)]), [1, [2]]), (enumerate("ab"), [[0, "a"], [1, "b"]]),
        ({"a": 1}.keys(), ["a"]), ({"a": 1}.items(), [["a", 1]]), (namedtuple("Pair", "x y")(1, 2.0), [1, 2.0]),
        (OrderedDict(b=1, a=(2,)), {"b": 1, "a": [2]}), ({1: 2, (0, 1): 3}, {"1": 2, "(0, 1)": 3}),
        (math.nan, "nan"), (-math.inf, "-inf"), (np.float64("inf"), "inf"), ([np.nan], ["nan"]), ("text", "text"),
        (None, None), (10**30, 10**30),
    ],
)  # fmt: skip
def test_what_students_hand_in_becomes_plain(value, want):
    got = encode(value)
    assert got == want and type(got) is type(want)
    assert json.loads(json.dumps(got, allow_nan=False)) == want


def nested(array: np.ndarray) -> object:
    """The array as lists, without ``tolist``."""
    if array.ndim == 0:
        return array.item()
    return [nested(part) for part in array]


@given(arrays.arrays(st.sampled_from([np.float64, np.int32, np.bool_]), arrays.array_shapes(max_dims=4, max_side=4),
                     elements={"allow_nan": False, "allow_infinity": False}))  # fmt: skip
def test_arrays_and_tensors_become_nested_lists(array):
    assert encode(array) == nested(array)
    assert encode(torch.from_numpy(array)) == nested(array)
    assert encode([array, {"x": array}]) == [nested(array), {"x": nested(array)}]


class Agreeable:
    """An object that claims to equal everything."""

    def __eq__(self, other):
        return True

    __hash__ = None


class AgreeableList(list):
    """A list that claims to equal everything."""

    def __eq__(self, other):
        return True

    __hash__ = None


@pytest.mark.parametrize(
    ("value", "name"),
    [(Agreeable(), "Agreeable"), (b"12", "bytes"), (bytearray(b"1"), "bytearray"), (1j, "complex"), (len, "builtin"),
     (Decimal("1.5"), "Decimal"), (object(), "object"), (np.complex128(1j), "complex")],
)  # fmt: skip
def test_what_is_no_plain_data_is_refused_by_type(value, name):
    for wrapped in (value, [1, value], {"a": (value,)}):
        with pytest.raises(TypeError, match=f"the answer holds a {name}.*can be reported"):
            encode(wrapped)


def test_no_object_of_the_students_reaches_the_comparison():
    got = encode(AgreeableList([AgreeableList([1])]))
    assert type(got) is list and type(got[0]) is list
    assert difference(got, [[2]]) == "item 1, item 1 is 1"


def test_the_size_limit_counts_every_item():
    assert len(encode([0] * (MAX_ITEMS - 1))) == MAX_ITEMS - 1
    rows = 300
    for large in ([0] * MAX_ITEMS, {i: 0 for i in range(MAX_ITEMS)}, [[0] * 400] * rows, np.zeros((400, rows))):
        with pytest.raises(ValueError, match="too large: at most 100,000 items"):
            encode(large)


def test_an_endless_answer_is_refused_after_as_many_items_as_are_allowed():
    asked = []
    with pytest.raises(ValueError, match="too large"):
        encode(asked.append(i) for i in count())
    assert MAX_ITEMS - 1 <= len(asked) <= MAX_ITEMS + 1
    for endless in (repeat(0), (repeat(0) for _ in count()), [[], {"a": count()}], (range(7) for _ in count())):
        with pytest.raises(ValueError, match="too large"):
            encode(endless)


def test_a_range_of_a_million_million_is_refused():
    with pytest.raises(ValueError, match="too large"):
        encode(range(10**12))


def deep(levels: int) -> object:
    value: object = 0
    for _ in range(levels):
        value = [value]
    return value


def test_nesting_has_a_limit():
    assert encode(deep(50)) == deep(50)
    own: list = []
    own.append(own)

    def tower():
        yield tower()

    for value in (deep(51), deep(5000), own, {"a": own}, tower()):
        with pytest.raises(ValueError, match="nested at most 50 deep"):
            encode(value)


def test_an_error_of_the_students_generator_is_theirs():
    def broken():
        yield 1
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        encode(broken())


class Watched(np.ndarray):
    """An array that tells when it is turned into a list."""

    listed = False

    def tolist(self):
        Watched.listed = True
        return super().tolist()


def test_a_large_array_is_refused_before_it_becomes_a_list():
    Watched.listed = False
    with pytest.raises(ValueError, match="too large"):
        encode(np.zeros(2 * MAX_ITEMS).view(Watched))
    assert not Watched.listed


def test_a_set_that_cannot_be_sorted_is_refused_in_our_words():
    with pytest.raises(TypeError, match="the answer holds a set"):
        encode({1, "a"})


def test_a_huge_fraction_is_refused_or_encoded_not_an_overflow():
    assert encode(Fraction(10**400, 3)) in ("inf", 10**400 // 3)


def test_an_enormous_int_is_a_wrong_answer_like_any_other():
    assert difference(encode(10**5000), 1) is not None


def test_two_keys_of_one_text_are_not_merged_silently():
    with pytest.raises((TypeError, ValueError), match="'1'"):
        encode({1: "a", "1": "b"})
