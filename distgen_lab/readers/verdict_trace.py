"""The verdict on traces: where a step goes, what is exposed, who waits for whom, what other buckets would hide."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from distgen_lab.alphabeta import Link
from distgen_lab.overlap import best_bucket_cap
from distgen_lab.readers.kineto import COMPUTE, Shares, Trace, TraceReport, covered
from distgen_lab.readers.saying import Finding, Verdict, percent
from distgen_lab.units import duration, quantity

__all__ = ["of_traces"]

_LAYERS = 64


def of_traces(report: TraceReport) -> Verdict:
    """Where the step goes, what is exposed, who waits for whom, and what other buckets would hide."""
    shares = [trace.shares() for trace in report.traces]
    measured = [(trace, share) for trace, share in zip(report.traces, shares, strict=True) if share]
    notes = tuple(note for trace in report.traces for note in trace.notes)
    file = ", ".join(trace.source for trace in report.traces)
    facts = _facts(report, shares)
    if not measured:
        return Verdict("trace", file, _without_kernels(report), None, (), (), facts, notes)
    trace, share = max(measured, key=lambda pair: pair[1].exposed / pair[1].window if pair[1].window else 0)
    advice = _advice(trace, share)
    facts["buckets"] = {str(size): times for size, times in sorted(trace.buckets().items())}
    facts["bucket_bytes"], facts["hidden"] = advice[1:]
    lines = [
        f"over {report.coverage}",
        *_straggler_lines(report),
        *(_rank_line(one, part) for one, part in measured),
        *_message_lines(trace),
    ]
    findings = tuple(_wrong_traces(report))
    return Verdict(
        "trace", file, _trace_headline(report, trace, share) + advice[0], None, tuple(lines), findings, facts, notes
    )


def _facts(report: TraceReport, shares: Sequence[Shares | None]) -> dict[str, Any]:
    """The figures of each rank, None for one without kernels."""
    names = ("window", "compute", "communication", "exposed", "copies", "idle", "overlap")
    return {
        "ranks_here": [trace.rank for trace in report.traces], "world_size": report.world_size,
        **{name: [share and getattr(share, name) for share in shares] for name in names},
        "straggler": report.straggler, "waiting": {one.rank: one.seconds for one in report.waiting},
        "buckets": {}, "bucket_bytes": None, "hidden": None,
    }  # fmt: skip


def _without_kernels(report: TraceReport) -> str:
    """What can be said of traces of the CPU alone."""
    spans = [span[:2] for trace in report.traces for span in trace.cpu_communication]
    spoken = sum(end - start for start, end in spans)
    rest = f"; {len(spans)} collectives on the CPU take {duration(spoken)}, added up" if spans else ""
    return f"no GPU kernels ({report.coverage}): exposed communication cannot be measured from this trace{rest}"


def _trace_headline(report: TraceReport, trace: Trace, share: Shares) -> str:
    where = f"rank {trace.rank}: " if len(report.traces) > 1 and trace.rank is not None else ""
    if not share.communication:
        parts = (
            f"{percent(share.compute / share.window)} of the time is compute, {percent(share.idle / share.window)} idle"
        )
        return f"{where}no communication kernels: {parts}"
    op, exposed = max(_exposed_by_op(trace).items(), key=lambda pair: pair[1])
    whole = share.exposed / share.window
    said = f"{percent(exposed / share.window)} of the time is exposed {op.replace('_', '-')}"
    if abs(exposed - share.exposed) > 0.01 * share.exposed:
        said += f", {percent(whole)} exposed communication in all"
    return f"{where}{said}"


def _rank_line(trace: Trace, share: Shares) -> str:
    parts = (
        {name: getattr(share, name) / share.window for name in ("compute", "exposed", "copies", "idle")}
        if share.window
        else {}
    )
    words = ", ".join(f"{name} {percent(part)}" for name, part in parts.items())
    hidden = (
        f"; {share.overlap:.0%} of its {duration(share.communication)} of communication is hidden"
        if share.overlap is not None
        else ""
    )
    steps = f", {len(trace.steps)} profiler step{'s' * (len(trace.steps) > 1)}" if trace.steps else ""
    return f"rank {'?' if trace.rank is None else trace.rank}: {duration(share.window)}{steps}: {words}{hidden}"


def _message_lines(trace: Trace) -> Iterator[str]:
    buckets = trace.buckets()
    if buckets:
        shown = ", ".join(f"{n} x {quantity(size, 'B')}" for size, n in sorted(buckets.items(), reverse=True)[:6])
        yield f"all-reduce messages: {shown}" + (", ..." if len(buckets) > 6 else "")


def _exposed_by_op(trace: Trace) -> dict[str, float]:
    """Seconds of each operation that no compute covers."""
    busy = trace.kind == COMPUTE
    found: dict[str, list[tuple[float, float]]] = {}
    for op, start, end, _ in trace.collectives():
        found.setdefault(op, []).append((start, end))
    base = covered(trace.start[busy], trace.end[busy])
    return {
        op: covered(
            np.concatenate([trace.start[busy], [a for a, _ in pairs]]),
            np.concatenate([trace.end[busy], [b for _, b in pairs]]),
        ) - base
        for op, pairs in found.items()
    }  # fmt: skip


def _straggler_lines(report: TraceReport) -> Iterator[str]:
    if report.straggler is not None:
        here = "" if report.complete else ", as far as the ranks here tell"
        yield f"the rank that others wait for longest is {report.straggler}{here}"


def _wrong_traces(report: TraceReport) -> Iterator[Finding]:
    """Ranks that others wait for."""
    spoken = [share.communication for trace in report.traces if (share := trace.shares()) and share.communication]
    if len(spoken) > 1 and max(spoken) > 1.5 * min(spoken):
        ratio = max(spoken) / min(spoken)
        yield Finding(
            "note", f"communication differs {ratio:.1f} times between the ranks: most of the longer ones is waiting."
        )
    for one in report.waiting:
        if one.mostly_for is not None and one.seconds > 0.01 * (report.traces[0].end.max() or 1):
            most = one.by_rank[one.mostly_for]
            yield Finding(
                "warning",
                f"rank {one.rank} waits {duration(one.seconds)}, {duration(most)} of it for rank {one.mostly_for}.",
            )


def _advice(trace: Trace, share: Shares) -> tuple[str, float | None, float | None]:
    """What other all-reduce buckets would hide: words, bytes of a bucket, seconds.

    A model, and said to be one: the gradients are cut into equal layers whose backward pass takes two thirds of the
    compute, and a message costs what a line through the trace's own fastest messages says (Li et al. 2020, VLDB).
    """
    calls = [(nbytes, end - start) for op, start, end, nbytes in trace.collectives() if op == "all_reduce" and nbytes]
    steps = max(1, len(trace.steps))
    exposed = _exposed_by_op(trace).get("all_reduce", 0.0)
    if len(calls) < 2 or not exposed or not share.compute:
        return "", None, None
    total = sum(nbytes for nbytes, _ in calls) / steps
    cost = _line(calls)
    layer, backward = max(1, round(total / _LAYERS)), 2 / 3 * share.compute / steps / _LAYERS
    cap, seconds = best_bucket_cap([backward] * _LAYERS, [layer] * _LAYERS, cost.time)
    left = max(0.0, seconds - backward * _LAYERS) * steps
    hidden = exposed - left
    if hidden <= 0.02 * share.window:
        return "; no other bucket size would hide much more (by the alpha-beta model)", cap, max(0.0, hidden)
    return (
        f"; buckets of {quantity(cap, 'B', 2)} would hide {duration(hidden)} of it (by the alpha-beta model)",
        cap,
        hidden,
    )


def _line(calls: Sequence[tuple[int, float]]) -> Link:
    """Alpha and beta through the fastest messages of the smallest and the largest size: waiting only adds."""
    best: dict[int, float] = {}
    for nbytes, seconds in calls:
        best[nbytes] = min(seconds, best.get(nbytes, math.inf))
    low, high = min(best), max(best)
    beta = (best[high] - best[low]) / (high - low) if high > low else 0.0
    if beta <= 0:
        beta = best[high] / high
    return Link(max(0.0, best[high] - beta * high), beta)
