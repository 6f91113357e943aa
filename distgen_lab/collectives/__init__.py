"""Collective algorithms as schedules: written by name or by hand, verified, counted, priced, drawn and run."""

from distgen_lab.collectives.catalogue import ALGORITHMS, Algorithm, algorithms
from distgen_lab.collectives.copying import *  # noqa: F403
from distgen_lab.collectives.copying import __all__ as _copying
from distgen_lab.collectives.reducing import *  # noqa: F403
from distgen_lab.collectives.reducing import __all__ as _reducing
from distgen_lab.collectives.schedule import COLLECTIVES, Messages, Round, Schedule
from distgen_lab.collectives.tally import RankTraffic, TrafficTable, least_bytes, least_rounds
from distgen_lab.collectives.verdict import Verdict

__all__ = [
    "ALGORITHMS", "COLLECTIVES", "Algorithm", "Messages", "RankTraffic", "Round", "Schedule", "TrafficTable",
    "Verdict", "algorithms", "least_bytes", "least_rounds", *_copying, *_reducing,
]  # fmt: skip
