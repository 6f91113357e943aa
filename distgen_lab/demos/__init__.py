"""Lecture demos: each is a pure function of its parameters, a drawing, and thin wiring to widgets."""

from distgen_lab.demos.alpha_beta_explorer import alpha_beta_explorer
from distgen_lab.demos.cg_latency import cg_latency
from distgen_lab.demos.collective_flow import collective_flow
from distgen_lab.demos.overlap_explorer import overlap_explorer
from distgen_lab.demos.parallel_plan import parallel_plan
from distgen_lab.demos.roofline_explorer import roofline_explorer
from distgen_lab.demos.systolic_steps import systolic_steps
from distgen_lab.demos.three_walls import three_walls
from distgen_lab.demos.topology_explorer import topology_explorer

__all__ = [
    "alpha_beta_explorer",
    "cg_latency",
    "collective_flow",
    "overlap_explorer",
    "parallel_plan",
    "roofline_explorer",
    "systolic_steps",
    "three_walls",
    "topology_explorer",
]
