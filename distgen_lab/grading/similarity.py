"""How alike two answers are once names, comments and layout are taken out of them."""

import builtins
import io
import keyword
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from itertools import combinations
from statistics import fmean

__all__ = ["Pair", "alike", "normalised", "pairs", "resembling"]

_LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING),
    tokenize.ENDMARKER,
}
_KEPT = {*keyword.kwlist, *dir(builtins)}
FEW = 12
"""Answers of fewer tokens look alike by themselves and are not compared."""


def normalised(source: str) -> str:
    """Return the tokens of an answer, own names numbered in order of appearance, comments and docstrings left out."""
    names: dict[str, str] = {}
    words: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in _LAYOUT or (token.type == tokenize.STRING and words[-1:] in ([], [":"])):
                continue
            own = token.type == tokenize.NAME and token.string not in _KEPT and words[-1:] != ["."]
            words.append(names.setdefault(token.string, f"v{len(names) + 1}") if own else token.string)
    except (tokenize.TokenError, SyntaxError):
        return " ".join(source.split())
    return " ".join("".join(word.split()) for word in words)


@cache
def alike(one: str, other: str) -> float:
    """Return how alike two normalised answers are, 0 to 1, by the longest runs of tokens they share."""
    return 1.0 if one == other else SequenceMatcher(None, one.split(), other.split(), autojunk=False).ratio()


@dataclass(frozen=True)
class Pair:
    """Two students: mean likeness of the answers both gave, and questions where they share one that few others gave."""

    students: tuple[str, str]
    mean: float
    shared: tuple[str, ...]


def pairs(answers: Mapping[str, Mapping[str, str]], known: Mapping[str, Iterable[str]], least: int = 2) -> list[Pair]:
    """Return the pairs of students that share at least ``least`` answers which are neither common nor ours.

    An answer is common if more than a tenth of the class, and more than three students, gave it.

    Args:
        answers: normalised answers by student and question.
        known: normalised answers by question that anybody may have, e.g. our solution.
        least: how many such answers make a pair worth a look.
    """
    givers: dict[tuple[str, str], list[str]] = defaultdict(list)
    for student, given in answers.items():
        for question, text in given.items():
            if len(text.split()) >= FEW and text not in set(known.get(question, ())):
                givers[question, text].append(student)
    most = max(3, len(answers) // 10)
    shared: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (question, _), students in givers.items():
        for pair in combinations(students, 2) if len(students) <= most else ():
            shared[pair].append(question)
    found = [Pair(p, _mean(answers[p[0]], answers[p[1]]), tuple(q)) for p, q in shared.items() if len(q) >= least]
    return sorted(found, key=lambda pair: (-len(pair.shared), -pair.mean, pair.students))


def resembling(answers: Mapping[str, Mapping[str, str]], ours: Mapping[str, str]) -> dict[str, float]:
    """Return for each student the mean likeness of their answers to ours; students without answers are left out."""
    means = {student: _mean(given, ours) for student, given in answers.items() if set(given) & set(ours)}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def _mean(one: Mapping[str, str], other: Mapping[str, str]) -> float:
    both = [question for question in one if question in other]
    return fmean(alike(one[question], other[question]) for question in both) if both else 0.0
