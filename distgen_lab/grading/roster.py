"""The class list: who is in the class, under which names the LMS knows them, and who has more time."""

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from distgen_lab.grading.collect import HandIn
from distgen_lab.grading.gradebook import GradingError

__all__ = ["Person", "Roster", "Tied", "aware", "tie"]

_COLUMNS = {
    "student": ("student", "student id", "student_id", "matriculation"),
    "name": ("name", "full name", "fullname"),
    "email": ("email", "email address", "e-mail"),
    "canvas_id": ("canvas_id", "canvas id", "canvas"),
    "moodle_id": ("moodle_id", "moodle id", "moodle", "identifier", "participant"),
    "sis_id": ("sis_id", "sis user id", "id number", "idnumber"),
    "login": ("login", "sis login id", "username"),
    "deadline": ("deadline",),
    "extension": ("extension", "extension_hours", "extension (hours)"),
    "submitted": ("submitted", "submitted at"),
}


@dataclass(frozen=True)
class Person:
    """One line of the roster. Times are aware; ``extension`` is added to the class's deadline."""

    student: str
    name: str = ""
    email: str = ""
    canvas_id: str = ""
    moodle_id: str = ""
    sis_id: str = ""
    login: str = ""
    deadline: datetime | None = None
    extension: timedelta = timedelta(0)
    submitted: datetime | None = None


@dataclass(frozen=True)
class Roster:
    """The people of a class in the order of the file."""

    people: tuple[Person, ...]

    @classmethod
    def read(cls, path: Path) -> "Roster":
        """Read a CSV file with a column ``student`` and any of the others.

        Raises:
            GradingError: for a file that cannot be read, without that column, with a student twice or a bad time; the
                message names the line.
        """
        try:
            text = path.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise GradingError(f"{path}: the roster cannot be read ({error})") from error
        dialect = ";" if text.split("\n", 1)[0].count(";") > text.split("\n", 1)[0].count(",") else ","
        lines = csv.DictReader(io.StringIO(text, newline=""), delimiter=dialect)
        known = {alias: column for column, aliases in _COLUMNS.items() for alias in aliases}
        names = {heading: known.get(heading.strip().casefold()) for heading in lines.fieldnames or ()}
        if "student" not in names.values():
            raise GradingError(f"{path}, line 1: a roster needs a column 'student'; there are: {', '.join(names)}")
        people: dict[str, Person] = {}
        for line in lines:
            where = f"{path}, line {lines.line_num}"
            facts = {names[key]: (value or "").strip() for key, value in line.items() if names.get(key)}
            person = _person(facts, where)
            if person.student in people:
                raise GradingError(f"{where}: student {person.student!r} stands there twice")
            people[person.student] = person
        return cls(tuple(people.values()))


def _person(facts: dict[str, str], where: str) -> Person:
    if not facts.get("student"):
        raise GradingError(f"{where}: no student id")
    times = {key: aware(facts.pop(key), f"{where}, {key}") for key in ("deadline", "submitted") if facts.get(key)}
    hours = facts.pop("extension", "") or "0"
    if not re.fullmatch(r"\d+(\.\d+)?", hours):
        raise GradingError(f"{where}: extension is {hours!r}; a number of hours is needed")
    moodle = re.sub(r"\D", "", facts.pop("moodle_id", ""))  # "Participant 123" in Moodle's worksheet
    texts = {key: value for key, value in facts.items() if key not in ("deadline", "submitted")}
    return Person(**texts, **times, moodle_id=moodle, extension=timedelta(hours=float(hours)))


def aware(text: str, what: str) -> datetime:
    """Return the time written as ISO 8601 with a zone, e.g. ``2027-02-01T23:59+01:00``.

    Raises:
        GradingError: if it is no such time, or lacks the zone.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise GradingError(f"{what} is {text!r}; write a time such as 2027-02-01T23:59+01:00") from error
    if time.tzinfo is None:
        raise GradingError(f"{what} is {text!r}, without a time zone; write e.g. {text}+00:00")
    return time


@dataclass(frozen=True)
class Tied:
    """Hand-ins by student id of the roster, people without one, and hand-ins of nobody on the roster."""

    hand_ins: dict[str, HandIn]
    missing: list[str] = field(default_factory=list)
    nobody: list[str] = field(default_factory=list)


def tie(roster: Roster, hand_ins: dict[str, HandIn]) -> Tied:
    """Give each hand-in to the person it belongs to: by the LMS's number, else by id, e-mail, login or name.

    A name that fits two people fits none. What one person handed in under two names is put together.
    """
    index = _index(roster.people)
    tied: dict[str, HandIn] = {}
    nobody = []
    for key, hand_in in hand_ins.items():
        keys = [f"{hand_in.lms}:{hand_in.lms_id}", *map(_plain, (key, hand_in.name))]
        student = next((owners[0] for name in keys if len(owners := index.get(name, [])) == 1), None)
        if student is None:
            nobody.append(key)
        elif student in tied:
            tied[student].files.extend(hand_in.files)
            tied[student].refused = "; ".join(filter(None, (tied[student].refused, hand_in.refused)))
        else:
            tied[student] = replace(hand_in, student=student, files=[*hand_in.files])
    everybody = {p.student: tied.get(p.student, HandIn(p.student)) for p in roster.people}
    return Tied(everybody, [p.student for p in roster.people if p.student not in tied], nobody)


def _index(people: Iterable[Person]) -> dict[str, list[str]]:
    """Students by everything that may name them."""
    index: dict[str, list[str]] = {}
    for person in people:
        names = {_plain(text) for text in (person.student, person.email, person.login, *_orders(person.name)) if text}
        numbers = {"canvas": person.canvas_id, "moodle": person.moodle_id}
        names |= {f"{lms}:{number}" for lms, number in numbers.items() if number}
        for name in names:
            index.setdefault(name, []).append(person.student)
    return index


def _orders(name: str) -> tuple[str, ...]:
    """A name as written, and as Canvas sorts it: family name first."""
    words = name.replace(",", " ").split()
    return name, " ".join(words[-1:] + words[:-1]), " ".join(words[1:] + words[:1])


def _plain(text: str) -> str:
    return re.sub(r"[\W_]", "", text.casefold())
