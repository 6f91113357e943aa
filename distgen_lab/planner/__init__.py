"""Plan a training run or a server: memory, step time, exposed communication, cost, and how sure the answer is.

``plan`` prices one layout of a model on a cluster, ``search`` tries all of them, ``serve`` predicts tokens per second,
and ``validate`` holds the predictions against published measurements. What a step consists of is counted
(:mod:`~distgen_lab.planner.work`, :mod:`~distgen_lab.planner.memory`); five fitted constants turn it into seconds
(:mod:`~distgen_lab.planner.price`).
"""

from distgen_lab.planner.efficiency import Efficiency, fitted
from distgen_lab.planner.layout import Batch, Layout
from distgen_lab.planner.machine import Cluster, cluster
from distgen_lab.planner.memory import Memory
from distgen_lab.planner.searching import Loser, Search, search
from distgen_lab.planner.serving import ServingPlan, serve
from distgen_lab.planner.step import TrainingPlan, model_flops, plan
from distgen_lab.planner.task import Task
from distgen_lab.planner.validation import Validation, validate

__all__ = [
    "Batch", "Cluster", "Efficiency", "Layout", "Loser", "Memory", "Search", "ServingPlan", "Task", "TrainingPlan",
    "Validation", "cluster", "fitted", "model_flops", "plan", "search", "serve", "validate",
]  # fmt: skip
