"""Real ranks, measured side by side in one run: python tests/bench/ranks.py [launch | network | bare].

``launch``: seconds to start ranks, by our launcher and by the usual ones. ``network``: schedules executed on the
emulated link against alpha + n beta. ``bare``: the same on the bare machine with two ranks, beside the library's own.
"""

import math
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

from distgen_lab.alphabeta import Link, fit
from distgen_lab.ranks import launch
from distgen_lab.units import quantity

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


def exchange(data: torch.Tensor, out: torch.Tensor, to: int, source: int) -> None:
    """Send and receive at the same time."""
    request = dist.isend(data, to)
    dist.recv(out, source)
    request.wait()


def ring(data: torch.Tensor) -> None:
    """Ring all-reduce."""
    size, rank = dist.get_world_size(), dist.get_rank()
    parts, got = list(data.chunk(size)), torch.empty_like(data.chunk(size)[0])
    for step in range(2 * (size - 1)):
        adding, shift = step < size - 1, step if step < size - 1 else step - size
        exchange(parts[(rank - shift) % size].contiguous(), got, (rank + 1) % size, (rank - 1) % size)
        target = parts[(rank - shift - 1) % size]
        target.add_(got) if adding else target.copy_(got)


def recursive_doubling(data: torch.Tensor) -> None:
    """All-reduce by recursive doubling, for a power of two of ranks."""
    got, distance = torch.empty_like(data), 1
    while distance < dist.get_world_size():
        exchange(data, got, dist.get_rank() ^ distance, dist.get_rank() ^ distance)
        data.add_(got)
        distance *= 2


def rabenseifner(data: torch.Tensor) -> None:
    """All-reduce by recursive halving, then doubling, for a power of two of ranks."""
    size, rank = dist.get_world_size(), dist.get_rank()
    low, high, distance, path = 0, len(data), size // 2, []
    while distance:
        middle, upper = (low + high) // 2, bool(rank & distance)
        mine, theirs = ((middle, high), (low, middle)) if upper else ((low, middle), (middle, high))
        got = torch.empty(mine[1] - mine[0], dtype=data.dtype)
        exchange(data[theirs[0] : theirs[1]], got, rank ^ distance, rank ^ distance)
        data[mine[0] : mine[1]] += got
        path.append((mine, theirs, distance))
        (low, high), distance = mine, distance // 2
    for mine, theirs, distance in reversed(path):
        got = torch.empty(theirs[1] - theirs[0], dtype=data.dtype)
        exchange(data[mine[0] : mine[1]], got, rank ^ distance, rank ^ distance)
        data[theirs[0] : theirs[1]] = got


SCHEDULES: dict[Callable, Callable[[int, float, Link], float]] = {
    ring: lambda size, n, link: 2 * (size - 1) * link.time(n / size),
    recursive_doubling: lambda size, n, link: math.log2(size) * link.time(n),
    rabenseifner: lambda size, n, link: 2 * math.log2(size) * link.alpha + 2 * (size - 1) / size * n * link.beta,
}
"""Each schedule and its closed form: seconds for ``size`` ranks and ``n`` bytes."""


def timed(schedule: Callable, count: int, repeats: int = 5) -> tuple[list[float], bool]:
    """In a rank: seconds of each run, begun together, and whether the sum is right."""
    size, seconds, right = dist.get_world_size(), [], True
    for _ in range(repeats + 1):
        data = torch.ones(count, dtype=torch.float64)
        dist.barrier()
        start = time.perf_counter()
        schedule(data)
        seconds.append(time.perf_counter() - start)
        right = right and bool((data == size).all())
    return seconds[1:], right


def slowest(schedule: Callable, ranks: int, count: int, network: Link | None) -> float:
    """Median over the runs of the slowest rank's seconds."""
    values = launch(timed, ranks, args=(schedule, count), network=network).values
    assert all(right for _, right in values)
    return statistics.median(max(run) for run in zip(*(seconds for seconds, _ in values), strict=True))


def bench_network() -> None:
    """Print measured against predicted times on the emulated link."""
    errors = []
    for link in (Link(10e-3, 5e-8), Link(20e-3, 1e-7)):
        print(f"emulated link: {link}")
        for ranks in (4, 8):
            for count in (64, 8_192, 131_072):
                errors += [_line(schedule, ranks, count, link) for schedule in SCHEDULES]
    print(f"median error {statistics.median(map(abs, errors)):.1%}, worst {max(map(abs, errors)):.1%}")


def _line(schedule: Callable, ranks: int, count: int, link: Link) -> float:
    found, wanted = slowest(schedule, ranks, count, link), SCHEDULES[schedule](ranks, 8 * count, link)
    error = found / wanted - 1
    size = quantity(8 * count, "B")
    what = f"{ranks} ranks, {size:>8} {schedule.__name__:<19}"
    print(f"{what} {found * 1e3:8.1f} ms, model {wanted * 1e3:8.1f} {error:+.1%}", flush=True)
    return error


def swap(data: torch.Tensor) -> None:
    """A simultaneous exchange between two ranks: what the bare machine is fitted on."""
    got = torch.empty_like(data)
    exchange(data, got, 1 - dist.get_rank(), 1 - dist.get_rank())
    data.add_(got)


def library(data: torch.Tensor) -> None:
    """The library's own collective."""
    dist.all_reduce(data)


def bench_bare() -> None:
    """Print the fit of the bare machine and what it predicts for two ranks."""
    counts = [2**k for k in range(4, 20, 3)]
    link = fit([8 * count for count in counts], [slowest(swap, 2, count, None) for count in counts])
    print(f"two ranks on loopback: {link}")
    for count in (1024, 32_768, 524_288):
        for schedule in (ring, rabenseifner, library):
            model = SCHEDULES.get(schedule, SCHEDULES[ring])(2, 8 * count, link.link)
            found = slowest(schedule, 2, count, None)
            print(
                f"{quantity(8 * count, 'B'):>8} {schedule.__name__:<14} {found * 1e3:7.2f} ms, {found / model - 1:+.0%}"
            )


if __name__ == "__main__":
    parts = {"launch": bench_launch, "network": bench_network, "bare": bench_bare}
    for chosen in sys.argv[1:] or list(parts):
        parts[chosen]()
