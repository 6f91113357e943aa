"""Readers for the files that people who run clusters have; each gives the library's own types or a clear refusal.

``read(path)`` finds out what a file is and returns a ModelShape, a Machine (a Topology), a BenchmarkLog, an OsuLog or a
Trace; ``read_traces`` takes the traces of several ranks; ``verdict.of`` says what they mean. A file that cannot be read
raises :class:`ReadError`, a ValueError whose message names file, line and field. Nothing is guessed silently: what is
inferred stands in ``notes``.
"""

from distgen_lab.readers.benchmark import BUS_FACTORS, BenchmarkLog, Measured, Run
from distgen_lab.readers.kineto import Shares, Trace, TraceReport, read_trace, read_traces
from distgen_lab.readers.machine import Machine, Rings, expected_busbw, rings
from distgen_lab.readers.nccl_tests import read_log
from distgen_lab.readers.nccl_xml import read_xml
from distgen_lab.readers.nvsmi_topo import read_topology
from distgen_lab.readers.osu import OsuLog, OsuTable, read_osu
from distgen_lab.readers.recognise import KINDS, read, recognise
from distgen_lab.readers.source import ReadError

__all__ = [
    "BUS_FACTORS", "KINDS", "BenchmarkLog", "Machine", "Measured", "OsuLog", "OsuTable", "ReadError", "Rings", "Run",
    "Shares", "Trace", "TraceReport", "expected_busbw", "read", "read_log", "read_osu", "read_topology", "read_trace",
    "read_traces", "read_xml", "recognise", "rings",
]  # fmt: skip
