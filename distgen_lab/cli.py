"""The command ``distgen``: doctor, check, release, grade, bench, read.

Exit codes: 0 done, 1 done and something is not right (a check failed, a capability is broken), 2 used wrongly.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from distgen_lab import __version__
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
        print(f"distgen {options.command}: interrupted; nothing was written", file=sys.stderr)
        return 130


def _expected() -> tuple[type[Exception], ...]:
    """Errors whose message is meant for the user; those of the grader only if it was loaded."""
    names = {
        "grade": "GradingError",
        "master": "MasterError",
        "run": "WorkerError",
        "submission": "UnreadableSubmission",
    }
    loaded = ((sys.modules.get(f"distgen_lab.grading.{module}"), name) for module, name in names.items())
    return (OSError, *(getattr(module, name) for module, name in loaded if module))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="distgen", description="DistGen Lab: check, release and grade the course.")
    parser.add_argument("--version", action="version", version=f"DistGen Lab {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _command(commands, "doctor", _doctor, "say what this machine can do and how to mend what is missing")
    check = _command(commands, "check", _check, "run your exercise notebook in a fresh kernel and get feedback")
    check.add_argument("notebook", type=Path, help="for example exercises/01_scale_arithmetic.ipynb")
    release = _command(commands, "release", _release, "write the class bundle: no solutions, no hidden checks")
    release.add_argument("out", type=Path, metavar="OUT", help="a new folder")
    grade = _command(commands, "grade", _grade, "grade a folder with one folder or one notebook per student")
    grade.add_argument("submissions", type=Path, metavar="SUBMISSIONS")
    grade.add_argument(
        "--out", type=Path, required=True, metavar="GRADES", help="folder for grades.csv and grades.json"
    )
    grade.add_argument("--seed", default="0", help="seed of the graded inputs (default 0)")
    grade.add_argument("-j", "--jobs", type=int, help="notebooks run at a time (default: one a core)")
    grade.add_argument(
        "--no-sandbox", action="store_true", help="run students' code with your own rights; every row says so"
    )
    grade.add_argument("--force", action="store_true", help="replace grades that are already in GRADES")
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
    for command in (release, grade):
        command.add_argument("--course", type=Path, help="the course folder, if it is not this one")
        command.add_argument(
            "--section", action="append", metavar="NAME", help="only this section, e.g. 01 (repeatable)"
        )
    return parser


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
    from distgen_lab.grading.release import release

    masters = _masters(options)
    written = release(course_root(options.course), masters, options.out)
    print(*(f"{path}: {len(masters[path.stem].questions)} questions" for path in written), sep="\n")
    return 0


def _grade(options: argparse.Namespace) -> int:
    from distgen_lab.grading.grade import find_submissions, grade, write_grades
    from distgen_lab.grading.run import default_workers

    _check_out(options)
    if options.jobs is not None and options.jobs < 1:
        raise UsageError(f"--jobs is {options.jobs}; 1 or more is needed")
    submissions = find_submissions(options.submissions)
    masters = _masters(options)
    if not options.section:
        masters = _handed_in(masters, submissions)
    workers = options.jobs or default_workers()
    rows = grade(masters, submissions, options.seed, workers, _progress, sandbox=not options.no_sandbox)
    write_grades(rows, options.out)
    print(f"{len(submissions)} students, {len(rows)} rows: {options.out / 'grades.csv'}")
    return 0


def _check_out(options: argparse.Namespace) -> None:
    """Find out before a long run whether the result can be written."""
    if options.out.exists() and not options.out.is_dir():
        raise UsageError(f"{options.out} is a file; name a folder for the grades")
    there = [name for name in ("grades.csv", "grades.json") if (options.out / name).exists()]
    if there and not options.force:
        raise UsageError(f"{options.out / there[0]} exists; name another folder, or say --force to replace it")
    if options.out.resolve().is_relative_to(options.submissions.resolve()):
        raise UsageError(f"{options.out} lies in the submissions; name a folder outside them for the grades")
    existing = next(folder for folder in (options.out, *options.out.resolve().parents) if folder.exists())
    if not os.access(existing, os.W_OK):
        raise UsageError(f"{existing} cannot be written to; name another folder for the grades")


def _handed_in(masters: dict, submissions: dict[str, list[Path]]) -> dict:
    """Without --section: the sections that any student handed in, or all if no file says what it is."""
    from distgen_lab.grading.submission import Submission, UnreadableSubmission

    seen = set()
    for path in (path for paths in submissions.values() for path in paths):
        try:
            seen.add(Submission.read(path).section or path.stem)
        except UnreadableSubmission:
            continue
    return {name: master for name, master in masters.items() if name in seen} or masters


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
