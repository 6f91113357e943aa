"""What the commands ``distgen grade``, ``regrade`` and ``explain`` do: from options to files and sentences."""

import argparse
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path

from distgen_lab.grading.assess import Settings, assess, merge_books, write_all
from distgen_lab.grading.gradebook import Book, GradingError, read_book
from distgen_lab.grading.master import Master
from distgen_lab.grading.progress import Progress
from distgen_lab.grading.run import default_workers

__all__ = ["changes", "explain", "grade", "merge", "regrade", "sections", "settings"]

WORK = ".work"
"""Folder in GRADES where the results of runs are kept: what has not changed is not run again."""


def settings(options: argparse.Namespace) -> Settings:
    """Return the settings that the options of ``distgen grade`` ask for.

    Raises:
        ValueError: for an option that makes no sense; the message names it.
    """
    _check_options(options)
    adjust = options.adjust or (path if (path := options.out / "adjustments.csv").exists() else None)
    paths = {"roster": options.roster, "adjustments": adjust}
    return Settings(
        str(options.submissions[0].absolute()),
        **{
            "seed": options.seed,
            "variants": options.variants,
            "bundles": options.bundles,
            "deadline": options.deadline,
            "grace": options.grace,
        },
        **{"late_per_day": options.late, "late_most": options.late_most, "voided": tuple(options.void)},
        **{"shard": options.shard, "sandbox": not options.no_sandbox, "file_times": options.file_times},
        **{name: str(path.absolute()) if path else "" for name, path in paths.items()},
    )


def _check_options(options: argparse.Namespace) -> None:
    if len(options.submissions) != 1:
        raise ValueError(f"{len(options.submissions)} SUBMISSIONS; one folder or archive is graded, parts need --merge")
    _workers(options.jobs)
    if "/" in options.seed:
        raise ValueError(f"--seed is {options.seed!r}; a slash stands before the number of a variant: leave it out")
    if options.variants < 1:
        raise ValueError(f"--variants is {options.variants}; 1 (all students alike) or more is needed")
    if not (math.isfinite(options.grace) and options.grace >= 0):
        raise ValueError(f"--grace is {options.grace}; 0 seconds or more are needed")
    for name, text in (("--late", options.late), ("--late-most", options.late_most)):
        _percent(text, name)
    _check_shard(options.shard)


def _workers(jobs: int | None) -> int:
    if jobs is not None and jobs < 1:
        raise GradingError(f"--jobs is {jobs}; 1 or more is needed")
    return jobs or default_workers()


def _percent(text: str, name: str) -> None:
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{name} is {text!r}; a number from 0 to 100 is needed") from error
    if not (number.is_finite() and 0 <= number <= 100):
        raise ValueError(f"{name} is {text!r}; a number from 0 to 100 is needed")


def _check_shard(shard: str) -> None:
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", shard)
    if shard and not (found and int(found[1]) <= int(found[2])):
        raise ValueError(f"--shard is {shard!r}; 1/4 to 4/4 are the parts of a class in four")


def grade(masters: Mapping[str, Master], settings: Settings, out: Path, jobs: int | None, handed_in_only: bool) -> int:
    """Grade the class, write everything, say what there is; return the exit code: 1 if a hand-in belongs to nobody."""
    book = assess(masters, settings, _workers(jobs), Progress(), handed_in_only, keep=out / WORK)
    return _finish(book, out)


def merge(parts: Iterable[Path], out: Path) -> int:
    """Put graded parts of a class together and write everything."""
    return _finish(merge_books(read_book(part) for part in parts), out)


def _finish(book: Book, out: Path) -> int:
    written = write_all(book, out)
    print(f"{len(book.by_student())} students, {len(book.rows)} rows: {', '.join(map(str, written))}")
    if book.nobody:
        print(f"{len(book.nobody)} hand-ins of nobody on the roster, not graded: {', '.join(book.nobody)}")
    return 1 if book.nobody else 0


def sections(grades: Path, question: str | None = None) -> list[str]:
    """Return the sections of a graded class; of one question its section alone.

    Raises:
        GradingError: if there is no such class or question.
    """
    book = read_book(grades)
    if question is None:
        return book.sections
    if question not in book.questions:
        raise GradingError(f"no question is called {question!r}; there are: {', '.join(book.questions)}")
    return [book.questions[question].section]


def regrade(masters: Mapping[str, Master], grades: Path, voided: Iterable[str], jobs: int | None, write: bool) -> int:
    """Grade the class again as it was graded, with these questions voided too; print whose marks change.

    Nothing is written without ``write``. Adjustments by hand are read anew and stay.
    """
    old = read_book(grades)
    before = Settings.of(old.settings)
    after = replace(before, voided=tuple(dict.fromkeys((*before.voided, *voided))))
    if not after.adjustments and (path := grades / "adjustments.csv").exists():
        after = replace(after, adjustments=str(path.absolute()))
    new = assess(masters, after, _workers(jobs), Progress(), keep=grades / WORK)
    lines = changes(old, new)
    print(*lines, sep="\n")
    if write:
        return _finish(new, grades)
    print("Nothing was written; say --yes to write." if lines else "Nothing changes.")
    return 0


def changes(old: Book, new: Book) -> list[str]:
    """Return a line for each row whose points changed, and one for each student whose total did."""
    before = {(row.student, row.question): row for row in old.rows}
    lines = []
    for row in new.rows:
        was = before.get((row.student, row.question))
        if was is None or was.total != row.total:
            why = (row.note or "by hand") if row.override else row.reason
            lines.append(f"{row.student}, {row.question}: {was.total if was else 'new'} -> {row.total} ({why})")
    lines += [f"{s}, {q}: {was.total} -> gone" for (s, q), was in before.items() if (s, q) not in _keys(new)]
    totals, now = old.totals(), new.totals()
    none = {"points": "0", "out_of": "0"}
    moved = [s for s in now if totals.get(s, none) != now[s]]
    return lines + [f"{s}: {_of(totals.get(s, none))} -> {_of(now[s])} points" for s in moved]


def _keys(book: Book) -> set[tuple[str, str]]:
    return {(row.student, row.question) for row in book.rows}


def _of(total: Mapping[str, str]) -> str:
    return f"{total['points']} of {total['out_of']}"


def explain(masters: Mapping[str, Master], grades: Path, student: str, question: str) -> str:
    """Return what the student's answer reported beside what the solution reports, run anew. Not for students.

    Raises:
        GradingError: if the class has no such student.
    """
    from distgen_lab.grading.inspect_answer import inspect_answer

    book = read_book(grades)
    row = next((row for row in book.rows if (row.student, row.question) == (student, question)), None)
    if row is None:
        raise GradingError(f"no student is called {student!r}; there are: {', '.join(book.by_student())}")
    return inspect_answer(masters[row.section], Settings.of(book.settings), row)
