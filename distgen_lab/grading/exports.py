"""The gradebook in other programs' formats: JUnit XML, and what Canvas and Moodle import."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree

from distgen_lab.grading.gradebook import Book, Row, csv_text, plain_decimal, write_whole
from distgen_lab.grading.roster import Person

__all__ = ["canvas_csv", "junit_xml", "moodle_csv", "write_exports"]


def write_exports(book: Book, people: Mapping[str, Person], out: Path) -> None:
    """Write ``junit.xml``, ``canvas.csv`` and ``moodle.csv`` into ``out``; ``people`` by student, as far as known."""
    everybody = {student: people.get(student, Person(student, name)) for student, name in _names(book).items()}
    write_whole(out / "junit.xml", junit_xml(book))
    write_whole(out / "canvas.csv", canvas_csv(book, everybody))
    write_whole(out / "moodle.csv", moodle_csv(book, everybody))


def _names(book: Book) -> dict[str, str]:
    return {row.student: row.name for row in book.rows}


def junit_xml(book: Book) -> str:
    """Return a test suite for each student; a question without full points is a failure that says its reason."""
    root = ElementTree.Element("testsuites", name="distgen grade")
    for student, rows in book.by_student().items():
        lost = sum(Decimal(row.total) < Decimal(row.out_of) for row in rows)
        counts = {"tests": str(len(rows)), "failures": str(lost), "errors": "0", "skipped": "0"}
        suite = ElementTree.SubElement(root, "testsuite", name=student, **counts)
        for row in rows:
            _case(suite, row)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, row: Row) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=row.section or "distgen", name=row.title or row.question)
    if Decimal(row.total) < Decimal(row.out_of):
        words = f"{row.total} of {row.out_of} points: {row.reason}"
        ElementTree.SubElement(case, "failure", message=words, type="points")


def section_points(book: Book) -> dict[str, dict[str, str]]:
    """Return the points of each student in each section, as decimal text."""
    found: dict[str, dict[str, Decimal]] = {}
    for row in book.rows:
        points = found.setdefault(row.student, {})
        points[row.section] = points.get(row.section, Decimal(0)) + Decimal(row.total)
    return {student: {s: plain_decimal(p) for s, p in points.items()} for student, points in found.items()}


def canvas_csv(book: Book, people: Mapping[str, Person]) -> str:
    """Return Canvas's gradebook import: one column a section; rename it to your assignment's name with its number."""
    most = {
        s: sum((Decimal(q.out_of) for q in book.questions.values() if q.section == s), Decimal(0))
        for s in book.sections
    }
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *book.sections]
    possible = ["Points Possible", "", "", "", "", *(plain_decimal(most[s]) for s in book.sections)]
    points = section_points(book)
    rows = [
        [p.name or p.student, p.canvas_id, p.sis_id or p.student, p.login, "", *_in_order(points[p.student], book)]
        for p in people.values()
    ]
    return csv_text(head, [possible, *rows])


def moodle_csv(book: Book, people: Mapping[str, Person]) -> str:
    """Return Moodle's grade import: map "ID number" or "Email address" to the user, and one column a section."""
    head = ["Identifier", "Full name", "ID number", "Email address", *book.sections]
    points = section_points(book)
    rows = [
        [
            *(f"Participant {p.moodle_id}" if p.moodle_id else "", p.name, p.sis_id or p.student, p.email),
            *_in_order(points[p.student], book),
        ]
        for p in people.values()
    ]
    return csv_text(head, rows)


def _in_order(points: Mapping[str, str], book: Book) -> list[str]:
    return [points.get(section, "") for section in book.sections]
