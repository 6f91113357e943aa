"""Guesses: how far off they are, said in words a reader understands."""

import math
from fractions import Fraction
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from distgen_lab import predict
from distgen_lab.predict import Guesses

POSITIVE = st.floats(1e-6, 1e24)


@pytest.mark.parametrize(
    ("guess", "answer", "verdict"),
    [
        (None, 5, "no guess"), (5, 5, "right"), (5.02, 5, "right"), (4.98, 5, "right"), (5.1, 5, "2% too high"),
        (4.5, 5, "10% too low"), (9.9, 5, "98% too high"), (10, 5, "2.0 times too high"), (2.5, 5, "2.0 times too low"),
        (3e12, 1e9, "3000.0 times too high"), (2.6, 5, "48% too low"), (28e9, 14e9, "2.0 times too high"),
    ],
)  # fmt: skip
def test_verdicts_by_hand(guess, answer, verdict):
    assert Guesses().reveal("q", guess, answer).verdict() == verdict


@given(POSITIVE, POSITIVE)
def test_a_verdict_says_the_right_direction(guess, answer):
    words = Guesses().reveal("q", guess, answer).verdict()
    if words == "right":
        assert math.isclose(guess, answer, rel_tol=0.006)
    elif words.startswith("far off"):
        assert max(guess, answer) > 999_999 * min(guess, answer)
    else:
        assert words.endswith("too high" if guess > answer else "too low")
        assert "times" in words if max(guess, answer) >= 2.001 * min(guess, answer) else True


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("B", "memory: 112 GB (you guessed 84 GB: 25% too low)"),
        ("", "memory: 1.12e+11 (you guessed 8.4e+10: 25% too low)"),
    ],
)
def test_an_answer_stands_beside_the_guess(unit, text):
    assert repr(Guesses().reveal("memory", 84e9, 112e9, unit)) == text


def test_times_are_printed_in_their_best_unit_and_no_guess_is_no_reproach():
    assert repr(Guesses().reveal("time", None, 172800, "s")) == "time: 2 days"


@pytest.mark.parametrize("guess", [0, -1, math.nan, math.inf, -math.inf, True, False, "5", [5], 1j, ...])
def test_a_guess_that_is_no_positive_number_is_refused_and_not_kept(guess):
    guesses = Guesses()
    with pytest.raises(
        ValueError, match=r"guess is .*; a positive number is needed, for example guess = 3e12, or None"
    ):
        guesses.reveal("q", guess, 5)
    assert guesses.summary().reveals == ()


@pytest.mark.parametrize("guess", [np.int64(5), Fraction(5), np.float32(5)])
def test_a_guess_of_any_number_type_is_taken(guess):
    assert Guesses().reveal("q", guess, 5).verdict() == "right"


def test_an_enormous_guess_is_answered_in_words():
    with pytest.raises(ValueError, match="guess is"):
        Guesses().reveal("q", 10**400, 5)


def test_an_answer_of_zero_is_refused_or_shown():
    try:
        shown = Guesses().reveal("q", 1, 0)
    except ValueError as error:
        assert "answer is 0" in str(error)
    else:
        assert "too high" in repr(shown)


def test_a_cell_run_again_replaces_its_guess():
    guesses = Guesses()
    guesses.reveal("a", None, 10)
    guesses.reveal("b", 3, 10)
    guesses.reveal("a", 10, 10)
    assert [(row[0], row[3]) for row in guesses.summary().rows()] == [("a", "right"), ("b", "3.3 times too low")]


@given(st.lists(st.tuples(st.none() | POSITIVE, POSITIVE), min_size=1, max_size=8))
def test_the_headline_is_the_geometric_mean_of_the_factors(pairs):
    guesses = Guesses()
    for i, (guess, answer) in enumerate(pairs):
        guesses.reveal(f"q{i}", guess, answer)
    made = [(g, a) for g, a in pairs if g is not None]
    line = guesses.summary().headline()
    if not made:
        assert line == f"No guesses yet: change `guess = None` in the {len(pairs)} guess cells and run again."
    else:
        typical = stats.gmean([min(1e6, max(g, a) / min(g, a)) for g, a in made])
        said = float(line.split("factor of ")[1].removesuffix("."))
        assert line.startswith(f"{len(made)} of {len(pairs)} guessed; ")
        assert said == pytest.approx(typical, rel=1e-9, abs=0.00501)


class Cells(HTMLParser):
    """The text of every table cell, and the tags that occur."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.cells = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data


def test_the_table_is_the_same_in_a_notebook_and_in_a_terminal():
    guesses = Guesses()
    guesses.reveal("a < b & c", 2e9, 4e9, "B")
    guesses.reveal("<script>", None, 60, "s")
    summary = guesses.summary()
    html = Cells(summary._repr_html_())
    assert html.cells == [text for row in summary.rows() for text in row]
    assert html.tags == {"p", "table", "tr", "th", "td"}
    lines = repr(summary).splitlines()
    assert lines[0] == summary.headline() and len(lines) == 3
    for line, row in zip(lines[1:], summary.rows(), strict=True):
        assert all(text in line for text in row)


def test_the_public_names_exist():
    assert all(hasattr(predict, name) for name in predict.__all__)
