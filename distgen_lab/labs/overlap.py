"""Hide real communication behind real computation: Work handles, and the backward pass of DistributedDataParallel.

``python -m distgen_lab.labs.overlap``, or under torchrun or srun: see ``distgen_lab.labs``. The lab profiles the
backward pass gradient by gradient, predicts a step for several bucket sizes with :mod:`distgen_lab.overlap`, and
measures it. The network is an *emulated* link: a channel that takes one bucket after the other and finishes each no
earlier than alpha + n beta after it began. On two cores there is no better way to see overlap: bare loopback is the
processor itself.
"""

import argparse
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from distgen_lab import overlap
from distgen_lab.alphabeta import Link
from distgen_lab.labs import PATIENCE, ranks_of, run
from distgen_lab.overlap import COMMUNICATION, COMPUTE
from distgen_lab.ranks.world import current
from distgen_lab.timeline import Span, Timeline
from distgen_lab.units import MIB, duration

__all__ = [
    "BLOCKING", "LAYERWISE", "Channel", "Comparison", "Phases", "Profile", "Step", "compare", "compare_mib", "lab",
    "main", "phases", "watch_blocks",
]  # fmt: skip

LAYERWISE, BLOCKING = 1, 2**40
"""Bucket sizes in bytes that give every gradient, or all of them together, one bucket."""
WIDTHS = (512, 512, 384, 512, 640, 640, 512) * 4
"""Widths of the lab's network: 27 matrices, 28 MiB of gradients."""
BATCH = 96
"""Rows of a batch."""


# ------------------------------------------------------------------------------------ two phases and a Work handle


@dataclass(frozen=True)
class Phases:
    """Seconds of computing, of communicating, of one after the other, and of both at once."""

    compute: float
    communication: float
    sequential: float
    overlapped: float

    @property
    def hidden(self) -> float:
        """Share of the shorter phase that overlap hides: (sequential - overlapped) / min(compute, communication)."""
        return (self.sequential - self.overlapped) / min(self.compute, self.communication)

    @property
    def speedup(self) -> float:
        """Sequential over overlapped."""
        return self.sequential / self.overlapped


def phases(nbytes: int = 2**23, way: str = "all_reduce", repeats: int = 10) -> Phases:
    """Measure, in a rank together with the others, what an asynchronous operation hides behind matrix products.

    There are as many products as take about as long as the communication, the case with most to gain. With NCCL the
    operation runs on a stream of its own.

    Args:
        nbytes: bytes of each rank.
        way: "all_reduce", or "exchange" with the next rank (which ``launch(network=...)`` can slow down).
        repeats: each of the four is measured so often, in turn; the fastest counts.
    """
    start = {"all_reduce": _start_all_reduce, "exchange": _start_exchange}[way]
    data = current().full(nbytes // 4, 1)
    square = torch.ones(192, 192, device=data.device)

    def communicate() -> None:
        _wait(start(data))

    one, whole = _together(lambda: square @ square, 20), _together(communicate, repeats)
    products = max(1, round(min(whole) / (sum(one[5:]) / len(one[5:]))))

    def compute() -> None:
        for _ in range(products):
            torch.mm(square, square)

    def in_turn() -> None:
        communicate()
        compute()

    def at_once() -> None:
        works = start(data)
        compute()
        _wait(works)

    actions = (compute, communicate, in_turn, at_once)
    rounds = [[_together(action, 1)[0] for action in actions] for _ in range(repeats)]
    return Phases(*(min(column) for column in zip(*rounds, strict=True)))


def _start_all_reduce(data: Tensor) -> list[Any]:
    return [dist.all_reduce(data, async_op=True)]


def _start_exchange(data: Tensor) -> list[Any]:
    rank, size = dist.get_rank(), dist.get_world_size()
    return [dist.irecv(torch.empty_like(data), (rank - 1) % size), dist.isend(data, (rank + 1) % size)]


def _wait(works: Sequence[Any]) -> None:
    for work in works:
        work.wait()


def _together(action: Callable[[], Any], repeats: int) -> list[float]:
    """Seconds of the slowest rank in each of ``repeats`` runs, begun together; the same on every rank."""
    world, seconds = current(), []
    for _ in range(repeats):
        world.barrier()
        begin = time.perf_counter()
        action()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return [max(one) for one in zip(*world.gather(seconds), strict=True)]


def watch_blocks(reduce_blocks: Callable[..., Any], blocks: int, ranks: int = 2) -> list[dict[str, Any]]:
    """Launch ``reduce_blocks(compute, blocks)`` on Gloo ranks; return what each rank got, and in which order it worked.

    ``compute(k)`` returns block k of this rank, a tensor full of (rank + 1)(k + 1); the function returns the blocks'
    sums over all ranks, in order.

    Returns:
        For each rank "sums", the first number of each; "all_reduces"; "before", the blocks computed when the first
        all-reduce started; and "beside", the all-reduces that had started before a block's computation began and were
        waited for after it had ended.
    """
    from distgen_lab.ranks import launch

    run = launch(_blocks_on_rank, ranks, "gloo", (reduce_blocks, blocks), timeout=PATIENCE)
    return [_order_of(result.value, result.events) for result in run]


def _blocks_on_rank(reduce_blocks: Callable[..., Any], blocks: int) -> tuple[list[float], list[tuple[float, float]]]:
    rank, marks = dist.get_rank(), []

    def compute(k: int) -> Tensor:
        begin = time.monotonic()
        square = torch.ones(64, 64) @ torch.ones(64, 64)
        block = torch.full((1000,), (rank + 1.0) * (k + 1)) + 0 * square[0, 0]
        marks.append((begin, time.monotonic()))
        return block

    sums = [float(block[0]) for block in reduce_blocks(compute, blocks)]
    return sums, marks


def _order_of(value: tuple[list[float], list[tuple[float, float]]], events: Sequence[Span]) -> dict[str, Any]:
    sums, marks = value
    spans = [span for span in events if span.op == "all_reduce"]
    first = min((span.start for span in spans), default=0.0)
    beside = [any(s.start <= begin and s.end is not None and end <= s.end for begin, end in marks) for s in spans]
    before = sum(end <= first for _, end in marks)
    return {"sums": sums, "all_reduces": len(spans), "before": before, "beside": sum(beside)}


# -------------------------------------------------------------------------------------------- an emulated channel


class Channel:
    """A link that takes one bucket after the other: each is done alpha + n beta after it began, and not before.

    Register :meth:`hook` as a replica's communication hook. With ``real`` the buckets are also averaged for real, by an
    all-reduce that works while the emulated time passes; without, gradients stay what each rank computed and the step
    shows what a network does that asks nothing of the processor.

    Attributes:
        busy: (begin, end, bytes) of each bucket, on ``time.perf_counter``.
    """

    def __init__(self, link: Link, real: bool = False, group: Any = None) -> None:
        self.link, self.real, self.group, self.busy = link, real, group, []
        self._free = 0.0
        self._waiting: queue.SimpleQueue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def hook(self, state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Take a bucket of gradients; the future is done when it has come through the link."""
        data, future = bucket.buffer(), torch.futures.Future()
        if not self.link.alpha and not self.link.beta and not self.real:
            future.set_result(data)
            return future
        work = self._average(data) if self.real else None
        begin = max(time.perf_counter(), self._free)
        self._free = begin + self.link.time(data.numel() * data.element_size())
        self._waiting.put((begin, self._free, data, work, future))
        return future

    def _average(self, data: Tensor) -> Any:
        return dist.all_reduce(data.div_(dist.get_world_size()), group=self.group, async_op=True)

    def _serve(self) -> None:
        while (item := self._waiting.get()) is not None:
            begin, end, data, work, future = item
            if work is not None:
                work.wait()
            time.sleep(max(0.0, end - time.perf_counter()))
            self.busy.append((begin, time.perf_counter(), data.numel() * data.element_size()))
            future.set_result(data)

    def close(self) -> None:
        """End the channel's thread."""
        self._waiting.put(None)
        self._thread.join()


# ------------------------------------------------------------------------------------------------ a step of DDP


@dataclass(frozen=True)
class Step:
    """One forward and backward pass: seconds, when each gradient was ready, when each bucket was on the link.

    All times count from the start of the step. Gradients are in the order in which they became ready.
    """

    forward: float
    ready: tuple[float, ...]
    seconds: float
    buckets: tuple[tuple[float, float, int], ...] = ()

    @property
    def timeline(self) -> Timeline:
        """The step on two lanes, 0 compute and 1 the channel; as ``Execution.timeline`` of a simulated one."""
        marks, size = (self.forward, *self.ready), len(self.ready)
        spans = [Span(0, COMPUTE, 0.0, self.forward, name="forward")]
        spans += [Span(0, COMPUTE, *marks[k : k + 2], name=f"bwd {size - k}") for k in range(size)]
        spans += [
            Span(1, COMMUNICATION, begin, end, nbytes, name=f"bucket {k + 1}")
            for k, (begin, end, nbytes) in enumerate(self.buckets)
        ]
        return Timeline(spans, lanes=2)

    @property
    def exposed(self) -> float:
        """Seconds of communication after the last gradient was ready."""
        return overlap.exposed_time([(b, e) for b, e, _ in self.buckets], [(0.0, self.ready[-1])])


@dataclass(frozen=True)
class Profile:
    """What a step does without a network: forward, backward by layer (layer 1 first), and what is left at the end."""

    forward: float
    backward: tuple[float, ...]
    nbytes: tuple[int, ...]
    rest: float

    def tasks(self, cap: float, link: Link) -> list[overlap.Task]:
        """Return the step's tasks for a bucket size in bytes and a link."""
        buckets = overlap.torch_buckets(self.nbytes, cap)
        return overlap.bucketed(self.backward, self.nbytes, buckets, link.time, self.forward)

    def predict(self, cap: float, link: Link) -> float:
        """Return the seconds of a step for a bucket size in bytes and a link."""
        return overlap.simulate(self.tasks(cap, link)).seconds + self.rest


@dataclass(frozen=True)
class Comparison:
    """One bucket size, measured and predicted.

    Attributes:
        cap: bytes after which a bucket is closed.
        buckets: how many there are, and so all-reduces in a step.
        measured, predicted: seconds of a step.
        own: seconds predicted from the measured step's own gradients, of which it is known when they were ready: what
            the channel's model says, without what slowed the compute down.
        step: the measured step, the fastest.
    """

    cap: float
    buckets: int
    measured: float
    predicted: float
    own: float
    step: Step = field(repr=False)

    @property
    def error(self) -> float:
        """Measured over predicted, less 1: interference, or other work on the machine."""
        return self.measured / self.predicted - 1

    @property
    def own_error(self) -> float:
        """Measured over ``own``, less 1: what the model of the channel misses."""
        return self.measured / self.own - 1

    @property
    def label(self) -> str:
        """The bucket size in words."""
        return {LAYERWISE: "layer-wise", BLOCKING: "blocking"}.get(self.cap, f"{self.cap / MIB:g} MiB")

    def __str__(self) -> str:
        times = f"{duration(self.measured):>9}  predicted {duration(self.predicted):>9} {self.error:+6.1%}"
        own = f"from its own gradients {duration(self.own):>9} {self.own_error:+6.1%}"
        return f"{self.label:>10} {self.buckets:>3} buckets {times}  {own}"


def _network() -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inner, outer in pairwise(WIDTHS):
        layers += [nn.Linear(inner, outer, bias=False), nn.Tanh()]
    return nn.Sequential(*layers)


class _Replica:
    """A replica with its channel, and the marks of its last step."""

    def __init__(self, cap: float, link: Link, real: bool) -> None:
        # The emulated link stands beside the processor: where the ranks are on GPUs, a Gloo group of its own serves it.
        group = dist.new_group(backend="gloo") if dist.get_backend() == "nccl" else None
        self.channel = Channel(link, real, group)
        self.model = DistributedDataParallel(
            _network(), process_group=group, bucket_cap_mb=cap / MIB, gradient_as_bucket_view=True
        )
        self.model.register_comm_hook(None, self.channel.hook)
        self.marks: list[float] = []
        self.data = torch.ones(BATCH, WIDTHS[0])
        for weight in self.model.parameters():
            weight.register_post_accumulate_grad_hook(lambda _: self.marks.append(time.perf_counter()))

    def step(self) -> Step:
        """Do one forward and backward pass, begun together with the other ranks."""
        self.marks.clear()
        self.channel.busy.clear()
        dist.barrier()
        begin = time.perf_counter()
        loss = self.model(self.data).square().mean()
        forward = time.perf_counter()
        loss.backward()
        end = time.perf_counter()
        ready = tuple(mark - begin for mark in self.marks)
        buckets = tuple((b - begin, e - begin, n) for b, e, n in self.channel.busy)
        return Step(forward - begin, ready, end - begin, buckets)


@contextlib.contextmanager
def _replicas(caps: Sequence[float], link: Link, real: bool) -> Iterator[list[_Replica]]:
    """A replica without network to profile, and one for each bucket size; all warm, their buckets in torch's order."""
    replicas = [_Replica(LAYERWISE, Link(0, 0), False)] + [_Replica(cap, link, real) for cap in caps]
    for replica in replicas:
        for _ in range(2):  # torch forms the buckets anew after the first step, in the order it has seen
            replica.step()
    yield replicas
    for replica in replicas:
        replica.channel.close()


def compare(
    caps: Sequence[float], link: Link, real: bool = False, repeats: int = 7
) -> tuple[Profile, list[Comparison]]:
    """Measure, in a rank together with the others, a step for each bucket size in bytes, and predict it.

    The bucket sizes and the step without a network, from which the prediction is made, take turns, so that a slower
    minute of the machine meets them all alike; of each the fastest step counts, the one least disturbed.

    Args:
        caps: bytes, among them perhaps ``LAYERWISE`` and ``BLOCKING``.
        link: of the emulated channel.
        real: whether a real all-reduce works underneath.
        repeats: steps of each.
    """
    with _replicas(caps, link, real) as replicas:
        steps = [[replica.step() for replica in replicas] for _ in range(repeats)]
    alone, *others = (list(column) for column in zip(*steps, strict=True))
    sizes = tuple(weight.numel() * weight.element_size() for weight in replicas[0].model.parameters())
    profile = _profile(alone, sizes)
    return profile, [_comparison(profile, cap, link, some) for cap, some in zip(caps, others, strict=True)]


def _profile(steps: Sequence[Step], nbytes: tuple[int, ...]) -> Profile:
    """The parts of the fastest step; the end, when nothing more is computed, of the one where it was shortest."""
    best = _fastest(steps)
    marks = (best.forward, *best.ready)
    backward = tuple(b - a for a, b in pairwise(marks))
    return Profile(best.forward, backward[::-1], nbytes, min(step.seconds - step.ready[-1] for step in steps))


def _fastest(steps: Sequence[Step]) -> Step:
    """The step that other work on the machine disturbed least."""
    return min(steps, key=lambda step: step.seconds)


def _comparison(profile: Profile, cap: float, link: Link, steps: Sequence[Step]) -> Comparison:
    best = _fastest(steps)
    buckets = len(overlap.torch_buckets(profile.nbytes, cap))
    own = _profile([best], profile.nbytes).predict(cap, link) - best.seconds + best.ready[-1] + profile.rest
    return Comparison(cap, buckets, best.seconds, profile.predict(cap, link), own, best)


def compare_mib(
    mib: Sequence[float], link: Link, real: bool = False, repeats: int = 7
) -> tuple[Profile, list[Comparison]]:
    """Return :func:`compare` for blocking, layer-wise and these bucket sizes in MiB."""
    return compare([BLOCKING, LAYERWISE, *(size * MIB for size in mib)], link, real, repeats)


def lab(link: Link, mib: Sequence[float] = (0.1, 1, 5, 10, 25), repeats: int = 7) -> str:
    """Measure and predict steps with and without a real all-reduce underneath; return the table."""
    lines = [ranks_of(), f"emulated link: {link}"]
    for real in (False, True):
        lines.append("with a real all-reduce underneath" if real else "the link alone")
        lines += [str(row) for row in compare_mib(mib, link, real, repeats)[1]]
    return "\n".join(lines)


def main() -> None:
    """Run the lab from the command line."""
    parser = argparse.ArgumentParser(description="Predict and measure DDP steps for several bucket sizes.")
    parser.add_argument("--alpha", type=float, default=2e-3, help="start-up time of the emulated link in seconds")
    parser.add_argument("--bandwidth", type=float, default=300e6, help="of the emulated link in bytes/s")
    parser.add_argument("--repeats", type=int, default=7, help="steps of each bucket size")
    given = parser.parse_args()
    run(lab, Link(given.alpha, 1 / given.bandwidth), (0.1, 1, 5, 10, 25), given.repeats)


if __name__ == "__main__":
    main()
