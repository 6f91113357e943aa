"""Every layout of a model on a cluster, tried: which fit, which is fastest, and why each other one is not.

Layouts are not sampled. Those that divide nothing are never made, those that do not fit into memory are not priced, and
the rest is priced together, in arrays.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import product
from os import PathLike
from typing import Any

from distgen_lab.claims import html_table
from distgen_lab.models import ModelShape
from distgen_lab.planner.efficiency import Efficiency, fitted
from distgen_lab.planner.layout import Batch, Layout, most_experts
from distgen_lab.planner.machine import Cluster
from distgen_lab.planner.memory import RESERVED, memory
from distgen_lab.planner.price import parts, stack
from distgen_lab.planner.step import TrainingPlan
from distgen_lab.planner.work import StepWork, step_work
from distgen_lab.units import duration, quantity

__all__ = ["Loser", "Search", "layouts", "search"]

MOST_TENSOR, MOST_MICRO_BATCH, LONG = 64, 16, 32_768
"""Limits of a search where nothing is fixed: tensor, micro_batch; context parallelism from so many tokens on."""
_STEPS = 512  # layouts between two calls of ``progress``


@dataclass(frozen=True)
class Loser:
    """A layout that is not the best: why, and seconds of its step (None if it was not priced)."""

    layout: Layout
    reason: str
    step_time: float | None = None

    def __str__(self) -> str:
        return f"{self.layout}: {self.reason}"


@dataclass(frozen=True, repr=False)
class Search:
    """What a search found.

    Attributes:
        model, cluster, batch: what was planned.
        plans: those that fit and are accepted, fastest first; of equally fast ones the one with more memory left.
        refused: the others, with the reason.
        tried: how many layouts there were.
        keep: how many plans :attr:`ranked` and a table show.
    """

    model: ModelShape
    cluster: Cluster
    batch: Batch
    plans: list[TrainingPlan] = field(repr=False)
    refused: list[Loser] = field(repr=False)
    tried: int
    keep: int = 20

    @property
    def best(self) -> TrainingPlan:
        """The fastest plan.

        Raises:
            ValueError: if there is none: which layout comes nearest, and by how much it misses.
        """
        if not self.plans:
            raise ValueError(self._nothing())
        return self.plans[0]

    @property
    def ranked(self) -> list[TrainingPlan]:
        """The fastest plans, at most :attr:`keep`."""
        return self.plans[: self.keep]

    @cached_property
    def losers(self) -> list[Loser]:
        """Every layout but the best: the slower ones, fastest first, then those that were refused."""
        slower = [Loser(p.layout, _slower(p, self.plans[0]), p.step_time) for p in self.plans[1:]]
        return slower + self.refused

    @cached_property
    def reasons(self) -> dict[str, int]:
        """How many layouts lose for which kind of reason, the most frequent first."""
        kinds = Counter(_kind(p, self.plans[0]) for p in self.plans[1:])
        kinds.update(_general(loser.reason) for loser in self.refused)
        return dict(kinds.most_common())

    def why(self, layout: Layout) -> str:
        """Return why that layout is not the best, "it is the best", or that it was not tried and why.

        Args:
            layout: any.
        """
        if self.plans and layout == self.plans[0].layout:
            return "it is the best"
        found = next((loser.reason for loser in self.losers if loser.layout == layout), None)
        wrong = layout.misfit(self.model, self.cluster.devices, self.batch)
        return found or wrong or "it was not tried; fix its values or widen the search"

    def table(self, rows: int | None = None) -> str:
        """Return the fastest plans as text, a line each."""
        shown = list(self._cells(rows or self.keep))
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in shown)
        return "\n".join(lines)

    def _cells(self, rows: int) -> Iterator[tuple[str, ...]]:
        yield ("", "layout", "step", "MFU", "memory", "exposed", "bubble", "why not the best")
        for place, p in enumerate(self.plans[:rows], 1):
            yield (
                str(place), str(p.layout), duration(p.step_time), f"{p.mfu:.1%}", quantity(p.memory.total, "B"),
                duration(p.exposed), f"{p.bubble:.1%}", _slower(p, self.plans[0]) if place > 1 else "",
            )  # fmt: skip

    def _summary(self) -> str:
        where = f"{self.cluster.devices} x {self.cluster.device.name}"
        fit = f"{len(self.plans)} of {self.tried} layouts fit and are accepted"
        return f"{self.model.name} on {where}: {fit}"

    def _nothing(self) -> str:
        if not self.tried:
            return f"no layout divides {self.model.name} over {self.cluster.devices} devices; change devices or batch"
        said = Counter(loser.reason for loser in self.refused if loser.step_time is not None)
        if said:
            return (
                f"{said.total()} of {self.tried} layouts fit, none is accepted; most often: {said.most_common(1)[0][0]}"
            )
        near = min(self.refused, key=lambda loser: memory(self.model, self.batch, loser.layout).total)
        held = f"{self.model.name} fits under none of {self.tried} layouts on {self.cluster.devices} devices"
        return f"{held}; the nearest, {near.layout}, {near.reason}"

    def __repr__(self) -> str:
        lost = "\n".join(f"  {count} {reason}" for reason, count in list(self.reasons.items())[:8])
        return "\n".join([self._summary(), self.table() if self.plans else self._nothing(), lost])

    def _repr_html_(self) -> str:
        head, *rows = self._cells(self.keep)
        return f"<p>{self._summary()}</p>" + (html_table(head, rows) if self.plans else f"<p>{self._nothing()}</p>")


def search(
    model: ModelShape | str | PathLike[str],
    cluster: Cluster,
    batch: Batch,
    *,
    within: Callable[[TrainingPlan], str] | None = None,
    keep: int = 20,
    progress: Callable[[int, int], None] | None = None,
    efficiency: Efficiency | None = None,
    **fixed: Any,
) -> Search:
    """Try every layout that divides model, batch and devices, and return the plans that fit, fastest first.

    Args:
        model: its shape, or the path of a ``config.json``.
        cluster, batch: as in :func:`plan`.
        within: given a plan that fits, returns "" to accept it or a sentence that says why not.
        keep: how many plans are shown.
        progress: called now and then with the layouts done and their number.
        efficiency: constants of kernels.
        fixed: values of :class:`Layout` to hold fixed, or tuples of values to choose from.

    Raises:
        ValueError: for a name that :class:`Layout` has not got, or values it refuses. That nothing fits is not an
            error here: :attr:`Search.best` says so.
    """
    shape = model if isinstance(model, ModelShape) else ModelShape.from_config(model)
    chosen = layouts(shape, cluster, batch, **fixed)
    by = efficiency or fitted()
    fitting, refused = [], []
    for done, layout in enumerate(chosen):
        if progress and done % _STEPS == 0:
            progress(done, len(chosen))
        held = memory(shape, batch, layout)
        over = held.total - (cluster.device.memory - RESERVED)
        if over > 0:
            refused.append(Loser(layout, _too_much(held.total, over)))
        else:
            fitting.append((layout, held, step_work(shape, cluster, batch, layout)))
    plans = [
        TrainingPlan(shape, cluster, batch, layout, held, seconds, work, by)
        for (layout, held, work), seconds in zip(fitting, _priced([w for *_, w in fitting], by), strict=True)
    ]
    kept, more = _accepted(plans, within)
    kept.sort(key=lambda p: (float(f"{p.step_time:.6g}"), p.memory.total))
    if progress:
        progress(len(chosen), len(chosen))
    return Search(shape, cluster, batch, kept, refused + more, len(chosen), keep)


def _priced(works: list[StepWork], by: Efficiency) -> Iterator[dict[str, float]]:
    """Seconds of each, all priced at once."""
    if not works:
        return
    together = {name: values.tolist() for name, values in parts(stack(works), by).items()}
    for row in zip(*together.values(), strict=True):
        yield dict(zip(together, row, strict=True))


def _accepted(
    plans: list[TrainingPlan], within: Callable[[TrainingPlan], str] | None
) -> tuple[list[TrainingPlan], list[Loser]]:
    """The plans that ``within`` accepts, and the others with its words."""
    if within is None:
        return plans, []
    words = [within(p) for p in plans]
    lost = [Loser(p.layout, said, p.step_time) for p, said in zip(plans, words, strict=True) if said]
    return [p for p, said in zip(plans, words, strict=True) if not said], lost


def layouts(model: ModelShape, cluster: Cluster, batch: Batch, **fixed: Any) -> list[Layout]:
    """Return every layout that divides heads, layers, sequences, tokens, experts and devices.

    ZeRO stages are 1 to 3, micro-batches powers of two up to 16, chunks up to four, unless fixed.

    Raises:
        ValueError: as :func:`search`.
    """
    choice = _choices(model, cluster, batch, fixed)
    found = []
    for tensor, context, pipe in product(choice["tensor"], choice["context"], choice["pipe"]):
        data, rest = divmod(cluster.devices, tensor * context * pipe)
        if rest or not data or data not in choice.get("data", (data,)):
            continue
        found += _of_axes(model, cluster, batch, choice, {"tensor": tensor, "context": context, "pipe": pipe}, data)
    return found


def _of_axes(
    model: ModelShape, cluster: Cluster, batch: Batch, choice: dict[str, tuple], axes: dict[str, int], data: int
) -> Iterator[Layout]:
    """The layouts with these axes."""
    names = [name for name in choice if name not in (*axes, "data")]
    sizes = [m for m in choice["micro_batch"] if batch.sequences % (data * m) == 0]
    experts = [e for e in choice["expert"] if data * axes["context"] % e == 0]
    narrowed = choice | {"micro_batch": tuple(sizes), "expert": tuple(experts)}
    if axes["pipe"] == 1:
        narrowed["chunks"] = tuple(v for v in choice["chunks"] if v == 1)
    for values in product(*(narrowed[name] for name in names)):
        layout = Layout(data=data, **axes, **dict(zip(names, values, strict=True)))
        if not layout.misfit(model, cluster.devices, batch):
            yield layout


def _choices(model: ModelShape, cluster: Cluster, batch: Batch, fixed: dict[str, Any]) -> dict[str, tuple]:
    """Values of each axis to choose from."""
    known = {f.name for f in fields(Layout)}
    for name in fixed:
        if name not in known:
            raise ValueError(f"{name} is no value of a layout; there are {', '.join(sorted(known))}")
    most = most_experts(model)
    near = min(cluster.per_node, MOST_TENSOR)
    choice = {
        "tensor": [t for t in _divisors(model.heads) if t <= near],
        "context": _powers(16) if batch.context >= LONG else [1],
        "pipe": _divisors(model.layers),
        "expert": _divisors(most) if most else [1],
        "chunks": [1, 2, 3, 4],
        "micro_batch": _powers(MOST_MICRO_BATCH),
        "stage": [1, 2, 3],
        "recompute": ["none", "full"] if fixed.get("attention", "flash") == "flash" else ["none", "selective", "full"],
    }
    given = {name: value if isinstance(value, tuple | list) else (value,) for name, value in fixed.items()}
    for name, values in given.items():
        for value in values:
            Layout(**{name: value})  # refuses bad values
    return {name: tuple(values) for name, values in (choice | given).items()}


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def _powers(most: int) -> list[int]:
    return [2**k for k in range(most.bit_length()) if 2**k <= most]


def _too_much(total: float, over: float) -> str:
    return f"needs {quantity(total, 'B')} on a device, {quantity(over, 'B')} too many"


def _slower(plan: TrainingPlan, best: TrainingPlan) -> str:
    """By how much a plan is slower than the best, and what takes that time."""
    more = plan.step_time / best.step_time - 1
    if more < 5e-4:
        return f"as fast, but {quantity(plan.memory.total - best.memory.total, 'B')} more memory"
    name, extra = _worst(plan, best)
    return f"{more:.1%} slower: {duration(extra)} more {_WORDS[name]}"


def _worst(plan: TrainingPlan, best: TrainingPlan) -> tuple[str, float]:
    extra = {name: plan.seconds[name] - best.seconds[name] for name in plan.seconds}
    name = max(extra, key=extra.__getitem__)
    return name, extra[name]


def _kind(plan: TrainingPlan, best: TrainingPlan) -> str:
    """The reason without numbers."""
    if plan.step_time / best.step_time - 1 < 5e-4:
        return "as fast, but more memory"
    return f"slower: more {_WORDS[_worst(plan, best)[0]]}"


def _general(reason: str) -> str:
    return "do not fit into memory" if reason.startswith("needs ") else reason


_WORDS = {
    "compute": "compute (small or fewer products at a time)", "recompute": "recomputation",
    "tensor": "tensor-parallel communication", "context": "context-parallel communication",
    "expert": "expert communication", "pipe": "messages between stages", "bubble": "pipeline bubble",
    "data": "exposed data-parallel communication", "optimizer": "optimiser time",
}  # fmt: skip
