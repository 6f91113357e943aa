"""The symbol table of the course: one symbol, one thing."""

import re
import string
from collections import Counter

import pytest

from distgen_lab import symbols
from distgen_lab.symbols import SYMBOLS, Symbol, SymbolTable, show


def test_no_symbol_stands_for_two_things():
    for letters in ("symbol", "name", "ascii"):
        assert not [s for s, count in Counter(getattr(row, letters) for row in show().rows).items() if count > 1]
    assert len(SYMBOLS) == len(show().rows)
    meanings = [row.meaning for row in show().rows]
    assert len(meanings) == len(set(meanings))


def test_no_name_is_another_rows_symbol():
    assert not {row.name for row in show().rows} & set(SYMBOLS)


@pytest.mark.parametrize(
    ("symbol", "name", "unit"),
    [
        ("P", "ranks", "1"),
        ("K", "data-parallel workers", "1"),
        ("N", "parameters", "1"),
        ("D", "tokens", "1"),
        ("n", "bytes", "B"),
        ("α", "start-up time", "s"),
        ("β", "time per byte", "s/B"),
        ("γ", "reduction time", "s/B"),
        ("π", "peak", "FLOP/s"),
        ("I", "arithmetic intensity", "FLOP/B"),
        ("L", "layers", "1"),
        ("H_kv", "key and value heads", "1"),
        ("s", "context", "1"),
    ],
)
def test_the_symbols_of_the_course_are_the_agreed_ones(symbol, name, unit):
    assert (SYMBOLS[symbol].name, SYMBOLS[symbol].unit) == (name, unit)


def test_units_are_si_base_units():
    assert {row.unit for row in show().rows} == {"1", "B", "B/s", "FLOP", "FLOP/s", "FLOP/B", "s", "s/B"}


@pytest.mark.parametrize(
    ("symbol", "letters"),
    [("n", ["N in section 4", "D in section 6"]), ("P", ["p in sections"]), ("D", ["diameter"]), ("s", ["L"]),
     ("b_mem", ["β"]), ("β", ["bandwidth in sections 2 and 5"]), ("α_cg", ["α"]), ("n_cross", ["D*", "N*"])],
)  # fmt: skip
def test_the_chapters_clashing_letters_are_told(symbol, letters):
    for text in letters:
        assert text in SYMBOLS[symbol].chapter


def test_every_row_is_whole():
    allowed = set(string.printable) | set("αβγπωρℓ𝐀𝐱𝐛𝐫𝐩𝐪")
    for row in show().rows:
        assert row.symbol and row.name and row.unit and row.meaning and row.chapter
        assert set(row.symbol + row.meaning + row.chapter) <= allowed, row
        assert "\\" not in row.symbol + row.meaning + row.chapter


def test_show_returns_the_rows_asked_for_in_that_order():
    assert [row.symbol for row in show("β", "P", "n").rows] == ["β", "P", "n"]
    assert [row.symbol for row in show().rows] == list(SYMBOLS)


def test_greek_and_bold_letters_can_be_typed_in_ascii():
    assert show("alpha", "beta", "alpha_cg", "vec_x", "vec_A").rows == show("α", "β", "α_cg", "𝐱", "𝐀").rows
    assert show("p").rows[0].name == "terminals" and show("𝐩").rows[0].name == "search direction"


@pytest.mark.parametrize(
    ("wrong", "near"), [("H_q", "H_kv"), ("aplha", "α|alpha"), ("paramters", "N"), ("###", "P, i, K")]
)
def test_an_unknown_symbol_names_near_ones(wrong, near):
    with pytest.raises(ValueError, match=f"unknown symbol '{wrong}'; did you mean .*({near})"):
        show("P", wrong)


def test_text_and_html_say_the_same():
    rows = show("P", "beta", "M_KV")
    lines, html = repr(rows).splitlines(), rows._repr_html_()
    assert len(lines) == 3 and html.count("<tr>") == 4
    for row, line in zip(rows.rows, lines, strict=True):
        for text in (row.symbol, row.name, row.unit, row.meaning, row.chapter):
            assert text in line
            assert f">{text.replace('&', '&amp;')}</td>" in html.replace("&#x27;", "'")


def test_the_table_sets_no_colour_and_escapes_its_cells():
    table = SymbolTable((Symbol("<b>", "a & b", "1", '<img src="x">', "<i>"),))
    html = table._repr_html_()
    assert "<b>" not in html and "<img" not in html and "<i>" not in html and "a &amp; b" in html
    assert not re.search(r"(?<![-\w])(color|background)\s*:", show()._repr_html_())


def test_the_public_names_exist():
    assert all(hasattr(symbols, name) for name in symbols.__all__)
