"""Catalogue of accelerators, nodes and links: the only place where a hardware number is typed.

Rates are dense (no sparsity), bandwidth is per direction, memory and bandwidth are decimal (GB is 1e9 bytes). Each
entry names its source. What vendors print "both ways" is twice what stands here.
"""

import difflib
from dataclasses import dataclass, field

from distgen_lab.units import GB, TFLOP

__all__ = ["ACCELERATORS", "LINKS", "NODES", "Accelerator", "LinkSpec", "Node", "accelerator"]


@dataclass(frozen=True)
class LinkSpec:
    """A link: bandwidth in bytes/s per direction, and where the number comes from."""

    name: str
    bandwidth: float
    source: str

    @property
    def both_ways(self) -> float:
        """Bandwidth of both directions together, in bytes/s: the figure data sheets like to print."""
        return 2 * self.bandwidth


@dataclass(frozen=True)
class Accelerator:
    """One accelerator.

    Attributes:
        name, vendor, year: what it is, and the year it was announced.
        flops: dense peak in FLOP/s by precision: "fp32", "bf16" (V100: its FP16 rate), "fp8".
        memory: HBM in bytes.
        memory_bandwidth: bytes/s.
        scaleup: bytes/s per direction to its neighbours in the node or pod (NVLink, xGMI, ICI, RoCE), all links.
        scaleout: bytes/s per direction to the network outside, in the vendor's reference system; None if not published.
        power: watts (board or chip), None if not published.
        source: where the numbers stand.
        note: what to know about them.
    """

    name: str
    vendor: str
    year: int
    flops: dict[str, float] = field(hash=False)
    memory: float
    memory_bandwidth: float
    scaleup: float
    scaleout: float | None
    power: float | None
    source: str
    note: str = ""

    @property
    def ridge(self) -> float:
        """Ridge point in FLOP per byte of HBM traffic at the "bf16" rate."""
        return self.flops["bf16"] / self.memory_bandwidth

    def peak(self, precision: str = "bf16") -> float:
        """Return the dense peak in FLOP/s.

        Raises:
            ValueError: if the device has no such precision; the message lists those it has.
        """
        if precision not in self.flops:
            raise ValueError(f"{self.name} has no {precision} rate here; it has {', '.join(self.flops)}")
        return self.flops[precision]


@dataclass(frozen=True)
class Node:
    """A server: ``count`` equal accelerators and ``nics`` network ports."""

    name: str
    device: Accelerator
    count: int
    nics: int
    nic: LinkSpec
    source: str

    @property
    def memory(self) -> float:
        """HBM of all accelerators together, in bytes."""
        return self.count * self.device.memory

    @property
    def network(self) -> float:
        """Bytes/s per direction out of the node, all ports together."""
        return self.nics * self.nic.bandwidth


def _rates(bf16: float, fp8: float | None = None, fp32: float | None = None) -> dict[str, float]:
    """Peaks given in TFLOP/s, in FLOP/s; what a device lacks is left out."""
    given = {"fp32": fp32, "bf16": bf16, "fp8": fp8}
    return {name: value * TFLOP for name, value in given.items() if value is not None}


_ROWS = (
    Accelerator("V100", "NVIDIA", 2017, _rates(125, fp32=15.7), 32 * GB, 900 * GB, 150 * GB, 6.25 * GB, 300,
                "NVIDIA V100 datasheet; DGX-1V whitepaper", "FP16, no BF16; the 32 GB part came in 2018"),
    Accelerator("A100", "NVIDIA", 2020, _rates(312, fp32=19.5), 80 * GB, 2039 * GB, 300 * GB, 25 * GB, 400,
                "NVIDIA A100 80GB SXM datasheet; DGX A100", "launched with 40 GB at 1,555 GB/s"),
    Accelerator("H100", "NVIDIA", 2022, _rates(989.4, 1978.9, 66.9), 80 * GB, 3350 * GB, 450 * GB, 50 * GB, 700,
                "NVIDIA H100 SXM5 datasheet, figures with sparsity halved"),
    Accelerator("H200", "NVIDIA", 2024, _rates(989.4, 1978.9, 66.9), 141 * GB, 4800 * GB, 450 * GB, 50 * GB, 700,
                "NVIDIA H200 SXM datasheet"),
    Accelerator("B200", "NVIDIA", 2024, _rates(2250, 4500, 75), 180 * GB, 8000 * GB, 900 * GB, 50 * GB, 1000,
                "NVIDIA DGX B200 datasheet", "192 GB announced, 180 GB usable in DGX and HGX"),
    Accelerator("GB200", "NVIDIA", 2024, _rates(2500, 5000, 80), 186 * GB, 8000 * GB, 900 * GB, 50 * GB, 1200,
                "NVIDIA GB200 NVL72 page, divided by 72", "one GPU of a 72-GPU NVLink domain"),
    Accelerator("MI300X", "AMD", 2023, _rates(1307.4, 2614.9, 163.4), 192 * GB, 5325 * GB, 448 * GB, 50 * GB, 750,
                "AMD Instinct MI300X data sheet", "64 GB/s to each of 7 peers"),
    Accelerator("MI325X", "AMD", 2024, _rates(1307.4, 2614.9, 163.4), 256 * GB, 6000 * GB, 448 * GB, 50 * GB, 1000,
                "AMD Instinct MI325X data sheet"),
    Accelerator("TPU v4", "Google", 2021, _rates(275), 32 * GB, 1228 * GB, 300 * GB, None, 192,
                "Google Cloud TPU v4 documentation", "3D torus; 192 W is the highest measured"),
    Accelerator("TPU v5e", "Google", 2023, _rates(197), 16 * GB, 819 * GB, 200 * GB, 3.125 * GB, None,
                "Google Cloud TPU v5e documentation", "2D torus"),
    Accelerator("TPU v5p", "Google", 2023, _rates(459, 459), 95 * GB, 2765 * GB, 600 * GB, 6.25 * GB, None,
                "Google Cloud TPU v5p documentation", "3D torus; FP8 runs at the BF16 rate"),
    Accelerator("TPU v6e", "Google", 2024, _rates(918, 918), 32 * GB, 1638 * GB, 400 * GB, 12.5 * GB, None,
                "Google Cloud TPU v6e documentation", "2D torus"),
    Accelerator("Gaudi 2", "Intel", 2022, _rates(432, 865), 96 * GB, 2460 * GB, 262.5 * GB, 37.5 * GB, 600,
                "Intel Gaudi 2 white paper", "21 of 24 RoCE ports inside the node"),
    Accelerator("Gaudi 3", "Intel", 2024, _rates(1835, 1835), 128 * GB, 3700 * GB, 525 * GB, 75 * GB, 900,
                "Intel Gaudi 3 white paper", "21 of 24 RoCE ports inside the node"),
)  # fmt: skip

ACCELERATORS: dict[str, Accelerator] = {row.name: row for row in _ROWS}
"""Every accelerator of the catalogue by name."""

LINKS: dict[str, LinkSpec] = {
    row.name: row
    for row in (
        LinkSpec("PCIe 5.0 x16", 64 * GB, "32 GT/s x 16 lanes, before encoding (PCI-SIG)"),
        LinkSpec("NVLink 4, one link", 25 * GB, "NVIDIA H100 datasheet: 18 links, 900 GB/s both ways"),
        LinkSpec("InfiniBand NDR port", 50 * GB, "NVIDIA Quantum-2: 400 Gb/s"),
        LinkSpec("InfiniBand XDR port", 100 * GB, "NVIDIA Quantum-X800: 800 Gb/s"),
    )
}
"""Links by name."""

NODES: dict[str, Node] = {
    row.name: row
    for row in (
        Node("DGX H100", ACCELERATORS["H100"], 8, 8, LINKS["InfiniBand NDR port"],
             "NVIDIA DGX SuperPOD H100 reference architecture"),
    )
}  # fmt: skip
"""Nodes by name."""


def accelerator(name: str) -> Accelerator:
    """Return the accelerator of that name, upper or lower case.

    Raises:
        ValueError: for an unknown name; the message suggests near ones.

    >>> accelerator("h100").memory / 1e9
    80.0
    """
    known = {key.lower(): row for key, row in ACCELERATORS.items()}
    if name.lower() in known:
        return known[name.lower()]
    near = difflib.get_close_matches(name.lower(), known, cutoff=0.4) or sorted(known)
    raise ValueError(f"unknown accelerator {name!r}; did you mean {', '.join(known[n].name for n in near)}?")
