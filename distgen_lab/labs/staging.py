"""What a copy through the host costs: memory of this machine, and the bus to its GPU if there is one.

Run it on its own with ``python -m distgen_lab.labs.staging``.
"""

import time
from collections.abc import Callable

import torch

from distgen_lab.units import quantity

__all__ = ["copy_rates", "main", "staged"]


def copy_rates(nbytes: int = 2**26, repeats: int = 5) -> dict[str, float]:
    """Return bytes/s of the fastest of ``repeats`` copies: within the host, and to and from a GPU where there is one.

    The host's memory is pinned for the copies of a GPU, as a communication library would have it.

    Raises:
        ValueError: for no byte or no repeat.
    """
    if nbytes < 1 or repeats < 1:
        raise ValueError(f"nbytes is {nbytes} and repeats {repeats}; 1 or more are needed")
    host, other = torch.ones(nbytes, dtype=torch.uint8), torch.empty(nbytes, dtype=torch.uint8)
    rates = {"host to host": nbytes / _fastest(lambda: other.copy_(host), repeats)}
    if torch.cuda.is_available():
        pinned, there = host.pin_memory(), torch.empty_like(host, device="cuda")
        rates["host to device"] = nbytes / _fastest(lambda: there.copy_(pinned), repeats)
        rates["device to host"] = nbytes / _fastest(lambda: pinned.copy_(there), repeats)
    return rates


def _fastest(copy: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest run after a first."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        copy()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


def staged(nbytes: float, bus: float, network: float | None = None) -> dict[str, float]:
    """Return the seconds of each step of a message between two GPUs through the host's memory, one after the other.

    Args:
        nbytes: of the message.
        bus: bytes/s between GPU and host, per direction.
        network: bytes/s between two hosts; None if both GPUs share one.

    >>> steps = staged(1e9, 64e9)
    >>> sum(steps.values())
    0.03125
    """
    steps = {"device to host": nbytes / bus}
    if network is not None:
        steps["host to host"] = nbytes / network
    return steps | {"host to device": nbytes / bus}


def main() -> None:
    """Run the lab from the command line."""
    for name, rate in copy_rates().items():
        print(f"{name:<15} {quantity(rate, 'B/s')}")


if __name__ == "__main__":
    main()
