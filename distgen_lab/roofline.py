"""The roofline: work, traffic and arithmetic intensity of an operation, and the rate a device can reach at it.

Williams, Waterman and Patterson 2009. Work is the operation's own FLOP (a multiply and an add are two), traffic what
must move between chip and memory at least once: every operand in, every result out. With enough on-chip memory that is
what happens; :mod:`distgen_lab.memory` executes what happens with less.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distgen_lab import hardware, scale
from distgen_lab.hardware import Accelerator, bytes_of
from distgen_lab.units import duration, quantity

__all__ = [
    "KINDS", "Placement", "Roof", "Work", "adam_step", "attention", "convolution", "decode", "elementwise",
    "embedding", "layernorm", "matmul", "place", "roof", "roofs", "softmax",
]  # fmt: skip

KINDS = ("naive", "flash")
"""How attention is computed: with the scores in memory, or with online softmax."""


@dataclass(frozen=True)
class Work:
    """One operation: W FLOP of work and Q bytes of traffic."""

    name: str
    flops: float
    traffic: float

    @property
    def intensity(self) -> float:
        """I = W / Q in FLOP per byte."""
        return self.flops / self.traffic

    def __add__(self, other: "Work") -> "Work":
        """Both, one after the other, with memory in between."""
        return Work(f"{self.name} + {other.name}", self.flops + other.flops, self.traffic + other.traffic)

    def __str__(self) -> str:
        sizes = f"{quantity(self.flops, 'FLOP')}, {quantity(self.traffic, 'B')}"
        return f"{self.name}: {sizes}, {self.intensity:.4g} FLOP/B"


def matmul(rows: int, inner: int, cols: int, precision: str = "bf16", batch: int = 1) -> Work:
    """Return the work of ``batch`` products (rows x inner)(inner x cols): 2 rows inner cols FLOP each.

    Raises:
        ValueError: for sizes that are not positive whole numbers, or an unknown precision.

    >>> round(matmul(8192, 8192, 8192).intensity)
    2731
    """
    m, k, n, times = _sizes(rows=rows, inner=inner, cols=cols, batch=batch)
    values = m * k + k * n + m * n
    return Work(f"matmul {m} x {k} x {n}", 2.0 * times * m * k * n, times * values * bytes_of(precision))


def attention(
    context: int, head_size: int, heads: int = 1, batch: int = 1, precision: str = "bf16", kind: str = "naive",
    block: int = 128,
) -> Work:  # fmt: skip
    """Return the work of softmax(QK^T)V over ``context`` tokens: 4 s^2 d_h FLOP a head, softmax itself not counted.

    "naive" writes the scores, reads them, writes the softmax and reads it: 4 s d_h + 4 s^2 values. "flash" keeps them
    on the chip and reads K and V once for each ``block`` of queries: 2 s d_h (1 + ceil(s / block)) values (Dao et al.
    2022 and 2023). :mod:`distgen_lab.memory` executes both.

    Raises:
        ValueError: for sizes that are not positive whole numbers, an unknown precision or kind.
    """
    s, d, h, b, rows = _sizes(context=context, head_size=head_size, heads=heads, batch=batch, block=block)
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; there are {', '.join(KINDS)}")
    values = 4 * s * d + 4 * s * s if kind == "naive" else 2 * s * d * (1 + math.ceil(s / rows))
    return Work(f"{kind} attention, {s} tokens", 4.0 * h * b * s * s * d, h * b * values * bytes_of(precision))


def softmax(rows: int, cols: int, precision: str = "bf16") -> Work:
    """Return the work of a softmax over each row: maximum, subtraction, exponential, sum and division, 5 cols - 2."""
    m, n = _sizes(rows=rows, cols=cols)
    return Work(f"softmax {m} x {n}", m * (5.0 * n - 2), 2 * m * n * bytes_of(precision))


def layernorm(tokens: int, width: int, precision: str = "bf16") -> Work:
    """Return the work of layer normalisation with gain and bias: 7 d + 3 FLOP a token, square root and division one.

    Mean (d), centring (d), squares (d), variance (d), epsilon, square root and reciprocal (3), scaling, gain and bias
    (3 d).
    """
    t, d = _sizes(tokens=tokens, width=width)
    return Work(f"layernorm {t} x {d}", t * (7.0 * d + 3), (2 * t * d + 2 * d) * bytes_of(precision))


def embedding(tokens: int, width: int, precision: str = "bf16") -> Work:
    """Return the work of looking up ``tokens`` rows: no FLOP; the rows in and out, and 8 bytes of index a token."""
    t, d = _sizes(tokens=tokens, width=width)
    return Work(f"embedding {t} x {d}", 0.0, 2 * t * d * bytes_of(precision) + 8 * t)


def elementwise(elements: int, precision: str = "bf16", inputs: int = 1, flops: float = 1) -> Work:
    """Return the work of an element-wise operation of ``inputs`` operands and ``flops`` FLOP an element."""
    n, read = _sizes(elements=elements, inputs=inputs)
    if not flops >= 0:
        raise ValueError(f"flops is {flops}; a number of at least 0 is needed")
    return Work(f"element-wise, {n} elements", float(flops) * n, (read + 1) * n * bytes_of(precision))


def convolution(
    batch: int, channels: int, filters: int, height: int, width: int, kernel: int = 3, stride: int = 1,
    padding: int = 0, precision: str = "bf16",
) -> Work:  # fmt: skip
    """Return the work of a 2D convolution: 2 x outputs x channels x kernel^2 FLOP.

    Raises:
        ValueError: for sizes that are not positive whole numbers (padding: of at least 0), or a kernel that is larger
            than the padded image.
    """
    b, c, f, h, w, k, step = _sizes(
        batch=batch, channels=channels, filters=filters, height=height, width=width, kernel=kernel, stride=stride
    )
    if padding < 0 or k > min(h, w) + 2 * padding:
        raise ValueError(f"kernel is {k} and padding {padding}; the kernel must fit into {h} x {w} with its padding")
    outputs = b * f * ((h + 2 * padding - k) // step + 1) * ((w + 2 * padding - k) // step + 1)
    values = b * c * h * w + f * c * k * k + outputs
    return Work(f"convolution {k} x {k}", 2.0 * outputs * c * k * k, values * bytes_of(precision))


def decode(
    parameters: float, layers: int, context: int, heads: int, head_size: int, kv_heads: int | None = None,
    batch: int = 1, precision: str = "bf16",
) -> Work:  # fmt: skip
    """Return the work of generating one token for each of ``batch`` sequences of ``context`` cached tokens.

    Weights: 2 N FLOP a sequence, read once for all of them. Cache: 4 L s H d_h FLOP a sequence, and its own keys and
    values (:func:`distgen_lab.scale.kv_cache`), read for each. Activations are left out: they are smaller by far.

    >>> round(decode(70e9, 80, 4096, 64, 128, kv_heads=8).intensity, 2)
    1.07
    """
    n, s, b = _positive("parameters", parameters), *_sizes(context=context, batch=batch)
    layers, heads, head_size = _sizes(layers=layers, heads=heads, head_size=head_size)
    kept = heads if kv_heads is None else kv_heads
    cache = scale.kv_cache(layers, kept, head_size, s, b, bytes_of(precision))
    flops = 2.0 * n * b + 4.0 * layers * s * heads * head_size * b
    return Work(f"decode, batch {b}, {s} tokens", flops, n * bytes_of(precision) + cache)


def adam_step(parameters: float, recipe: str = "mixed-precision Adam") -> Work:
    """Return the work of one AdamW update: 14 FLOP a parameter; gradients read, state read and written.

    The bytes are those of the recipe in :data:`distgen_lab.scale.RECIPES`: gradients, master copy (or weights) and
    moments in; weights, master copy and moments out.

    Raises:
        ValueError: for a recipe that does not exist or is not Adam's.
    """
    n = _positive("parameters", parameters)
    known = {name: row for name, row in scale.RECIPES.items() if "Adam" in name}
    if recipe not in known:
        raise ValueError(f"recipe is {recipe!r}; there are: {'; '.join(known)}")
    row = known[recipe]
    read = row.gradients + (row.master or row.weights) + row.moments
    return Work(recipe, 14.0 * n, n * (read + row.weights + row.master + row.moments))


@dataclass(frozen=True)
class Roof:
    """A device at one precision: peak FLOP/s, and bytes/s of each memory level, the slowest last."""

    name: str
    precision: str
    peak: float
    bandwidths: Mapping[str, float] = field(hash=False)

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the memory levels."""
        return tuple(self.bandwidths)

    def bandwidth(self, level: str = "") -> float:
        """Return bytes/s of a level; of the outermost one (HBM, DRAM) when none is named.

        Raises:
            ValueError: for a level that is not there; the message lists those that are.
        """
        if level and level not in self.bandwidths:
            raise ValueError(f"level is {level!r}; {self.name} has {', '.join(self.bandwidths)}")
        return self.bandwidths[level or self.levels[-1]]

    def ridge(self, level: str = "") -> float:
        """Return the ridge point in FLOP/B: below it that level limits, above it compute does."""
        return self.peak / self.bandwidth(level)

    def attainable(self, intensity: float, level: str = "") -> float:
        """Return the most FLOP/s at this intensity: min(peak, I x bandwidth)."""
        return min(self.peak, _not_negative("intensity", intensity) * self.bandwidth(level))

    def seconds(self, work: Work, level: str = "") -> float:
        """Return the least seconds of ``work``: the longer of computing and moving."""
        return max(work.flops / self.peak, work.traffic / self.bandwidth(level))


def roof(device: str | Accelerator, precision: str = "bf16") -> Roof:
    """Return the roof of an accelerator of the catalogue: dense peak, and each memory level whose speed is published.

    Raises:
        ValueError: for an unknown device (near names are suggested) or a precision it lacks.

    >>> round(roof("H100").ridge())
    295
    """
    chip = hardware.accelerator(device) if isinstance(device, str) else device
    known = {level.name: level.bandwidth for level in chip.levels if level.bandwidth}
    return Roof(chip.name, precision, chip.peak(precision), known)


def roofs(device: str | Accelerator) -> dict[str, Roof]:
    """Return the roof of every precision that the device has: several ceilings over the same slopes."""
    chip = hardware.accelerator(device) if isinstance(device, str) else device
    return {precision: roof(chip, precision) for precision in chip.flops}


@dataclass(frozen=True)
class Placement:
    """An operation under a roof: what limits it, and how close it came if it was measured.

    Attributes:
        work, roof: the operation and the roof.
        limit: "compute" or the name of the memory level.
        attainable: FLOP/s, the roof over its intensity.
        seconds: the least time.
        measured: seconds that it took, None if it was not measured.
    """

    work: Work
    roof: Roof
    limit: str
    attainable: float
    seconds: float
    measured: float | None = None

    @property
    def achieved(self) -> float | None:
        """FLOP/s that were measured."""
        return self.work.flops / self.measured if self.measured else None

    @property
    def share(self) -> float | None:
        """Least time over measured time: 1 on the roof, less under it."""
        return self.seconds / self.measured if self.measured else None

    @property
    def peak_share(self) -> float:
        """What is attainable over the peak."""
        return self.attainable / self.roof.peak

    def __str__(self) -> str:
        text = f"{self.work.name}: {self.work.intensity:.4g} FLOP/B, {self.limit} limits, {duration(self.seconds)}"
        return text if self.measured is None else f"{text}; measured {duration(self.measured)} ({self.share:.0%})"


def place(work: Work, under: Roof | str, level: str = "", measured: float | None = None) -> Placement:
    """Return where an operation stands under a roof (or a device's BF16 roof), with measured seconds if there are.

    Raises:
        ValueError: for an unknown device or level, or seconds that are not positive.
    """
    over = roof(under) if isinstance(under, str) else under
    limit = "compute" if work.intensity >= over.ridge(level) else level or over.levels[-1]
    if measured is not None:
        _positive("measured", measured)
    attainable = over.attainable(work.intensity, level)
    return Placement(work, over, limit, attainable, over.seconds(work, level), measured)


def _sizes(**given: Any) -> list[int]:
    """The values as ints, or a sentence that says which of them is not a positive whole number."""
    for name, value in given.items():
        if isinstance(value, bool) or not value == value or value < 1 or value != int(value):
            raise ValueError(f"{name} is {value}; a positive whole number is needed")
    return [int(value) for value in given.values()]


def _positive(name: str, value: float) -> float:
    """The value, or a sentence that says which argument is not a positive finite number."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value}; a positive number is needed")
    return value


def _not_negative(name: str, value: float) -> float:
    """The value, or a sentence that says which argument is negative."""
    if not value >= 0:
        raise ValueError(f"{name} is {value}; a number of at least 0 is needed")
    return value
