"""Whose file is it? Layouts of folders, Canvas and Moodle; archives that want to do harm; several attempts."""

import io
import json
import os
import stat
import zipfile

import pytest

from distgen_lab.grading.collect import MAX_ARCHIVE, choose, collect
from distgen_lab.grading.gradebook import GradingError
from distgen_lab.grading.roster import Roster, tie

SECTION = "09_test"


def notebook(section=SECTION, source="x = 1"):
    cells = [{"cell_type": "code", "id": "q9-1-answer", "metadata": {}, "source": source, "outputs": []}]
    return json.dumps({"nbformat": 4, "metadata": {"distgen": {"section": section}}, "cells": cells}).encode()


def archive(members):
    """The bytes of a zip file; a member's content may itself be bytes or a made ZipInfo's."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return made.getvalue()


def lay(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def students(found):
    return {student: sorted(file.path.name for file in one.files) for student, one in found.items()}


LAYOUTS = {
    "folder_each": ({"ada/hw.ipynb": notebook(), "bob/deep/hw.ipynb": notebook()}, {"ada": 1, "bob": 1}),
    "notebook_each": ({"ada.ipynb": notebook(), "bob.IPYNB": notebook()}, {"ada": 1, "bob": 1}),
    "archive_each": (
        {
            "ada.zip": archive({"work/hw.ipynb": notebook()}),
            "bob.zip": archive({"a.zip": archive({"h.ipynb": notebook()})}),
        },
        {"ada": 1, "bob": 1},
    ),
    "canvas": (
        {
            "lovelaceada_12_901_hw.ipynb": notebook(),
            "turingalan_LATE_13_902_hw-1.ipynb": notebook(),
            "mac_donald_14_903_hw_final_2.ipynb": notebook(),
            "müllerjörg_15_904_hw.ipynb": notebook(),
            "anon_xY3z_905_hw.ipynb": notebook(),
            "LATE_anon_ab12_906_hw.ipynb": notebook(),
            "hoppergrace_16_907_work.zip": archive({"hw.ipynb": notebook(), "__MACOSX/._hw.ipynb": b"x"}),
            "hoppergrace_16_908_notes.pdf": b"%PDF",
        },
        {"lovelaceada_12": 1, "turingalan_13": 1, "mac_donald_14": 1, "müllerjörg_15": 1}
        | {"anon_xY3z": 1, "anon_ab12": 1, "hoppergrace_16": 1},
    ),
    "moodle": (
        {
            "Ada Lovelace_4711_assignsubmission_file_/hw.ipynb": notebook(),
            "Alan Mathison Turing_4712_assignsubmission_file/sub/hw.ipynb": notebook(),
            "Participant_4713_assignsubmission_file_hw.ipynb": notebook(),
            "Ada Lovelace_4711_assignsubmission_onlinetext_/onlinetext.html": b"<p>",
        },
        {"Ada Lovelace_4711": 1, "Alan Mathison Turing_4712": 1, "Participant_4713": 1},
    ),
}


@pytest.mark.parametrize("packed", ["folder", "zip", "wrapped zip", "zip in a folder"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_names_its_students(tmp_path, layout, packed):
    files, wanted = LAYOUTS[layout]
    lms = layout in ("canvas", "moodle")
    if packed == "folder":
        source = lay(tmp_path / "in", files)
    elif packed == "zip in a folder" and lms:
        source = lay(tmp_path / "in", {"download.zip": archive(files)})
    else:
        prefix = "in/" if packed == "wrapped zip" else ""
        (tmp_path / "in.zip").write_bytes(archive({prefix + name: content for name, content in files.items()}))
        source = tmp_path / "in.zip"
    found = collect(source, tmp_path)
    assert {student: len(one.files) for student, one in found.items()} == wanted
    assert all(one.refused == "" for one in found.values())
    if layout == "canvas":
        assert [s for s, one in found.items() if any(f.late for f in one.files)] == ["anon_ab12", "turingalan_13"]
    if lms and not any(s.startswith("anon") for s in wanted):
        assert {one.lms for one in found.values()} == {layout}


def link(name):
    member = zipfile.ZipInfo(name)
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    return member


def bad_archives():
    bomb = archive({"huge.ipynb": b" " * 60_000_000})
    liar = bytearray(archive({"hw.ipynb": b" " * 6_000_000}))
    at = liar.index(b"PK\x01\x02") + 24
    liar[at : at + 4] = (10).to_bytes(4, "little")  # the directory says 10 bytes
    deep = archive({"hw.ipynb": notebook()})
    for _ in range(5):
        deep = archive({"in.zip": deep})
    linked = io.BytesIO()
    with zipfile.ZipFile(linked, "w") as file:
        file.writestr(link("hw.ipynb"), "/etc/passwd")
    locked = bytearray(archive({"hw.ipynb": notebook()}))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        locked[locked.index(mark) + offset] |= 1
    return {
        "slip": (archive({"../../slip.ipynb": notebook()}), "leads out of the archive"),
        "absolute": (archive({"/tmp/absolute.ipynb": notebook()}), "leads out of the archive"),
        "drive": (archive({"C:\\hw.ipynb": notebook()}), "leads out of the archive"),
        "backslash": (archive({"..\\..\\hw.ipynb": notebook()}), "leads out of the archive"),
        "bomb": (bomb, "larger than 5 MB"),
        "liar": (bytes(liar), "hw.ipynb"),
        "deep": (deep, "nested more than 3 deep"),
        "linked": (linked.getvalue(), "it is a link"),
        "locked": (bytes(locked), "it is encrypted"),
        "many": (archive({f"{i}.txt": b"" for i in range(20_001)}), "20001 entries"),
        "truncated": (archive({"hw.ipynb": notebook()})[:-30], "cannot be read"),
        "text": (b"no archive", "cannot be read"),
    }


def test_a_harmful_archive_costs_its_own_student_alone(tmp_path):
    bad = bad_archives()
    folder = lay(tmp_path / "in", {f"{name}.zip": content for name, (content, _) in bad.items()})
    lay(folder, {"ada.ipynb": notebook(), "mixed.zip": archive({"hw.ipynb": notebook(), "../x.ipynb": notebook()})})
    (folder / "pointer.zip").symlink_to(folder / "mixed.zip")
    found = collect(folder, lay(tmp_path / "work", {"keep": b""}))
    for name, (_, words) in bad.items():
        assert found[name].files == [] and words in found[name].refused, name
    assert "must not be a link" in found["pointer"].refused
    assert students(found)["ada"] == ["ada.ipynb"] and found["ada"].refused == ""
    assert students(found)["mixed"] == ["hw.ipynb"] and "x.ipynb" in found["mixed"].refused
    written = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert all(path.parts[0] in ("in", "work") for path in written)
    assert not any(os.path.exists(path) for path in ("/tmp/absolute.ipynb", tmp_path.parent / "slip.ipynb"))


def test_an_unsafe_member_of_the_class_archive_costs_one_student(tmp_path):
    members = {"adal_1_2_hw.ipynb": notebook(), "evil_3_4_/../../x.ipynb": notebook(), "bobb_5_6_hw.ipynb": notebook()}
    (tmp_path / "class.zip").write_bytes(archive(members))
    found = collect(tmp_path / "class.zip", tmp_path)
    assert {s for s, one in found.items() if one.files} == {"adal_1", "bobb_5"}
    assert [one.refused for s, one in found.items() if not one.files] == ["x.ipynb: its path leads out of the archive"]


def test_a_claimed_size_is_not_believed(tmp_path):
    assert MAX_ARCHIVE < 1_000_000_000
    inner = archive({"a.ipynb": b" " * 5_000_001})
    (tmp_path / "ada.zip").write_bytes(archive({"in.zip": inner}))
    assert "larger than 5 MB when unpacked" in collect(tmp_path, tmp_path)["ada"].refused


@pytest.mark.parametrize(
    ("files", "attempt", "note"),
    [
        ({"ada/attempt_1/hw.ipynb": 1, "ada/attempt_2/hw.ipynb": 2}, "attempt_2", "1 earlier attempt not counted"),
        ({"ada/attempt_9/hw.ipynb": 1, "ada/attempt_10/hw.ipynb": 2}, "attempt_10", "1 earlier attempt not counted"),
        ({"ada/2027-01-05T12:00/hw.ipynb": 2, "ada/2027-01-04 23:59:59/hw.ipynb": 1}, "2027-01-05T12:00", "1 earlier"),
        ({"ada_7_100_hw.ipynb": 1, "ada_7_205_hw-1.ipynb": 2}, "hw-1.ipynb", "1 earlier attempt not counted"),
        ({"ada_7_300_hw.ipynb": 2, "ada_7_205_hw-1.ipynb": 1}, "hw.ipynb", "1 earlier attempt not counted"),
        (
            {"ada/attempt_1/hw.ipynb": 2, "ada/attempt_2/hw.ipynb": 0},
            "attempt_1",
            "later attempt cannot be read (hw.ipynb",
        ),
    ],
)
def test_the_latest_attempt_that_can_be_read_counts(tmp_path, files, attempt, note):
    """The file that has to count holds 2, the others 1; 0 is a broken file."""
    content = {0: b'{"cells": ', 1: notebook(source="old"), 2: notebook(source="new")}
    found = collect(lay(tmp_path / "in", {name: content[kind] for name, kind in files.items()}))
    (hand_in,) = found.values()
    chosen = choose(hand_in, [SECTION])
    assert [path.read_bytes() for path in chosen.paths] == [content[2]]
    assert chosen.attempts[SECTION].attempt == attempt and note in chosen.notes[SECTION]
    if attempt.startswith("2027"):
        assert (
            chosen.attempts[SECTION].stamped
            and chosen.attempts[SECTION].when.isoformat() == "2027-01-05T12:00:00+00:00"
        )


def test_each_section_has_its_own_latest_attempt(tmp_path):
    files = {"ada/attempt_1/01_a.ipynb": notebook("01_a"), "ada/attempt_1/02_b.ipynb": notebook("02_b")}
    found = collect(lay(tmp_path / "in", files | {"ada/attempt_2/02_b.ipynb": notebook("02_b", "new")}))
    chosen = choose(found["ada"], ["01_a", "02_b"])
    assert {name: file.attempt for name, file in chosen.attempts.items()} == {"01_a": "attempt_1", "02_b": "attempt_2"}
    assert len(chosen.paths) == 2


ROSTER = """Student,Name,E-Mail,Canvas ID,Moodle ID,Login,Deadline,Extension
m1,Ada Lovelace,ada@x.org,12,,al,,
m2,Alan Turing,alan@x.org,,Participant 4712,at,2027-02-03T12:00+01:00,
m3,Grace Hopper,grace@x.org,,,gh,,48
m4,Anna Schmidt,anna@x.org,,,as,,
m5,Anna Schmidt,anna2@x.org,,,as2,,
m6,Barbara Liskov,barbara@x.org,,,bl,,
"""


def test_a_roster_ties_hand_ins_to_people(tmp_path):
    (tmp_path / "roster.csv").write_text("\ufeff" + ROSTER, encoding="utf-8")
    roster = Roster.read(tmp_path / "roster.csv")
    assert roster.people[1].deadline.isoformat() == "2027-02-03T12:00:00+01:00"
    assert roster.people[2].extension.total_seconds() == 48 * 3600
    names = ["whoever_12_1_hw.ipynb", "hoppergrace_99_2_hw.ipynb", "bl.ipynb", "schmidtanna_98_3_hw.ipynb", "eve.ipynb"]
    files = {name: notebook() for name in names} | {"A T_4712_assignsubmission_file_/hw.ipynb": notebook()}
    tied = tie(roster, collect(lay(tmp_path / "in", files | {"ada@x.org/more.ipynb": notebook()})))
    assert {s: len(one.files) for s, one in tied.hand_ins.items()} == {
        "m1": 2,
        "m2": 1,
        "m3": 1,
        "m4": 0,
        "m5": 0,
        "m6": 1,
    }
    assert tied.missing == ["m4", "m5"]  # two people of one name: the name alone fits neither
    assert tied.nobody == ["eve", "schmidtanna_98"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name\nAda\n", "line 1: a roster needs a column 'student'"),
        ("student,name\nm1,Ada\nm1,Bob\n", "line 3: student 'm1' stands there twice"),
        ("student,name\n,Ada\n", "line 2: no student id"),
        ("student,deadline\nm1,2027-02-01T12:00\n", "line 2, deadline is '2027-02-01T12:00', without a time zone"),
        ("student,deadline\nm1,tomorrow\n", "line 2, deadline is 'tomorrow'; write a time such as"),
        ("student,extension\nm1,two days\n", "line 2: extension is 'two days'; a number of hours is needed"),
    ],
)
def test_a_bad_roster_is_refused_with_its_line(tmp_path, text, words):
    (tmp_path / "roster.csv").write_text(text, encoding="utf-8")
    with pytest.raises(GradingError, match="roster") as caught:
        Roster.read(tmp_path / "roster.csv")
    assert words in str(caught.value)


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_bytes(b"text")])
def test_what_holds_no_submissions_is_refused(tmp_path, make):
    make(tmp_path / "in")
    with pytest.raises(GradingError, match="in"):
        collect(tmp_path / "in")
