"""Units: the constants are SciPy's, and what is printed reads back as the number that went in."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import constants

from distgen_lab import units
from distgen_lab.units import count, duration, quantity

PREFIXES = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
SECONDS = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0, "days": 86400.0,
    "year": 31557600.0, "years": 31557600.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (units.KB, constants.kilo), (units.MB, constants.mega), (units.GB, constants.giga), (units.TB, constants.tera),
        (units.KIB, constants.kibi), (units.MIB, constants.mebi), (units.GIB, constants.gibi),
        (units.TFLOP, constants.tera), (units.PFLOP, constants.peta), (units.US, constants.micro),
        (units.MS, constants.milli), (units.HOUR, constants.hour), (units.DAY, constants.day),
        (units.YEAR, constants.Julian_year),
    ],
)  # fmt: skip
def test_constants_are_those_of_si_and_iec(ours, theirs):
    assert ours == theirs and isinstance(ours, float)


def read(text: str) -> float:
    return float(text.replace(",", ""))


@given(st.floats(1.0, 1e21, exclude_max=True), st.integers(2, 6), st.sampled_from([1, -1]))
def test_a_quantity_reads_back_within_its_digits(value, digits, sign):
    number, unit = quantity(sign * value, "B", digits).split(" ")
    prefix = unit.removesuffix("B")
    assert math.isclose(read(number) * PREFIXES[prefix], sign * value, rel_tol=0.5001 * 10.0 ** (1 - digits))
    assert abs(read(number)) < 1000 or prefix == "E"
    assert abs(read(number)) >= 1 or abs(value) < 1 or digits < 3


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0, 3, "0 B"), (1, 3, "1 B"), (999, 3, "999 B"), (999.6, 3, "1 kB"), (1000, 3, "1 kB"), (1024, 4, "1.024 kB"),
        (-84e9, 3, "-84 GB"), (335.54432e9, 4, "335.5 GB"), (0.25, 3, "0.25 B"), (999.99e9, 3, "1 TB"),
        (123456, 6, "123.456 kB"), (1e21, 3, "1e+21 B"), (math.inf, 3, "inf B"), (-math.inf, 3, "-inf B"),
        (math.nan, 3, "nan B"),
    ],
)  # fmt: skip
def test_quantities_by_hand(value, digits, text):
    assert quantity(value, "B", digits) == text


@pytest.mark.parametrize("value", [9e-5, 1e-7, 5e-12, -3e-6])
def test_a_small_quantity_is_not_printed_as_zero(value):
    number, _, unit = quantity(value, "s").partition(" ")
    assert unit == "s" and math.isclose(read(number), value, rel_tol=0.01)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (8, "8"), (2048, "2.05 k"), (340e6, "340 M"), (1.5e9, "1.5 B"), (15.6e12, "15.6 T"), (999.7e6, "1 B")],
)
def test_counts_are_said_as_people_say_them(value, text):
    assert count(value) == text


@given(st.floats(1e-9, 1e14), st.integers(2, 5), st.sampled_from([1, -1]))
def test_a_duration_reads_back_within_its_digits(seconds, digits, sign):
    number, unit = duration(sign * seconds, digits).split(" ")
    assert math.isclose(read(number) * SECONDS[unit], sign * seconds, rel_tol=0.5001 * 10.0 ** (1 - digits))
    assert abs(read(number)) >= 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (1, "1 s"), (14.0, "14 s"), (60, "1 min"), (90, "1.5 min"), (3600, "1 h"), (86400, "1 day"),
        (172800, "2 days"), (31557600, "1 year"), (3.15e23 / 312e12, "32 years"), (3e-6, "3 us"), (2.5e-3, "2.5 ms"),
        (4e-9, "4 ns"), (5e-10, "0.5 ns"), (-7200, "-2 h"), (math.inf, "inf s"), (math.nan, "nan s"),
        (31557600 * 12345, "12,300 years"),
    ],
)  # fmt: skip
def test_durations_by_hand(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.99999, "1 s"), (59.99, "1 min"), (3599.9, "1 h"), (86399.0, "1 day"), (9.9999e-4, "1 ms")],
)
def test_a_duration_that_rounds_up_to_the_next_unit_is_said_in_it(seconds, text):
    assert duration(seconds) == text


def test_the_public_names_exist():
    assert all(hasattr(units, name) for name in units.__all__)
