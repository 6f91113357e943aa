"""The page a student gets: their points, what to look at, and nothing of the graded inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from distgen_lab.grading.gradebook import CheckLine, QuestionFacts, Row, plain_decimal
from distgen_lab.grading.pages.outcome import OUTCOMES, outcome, section_name
from distgen_lab.grading.pages.render import render

__all__ = ["feedback_page"]

_STATES = {
    "right": "right",
    "wrong": "not right",
    "error": "an error",
    "timeout": "no end within the time limit",
    "died": "the kernel ended",
    "not run": "not reached",
}


@dataclass(frozen=True)
class _Line:
    """One check as shown: what it is, whether it is right, what came of it, and what the author says to it."""

    what: str
    right: bool
    state: str
    words: str


def feedback_page(rows: Sequence[Row], questions: Mapping[str, QuestionFacts]) -> str:
    """Return one student's page as HTML.

    Of hidden checks it tells name, points and the author's hint; of visible ones what the student's own run said.
    """
    sections = {section: [row for row in rows if row.section == section] for section in _sections(rows)}
    got, most = (sum((Decimal(getattr(row, name)) for row in rows), Decimal(0)) for name in ("total", "out_of"))
    return render(
        "feedback.html",
        student=rows[0].name or rows[0].student,
        sections={section_name(name): [_question(row, questions) for row in part] for name, part in sections.items()},
        notes=list(dict.fromkeys(row.note for row in rows if row.note and not row.override)),
        attempts=sorted({row.attempt for row in rows if row.attempt}),
        points=plain_decimal(got),
        out_of=plain_decimal(most),
        share=float(got / most) if most else 0.0,
    )


def _sections(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.section for row in rows))


def _question(row: Row, questions: Mapping[str, QuestionFacts]) -> dict:
    """What the template shows of one question."""
    kind = outcome(row)
    says = row.reason if kind in ("blank", "missing") else ""
    several = sum(line.kind == "hidden" for line in row.checks) > 1
    lines = [] if says else [_line(line, several) for line in row.checks]
    by_hand = [f"{row.manual} points by hand"] if row.manual else []
    by_hand += [f"set to {row.override} points by hand"] if row.override and "voided" not in row.note else []
    by_hand += [f"less {row.late} for lateness"] if row.late else []
    by_hand += [row.note] if row.override and row.note else []
    about = questions[row.question].name if row.question in questions else ""
    return {
        "row": row,
        "about": about,
        "kind": kind,
        "verdict": OUTCOMES[kind],
        "says": says,
        "lines": lines,
        "by_hand": by_hand,
    }


def _line(line: CheckLine, several: bool) -> _Line:
    worth = f" ({line.points} points)" if several and line.points else ""
    what = "Worked input" if line.kind == "visible" else f"Graded inputs{worth}"
    return _Line(what, line.state == "right", _STATES.get(line.state, line.state), line.words)
