"""Real ranks from a notebook cell: Gloo, NCCL and MPI processes behind one door, :func:`launch`."""

from distgen_lab.ranks.errors import DeadlockError, LaunchError, MismatchError, RankError
from distgen_lab.ranks.launch import RankResult, Run, launch

__all__ = ["DeadlockError", "LaunchError", "MismatchError", "RankError", "RankResult", "Run", "launch"]
