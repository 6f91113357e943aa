"""Demo: who sends, waits and works when: MPI processes as they were recorded, or schedules on a simulated network."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from distgen_lab import collectives, plots, simulate
from distgen_lab.alphabeta import Link
from distgen_lab.demos.panel import Panel, choice, log_slider, menu, panel, stamp, whole
from distgen_lab.overlap import exposed_time
from distgen_lab.timeline import Span, Timeline
from distgen_lab.topology import crossbar
from distgen_lab.units import GB, US, duration, quantity

__all__ = ["LINK", "MOMENTS", "RECORDED", "SIMULATED", "Moment", "data", "draw", "mpi_spacetime", "recording", "words"]

RECORDED = (
    "halo exchange, blocking", "halo exchange, overlapped", "pipeline of six stages", "token around a ring",
)  # fmt: skip
"""Recorded runs: six MPI processes each."""
SIMULATED = {
    "linear broadcast": collectives.linear_broadcast,
    "binomial broadcast": collectives.binomial_broadcast,
    "scatter and ring broadcast": collectives.scatter_ring_broadcast,
    "ring all-reduce": collectives.ring_all_reduce,
}
"""Schedules on offer: on every number of ranks and every size."""
LINK = Link(5 * US, 1 / (10 * GB))
"""Of the simulated network: a crossbar."""
MOMENTS = 40
"""Steps from the start to the end of a run."""
RANKS = (2, 3, 4, 5, 6, 7, 8, 12, 16)
SIZE = (9, 3.9)
"""Inches of the picture."""
PRESETS = {
    "a late rank, blocking": {"run": RECORDED[0], "moment": 40},
    "a late rank, overlapped": {"run": RECORDED[1], "moment": 40},
    "pipeline fills": {"run": RECORDED[2], "moment": 16},
    "linear": {"run": "linear broadcast", "ranks": 8, "moment": 20},
    "binomial": {"run": "binomial broadcast", "ranks": 8, "moment": 20},
    "scatter and ring": {"run": "scatter and ring broadcast", "ranks": 8, "nbytes": 1e7, "moment": 20},
}
"""Buttons for a lecture."""
Intervals = tuple[tuple[tuple[float, float], ...], ...]


@dataclass(frozen=True, eq=False)
class Moment:
    """A run up to a moment.

    Attributes:
        name: of the run.
        timeline: the whole run; its clock starts at 0.
        work: for each rank when it worked, (start, end) in seconds; nothing for a simulated run.
        now: seconds since the start.
        recorded: where and when it was recorded; empty for a simulated run.
    """

    name: str
    timeline: Timeline
    work: Intervals
    now: float
    recorded: str

    @property
    def past(self) -> Timeline:
        """What has begun by now; what has not ended yet has no end."""
        begun = (span for span in self.timeline.spans if span.start <= self.now)
        return Timeline((s if _over(s, self.now) else _open(s) for s in begun), self.timeline.lanes)

    def waited(self, until: float) -> list[float]:
        """Return for each rank the seconds it waited for messages and did not work, up to a time."""
        return [_waited(self.timeline.on(lane), self.work[lane], until) for lane in range(self.timeline.lanes)]


def _over(span: Span, now: float) -> bool:
    return span.end is not None and span.end <= now


def _open(span: Span) -> Span:
    return Span(**vars(span) | {"end": None})


def _waited(spans: Sequence[Span], work: Sequence[tuple[float, float]], until: float) -> float:
    waits = [(s.start, min(s.end, until)) for s in spans if "recv" in s.op and s.start < until]
    return float(exposed_time(waits, [(start, min(end, until)) for start, end in work if start < until]))


@cache
def _recordings() -> dict[str, Any]:
    return json.loads((files("distgen_lab") / "data" / "measured" / "mpi_runs.json").read_text("utf-8"))


@lru_cache(maxsize=8)
def recording(name: str) -> tuple[Timeline, Intervals]:
    """Return a recorded run of MPI processes, and for each rank when it worked, in seconds.

    Raises:
        ValueError: for an unknown name; the message lists the known ones.
    """
    runs = _recordings()["runs"]
    if name not in runs:
        raise ValueError(f"run is {name!r}; recorded are: {'; '.join(runs)}")
    row = runs[name]
    first = min(begin for _, begin, _ in row["work"])
    spans = [
        Span(lane, op, (begin - first) * US, (end - first) * US, nbytes, peer=peer, tag=tag, blocking=bool(blocking))
        for lane, op, begin, end, nbytes, peer, tag, blocking in row["spans"]
    ]
    timeline = Timeline(spans)
    work = [[] for _ in range(timeline.lanes)]
    for lane, begin, end in row["work"]:
        work[lane].append(((begin - first) * US, (end - first) * US))
    return timeline, tuple(map(tuple, work))


@lru_cache(maxsize=64)
def _simulated(name: str, ranks: int, nbytes: float) -> Timeline:
    return simulate.timeline(SIMULATED[name](ranks), crossbar(ranks, LINK), nbytes)


def data(run: str, ranks: int, nbytes: float, moment: int) -> Moment:
    """Return a run up to a moment.

    Args:
        run: one of :data:`RECORDED` or :data:`SIMULATED`.
        ranks: P of a simulated run; a recorded one has its own.
        nbytes: n of a simulated run.
        moment: 0 (the start) to :data:`MOMENTS` (the end).

    Raises:
        ValueError: for a run that is not on offer, or a moment outside 0 to :data:`MOMENTS`.
    """
    if not 0 <= moment <= MOMENTS:
        raise ValueError(f"moment is {moment}; 0 to {MOMENTS} is needed")
    if run in SIMULATED:
        timeline, work, said = _simulated(run, ranks, nbytes), ((),) * ranks, ""
    else:
        (timeline, work), facts = recording(run), _recordings()
        said = f"recorded {facts['date']}, {facts['versions']}, {facts['machine']}"
    end = max(span.end for span in timeline.spans)
    return Moment(run, timeline, work, end * moment / MOMENTS, said)


def draw(figure: Figure, shown: Moment) -> None:
    """Draw ranks over time up to the moment, and how long each has waited; the axes stay where they are."""
    left, right = figure.add_axes((0.055, 0.15, 0.6, 0.7)), figure.add_axes((0.8, 0.15, 0.18, 0.7))
    past, lanes = shown.past, shown.timeline.lanes
    begin = shown.timeline.spans[0].start
    plots.spacetime(left, past)
    work = [[(start, min(end, shown.now)) for start, end in row if start < shown.now] for row in shown.work]
    plots.computing(left, past if past.spans else shown.timeline, work)
    whole_run = max(span.end for span in shown.timeline.spans) - begin
    left.hlines(range(lanes), 0, whole_run, color=plots.PALETTE["grey"], linewidth=0.6, zorder=1)
    _under_way(left, shown, begin)
    left.axvline(shown.now - begin, color=plots.PALETTE["red"], linewidth=1)
    left.set(xlim=(min(-begin, 0), whole_run * 1.01))
    if legend := left.get_legend():
        legend.remove()
    _bars(right, shown.waited(shown.now), max(shown.waited(shown.now + whole_run)), lanes)
    figure.text(0.055, 0.92, shown.name, fontsize=11)
    _key(figure, bool(shown.recorded))
    stamp(figure, "recorded" if shown.recorded else "simulated")


def _under_way(ax: Axes, shown: Moment, begin: float) -> None:
    """What has begun and not ended: a wait up to now, and a message as a dashed line as far as it has come."""
    waits = [span for span in shown.past.spans if span.end is None and "recv" in span.op]
    lanes, starts = [span.lane for span in waits], [span.start - begin for span in waits]
    widths = [shown.now - span.start for span in waits]
    ax.barh(lanes, widths, left=starts, height=0.36, color=plots.PALETTE["sky"], zorder=2)
    for send, receive in shown.timeline.messages():
        if send.start < shown.now < receive.end:
            share = (shown.now - send.start) / (receive.end - send.start)
            there = send.lane + share * (receive.lane - send.lane)
            ax.plot(
                [send.start - begin, shown.now - begin], [send.lane, there], "--", color=plots.PALETTE["blue"], lw=1
            )


def _bars(ax: Axes, waited: Sequence[float], most: float, lanes: int) -> None:
    """Seconds waited so far, on an axis that fits the whole run."""
    ax.barh(range(lanes), waited, height=0.5, color=plots.PALETTE["sky"])
    ax.set(xlim=(0, 1.05 * most or 1.0), ylim=(lanes - 0.5, -0.5), xlabel="waited so far", yticks=[])
    ax.set_xticks([0, most], ["0", duration(most, 2)])
    plots.plain_frame(ax)


def _key(figure: Figure, recorded: bool) -> None:
    """What the colours mean, in one line above the picture."""
    words_of = {"waits": "sky", "message": "blue"} | ({"works": "orange"} if recorded else {})
    for place, (word, color) in enumerate(words_of.items()):
        figure.text(0.36 + 0.1 * place, 0.92, f"■ {word}", color=plots.PALETTE[color], fontsize=10)


def words(shown: Moment) -> str:
    """Say how far the run is, who has waited longest, and where a recorded one comes from."""
    pairs = shown.timeline.messages()
    arrived = sum(receive.end <= shown.now for _, receive in pairs)
    end, waited = max(span.end for span in shown.timeline.spans), shown.waited(shown.now)
    text = f"{shown.name}, {shown.timeline.lanes} ranks: after {duration(shown.now)} of {duration(end)}, {arrived} of "
    text += f"{len(pairs)} messages have arrived. Rank {waited.index(max(waited))} has waited longest, "
    text += f"{duration(max(waited))}; all ranks together {duration(sum(waited))}. "
    if shown.recorded:
        return text + f"{shown.recorded[0].upper()}{shown.recorded[1:]}."
    return text + f"Simulated: α = {duration(LINK.alpha)}, 1/β = {quantity(1 / LINK.beta, 'B/s')}."


def mpi_spacetime(large: bool = False) -> Panel:
    """Return the demo: show it by making it the last line of a cell; in large type for a projector."""
    controls = {
        "run": menu("run", [*RECORDED, *SIMULATED], "binomial broadcast"),
        "ranks": choice("P", RANKS, 8),
        "nbytes": log_slider("n in bytes", 1e2, 1e9, 1e6),
        "moment": whole("moment", 0, MOMENTS, 30),
    }
    return panel(controls, data, draw, words, SIZE, PRESETS, large)
