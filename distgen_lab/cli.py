"""The command ``distgen``: for students, instructors, lecturers and people who run clusters; ``distgen --help`` lists.

Exit codes: 0 done, 1 done and something is not right (a check failed, a capability is broken), 2 used wrongly.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distgen_lab import __version__, cli_plan
from distgen_lab.course import course_root

__all__ = ["main"]


class UsageError(Exception):
    """The command cannot do what was asked; one line says why."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (UsageError, *_expected()) as error:
        print(f"distgen {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = "the runs so far are kept, the same command goes on from there"
        done = kept if options.command in ("grade", "regrade") else "nothing was written"
        print(f"distgen {options.command}: interrupted; {done}", file=sys.stderr)
        return 130


def _expected() -> tuple[type[Exception], ...]:
    """Errors whose message is meant for the user; those of the grader only if it was loaded."""
    names = {
        "gradebook": "GradingError",
        "master": "MasterError",
        "run": "WorkerError",
        "submission": "UnreadableSubmission",
    }
    loaded = ((sys.modules.get(f"distgen_lab.grading.{module}"), name) for module, name in names.items())
    return (OSError, *(getattr(module, name) for module, name in loaded if module))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="distgen", description="DistGen Lab: the course, its grading, and what it knows of clusters."
    )
    parser.add_argument("--version", action="version", version=f"DistGen Lab {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _command(commands, "doctor", _doctor, "say what this machine can do and how to mend what is missing")
    check = _command(commands, "check", _check, "run your exercise notebook in a fresh kernel and get feedback")
    check.add_argument("notebook", type=Path, help="for example exercises/01_scale_arithmetic.ipynb")
    standing = _command(commands, "progress", _progress_of, "say which questions of your exercises are right by now")
    standing.add_argument("sections", nargs="*", metavar="SECTION", help="e.g. 01; all if none is named")
    standing.add_argument("--folder", type=Path, help="where the exercises lie (default: those of this course)")
    release = _command(commands, "release", _release, "write the class bundle: no solutions, no hidden checks")
    release.add_argument("out", type=Path, metavar="OUT", help="a new folder, or a new file that ends in .zip")
    release.add_argument("--quick", action="store_true", help="do not run the blank and the known wrong answers first")
    release.add_argument("--variants", type=int, default=1, metavar="K", help="K bundles with other worked inputs")
    release.add_argument("--seed", default="0", help="the seed that the class will be graded with")
    release.add_argument("--roster", type=Path, metavar="CSV", help="with --variants: also say who gets which bundle")
    release.add_argument("--nbgrader", action="store_true", help="write a course folder for nbgrader instead")
    grade = _command(commands, "grade", _grade, "grade a class: a folder or archive of submissions, as the LMS made it")
    grade.add_argument(
        "submissions", type=Path, nargs="+", metavar="SUBMISSIONS", help="a folder or zip; parts: --merge"
    )
    _grade_options(grade)
    regrade = _command(commands, "regrade", _regrade, "grade again after a fix; say whose marks change before writing")
    regrade.add_argument("grades", type=Path, metavar="GRADES", help="the folder that distgen grade wrote")
    regrade.add_argument("--yes", action="store_true", help="write; without it nothing is changed")
    explaining = _command(
        commands, "explain", _explain, "show what one answer gave and what was expected: not for students"
    )
    explaining.add_argument("student", metavar="STUDENT")
    explaining.add_argument("question", metavar="QUESTION", help="for example q3-2")
    explaining.add_argument("--grades", type=Path, default=Path("GRADES"), help="the graded class (default GRADES)")
    for command in (grade, regrade):
        command.add_argument("--void", action="append", metavar="QUESTION", default=[], help="full points for all")
        command.add_argument("-j", "--jobs", type=int, help="notebooks run at a time (default: one a core)")
    bench = _command(commands, "bench", _bench, "time a collective on real ranks, in the manner of nccl-tests")
    bench.add_argument("op", metavar="OPERATION", help="all_reduce, all_gather, reduce_scatter, broadcast, ...")
    bench.add_argument("--ranks", type=int, default=2)
    bench.add_argument("--backend", default="auto", help="auto, gloo, nccl or mpi")
    bench.add_argument("--min", type=_bytes, default=64, metavar="BYTES", help="smallest size, e.g. 64 or 4KiB")
    bench.add_argument("--max", type=_bytes, default=4 * 2**20, metavar="BYTES", help="largest size, e.g. 4MiB")
    bench.add_argument("--factor", type=int, default=4, help="each size is that many times the one before")
    bench.add_argument("--repeats", type=int, default=20)
    bench.add_argument("--csv", type=Path, metavar="FILE", help="also write the rows as CSV")
    bench.add_argument("--json", type=Path, metavar="FILE", help="also write the rows as JSON")
    reading = _command(commands, "read", _read, "say what a config, topology, benchmark log or trace means")
    reading.add_argument("files", nargs="+", metavar="FILE", help="of any kind; the traces of several ranks together")
    reading.add_argument("--json", action="store_true", help="for machines (keys: see distgen_lab.readers.verdict)")
    reading.add_argument("--kind", help="skip recognition: config, topology, nccl-xml, nccl-tests, osu or trace")
    reading.add_argument("--device", help="the GPU where a log or topology does not name it, e.g. H100")
    cli_plan.add_options(_command(commands, "plan", _plan, "plan a training run, or search all its layouts"))
    _lecturing(commands)
    for command in (release, grade, regrade, explaining):
        command.add_argument("--course", type=Path, help="the course folder, if it is not this one")
    showing = _command(commands, "demos", _demos, "write the lecture demos, first states, as one page of HTML")
    showing.add_argument("out", type=Path, metavar="OUT.html", help="a new file")
    for command in (release, grade):
        command.add_argument(
            "--section", action="append", metavar="NAME", help="only this section, e.g. 01 (repeatable)"
        )
    return parser


def _grade_options(grade: argparse.ArgumentParser) -> None:
    """What can be said about a class."""
    grade.add_argument(
        "--out", type=Path, required=True, metavar="GRADES", help="folder for everything that is written"
    )
    grade.add_argument("--seed", default="0", help="seed of the graded inputs (default 0)")
    grade.add_argument("--variants", type=int, default=8, metavar="K", help="sets of graded inputs (default 8)")
    grade.add_argument("--bundles", action="store_true", help="students got bundles of their own: release --variants K")
    grade.add_argument("--roster", type=Path, metavar="CSV", help="student, name, email, canvas_id, moodle_id, ...")
    grade.add_argument("--adjust", type=Path, metavar="CSV", help="student, question, manual, override, note")
    grade.add_argument("--deadline", default="", metavar="TIME", help="with a zone: 2027-02-01T23:59+01:00")
    grade.add_argument("--grace", type=float, default=0.0, metavar="SECONDS", help="this much later is in time")
    grade.add_argument("--late", default="0", metavar="PERCENT", help="taken off for each day begun")
    grade.add_argument("--late-most", default="100", metavar="PERCENT", help="never more than this is taken off")
    grade.add_argument("--file-times", action="store_true", help="a file's own time tells when it was handed in")
    grade.add_argument("--shard", default="", metavar="I/N", help="only the I-th of N parts of the class")
    grade.add_argument("--merge", action="store_true", help="SUBMISSIONS are graded parts: put them together")
    grade.add_argument("--no-sandbox", action="store_true", help="run students' code with your own rights; rows say so")
    grade.add_argument("--force", action="store_true", help="replace grades that are already in GRADES")


def _lecturing(commands: "argparse._SubParsersAction") -> None:
    """What lecturers and authors make of the course."""
    blanking = _command(commands, "blank", _blank, "write a notebook with its code taken out, to be typed live")
    sliding = _command(
        commands, "slides", _slides, "write a notebook as slides with speaker notes, stored outputs as shown"
    )
    sliding.add_argument(
        "--reveal", default="", metavar="ADDRESS", help="of reveal.js, to show slides without a network"
    )
    for command in (blanking, sliding):
        command.add_argument("notebook", type=Path, help="for example notebooks/01_scale_arithmetic.ipynb")
    guiding = _command(commands, "guide", _guide, "show the page for instructors and authors")
    referring = _command(commands, "reference", _reference, "write the API reference, with where each name is used")
    for command in (blanking, sliding, guiding, referring):
        optional = {"nargs": "?"} if command is guiding else {}
        command.add_argument("out", type=Path, metavar="OUT", help="a new file", **optional)


def _command(commands: "argparse._SubParsersAction", name: str, run: Callable, words: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=words, description=words[0].upper() + words[1:] + ".")
    command.set_defaults(run=run)
    return command


def _doctor(options: argparse.Namespace) -> int:
    from distgen_lab.doctor import OK, examine

    broken = 0
    for finding in examine():
        print(finding, flush=True)
        broken += finding.needed and finding.state != OK
    print("Everything the course needs is here." if not broken else f"{broken} to mend; the commands stand above.")
    return 1 if broken else 0


def _masters(options: argparse.Namespace) -> dict:
    """The masters asked for, by section name."""
    from distgen_lab.grading.master import Master

    root = course_root(options.course)
    paths = sorted((root / "solutions").glob("*.ipynb"))
    if not paths:
        raise UsageError(f"{root / 'solutions'} holds no notebooks; release and grade need the instructor's copy")
    asked = [f"{int(name):02}" if name.isdigit() else name for name in options.section or [""]]
    for name in asked:
        if not any(path.stem.startswith(name) for path in paths):
            raise UsageError(f"no section is called {name!r}; there are: {', '.join(p.stem for p in paths)}")
    return {path.stem: Master(path) for path in paths if path.stem.startswith(tuple(asked))}


def _release(options: argparse.Namespace) -> int:
    from distgen_lab.grading.handout import release_class
    from distgen_lab.grading.release import nbgrader_course

    if options.nbgrader and options.out.suffix.lower() == ".zip":
        raise UsageError(f"{options.out}: nbgrader works in a folder; name a new one")
    masters = _masters(options)
    if options.nbgrader:
        written = nbgrader_course(masters, options.out, options.quick, _progress)
    else:
        written = release_class(course_root(options.course), masters, options)
    print(*(f"{path}: {len(masters[path.stem].questions)} questions" for path in written), sep="\n")
    return 0


def _grade(options: argparse.Namespace) -> int:
    from distgen_lab.grading import classroom
    from distgen_lab.grading.gradebook import GradingError

    _check_out(options)
    try:
        if options.merge:
            return classroom.merge(options.submissions, options.out)
        settings = classroom.settings(options)
    except ValueError as error:
        raise GradingError(str(error)) from error
    masters = _masters(options)
    return classroom.grade(masters, settings, options.out, options.jobs, handed_in_only=not options.section)


def _regrade(options: argparse.Namespace) -> int:
    from distgen_lab.grading import classroom

    options.section = classroom.sections(options.grades)
    return classroom.regrade(_masters(options), options.grades, options.void, options.jobs, options.yes)


def _explain(options: argparse.Namespace) -> int:
    from distgen_lab.grading import classroom

    options.section = classroom.sections(options.grades, options.question)
    print(classroom.explain(_masters(options), options.grades, options.student, options.question))
    return 0


def _check_out(options: argparse.Namespace) -> None:
    """Find out before a long run whether the result can be written."""
    if options.out.exists() and not options.out.is_dir():
        raise UsageError(f"{options.out} is a file; name a folder for the grades")
    there = [name for name in ("grades.csv", "grades.json") if (options.out / name).exists()]
    if there and not options.force:
        raise UsageError(f"{options.out / there[0]} exists; name another folder, or say --force to replace it")
    if any(options.out.resolve().is_relative_to(folder.resolve()) for folder in options.submissions):
        raise UsageError(f"{options.out} lies in the submissions; name a folder outside them for the grades")
    existing = next(folder for folder in (options.out, *options.out.resolve().parents) if folder.exists())
    if not os.access(existing, os.W_OK):
        raise UsageError(f"{existing} cannot be written to; name another folder for the grades")


def _bytes(text: str) -> int:
    """A number of bytes, with or without a unit such as kB, MiB."""
    found = re.fullmatch(r"(\d+)\s*(?:([kKMG])(i?)B?)?", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 65536, 64kB or 64KiB")
    number, prefix, binary = found.groups()
    return int(number) * (1024 if binary else 1000) ** (" KMG".index(prefix.upper()) if prefix else 0)


def _bench(options: argparse.Namespace) -> int:
    from distgen_lab import bench

    for path in (path for path in (options.csv, options.json) if path and path.exists()):
        raise UsageError(f"{path} exists; name another file")
    rows = []
    try:
        steps = bench.sizes(options.min, options.max, options.factor)
        for row in bench.sweep(options.op, steps, options.ranks, options.backend, options.repeats):
            print(row if rows else f"{row.op}, {row.ranks} ranks, {row.backend}\n{bench.HEADER}\n{row}", flush=True)
            rows.append(row)
    except ValueError as error:
        raise UsageError(str(error)) from error
    finally:  # an interrupt keeps the rows that are there
        for path, text in ((options.csv, bench.to_csv), (options.json, bench.to_json)):
            if path and rows:
                path.write_text(text(rows), encoding="utf-8")
    print(fit if (fit := bench.fit_rows(rows)) else "three sizes are needed for a fit")
    return 1 if any(row.wrong for row in rows) else 0


def _read(options: argparse.Namespace) -> int:
    import json

    from distgen_lab.readers.verdict import judge

    try:
        verdicts, errors = judge(options.files, options.kind, options.device)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if options.json:
        said = [{"file": e.file, "line": e.line, "field": e.field, "message": str(e)} for e in errors]
        print(json.dumps({"schema": 1, "verdicts": [v.as_json() for v in verdicts], "errors": said}, indent=1))
    else:
        print(*verdicts, sep="\n\n", end="\n" if verdicts else "")
    for error in errors:
        print(f"distgen read: {error}", file=sys.stderr)
    return 2 if errors else 1 if any(verdict.healthy is False for verdict in verdicts) else 0


def _plan(options: argparse.Namespace) -> int:
    try:
        return cli_plan.run(options)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _demos(options: argparse.Namespace) -> int:
    from distgen_lab.demos.page import write_page

    if options.out.exists():
        raise UsageError(f"{options.out} exists; name another file")
    print(f"{options.out}: {write_page(options.out)} demos")
    return 0


def _progress_of(options: argparse.Namespace) -> int:
    from distgen_lab.progress import progress

    found = progress(options.folder, [f"{int(s):02}" if s.isdigit() else s for s in options.sections], _progress)
    if not found.rows:
        raise UsageError(f"no section is called {' or '.join(options.sections)}; try 01")
    print(found)
    return 0


def _write_new(path: Path, text: str) -> int:
    """Write a file that is not there yet."""
    if path.exists():
        raise UsageError(f"{path} exists; name another file")
    path.write_text(text, encoding="utf-8")
    print(path)
    return 0


def _notebook(path: Path) -> Any:
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except (nbformat.reader.NotJSONError, nbformat.ValidationError) as error:
        raise UsageError(f"{path}: not a notebook") from error


def _blank(options: argparse.Namespace) -> int:
    import nbformat

    from distgen_lab.handouts import blank

    return _write_new(options.out, nbformat.writes(blank(_notebook(options.notebook))) + "\n")


def _slides(options: argparse.Namespace) -> int:
    from distgen_lab.handouts import slides

    _notebook(options.notebook)
    return _write_new(options.out, slides(options.notebook, options.reveal))


def _guide(options: argparse.Namespace) -> int:
    from distgen_lab.guide import as_html, guide

    text = guide(_parser())
    if options.out is None:
        print(text)
        return 0
    return _write_new(options.out, text if options.out.suffix == ".md" else as_html(text))


def _reference(options: argparse.Namespace) -> int:
    from distgen_lab.reference import page

    if options.out.exists():
        raise UsageError(f"{options.out} exists; name another file")
    return _write_new(options.out, page(course_root()))


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _check(options: argparse.Namespace) -> int:
    from distgen_lab.grading.feedback import feedback

    lines, right, total = feedback(options.notebook)
    print(*lines, sep="\n")
    print(f"{right} of {total} questions are right for the worked input.")
    return 0 if right == total else 1


if __name__ == "__main__":
    sys.exit(main())
