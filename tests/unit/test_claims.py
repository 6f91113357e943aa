"""The claims of the chapter: every computed value against a number typed independently, and the boxes they make."""

import json
import re
from collections import Counter
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest

from distgen_lab import claims as book
from distgen_lab.claims import VERDICTS, Box, Claim, ClaimTable, check_the_book, claim, claims, table

CHAPTER = Path(__file__).resolve().parents[3] / "shared" / "chapter" / "chapter.md"
COMPUTED = [c for c in claims() if c.compute]
# Typed here by hand from the chapter's own inputs, so that an error made twice in the data would still be seen.
BY_HAND = {
    "weights-gpt4": 3_600_000_000_000,
    "growth-5000": 5294,
    "gpt3-flops": 3.15e23,
    "single-a100": 31.99 * 365.25 * 24 * 3600,
    "ratio-18": 9,
    "model-state-7b": 112_000_000_000,
    "a100s-for-state": 360,
    "allreduce-two": 1.75,
    "comm-14s": 14,
    "step-compute": 4.404e18 / (1024 * 312e12 * 0.45),
    "kv-70b": 335_544_320_000,
    "kv-forces-distribution": 140e9 + 41.943e9,
    "video-activations": 16.106e9,
}


def make(**changes):
    """A claim with dangerous characters in every text."""
    text = '<script>alert("1 & 2")</script>'
    fields = dict.fromkeys(("topic", "claim", "right", "why", "source"), text)
    given = dict(id="x", section="1", line=1, printed=text, printed_value=84e9, compute="max(1, 2) < 3 and 84e9",
                 expected=84e9, unit="B", verdict="OK", checked="computed", digits=2)  # fmt: skip
    return Claim(**{**fields, **given, **changes})


class Tags(HTMLParser):
    """Collects the tags and the text of a piece of HTML."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = Counter(), ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("one", COMPUTED, ids=lambda c: c.id)
def test_the_computed_value_is_the_expected_one(one):
    assert one.value == pytest.approx(one.expected, rel=0.005)


@pytest.mark.parametrize("id", BY_HAND)
def test_the_computed_value_is_the_one_typed_by_hand(id):
    assert claim(id).value == pytest.approx(BY_HAND[id], rel=0.001)


def test_most_claims_are_computed_and_hardware_is_never_typed_again():
    assert len(COMPUTED) >= 0.75 * len(claims())
    for one in COMPUTED:
        assert not re.search(r"\b(312|989|450e9|900e9|50e9|400e9|80e9|640e9)", one.compute), one.id


@pytest.mark.parametrize("one", claims(), ids=lambda c: c.id)
def test_the_verdict_fits_the_numbers(one):
    assert one.verdict in VERDICTS
    assert (one.compute is None) == (one.value is None) == (one.expected is None)
    if one.verdict == "OK":
        assert one.agrees() is not False
    elif one.verdict == "WRONG":
        assert not one.agrees()
    elif one.verdict == "UNSOURCED":
        assert one.compute is None


@pytest.mark.parametrize("one", claims(), ids=lambda c: c.id)
def test_every_text_is_there(one):
    assert one.claim and one.printed and one.right and one.source and one.topic
    assert one.why or one.verdict == "OK"
    assert one.checked in ("computed", "looked up", "open")
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", one.id)


def test_ids_are_unique():
    folder = files("distgen_lab") / "data" / "claims"
    ids = [row["id"] for page in folder.iterdir() for row in json.loads(page.read_text(encoding="utf-8"))]
    assert len(ids) == len(set(ids)) == len(claims())


def test_every_claim_that_was_checked_is_covered(shared):
    """One claim at least for each row of the audit, line by line, in every section the course has."""
    rows = re.findall(r"(?m)^\| *\d+ \| *(\w)[^|]*\| *(\d+) \|", (shared / "chapter" / "audit.md").read_text("utf-8"))
    wanted = Counter((section.replace("I", "0"), int(line)) for section, line in rows)
    assert wanted.total() == 259
    there = {one.section for one in claims()}
    missing = Counter({key: n for key, n in wanted.items() if key[0] in there}) - Counter(
        (one.section, one.line) for one in claims()
    )
    assert not missing


def words(text):
    return re.findall(r"[a-z0-9.,]*[a-z0-9]", text.lower())


def test_nothing_is_copied_from_the_chapter():
    if not CHAPTER.exists():
        pytest.skip("the chapter's text does not travel with the course")
    book_words = words(CHAPTER.read_text(encoding="utf-8"))
    runs = {tuple(book_words[i : i + 8]) for i in range(len(book_words) - 7)}
    for one in claims():
        for text in (one.claim, one.why, one.right):
            own = words(text)
            copied = [own[i : i + 8] for i in range(len(own) - 7) if tuple(own[i : i + 8]) in runs]
            assert not copied, (one.id, copied)


@pytest.mark.parametrize(
    ("printed", "printed_value", "value", "digits", "agrees"),
    [
        ("3.3 TB", 3.3e12, 3.34e12, None, True),
        ("3.3 TB", 3.3e12, 3.36e12, None, False),
        ("3.3 TB", 3.3e12, 335.5e9, None, False),
        ("14 s", 14, 14.5, None, True),
        ("14 s", 14, 14.6, None, False),
        ("5,000", 5000, 5001, None, False),
        ("340 million", 340e6, 335.2e6, 2, True),
        ("340 million", 340e6, 335.2e6, None, False),
        ("3.14e23 FLOP", 3.14e23, 3.1404e23, None, True),
        ("0.05 s", 0.05, 0.0549, None, True),
        ("many", None, 1.0, None, None),
    ],
)
def test_agreement_is_to_the_digits_printed(printed, printed_value, value, digits, agrees):
    one = make(printed=printed, printed_value=printed_value, compute=repr(value), digits=digits)
    assert one.agrees() is agrees


def test_agreement_needs_a_computed_value():
    one = make(compute=None)
    assert one.value is None and one.computed == "-" and one.agrees() is None


def test_an_expression_sees_only_the_library():
    with pytest.raises(NameError):
        _ = make(compute="open('x')").value
    assert make(compute="round(2.4) + ceil(1.2) + min(5, 6)").value == 9


def test_the_value_is_computed_once():
    one = make(compute="84e9")
    assert one.value is one.value


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(335.54432e9, "B", "335.5 GB"), (1.00962e9, "s", "31.99 years"), (30.63, "s", "30.63 s"), (5294.1, "1", "5,294"),
     (174.6e9, "parameters", "174.6 billion"), (16, "B/parameter", "16 B/parameter"),
     (3.15e23, "FLOP", "3.15e+23 FLOP")],
)  # fmt: skip
def test_values_are_printed_for_the_eye(value, unit, shown):
    assert make(compute=repr(value), unit=unit).computed == shown


def test_claims_are_chosen_by_section_and_verdict():
    assert claims("1", "WRONG") == claims(1, "WRONG") != []
    assert all(c.section == "1" and c.verdict == "WRONG" for c in claims("1", "WRONG"))
    assert claims("0") + claims("1") == claims()[: len(claims("0")) + len(claims("1"))]


@pytest.mark.parametrize(
    ("arguments", "said"), [({"section": "99"}, "section is '99'"), ({"verdict": "wrong"}, "WRONG")]
)
def test_an_unknown_section_or_verdict_is_named(arguments, said):
    with pytest.raises(ValueError, match=said):
        claims(**arguments)


@pytest.mark.parametrize("ask", [claim, check_the_book])
def test_an_unknown_id_names_near_ones(ask):
    with pytest.raises(ValueError, match=r"unknown claim 'kv-70'; did you mean .*kv-70b"):
        ask("kv-70")
    with pytest.raises(ValueError, match=r"did you mean .*a100-bf16"):
        ask("zzzzzzzzzz")


def test_box_and_text_say_the_same():
    box = check_the_book("kv-70b")
    text, html = repr(box), Tags(box._repr_html_())
    one = claim("kv-70b")
    for part in ("Check the book", "line 73", "3.3 TB", "335.5 GB", one.compute, one.why, one.right, "errata.ipynb"):
        assert part in text
        assert part in html.text
    assert html.tags["code"] == 1 and html.tags["a"] == 1
    assert 'href="errata.ipynb"' in box._repr_html_()


def test_a_box_without_a_computation_has_no_line_for_it():
    box = check_the_book("sdxl-256-a100s")
    assert "Computed here" not in repr(box) + box._repr_html_()
    assert "<code>" not in box._repr_html_()


@pytest.mark.parametrize("one", claims(), ids=lambda c: c.id)
def test_every_box_can_be_drawn_in_both_themes(one):
    html = Box(one)._repr_html_()
    assert not re.search(r"(?<![-\w])(color|background)\s*:", html)
    assert one.printed in Tags(html).text


def test_box_and_table_escape_every_text():
    one = make()
    for thing in (Box(one), ClaimTable((one,))):
        tags = Tags(thing._repr_html_())
        assert "script" not in tags.tags
        assert tags.text.count('<script>alert("1 & 2")</script>') >= 4
    assert "max(1, 2) < 3 and 84e9" in Tags(Box(one)._repr_html_()).text


def test_the_table_holds_every_claim_asked_for():
    whole, wrong = table(), table(verdict="WRONG")
    assert Tags(whole._repr_html_()).tags["tr"] == len(claims()) + 1
    assert len(repr(whole).splitlines()) == len(claims())
    assert "line 73 WRONG" in repr(wrong) and "335.5 GB" in repr(wrong) and "OK:" not in repr(wrong)
    assert {"Line", "Claim", "Printed", "Computed", "Verdict", "Right", "Source"} <= set(
        re.findall(r">(\w+)</th>", whole._repr_html_())
    )


def test_the_public_names_exist():
    assert all(getattr(book, name).__doc__ for name in book.__all__ if callable(getattr(book, name)))
