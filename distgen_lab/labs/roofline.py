"""Measure the roofline of this machine, put kernels under it, and say how far the prediction was off.

``python -m distgen_lab.labs.roofline [--device cpu|cuda] [--precision fp32] [--threads N] [--json FILE]``: a few
seconds on one process, no ranks. Peak is the fastest matrix product, bandwidth a STREAM triad (a = b + s c; McCalpin
1995) over working sets from 16 KiB up, so that cache levels show as steps. A kernel is predicted by three measured
numbers: the time of an empty call, the peak, and the bandwidth at the size of its traffic.
"""

import argparse
import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import torch
import torch.nn.functional as F

from distgen_lab import roofline
from distgen_lab.bench import sizes as steps
from distgen_lab.hardware import ACCELERATORS, Accelerator
from distgen_lab.roofline import Roof, Work
from distgen_lab.units import duration, quantity

__all__ = [
    "DTYPES", "Measured", "Placed", "Prediction", "device_name", "fastest", "free_threads", "kernels", "lab", "main",
    "measure", "measure_bandwidth", "measure_peak", "place_kernels", "published",
]  # fmt: skip

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}
"""Precisions that can be measured."""
MATMULS = {"cpu": (512, 1024, 1536), "cuda": (2048, 4096, 8192)}
WORKING_SETS = {"cpu": (2**14, 2**28), "cuda": (2**18, 2**31)}
Progress = Callable[[str], None]


def _silent(line: str) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Measured:
    """The measured roofline of a device.

    Attributes:
        device, precision: what was measured.
        peak: FLOP/s of the fastest matrix product.
        overhead: seconds of a call that has next to nothing to do.
        working_sets, bandwidths: bytes that a triad touches, and bytes/s at that size, the time of an empty call
            taken off.
    """

    device: str
    precision: str
    peak: float
    overhead: float
    working_sets: tuple[int, ...]
    bandwidths: tuple[float, ...]

    @property
    def main_memory(self) -> float:
        """Bytes/s at the largest working set."""
        return self.bandwidths[-1]

    def bandwidth_at(self, nbytes: float) -> float:
        """Return bytes/s at this working set, between the measured ones by the logarithm of the size."""
        xs, x = [math.log(size) for size in self.working_sets], math.log(max(nbytes, 1))
        if x <= xs[0] or x >= xs[-1]:
            return self.bandwidths[0 if x <= xs[0] else -1]
        right = next(i for i, known in enumerate(xs) if known >= x)
        share = (x - xs[right - 1]) / (xs[right] - xs[right - 1])
        return self.bandwidths[right - 1] * (1 - share) + self.bandwidths[right] * share

    def roof(self) -> Roof:
        """Return the roof: the fastest cache, and main memory."""
        return Roof(self.device, self.precision, self.peak, {"cache": max(self.bandwidths), "DRAM": self.main_memory})

    def predict(self, work: Work) -> float:
        """Return seconds: an empty call, and the longer of computing and moving at the bandwidth of that size."""
        return self.overhead + max(work.flops / self.peak, work.traffic / self.bandwidth_at(work.traffic))


@dataclass(frozen=True)
class Placed:
    """One kernel: its work, measured seconds, and predicted ones."""

    work: Work
    seconds: float
    predicted: float

    @property
    def ratio(self) -> float:
        """Measured over predicted seconds: 1 is a perfect prediction, more is slower than the roof allows."""
        return self.seconds / self.predicted

    @property
    def achieved(self) -> float:
        """FLOP/s."""
        return self.work.flops / self.seconds


@dataclass(frozen=True)
class Prediction:
    """All kernels under one measured roof."""

    measured: Measured
    placed: tuple[Placed, ...]

    @property
    def typical_factor(self) -> float:
        """Median over the kernels of how many times the prediction was off, either way; 1 is perfect."""
        return statistics.median(_factor(row.ratio) for row in self.placed)

    @property
    def worst(self) -> Placed:
        """The kernel whose prediction was furthest off."""
        return max(self.placed, key=lambda row: _factor(row.ratio))

    def __str__(self) -> str:
        found = self.measured
        head = (
            f"{found.device}, {found.precision}: peak {quantity(found.peak, 'FLOP/s')}, fastest cache "
            f"{quantity(max(found.bandwidths), 'B/s')}, memory {quantity(found.main_memory, 'B/s')}, ridge "
            f"{found.roof().ridge():.3g} FLOP/B, empty call {duration(found.overhead)}"
        )
        rows = [
            f"{row.work.name:32} {row.work.intensity:8.3g} FLOP/B  measured {duration(row.seconds):>8}  predicted "
            f"{duration(row.predicted):>8}  ratio {row.ratio:.2f}"
            for row in self.placed
        ]
        error = (
            f"prediction off by a factor of {self.typical_factor:.2f} (median), at most "
            f"{_factor(self.worst.ratio):.2f} ({self.worst.work.name})"
        )
        return "\n".join([head, *rows, error])


def _factor(ratio: float) -> float:
    """How many times off, whichever way."""
    return max(ratio, 1 / ratio)


def device_name(device: str) -> str:
    """Return what the device calls itself, and how many threads a CPU uses."""
    if device != "cpu":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    threads = torch.get_num_threads()
    return f"{name or platform.processor() or platform.machine()}, {threads} thread{'s' if threads > 1 else ''}"


def published(name: str) -> Accelerator | None:
    """Return the catalogue's entry for a device that calls itself ``name`` ("NVIDIA H200"), None if there is none."""
    words = name.replace("-", " ").split()
    return next((row for row in ACCELERATORS.values() if row.name in words), None)


def fastest(call: Callable[[], object], device: str = "cpu", seconds: float = 0.15) -> float:
    """Return the seconds of one ``call``, the least over many short samples, ``seconds`` in all.

    A sample is as short as the clock allows, for where other programs run only a short one is left in peace.
    """
    once = min(_timed(call, 1, device) for _ in range(3))
    sample = 2e-5 if device == "cpu" else 1e-3
    calls = max(1, math.ceil(sample / max(once, 1e-9)))
    least, end = math.inf, time.perf_counter() + seconds
    while least == math.inf or time.perf_counter() < end:
        least = min(least, _timed(call, calls, device) / calls)
    return least


def _timed(call: Callable[[], object], calls: int, device: str) -> float:
    """Seconds of so many calls, until the device has done them."""
    _wait(device)
    start = time.perf_counter()
    for _ in range(calls):
        call()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: str) -> None:
    """Wait for what was sent to a GPU."""
    if device != "cpu":
        torch.cuda.synchronize(device)


def measure_peak(
    device: str = "cpu", precision: str = "fp32", sides: Sequence[int] = (), seconds: float = 0.3,
    progress: Progress = _silent,
) -> float:  # fmt: skip
    """Return the FLOP/s of the fastest square matrix product among ``sides``."""
    best = 0.0
    for side in sides or MATMULS[_kind(device)]:
        a, b = (torch.rand(side, side, device=device).to(_dtype(precision)) for _ in range(2))
        out = torch.empty_like(a)
        took = fastest(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), device, seconds)
        best = max(best, 2 * side**3 / took)
        progress(f"matmul {side} x {side} x {side}: {quantity(2 * side**3 / took, 'FLOP/s')}")
    return best


def measure_bandwidth(
    device: str = "cpu", precision: str = "fp32", working_sets: Sequence[int] = (), seconds: float = 0.1,
    progress: Progress = _silent,
) -> tuple[tuple[int, ...], tuple[float, ...], float]:  # fmt: skip
    """Return working sets, bytes/s of a triad in each, and the seconds of an empty call, which were taken off.

    A triad reads two arrays and writes one: three array lengths of traffic, as STREAM counts (a cache may read the
    written one too).
    """
    sets = tuple(working_sets) or tuple(steps(*WORKING_SETS[_kind(device)], factor=2))
    overhead = fastest(_triad(1, device, precision), device, seconds)
    rates = []
    for size in sets:
        count = max(1, size // (3 * _dtype(precision).itemsize))
        took = fastest(_triad(count, device, precision), device, seconds)
        rates.append(3 * count * _dtype(precision).itemsize / max(took - overhead, took / 10))
        progress(f"triad over {quantity(size, 'B')}: {quantity(rates[-1], 'B/s')}")
    return sets, tuple(rates), overhead


def _triad(count: int, device: str, precision: str) -> Callable[[], object]:
    """One pass over three arrays of ``count`` values."""
    a, b, c = (torch.ones(count, device=device, dtype=_dtype(precision)) for _ in range(3))
    return lambda: torch.add(b, c, alpha=3.0, out=a)


def measure(device: str = "", precision: str = "", progress: Progress = _silent, seconds: float = 8.0) -> Measured:
    """Return the measured roofline of a device, within about ``seconds``.

    Args:
        device: "cpu", "cuda" or "cuda:1"; "" for a GPU if there is one, else the CPU.
        precision: "fp32", "bf16" or "fp64"; "" for bf16 on a GPU and fp32 on a CPU.
        progress: is called with a line for each step.
        seconds: time to spend.

    Raises:
        ValueError: for a device that is not here, or a precision that cannot be measured.
    """
    device, precision = _choose(device, precision)
    peak = measure_peak(device, precision, seconds=seconds / 8, progress=progress)
    sets, rates, overhead = measure_bandwidth(device, precision, seconds=seconds / 32, progress=progress)
    return Measured(device_name(device), precision, peak, overhead, sets, rates)


def _choose(device: str, precision: str) -> tuple[str, str]:
    """Device and precision that are there."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device != "cpu" and not (device.startswith("cuda") and torch.cuda.is_available()):
        raise ValueError(
            f"device is {device!r}; this machine has {'cpu, cuda' if torch.cuda.is_available() else 'cpu'}"
        )
    precision = precision or ("fp32" if device == "cpu" else "bf16")
    _dtype(precision)
    return device, precision


def _kind(device: str) -> str:
    """The kind of a device."""
    return "cpu" if device == "cpu" else "cuda"


def _dtype(precision: str) -> torch.dtype:
    """The type of a precision."""
    if precision not in DTYPES:
        raise ValueError(f"precision is {precision!r}; {', '.join(DTYPES)} can be measured")
    return DTYPES[precision]


def kernels(device: str = "cpu", precision: str = "fp32") -> list[tuple[Work, Callable[[], object]]]:
    """Return the operations of a model, each with its work and a call that does it, larger on a GPU.

    Results go into arrays that are there where the operation can, for the first touch of new memory costs more than
    writing it.
    """
    make = _maker(device, precision)
    n = 1 if device == "cpu" else 4
    return [*_products(n, make, precision), *_attentions(n, make, precision), *_lean(n, make, device, precision)]


def _products(n: int, make: Callable[..., torch.Tensor], precision: str) -> list[tuple[Work, Callable[[], object]]]:
    """Matrix products, square to vector, and a convolution."""
    image, filters = make(4, 64, 56 * n, 56), make(64, 64, 3, 3)
    shapes = ((768 * n, 768 * n, 768 * n), (1024 * n, 1024 * n, 16), (1024 * n, 1024 * n, 1))
    return [
        *((roofline.matmul(*shape, precision), _product(*shape, make)) for shape in shapes),
        (roofline.convolution(4, 64, 64, 56 * n, 56, 3, 1, 1, precision), lambda: F.conv2d(image, filters, padding=1)),
    ]


def _product(rows: int, inner: int, cols: int, make: Callable[..., torch.Tensor]) -> Callable[[], object]:
    """A product of two arrays into a third."""
    a, b, out = make(rows, inner), make(inner, cols), make(rows, cols)
    return lambda: torch.mm(a, b, out=out)


def _attentions(n: int, make: Callable[..., torch.Tensor], precision: str) -> list[tuple[Work, Callable[[], object]]]:
    """Attention with the scores in memory, and fused."""
    q, k, v = (make(1, 8, 512 * n, 64) for _ in range(3))
    return [
        (roofline.attention(512 * n, 64, 8, 1, precision), lambda: torch.softmax(q @ k.mT / 8, -1) @ v),
        (roofline.attention(512 * n, 64, 8, 1, precision, "flash"), lambda: F.scaled_dot_product_attention(q, k, v)),
    ]


def _lean(
    n: int, make: Callable[..., torch.Tensor], device: str, precision: str
) -> list[tuple[Work, Callable[[], object]]]:
    """Operations of few FLOP a byte."""
    rows, cols = 2048 * n, 1024 * n
    x, y, out, gain, bias = (*(make(rows, cols) for _ in range(3)), make(cols), make(cols))
    moments = [make(rows, 1) for _ in range(2)]
    table, picked, ids = make(16384, 1024), make(4096 * n, 1024), torch.randint(0, 16384, (4096 * n,), device=device)
    norm = torch.ops.aten.native_layer_norm.out
    into = {"out0": out, "out1": moments[0], "out2": moments[1]}
    return [
        (roofline.layernorm(rows, cols, precision), lambda: norm(x, (cols,), gain, bias, 1e-5, **into)),
        (roofline.softmax(rows, cols, precision), lambda: torch.softmax(x, -1, out=out)),
        (roofline.elementwise(x.numel(), precision, 2), lambda: torch.add(x, y, out=out)),
        (roofline.embedding(4096 * n, 1024, precision), lambda: torch.index_select(table, 0, ids, out=picked)),
        _adam(2**20 * n, device),
    ]


def _maker(device: str, precision: str) -> Callable[..., torch.Tensor]:
    """A function that makes random arrays on the device."""
    return lambda *shape: torch.rand(*shape, device=device).to(_dtype(precision))


def _adam(parameters: int, device: str) -> tuple[Work, Callable[[], object]]:
    """One AdamW update in FP32, in one kernel."""
    weights = torch.rand(parameters, device=device, requires_grad=True)
    weights.grad = torch.rand(parameters, device=device)
    return roofline.adam_step(parameters, "FP32 Adam"), torch.optim.AdamW([weights], fused=True).step


def place_kernels(
    measured: Measured, device: str = "cpu", progress: Progress = _silent, seconds: float = 0.2,
    which: Iterable[tuple[Work, Callable[[], object]]] = (),
) -> Prediction:  # fmt: skip
    """Return measured and predicted time of each kernel (of :func:`kernels` unless others are given)."""
    placed = []
    with torch.no_grad():
        for work, call in which or kernels(device, measured.precision):
            took = fastest(call, device, seconds)
            placed.append(Placed(work, took, measured.predict(work)))
            progress(f"{work.name}: {duration(took)}, predicted {duration(placed[-1].predicted)}")
    return Prediction(measured, tuple(placed))


def free_threads() -> int:
    """Return the cores that no other program keeps busy now, at least one: a thread that must wait slows them all."""
    cores = torch.get_num_threads()
    return max(1, min(cores, psutil.cpu_count() - round(psutil.cpu_percent(0.3) / 100 * psutil.cpu_count())))


def lab(
    device: str = "", precision: str = "", file: str | None = None, threads: int = 0, progress: Progress = _silent
) -> Prediction:
    """Measure, place and predict in under 20 s; write all figures to ``file`` as JSON if one is named.

    Args:
        device, precision: as :func:`measure`.
        file: where to write.
        threads: of a CPU; 0 for as many cores as are free.
        progress: is called with a line for each step.

    Raises:
        ValueError: as :func:`measure`, or for threads below 0.
    """
    device, precision = _choose(device, precision)
    if threads < 0:
        raise ValueError(f"threads is {threads}; 1 or more is needed, or 0 for the cores that are free")
    before = torch.get_num_threads()
    torch.set_num_threads(threads or (free_threads() if device == "cpu" else before))
    try:
        found = place_kernels(measure(device, precision, progress), device, progress)
    finally:
        torch.set_num_threads(before)
    if file:
        Path(file).write_text(json.dumps(_facts(found), indent=1) + "\n")
    return found


def _facts(found: Prediction) -> dict:
    """All figures as plain data."""
    rows = [asdict(row) | {"ratio": row.ratio} for row in found.placed]
    return {**asdict(found.measured), "kernels": rows, "typical_factor": found.typical_factor}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the lab from the command line."""
    parser = argparse.ArgumentParser(description="Measure the roofline of this machine and put kernels under it.")
    parser.add_argument("--device", default="", help="cpu, cuda or cuda:1; by default a GPU if there is one")
    parser.add_argument("--precision", default="", help=f"one of {', '.join(DTYPES)}")
    parser.add_argument("--json", metavar="FILE", help="also write all figures as JSON")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; by default as many as cores are free")
    given = parser.parse_args(arguments)
    try:
        found = lab(given.device, given.precision, given.json, given.threads, lambda line: print(line, flush=True))
    except ValueError as error:
        parser.error(str(error))
    print(found)
    known = published(found.measured.device)
    if known and found.measured.precision in known.flops:
        print(f"the catalogue: {quantity(known.peak(found.measured.precision), 'FLOP/s')}, "
              f"{quantity(known.memory_bandwidth, 'B/s')}")  # fmt: skip


if __name__ == "__main__":
    main()
