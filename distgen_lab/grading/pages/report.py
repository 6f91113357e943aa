"""The instructor's page: how the class did, which questions misled it, which wrong answers are common, what is odd."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import StatisticsError, correlation, fmean, median

from markupsafe import Markup

from distgen_lab.grading.gradebook import Book, Row, plain_decimal
from distgen_lab.grading.pages.outcome import OUTCOMES, outcome, section_name
from distgen_lab.grading.pages.render import render
from distgen_lab.grading.pages.svg import columns, strip
from distgen_lab.grading.similarity import pairs, resembling
from distgen_lab.plots.canvas import PALETTE

__all__ = ["QuestionStatistics", "flags", "report_page", "statistics"]

COLORS = {
    "full": PALETTE["blue"],
    "part": PALETTE["sky"],
    "worked": PALETTE["orange"],
    "wrong": PALETTE["red"],
    "failed": "#7F3C8D",
    "blank": "#C9C9C9",
    "missing": "#EBEBEB",
}
"""Colours of outcomes: told apart in grey and by colour-blind readers, full blue to empty grey."""
BINS = 10


@dataclass(frozen=True)
class QuestionStatistics:
    """How a class did on one question.

    Attributes:
        counts: students by outcome.
        difficulty: share of all points that was earned, 0 (nobody) to 1 (everybody), among those who handed in.
        discrimination: correlation of its points with the points of all other questions; None where one is constant.
        wrong: hints and error messages with their numbers, commonest first.
    """

    key: str
    title: str
    counts: dict[str, int]
    difficulty: float
    discrimination: float | None
    wrong: list[tuple[str, int]]

    @property
    def advice(self) -> str:
        """What an instructor should look at, "" if nothing."""
        if self.discrimination is not None and self.discrimination < 0.1:
            return "who is good elsewhere is not good here: read the question again"
        if self.difficulty < 0.2:
            return "hardly anybody: taught, or misread?"
        return "everybody: nothing to learn from it" if self.difficulty > 0.97 else ""


def statistics(book: Book) -> list[QuestionStatistics]:
    """Return the statistics of each question in order; who did not hand in its section counts only in ``counts``."""
    points: dict[tuple[str, str], dict[str, float]] = {}
    for row in book.rows:
        if outcome(row) != "missing":
            points.setdefault((row.student, row.section), {})[row.question] = float(row.points)
    return [_statistics(book, key, points.values()) for key in dict.fromkeys(row.question for row in book.rows)]


def _statistics(book: Book, key: str, points: Iterable[Mapping[str, float]]) -> QuestionStatistics:
    """``points`` of each hand-in by question; the rest is that of the question's own section."""
    rows = [row for row in book.rows if row.question == key]
    counts = Counter(outcome(row) for row in rows)
    both = [(given[key], sum(given.values()) - given[key]) for given in points if key in given]
    item, rest = [own for own, _ in both], [other for _, other in both]
    most = float(rows[0].out_of)
    said = Counter(_mistake(row) for row in rows)
    said.pop("", None)
    return QuestionStatistics(
        key,
        rows[0].title or key,
        {kind: counts[kind] for kind in OUTCOMES},
        fmean(item) / most if item and most else 0.0,
        _correlation(item, rest),
        said.most_common(),
    )


def _correlation(item: Sequence[float], rest: Sequence[float]) -> float | None:
    try:
        return correlation(item, rest)
    except StatisticsError:  # fewer than two students, or all alike
        return None


def _mistake(row: Row) -> str:
    """What is said to a wrong answer: the hint, else the kind of failure."""
    kind = outcome(row)
    if kind == "worked":
        return "right for the worked input, wrong for others"
    visible = next((line for line in row.checks if line.kind == "visible"), None)
    return visible.words or visible.state if visible and kind in ("wrong", "failed") else ""


def flags(book: Book) -> list[tuple[str, str, str]]:
    """Return (student, question, why) for what an instructor should see: signs of tampering, crashes, odd hand-ins."""
    signs = {
        "several reports": "the check's report was made more than once",
        "recorded twice": "the end of a cell was reported twice",
        "no report": "the check ran and reported nothing",
        "died": "the kernel ended",
    }
    found = []
    for row in book.rows:
        words = [sign for word, sign in signs.items() if word in row.reason]
        words += ["ran outside the sandbox"] if row.sandbox != "yes" else []
        found += [(row.student, row.title, word) for word in words[:1]]
    refused = {row.student: row.reason for row in book.rows if row.reason.startswith("refused")}
    found += [(student, "", reason) for student, reason in refused.items()]
    worked = Counter(row.student for row in book.rows if outcome(row) == "worked")
    found += [(s, f"{n} questions", "right for the worked input only: typed in?") for s, n in worked.items() if n > 1]
    return found


def report_page(book: Book, pages: Mapping[str, str]) -> str:
    """Return the instructor's page as HTML; ``pages`` are links to the students' pages."""
    answers = {s: {r.question: r.answer for r in rows if r.answer} for s, rows in book.by_student().items()}
    ours = {key: facts.answer for key, facts in book.questions.items() if facts.answer}
    found = statistics(book)
    return render(
        "report.html",
        book=book,
        cards=_cards(book),
        histogram=_histogram(book),
        questions=[(one, strip(one.counts, COLORS, OUTCOMES, one.title)) for one in found],
        mistakes=[one for one in found if one.wrong],
        colors=COLORS,
        names=OUTCOMES,
        legend=[(COLORS[kind], name) for kind, name in OUTCOMES.items()],
        pairs=pairs(answers, {key: [text] for key, text in ours.items()})[:20],
        resembling=[(s, share) for s, share in resembling(answers, ours).items() if share > 0.9][:20],
        titles={one.key: one.title for one in found},
        about={key: facts.name for key, facts in book.questions.items()},
        sections=[section_name(section) for section in book.sections],
        names_of={row.student: row.name or row.student for row in book.rows},
        flags=flags(book),
        students=_students(book, pages),
    )


def _cards(book: Book) -> list[tuple[str, str]]:
    """The numbers at the top of the page."""
    totals = book.totals()
    missing = [s for s, rows in book.by_student().items() if all(outcome(row) == "missing" for row in rows)]
    points = [float(total["points"]) for s, total in totals.items() if s not in missing]
    most = max((Decimal(total["out_of"]) for total in totals.values()), default=Decimal(0))
    cards = [("students", str(len(totals))), ("nothing handed in", str(len(missing)))]
    if points:
        cards += [("mean", f"{fmean(points):.1f}"), ("median", f"{median(points):g}")]
        cards += [("best", f"{max(points):g}"), ("points possible", plain_decimal(most))]
    return cards


def _histogram(book: Book) -> Markup:
    """Students by share of all points, in ten steps; nothing handed in counts as nothing earned."""
    shares = [float(t["points"]) / float(t["out_of"]) for t in book.totals().values() if float(t["out_of"])]
    bins = Counter(min(int(share * BINS + 1e-9), BINS - 1) for share in shares)
    heights = [bins[i] for i in range(BINS)]
    labels = [f"{100 * i // BINS}–{100 * (i + 1) // BINS}" for i in range(BINS)]
    return columns(
        heights, labels, COLORS["full"], f"Students by percent of all points: {heights}", "percent of all points"
    )


def _students(book: Book, pages: Mapping[str, str]) -> list[dict]:
    """The table of students, best first."""
    totals = book.totals()
    found = [
        {
            "student": student,
            "name": rows[0].name,
            "page": pages.get(student, ""),
            "points": totals[student]["points"],
            "strip": [(outcome(row), row.title) for row in rows],
            "late": plain_decimal(sum((Decimal(row.late or 0) for row in rows), Decimal(0))),
            "note": "; ".join(dict.fromkeys(row.note for row in rows if row.note)),
        }
        for student, rows in book.by_student().items()
    ]
    return sorted(found, key=lambda entry: (-float(entry["points"]), entry["student"]))
