"""The gradebook: one row per student and question, and the files it is written to."""

import csv
import io
import json
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

__all__ = [
    *("FIELDS", "Book", "CheckLine", "GradingError", "QuestionFacts", "Row", "csv_text", "decimal_text", "one_line"),
    *("plain_decimal", "read_book", "write_book", "write_grades", "write_whole"),
]

FIELDS = (
    *("student", "name", "section", "question", "title", "points", "out_of", "manual", "override", "late", "total"),
    *("reason", "attempt", "note", "sandbox"),
)
"""Columns of ``grades.csv``; the last word is ``total``."""


class GradingError(RuntimeError):
    """Grading cannot start or its result cannot be written; the message says why and what to do."""


@dataclass(frozen=True)
class CheckLine:
    """What came of one check, in words that its student may read.

    ``kind`` is ``visible`` or ``hidden``; ``state`` is ``right``, ``wrong``, ``error``, ``timeout``, ``died`` or
    ``not run``. ``words`` says more: for a visible check the hint or the error message, for a hidden one the author's
    hint alone. ``points`` is what a hidden check is worth, as decimal text.
    """

    id: str
    kind: str
    state: str
    words: str = ""
    points: str = ""


@dataclass(frozen=True)
class Row:
    """One student's result for one question. Points are decimal text; the reason is never empty.

    Attributes:
        points: what the checks gave.
        reason: why, for the instructor; it may tell values of hidden checks.
        sandbox: "no" where the code ran with the rights of whoever graded.
        checks: what feedback may show.
        manual: points added by hand, "" for none.
        override: points given by hand instead of all others, "" for none.
        late: points taken off for lateness, "" for none; the last thing that is applied.
        attempt: which of several attempts counted.
        note: what else is to be said: lateness, earlier attempts, a voided question.
        answer: the answer's tokens with names and comments taken out, for similarity.
    """

    student: str
    question: str
    points: str
    out_of: str
    reason: str
    sandbox: str = "yes"
    section: str = ""
    title: str = ""
    checks: tuple[CheckLine, ...] = ()
    name: str = ""
    manual: str = ""
    override: str = ""
    late: str = ""
    attempt: str = ""
    note: str = ""
    answer: str = ""

    @property
    def total(self) -> str:
        """The points that count: the override, else points and manual points, not below 0, less the deduction."""
        return plain_decimal(Decimal(self.override) if self.override else self.earned - Decimal(self.late or 0))

    @property
    def earned(self) -> Decimal:
        """Points and manual points, between 0 and the maximum."""
        return min(max(Decimal(self.points) + Decimal(self.manual or 0), Decimal(0)), Decimal(self.out_of))


@dataclass(frozen=True)
class QuestionFacts:
    """What the pages need to know of a question; ``answer`` is our solution's, as in :class:`Row`.

    ``name`` says what it is about, as the heading above it does.
    """

    key: str
    title: str
    section: str
    out_of: str
    hint: str = ""
    answer: str = ""
    name: str = ""


@dataclass
class Book:
    """A graded class: rows, questions, how it was graded, and hand-ins that belong to nobody on the roster."""

    rows: list[Row]
    questions: dict[str, QuestionFacts] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    nobody: list[str] = field(default_factory=list)

    def totals(self) -> dict[str, dict[str, str]]:
        """Return points and maximum of each student, as decimal text."""
        found: dict[str, list[Decimal]] = {}
        for row in self.rows:
            entry = found.setdefault(row.student, [Decimal(0), Decimal(0)])
            entry[0] += Decimal(row.total)
            entry[1] += Decimal(row.out_of)
        return {s: {"points": plain_decimal(got), "out_of": plain_decimal(most)} for s, (got, most) in found.items()}

    def by_student(self) -> dict[str, list[Row]]:
        """Return each student's rows."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.student, []).append(row)
        return found

    @property
    def sections(self) -> list[str]:
        """The sections that were graded, in order."""
        return list(dict.fromkeys(row.section for row in self.rows))


def plain_decimal(number: Decimal) -> str:
    """Return a number without exponent and trailing zeros."""
    return format(number.normalize(), "f")


def decimal_text(points: Fraction) -> str:
    """Return points as decimal text, rounded once, to two places."""
    exact = Decimal(points.numerator) / Decimal(points.denominator)
    return plain_decimal(exact.quantize(Decimal("0.01")))


def one_line(text: str, limit: int = 300) -> str:
    """Return printable text on one line: a student's error message ends up here."""
    return re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in text)).strip()[:limit]


def write_grades(rows: list[Row], out: Path) -> None:
    """Write ``grades.csv`` and ``grades.json`` of the rows alone into ``out``, whole or not at all."""
    write_book(Book(rows), out)


def write_book(book: Book, out: Path) -> None:
    """Write ``grades.csv`` and ``grades.json`` into ``out``, each whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    rows = ([getattr(row, name) for name in FIELDS] for row in book.rows)
    write_whole(out / "grades.csv", csv_text(FIELDS, rows))
    data = {"schema": 2, "totals": book.totals(), "settings": book.settings, "nobody": book.nobody}
    data["questions"] = [asdict(question) for question in book.questions.values()]
    data["rows"] = [asdict(row) | {"total": row.total} for row in book.rows]
    write_whole(out / "grades.json", json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_book(folder: Path) -> Book:
    """Return the class graded into ``folder``.

    Raises:
        GradingError: if there is no ``grades.json`` that this version wrote.
    """
    path = folder / "grades.json"
    try:
        data = json.loads(path.read_text("utf-8"))
        rows = [_row(dict(entry)) for entry in data["rows"]]
        questions = {entry["key"]: QuestionFacts(**entry) for entry in data["questions"]}
        return Book(rows, questions, data["settings"], data["nobody"])
    except FileNotFoundError as error:
        raise GradingError(f"{path} does not exist; name the folder that distgen grade wrote with --out") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GradingError(f"{path} is no gradebook of this version ({error}); grade again") from error


def _row(entry: dict[str, Any]) -> Row:
    entry.pop("total")
    return Row(**entry | {"checks": tuple(CheckLine(**line) for line in entry["checks"])})


def csv_text(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a CSV table in which no cell is read as a formula."""
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(header)
    writer.writerows([_safe_cell(value) for value in row] for row in rows)
    return table.getvalue()


def _safe_cell(text: str) -> str:
    """Keep a spreadsheet from reading a student's text as a formula; a number is none."""
    formula = text[:1] in ("=", "+", "-", "@", "\t", "\r") and not re.fullmatch(r"-\d+(\.\d+)?", text)
    return "'" + text if formula else text


def write_whole(path: Path, content: str) -> None:
    """Write the file under another name first, so that it is there whole or not at all."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8", newline="") as file:
        file.write(content)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)
