"""The C programs of section 5: shown, and compiled and run where there is a compiler."""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

__all__ = ["PROGRAMS", "CompileError", "Listing", "compile_and_run", "compiler", "listing"]

PROGRAMS = ("hello", "parameters", "overlap", "exchange", "collectives", "trainer")
"""The programs, in the order of the chapter."""
FLAGS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror")
QUIET = {"HYDRA_LAUNCHER": "fork", "HYDRA_RMK": "user", "UCX_LOG_LEVEL": "fatal", "HWLOC_HIDE_ERRORS": "2"}


class CompileError(RuntimeError):
    """The compiler refused a program, or the program failed; the message holds what was said."""


@dataclass(frozen=True)
class Listing:
    """The source of a C program: coloured in a notebook, plain in a terminal."""

    name: str
    source: str

    def __repr__(self) -> str:
        return self.source

    def _repr_markdown_(self) -> str:
        return f"```c\n{self.source}```"


def listing(name: str) -> Listing:
    """Return the source of one of :data:`PROGRAMS`.

    Raises:
        ValueError: for another name.
    """
    if name not in PROGRAMS:
        raise ValueError(f"name is {name!r}; there are: {', '.join(PROGRAMS)}")
    return Listing(name, (files("distgen_lab") / "data" / "c" / f"{name}.c").read_text(encoding="utf-8"))


def compiler() -> tuple[str, str]:
    """Return the paths of mpicc and mpiexec of one and the same MPI, beside this Python or on the path.

    Raises:
        LookupError: if one of them, or the C compiler behind mpicc, is missing; the message says which.
    """
    beside = str(Path(sys.executable).parent)
    folder = beside if shutil.which("mpicc", path=beside) else None
    found = {name: shutil.which(name, path=folder) for name in ("mpicc", "mpiexec")}
    for name, path in found.items():
        if path is None:
            raise LookupError(f"there is no {name}: the mpich wheel brings it (pip install -c constraints.txt mpich)")
    shown = subprocess.run([found["mpicc"], "-show"], capture_output=True, text=True, check=False)
    cc = shown.stdout.split()[0] if shown.stdout.split() else "cc"
    if shutil.which(cc) is None:
        raise LookupError(f"mpicc needs a C compiler, {cc}, and there is none")
    return found["mpicc"], found["mpiexec"]


def compile_and_run(name: str, ranks: int = 4, timeout: float = 60) -> str:
    """Compile a program and run it on ``ranks`` ranks; return the lines it printed, sorted.

    Returns "skipped: ..." with the reason where there is no compiler.

    Raises:
        CompileError: if the compiler warns or the program fails.
        ValueError: for an unknown program.
    """
    source = listing(name).source
    try:
        mpicc, mpiexec = compiler()
    except LookupError as error:
        return f"skipped: {error}"
    with tempfile.TemporaryDirectory(prefix="distgen-c-") as folder:
        file, program = Path(folder) / f"{name}.c", Path(folder) / name
        file.write_text(source, encoding="utf-8")
        _done([mpicc, *FLAGS, str(file), "-o", str(program), "-lm"], timeout)
        text = _done([mpiexec, "-n", str(ranks), str(program)], timeout)
    return "\n".join(sorted(text.splitlines()))


def _done(command: list[str], timeout: float) -> str:
    """Run a command; return what it printed."""
    outer = ("PMI_", "PMIX_", "HYDI_", "MPI_LOCAL")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(outer)} | QUIET
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, check=False)
    if done.returncode:
        raise CompileError(f"{Path(command[0]).name} failed ({done.returncode}): {(done.stderr or done.stdout)[-800:]}")
    return done.stdout
