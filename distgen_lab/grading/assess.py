"""A whole class in one go: find what was handed in, grade it, and turn the checks' rows into a gradebook."""

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from distgen_lab.grading import grade as grading
from distgen_lab.grading.collect import Chosen, HandedFile, HandIn, choose, collect
from distgen_lab.grading.exports import write_exports
from distgen_lab.grading.gradebook import Book, GradingError, QuestionFacts, Row, decimal_text, one_line, write_book
from distgen_lab.grading.master import Master
from distgen_lab.grading.policy import HandedIn, LatePolicy, adjust, deduct, read_adjustments, void
from distgen_lab.grading.roster import Person, Roster, Tied, aware, tie
from distgen_lab.grading.similarity import normalised
from distgen_lab.grading.submission import Submission, UnreadableSubmission
from distgen_lab.grading.variants import seeds_of

__all__ = ["Settings", "assess", "merge_books", "write_all"]


@dataclass(frozen=True)
class Settings:
    """How a class is graded: plain data, kept in ``grades.json`` so that it can be graded again the same way.

    Attributes:
        submissions, roster, adjustments: paths, "" for none.
        seed, variants, bundles: see :func:`distgen_lab.grading.variants.seeds_of`.
        deadline: ISO time with zone, "" for none; ``grace`` in seconds; ``late_per_day`` and ``late_most`` in percent.
        voided: keys of questions that give full points to all.
        shard: ``i/n`` for the i-th of n parts of the class, "" for all.
        sandbox: whether students' code is kept in one.
        file_times: whether a file's own time stands for the time of hand-in where nothing else says it.
    """

    submissions: str
    seed: str = "0"
    variants: int = 1
    bundles: bool = False
    roster: str = ""
    adjustments: str = ""
    deadline: str = ""
    grace: float = 0.0
    late_per_day: str = "0"
    late_most: str = "100"
    voided: tuple[str, ...] = ()
    shard: str = ""
    sandbox: bool = True
    file_times: bool = False

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Settings":
        """Return the settings kept in a gradebook."""
        return cls(**{**data, "voided": tuple(data.get("voided", ()))})

    def people(self) -> dict[str, Person]:
        """Return the people of the roster by student; none without a roster."""
        return {person.student: person for person in Roster.read(Path(self.roster)).people} if self.roster else {}

    def seeds(self, students: Iterable[str]) -> dict[str, str]:
        """Return each student's seed."""
        return seeds_of(students, self.seed, self.variants, self.bundles)

    def policy(self) -> LatePolicy:
        """Return what lateness costs."""
        deadline = aware(self.deadline, "--deadline") if self.deadline else None
        return LatePolicy(deadline, self.grace, Decimal(self.late_per_day), Decimal(self.late_most))


def assess(
    masters: Mapping[str, Master],
    settings: Settings,
    workers: int = 1,
    progress: Callable[[str], None] = lambda text: None,
    handed_in_only: bool = False,
    **engine: Any,
) -> Book:
    """Grade a class as the settings say; return its gradebook. Bad settings are refused before anything runs.

    Args:
        masters: by section; with ``handed_in_only`` those that nobody handed in are left out.
        settings: where the work lies and how it is graded.
        workers: notebooks run at a time.
        progress: called with a sentence as the work goes on.
        handed_in_only: see above.
        engine: passed on to :func:`distgen_lab.grading.grade.grade`.

    Raises:
        GradingError: if the settings, the roster, the adjustments or a solution are at fault.
    """
    people, policy = settings.people(), settings.policy()
    adjustments = read_adjustments(Path(settings.adjustments)) if settings.adjustments else {}
    with tempfile.TemporaryDirectory(prefix="distgen-collect-") as work:
        tied = _tied(collect(Path(settings.submissions), Path(work)), people)
        chosen = {student: choose(hand_in, masters) for student, hand_in in tied.hand_ins.items()}
        if handed_in_only:
            seen = {section for one in chosen.values() for section in one.attempts}
            masters = {name: master for name, master in masters.items() if name in seen} or masters
        hand_ins = _shard(tied.hand_ins, settings.shard)
        paths = {student: chosen[student].paths for student in hand_ins}
        seeds = settings.seeds(paths)
        options = {"sandbox": settings.sandbox, "seeds": seeds, **engine}
        rows = grading.grade(dict(masters), paths, settings.seed, workers, progress, **options)
        rows = [_dressed(row, hand_ins[row.student], chosen[row.student], people) for row in rows]
        rows = _with_answers(rows, masters, paths)
    mine = {key: one for key, one in adjustments.items() if not settings.shard or key[0] in hand_ins}
    rows = void(adjust(rows, mine), settings.voided)
    rows = deduct(rows, policy, _handed_in(rows, chosen, people, hand_ins, settings.file_times), people)
    return Book(rows, _facts(masters), asdict(settings), tied.nobody)


def _tied(hand_ins: dict[str, HandIn], people: Mapping[str, Person]) -> Tied:
    return tie(Roster(tuple(people.values())), hand_ins) if people else Tied(hand_ins)


def _shard(hand_ins: dict[str, HandIn], shard: str) -> dict[str, HandIn]:
    """Every n-th student, beginning with the i-th."""
    if not shard:
        return hand_ins
    i, n = map(int, shard.split("/"))
    return {student: hand_ins[student] for student in sorted(hand_ins)[i - 1 :: n]}


def _dressed(row: Row, hand_in: HandIn, chosen: Chosen, people: Mapping[str, Person]) -> Row:
    """The row with the student's name, the attempt that counted, and what was refused or is missing."""
    file = _attempt(chosen, row.section)
    name = people[row.student].name if row.student in people else hand_in.name
    notes = [chosen.notes.get(row.section, ""), f"refused: {hand_in.refused}" if hand_in.refused else ""]
    reason = row.reason
    if not chosen.paths:
        reason = f"refused: {hand_in.refused}" if hand_in.refused else "missing: no notebook was handed in"
        notes = []
    attempt = file.attempt if file else ""
    note = one_line("; ".join(filter(None, notes)))
    return replace(row, name=name, attempt=one_line(attempt), note=note, reason=one_line(reason))


def _attempt(chosen: Chosen, section: str) -> HandedFile | None:
    return chosen.attempts.get(section) or chosen.attempts.get(None)


def _handed_in(
    rows: Iterable[Row],
    chosen: Mapping[str, Chosen],
    people: Mapping[str, Person],
    hand_ins: Mapping[str, HandIn],
    file_times: bool,
) -> dict[tuple[str, str], HandedIn]:
    """When each student handed in each section: as the roster says, else as the attempt's folder or the file does."""
    found = {}
    for row in rows:
        file, person = _attempt(chosen[row.student], row.section), people.get(row.student)
        if file is None:
            continue
        when, source = file.when if file.stamped or file_times else None, "folder" if file.stamped else "file"
        if person and person.submitted:
            when, source = person.submitted, "roster"
        marked = hand_ins[row.student].lms == "canvas"
        found[row.student, row.section] = HandedIn(when, source, file.late, marked)
    return found


def _with_answers(rows: Iterable[Row], masters: Mapping[str, Master], paths: Mapping[str, list[Path]]) -> list[Row]:
    """The rows with the tokens of their answers."""
    given = {student: _sources(files) for student, files in paths.items()}
    found = []
    for row in rows:
        master = masters[row.section]
        stub = master.stub(row.question).strip()
        sources = given[row.student].get(master.questions[row.question].answer, [])
        own = [source for source in sources if source.strip() != stub]
        found.append(replace(row, answer=normalised(own[-1]) if own else ""))
    return found


def _sources(files: Iterable[Path]) -> dict[str | None, list[str]]:
    """Sources of a student's cells by cell id."""
    found: dict[str | None, list[str]] = {}
    for path in files:
        try:
            cells = Submission.read(path).cells
        except UnreadableSubmission:
            continue
        for name, source in cells:
            found.setdefault(name, []).append(source)
    return found


def _facts(masters: Mapping[str, Master]) -> dict[str, QuestionFacts]:
    return {
        q.key: QuestionFacts(
            *(q.key, q.title, section, decimal_text(q.points), q.nudge, normalised(master.cell(q.answer).source)),
            _about(master, q.title),
        )
        for section, master in masters.items()
        for q in master.all
    }


def _about(master: Master, title: str) -> str:
    """What the heading of a question says behind its title, "" if there is none."""
    heading = re.compile(rf"(?m)^#+ {re.escape(title)}: (.+)$")
    texts = (cell.source for cell in master.notebook.cells if cell.cell_type == "markdown")
    return next((found[1].strip() for text in texts if (found := heading.search(text))), "")


def write_all(book: Book, out: Path) -> list[Path]:
    """Write everything a graded class consists of into ``out``; return the files an instructor looks at first."""
    from distgen_lab.grading.pages import write_pages

    write_book(book, out)
    write_exports(book, Settings.of(book.settings).people() if book.settings else {}, out)
    return [out / "grades.csv", *write_pages(book, out)]


def merge_books(books: Iterable[Book]) -> Book:
    """Put the parts of a class together: what grading without ``--shard`` would have given.

    Raises:
        GradingError: if the parts were graded differently, a part is missing, or one comes twice.
    """
    parts = list(books)
    shards = [part.settings.get("shard", "") for part in parts]
    n = {shard.partition("/")[2] for shard in shards}
    if len(n) != 1 or "" in shards:
        raise GradingError(
            f"parts of one class are needed, made with --shard i/n; these are: {', '.join(map(repr, shards))}"
        )
    wanted = {f"{i}/{next(iter(n))}" for i in range(1, int(next(iter(n))) + 1)}
    if set(shards) != wanted or len(shards) != len(wanted):
        missing, twice = sorted(wanted - set(shards)), sorted({s for s in shards if shards.count(s) > 1})
        raise GradingError(f"missing parts: {', '.join(missing) or 'none'}; twice: {', '.join(twice) or 'none'}")
    for part in parts[1:]:
        for key in parts[0].settings:
            if key != "shard" and part.settings[key] != parts[0].settings[key]:
                raise GradingError(
                    f"part {part.settings['shard']} was graded with {key} {part.settings[key]!r}, "
                    f"part {shards[0]} with {parts[0].settings[key]!r}; grade it again"
                )
    rows = sorted((row for part in parts for row in part.rows), key=lambda row: row.student)
    questions = {key: facts for part in parts for key, facts in part.questions.items()}
    return Book(rows, questions, parts[0].settings | {"shard": ""}, parts[0].nobody)
