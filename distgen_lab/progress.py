"""How far a student is: which questions pass their visible checks, found by running the answers, never by looking at
stored outputs, which may be older than the answers above them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from distgen_lab.claims import html_table
from distgen_lab.course import course_root
from distgen_lab.grading.feedback import exercises, feedback
from distgen_lab.grading.master import Master
from distgen_lab.grading.submission import Submission, UnreadableSubmission, merge

__all__ = ["Progress", "Standing", "progress", "standings"]


@dataclass(frozen=True)
class Standing:
    """One notebook of exercises: how many of its questions are answered and right, and a sentence for each.

    ``problem`` says why it could not be run, "" if it was; of a notebook without an answer nothing is run.
    """

    section: str
    right: int
    answered: int
    total: int
    sentences: tuple[str, ...] = ()
    problem: str = ""

    @property
    def next_step(self) -> str:
        """The first sentence about a question that is not right yet."""
        if self.problem:
            return self.problem
        if not self.answered:
            return "not started"
        return next((text for text in self.sentences if not text.endswith("right.")), "done")


@dataclass(frozen=True, repr=False)
class Progress:
    """All notebooks of exercises as a table: HTML in a notebook, lines in a terminal."""

    rows: tuple[Standing, ...]

    @property
    def words(self) -> str:
        """How many questions of all are right."""
        right, total = sum(row.right for row in self.rows), sum(row.total for row in self.rows)
        return f"{right} of {total} questions are right for the worked input, run just now from the saved notebooks."

    def _cells(self) -> Iterator[tuple[str, str, str, str]]:
        for row in self.rows:
            bar = "■" * row.right + "▫" * (row.answered - row.right) + "□" * (row.total - row.answered)
            yield row.section, bar, f"{row.right} of {row.total}", row.next_step

    def _repr_html_(self) -> str:
        return f"<p>{self.words}</p>{html_table(('exercises', '', 'right', 'next'), self._cells())}"

    def __repr__(self) -> str:
        lines = [f"{name:<26}{bar:<11}{right:<9}{words}" for name, bar, right, words in self._cells()]
        return "\n".join([*lines, "", self.words])


def standings(folder: Path, sections: Sequence[str] = ()) -> Iterator[Standing]:
    """Yield the standing of each notebook of exercises in ``folder``, in the order of the sections.

    Args:
        folder: where the exercises lie.
        sections: beginnings of their names, e.g. "01"; all if none are given.

    A notebook that cannot be read or run is a standing with a problem, and the next one follows.
    """
    for section, original in exercises().items():
        if section.startswith(tuple(sections) or ""):
            yield _standing(folder / f"{section}.ipynb", Master(original, released=True))


def _standing(path: Path, master: Master) -> Standing:
    """Run the notebook if there is an answer in it."""
    total = len(master.all)
    if not path.exists():
        return Standing(master.section, 0, 0, total, problem=f"{path.name} is not in {path.parent}")
    try:
        found = merge(master, Submission.read(path)).found
        answered = sum(state not in ("blank", "missing") for state in found.values())
        if not answered:
            return Standing(master.section, 0, 0, total)
        sentences, right, _ = feedback(path)
    except UnreadableSubmission as error:
        return Standing(master.section, 0, 0, total, problem=str(error))
    return Standing(master.section, right, answered, total, tuple(sentences))


def progress(
    folder: Path | None = None, sections: Sequence[str] = (), say: Callable[[str], None] | None = None
) -> Progress:
    """Return which questions of the exercises pass their visible checks, by running them as ``distgen check`` does.

    Args:
        folder: of the exercises; that of the course if not given.
        sections: beginnings of their names, e.g. "01"; all if none are given.
        say: is told each notebook's result as it is known.

    What counts is what was saved. A notebook with answers takes some seconds to a minute; one without is not run.

    Raises:
        CourseNotFound: where no folder is given and there is no course.
    """
    rows = []
    for standing in standings(folder or course_root() / "exercises", sections):
        rows.append(standing)
        if say:
            say(f"{standing.section}: {standing.right} of {standing.total}")
    return Progress(tuple(rows))
