"""Pages about a graded class: one for each student, and one for the instructor. Each file needs no other."""

import re
from collections.abc import Iterable
from pathlib import Path

from distgen_lab.grading.gradebook import Book, write_whole
from distgen_lab.grading.pages.feedback import feedback_page
from distgen_lab.grading.pages.report import report_page

__all__ = ["feedback_page", "file_names", "report_page", "write_pages"]


def write_pages(book: Book, out: Path) -> list[Path]:
    """Write ``report.html`` and ``feedback/STUDENT.html`` into ``out``; return the report and the folder."""
    folder = out / "feedback"
    folder.mkdir(parents=True, exist_ok=True)
    names = file_names(book.by_student())
    for student, rows in book.by_student().items():
        write_whole(folder / names[student], feedback_page(rows, book.questions))
    write_whole(out / "report.html", report_page(book, {s: f"feedback/{name}" for s, name in names.items()}))
    return [out / "report.html", folder]


def file_names(students: Iterable[str]) -> dict[str, str]:
    """Return a harmless file name for each student, no two alike even where case does not count."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for student in students:
        stem = re.sub(r"[^\w@+-]+", "_", student).strip("_")[:80] or "student"
        name, number = stem, 1
        while name.casefold() in taken:
            number += 1
            name = f"{stem}_{number}"
        taken.add(name.casefold())
        found[student] = f"{name}.html"
    return found
