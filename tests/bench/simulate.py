"""The schedule engine's speed, and the same ring all-reduce in SimGrid beside it: python tests/bench/simulate.py.

SimGrid runs where the system's Python has it (Debian: python3-simgrid); without it that part is left out.
"""

import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from distgen_lab import collectives, topology
from distgen_lab.alphabeta import Link
from distgen_lab.simulate import price

SIMGRID = Path(__file__).with_name("simgrid_ring.py")
NBYTES = 2**26


def timed(name: str, action: Callable[[], object]) -> object:
    """Print how long it takes and the most memory the process has had; return what it gives."""
    start = time.perf_counter()
    result = action()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:<62} {time.perf_counter() - start:8.3f} s  {most:6.0f} MiB", flush=True)
    return result


def engine() -> None:
    """Building, pricing and proving at the sizes the course promises."""
    timed(
        "ring all-reduce, 1,024 ranks, fat-tree, built and priced",
        lambda: price(collectives.ring_all_reduce(1024), topology.fat_tree(16), NBYTES),
    )
    timed(
        "ring all-reduce, 4,096 ranks, 16x16x16 torus, built and priced",
        lambda: price(collectives.ring_all_reduce(4096), topology.torus((16, 16, 16)), NBYTES),
    )
    for name in ("ring", "recursive_doubling", "rabenseifner", "double_tree", "torus", "hierarchical"):
        schedule = collectives.ALGORITHMS[f"{name}_all_reduce"](256)
        assert timed(f"{schedule.name}, 256 ranks, proved", schedule.verify)


def beside_simgrid() -> None:
    """The same ring on the same star, simulated by SimGrid."""
    python = shutil.which("python3", path="/usr/bin")
    if not python or subprocess.run([python, "-c", "import simgrid"], capture_output=True).returncode:
        print("SimGrid is not installed for the system's Python: left out")
        return
    for ranks in (64, 256):
        star = topology.crossbar(ranks, Link(1e-6, 1 / 12.5e9))
        ours = timed(
            f"ring, {ranks} ranks on a star: here", partial(price, collectives.ring_all_reduce(ranks), star, NBYTES)
        )
        run = [python, SIMGRID, str(ranks), str(NBYTES)]
        done = timed(
            f"ring, {ranks} ranks on a star: SimGrid", partial(subprocess.run, run, capture_output=True, text=True)
        )
        theirs = float(done.stdout.split()[-1]) / 1e6
        times = f"{ours.seconds * 1e6:,.3f} us here, {theirs * 1e6:,.3f} us in SimGrid"
        print(f"    {times}: {ours.seconds / theirs - 1:+.4%}")


if __name__ == "__main__":
    engine()
    beside_simgrid()
