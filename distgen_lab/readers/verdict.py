"""What a file means: a few sentences a person can act on, and the same as JSON with stable keys.

A verdict holds the figures of the file against an expectation that is computed, not stored: rings x NCCL's constant for
a link inside a machine, NCCL's own tuner (:mod:`distgen_lab.nccl_tuner`) over several, an alpha-beta line for messages.
What the expectation rests on stands in ``lines``; what was inferred from the file stands in ``notes``.
"""

import os
from collections.abc import Sequence

from distgen_lab.models import ModelShape
from distgen_lab.readers.benchmark import BenchmarkLog
from distgen_lab.readers.kineto import Trace, TraceReport, report
from distgen_lab.readers.machine import Machine
from distgen_lab.readers.osu import OsuLog
from distgen_lab.readers.recognise import read
from distgen_lab.readers.saying import Finding, Verdict
from distgen_lab.readers.source import ReadError
from distgen_lab.readers.verdict_config import of_config
from distgen_lab.readers.verdict_log import HEALTHY, Expectation, expectation, of_osu, of_run
from distgen_lab.readers.verdict_topology import of_machine
from distgen_lab.readers.verdict_trace import of_traces

__all__ = ["HEALTHY", "Expectation", "Finding", "Verdict", "expectation", "judge", "of"]


def judge(
    paths: Sequence[str | os.PathLike], kind: str | None = None, device: str | None = None
) -> tuple[list[Verdict], list[ReadError]]:
    """Read files of any kind and return their verdicts in order, and the errors of those that cannot be read.

    The topology of one machine among them is what benchmark logs are held against; traces are taken together as the
    ranks of one job.
    """
    things, errors = [], []
    for path in paths:
        try:
            things.append((str(path), read(path, kind, device)))
        except ReadError as error:
            errors.append(error)
    machines = [thing for _, thing in things if isinstance(thing, Machine)]
    traces = [thing for _, thing in things if isinstance(thing, Trace)]
    verdicts = []
    for path, thing in things:
        if not isinstance(thing, Trace):
            verdicts += of(thing, path, machines[0] if len(machines) == 1 else None, device)
        elif thing is traces[0]:
            try:
                verdicts += of(report(traces))
            except ReadError as error:
                errors.append(error)
    return verdicts, errors


def of(
    thing: ModelShape | Machine | BenchmarkLog | OsuLog | Trace | TraceReport,
    file: str = "",
    machine: Machine | None = None,
    device: str | None = None,
) -> list[Verdict]:
    """Return the verdicts on what a reader returned: one, or one for each run or table of a log.

    Args:
        thing: what :func:`distgen_lab.readers.read` returned, or a report over several traces.
        file: where a config came from; the other kinds know.
        machine: the topology of one node of the cluster that a benchmark log ran on.
        device: name of the GPU where a log does not say it, e.g. "H100".

    Raises:
        ValueError: for an unknown device.
    """
    if isinstance(thing, ModelShape):
        return [of_config(thing, file)]
    if isinstance(thing, Machine):
        return [of_machine(thing)]
    if isinstance(thing, BenchmarkLog):
        return [of_run(run, thing, machine, device) for run in thing.runs]
    if isinstance(thing, OsuLog):
        return [of_osu(table, thing) for table in thing.tables]
    return [of_traces(thing if isinstance(thing, TraceReport) else TraceReport((thing,)))]
