"""What to correct first, the counts, the menus, and that every part of the chapter has a place that exists."""

import json
import re
from collections import Counter

import pytest

from distgen_lab import errata
from distgen_lab.claims import VERDICTS, claims


@pytest.fixture(scope="module")
def rows():
    return errata.places().rows


def place_of(row):
    return row[-1]


def test_every_place_is_a_heading_of_a_notebook(repo, rows):
    read = {}
    for place in map(place_of, rows):
        path = (repo / "notebooks" / place.notebook).resolve()
        cells = read.setdefault(path, {c["id"]: c for c in json.loads(path.read_text("utf-8"))["cells"]})
        if place.heading:
            lines = "".join(cells[place.cell]["source"]).splitlines()
            assert place.heading in [re.sub(r"^#+ ", "", line) for line in lines if line.startswith("#")], place
            assert place.link == f"{place.notebook}#cell-id={place.cell}"
        else:
            assert place.kind == "exercises" and place.link == place.notebook


def test_every_subsection_and_every_missing_part_of_the_chapter_has_a_place(rows, shared):
    audit = (shared / "chapter" / "audit.md").read_text("utf-8")
    outline = re.search(r"(?s)## 3\. .*?\n(.*?)\n## 4", audit).group(1)
    titled = {int(n) for n in re.findall(r"\(L?(\d+)[,)]", outline)}
    assert len(titled) > 70
    lines = {row[0] for row in rows}
    run_in = {347, 351, 355}  # three paragraphs of one subsection
    assert titled - lines - run_in == set()
    absent = re.search(r"(?s)## 5\. .*?\n\| Kind.*?\n(.*?)\n\n## 6", audit).group(1)
    for row in absent.splitlines()[1:]:
        numbers = {int(n) for n in re.findall(r"\d+", row.split("|")[-2])}
        assert {place_of(r).absent for r in rows if r[0] in numbers} >= {True}, row


def test_places_of_a_section_and_of_none():
    assert {place_of(row).section for row in errata.places(3).rows} == {"3"}
    with pytest.raises(ValueError, match=r"section is '12'; there are: 1, 2, 3"):
        errata.places(12)


def test_counts_add_up():
    page = errata.counts()
    verdicts = Counter(one.verdict for one in claims())
    assert {row[0]: row[-1] for row in page.rows} == {**verdicts, "all": 259}
    *_, last = page.rows
    computed = sum(one.value is not None for one in claims())
    assert last[1] == computed >= 200 and last[1] + last[2] + last[3] == 259
    assert f"{computed} right values are computed" in repr(page)


def test_open_is_what_has_no_source_and_no_formula():
    for one in claims():
        assert (one.basis == "open") == (one.checked == "open")
        if one.basis == "open":
            assert one.verdict == "UNSOURCED" and "found" in one.source
        assert "confirm" not in one.source


def test_corrections_name_each_claim_once_and_none_that_is_right():
    named = [one.id for correction in errata.corrections() for one in correction.claims]
    assert len(named) == len(set(named)) >= 40
    assert not {one.id for one in claims() if one.verdict in ("OK", "rounding")} & set(named)
    first = errata.corrections()[0]
    assert first.lines == ", ".join(map(str, sorted({one.line for one in first.claims})))
    page = errata.what_to_correct_first()
    assert len(page.rows) == len(errata.corrections())
    assert "3.3 TB" in repr(page) and "42 GB" in page._repr_html_()


def test_the_menus_choose_what_is_shown():
    shown = errata.browse(section=1, verdict="WRONG")
    (sections, verdicts), html = shown.children[0].children, shown.children[1]
    assert set(verdicts.options) == {"all", *VERDICTS}
    count = len(claims(1, "WRONG"))
    assert html.value.count("<tr>") == count + 1 and f"{count} of 259 claims" in html.value
    sections.value = "all"
    assert html.value.count("<tr>") == len(claims(verdict="WRONG")) + 1
    sections.value, verdicts.value = "0", "outdated"
    assert "<tr>" not in html.value and "0 of 259" in html.value
    bundle = shown._repr_mimebundle_()
    assert bundle["text/html"] == html.value and "0 of 259 claims" in bundle["text/plain"]


@pytest.mark.parametrize("asked", [{"section": "9"}, {"verdict": "wrong"}])
def test_the_menus_name_what_there_is_not(asked):
    with pytest.raises(ValueError, match="there are"):
        errata.browse(**asked)


def test_a_page_is_escaped_and_its_places_are_links():
    place = errata.Place("1", 1, "table", "<b>", True, "n.ipynb", "a & b", "ch-a")
    html = errata.Page("<i>", ("one", "two"), (("<b>", place),))._repr_html_()
    assert "<i>" not in html and "<b>" not in html
    assert '<a href="n.ipynb#cell-id=ch-a">a &amp; b</a>' in html
