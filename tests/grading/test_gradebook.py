"""From rows to files: lateness, points by hand, what the LMS imports, and pages that tell a student no secret."""

import csv
import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distgen_lab.grading.assess import Settings, merge_books, write_all
from distgen_lab.grading.classroom import changes
from distgen_lab.grading.gradebook import Book, CheckLine, GradingError, QuestionFacts, Row, read_book, write_book
from distgen_lab.grading.pages import feedback_page, file_names, report_page
from distgen_lab.grading.pages.report import flags, statistics
from distgen_lab.grading.policy import Adjustment, HandedIn, LatePolicy, adjust, deduct, read_adjustments, void
from distgen_lab.grading.progress import Progress
from distgen_lab.grading.roster import Person
from distgen_lab.grading.similarity import alike, normalised, pairs, resembling
from tests.grading.classes import make_class

DUE = datetime(2027, 2, 1, 22, 59, tzinfo=UTC)
SECRET = "item 3 is 777, 778 is wanted"
EVIL = "<script>alert(1)</script>"


def row(student="ada", question="q9-1", points="10", **facts):
    states = {"right": points != "0"}
    checks = tuple(CheckLine(f"{question}-{kind}", kind, "right" if states["right"] else "wrong")
                   for kind in ("visible", "hidden"))  # fmt: skip
    known = {"section": "09_test", "title": "Exercise 9." + question[-1], "checks": checks, "reason": "right"}
    return Row(**{"student": student, "question": question, "points": points, "out_of": "10", **known, **facts})


def late(policy, when, person=None, mark=False, **facts):
    people = {"ada": person} if person else {}
    return deduct([row(**facts)], policy, {("ada", "09_test"): HandedIn(when, "file", mark)}, people)[0]


@pytest.mark.parametrize(
    ("after", "grace", "days"),
    [
        (-1, 0, 0),
        (0, 0, 0),
        (1, 0, 1),
        (300, 300, 0),
        (301, 300, 1),
        (86_400, 0, 1),
        (86_401, 0, 2),
        (5 * 86_400, 0, 5),
    ],
)
def test_a_day_begun_costs_a_day(after, grace, days):
    policy = LatePolicy(DUE, grace, Decimal(10))
    found = late(policy, DUE + timedelta(seconds=after))
    assert Decimal(found.total) == 10 - days and (found.late == "") == (days == 0)
    assert bool(re.search(rf"late: {days} days? begun \(file 2027-02-0", found.note)) == (days > 0)


def test_time_zones_do_not_matter_and_extensions_do():
    policy = LatePolicy(DUE, 0, Decimal(25), Decimal(50))
    berlin = datetime.fromisoformat("2027-02-01T23:59:00+01:00")
    assert berlin == DUE and late(policy, berlin).late == ""
    two_days = DUE + timedelta(days=1, seconds=1)
    assert late(policy, two_days).late == "5" and late(policy, two_days + timedelta(days=9)).late == "5"
    assert late(policy, two_days, Person("ada", extension=timedelta(hours=24))).late == "2.5"
    assert late(policy, two_days, Person("ada", deadline=two_days)).late == ""


def test_the_mark_of_canvas_counts_a_day_unless_more_time_was_granted():
    policy = LatePolicy(DUE, 0, Decimal(10))
    assert late(policy, None, mark=True).late == "1"
    granted = late(policy, None, Person("ada", extension=timedelta(hours=1)), mark=True)
    assert granted.late == "" and "not deducted" in granted.note
    assert late(LatePolicy(), None, mark=True).note == "marked late by Canvas"
    assert "no time of hand-in is known" in late(policy, None).note and late(policy, None).late == ""
    assert late(LatePolicy(), None).note == ""


def test_progress_tells_the_time_left_and_does_not_flood(monkeypatch):
    now = iter(range(0, 10_000, 2))
    monkeypatch.setattr("time.monotonic", lambda: float(next(now)))
    stream = io.StringIO()
    progress = Progress(stream, every=50.0)
    progress("01: running the solution")
    for done in range(1, 41):
        progress(f"01: {done} of 40 runs")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "01: running the solution" and lines[-1] == "01: 40 of 40 runs"
    assert 2 < len(lines) < 10 and all("left" in line for line in lines[1:-1])


def test_by_hand_first_lateness_last_and_an_override_wins():
    rows = [row(question=f"q9-{i}", points=p) for i, p in ((1, "4"), (2, "4"), (3, "4"), (4, "0"))]
    by_hand = {
        ("ada", "q9-1"): Adjustment(manual=Decimal(3)),
        ("ada", "q9-2"): Adjustment(override=Decimal(9), note="oral"),
        ("ada", "q9-3"): Adjustment(manual=Decimal(-5)),
    }
    rows = void(adjust(rows, by_hand), ["q9-4", "q9-2"])
    rows = deduct(rows, LatePolicy(DUE, 0, Decimal(10)), {("ada", "09_test"): HandedIn(DUE + timedelta(hours=1))}, {})
    assert [r.total for r in rows] == ["6.3", "9", "0", "10"]
    assert [(r.points, r.manual, r.override, r.late) for r in rows] == [
        ("4", "3", "", "0.7"), ("4", "", "9", ""), ("4", "-5", "", ""), ("0", "", "10", ""),
    ]  # fmt: skip
    assert "oral" in rows[1].note and "voided" in rows[3].note


@given(st.integers(0, 1000), st.integers(-1000, 1000), st.integers(0, 100), st.integers(0, 20))
def test_no_points_below_zero_or_above_the_maximum(points, manual, percent, days):
    by_hand = {("ada", "q9-1"): Adjustment(manual=Decimal(manual) / 100)}
    when = DUE + timedelta(days=days)
    policy = LatePolicy(DUE, 0, Decimal(percent))
    rows = adjust([row(points=str(Decimal(points) / 100))], by_hand)
    found = deduct(rows, policy, {("ada", "09_test"): HandedIn(when)}, {})[0]
    assert 0 <= Decimal(found.total) <= Decimal(found.out_of)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("student,points\nada,1\n", "line 1: columns student, question, manual, override, note are needed"),
        ("student,question,manual\nada,q9-1,NaN\n", "line 2, manual is 'NaN'"),
        ("student,question,manual\nada,q9-1,lots\n", "line 2, manual is 'lots'"),
        ("student,question,override\nada,q9-1,1\nada,q9-1,2\n", "line 3: ada and q9-1 stand there twice"),
        ("student,question,override\neve,q9-1,1\n", "student 'eve', question 'q9-1': nobody has such a row"),
        ("student,question,override\nada,q9-1,-1\n", "override -1 for ada, q9-1: 0 to 10 is possible"),
        ("student,question,override\nada,q9-1,11\n", "override 11 for ada, q9-1: 0 to 10 is possible"),
    ],
)
def test_bad_adjustments_are_refused(tmp_path, text, words):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    with pytest.raises(GradingError) as caught:
        adjust([row()], read_adjustments(tmp_path / "a.csv"))
    assert words in str(caught.value)


def test_an_unknown_question_cannot_be_voided():
    with pytest.raises(GradingError, match="q9-7"):
        void([row()], ["q9-7"])


def book(rows):
    questions = {r.question: QuestionFacts(r.question, r.title, r.section, r.out_of, "look", "v1 = 1") for r in rows}
    return Book(list(rows), questions, {})


def test_a_gradebook_is_read_as_it_was_written(tmp_path):
    rows = [row("=cmd|x"), row("ada", "q9-2", "0", note=EVIL, reason="wrong: +1", manual="2.5")]
    rows += [row("bob", manual="-5", name="-cmd|x")]
    written = book(rows)
    write_book(written, tmp_path)
    assert read_book(tmp_path) == written
    table = list(csv.reader(io.StringIO((tmp_path / "grades.csv").read_text("utf-8"))))
    first = {cell for line in table for cell in line if cell[:1] in ("=", "+", "@", "-")}
    assert first == {"-5"}  # a number of points, no formula
    assert json.loads((tmp_path / "grades.json").read_text("utf-8"))["totals"]["ada"] == {
        "points": "2.5",
        "out_of": "10",
    }


@pytest.mark.parametrize("text", [None, "", "[]", '{"rows": [{}], "questions": []}', '{"rows": [], "totals": {}}'])
def test_what_is_no_gradebook_is_refused(tmp_path, text):
    if text is not None:
        (tmp_path / "grades.json").write_text(text, encoding="utf-8")
    with pytest.raises(GradingError, match=r"grades\.json"):
        read_book(tmp_path)


def test_what_the_lms_imports(tmp_path):
    rows = [
        row("m1", name='Smith, "Jo" Ann'),
        row("m1", "q9-2", "0", late="0"),
        row("m2", name="=HYPERLINK(1)", late="1"),
    ]
    (tmp_path / "roster.csv").write_text('student,name,canvas_id,moodle_id\nm1,"Smith, ""Jo"" Ann",12,34\n', "utf-8")
    made = book(rows)
    made.settings = {"submissions": "in", "roster": str(tmp_path / "roster.csv")}
    write_all(made, tmp_path / "out")
    canvas, moodle = ((tmp_path / "out" / f"{name}.csv").read_text("utf-8") for name in ("canvas", "moodle"))
    assert list(csv.reader(io.StringIO(canvas))) == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "09_test"],
        ["Points Possible", "", "", "", "", "20"],
        ['Smith, "Jo" Ann', "12", "m1", "", "", "10"],
        ["'=HYPERLINK(1)", "", "m2", "", "", "9"],
    ]
    assert list(csv.reader(io.StringIO(moodle)))[1] == ["Participant 34", 'Smith, "Jo" Ann', "m1", "", "10"]
    suites = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    assert [(s.get("name"), s.get("tests"), s.get("failures")) for s in suites] == [("m1", "2", "1"), ("m2", "1", "1")]


class Page(HTMLParser):
    """The text of a page, and its tags."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.words, self.links = [], [], []
        self.feed(source)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.words.append(data)


def test_feedback_tells_hints_and_nothing_of_the_graded_inputs():
    checks = (
        CheckLine("q9-1-visible", "visible", "wrong", f"Start at 0. {EVIL} *and* `<b>`, 10**9"),
        CheckLine("q9-1-hidden", "hidden", "wrong", "look"),
    )
    typed = (CheckLine("q9-2-visible", "visible", "right"), CheckLine("q9-2-hidden", "hidden", "wrong", "look there"))
    rows = [
        row(
            "ada", "q9-1", "0", reason=f"wrong: Start at 0. {SECRET}", checks=checks, name=EVIL, answer="def v1 ( v2 )"
        ),
        row("ada", "q9-2", "0", reason=f"right for the worked input, wrong for others: {SECRET}", checks=typed),
        row("ada", "q9-3", "0", reason="blank: the answer cell is as it was handed out", checks=()),
        row("ada", "q9-4", "0", reason="missing: the submission has no cell for this answer"),
    ]
    source = feedback_page(rows, book(rows).questions)
    page = Page(source)
    assert "777" not in source and "def v1" not in source and "script" not in page.tags
    assert page.links == [] and "http" not in re.sub(r"http-equiv", "", source)
    for words in (
        f"Start at 0. {EVIL} and <b> , 10**9",
        "Graded inputs: not right. look there",
        "0 of 40 points",
        "blank:",
        "missing:",
    ):
        assert words in page.text


def test_names_of_pages_are_harmless_and_unlike():
    names = file_names(["../../etc/passwd", "a/b", "a b", "A_B", "", "...", "ü" * 300, "con?"])
    assert len({name.casefold() for name in names.values()}) == len(names)
    assert all(re.fullmatch(r"[\w@+-]{1,90}\.html", name) for name in names.values())


def classroom():
    """Ten students, three questions: q9-1 tells who is good, q9-2 is noise, everybody can do q9-3."""
    rows = []
    for number in range(10):
        good, noise = number >= 5, number % 2 == 0
        hint = (
            CheckLine("v", "visible", "wrong", "Start at 0." if number else f"{EVIL}"),
            CheckLine("h", "hidden", "wrong"),
        )
        extra = {} if good else {"checks": hint, "reason": "wrong: Start at 0."}
        rows += [row(f"s{number}", "q9-1", "10" if good else "0", **extra)]
        rows += [row(f"s{number}", "q9-2", "10" if noise else "0"), row(f"s{number}", "q9-3", "10")]
    return rows


def test_difficulty_and_discrimination_are_the_textbook_ones():
    found = {one.key: one for one in statistics(book(classroom()))}
    points = np.array([[float(r.points) for r in classroom() if r.question == f"q9-{i}"] for i in (1, 2, 3)])
    for i, key in enumerate(("q9-1", "q9-2")):
        rest = points.sum(axis=0) - points[i]
        assert found[key].discrimination == pytest.approx(np.corrcoef(points[i], rest)[0, 1])
        assert found[key].difficulty == pytest.approx(points[i].mean() / 10)
    assert found["q9-3"].discrimination is None and "everybody" in found["q9-3"].advice
    assert found["q9-1"].wrong == [("Start at 0.", 4), (EVIL, 1)]


def test_who_handed_in_nothing_does_not_make_a_question_difficult():
    absent = [row("gone", f"q9-{i}", "0", checks=(), reason="missing: no notebook was handed in") for i in (1, 2, 3)]
    with_absent, without = statistics(book(classroom() + absent)), statistics(book(classroom()))
    assert [(a.difficulty, a.discrimination) for a in with_absent] == [
        (b.difficulty, b.discrimination) for b in without
    ]
    assert [one.counts["missing"] for one in with_absent] == [1, 1, 1]


def test_the_report_is_one_page_without_the_net():
    odd = row("s1", "q9-1", "0", reason="answer cell: several reports", name=EVIL)
    source = report_page(book([*classroom(), odd]), {"s1": "feedback/s1.html"})
    page = Page(source)
    assert "script" not in page.tags and page.links == ["feedback/s1.html"] and page.tags.count("svg") == 4
    assert "4 × Start at 0." in page.text and "made more than once" in page.text
    assert source.count("<title>") >= 5 and 'role="img"' in source


def test_flags_name_tampering_and_typed_in_answers():
    typed = (CheckLine("v", "visible", "right"), CheckLine("h", "hidden", "wrong"))
    rows = [row("eve", f"q9-{i}", "0", checks=typed) for i in (1, 2)] + [
        row("bob", reason="graded inputs: died", sandbox="no")
    ]
    assert {(student, why) for student, _, why in flags(book(rows))} == {
        ("eve", "right for the worked input only: typed in?"), ("bob", "the kernel ended"),
    }  # fmt: skip


SQUARES = "def squares(n):\n    return [i * i for i in range(n)]"
RENAMED = 'def squares(count):\n    """Squares."""\n    # mine\n    return [ k*k for k in range( count ) ]'
OTHER = "def squares(n):\n    found = []\n    for i in range(n):\n        found.append(i ** 2)\n    return found"


def test_renaming_and_layout_do_not_hide_a_copy():
    assert normalised(SQUARES) == normalised(RENAMED) != normalised(OTHER)
    assert alike(normalised(SQUARES), normalised(RENAMED)) == 1.0 > 0.8 > alike(normalised(SQUARES), normalised(OTHER))
    assert normalised("def broken(:\n  'x") == "def broken(: 'x"


def test_pairs_share_unusual_answers_and_not_ours():
    ours, common, odd = normalised(SQUARES), normalised(OTHER), normalised(OTHER + "\n\n\nx = 17")
    answers = {f"s{i}": {"q1": common, "q2": common, "q3": ours} for i in range(8)}
    answers |= {name: {"q1": odd, "q2": odd.replace("17", "18"), "q3": ours} for name in ("ada", "bob")}
    (pair,) = pairs(answers, {"q3": [ours]})
    assert pair.students == ("ada", "bob") and pair.shared == ("q1", "q2") and pair.mean == 1.0
    assert resembling({"ada": {"q3": ours}, "eve": {"q3": common}, "non": {}}, {"q3": ours})["ada"] == 1.0


def part(shard, rows, **settings):
    made = book(rows)
    made.settings = {"submissions": "in", "shard": shard, **settings}
    return made


def test_parts_make_the_whole_class():
    rows = classroom()
    shards = [part(f"{i}/3", [r for r in rows if int(r.student[1:]) % 3 == i - 1]) for i in (3, 1, 2)]
    assert merge_books(shards).rows == rows


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([("1/3", "0"), ("3/3", "0")], "missing parts: 2/3"),
        ([("1/2", "0"), ("1/2", "0"), ("2/2", "0")], "twice: 1/2"),
        ([("1/2", "0"), ("2/3", "0")], "parts of one class are needed"),
        ([("", "0")], "parts of one class are needed"),
        ([("1/2", "0"), ("2/2", "7")], "part 2/2 was graded with seed '7', part 1/2 with '0'"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts, words):
    with pytest.raises(GradingError) as caught:
        merge_books(part(shard, [row(f"s{i}")], seed=seed) for i, (shard, seed) in enumerate(parts))
    assert words in str(caught.value)


def test_changes_name_students_and_reasons():
    old = book([row("ada"), row("bob", points="0"), row("eve")])
    new = book([row("ada"), row("bob", reason="right"), replace(row("eve"), override="3")])
    assert changes(old, new) == [
        "bob, q9-1: 0 -> 10 (right)", "eve, q9-1: 10 -> 3 (by hand)",
        "bob: 0 of 10 -> 10 of 10 points", "eve: 10 of 10 -> 3 of 10 points",
    ]  # fmt: skip


def test_settings_survive_the_gradebook():
    settings = Settings("in", "7", 4, True, voided=("q9-1",), deadline="2027-02-01T23:59+01:00", late_per_day="12.5")
    kept = json.loads(json.dumps({**settings.__dict__, "voided": list(settings.voided)}))
    assert Settings.of(kept) == settings and Settings.of(kept).policy().percent(2) == 25
    with pytest.raises(GradingError, match="--deadline"):
        replace(settings, deadline="2027-02-01 23:59").policy()


def test_the_made_up_class_is_a_mixture(master):
    made = make_class(master, 24)
    answers = {s: [c["source"] for c in nb["cells"] if c["id"].endswith("-answer")] for s, nb in made.items()}
    assert made["s04"] == made["s05"] and len({str(given) for given in answers.values()}) == 23
    every = " ".join(str(given) for given in answers.values())
    assert all(word in every for word in ("NotImplementedError", "return 3 * x", "1234567890", "parms"))
