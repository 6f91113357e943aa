"""The fitted constants of a step: how far real kernels, launches and collectives stay behind the data sheet.

Five constants, the same for every machine and data set. They were fitted to whole iteration times
(:mod:`distgen_lab.planner.validation` says to which, and how far they hold on rows they have not seen); what a
collective takes is not among them: it comes from NCCL's own constants.
"""

import json
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from distgen_lab.hardware import Accelerator

__all__ = ["BEST_SHARE", "Efficiency", "best_rate", "fitted"]

BEST_SHARE = 0.8
"""Best measured matrix product over the peak, where none is in the catalogue: A100 0.86, H100 0.80, B200 0.78."""


@dataclass(frozen=True)
class Efficiency:
    """Constants of kernels and launches.

    Attributes:
        matmul: rate of large matrix products in training over the best that was measured on the device.
        stream: bytes/s of all other kernels over the memory bandwidth.
        kernel: seconds that each kernel loses before and after it runs at full rate.
        dispatch: seconds that the processor needs to launch one kernel; a layer is no faster than its launches.
        wait: seconds that the processor loses in each collective for every other rank in it.
        fitted_on: what they were fitted to.
    """

    matmul: float
    stream: float
    kernel: float
    dispatch: float
    wait: float
    fitted_on: str = field(default="", compare=False)


@cache
def fitted() -> Efficiency:
    """Return the constants of ``data/planner.json``."""
    return Efficiency(**json.loads((files("distgen_lab") / "data" / "planner.json").read_text("utf-8")))


def best_rate(device: Accelerator, precision: str = "bf16") -> float:
    """Return FLOP/s of the best matrix product: the dense peak times what the best measured BF16 product reaches of it.

    Raises:
        ValueError: for a precision that the device has not got.
    """
    share = device.measured / device.peak() if device.measured else BEST_SHARE
    return device.peak(precision) * share
