"""A planning task with more than one right answer: what is asked, and whether a plan answers it.

A plan is reported as plain data, and judged where the task is known: by what it would do, not by what it looks like.
"""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from distgen_lab.course import sample
from distgen_lab.planner.layout import Batch, Layout
from distgen_lab.planner.machine import cluster
from distgen_lab.planner.step import TrainingPlan, plan
from distgen_lab.units import duration

__all__ = ["GOALS", "Task"]

GOALS = {"fit": "", "step": "a step takes {}, {} are possible", "cost": "a token costs {}, {} are possible"}
"""What a task can ask for (any plan that fits, the fastest step, the cheapest token), and what a worse one is told."""


@dataclass(frozen=True)
class Task:
    """What is to be planned, and what counts.

    Attributes:
        model: name of a packaged configuration, see :func:`distgen_lab.sample`.
        machines: the nodes to choose from, with dollars for a device and hour.
        devices: how many a plan may use at most.
        sequences, context: of a step.
        goal: a word of :data:`GOALS`.
        exposed, step: seconds of a step that exposed communication, and all of it, may take.
        tokens, days: the run, and how long it may take.
    """

    model: str
    machines: dict[str, float] = field(hash=False)
    devices: int
    sequences: int
    context: int
    goal: str = "fit"
    exposed: float = math.inf
    step: float = math.inf
    tokens: float = 1.0
    days: float = math.inf

    def plan(self, layout: Layout, machine: str | None = None) -> TrainingPlan:
        """Return the plan of a layout on one of the machines, the first unless named.

        Raises:
            ValueError: for another machine, or a layout that does not divide.
        """
        name = next(iter(self.machines)) if machine is None else machine
        if name not in self.machines:
            raise ValueError(f"machine is {name!r}; there are {', '.join(self.machines)}")
        where = cluster(name, layout.devices, price=self.machines[name])
        return plan(sample(self.model), where, Batch(self.sequences, self.context), layout)

    def report(self, layout: Layout, machine: str | None = None) -> dict[str, Any]:
        """Return an answer as plain data, for ``checks.report``.

        Raises:
            TypeError: if it is no layout.
        """
        if not isinstance(layout, Layout):
            raise TypeError(f"the answer is a {type(layout).__name__}; a planner.Layout is wanted")
        chosen = {name: int(value) if isinstance(value, bool) else value for name, value in asdict(layout).items()}
        limits = {name: None if value == math.inf else value for name, value in asdict(self).items()}
        return {"task": limits, "layout": chosen, "machine": machine or next(iter(self.machines))}

    def fault(self, planned: TrainingPlan) -> str:
        """Return "" if a plan does what is demanded, else one sentence."""
        if planned.cluster.devices > self.devices:
            return f"it uses {planned.cluster.devices} devices, {self.devices} are there"
        if not planned.fits:
            return f"it does not fit: it {planned.problem}"
        if planned.exposed > self.exposed * (1 + 1e-9):
            return (
                f"{duration(planned.exposed)} of a step are exposed communication, {duration(self.exposed)} are allowed"
            )
        if planned.step_time > self.step * (1 + 1e-9):
            return f"a step takes {duration(planned.step_time)}, {duration(self.step)} are allowed"
        days = planned.days(self.tokens)
        return f"it takes {days:.1f} days, {self.days:g} are allowed" if days > self.days else ""

    def measure(self, planned: TrainingPlan) -> float:
        """Return what is to be small: seconds of a step, dollars of a token, or 0 where fitting is enough."""
        return {"fit": 0.0, "step": planned.step_time, "cost": planned.cost(1.0)}[self.goal]

    def worse(self, got: float, best: float, rel: float) -> str:
        """Return "" if a measure is within ``rel`` of the best, else one sentence."""
        if got <= best * (1 + rel):
            return ""
        show = duration if self.goal == "step" else lambda dollars: f"${dollars * 1e6:.4g} a million"
        return GOALS[self.goal].format(show(got), show(best))

    @classmethod
    def read(cls, report: dict[str, Any]) -> tuple["Task", Layout, str]:
        """Return task, layout and machine of a report.

        Raises:
            ValueError: for a report that is none.
        """
        try:
            limits = {name: math.inf if value is None else value for name, value in report["task"].items()}
            return cls(**limits), Layout(**report["layout"]), str(report["machine"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the report is no plan: {error}") from None
