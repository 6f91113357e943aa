"""Seconds of a counted step: kernels, launches, pipeline, and what of the communication stays exposed.

All of it is written for numbers and for NumPy arrays of them, so that one plan and a thousand rows of measurements are
priced by the same lines.
"""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np

from distgen_lab.planner.efficiency import Efficiency
from distgen_lab.planner.work import Pass, StepWork

__all__ = ["KINDS", "layer_seconds", "parts", "stack"]

KINDS = ("tensor", "context", "expert", "pipe", "data")
"""Kinds of communication."""


def layer_seconds(work: Pass, by: Efficiency) -> Any:
    """Return seconds of one pass: its kernels and messages, or the launches of it if those take longer."""
    launches = work.kernels * by.dispatch + work.peers * by.wait
    busy = work.matmul / by.matmul + work.stream / by.stream + work.kernels * by.kernel
    return np.maximum(busy + work.tensor + work.context + work.expert, launches)


def parts(work: StepWork, by: Efficiency) -> dict[str, Any]:
    """Return the seconds of a step by what takes them, on the slowest stage; they add up to the step.

    Pipeline stages run 1F1B: the slowest stage works without a break once the pipeline is full, which takes one
    micro-batch through all stages (a chunk of them if interleaved).
    """
    forward, again, backward = (layer_seconds(p, by) for p in (work.forward, work.again, work.backward))
    head = layer_seconds(work.head_forward, by) + layer_seconds(work.head_backward, by)
    n, m = work.layers, work.micro_batches
    middle = n * (forward + again + backward) + work.send
    last = n * (forward + again * (1 - work.spared) + backward) + head + work.send
    slowest, is_last = np.maximum(middle, last), last >= middle
    fill = (work.pipe - 1) / work.chunks * middle + last - slowest
    repeated = again * np.where(is_last, 1 - work.spared, 1)
    talk = {kind: _of(work, kind, repeated > 0) * n * m for kind in ("tensor", "context", "expert")}
    spoken_again = sum(getattr(work.again, kind) for kind in talk) * (repeated > 0)
    quiet = m * (slowest - work.send) - sum(talk.values())
    recompute = m * n * (repeated - spoken_again)
    data = work.ahead_rounds * _exposed(work.ahead, n * forward, n, work.overlap)
    data = data + work.behind_rounds * _exposed(work.behind, n * (backward + repeated), n, work.overlap)
    return {
        "compute": quiet - recompute, "recompute": recompute, **talk, "pipe": m * work.send, "bubble": fill,
        "data": data, "optimizer": work.update / by.stream,
    }  # fmt: skip


def _of(work: StepWork, kind: str, repeated: Any) -> Any:
    """Seconds of one kind of communication in all passes of a layer."""
    once = getattr(work.forward, kind) + getattr(work.backward, kind)
    return once + getattr(work.again, kind) * repeated


def _exposed(communication: Any, window: Any, layers: Any, overlap: Any) -> Any:
    """Communication of equal layers beside their computation: ``overlap.layerwise_time`` less the computation."""
    hidden = np.maximum(communication / layers, communication - window * (layers - 1) / layers)
    return np.where(overlap > 0, hidden, communication)


def stack(works: Iterable[StepWork]) -> StepWork:
    """Return one counted step whose numbers are arrays: the given steps one after the other."""
    rows = list(works)

    def column(get: Any, kind: type) -> dict[str, Any]:
        return {f.name: np.array([getattr(get(row), f.name) for row in rows], float) for f in fields(kind)}

    passes = {f.name: f.name for f in fields(StepWork) if isinstance(getattr(rows[0], f.name), Pass)}
    inner = {name: Pass(**column(lambda row, name=name: getattr(row, name), Pass)) for name in passes}
    outer = {
        f.name: np.array([getattr(row, f.name) for row in rows], float) for f in fields(StepWork) if f.name not in inner
    }
    return StepWork(**inner, **outer)
