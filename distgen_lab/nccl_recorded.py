"""Runs of nccl-tests and copies that others recorded on machines few of us have, with their sources.

The figures lie in ``data/measured/nccl_tests.json``, the log of :func:`example` beside it. ``readers.read_log`` reads
logs of your own, ``alphabeta.BUS_FACTORS`` holds the factor from algbw to busbw of each operation.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from distgen_lab.alphabeta import BUS_FACTORS

__all__ = ["Sweep", "example", "host_copies", "recorded", "switch_sums", "v100_rings"]


@dataclass(frozen=True)
class Sweep:
    """A recorded run of nccl-tests: where, what, and seconds for each size in bytes."""

    name: str
    machine: str
    collective: str
    ranks: int
    nodes: int
    source: str
    bytes: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def busbw(self) -> tuple[float, ...]:
        """Bus bandwidth of each size, in bytes/s."""
        factor = BUS_FACTORS[self.collective](self.ranks)
        return tuple(factor * n / s for n, s in zip(self.bytes, self.seconds, strict=True))

    def at(self, nbytes: int) -> float:
        """Return the bus bandwidth of one size.

        Raises:
            ValueError: for a size that was not measured.
        """
        if nbytes not in self.bytes:
            raise ValueError(f"{nbytes} bytes were not measured; there are: {', '.join(map(str, self.bytes))}")
        return self.busbw[self.bytes.index(nbytes)]


@cache
def _data() -> dict[str, Any]:
    return json.loads((files("distgen_lab") / "data" / "measured" / "nccl_tests.json").read_text("utf-8"))


def recorded(name: str) -> Sweep:
    """Return a recorded sweep: "A100", "H100", "H200", "B200" (one node of eight), "2 x A100", "2 x H100", "H200 ring".

    Raises:
        ValueError: for an unknown name; the message lists the known ones.

    >>> recorded("A100").ranks
    8
    """
    sweeps = _data()["sweeps"]
    if name not in sweeps:
        raise ValueError(f"no recorded run is called {name!r}; there are: {', '.join(sweeps)}")
    row = sweeps[name]
    return Sweep(name, **row | {"bytes": tuple(row["bytes"]), "seconds": tuple(row["seconds"])})


def switch_sums(gpu: str = "H200") -> dict[int, tuple[float, float]]:
    """Return {ranks: (busbw of the ring, busbw of what NCCL takes by itself)} for 8 GiB in one node, in bytes/s.

    NCCL takes the switch's sums (NVLS) where they are faster: from five H200 on, from six B200 on.

    Raises:
        ValueError: for a GPU other than "H200" and "B200".
    """
    table = _data()["switch_sums"]
    if gpu not in ("H200", "B200"):
        raise ValueError(f"gpu is {gpu!r}; there are: H200, B200")
    rows = table[gpu]
    return {p: (r, d) for p, r, d in zip(rows["ranks"], rows["ring"], rows["default"], strict=True)}


def v100_rings() -> dict[int, float]:
    """Return {GPUs: busbw} that all-reduces on a DGX-1V approach for large sizes, on GPUs 0 to P-1, in bytes/s."""
    return {int(ranks): value for ranks, value in _data()["v100_rings"]["busbw"].items()}


def host_copies() -> dict[str, Any]:
    """Return recorded bytes/s of one H100: "device_to_host", "host_to_device", "peer_to_peer", and their sources."""
    return dict(_data()["host"])


def example() -> Path:
    """Return the path of a log that travels with the course: all_reduce_perf on eight H100."""
    return Path(str(files("distgen_lab") / "data" / "measured" / "all_reduce_8xh100.log"))
