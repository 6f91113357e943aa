"""The ranks of ``launch(..., backend="mpi")``: started by ``mpiexec``, watched through files in the launch's folder."""

import contextlib
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from distgen_lab.ranks import diagnose
from distgen_lab.ranks.diagnose import Rank
from distgen_lab.ranks.errors import DeadlockError, LaunchError
from distgen_lab.ranks.launch import GRACE, Run, _Team
from distgen_lab.ranks.mpi_child import remove_segments, segments

__all__ = ["MpiTeam"]

PAUSE = 0.004
"""Seconds between two looks for answers."""
GUARD_DEPTH, RANK_DEPTH = 2, 3
"""Ranks stand below a guard, below a proxy, below mpiexec."""
TIDY = 0.3
"""Seconds that mpiexec has to end by itself once its ranks are gone."""
QUIET = {"UCX_LOG_LEVEL": "fatal", "HWLOC_HIDE_ERRORS": "2", "HYDRA_LAUNCHER": "fork", "HYDRA_RMK": "user"}
CURE = "`distgen doctor` says what is missing"
TAG_OF_ANY = -1


class _AnyTag(int):
    """The tag of a receive that takes any: it matches every tag, and there is nothing to say of it."""

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int)

    def __bool__(self) -> bool:
        return False


class MpiTeam(_Team):
    """The processes of one launch on ``mpiexec``."""

    process: subprocess.Popen | None = None

    @property
    def folder(self) -> Path:
        """The folder of this launch."""
        return self.orders[0].folder

    def run(self) -> None:
        """Start the ranks and wait for their answers."""
        try:
            super().run()
        except DeadlockError as error:
            raise DeadlockError("\n".join([str(error), *_advice(self.ranks())])) from None

    def _start(self) -> None:
        if getattr(self.orders[0], "network", None) is not None:
            raise LaunchError("a network is emulated under torch's messages only: use backend='gloo' with it")
        (self.folder / "order").write_bytes(pickle.dumps((self.orders[0], os.getpid(), sys.path)))
        rank = [sys.executable, "-m", "mpi4py", "-m", "distgen_lab.ranks.mpi_child", str(self.folder)]
        with open(self.folder / "mpiexec.out", "wb") as output:
            self.process = subprocess.Popen(
                [_mpiexec(), "-n", str(len(self.orders)), *rank],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(),
                start_new_session=True,
            )

    def _listen(self, seconds: float) -> bool:
        """Take the answers that come within ``seconds``."""
        deadline = time.monotonic() + seconds
        while True:
            over = self.process.poll() is not None
            if self._take():
                return True
            if over:
                self._ended_early()
            if time.monotonic() >= deadline:
                return False
            time.sleep(PAUSE)

    def _take(self) -> bool:
        """Take the answers that are there."""
        before = len(self.answers)
        for rank in range(len(self.orders)):
            if rank not in self.answers:
                self._take_one(rank)
        return len(self.answers) > before

    def _take_one(self, rank: int) -> None:
        for name in (f"{rank}.answer", f"{rank}.died"):
            with contextlib.suppress(FileNotFoundError):
                content = pickle.loads((self.folder / name).read_bytes())
                self.seconds[rank] = time.monotonic() - self.start
                self.answers[rank] = ("died", content) if name.endswith("died") else self._understood(rank, *content)
                return

    def _understood(self, rank: int, kind: str, facts: Any) -> tuple[str, Any]:
        """An answer, an error of MPI's with the call in which it came."""
        if kind == "size":
            raise LaunchError(
                f"{_mpiexec()} started {len(self.orders)} ranks, but each is alone (a communicator of {facts}): it "
                f"belongs to another MPI than mpi4py's. Use the mpiexec beside {sys.executable}; {CURE}"
            )
        number = facts["call"] if kind == "error" and facts.get("call") else 0
        if number:
            facts["text"] += f" in {diagnose.call(self.ranks()[rank].spans[number - 1])}"
        return kind, facts

    def _ended_early(self) -> None:
        """``mpiexec`` has ended before all have answered: say why."""
        output = _text(self.folder / "mpiexec.out")
        if any(not (self.folder / f"{order.rank}.out").exists() for order in self.orders):
            last = "; ".join(line for line in output.splitlines() if line.strip(" ="))[-1000:]
            raise LaunchError(f"{_mpiexec()} could not start the ranks: {last or self.process.returncode}; {CURE}")
        pending = [order.rank for order in self.orders if order.rank not in self.answers]
        aborted = [rank for rank in pending if _aborted(self.folder / f"{rank}.out") is not None]
        for rank in aborted or ([] if self._failed() else pending):
            self.answers[rank] = ("died", self.process.returncode)
            self.seconds[rank] = time.monotonic() - self.start
        raise self._failure()

    def ranks(self) -> dict[int, Rank]:
        """What is known of each rank now."""
        return {me: self._completed(me, known) for me, known in super().ranks().items()}

    def _completed(self, me: int, known: Rank) -> Rank:
        """Receives of any tag match all tags; a call of MPI_Abort is called so."""
        spans = tuple(replace(span, tag=_AnyTag(span.tag)) if span.tag == TAG_OF_ANY else span for span in known.spans)
        code = _aborted(self.folder / f"{me}.out") if known.state == diagnose.DIED else None
        return replace(known, spans=spans, how=known.how if code is None else f"MPI_Abort with code {code}")

    def results(self, output: list[str]) -> Run:
        """Return the results; warn of persistent requests that were never freed."""
        run = super().results(output)
        for sentence in self._kept():
            warnings.warn(sentence, RuntimeWarning, stacklevel=3)
        return run

    def _kept(self) -> Iterator[str]:
        for file in sorted(self.folder.glob("*.kept")):
            for place in pickle.loads(file.read_bytes()):
                yield f"Rank {file.stem} never freed the persistent request of {place}."

    def end(self) -> None:
        """End the ranks, and remove the shared memory they leave behind. Their guards stay, should we be killed now."""
        if self.process is None:
            return
        import psutil

        processes = _family(self.process.pid)
        ranks = [process for process, depth in processes.items() if depth >= RANK_DEPTH]
        for rank in ranks:
            with contextlib.suppress(psutil.NoSuchProcess):
                rank.suspend()  # so that it makes no more segments
        left = set().union(*(segments(process.pid) for process in processes))
        _kill(ranks)
        _wait_until_gone(ranks)
        for file in self.folder.glob("*.shared"):
            left |= set(_text(file).split())
        remove_segments(left)

    def close(self) -> None:
        """End the guards and mpiexec, when nothing is left that they would have to remove."""
        if self.process is None:
            return
        processes = _family(self.process.pid)
        _kill([process for process, depth in processes.items() if depth >= GUARD_DEPTH])
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(TIDY)  # when its ranks have ended, hydra removes its temporary file
        _kill(list(processes))
        self.process.wait()
        _wait_until_gone(list(processes))


def _kill(processes: list[Any]) -> None:
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _wait_until_gone(processes: list[Any]) -> None:
    """Wait until killed processes have ended; some systems take a second more to forget them."""
    import psutil

    deadline = time.monotonic() + GRACE
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
                time.sleep(PAUSE)


def _family(pid: int) -> dict[Any, int]:
    """Return a process and all below it, parents first, each with its depth: mpiexec, its proxy, guards, ranks."""
    import psutil

    depths: dict[int, int] = {}
    family = {}
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        for process in [top, *top.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                depths[process.pid] = depths.get(process.ppid(), -1) + 1
                family[process] = depths[process.pid]
    return family


def _mpiexec() -> str:
    """Return the mpiexec beside this Python, or else the one on the path."""
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None:
        raise LaunchError(f"there is no mpiexec: pip install -c constraints.txt mpi4py mpich; {CURE}")
    return found


def _environment() -> dict[str, str]:
    """The environment of the ranks, without that of an MPI program that this process may be a rank of."""
    outer = ("PMI_", "PMIX_", "HYDI_", "MPI_LOCAL")
    return {name: value for name, value in os.environ.items() if not name.startswith(outer)} | QUIET


def _text(path: Path) -> str:
    return path.read_text("utf-8", "backslashreplace") if path.exists() else ""


def _aborted(path: Path) -> int | None:
    """The code with which a rank called MPI_Abort, None if it did not."""
    found = re.search(r"^Abort\((-?\d+)\) on node", _text(path), re.MULTILINE)
    return int(found[1]) if found else None


def _advice(ranks: dict[int, Rank]) -> list[str]:
    """What to do about ranks that all send at once."""
    sending = [rank.waiting for rank in ranks.values() if rank.waiting is not None and rank.waiting.op == "send"]
    if len(sending) < 2:
        return []
    size = f"{max(span.nbytes for span in sending):,} bytes" if sending[0].nbytes else "a large message"
    return [
        f"A send of {size} does not return before its receiver has come (small messages are buffered): "
        "let one side receive first, or use Sendrecv or Isend."
    ]
