"""Lecture demos: each is a pure function of its parameters, a drawing, and thin wiring to widgets."""

from distgen_lab.demos.three_walls import three_walls

__all__ = ["three_walls"]
