"""Bundles for a class: one for all, or one for each variant of the worked inputs and a list of who gets which."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from distgen_lab.grading.gradebook import GradingError, csv_text, write_whole
from distgen_lab.grading.master import Master
from distgen_lab.grading.progress import Progress
from distgen_lab.grading.release import release
from distgen_lab.grading.roster import Roster
from distgen_lab.grading.variants import choices, variant

__all__ = ["class_file", "release_class"]


def release_class(root: Path, masters: Mapping[str, Master], options: argparse.Namespace) -> list[Path]:
    """Write what the options of ``distgen release`` ask for; return the exercise notebooks written.

    With K variants ``OUT/0`` to ``OUT/K-1`` are bundles, and with a roster ``OUT/variants.csv`` says who gets which:
    the one that ``distgen grade --variants K`` with the same seed will grade them with.

    Raises:
        GradingError: for a number of variants that is none, or more of them than any question has worked inputs.
        FileExistsError, MasterError: see :func:`distgen_lab.grading.release.release`.
    """
    if options.variants < 1:
        raise GradingError(f"--variants is {options.variants}; 1 or more is needed")
    if options.variants == 1:
        return release(root, dict(masters), options.out, options.quick, Progress())
    if max(max(choices(master).values()) for master in masters.values()) == 1:
        raise GradingError(
            "no question here has several worked inputs (checks.worked), so one bundle serves all; "
            "graded inputs vary with distgen grade --variants alone"
        )
    if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
        raise FileExistsError(f"{options.out} exists; name a new folder")
    people = Roster.read(options.roster).people if options.roster else ()
    written = []
    for number in range(options.variants):
        place, quick = options.out / str(number), options.quick or number > 0
        written += release(root, dict(masters), place, quick, Progress(), class_file(number))
    if people:
        rows = ([p.student, p.name, str(variant(p.student, options.seed, options.variants))] for p in people)
        write_whole(options.out / "variants.csv", csv_text(("student", "name", "bundle"), rows))
    return written


def class_file(number: int) -> dict[str, str]:
    """Return the file that tells a bundle its variant, by its path in the bundle."""
    return {"distgen_lab/data/class.json": json.dumps({"variant": number}) + "\n"}
