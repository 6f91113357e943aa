"""The verdict on benchmark logs: peak, fit, is the cluster healthy, and the likely cause where it is not."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from distgen_lab.hardware import ACCELERATORS, accelerator
from distgen_lab.nccl_tuner import MACHINES, choose
from distgen_lab.readers.benchmark import BUS_FACTORS, BenchmarkLog, Run
from distgen_lab.readers.machine import Machine, rings
from distgen_lab.readers.osu import OsuLog, OsuTable
from distgen_lab.readers.saying import Finding, Verdict
from distgen_lab.units import GB, MB, MIB, US, duration, quantity

__all__ = ["HEALTHY", "Expectation", "expectation", "of_osu", "of_run"]

HEALTHY = 0.9
"""Share of the expected bus bandwidth from which a cluster counts as healthy."""
_XGMI = {"MI300X": 7 * 48 * GB, "MI325X": 7 * 48 * GB}  # links x what RCCL counts on for one
_V100 = 6 * 20 * GB  # NVLinks x NCCL's constant for one
_PLACES = {"out": "out of place", "in": "in place"}
_PCIE_MOST = 26 * GB  # a ring over PCIe 4.0 x16, or what is left of one over 5.0
_SOCKETS = 5 * GB
_PCIE = "PCIe instead of NVLink: NCCL_P2P_DISABLE, GPUs of a container that cannot see each other, or no fabric manager"
_FEW_LINKS = "NVLinks down (`nvidia-smi nvlink -s`), or too few channels (NCCL_MAX_NCHANNELS)"
_TCP = "TCP sockets instead of RDMA (NCCL_IB_DISABLE, IPoIB, no plug-in): NCCL_DEBUG=INFO then prints NET/Socket"
_FEW_PORTS = "(NCCL_IB_HCA, `ibstat`), or a node with fewer ports than the reference"
_ONE_PORT = "one NIC a node does the work: GPUDirect RDMA off, NCCL_IB_HCA names one port, or a cloud node with no more"
_SLOW_NETWORK = "a network below the vendor's reference (one port a GPU), GPUDirect RDMA off, or a congested fabric"
_NVLS = "sums in the NVSwitch (NVLS), which send fewer bytes than a ring"
_NVLS_OFF = "NVLS off: NCCL_NVLS_ENABLE=0, an old NCCL, or no fabric manager"
_FASTER = "a network faster than the vendor's reference"
_CARDS = r"PCI-?E|\bNVL\b"
_DEVICE_NAMES = (
    ("GB200", r"GB200"), ("B200", r"B200"), ("H200", r"H200"), ("H100", r"H100"), ("A100", r"A100"),
    ("V100", r"V100"), ("MI325X", r"MI325"), ("MI300X", r"MI300X|MI308X"),
)  # fmt: skip


@dataclass(frozen=True)
class Expectation:
    """The bus bandwidth to expect, in bytes/s, and what it rests on; None where nothing can be expected."""

    busbw: float | None
    why: str
    device: str = ""
    nodes: int | None = None
    per_node: int | None = None


def expectation(run: Run, machine: Machine | None = None, device: str | None = None) -> Expectation:
    """Return the bus bandwidth to expect of a run at its largest size.

    Inside one node with a known topology it is that of its rings. Else it is what NCCL's tuner expects of rings and
    trees on the vendor's reference node (A100, H100, H200, B200, eight GPUs and one port each), for the number of nodes
    that the rank lines show (eight GPUs a node where they do not).
    """
    name = accelerator(device).name if device else _device_of(run)
    ranks = run.ranks
    if not ranks or ranks < 2:
        return Expectation(None, "the number of ranks is not known", name)
    nodes, per_node, how = _nodes(run)
    if machine is not None and nodes == 1:
        found = rings(machine)
        return Expectation(found.busbw, f"the topology's rings: {found}", name, nodes, per_node)
    if not name:
        said = next((device for _, _, device in run.devices if device), "")
        why = (
            f"the rank lines say {said!r}, which is not in the catalogue" if said else "the file does not name the GPUs"
        )
        return Expectation(None, f"{why}; say --device", name, nodes, per_node)
    return _of_device(run, name, nodes, per_node, how)


def _of_device(run: Run, name: str, nodes: int, per_node: int, how: str) -> Expectation:
    key = "B200" if name == "GB200" else name
    if (
        key in MACHINES
        and run.op in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
        and name != "GB200"
    ):
        nbytes = _largest(run)
        seconds = choose(nbytes, key, nodes, per_node, run.op).seconds
        busbw = nbytes * BUS_FACTORS[run.op](nodes * per_node) / seconds
        where = f"{nodes} node{'s' * (nodes > 1)} of {per_node} {name}{how}"
        why = f"NCCL's tuner for {where} at {quantity(nbytes, 'B')}, rings and trees"
        return Expectation(busbw, why, name, nodes, per_node)
    gpu = ACCELERATORS[name]
    inside = _XGMI.get(name) or (
        _V100 if name == "V100" else gpu.links * (MACHINES["B200"].scaleup / 18 if name == "GB200" else 20 * GB)
    )
    if nodes == 1 or name == "GB200":
        return Expectation(inside, f"links x NCCL's constant for one link of {name}{how}", name, nodes, per_node)
    outside = (gpu.scaleout or 0) * (per_node if run.op not in ("all_to_all", "sendrecv", "gather", "scatter") else 1)
    busbw = min(inside, outside) if outside else None
    return Expectation(busbw, f"the network ports of {per_node} {name} a node{how}", name, nodes, per_node)


def _device_of(run: Run) -> str:
    """The catalogue's name of the GPU in the rank lines; "" for PCIe cards, which have other links than their name."""
    for _, _, device in run.devices:
        if re.search(_CARDS, device, re.IGNORECASE):
            return ""
        for name, words in _DEVICE_NAMES:
            if re.search(words, device, re.IGNORECASE):
                return name
    return ""


def _nodes(run: Run) -> tuple[int, int, str]:
    """Nodes, ranks of each, and how that is known."""
    assert run.ranks
    hosts = run.hosts
    if hosts and len(run.devices) == run.ranks and run.ranks % len(hosts) == 0:
        return len(hosts), run.ranks // len(hosts), ""
    if run.ranks <= 8:
        return 1, run.ranks, " (one node assumed)"
    each = 8 if run.ranks % 8 == 0 else math.gcd(run.ranks, 8)
    return run.ranks // each, each, f" ({each} GPUs a node assumed)"


def of_run(run: Run, log: BenchmarkLog, machine: Machine | None, device: str | None) -> Verdict:
    """Peak and average, the fit and its range, and whether that is healthy."""
    wanted = expectation(run, machine, device)
    peak, line = run.peak, run.fit()
    ratio = peak.busbw / wanted.busbw if wanted.busbw else None
    findings = tuple(_wrong_run(run, wanted, ratio))
    healthy = None if ratio is None or _too_small(run, ratio) else ratio >= HEALTHY
    if run.wrong or any(finding.level == "problem" for finding in findings):
        healthy = False
    who = f"{run.op} on {run.ranks or 'an unknown number of'} ranks"
    said = {True: "healthy", False: "NOT healthy", None: "cannot be judged"}[healthy]
    against = f", {ratio:.0%} of the {quantity(wanted.busbw, 'B/s')} expected" if wanted.busbw and ratio else ""
    headline = f"{said}: {who} reaches a busbw of {quantity(peak.busbw, 'B/s')}{against}"
    lines = [
        f"peak {quantity(peak.busbw, 'B/s')} at {quantity(peak.nbytes, 'B')} ({_PLACES[peak.place]}), mean of the rows"
        f" {quantity(run.average, 'B/s')} over {run.lines} sizes (which small ones pull down)",
        f"alpha-beta: {line}" if line else "alpha-beta: no line holds to 10 % over three sizes",
        f"expected: {wanted.why}",
        f"operation: {run.op_from}; ranks: {run.ranks_from}",
    ]
    facts = {
        "op": run.op, "ranks": run.ranks, "rows": run.lines, "peak_busbw": peak.busbw, "peak_bytes": peak.nbytes,
        "average_busbw": run.average, "wrong": run.wrong, "expected_busbw": wanted.busbw, "ratio": ratio,
        "alpha": line and line.link.alpha, "beta_busbw": line and _finite(line.link.bandwidth),
        "fit_smallest": line and line.smallest, "fit_largest": line and line.largest,
    }  # fmt: skip
    notes = tuple(note for note in (*log.notes, *run.notes) if not note.startswith("operation inferred"))
    return Verdict("nccl-tests", log.source, headline, healthy, tuple(lines), findings, facts, notes)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _wrong_run(run: Run, wanted: Expectation, ratio: float | None) -> Iterator[Finding]:
    """What looks wrong with a run, the worst first."""
    if run.wrong:
        yield Finding(
            "problem",
            f"{run.wrong:,} wrong elements.",
            "faulty links or memory: run again with -c 1, one pair of GPUs at a time",
        )
    if run.out_of_bounds:
        yield Finding("problem", f"{run.out_of_bounds} values out of bounds (the tests' own check failed).")
    if ratio is not None and wanted.busbw is not None:
        yield from _slow(run, wanted, ratio)
    elif run.peak.nbytes >= 64 * MIB and run.peak.busbw <= _SOCKETS and (len(run.hosts) > 1 or (run.ranks or 0) > 8):
        what = f"{quantity(run.peak.busbw, 'B/s')} over several nodes is what TCP sockets give."
        yield Finding("warning", what, "no RDMA (NCCL_IB_DISABLE, IPoIB), or small machines with a slow network")
    yield from _shape(run)
    if run.broken:
        yield Finding("warning", f"{run.broken} rows are cut by other output and left out.")


def _slow(run: Run, wanted: Expectation, ratio: float) -> Iterator[Finding]:
    """The likely cause of a rate below, or well above, what was expected."""
    assert wanted.busbw is not None
    rate, expected = run.peak.busbw, wanted.busbw
    nvls = wanted.device in ("H100", "H200", "B200") and run.op == "all_reduce"
    if _too_small(run, ratio):
        what = f"the largest size is {quantity(_largest(run), 'B')}: run to 1 GiB or more (-e 8G) before judging."
        yield Finding("note", what)
    elif ratio > 1.05:
        yield Finding("note", f"{ratio - 1:.0%} above rings and trees.", _NVLS if nvls else _FASTER)
    elif ratio < HEALTHY:
        what = f"{quantity(rate, 'B/s')} where {quantity(expected, 'B/s')} are expected."
        yield Finding("problem", what, _cause(rate, expected, wanted))
    elif nvls and wanted.nodes == 1:
        yield Finding("note", "this is what rings reach; sums in the NVSwitch (NVLS) give some 30 % more.", _NVLS_OFF)


def _largest(run: Run) -> int:
    return max(row.nbytes for row in run.rows)


def _too_small(run: Run, ratio: float) -> bool:
    """Whether a low rate may be due to sizes that are too small to fill the links."""
    return ratio < HEALTHY and _largest(run) < 64 * MIB


def _cause(rate: float, expected: float, wanted: Expectation) -> str:
    """The likeliest reason, by the rate."""
    if wanted.nodes == 1:
        if rate <= _PCIE_MOST:
            return _PCIE
        return f"{rate / expected:.0%} of the links: {_FEW_LINKS}"
    port = ACCELERATORS[wanted.device].scaleout if wanted.device in ACCELERATORS else None
    if rate <= _SOCKETS:
        return _TCP
    per_node = wanted.per_node or 8
    for down in range(1, per_node):
        if abs(rate / expected - (per_node - down) / per_node) < 0.03 and down <= per_node // 2:
            return f"{down} of {per_node} NICs down or left out {_FEW_PORTS}"
    if port and rate <= 1.2 * port:
        return _ONE_PORT
    return _SLOW_NETWORK


def _shape(run: Run) -> Iterator[Finding]:
    """Rates that fall again at large sizes, and two sides that differ."""
    sizes = sorted({row.nbytes for row in run.rows if row.nbytes})
    if len(sizes) > 3:
        best = {size: max(row.busbw for row in run.rows if row.nbytes == size) for size in sizes}
        if best[sizes[-1]] < 0.8 * run.peak.busbw:
            yield Finding(
                "warning",
                f"{quantity(best[sizes[-1]], 'B/s')} at the largest size, down from {quantity(run.peak.busbw, 'B/s')}.",
                "buffers that leave a cache or memory pool, or other jobs on the network",
            )
    sides = {(row.nbytes, row.place): row.busbw for row in run.rows if row.nbytes >= 64 * MIB}
    apart = [
        n
        for n in sizes
        if (a := sides.get((n, "out"))) and (b := sides.get((n, "in"))) and max(a, b) > 1.25 * min(a, b)
    ]
    if apart:
        yield Finding(
            "warning",
            f"in and out of place differ by more than a quarter at {', '.join(quantity(n, 'B') for n in apart[:3])}.",
            "a disturbance during the run: run again",
        )


def of_osu(table: OsuTable, log: OsuLog) -> Verdict:
    """Best value, and alpha and beta of a latency table."""
    best, line = table.best, table.fit()
    scale, unit = (MB, "B/s") if table.is_bandwidth else (US, "s")
    value = best.values[0] * scale
    shown = quantity(value, "B/s") if table.is_bandwidth else duration(value)
    at = "" if best.nbytes is None else f" at {quantity(best.nbytes, 'B')}"
    many = f"{len(table.rows)} {'size' if table.has_sizes else 'row'}{'s' * (len(table.rows) > 1)}"
    headline = f"{table.title}: best {shown}{at}, over {many}"
    lines = [f"columns: {', '.join(table.columns)}"]
    if line:
        lines.append(f"alpha-beta: {line}")
    elif table.is_bandwidth:
        lines.append("many messages are under way at once: such a rate gives beta, not alpha")
    facts = {
        "title": table.title, "unit": unit, "rows": len(table.rows), "best": value, "best_bytes": best.nbytes,
        "alpha": line and line.link.alpha, "bandwidth": line and _finite(line.link.bandwidth),
    }  # fmt: skip
    return Verdict("osu", log.source, headline, None, tuple(lines), (), facts, (*log.notes, *table.notes))
