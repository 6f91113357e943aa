"""Lecture demos: each is a pure function of its parameters, a drawing, and thin wiring to widgets."""

from distgen_lab.demos.alpha_beta_explorer import alpha_beta_explorer
from distgen_lab.demos.cg_latency import cg_latency
from distgen_lab.demos.collective_flow import collective_flow
from distgen_lab.demos.mpi_spacetime import mpi_spacetime
from distgen_lab.demos.overlap_explorer import overlap_explorer
from distgen_lab.demos.parallel_plan import parallel_plan
from distgen_lab.demos.recorded_run import recorded_run
from distgen_lab.demos.ring_against_tree import ring_against_tree
from distgen_lab.demos.roofline_explorer import roofline_explorer
from distgen_lab.demos.run_planner import run_planner
from distgen_lab.demos.systolic_steps import systolic_steps
from distgen_lab.demos.three_walls import three_walls
from distgen_lab.demos.topology_explorer import topology_explorer
from distgen_lab.demos.training_budget import training_budget

__all__ = [
    "alpha_beta_explorer",
    "cg_latency",
    "collective_flow",
    "mpi_spacetime",
    "overlap_explorer",
    "parallel_plan",
    "recorded_run",
    "ring_against_tree",
    "roofline_explorer",
    "run_planner",
    "systolic_steps",
    "three_walls",
    "topology_explorer",
    "training_budget",
]
