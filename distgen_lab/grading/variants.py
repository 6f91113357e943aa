"""Other numbers for other students: which variant is whose, and how a run gets its seed."""

import ast
import hashlib
import hmac
import re
from collections.abc import Iterable

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from distgen_lab.checks import SEED_VARIABLE, VARIANT_VARIABLE
from distgen_lab.grading.master import Master, MasterError
from distgen_lab.grading.submission import Merged

__all__ = ["choices", "number_of", "seeded", "seeds_of", "variant"]


def variant(student: str, seed: str, variants: int) -> int:
    """Return the student's variant, 0 to ``variants`` - 1: the same for the same class seed, for others hard to guess.

    Raises:
        ValueError: if ``variants`` is less than 1.
    """
    if variants < 1:
        raise ValueError(f"variants is {variants}; 1 (all students alike) or more is needed")
    return int.from_bytes(hmac.digest(seed.encode(), student.encode(), hashlib.sha256)) % variants


def seeds_of(students: Iterable[str], seed: str, variants: int, bundles: bool = False) -> dict[str, str]:
    """Return the seed of each student's graded inputs: ``seed`` itself for one variant, else ``seed/variant``.

    With ``bundles`` the worked inputs are those of the variant too, as in ``distgen release --variants``; the seed then
    reads ``seed/bundle-variant``.
    """
    if variants == 1:
        return dict.fromkeys(students, seed)
    return {student: f"{seed}/{'bundle-' * bundles}{variant(student, seed, variants)}" for student in students}


def seeded(merged: Merged, seed: str) -> Merged:
    """Return the merged notebooks with a first cell that sets the seed of the graded inputs, and the variant."""
    facts = {SEED_VARIABLE: seed, VARIANT_VARIABLE: str(number_of(seed))}
    for notebook in (merged.visible, merged.hidden):  # no import: it would stand in the student's namespace
        notebook.cells.insert(0, new_code_cell(f"__import__('os').environ.update({facts!r})"))
    return merged


def number_of(seed: str) -> int:
    """Return the variant of the worked inputs in a seed that :func:`seeds_of` made, 0 where it names none."""
    found = re.search(r"/bundle-(\d+)$", seed)
    return int(found[1]) if found else 0


def choices(master: Master) -> dict[str, int]:
    """Return how many worked inputs the visible check of each question has, by question; most have one.

    Raises:
        MasterError: if the lists given to ``checks.worked`` are not written out, or are of different lengths.
    """
    return {question.key: _choices(master, master.cell(question.visible)) for question in master.all}


def _choices(master: Master, cell: NotebookNode) -> int:
    calls = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call)]
    lists = [word.value for call in calls if _is_worked(call.func) for word in call.keywords]
    lengths = {len(node.elts) if isinstance(node, ast.List | ast.Tuple) else 0 for node in lists}
    if len(lengths) > 1 or 0 in lengths:
        raise MasterError(f"{master.path}: cell {cell.id!r}: write the lists of checks.worked out, all of one length")
    return next(iter(lengths), 1)


def _is_worked(function: ast.expr) -> bool:
    return "worked" in (getattr(function, "attr", ""), getattr(function, "id", ""))
