"""Catalogue of accelerators, chips, nodes, pods and links: the only place where a hardware number is typed.

Rates are dense (no sparsity), bandwidth is per direction, memory and bandwidth are decimal (GB is 1e9 bytes); what
lies on the chip is counted in KiB and MiB, as vendors do. Each entry names its source and its year. What vendors print
"both ways" is twice what stands here, what they print "with sparsity" is :meth:`Accelerator.sparse`.
"""

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from distgen_lab.claims import html_table
from distgen_lab.units import GB, KIB, MIB, TB, TFLOP, quantity

__all__ = [
    "ACCELERATORS", "BYTES", "CAPABILITIES", "CPUS", "LINKS", "NODES", "PODS", "Accelerator", "Capability", "Catalogue",
    "Chip", "Cpu", "LinkSpec", "MemoryLevel", "Node", "Pod", "accelerator", "bytes_of", "capability", "link", "node",
    "show", "show_levels", "show_links", "show_nodes",
]  # fmt: skip

BYTES: dict[str, float] = {
    "fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "fp4": 0.5,
}  # fmt: skip
"""Bytes of one value by precision (TF32 is stored in four)."""
_GHZ = 1e9


@dataclass(frozen=True)
class LinkSpec:
    """A link: bandwidth in bytes/s per direction, where the number comes from, and the year it came out."""

    name: str
    bandwidth: float
    source: str
    year: int

    @property
    def both_ways(self) -> float:
        """Bandwidth of both directions together, in bytes/s: the figure data sheets like to print."""
        return 2 * self.bandwidth


@dataclass(frozen=True)
class MemoryLevel:
    """One level of memory of a whole device: bytes, and bytes/s (None where no vendor publishes it)."""

    name: str
    size: float
    bandwidth: float | None
    source: str


@dataclass(frozen=True)
class Capability:
    """What one streaming multiprocessor (SM) of a CUDA compute capability can hold.

    Attributes:
        name: the compute capability.
        warps, blocks: most resident warps (of 32 threads) and thread blocks.
        registers: 32-bit registers.
        l1: bytes of L1 cache, texture cache and shared memory together.
        shared, shared_block: most bytes of these that can be shared memory, in all and for one block.
        reserved: bytes of shared memory that the system takes from each block.
        shared_unit: shared memory is handed out in multiples of so many bytes.
        source: where the numbers stand.
    """

    name: str
    warps: int
    blocks: int
    registers: int
    l1: int
    shared: int
    shared_block: int
    reserved: int
    shared_unit: int
    source: str

    @property
    def threads(self) -> int:
        """Most resident threads."""
        return 32 * self.warps


@dataclass(frozen=True)
class Chip:
    """The inside of an accelerator.

    Attributes:
        cores: streaming multiprocessors (NVIDIA), compute units (AMD), TensorCores (Google), TPCs (Intel).
        clock: Hz, at its highest, of the ordinary cores.
        lanes: FP32 fused multiply-adds of one core per clock; 0 where not published.
        matrix_units: Tensor Cores, matrix cores, MXUs or MMEs of the whole chip.
        fma: multiply-adds of one matrix unit per clock in 16 bit.
        matrix_clock: Hz, at its highest, of the matrix units.
        bus: width of the memory interface in bits; 0 where not published.
        levels: on-chip memory, the nearest to the arithmetic first.
        capability: CUDA compute capability, "" for the others.
        source: where the numbers stand.
    """

    cores: int
    clock: float
    lanes: int
    matrix_units: int
    fma: int
    matrix_clock: float
    bus: int
    levels: tuple[MemoryLevel, ...]
    capability: str
    source: str

    @property
    def matrix_peak(self) -> float:
        """FLOP/s of all matrix units in 16 bit: units x multiply-adds x 2 x clock."""
        return self.matrix_units * self.fma * 2 * self.matrix_clock

    @property
    def vector_peak(self) -> float:
        """FLOP/s of all ordinary lanes in FP32; 0 where the lanes are not published."""
        return self.cores * self.lanes * 2 * self.clock

    @property
    def threads(self) -> int:
        """Most threads that are resident at once (NVIDIA)."""
        return self.cores * capability(self.capability).threads


@dataclass(frozen=True)
class Accelerator:
    """One accelerator.

    Attributes:
        name, vendor, year: what it is, and the year it was announced.
        flops: dense peak in FLOP/s by precision: "fp32", "tf32", "bf16" (V100: its FP16 rate), "fp8", "int8", "fp4".
        sparsity: what 2:4 structured sparsity multiplies the matrix rates by; 1 where there is none.
        memory: HBM in bytes.
        memory_bandwidth: bytes/s.
        neighbour, links: the link to neighbours in the node or pod (NVLink, xGMI, ICI, RoCE), and how many.
        port, ports: the network port of the vendor's reference system and how many (or what share) a device has; None
            and 0 if not published.
        power: watts (board or chip), None if not published.
        source: where the numbers stand.
        note: what to know about them.
        chip: its inside, None if not published.
        measured: FLOP/s of the fastest 16-bit matrix product that was measured on it, None if unknown (ml-engineering,
            table of maximum achievable matmul FLOPS, 2024 to 2025).
    """

    name: str
    vendor: str
    year: int
    flops: dict[str, float] = field(hash=False)
    sparsity: float
    memory: float
    memory_bandwidth: float
    neighbour: LinkSpec
    links: int
    port: LinkSpec | None
    ports: float
    power: float | None
    source: str
    note: str = ""
    chip: Chip | None = None
    measured: float | None = None

    @property
    def scaleup(self) -> float:
        """Bytes/s per direction to its neighbours in the node or pod, all links together."""
        return self.links * self.neighbour.bandwidth

    @property
    def scaleout(self) -> float | None:
        """Bytes/s per direction to the network outside, in the vendor's reference system; None if not published."""
        return self.port.bandwidth * self.ports if self.port else None

    @property
    def ridge(self) -> float:
        """Ridge point in FLOP per byte of HBM traffic at the "bf16" rate."""
        return self.flops["bf16"] / self.memory_bandwidth

    @property
    def levels(self) -> tuple[MemoryLevel, ...]:
        """Memory from the registers out to HBM; HBM alone where the chip is not published."""
        inner = self.chip.levels if self.chip else ()
        return (*inner, MemoryLevel("HBM", self.memory, self.memory_bandwidth, self.source))

    def peak(self, precision: str = "bf16") -> float:
        """Return the dense peak in FLOP/s; "fp16" is the rate of "bf16".

        Raises:
            ValueError: if the device has no such precision; the message lists those it has.
        """
        precision = "bf16" if precision == "fp16" else precision
        if precision not in self.flops:
            raise ValueError(f"{self.name} has no {precision} rate here; it has {', '.join(self.flops)}")
        return self.flops[precision]

    def sparse(self, precision: str = "bf16") -> float:
        """Return the FLOP/s that a data sheet prints "with sparsity": zeros that are skipped count as work.

        Raises:
            ValueError: as :meth:`peak`.
        """
        return self.peak(precision) * (1 if precision in ("fp32", "fp64") else self.sparsity)


@dataclass(frozen=True)
class Cpu:
    """A processor: cores, clocks in Hz, FP32 FLOP of one core per clock, memory bandwidth in bytes/s."""

    name: str
    cores: int
    threads: int
    base_clock: float
    boost_clock: float
    flop_per_clock: int
    memory_bandwidth: float
    year: int
    source: str

    @property
    def peak(self) -> float:
        """FP32 FLOP/s of all cores at the base clock."""
        return self.cores * self.flop_per_clock * self.base_clock


@dataclass(frozen=True)
class Node:
    """A server or rack behind one switch: ``count`` equal accelerators and ``nics`` network ports."""

    name: str
    device: Accelerator
    count: int
    nics: int
    nic: LinkSpec
    year: int
    source: str

    @property
    def memory(self) -> float:
        """HBM of all accelerators together, in bytes."""
        return self.count * self.device.memory

    @property
    def network(self) -> float:
        """Bytes/s per direction out of the node, all ports together."""
        return self.nics * self.nic.bandwidth

    @property
    def injection(self) -> float:
        """Bytes/s that all accelerators together can send to each other: no traffic pattern gets more."""
        return self.count * self.device.scaleup

    @property
    def per_peer(self) -> float:
        """Bytes/s per direction between two accelerators while all send to all."""
        return self.device.scaleup / (self.count - 1)


@dataclass(frozen=True)
class Pod:
    """A torus of TPU chips: sides of the whole pod, and links of one chip."""

    name: str
    device: Accelerator
    sides: tuple[int, ...]
    year: int
    source: str

    @property
    def chips(self) -> int:
        """Chips of the pod."""
        return math.prod(self.sides)

    @property
    def bisection(self) -> float:
        """Bytes/s per direction over the cut that halves the longest side: two rows of links, for the torus wraps."""
        return 2 * self.chips / max(self.sides) * self.device.neighbour.bandwidth


_T = TypeVar("_T", LinkSpec, Accelerator, Node, Pod, Cpu, Capability)


def _by_name(*rows: _T) -> dict[str, _T]:
    """Rows by their name."""
    return {row.name: row for row in rows}


def _gigabits(rate: float) -> float:
    """A line rate in Gb/s per direction, in bytes/s."""
    return rate * 1e9 / 8


_PCI = "PCI-SIG base specification: GT/s per lane x 16 lanes, before encoding"
_IB = "IBTA InfiniBand roadmap, 4x port"
_TPU = "Google Cloud documentation: ICI bandwidth of a chip over its ports and both directions"

LINKS: dict[str, LinkSpec] = _by_name(
    LinkSpec("PCIe 3.0 x16", _gigabits(8 * 16), _PCI, 2010),
    LinkSpec("PCIe 4.0 x16", _gigabits(16 * 16), _PCI, 2017),
    LinkSpec("PCIe 5.0 x16", _gigabits(32 * 16), _PCI, 2019),
    LinkSpec("PCIe 6.0 x16", _gigabits(64 * 16), _PCI, 2022),
    LinkSpec("NVLink 2, one link", 25 * GB, "NVIDIA V100 whitepaper: 6 links, 300 GB/s both ways", 2017),
    LinkSpec("NVLink 3, one link", 25 * GB, "NVIDIA A100 whitepaper: 12 links, 600 GB/s both ways", 2020),
    LinkSpec("NVLink 4, one link", 25 * GB, "NVIDIA H100 datasheet: 18 links, 900 GB/s both ways", 2022),
    LinkSpec("NVLink 5, one link", 50 * GB, "NVIDIA Blackwell brief: 18 links, 1,800 GB/s both ways", 2024),
    LinkSpec("NVLink-C2C", 450 * GB, "NVIDIA Grace Hopper whitepaper: 900 GB/s both ways, CPU to GPU", 2022),
    LinkSpec("NV-HBI", 5 * TB, "NVIDIA Blackwell brief: 10 TB/s both ways between the two dies of a B200", 2024),
    LinkSpec("xGMI, one link", 64 * GB, "AMD Instinct MI300X data sheet: 7 links, 896 GB/s both ways", 2023),
    LinkSpec("ICI v4, one link", 50 * GB, f"{_TPU}; Jouppi et al. 2023", 2021),
    LinkSpec("ICI v5e, one link", 50 * GB, _TPU, 2023),
    LinkSpec("ICI v5p, one link", 100 * GB, _TPU, 2023),
    LinkSpec("ICI v6e, one link", 100 * GB, _TPU, 2024),
    LinkSpec("InfiniBand EDR port", _gigabits(100), _IB, 2014),
    LinkSpec("InfiniBand HDR port", _gigabits(200), _IB, 2018),
    LinkSpec("InfiniBand NDR port", _gigabits(400), "NVIDIA Quantum-2: 400 Gb/s", 2021),
    LinkSpec("InfiniBand XDR port", _gigabits(800), "NVIDIA Quantum-X800: 800 Gb/s", 2024),
    LinkSpec("Slingshot-11 port", _gigabits(200), "HPE Slingshot data sheet: 200 Gb/s", 2021),
    LinkSpec("RoCE 100 GbE port", _gigabits(100), "IEEE 802.3ba, 802.3bj: 100 Gb/s Ethernet", 2010),
    LinkSpec("RoCE 200 GbE port", _gigabits(200), "IEEE 802.3bs, 802.3cd: 200 Gb/s Ethernet", 2017),
    LinkSpec("RoCE 400 GbE port", _gigabits(400), "IEEE 802.3bs: 400 Gb/s Ethernet", 2017),
)
"""Links by name."""

_CUDA = "CUDA C++ Programming Guide, technical specifications per compute capability; cuda_occupancy.h of CUDA 13"


def _capability(name: str, l1: int, shared: int, reserved: int, unit: int) -> Capability:
    """Limits that differ between generations, sizes in KiB; the others have stayed the same since Volta."""
    kib = int(KIB)
    most = shared * kib - reserved
    return Capability(name, 64, 32, 64 * kib, l1 * kib, shared * kib, most, reserved, unit, _CUDA)


CAPABILITIES: dict[str, Capability] = _by_name(
    _capability("7.0", 128, 96, 0, 256),
    _capability("8.0", 192, 164, 1024, 128),
    _capability("9.0", 256, 228, 1024, 128),
    _capability("10.0", 256, 228, 1024, 128),
)
"""Limits of one SM by compute capability: V100 is 7.0, A100 8.0, H100 and H200 9.0, B200 10.0."""


def _nvidia(
    of: str, sms: int, clock: float, lanes: int, tensor_cores: int, fma: int, matrix_clock: float, bus: int,
    l2: float, l2_per_clock: float | None, source: str,
) -> Chip:  # fmt: skip
    """An NVIDIA chip: per SM its lanes and Tensor Cores, clocks in GHz, L2 in MiB and in bytes per clock."""
    sm = CAPABILITIES[of]
    shared = sms * 128 * clock * _GHZ  # 32 banks of 4 bytes a clock in every SM since Volta
    levels = (
        MemoryLevel("registers", sms * sm.registers * 4, None, sm.source),
        MemoryLevel("shared memory and L1", sms * sm.l1, shared, f"{sm.source}; 128 bytes per SM and clock"),
        MemoryLevel("L2", l2 * MIB, l2_per_clock and l2_per_clock * clock * _GHZ, source),
    )
    units = sms * tensor_cores
    return Chip(sms, clock * _GHZ, lanes, units, fma, matrix_clock * _GHZ, bus, levels, of, source)


def _tpu(tensor_cores: int, units: int, clock: float, levels: tuple[MemoryLevel, ...] = ()) -> Chip:
    """A TPU chip: TensorCores, matrix units of 128 x 128 in all, clock in GHz."""
    source = "Google Cloud TPU documentation; Jouppi et al. 2023; How to Scale Your Model (2025)"
    return Chip(tensor_cores, clock * _GHZ, 0, units, 128 * 128, clock * _GHZ, 0, levels, "", source)


_CDNA3 = "AMD CDNA 3 white paper"
_H100 = "NVIDIA H100 whitepaper: 1.98 GHz, Tensor Cores 1.83 GHz"
_CHIPS = {
    "V100": _nvidia("7.0", 80, 1.53, 64, 8, 64, 1.53, 4096, 6, 2048, "NVIDIA V100 and A100 whitepapers"),
    "A100": _nvidia("8.0", 108, 1.41, 64, 4, 256, 1.41, 5120, 40, 5120, "NVIDIA A100 whitepaper"),
    "H100": _nvidia("9.0", 132, 1.98, 128, 4, 512, 1.83, 5120, 50, None, _H100),
    "H200": _nvidia("9.0", 132, 1.98, 128, 4, 512, 1.83, 6144, 50, None, f"{_H100}; 6 stacks of HBM3e"),
    "B200": _nvidia("10.0", 148, 1.98, 128, 4, 1024, 1.856, 8192, 126, None,
                    "NVIDIA Blackwell tuning guide; clocks from the published peaks; Chips and Cheese 2025"),
    "MI300X": Chip(304, 2.1 * _GHZ, 128, 304 * 4, 256, 2.1 * _GHZ, 8192, (
        MemoryLevel("registers", 304 * 512 * KIB, None, _CDNA3),
        MemoryLevel("local data share", 304 * 64 * KIB, 304 * 128 * 2.1 * _GHZ, f"{_CDNA3}; 128 bytes per clock"),
        MemoryLevel("L2", 8 * 4 * MIB, 8 * 2048 * 2.1 * _GHZ, f"{_CDNA3}; 2 KiB per clock in each of 8 dies"),
        MemoryLevel("Infinity Cache", 256 * MIB, 17.2 * TB, _CDNA3),
    ), "", f"{_CDNA3}; AMD Instinct MI300X data sheet"),
    "TPU v4": _tpu(2, 8, 1.05, (MemoryLevel("vector memory", 32 * MIB, None, "Jouppi et al. 2023"),
                                MemoryLevel("common memory", 128 * MIB, None, "Jouppi et al. 2023"))),
    "TPU v5e": _tpu(1, 4, 1.5),
    "TPU v5p": _tpu(2, 8, 1.75),
    "Gaudi 3": Chip(64, 1.75 * _GHZ, 0, 8, 256 * 256, 1.75 * _GHZ, 0,
                    (MemoryLevel("SRAM", 96 * 1e6, 12.8 * TB, "Intel Gaudi 3 white paper"),), "",
                    "Intel Gaudi 3 white paper; Hot Chips 2024"),
}  # fmt: skip


def _rates(
    bf16: float, fp8: float | None = None, fp32: float | None = None, tf32: float | None = None,
    int8: float | None = None, fp4: float | None = None,
) -> dict[str, float]:  # fmt: skip
    """Dense peaks given in TFLOP/s, in FLOP/s; what a device lacks is left out."""
    given = {"fp32": fp32, "tf32": tf32, "bf16": bf16, "fp8": fp8, "int8": int8, "fp4": fp4}
    return {name: value * TFLOP for name, value in given.items() if value is not None}


_NVLINK = {generation: LINKS[f"NVLink {generation}, one link"] for generation in (2, 3, 4, 5)}
_ROCE = {rate: LINKS[f"RoCE {rate} GbE port"] for rate in (100, 200, 400)}
_EDR, _HDR, _NDR = (LINKS[f"InfiniBand {rate} port"] for rate in ("EDR", "HDR", "NDR"))
_ICI = {version: LINKS[f"ICI {version}, one link"] for version in ("v4", "v5e", "v5p", "v6e")}
_XGMI = LINKS["xGMI, one link"]
_HOPPER = _rates(989.4, 1978.9, 66.9, 494.7, 1978.9)
_CDNA3_RATES = _rates(1307.4, 2614.9, 163.4, 653.7, 2614.9)

ACCELERATORS: dict[str, Accelerator] = _by_name(
    Accelerator("V100", "NVIDIA", 2017, _rates(125, fp32=15.7), 1, 32 * GB, 900 * GB, _NVLINK[2], 6, _EDR, 4 / 8, 300,
                "NVIDIA V100 datasheet; DGX-1V whitepaper", "FP16, no BF16; the 32 GB part came in 2018",
                _CHIPS["V100"]),
    Accelerator("A100", "NVIDIA", 2020, _rates(312, None, 19.5, 156, 624), 2, 80 * GB, 2039 * GB, _NVLINK[3], 12,
                _HDR, 1, 400, "NVIDIA A100 80GB SXM datasheet; DGX A100", "launched with 40 GB at 1,555 GB/s",
                _CHIPS["A100"], 267.9 * TFLOP),
    Accelerator("H100", "NVIDIA", 2022, _HOPPER, 2, 80 * GB, 3350 * GB, _NVLINK[4], 18, _NDR, 1, 700,
                "NVIDIA H100 SXM5 datasheet, figures with sparsity halved", "", _CHIPS["H100"], 792 * TFLOP),
    Accelerator("H200", "NVIDIA", 2024, _HOPPER, 2, 141 * GB, 4800 * GB, _NVLINK[4], 18, _NDR, 1, 700,
                "NVIDIA H200 SXM datasheet", "announced in November 2023", _CHIPS["H200"]),
    Accelerator("B200", "NVIDIA", 2024, _rates(2250, 4500, 75, 1125, 4500, 9000), 2, 180 * GB, 8000 * GB, _NVLINK[5],
                18, _NDR, 1, 1000, "NVIDIA DGX B200 datasheet",
                "192 GB announced, 180 GB usable in DGX and HGX; some HGX documents give 7.7 TB/s",
                _CHIPS["B200"], 1745 * TFLOP),
    Accelerator("GB200", "NVIDIA", 2024, _rates(2500, 5000, 80, 1250, 5000, 10000), 2, 186 * GB, 8000 * GB,
                _NVLINK[5], 18, _NDR, 1, 1200, "NVIDIA GB200 NVL72 page, divided by 72",
                "one GPU of a 72-GPU NVLink domain"),
    Accelerator("MI300X", "AMD", 2023, _CDNA3_RATES, 2, 192 * GB, 5325 * GB, _XGMI, 7, _ROCE[400], 1, 750,
                "AMD Instinct MI300X data sheet", "64 GB/s to each of 7 peers; network port as usual, not fixed",
                _CHIPS["MI300X"]),
    Accelerator("MI325X", "AMD", 2024, _CDNA3_RATES, 2, 256 * GB, 6000 * GB, _XGMI, 7, _ROCE[400], 1, 1000,
                "AMD Instinct MI325X data sheet", "the chip of MI300X with more memory", _CHIPS["MI300X"]),
    Accelerator("TPU v4", "Google", 2021, _rates(275, int8=275), 1, 32 * GB, 1228 * GB, _ICI["v4"], 6, None, 0, 192,
                "Google Cloud TPU v4 documentation", "3D torus; 192 W is the highest measured", _CHIPS["TPU v4"]),
    Accelerator("TPU v5e", "Google", 2023, _rates(197, int8=393), 1, 16 * GB, 819 * GB, _ICI["v5e"], 4, _ROCE[100],
                2 / 8, None, "Google Cloud TPU v5e documentation", "2D torus", _CHIPS["TPU v5e"]),
    Accelerator("TPU v5p", "Google", 2023, _rates(459, 459, int8=918), 1, 95 * GB, 2765 * GB, _ICI["v5p"], 6,
                _ROCE[200], 1 / 4, None, "Google Cloud TPU v5p documentation",
                "3D torus; FP8 runs at the BF16 rate", _CHIPS["TPU v5p"]),
    Accelerator("TPU v6e", "Google", 2024, _rates(918, 918, int8=1836), 1, 32 * GB, 1638 * GB, _ICI["v6e"], 4,
                _ROCE[200], 4 / 8, None, "Google Cloud TPU v6e documentation", "2D torus"),
    Accelerator("Gaudi 2", "Intel", 2022, _rates(432, 865), 1, 96 * GB, 2460 * GB, _ROCE[100], 21, _ROCE[100], 3, 600,
                "Intel Gaudi 2 white paper", "21 of 24 RoCE ports inside the node"),
    Accelerator("Gaudi 3", "Intel", 2024, _rates(1835, 1835), 1, 128 * GB, 3700 * GB, _ROCE[200], 21, _ROCE[200], 3,
                900, "Intel Gaudi 3 white paper", "21 of 24 RoCE ports inside the node", _CHIPS["Gaudi 3"]),
)  # fmt: skip
"""Every accelerator of the catalogue by name."""

CPUS: dict[str, Cpu] = _by_name(
    Cpu("EPYC 9654", 96, 192, 2.4 * _GHZ, 3.7 * _GHZ, 32, 12 * 4.8e9 * 8, 2022,
        "AMD EPYC 9654 product page: 12 channels of DDR5-4800; two 256-bit multiply-adds per clock (Zen 4)"),
)  # fmt: skip
"""Processors by name: one server part to compare with."""

NODES: dict[str, Node] = _by_name(
    Node("DGX-1V", ACCELERATORS["V100"], 8, 4, _EDR, 2017, "NVIDIA DGX-1 with Tesla V100 whitepaper"),
    Node("DGX A100", ACCELERATORS["A100"], 8, 8, _HDR, 2020, "NVIDIA DGX A100 datasheet, compute ports only"),
    Node("DGX H100", ACCELERATORS["H100"], 8, 8, _NDR, 2022, "NVIDIA DGX SuperPOD H100 reference architecture"),
    Node("DGX H200", ACCELERATORS["H200"], 8, 8, _NDR, 2024, "NVIDIA DGX H200 datasheet"),
    Node("DGX B200", ACCELERATORS["B200"], 8, 8, _NDR, 2024, "NVIDIA DGX B200 datasheet"),
    Node("GB200 NVL72", ACCELERATORS["GB200"], 72, 72, _NDR, 2024, "NVIDIA GB200 NVL72 page; DGX GB200 user guide"),
    Node("MI300X platform", ACCELERATORS["MI300X"], 8, 8, _ROCE[400], 2023, "AMD Instinct MI300X platform data sheet"),
    Node("HLS-Gaudi 2", ACCELERATORS["Gaudi 2"], 8, 24, _ROCE[100], 2022, "Intel HLS-Gaudi 2 datasheet"),
    Node("HLB-325", ACCELERATORS["Gaudi 3"], 8, 24, _ROCE[200], 2024, "Intel Gaudi 3 white paper, HLB-325 baseboard"),
)
"""Nodes by name."""

PODS: dict[str, Pod] = _by_name(
    Pod("TPU v4 pod", ACCELERATORS["TPU v4"], (16, 16, 16), 2021, "Google Cloud TPU v4 documentation"),
    Pod("TPU v5e pod", ACCELERATORS["TPU v5e"], (16, 16), 2023, "Google Cloud TPU v5e documentation"),
    Pod("TPU v5p pod", ACCELERATORS["TPU v5p"], (16, 20, 28), 2023, "Google Cloud TPU v5p documentation"),
    Pod("TPU v6e pod", ACCELERATORS["TPU v6e"], (16, 16), 2024, "Google Cloud TPU v6e documentation"),
)
"""TPU pods by name. The largest slice of a v5p pod that one job can get is 16 x 16 x 24."""


def _find(kind: str, rows: Mapping[str, _T], name: str) -> _T:
    """The row of that name, upper or lower case; else an error that suggests near names."""
    known = {key.lower(): row for key, row in rows.items()}
    if str(name).lower() in known:
        return known[str(name).lower()]
    near = difflib.get_close_matches(str(name).lower(), known, cutoff=0.4) or sorted(known)
    raise ValueError(f"unknown {kind} {name!r}; did you mean {', '.join(known[n].name for n in near)}?")


def accelerator(name: str) -> Accelerator:
    """Return the accelerator of that name, upper or lower case.

    Raises:
        ValueError: for an unknown name; the message suggests near ones.

    >>> accelerator("h100").memory / 1e9
    80.0
    """
    return _find("accelerator", ACCELERATORS, name)


def link(name: str) -> LinkSpec:
    """Return the link of that name, upper or lower case; a ValueError suggests near ones.

    >>> link("pcie 5.0 x16").both_ways / 1e9
    128.0
    """
    return _find("link", LINKS, name)


def node(name: str) -> Node:
    """Return the node of that name, upper or lower case; a ValueError suggests near ones."""
    return _find("node", NODES, name)


def capability(name: str) -> Capability:
    """Return the limits of a compute capability ("9.0"); a ValueError lists those there are."""
    if str(name) not in CAPABILITIES:
        raise ValueError(f"unknown compute capability {name!r}; there are {', '.join(CAPABILITIES)}")
    return CAPABILITIES[str(name)]


def bytes_of(precision: str) -> float:
    """Return bytes of one value of that precision.

    Raises:
        ValueError: for an unknown precision; the message lists those there are.
    """
    if precision not in BYTES:
        raise ValueError(f"unknown precision {precision!r}; there are {', '.join(BYTES)}")
    return BYTES[precision]


@dataclass(frozen=True, repr=False)
class Catalogue:
    """Rows of a table with units in the heads: HTML in a notebook, aligned columns in a terminal."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def _repr_html_(self) -> str:
        return html_table(self.heads, self.rows)

    def __repr__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.heads, *self.rows, strict=True)]
        lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in (self.heads, *self.rows))
        return "\n".join(line.rstrip() for line in lines)


_Column = tuple[str, Callable[[Any], Any], float]


def _table(rows: Sequence[Any], columns: Mapping[str, _Column], by: str) -> Catalogue:
    """A table sorted by one column: numbers from high to low, words in their order, what is missing at the end."""
    if by not in columns:
        raise ValueError(f"by is {by!r}; a column is needed: {', '.join(columns)}")
    key = columns[by][1]
    there = sorted((row for row in rows if key(row) is not None), key=key)
    if there and not isinstance(key(there[0]), str):
        there.reverse()
    missing = [row for row in rows if key(row) is None]
    cells = (tuple(_cell(get(row), unit) for _, get, unit in columns.values()) for row in (*there, *missing))
    return Catalogue(tuple(head for head, _, _ in columns.values()), tuple(cells))


def _cell(value: float | str | None, unit: float) -> str:
    """A word as it is, a number in its unit, a dash for what is missing; years (unit 0) without separators."""
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value / unit:,.5g}" if unit else str(value)


def _word(name: str) -> _Column:
    """A column of words."""
    return name, lambda row: getattr(row, name), 1


_COLUMNS: dict[str, _Column] = {
    "name": _word("name"),
    "vendor": _word("vendor"),
    "year": ("year", lambda row: row.year, 0),
    "bf16": ("BF16 dense, TFLOP/s", lambda row: row.flops["bf16"], TFLOP),
    "sparse": ("BF16 with sparsity, TFLOP/s", lambda row: row.sparse() if row.sparsity > 1 else None, TFLOP),
    "fp8": ("FP8 dense, TFLOP/s", lambda row: row.flops.get("fp8"), TFLOP),
    "fp32": ("FP32, TFLOP/s", lambda row: row.flops.get("fp32"), TFLOP),
    "memory": ("HBM, GB", lambda row: row.memory, GB),
    "memory_bandwidth": ("HBM, GB/s", lambda row: row.memory_bandwidth, GB),
    "ridge": ("ridge, FLOP/B", lambda row: row.ridge, 1),
    "scaleup": ("neighbours per direction, GB/s", lambda row: row.scaleup, GB),
    "both_ways": ("neighbours both ways, GB/s", lambda row: 2 * row.scaleup, GB),
    "scaleout": ("network per direction, GB/s", lambda row: row.scaleout, GB),
    "power": ("power, W", lambda row: row.power, 1),
    "source": _word("source"),
}
_LINK_COLUMNS: dict[str, _Column] = {
    "name": _word("name"),
    "bandwidth": ("per direction, GB/s", lambda row: row.bandwidth, GB),
    "both_ways": ("both ways, GB/s", lambda row: row.both_ways, GB),
    "year": ("year", lambda row: row.year, 0),
    "source": _word("source"),
}
_NODE_COLUMNS: dict[str, _Column] = {
    "name": _word("name"),
    "device": ("accelerator", lambda row: row.device.name, 1),
    "count": ("accelerators", lambda row: row.count, 1),
    "memory": ("HBM, GB", lambda row: row.memory, GB),
    "injection": ("all to neighbours per direction, GB/s", lambda row: row.injection, GB),
    "network": ("network per direction, GB/s", lambda row: row.network, GB),
    "year": ("year", lambda row: row.year, 0),
    "source": _word("source"),
}


def show(*names: str, by: str = "year") -> Catalogue:
    """Return the table of these accelerators, of all when none is named, sorted by a column.

    Columns are name, vendor, year, bf16, sparse, fp8, fp32, memory, memory_bandwidth, ridge, scaleup, both_ways,
    scaleout, power, source. Numbers go from high to low, words by the alphabet.

    Raises:
        ValueError: for an unknown accelerator or column.
    """
    rows = [accelerator(name) for name in names] or list(ACCELERATORS.values())
    return _table(rows, _COLUMNS, by)


def show_links(*names: str, by: str = "bandwidth") -> Catalogue:
    """Return the table of these links, of all when none is named, sorted by name, bandwidth, both_ways or year."""
    return _table([link(name) for name in names] or list(LINKS.values()), _LINK_COLUMNS, by)


def show_nodes(*names: str, by: str = "year") -> Catalogue:
    """Return the table of these nodes, of all when none is named, sorted by a column as :func:`show` does."""
    return _table([node(name) for name in names] or list(NODES.values()), _NODE_COLUMNS, by)


def show_levels(name: str) -> Catalogue:
    """Return the memory levels of an accelerator, the nearest to the arithmetic first."""
    device = accelerator(name)
    cells = [
        (level.name, quantity(level.size, "B"), quantity(level.bandwidth, "B/s") if level.bandwidth else "-",
         quantity(device.peak() / level.bandwidth, "FLOP/B") if level.bandwidth else "-", level.source)
        for level in device.levels
    ]  # fmt: skip
    return Catalogue(("level", "size", "bandwidth", "ridge in 16 bit", "source"), tuple(cells))
