"""What simple models say of NCCL's bandwidth for large all-reduces, beside what was measured.

Three models, none fitted to the row it predicts: NCCL's own constant for a link times the links a ring can use; rings
on edge-disjoint ways through a mesh; and, where the switch adds up (NVLS), the bytes that cross a link times the share
of the link that NCCL's tuner expects.

Source: NVIDIA/nccl, src/graph/topo.h and tuning.cc; shares of a link under NVLS: 0.85 (Hopper), 0.74 (Blackwell).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from distgen_lab import nccl_tuner
from distgen_lab.alphabeta import BUS_FACTORS
from distgen_lab.claims import html_table
from distgen_lab.gpu_cluster import cluster, edge_disjoint_rings, rail_rings
from distgen_lab.nccl_recorded import recorded, switch_sums, v100_rings
from distgen_lab.simulate import price
from distgen_lab.topology import dgx1v
from distgen_lab.units import GB, quantity

__all__ = ["NVLS_SHARE", "Forecast", "ForecastTable", "forecasts", "rail_bandwidth", "switch_busbw", "table"]

NVLS_SHARE = {"H100": 0.85, "H200": 0.85, "B200": 0.74}
"""Share of a link that NCCL's tuner expects of sums in the switch, by GPU."""
LARGE = 2**30
"""Bytes at which prices are taken: start-up times no longer count."""


@dataclass(frozen=True)
class Forecast:
    """Predicted and measured bus bandwidth of a large all-reduce, in bytes/s.

    ``bound`` says that the model is an upper bound rather than a prediction.
    """

    machine: str
    model: str
    predicted: float
    measured: float
    source: str
    bound: bool = False

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, repr=False)
class ForecastTable:
    """Forecasts, one a line: HTML in a notebook, text in a terminal."""

    rows: tuple[Forecast, ...]

    def _cells(self) -> list[tuple[str, ...]]:
        def rate(value: float) -> str:
            return quantity(value, "B/s")

        return [
            (
                r.machine,
                r.model,
                rate(r.predicted),
                rate(r.measured),
                "bound" if r.bound else f"{r.error:+.1%}",
                r.source,
            )
            for r in self.rows
        ]

    def _repr_html_(self) -> str:
        return html_table(("Machine", "Model", "Predicted", "Measured", "Error", "Source"), self._cells())

    def __repr__(self) -> str:
        rows = self._cells()
        wide = [max(len(row[k]) for row in rows) for k in range(5)]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, wide, strict=False)) for row in rows)


def switch_busbw(gpu: str, ranks: int) -> float:
    """Return the bus bandwidth, in bytes/s, of sums in the switch (NVLS) inside one node.

    Each GPU gives its n bytes to the switch once, in parts that others ask for, and takes n bytes of the result; its
    own part of n/P goes out once more, as the sum that the switch hands to all. So n (1 + 1/P) cross its link each way,
    and busbw = 2(P-1)/P n / T = 2(P-1)/(P+1) b with b what is usable of the link: more than b from four GPUs on.

    Raises:
        ValueError: for a GPU without such sums, or fewer than two ranks.
    """
    if gpu not in NVLS_SHARE:
        raise ValueError(f"gpu is {gpu!r}; there are: {', '.join(NVLS_SHARE)}")
    usable = NVLS_SHARE[gpu] * nccl_tuner.MACHINES[gpu].scaleup
    return BUS_FACTORS["all_reduce"](ranks) * usable / (1 + 1 / ranks)


@cache
def rail_bandwidth(node: str, nodes: int) -> float:
    """Return the bus bandwidth, in bytes/s, of one ring a network port, priced on a cluster at data-sheet rates."""
    ranks = 8 * nodes
    seconds = price(rail_rings(nodes, node), cluster(node, nodes), LARGE).seconds
    return BUS_FACTORS["all_reduce"](ranks) * LARGE / seconds


def forecasts() -> list[Forecast]:
    """Return every forecast: a DGX-1V by GPUs, nodes with a switch, sums in the switch, clusters of rails."""
    return [*_mesh(), *_switched(), *_in_switch(), *_clusters()]


def _mesh() -> list[Forecast]:
    measured, source = v100_rings(), "vTrain, trace/v100"
    one = measured[2]  # two GPUs, one link: what a link gives
    rings = {ranks: len(edge_disjoint_rings(dgx1v(), range(ranks))) for ranks in measured if ranks > 2}
    return [
        Forecast(f"DGX-1V, {p} GPUs", f"{count} disjoint rings", count * one, measured[p], source)
        for p, count in rings.items()
        if count
    ]


def _switched() -> list[Forecast]:
    links = {"A100": ("A100", 12), "H200": ("H200 ring", 18)}
    rows = [
        Forecast(
            f"8 {gpu}", f"ring on {count} links", _ring_rate(gpu), max(recorded(name).busbw), recorded(name).source
        )
        for gpu, (name, count) in links.items()
    ]
    ring, _ = switch_sums("B200")[8]
    return [*rows, Forecast("8 B200", "ring on 18 links", _ring_rate("B200"), ring, recorded("B200").source)]


def _ring_rate(gpu: str) -> float:
    return nccl_tuner.MACHINES[gpu].scaleup


def _in_switch() -> list[Forecast]:
    h100 = recorded("H100")
    source = recorded("H200").source
    rows = [Forecast("8 H100", "sums in the switch", switch_busbw("H100", 8), max(h100.busbw), h100.source)]
    for gpu in ("H200", "B200"):
        rows += [
            Forecast(f"{p} {gpu}", "sums in the switch", switch_busbw(gpu, p), default, source)
            for p, (ring, default) in switch_sums(gpu).items()
            if default > 1.05 * ring  # else NCCL took the ring
        ]
    return rows


def _clusters() -> list[Forecast]:
    published: Sequence[tuple[str, int, float, str]] = (
        ("DGX-1V", 8, 43.53 * GB, "NVIDIA/nccl issue 319, ring"),
        ("DGX A100", 2, 192 * GB, "NVIDIA/nccl issue 812, DGX A100"),
        ("DGX H100", 4, 365.84 * GB, "NVIDIA/nccl-tests issue 309, 4 nodes"),
    )
    rows = [
        Forecast(f"{nodes} x {node}", "one ring a port", rail_bandwidth(node, nodes), measured, source)
        for node, nodes, measured, source in published
    ]
    efa = recorded("2 x A100")
    ports = 4 * 100e9 / 8
    two = BUS_FACTORS["all_reduce"](16) * ports  # a tree over two nodes sends n once each way
    return [*rows, Forecast("2 x p4de", "tree over two nodes", two, max(efa.busbw), efa.source, bound=True)]


def table() -> ForecastTable:
    """Return all forecasts as a table."""
    return ForecastTable(tuple(forecasts()))
