"""Demo: a collective round by round: who sends to whom, and what every rank then holds."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from matplotlib.figure import Figure

from distgen_lab import plots
from distgen_lab.collectives import ALGORITHMS, Round, Schedule
from distgen_lab.demos.panel import Panel, menu, panel, whole

__all__ = ["CHOICES", "Flow", "collective_flow", "data", "draw", "states", "words"]

_SHOWN = (
    "linear_broadcast", "binomial_broadcast", "scatter_ring_broadcast", "binomial_reduce", "binomial_scatter",
    "binomial_gather", "ring_all_gather", "recursive_doubling_all_gather", "ring_reduce_scatter", "ring_all_reduce",
    "recursive_doubling_all_reduce", "rabenseifner_all_reduce", "pairwise_all_to_all", "bruck_all_to_all",
)  # fmt: skip
CHOICES = {f"{ALGORITHMS[name].collective}: {name.replace('_', ' ')}": name for name in _SHOWN}
"""What the demo offers: "broadcast: binomial broadcast" is the algorithm ``binomial_broadcast``."""
RANKS = range(2, 9)
State = tuple[tuple[frozenset[int], ...], ...]
"""For each rank and chunk the ranks whose contributions it holds."""
PRESETS = {
    "naive broadcast": {"collective": "broadcast: linear broadcast", "number": 0},
    "binomial broadcast": {"collective": "broadcast: binomial broadcast", "number": 0},
    "ring all-reduce": {"collective": "all_reduce: ring all reduce", "number": 0},
    "half of it": {"collective": "all_reduce: ring all reduce", "number": 7},
    "doubling": {"collective": "all_reduce: recursive doubling all reduce", "number": 0},
    "all-to-all": {"collective": "all_to_all: bruck all to all", "number": 0},
}
"""Buttons for a lecture."""


@dataclass(frozen=True, eq=False)
class Flow:
    """What the demo shows: a schedule, all states from the first to the last, and the number of the state shown."""

    schedule: Schedule
    states: tuple[State, ...]
    number: int

    @property
    def held(self) -> State:
        """What the ranks hold now."""
        return self.states[self.number]

    @property
    def round(self) -> Round | None:
        """The round that led here, None at the start."""
        return list(self.schedule.rounds())[self.number - 1] if self.number else None


def _start(schedule: Schedule) -> State:
    """What the ranks hold before the first round."""
    ranks, block = schedule.ranks, schedule.parts // schedule.ranks

    def holds(rank: int, chunk: int) -> bool:
        if schedule.collective in ("broadcast", "scatter"):
            return rank == schedule.root
        if schedule.collective in ("all_gather", "gather"):
            return chunk // block == rank
        return schedule.reduces or chunk // ranks == rank

    return tuple(
        tuple(frozenset({rank}) if holds(rank, chunk) else frozenset() for chunk in range(schedule.chunks))
        for rank in range(ranks)
    )


def states(schedule: Schedule) -> Iterator[State]:
    """Yield what every rank holds at the start and after each round: the ranks whose contributions are in a chunk."""
    state = _start(schedule)
    yield state
    for item in schedule.rounds():
        rows = [list(row) for row in state]
        for source, target, chunk, reduce in item.rows():
            came = state[source][chunk]
            rows[target][chunk] = rows[target][chunk] | came if reduce else came
        state = tuple(tuple(row) for row in rows)
        yield state


@lru_cache(maxsize=64)
def _built(name: str, ranks: int, root: int) -> tuple[Schedule, tuple[State, ...]]:
    """The schedule and its states, worked out once."""
    algorithm = ALGORITHMS[name]
    rooted = algorithm(ranks).root is not None
    schedule = algorithm(ranks, root=root) if rooted else algorithm(ranks)
    return schedule, tuple(states(schedule))


def data(collective: str, ranks: int, root: int, number: int) -> Flow:
    """Return what to show.

    Args:
        collective: one of :data:`CHOICES`.
        ranks: P, from 2 to 8.
        root: of a rooted collective; one too large counts as the last rank.
        number: rounds gone by; 0 is the start, one too large counts as the end.

    Raises:
        ValueError: for an algorithm that is not on offer, or ranks that it cannot serve.
    """
    if collective not in CHOICES:
        raise ValueError(f"collective is {collective!r}; there are: {', '.join(CHOICES)}")
    if ranks not in RANKS:
        raise ValueError(f"ranks is {ranks}; {RANKS[0]} to {RANKS[-1]} can be shown")
    schedule, seen = _built(CHOICES[collective], ranks, min(root, ranks - 1))
    return Flow(schedule, seen, min(number, len(seen) - 1))


def draw(figure: Figure, shown: Flow) -> None:
    """Draw the messages of the round and what the ranks hold after it."""
    ax = figure.add_axes((0.02, 0.02, 0.96, 0.86))
    item = shown.round
    rows = list(item.rows()) if item is not None else []
    new = [(target, chunk) for _, target, chunk, _ in rows]
    arrows = sorted({(source, target) for source, target, _, _ in rows})
    plots.holdings(ax, shown.held, new, arrows)
    when = f"after round {shown.number} of {len(shown.states) - 1}" if shown.number else "at the start"
    figure.suptitle(f"{shown.schedule.name}, {shown.schedule.ranks} ranks, {when}", fontsize=11, y=0.96)


def words(shown: Flow) -> str:
    """Say what the round did, and what the whole takes."""
    traffic = shown.schedule.traffic()
    whole = (
        f"In all {traffic.rounds} rounds and {traffic.messages} messages; the busiest rank moves {traffic.busiest} n."
    )
    item = shown.round
    if item is None:
        return f"Letters and colours are the ranks the data come from. {whole}"
    messages = len({(source, target) for source, target, _, _ in item.rows()})
    verb = "added to" if item.reduce.any() else "copied beside"
    return f"Round {shown.number}: {messages} messages, {verb} what the receivers hold (framed). {whole}"


def collective_flow(large: bool = False) -> Panel:
    """Return the demo: show it by making it the last line of a cell; in large type for a projector."""
    controls = {
        "collective": menu("collective", CHOICES, "broadcast: binomial broadcast"),
        "ranks": whole("P", RANKS[0], RANKS[-1], 8),
        "root": whole("root", 0, RANKS[-1] - 1, 0),
        "number": whole("rounds gone by", 0, 14, 2),
    }
    return panel(controls, data, draw, words, (9, 3.6), PRESETS, large)
