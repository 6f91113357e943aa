"""Occupancy: how many blocks and warps of a kernel fit on one multiprocessor, and what stops the next one.

The rules are those of NVIDIA's occupancy calculator (``cuda_occupancy.h``): registers are given to warps in units of
256 within each of the four parts of a multiprocessor, shared memory to blocks in units of 128 or 256 bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from distgen_lab.hardware import Capability, accelerator, capability

__all__ = ["Occupancy", "occupancy", "register_sweep", "shared_sweep"]

WARP = 32
PARTS = 4
"""Parts of a multiprocessor, each with its scheduler and a quarter of the registers."""
REGISTER_UNIT = 256
MOST_THREADS, MOST_REGISTERS = 1024, 255


@dataclass(frozen=True)
class Occupancy:
    """What fits on one multiprocessor.

    Attributes:
        blocks, warps: resident blocks and warps.
        share: warps over the most there can be.
        limits: blocks that each resource would allow: "warps", "blocks", "registers", "shared memory".
        limiter: the resources that allow no more than that.
        registers: registers one block takes, rounded up.
        shared: bytes of shared memory one block takes, rounded up, with what the system takes.
    """

    blocks: int
    warps: int
    share: float
    limits: dict[str, int]
    limiter: tuple[str, ...]
    registers: int
    shared: int

    def __str__(self) -> str:
        held = f"{self.blocks} blocks, {self.warps} warps, {self.share:.0%} occupancy"
        return f"{held}; limited by {' and '.join(self.limiter)}"


def occupancy(threads: int, registers: int, shared: int = 0, on: str = "9.0") -> Occupancy:
    """Return what fits on one multiprocessor of a kernel's blocks.

    Args:
        threads: threads of one block, 1 to 1024.
        registers: 32-bit registers of one thread, 0 to 255 (above that a compiler spills to local memory).
        shared: bytes of shared memory one block asks for.
        on: compute capability ("7.0", "8.0", "9.0", "10.0") or an NVIDIA accelerator ("H100").

    Raises:
        ValueError: for an unknown capability or device, or a block that no multiprocessor of it can run; the message
            says which resource it exceeds.

    >>> print(occupancy(256, 64))
    4 blocks, 32 warps, 50% occupancy; limited by registers
    """
    sm = _limits_of(on)
    _whole("threads", threads, 1, MOST_THREADS)
    _whole("registers", registers, 0, MOST_REGISTERS)
    _whole("shared", shared, 0, sm.shared_block)
    warps = -(-threads // WARP)
    limits = {"warps": sm.warps // warps, "blocks": sm.blocks}
    limits["registers"] = _by_registers(sm, warps, registers)
    held = _up(shared + sm.reserved, sm.shared_unit)
    limits["shared memory"] = sm.shared // held if held else sm.blocks
    return _fitted(sm, warps, limits, warps * _per_warp(registers), held)


def _fitted(sm: Capability, warps: int, limits: dict[str, int], registers: int, shared: int) -> Occupancy:
    """The least limit decides."""
    blocks = min(limits.values())
    limiter = tuple(name for name, most in limits.items() if most == blocks)
    return Occupancy(blocks, blocks * warps, blocks * warps / sm.warps, limits, limiter, registers, shared)


def _by_registers(sm: Capability, warps: int, registers: int) -> int:
    """Blocks that the registers allow; an error if one block asks for more than there are."""
    each = _per_warp(registers)
    if not each:
        return sm.blocks
    if each * _up(warps, PARTS) > sm.registers:  # the hardware checks as if all four parts were filled alike
        most = sm.registers // _up(warps, PARTS) // REGISTER_UNIT * REGISTER_UNIT // WARP
        raise ValueError(f"registers is {registers}; a block of {warps} warps can have at most {most} a thread")
    return sm.registers // PARTS // each * PARTS // warps


def _per_warp(registers: int) -> int:
    """Registers of one warp, rounded up to what is handed out."""
    return _up(registers * WARP, REGISTER_UNIT)


def _up(value: int, unit: int) -> int:
    """The next multiple of ``unit``."""
    return -(-value // unit) * unit


def _limits_of(on: str) -> Capability:
    """The limits of a compute capability, or of the chip of an accelerator."""
    if str(on)[:1].isdigit():
        return capability(on)
    device = accelerator(on)
    if not (device.chip and device.chip.capability):
        raise ValueError(f"on is {on!r}; a compute capability or an NVIDIA accelerator whose chip is known is needed")
    return capability(device.chip.capability)


def _whole(name: str, value: int, low: int, high: int) -> None:
    """An error if the value is no whole number within the limits."""
    if isinstance(value, bool) or value != int(value) or not low <= value <= high:
        raise ValueError(f"{name} is {value}; a whole number from {low} to {high:,} is needed")


def register_sweep(threads: int, shared: int = 0, on: str = "9.0") -> dict[int, float]:
    """Return the occupancy for every number of registers a thread that a block of ``threads`` can have, from 16 on."""
    return _sweep(range(16, MOST_REGISTERS + 1), lambda count: occupancy(threads, count, shared, on))


def shared_sweep(threads: int, registers: int, on: str = "9.0") -> dict[int, float]:
    """Return the occupancy for every number of KiB of shared memory a block can have, by bytes."""
    sizes = range(0, _limits_of(on).shared_block + 1, 1024)
    return _sweep(sizes, lambda size: occupancy(threads, registers, size, on))


def _sweep(values: range, at: Callable[[int], Occupancy]) -> dict[int, float]:
    """Shares for the values that can run; the error of the first if none can."""
    first = at(values[0]).share
    found = {values[0]: first}
    for value in values[1:]:
        try:
            found[value] = at(value).share
        except ValueError:
            break
    return found
