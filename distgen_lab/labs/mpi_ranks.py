"""MPI ranks for notebooks: ``launch`` where there is no MPI, how a program ended, and what its recording tells.

Notebook 05 takes ``MPI`` and ``launch`` from here. ``MPI`` is mpi4py's; importing it from here does not start MPI in
the notebook's own process. Where MPI is missing ``launch`` says so instead of raising, and what it returns stands for
every result that there would have been, so that the notebook runs to its end.
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from distgen_lab import ranks as real
from distgen_lab.labs import PATIENCE
from distgen_lab.ranks import DeadlockError, LaunchError, MismatchError, RankError
from distgen_lab.timeline import Span, Timeline

__all__ = ["MPI", "Skipped", "causal_rounds", "in_flight", "launch", "measured", "outcome", "report_of", "run_mpi"]


class Skipped:
    """Stands for what could not be run: everything that is asked of it is skipped too. It prints as the reason."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __repr__(self) -> str:
        return f"skipped: {self.why}"

    def __format__(self, spec: str) -> str:
        return "(skipped)"

    def __getattr__(self, name: str) -> "Skipped":
        if name.startswith("_"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> "Skipped":  # noqa: D102
        return self

    def __getitem__(self, key: Any) -> "Skipped":
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __float__(self) -> float:
        return float("nan")

    def __sub__(self, other: Any) -> "Skipped":
        return self

    __add__ = __radd__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __eq__ = __sub__
    __lt__ = __gt__ = __le__ = __ge__ = __sub__
    __hash__ = None


def _library() -> Any:
    """mpi4py's MPI, not started in this process unless the process is a rank already."""
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules and not _is_rank():
            mpi4py.rc.initialize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError):  # RuntimeError: mpi4py found no MPI library
        return Skipped("there is no mpi4py that works; `distgen doctor` says what is missing")
    return MPI


def _is_rank() -> bool:
    """Whether a launcher of MPI started this process."""
    return any(name in os.environ for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"))


MPI: Any = _library()
"""mpi4py's ``MPI``, or what says why there is none."""


def launch(function: Callable, ranks: int = 4, backend: str = "mpi", **options: Any) -> Any:
    """Run ``function`` on real ranks as :func:`distgen_lab.launch` does; where MPI is missing, say so and go on.

    Returns:
        the :class:`~distgen_lab.ranks.Run`, or a :class:`Skipped` where MPI ranks cannot be started.
    """
    if backend == "mpi" and isinstance(MPI, Skipped):
        return _skip(MPI.why)
    try:
        return real.launch(function, ranks=ranks, backend=backend, **options)
    except LaunchError as error:
        if backend != "mpi" or "mpiexec" not in str(error):
            raise
        return _skip(str(error))


def _skip(why: str) -> Skipped:
    print(f"skipped: {why}")
    return Skipped(why)


def outcome(function: Callable, ranks: int = 4, **options: Any) -> Any:
    """Run ``function`` on MPI ranks; return how it ended, as plain data.

    Returns:
        a dict with ``ended``: "values", and then the ``values``; or "deadlock", "mismatch" or "error", and then
        ``why``, the most telling sentence. Or a :class:`Skipped`.
    """
    try:
        run = launch(function, ranks, **options)
    except RankError as error:
        kinds = {DeadlockError: "deadlock", MismatchError: "mismatch"}
        return {"ended": kinds.get(type(error), "error"), "why": _gist(str(error))}
    return run if isinstance(run, Skipped) else {"ended": "values", "values": run.values}


_FACTS: dict[str, Callable[[Timeline], Any]] = {
    "messages": lambda seen: sum(rank.sent_messages for rank in seen.traffic()),
    "most_messages": lambda seen: max(rank.sent_messages for rank in seen.traffic()),
    "bytes": lambda seen: sum(rank.sent_bytes for rank in seen.traffic()),
    "most_bytes": lambda seen: max(rank.sent_bytes for rank in seen.traffic()),
    "rounds": lambda seen: causal_rounds(seen),
    "in_flight": lambda seen: in_flight(seen),
    "order": lambda seen: [span.op for span in seen.on(0)],
    "collectives": lambda seen: [
        {op: times for op, times in rank.collectives.items() if op != "barrier"} for rank in seen.traffic()
    ],
    "groups": lambda seen: sorted({span.group for span in seen.spans if span.op == "all_reduce"}),
}


def report_of(function: Callable, ranks: int, *facts: str, **options: Any) -> dict[str, Any]:
    """Run ``function`` on MPI ranks for a check: return ``ended``, ``values`` and what the recording says.

    The launcher's sentence on a run that fails is printed, not returned: it names lines of the student's own cell.

    Args:
        function: called in each rank.
        ranks: number of processes.
        facts: "messages" and "bytes" of all ranks, "most_messages" and "most_bytes" of one rank, "rounds"
            (:func:`causal_rounds`), "in_flight" and "order" of the calls of rank 0, "collectives" of each rank,
            barriers left out, "groups" of all-reduces.
        options: of ``launch``.

    Raises:
        ValueError: for an unknown fact.
        LaunchError: where there is no MPI.
    """
    unknown = [name for name in facts if name not in _FACTS]
    if unknown:
        raise ValueError(f"facts holds {unknown[0]!r}; there are: {', '.join(_FACTS)}")
    if isinstance(MPI, Skipped):
        raise LaunchError(MPI.why)
    try:
        run = real.launch(function, ranks, "mpi", **{"timeout": PATIENCE} | options)
    except RankError as error:
        kinds = {DeadlockError: "deadlock", MismatchError: "mismatch"}
        print(error)
        return {"ended": kinds.get(type(error), "error")}
    return {"ended": "values", "values": run.values} | {name: _FACTS[name](run.timeline) for name in facts}


def _gist(text: str) -> str:
    """The most telling line of a launcher's error: on what the ranks disagree, else the first one."""
    lines = [line for line in text.splitlines() if not line.startswith(("The ranks wait", "The ranks finished"))]
    telling = (line for line in lines if line.startswith(("The ranks disagree", "The ranks make")))
    return next(telling, lines[0] if lines else text)


def causal_rounds(timeline: Timeline) -> int:
    """Return how many rounds a run of messages takes when each rank sends one message a round.

    It follows from the order of the calls alone, not from the clock: a message leaves after everything its rank has
    received before, in the round after the last one its rank sent (Lamport, Time, Clocks and the Ordering of Events,
    1978).

    Raises:
        ValueError: for a run that did not end.
    """
    if isinstance(timeline, Skipped):
        return timeline
    pairs = {id(receive): send for send, receive in timeline.messages()}
    lanes = {lane: _in_order_of_effect(timeline, lane) for lane in range(timeline.lanes)}
    heard, port, sent = dict.fromkeys(lanes, 0), dict.fromkeys(lanes, 0), {}

    def advance(lane: int, span: Span) -> bool:
        """Take the lane's next call into account, unless it waits for one that has not been."""
        if "send" in span.op:
            port[lane] = sent[id(span)] = max(heard[lane], port[lane]) + 1
            return True
        source = pairs.get(id(span))
        if source is not None and id(source) not in sent:
            return False
        heard[lane] = max(heard[lane], 0 if source is None else sent[id(source)])
        return True

    while any(lanes.values()):
        moved = [lane for lane, spans in lanes.items() if spans and advance(lane, spans[0])]
        if not moved:
            raise ValueError("a receive has no send before it: the recording is of a run that did not end")
        for lane in moved:
            lanes[lane].pop(0)
    return max(sent.values(), default=0)


def _in_order_of_effect(timeline: Timeline, lane: int) -> list[Span]:
    """A rank's messages in the order in which they count: a send when it begins, an open receive when it ends."""
    spans = [span for span in timeline.on(lane) if span.op in ("send", "isend", "recv", "irecv")]
    return sorted(spans, key=lambda span: span.start if span.op != "irecv" or span.end is None else span.end)


def in_flight(timeline: Timeline, rank: int = 0) -> int:
    """Return the most operations of a rank that were under way at the same time."""
    spans = [span for span in timeline.on(rank) if span.end is not None]
    return max((sum(one.start <= span.start < one.end for one in spans) for span in spans), default=0)


def measured(seconds: float) -> str:
    """Return a measured time in words, rounded to what is worth saying: "0.41 s", "12 ms"."""
    if seconds != seconds:
        return "(skipped)"
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e3:.2g} ms"


def run_mpi(lab: Callable[..., str], *args: Any, ranks: int = 2) -> None:
    """Run ``lab(*args)`` on the ranks of mpiexec or srun, else on ``ranks`` of this machine; rank 0 prints its text."""
    if not _is_rank():
        print(real.launch(lab, ranks=ranks, backend="mpi", args=args, timeout=600, record=False)[0].value)
        return
    text = lab(*args)
    if MPI.COMM_WORLD.rank == 0:
        print(text, flush=True)
