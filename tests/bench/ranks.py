"""Real ranks, measured side by side in one run: python tests/bench/ranks.py [launch | network | bare].

``launch``: seconds to start ranks, by our launcher and by the usual ones. ``network``: schedules executed on the
emulated link against alpha + n beta. ``bare``: the same on the bare machine with two ranks, beside the library's own.
"""

import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

from distgen_lab.alphabeta import Link
from distgen_lab.bench import measure
from distgen_lab.collectives import rabenseifner_all_reduce, recursive_doubling_all_reduce, ring_all_reduce
from distgen_lab.labs.schedules import Comparison, compare, compare_all, exchange_link, measured_rounds, reduction_time
from distgen_lab.ranks import launch
from distgen_lab.simulate import price
from distgen_lab.topology import crossbar

REPEATS = 10


def median_seconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median over ``repeats`` calls after a first one."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def small_all_reduce() -> float:
    """What every launched rank does."""
    value = torch.ones(4)
    dist.all_reduce(value)
    return value[0].item()


def with_ddp() -> None:
    """One DDP step."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    model(torch.ones(2, 8)).sum().backward()


def with_fsdp() -> None:
    """One step of a fully sharded module."""
    model = torch.nn.Linear(8, 8)
    torch.distributed.fsdp.fully_shard(model)
    model(torch.ones(2, 8)).sum().backward()


def mpi_all_reduce() -> float:
    """The same all-reduce over mpi4py."""
    import numpy as np
    from mpi4py import MPI

    total = np.empty(4)
    MPI.COMM_WORLD.Allreduce(np.ones(4), total)
    return total[0]


def spawned(rank: int, folder: str) -> None:
    """A rank of torch.multiprocessing.spawn."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=4)
    small_all_reduce()
    dist.destroy_process_group()


def spawn() -> None:
    """Four ranks by torch.multiprocessing.spawn."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(spawned, (folder,), nprocs=4)


SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
"""


def torchrun() -> None:
    """Four ranks by torchrun."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(SCRIPT)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", script]
        subprocess.run(command, check=True, capture_output=True)


def bench_launch() -> None:
    """Print the launch table."""
    rows = {
        "launch, 4 Gloo ranks": (lambda: launch(small_all_reduce, 4), REPEATS),
        "launch, 16 Gloo ranks": (lambda: launch(small_all_reduce, 16), REPEATS),
        "launch, 4 ranks with a DDP step": (lambda: launch(with_ddp, 4), REPEATS),
        "launch, 4 ranks with an FSDP step": (lambda: launch(with_fsdp, 4), REPEATS),
        "launch, 4 MPI ranks": (lambda: launch(mpi_all_reduce, 4, "mpi"), REPEATS),
        "torch.multiprocessing.spawn, 4 ranks": (spawn, 3),
        "torchrun, 4 ranks": (torchrun, 3),
    }
    start = time.perf_counter()
    launch(small_all_reduce, 4)
    print(f"{'the very first launch':<40} {time.perf_counter() - start:6.2f} s")
    for name, (work, repeats) in rows.items():
        print(f"{name:<40} {median_seconds(work, repeats):6.3f} s", flush=True)


SCHEDULES = (ring_all_reduce, recursive_doubling_all_reduce, rabenseifner_all_reduce)


def bench_network() -> None:
    """Print measured against predicted times on the emulated link."""
    errors = []
    for link in (Link(10e-3, 5e-8), Link(20e-3, 1e-7)):
        print(f"emulated link: {link}")
        for ranks in (4, 8):
            for build, nbytes in itertools.product(SCHEDULES, (512, 65_536, 1_048_576)):
                found = launch(compare, ranks, args=(build(ranks), nbytes, link, 0.0, 5), network=link)[0].value
                errors.append(abs(found.error))
                print(f"{ranks} ranks {found}", flush=True)
    print(f"median error {statistics.median(errors):.1%}, worst {max(errors):.1%}")


def bench_bare() -> None:
    """Print what rounds cost on the bare machine, what they predict for two ranks, and the library's own all-reduce."""
    errors, lines = [], []
    for backend in ("gloo", "mpi"):
        link, found = launch(predicted, 2, backend, timeout=300, record=False)[0].value
        print(f"two ranks over {backend}, by simultaneous exchange: {link}")
        print(*found, sep="\n", flush=True)
        errors += [abs(one.error_by_rounds) for one in found if one.by_rounds]
        lines += [abs(one.error) for one in found if one.by_rounds]
    print(f"schedules by rounds: median error {statistics.median(errors):.0%}, worst {max(errors):.0%}; by one line "
          f"{statistics.median(lines):.0%} and {max(lines):.0%}")  # fmt: skip


def predicted() -> tuple[Link, list[Comparison]]:
    """In a rank: the fitted link, and schedules and the library's own all-reduce against it."""
    powers = tuple(2**k for k in range(6, 23))
    link, gamma, costs = exchange_link(powers).link, reduction_time(), measured_rounds(powers)
    sizes = (1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304)
    rows = compare_all([build(2) for build in SCHEDULES], sizes, link, gamma, costs)
    return link, rows + [own(nbytes, link, gamma) for nbytes in sizes]


def own(nbytes: int, link: Link, gamma: float) -> Comparison:
    """In a rank: the library's all-reduce against the price of a ring."""
    row = measure("all_reduce", nbytes)
    ring = price(ring_all_reduce(row.ranks), crossbar(row.ranks, link), nbytes, gamma).seconds
    return Comparison("the library's own all-reduce", nbytes, row.seconds, ring)


if __name__ == "__main__":
    parts = {"launch": bench_launch, "network": bench_network, "bare": bench_bare}
    for chosen in sys.argv[1:] or list(parts):
        parts[chosen]()
