"""The verdict on a topology: links, rings, the busbw to expect, the nearest NIC of each GPU, what looks wrong."""

from collections import Counter
from collections.abc import Iterator, Sequence

from distgen_lab.readers.machine import CODES, Machine, Nearest, Rings, rings
from distgen_lab.readers.saying import Finding, Verdict
from distgen_lab.units import quantity

__all__ = ["of_machine"]


def of_machine(machine: Machine) -> Verdict:
    """Links, rings, expected busbw, the nearest NIC of each GPU, what looks wrong."""
    found, links = rings(machine), machine.links_per_gpu()
    nearest = machine.nearest()
    findings = tuple(_wrong_with(machine, links))
    worst = any(finding.level == "problem" for finding in findings)
    lines = [
        f"links of each GPU: {_runs_of(links)}" if any(links) else "no NVLink or xGMI between the GPUs",
        "pairs of GPUs: " + ", ".join(f"{n} x {code}" for code, n in machine.pair_counts().items()),
        f"rings: {found}" + (f"; one of them: {' '.join(map(str, found.order))}" if found.count else ""),
        *(_nearest_by_code(nearest) if machine.nics else ["no NIC in the file"]),
    ]
    facts = {
        "gpus": machine.hosts, "nics": len(machine.nics), "links_per_gpu": links, "pair_counts": machine.pair_counts(),
        "rings": found.count, "busbw": found.busbw,
        "nearest_nics": {one.gpu: {"code": one.code, "nics": list(one.nics)} for one in nearest},
    }  # fmt: skip
    kind = "nccl-xml" if machine.tool.endswith("XML") else "topology"
    headline = _headline(machine, found, links)
    return Verdict(kind, machine.source, headline, not worst, tuple(lines), findings, facts, machine.notes)


def _nearest_by_code(nearest: Sequence[Nearest]) -> Iterator[str]:
    """The nearest NICs, a line for each kind of way, the nearest first; last the GPUs without any."""
    for code in (*CODES, ""):
        same = [f"{one.gpu} {' '.join(one.nics)}".strip() for one in nearest if one.code == code]
        if same:
            yield (f"nearest NIC, {code}: " if code else "no way to a NIC: ") + ", ".join(same)


def _headline(machine: Machine, found: Rings, links: Sequence[int]) -> str:
    """What the library can do inside the machine, in one sentence."""
    many, rate = f"{machine.hosts} GPU{'s' * (machine.hosts > 1)}", quantity(found.busbw, "B/s")
    library = "RCCL" if machine.tool.startswith(("rocm", "amd", "RCCL")) else "NCCL"
    if not found.count:
        return f"{many}: one GPU has no collective to do inside the machine"
    if not any(links) and machine.tool.endswith("XML"):
        alone = f"over PCIe alone one ring of about {rate}"
        return f"{many}; the file shows no NVLink ({library} looks for it itself): {alone}"
    way = f"{found.over}{' over NVSwitch' * (machine.switched and found.over != 'PCIe')}"
    laid = f"{found.count} ring{'s' * (found.count > 1)}"
    return f"{many} on {way}: {library} can lay {laid}; expect a busbw of about {rate} for a large all-reduce"


def _runs_of(links: Sequence[int]) -> str:
    """Equal counts said once."""
    kinds = Counter(links)
    return f"{links[0]}" if len(kinds) == 1 else ", ".join(f"{n} x {links}" for links, n in kinds.most_common())


def _wrong_with(machine: Machine, links: Sequence[int]) -> Iterator[Finding]:
    """GPUs with fewer links than others, NICs across sockets or shared, the worst first."""
    most = max(links, default=0)
    for gpu, have in zip(machine.gpus, links, strict=True):
        if have == 0 < most:
            cause = "it failed at start: see `nvidia-smi nvlink -s` and the kernel log (Xid); reset or reboot"
            lost = f"with it rings would carry {quantity(most * machine.nccl_rate, 'B/s')}"
            yield Finding("problem", f"{gpu.name} is off NVLink: it has no link, others have {most}; {lost}.", cause)
        elif have < most:
            cause = "links that are down: see `nvidia-smi nvlink -s`"
            yield Finding("warning", f"{gpu.name} has {have} links, others have {most}.", cause)
    if most == 0 and machine.hosts > 1:
        yield Finding("note", "GPUs meet over PCIe only: an all-reduce is some ten times slower than over NVLink.")
    yield from _wrong_nics(machine)


def _wrong_nics(machine: Machine) -> Iterator[Finding]:
    nearest = machine.nearest() if machine.nics else []
    across = [one.gpu for one in nearest if one.code == "SYS"]
    if across and len(across) == len(nearest):
        yield Finding(
            "warning",
            "every GPU reaches every NIC across sockets.",
            "a virtual machine that hides its PCIe tree (give NCCL a NCCL_TOPO_FILE), or NICs in the wrong slots",
        )
    elif across:
        cause = "a NIC that is missing, or in a slot of the other socket"
        yield Finding("problem", f"{', '.join(across)}: the nearest NIC lies across sockets.", cause)
    far = [one.gpu for one in nearest if one.code in ("PHB", "NODE")]
    if far:
        yield Finding(
            "note", f"{', '.join(far)}: no NIC below the same PCIe switch; GPUDirect RDMA goes through the CPU."
        )
    shared = Counter(nic for one in nearest for nic in one.nics[:1] if len(one.nics) == 1 and one.code != "SYS")
    for nic, times in shared.items():
        if times > 2 and len(machine.nics) > 1:
            yield Finding("note", f"{times} GPUs share {nic} as their nearest NIC.")
    used = {nic for one in nearest for nic in one.nics}
    idle = [nic.shown for nic in machine.nics if nic.shown not in used]
    if idle:
        yield Finding("note", f"{', '.join(idle)}: nearest to no GPU (storage or management?).")
