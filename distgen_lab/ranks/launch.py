"""``launch``: run a function on real ranks, from a notebook cell or anywhere else."""

import contextlib
import linecache
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgen_lab.ranks import diagnose, wire
from distgen_lab.ranks.child import Order, remove, run_rank
from distgen_lab.ranks.diagnose import Rank
from distgen_lab.ranks.errors import DeadlockError, LaunchError, MismatchError, RankError
from distgen_lab.ranks.record import read_spans
from distgen_lab.ranks.sending import dumps
from distgen_lab.timeline import Span, Timeline

if TYPE_CHECKING:  # importing it would load numpy into every rank
    from distgen_lab.alphabeta import Link

__all__ = ["RankResult", "Run", "launch"]

SERVER_FOLDER = "DISTGEN_SERVER_FOLDER"
"""Environment variable that tells the server that forks the ranks where its socket lies."""
BACKENDS = ("auto", "gloo", "nccl", "mpi")
MOST_RANKS = 256
LOOK = 0.5
"""Seconds of silence after which the launcher looks whether the ranks can still go on."""
GRACE = 2.0
"""Seconds the other ranks have to finish after one has failed."""


@dataclass(frozen=True)
class RankResult:
    """What came of one rank: the function's value, what it printed, its seconds, and what it communicated."""

    rank: int
    value: Any
    stdout: str
    seconds: float
    events: tuple[Span, ...] = field(repr=False, default=())


class Run(list[RankResult]):
    """The results of all ranks, in order.

    ``wire[r][s]`` is how many bytes rank r's TCP connections carried to rank s while the function ran, headers of the
    library included; empty where the system does not tell, nothing was recorded, or ranks share memory (MPI).
    """

    wire: Sequence[Sequence[int]] = ()

    @property
    def values(self) -> list[Any]:
        """The value of each rank."""
        return [result.value for result in self]

    @property
    def timeline(self) -> Timeline:
        """What all ranks communicated, on one clock."""
        return Timeline((span for result in self for span in result.events), lanes=len(self))


def launch(
    function: Callable,
    ranks: int = 4,
    backend: str = "auto",
    args: tuple = (),
    timeout: float = 60.0,
    seed: int | None = None,
    record: bool = True,
    network: "Link | None" = None,
) -> Run:
    """Run ``function(*args)`` on ``ranks`` processes with ``torch.distributed`` or MPI ready; return their results.

    The function may be defined in a cell, be a closure or a lambda, or live in a module. What the ranks print is
    printed in their order when all have ended.

    Args:
        function: called once in each rank; it finds its rank with ``torch.distributed.get_rank()``, on MPI with
            ``MPI.COMM_WORLD.rank`` of mpi4py.
        ranks: number of processes.
        backend: "gloo", "nccl", "mpi" (mpiexec and mpi4py), or "auto": NCCL where there are as many GPUs as ranks,
            else Gloo.
        args: arguments of the function, the same for all ranks.
        timeout: seconds after which ranks that still run are ended.
        seed: if given, rank r starts with torch and Python seeded to ``seed + r``.
        record: note what each rank sends, receives and takes part in (``result.events``).
        network: send every message through an *emulated* link: it ends no earlier than alpha + n beta.

    Raises:
        LaunchError: if the ranks cannot be started as asked.
        RankError: if a rank raises or dies; DeadlockError, if ranks wait for ever; MismatchError, if they finish but
            disagreed about an operation.
    """
    backend = _checked(ranks, backend, timeout)
    payload = _pickled(function, args)
    with contextlib.ExitStack() as last, _folder(backend) as folder:
        orders = [Order(r, ranks, backend, folder, payload, seed, timeout, record, network) for r in range(ranks)]
        team = _team(orders, timeout)
        last.callback(team.close)  # once the folder has gone
        try:
            team.run()
        finally:
            team.end()
            output = [_text(folder / f"{rank}.out") for rank in range(ranks)]
            _print(output)
        return team.results(output)


def _checked(ranks: int, backend: str, timeout: float) -> str:
    """Return the backend to use, or say what is wrong with the arguments."""
    if isinstance(ranks, bool) or not isinstance(ranks, int) or not 1 <= ranks <= MOST_RANKS:
        raise LaunchError(f"ranks is {ranks!r}; a whole number from 1 to {MOST_RANKS} is needed")
    if not timeout > 0:
        raise LaunchError(f"timeout is {timeout!r}; a positive number of seconds is needed")
    if backend not in BACKENDS:
        raise LaunchError(f"backend is {backend!r}; there are: {', '.join(BACKENDS)}")
    gpus = _gpus() if backend in ("auto", "nccl") else 0
    if backend == "nccl" and gpus < ranks:
        raise LaunchError(f"backend 'nccl' needs a GPU a rank: {ranks} ranks, {gpus} GPUs; use fewer ranks or 'gloo'")
    return ("nccl" if gpus >= ranks else "gloo") if backend == "auto" else backend


def _gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() and torch.distributed.is_nccl_available() else 0


def _pickled(function: Callable, args: tuple) -> bytes:
    if not callable(function):
        raise LaunchError(f"the function is {function!r}; something that can be called is needed")
    try:
        return dumps((function, args))
    except Exception as error:
        name = getattr(function, "__name__", repr(function))
        raise LaunchError(
            f"{name} cannot be sent to the ranks: {error}. Create such objects inside the function instead"
        ) from error


@contextlib.contextmanager
def _folder(backend: str) -> Iterator[Path]:
    """A folder for the launch. Inside that of the server, where there is one, which outlives this process if killed."""
    above = get_temp_dir() if backend != "mpi" and _can_fork() else None
    folder = Path(tempfile.mkdtemp(prefix="distgen-ranks-", dir=above))
    try:
        yield folder
    finally:
        remove(folder)


def _text(path: Path) -> str:
    return path.read_text("utf-8", "backslashreplace") if path.exists() else ""


def _print(output: list[str]) -> None:
    """Print what the ranks printed, in order of the ranks, each line with its rank."""
    for rank, text in enumerate(output):
        for line in text.splitlines():
            print(f"[{rank}] {line}")


def _can_fork() -> bool:
    return "forkserver" in multiprocessing.get_all_start_methods()


def _context() -> multiprocessing.context.BaseContext:
    """Fork ranks from a server that has torch loaded; start them anew where there is no such server."""
    if not _can_fork():
        return multiprocessing.get_context("spawn")
    from multiprocessing.forkserver import ensure_running

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["distgen_lab.ranks.preload"])
    os.environ[SERVER_FOLDER] = get_temp_dir()
    try:
        ensure_running()
    finally:
        del os.environ[SERVER_FOLDER]
    return context


@contextlib.contextmanager
def _main_hidden() -> Iterator[None]:
    """Keep the ranks from running the caller's script again: what they need of it travels in the pickle."""
    main = sys.modules["__main__"]
    saved = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    try:
        if "__file__" in saved:
            del main.__file__
        main.__spec__ = None
        yield
    finally:
        for name, value in saved.items():
            setattr(main, name, value)


class _Team:
    """The processes of one launch, watched until all have answered."""

    def __init__(self, orders: list[Order], timeout: float) -> None:
        self.orders, self.timeout, self.start = orders, timeout, time.monotonic()
        self.pipes: dict[int, Connection] = {}
        self.processes: dict[int, Any] = {}
        self.answers: dict[int, tuple[str, Any]] = {}
        self.seconds: dict[int, float] = {}

    def run(self) -> None:
        """Start the ranks and wait for their answers."""
        self._start()
        self._watch()

    def _start(self) -> None:
        context = _context()
        with _main_hidden():
            for order in self.orders:
                self.pipes[order.rank], end = context.Pipe()
                process = context.Process(target=run_rank, args=(order, end), daemon=True)
                process.start()
                end.close()
                self.processes[order.rank] = process

    def _watch(self) -> None:
        deadline, before = self.start + self.timeout, None
        while len(self.answers) < len(self.orders):
            if not self._listen(min(LOOK, max(0.0, deadline - time.monotonic()))):
                before = self._look(before)
            self._stop_on_failure()
            if time.monotonic() >= deadline:
                raise DeadlockError(self._late())

    def _listen(self, seconds: float) -> bool:
        """Take the answers that come within ``seconds``; a pipe that closes without one is a rank that died."""
        waiting = {pipe: rank for rank, pipe in self.pipes.items() if rank not in self.answers}
        ready = wait(list(waiting), timeout=seconds)
        for pipe in ready:
            rank = waiting[pipe]
            try:
                self.answers[rank] = pickle.loads(pipe.recv_bytes())
            except (EOFError, OSError):
                self.processes[rank].join(GRACE)
                self.answers[rank] = ("died", self.processes[rank].exitcode)
            self.seconds[rank] = time.monotonic() - self.start
        return bool(ready)

    def _look(self, before: Any) -> Any:
        """After a silence: if nothing has moved since the last look and nobody can go on, end it."""
        ranks = self.ranks()
        state = {me: (rank.state, len(rank.spans), rank.waiting) for me, rank in ranks.items()}
        if state == before and not self._failed():
            differing = diagnose.mismatches(ranks)
            all_wait = all(rank.gone or rank.waiting for rank in ranks.values())
            if diagnose.stuck(ranks) or (differing and all_wait):
                raise DeadlockError("The ranks wait for ever.\n" + "\n".join(differing + diagnose.waits(ranks)))
        return state

    def _failed(self) -> list[int]:
        return [rank for rank, (kind, _) in self.answers.items() if kind != "value"]

    def _stop_on_failure(self) -> None:
        """A rank has failed: let those that still can finish do so for a moment, then tell."""
        if not self._failed():
            return
        deadline = time.monotonic() + GRACE
        while len(self.answers) < len(self.orders) and time.monotonic() < deadline:
            quiet = not self._listen(0.2)
            if quiet and len(diagnose.stuck(self.ranks())) == len(self.orders) - len(self.answers):
                break
        raise self._failure()

    def _failure(self) -> RankError:
        ranks = self.ranks()
        first = min(self._failed(), key=lambda rank: (self._is_consequence(rank), self.seconds[rank]))
        kind, facts = self.answers[first]
        told = _traceback(first, facts) if kind == "error" else _death(first, ranks[first])
        differing = diagnose.mismatches(ranks)
        others = [sentence for sentence in diagnose.waits(ranks) if not sentence.startswith(f"Rank {first} ")]
        more = [rank for rank in self._failed() if rank != first]
        also = [f"Failed too: rank{'s' if len(more) > 1 else ''} {', '.join(map(str, more))}."] if more else []
        return RankError("\n".join([told, *differing, *others, *also]))

    def _is_consequence(self, rank: int) -> bool:
        """Whether the rank failed only because a connection to another one was lost."""
        kind, facts = self.answers[rank]
        return kind == "error" and "closed by peer" in facts["text"].replace("reset by peer", "closed by peer")

    def _late(self) -> str:
        ranks = self.ranks()
        late = [rank for rank in ranks if ranks[rank].state == diagnose.RUNNING]
        computing = [rank for rank in late if ranks[rank].waiting is None]
        sentences = diagnose.mismatches(ranks) + diagnose.waits(ranks)
        if computing:
            who = ", ".join(map(str, computing))
            sentences.append(f"Still computing: rank{'s' if len(computing) > 1 else ''} {who}.")
        return f"No end within {self.timeout:g} s.\n" + "\n".join(sentences)

    def ranks(self) -> dict[int, Rank]:
        """What is known of each rank now."""
        states = {"value": diagnose.FINISHED, "error": diagnose.FAILED, "died": diagnose.DIED}
        known = {}
        for order in self.orders:
            kind, facts = self.answers.get(order.rank, ("", None))
            how = _signal_name(facts) if kind == "died" else ""
            spans = tuple(read_spans(order.folder / f"{order.rank}.events", order.rank))
            known[order.rank] = Rank(states.get(kind, diagnose.RUNNING), spans, how)
        return known

    def results(self, output: list[str]) -> Run:
        """Return the results; raise if the ranks disagreed without noticing, warn of what no one waited for."""
        ranks = self.ranks()
        run = Run(
            RankResult(rank, self.answers[rank][1], output[rank], self.seconds[rank], ranks[rank].spans)
            for rank in ranks
        )
        run.wire = wire.matrix(order.folder / f"{order.rank}.wire" for order in self.orders)
        for sentence in diagnose.unfinished(ranks):
            warnings.warn(sentence, RuntimeWarning, stacklevel=3)
        differing = diagnose.mismatches(ranks) or list(diagnose.left_out(ranks))
        if differing:
            error = MismatchError("The ranks finished, but their results cannot be trusted.\n" + "\n".join(differing))
            error.run = run
            raise error
        return run

    def end(self) -> None:
        """Release the ranks that have answered, end the others, and wait for all."""
        for pipe in self.pipes.values():
            pipe.close()
        for rank, process in self.processes.items():
            process.join(0 if rank not in self.answers else GRACE)
            if process.is_alive():
                process.kill()
        for process in self.processes.values():
            process.join()
            process.close()

    def close(self) -> None:
        """Nothing is left to end."""


def _team(orders: list[Order], timeout: float) -> _Team:
    """Return the team for the backend; that of MPI is loaded when it is asked for."""
    if orders[0].backend != "mpi":
        return _Team(orders, timeout)
    from distgen_lab.ranks.mpi import MpiTeam

    return MpiTeam(orders, timeout)


def _signal_name(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def _death(rank: int, known: Rank) -> str:
    """A rank that ended without a Python traceback: how, and what it was doing."""
    last = known.spans[-1] if known.spans else None
    doing = f" in or after {diagnose.call(last)} ({diagnose.place(last)})" if last else " before it communicated"
    return f"Rank {rank} died ({known.how}){doing}."


def _traceback(rank: int, facts: dict[str, Any]) -> str:
    """The rank's traceback with the source lines that only this process has (those of cells)."""
    lines = [f"Rank {rank} raised {facts['type']}: {facts['text']}"]
    for file, line, name in facts["frames"]:
        source = linecache.getline(file, line).strip()
        lines.append(f"  {_short(file)}, line {line}, in {name}" + (f"\n    {source}" if source else ""))
    return "\n".join(lines)


def _short(file: str) -> str:
    return "the cell" if "ipykernel_" in file or file.startswith("<ipython") else os.path.relpath(file)
