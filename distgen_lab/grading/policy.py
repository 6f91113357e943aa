"""Lateness, points by hand and voided questions: what is done to the checks' points, in this order and openly.

1. ``manual`` points are added to what the checks gave, within 0 and the maximum.
2. An ``override`` replaces everything; a voided question is an override with full points for all, so that maxima and
   columns of the LMS stay as they are. An override of one student counts more than a voided question.
3. Lateness comes last: a part of the points for each day begun. An override is not shortened.
"""

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path

from distgen_lab.grading.gradebook import GradingError, Row, plain_decimal
from distgen_lab.grading.roster import Person

__all__ = ["Adjustment", "HandedIn", "LatePolicy", "adjust", "deduct", "read_adjustments", "void"]


@dataclass(frozen=True)
class LatePolicy:
    """When work is late and what it costs: percent of the points for each day begun, ``most`` at most.

    ``grace`` is in seconds. Without a deadline nothing is late, save for people with a deadline of their own.
    """

    deadline: datetime | None = None
    grace: float = 0.0
    per_day: Decimal = Decimal(0)
    most: Decimal = Decimal(100)

    def days(self, when: datetime, person: Person) -> int:
        """Return the days begun after the person's deadline, extension included; 0 within the grace."""
        due = person.deadline or self.deadline
        late = when - due - person.extension if due else timedelta(0)
        return math.ceil(late / timedelta(days=1)) if late.total_seconds() > self.grace else 0

    def percent(self, days: int) -> Decimal:
        """Return what so many days cost, in percent of the points."""
        return min(self.per_day * days, self.most)


@dataclass(frozen=True)
class HandedIn:
    """When something was handed in, as far as it is known, and how that is known.

    ``late`` is the LMS's mark; ``marked`` says that it would have marked what is late.
    """

    when: datetime | None = None
    source: str = ""
    late: bool = False
    marked: bool = False


def deduct(
    rows: Iterable[Row],
    policy: LatePolicy,
    handed_in: Mapping[tuple[str, str], HandedIn],
    people: Mapping[str, Person],
) -> list[Row]:
    """Return the rows with ``late`` and its note; ``handed_in`` by student and section, ``people`` by student."""
    nothing = HandedIn()
    found = []
    for row in rows:
        person = people.get(row.student, Person(row.student))
        percent, words = _lateness(policy, handed_in.get((row.student, row.section), nothing), person)
        off = (row.earned * percent / 100).quantize(Decimal("0.01")) if percent and not row.override else Decimal(0)
        found.append(replace(row, late=plain_decimal(off) if off else "", note=_joined(row.note, words)))
    return found


def _lateness(policy: LatePolicy, handed_in: HandedIn, person: Person) -> tuple[Decimal, str]:
    """The percentage taken off, and the sentence that says so."""
    if not policy.deadline and not person.deadline:
        return Decimal(0), "marked late by Canvas" if handed_in.late else ""
    if handed_in.when is None:
        return _marked(policy, handed_in, person)
    days = policy.days(handed_in.when, person)
    if not days:
        return Decimal(0), ""
    moment = handed_in.when.isoformat(" ", "minutes")
    return policy.percent(days), f"late: {days} day{'s' if days > 1 else ''} begun ({handed_in.source} {moment})"


def _marked(policy: LatePolicy, handed_in: HandedIn, person: Person) -> tuple[Decimal, str]:
    """Lateness that only the LMS's mark tells of."""
    if not handed_in.late:
        return Decimal(0), "" if handed_in.marked else "late or not: no time of hand-in is known"
    if person.extension or person.deadline:
        return Decimal(0), "marked late by Canvas, not deducted: more time was granted and no time of hand-in is known"
    return policy.percent(1), "late: marked by Canvas; one day is counted, no time of hand-in is known"


@dataclass(frozen=True)
class Adjustment:
    """What an instructor decided by hand for one student's question."""

    manual: Decimal | None = None
    override: Decimal | None = None
    note: str = ""


def read_adjustments(path: Path) -> dict[tuple[str, str], Adjustment]:
    """Read a CSV file with columns student, question, manual, override, note; by student and question.

    Raises:
        GradingError: for a missing column, a number that is none, or a line that comes twice; the line is named.
    """
    try:
        lines = csv.DictReader(io.StringIO(path.read_text("utf-8-sig"), newline=""))
    except (OSError, UnicodeDecodeError) as error:
        raise GradingError(f"{path}: cannot be read ({error})") from error
    lacking = {"student", "question"} - set(lines.fieldnames or ())
    if lacking or not {"manual", "override"} & set(lines.fieldnames or ()):
        raise GradingError(f"{path}, line 1: columns student, question, manual, override, note are needed")
    found: dict[tuple[str, str], Adjustment] = {}
    for line in lines:
        where = f"{path}, line {lines.line_num}"
        key = (line["student"].strip(), line["question"].strip())
        if key in found:
            raise GradingError(f"{where}: {key[0]} and {key[1]} stand there twice")
        manual, override = (_number(line.get(name), f"{where}, {name}") for name in ("manual", "override"))
        found[key] = Adjustment(manual, override, (line.get("note") or "").strip())
    return found


def _number(text: str | None, where: str) -> Decimal | None:
    if not (text or "").strip():
        return None
    try:
        number = Decimal(text.strip())
    except InvalidOperation as error:
        raise GradingError(f"{where} is {text!r}; a number of points is needed") from error
    if not number.is_finite():
        raise GradingError(f"{where} is {text!r}; a number of points is needed")
    return number


def adjust(rows: Iterable[Row], adjustments: Mapping[tuple[str, str], Adjustment]) -> list[Row]:
    """Return the rows with manual points and overrides.

    Raises:
        GradingError: if an adjustment is for no row, or an override is negative or above the maximum.
    """
    rows = list(rows)
    unknown = set(adjustments) - {(row.student, row.question) for row in rows}
    if unknown:
        student, question = min(unknown)
        raise GradingError(f"adjustment for student {student!r}, question {question!r}: nobody has such a row")
    return [_adjusted(row, adjustments.get((row.student, row.question))) for row in rows]


def _adjusted(row: Row, adjustment: Adjustment | None) -> Row:
    if adjustment is None:
        return row
    override = adjustment.override
    if override is not None and not 0 <= override <= Decimal(row.out_of):
        raise GradingError(f"override {override} for {row.student}, {row.question}: 0 to {row.out_of} is possible")
    manual, override = ("" if n is None else plain_decimal(n) for n in (adjustment.manual, override))
    return replace(row, manual=manual, override=override, note=_joined(row.note, adjustment.note))


def void(rows: Iterable[Row], questions: Iterable[str]) -> list[Row]:
    """Return the rows with full points for all in the voided questions; a student's own override stays.

    Raises:
        GradingError: if there is no such question.
    """
    rows, voided = list(rows), set(questions)
    known = dict.fromkeys(row.question for row in rows)
    unknown = voided - set(known)
    if unknown:
        raise GradingError(f"question {min(unknown)!r} cannot be voided; there are: {', '.join(known)}")
    words = "question voided: full points for all"
    return [
        replace(row, override=row.override or row.out_of, note=_joined(row.note, words))
        if row.question in voided
        else row
        for row in rows
    ]


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))
