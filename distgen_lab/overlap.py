"""Communication hiding: tasks on lanes, what they take together, and the closed forms that say the same.

A lane does one task at a time, in the order given, as a CUDA stream does: one lane for compute, one or more channels
for communication. A task starts when the one before it on its lane and all it waits for have ended. Durations are
seconds; with whole numbers or fractions every result is exact. Layers are numbered from the input: layer 1 comes first
in every sequence here, and the backward pass computes it *last*.

Two things are left out unless asked for: communication that slows compute down (``interference``), and channels that
share one link (two channels here are two links).
"""

import json
import math
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any

from distgen_lab.timeline import Span, Timeline
from distgen_lab.units import MIB

__all__ = [
    "COMMUNICATION", "COMPUTE", "FIRST_BUCKET", "Execution", "Task", "accumulated", "best_bucket_cap", "best_buckets",
    "blocking", "bubble_fraction", "bucketed", "bucketed_time", "exposed_time", "hiding_speedup", "interfered_time",
    "layerwise", "layerwise_time", "layerwise_time_many_channels", "layerwise_time_printed", "one_forward_one_backward",
    "pipeline_time", "sharded", "simulate", "torch_buckets", "two_phases",
]  # fmt: skip

COMPUTE, COMMUNICATION = "compute", "communication"
FIRST_BUCKET = int(MIB)
"""Bytes after which DistributedDataParallel closes its first bucket when no size is given (torch 2.13)."""
_CAP = int(25 * MIB)


@dataclass(frozen=True)
class Task:
    """One piece of work.

    Attributes:
        name: unique among the tasks simulated together.
        seconds: how long it takes alone; at least 0, finite.
        lane: where it runs; tasks of a lane run in the order in which they are given.
        after: names of the tasks it waits for.
        kind: ``COMPUTE`` or ``COMMUNICATION``.
        device: the device whose compute it is, or whose compute it may slow down and hide behind.

    Raises:
        ValueError: for a negative or non-finite duration, or another kind.
    """

    name: str
    seconds: Any
    lane: str
    after: tuple[str, ...] = ()
    kind: str = COMPUTE
    device: int = 0

    def __post_init__(self) -> None:
        _seconds(f"seconds of {self.name}", self.seconds)
        if self.kind not in (COMPUTE, COMMUNICATION):
            raise ValueError(f"kind of {self.name} is {self.kind!r}; {COMPUTE!r} or {COMMUNICATION!r} is needed")


@dataclass(frozen=True)
class Execution:
    """When each task ran.

    Attributes:
        tasks: as given.
        start, end: seconds of each task, in the same order.
        cause: for each task the one whose end let it start (its place in ``tasks``), None for one that starts at 0.
    """

    tasks: tuple[Task, ...]
    start: tuple[Any, ...]
    end: tuple[Any, ...]
    cause: tuple[int | None, ...]

    @property
    def seconds(self) -> Any:
        """Time until the last task has ended: the iteration time."""
        return max(self.end, default=0)

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """Names of the lanes, in the order of their first task."""
        return tuple(dict.fromkeys(task.lane for task in self.tasks))

    def of(self, name: str) -> tuple[Any, Any]:
        """Return start and end of the task of that name."""
        place = next(i for i, task in enumerate(self.tasks) if task.name == name)
        return self.start[place], self.end[place]

    def intervals(self, kind: str, device: int = 0) -> list[tuple[Any, Any]]:
        """Return (start, end) of all tasks of a kind on a device."""
        rows = zip(self.tasks, self.start, self.end, strict=True)
        return [(start, end) for task, start, end in rows if task.kind == kind and task.device == device]

    def compute(self, device: int = 0) -> Any:
        """Return the seconds during which the device computes."""
        return _length(_union(self.intervals(COMPUTE, device)))

    def communication(self, device: int = 0) -> Any:
        """Return the seconds during which at least one of the device's channels is busy."""
        return _length(_union(self.intervals(COMMUNICATION, device)))

    def exposed(self, device: int = 0) -> Any:
        """Return T_exp: the seconds of communication during which the device does not compute."""
        return exposed_time(self.intervals(COMMUNICATION, device), self.intervals(COMPUTE, device))

    def efficiency(self, device: int = 0) -> float:
        """Return the share of the communication that is hidden, 1 - T_exp / T_comm; 1 where there is none."""
        whole = self.communication(device)
        return 1.0 - float(self.exposed(device) / whole) if whole else 1.0

    @property
    def naive(self) -> Any:
        """Seconds if each device did one task after the other: compute and communication added, the slowest device."""
        work: dict[int, Any] = defaultdict(int)
        for task in self.tasks:
            work[task.device] += task.seconds
        return max(work.values(), default=0)

    @property
    def bound(self) -> Any:
        """Seconds of the busiest lane: no order of the tasks is faster."""
        work: dict[str, Any] = defaultdict(int)
        for task in self.tasks:
            work[task.lane] += task.seconds
        return max(work.values(), default=0)

    def critical_path(self) -> list[str]:
        """Return the names of the tasks, first to last, that follow each other without a gap up to the end."""
        place = max(range(len(self.tasks)), key=lambda i: self.end[i], default=None)
        path = []
        while place is not None:
            path.append(self.tasks[place].name)
            place = self.cause[place]
        return path[::-1]

    @property
    def timeline(self) -> Timeline:
        """The run as a timeline: lanes are numbered as in :attr:`lanes`, a span's ``op`` is the task's kind."""
        number = {lane: place for place, lane in enumerate(self.lanes)}
        rows = zip(self.tasks, self.start, self.end, strict=True)
        spans = (Span(number[t.lane], t.kind, float(start), float(end), name=t.name) for t, start, end in rows)
        return Timeline(spans, lanes=len(number))

    def chrome_trace(self) -> str:
        """Return Chrome trace JSON with the lanes' names, to open in https://ui.perfetto.dev or chrome://tracing."""
        trace = json.loads(self.timeline.chrome_trace())
        for event in trace["traceEvents"]:
            event["name"] = event["args"].pop("name")
        names = [
            {"name": "process_name", "ph": "M", "pid": place, "tid": 0, "args": {"name": lane}}
            for place, lane in enumerate(self.lanes)
        ]
        return json.dumps(trace | {"traceEvents": names + trace["traceEvents"]})


# ------------------------------------------------------------------------------------------------- the simulator


def simulate(tasks: Iterable[Task], interference: float = 0.0) -> Execution:
    """Return when each task runs.

    Args:
        tasks: in the order in which each lane does its own.
        interference: share of a device's compute rate that is lost while any of its communication runs (0: none).

    Raises:
        ValueError: for two tasks of one name, a name that no task has, tasks that wait for each other, or an
            interference outside 0 to below 1.

    >>> wash = Task("laundry", 45, "machine", kind=COMMUNICATION)
    >>> simulate([wash, Task("cooking", 30, "you")]).seconds
    45
    """
    tasks = tuple(tasks)
    before = _predecessors(tasks)
    order = _order(tasks, before)
    if not (_is_real(interference) and 0 <= interference < 1):
        raise ValueError(f"interference is {interference!r}; a share from 0 to below 1 is needed")
    return _fluid(tasks, before, interference) if interference else _longest_path(tasks, before, order)


def _predecessors(tasks: Sequence[Task]) -> list[list[int]]:
    """For each task the places of those it waits for, the one before it on its lane included."""
    places = {task.name: place for place, task in enumerate(tasks)}
    if len(places) < len(tasks):
        twice = next(t.name for place, t in enumerate(tasks) if places[t.name] != place)
        raise ValueError(f"two tasks are named {twice!r}; names must differ")
    last: dict[str, int] = {}
    before = []
    for place, task in enumerate(tasks):
        unknown = [name for name in task.after if name not in places]
        if unknown:
            raise ValueError(f"{task.name} waits for {unknown[0]!r}, but no task has that name")
        before.append([places[name] for name in task.after] + ([last[task.lane]] if task.lane in last else []))
        last[task.lane] = place
    return before


def _order(tasks: Sequence[Task], before: Sequence[Sequence[int]]) -> list[int]:
    """Places in an order in which each comes after what it waits for."""
    missing = [len(places) for places in before]
    after = _followers(before)
    ready = deque(place for place, count in enumerate(missing) if not count)
    order = []
    while ready:
        order.append(ready.popleft())
        for place in after[order[-1]]:
            missing[place] -= 1
            if not missing[place]:
                ready.append(place)
    if len(order) < len(tasks):
        raise ValueError(f"tasks wait for each other: {' -> '.join(_cycle(tasks, before, set(order)))}")
    return order


def _followers(before: Sequence[Sequence[int]]) -> list[list[int]]:
    after: list[list[int]] = [[] for _ in before]
    for place, places in enumerate(before):
        for earlier in places:
            after[earlier].append(place)
    return after


def _cycle(tasks: Sequence[Task], before: Sequence[Sequence[int]], done: set[int]) -> list[str]:
    """Names along one cycle, the first repeated at the end; the lane's order counts as waiting."""
    place = next(i for i in range(len(tasks)) if i not in done)
    path: list[int] = []
    while place not in path:
        path.append(place)
        place = next(i for i in before[place] if i not in done)
    names = [tasks[i].name for i in path[path.index(place) :]]
    return [*names, names[0]]


def _longest_path(tasks: Sequence[Task], before: Sequence[Sequence[int]], order: Sequence[int]) -> Execution:
    """Without interference a task starts at the latest end of what it waits for."""
    start, end = [0] * len(tasks), [0] * len(tasks)
    cause: list[int | None] = [None] * len(tasks)
    for place in order:
        if before[place]:
            cause[place] = max(before[place], key=end.__getitem__)
            start[place] = end[cause[place]]
        end[place] = start[place] + tasks[place].seconds
    return Execution(tuple(tasks), tuple(start), tuple(end), tuple(cause))


def _fluid(tasks: Sequence[Task], before: Sequence[Sequence[int]], interference: float) -> Execution:
    """From event to event: compute runs at the rate 1 - interference while its device communicates."""
    missing, after = [len(places) for places in before], _followers(before)
    start, end, cause = [0.0] * len(tasks), [0.0] * len(tasks), [None] * len(tasks)
    left = {place: float(tasks[place].seconds) for place, count in enumerate(missing) if not count}
    now = 0.0
    while left:
        rate = _rates(tasks, left, interference)
        step = min(rest / rate[place] for place, rest in left.items())
        now += step
        over = [place for place, rest in left.items() if rest <= step * rate[place] * (1 + 1e-12)]
        left = {place: rest - step * rate[place] for place, rest in left.items() if place not in over}
        for place in over:
            end[place] = now
        for place in (follower for one in over for follower in after[one]):
            missing[place] -= 1
            if not missing[place]:
                start[place], cause[place] = now, max(before[place], key=end.__getitem__)
                left[place] = float(tasks[place].seconds)
    return Execution(tuple(tasks), tuple(start), tuple(end), tuple(cause))


def _rates(tasks: Sequence[Task], running: Iterable[int], interference: float) -> dict[int, float]:
    busy = {tasks[place].device for place in running if tasks[place].kind == COMMUNICATION}
    slow = 1.0 - interference
    return {p: slow if tasks[p].kind == COMPUTE and tasks[p].device in busy else 1.0 for p in running}


# ----------------------------------------------------------------------------------------- exposed communication


def exposed_time(communication: Iterable[tuple[Any, Any]], compute: Iterable[tuple[Any, Any]]) -> Any:
    """Return the seconds covered by at least one interval of communication and by none of compute.

    Args:
        communication, compute: (start, end) pairs in any order; they may overlap each other.

    Raises:
        ValueError: for an interval that ends before it starts.

    >>> exposed_time([(0, 4), (3, 6)], [(1, 2), (5, 9)])
    4
    """
    spoken, worked = _union(communication), _union(compute)
    starts = [start for start, _ in worked]
    hidden = 0
    for begin, end in spoken:
        for start, stop in worked[max(0, bisect_right(starts, begin) - 1) : bisect_right(starts, end)]:
            hidden += max(0, min(end, stop) - max(begin, start))
    return _length(spoken) - hidden


def _union(intervals: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Disjoint intervals that cover the same points, in order."""
    merged: list[tuple[Any, Any]] = []
    for start, end in sorted(intervals):
        if end < start:
            raise ValueError(f"the interval ({start}, {end}) ends before it starts")
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _length(intervals: Iterable[tuple[Any, Any]]) -> Any:
    return sum(end - start for start, end in intervals)


# ------------------------------------------------------------------------------------------------- two phases


def two_phases(compute: Any, communication: Any, overlapped: bool = True) -> list[Task]:
    """Return one computation and one communication that do not need each other, one after the other or at once."""
    after = () if overlapped else ("compute",)
    return [Task("compute", compute, "compute"), Task("communication", communication, "channel", after, COMMUNICATION)]


def hiding_speedup(compute: Any, communication: Any) -> Any:
    """Return S = (T_comp + T_comm) / max(T_comp, T_comm), at most 2 (the chapter's *Hiding Speedup*).

    Raises:
        ValueError: for negative or non-finite times, or two times of 0.
    """
    longest = max(_seconds("compute", compute), _seconds("communication", communication))
    if not longest:
        raise ValueError("compute and communication are both 0; there is nothing to hide")
    return (compute + communication) / longest


def interfered_time(compute: float, communication: float, interference: float) -> float:
    """Return the time of two overlapped phases when communication takes a share of the compute rate while it runs.

    It is max(T_comm, T_comp + share x T_comm): what communication takes from compute, compute does afterwards.
    """
    return max(communication, compute + interference * communication)


# ---------------------------------------------------------------------------------- the backward pass, layer by layer


def blocking(backward: Sequence[Any], all_reduce: Sequence[Any], forward: Any = 0) -> list[Task]:
    """Return a step that communicates only after the whole backward pass.

    Args:
        backward, all_reduce: seconds of each layer, layer 1 first.
        forward: seconds of the whole forward pass.
    """
    tasks = _backward(backward, forward)
    layers = range(len(_same_length(backward, all_reduce)), 0, -1)
    return tasks + [_reduce(f"AR {k}", all_reduce[k - 1], "channel", "bwd 1") for k in layers]


def layerwise(
    backward: Sequence[Any], all_reduce: Sequence[Any], forward: Any = 0, channels: int | None = 1
) -> list[Task]:
    """Return a step that starts a layer's all-reduce as soon as its gradient is there.

    Args:
        backward, all_reduce, forward: as in :func:`blocking`.
        channels: how many all-reduces may run at once, each as fast as alone; they are dealt out in turn. None: any
            number.
    """
    size = len(_same_length(backward, all_reduce))
    lanes = _whole("channels", size if channels is None else channels)
    reduces = [
        _reduce(f"AR {k}", all_reduce[k - 1], _channel((size - k) % lanes, lanes), f"bwd {k}")
        for k in range(size, 0, -1)
    ]
    return _backward(backward, forward) + reduces


def layerwise_time(backward: Sequence[Any], all_reduce: Sequence[Any], forward: Any = 0) -> Any:
    """Return the time of :func:`layerwise` on one channel: forward + max_l (sum_{j>=l} bwd_j + sum_{j<=l} AR_j).

    The all-reduce of layer l starts no earlier than the backward passes of layers L to l allow, and all-reduces of
    layers l to 1 follow it on the channel.

    >>> layerwise_time([1, 1, 1, 1], [2, 2, 2, 2])
    9
    """
    _same_length(backward, all_reduce)
    ready, sent, longest = sum(backward), 0, 0
    for computed, spoken in zip(backward, all_reduce, strict=True):
        sent += spoken
        longest = max(longest, ready + sent)
        ready -= computed
    return forward + longest


def layerwise_time_many_channels(backward: Sequence[Any], all_reduce: Sequence[Any], forward: Any = 0) -> Any:
    """Return the time of :func:`layerwise` with a channel a layer: forward + max_l (sum_{j>=l} bwd_j + AR_l)."""
    _same_length(backward, all_reduce)
    return forward + max(sum(backward[k:]) + all_reduce[k] for k in range(len(backward)))


def layerwise_time_printed(backward: Sequence[Any], all_reduce: Sequence[Any]) -> Any:
    """Return what the chapter prints as *Layerwise TIME*: sum bwd + max(0, AR_1 - sum_{l>=2} bwd). It is too small.

    It hides layer 1's all-reduce behind the backward passes of layers 2 to L, which are over before layer 1 begins.
    """
    _same_length(backward, all_reduce)
    return sum(backward) + max(0, all_reduce[0] - sum(backward[1:]))


def _backward(backward: Sequence[Any], forward: Any) -> list[Task]:
    """The forward pass and the backward passes of layers L to 1 on the compute lane."""
    tasks = [Task("forward", forward, "compute")] if forward else []
    return tasks + [Task(f"bwd {k}", backward[k - 1], "compute") for k in range(len(backward), 0, -1)]


def _reduce(name: str, seconds: Any, lane: str, *after: str) -> Task:
    return Task(name, seconds, lane, after, COMMUNICATION)


def _channel(number: int, of: int) -> str:
    return "channel" if of == 1 else f"channel {number + 1}"


# ----------------------------------------------------------------------------------------- DDP: gradients in buckets


def torch_buckets(nbytes: Sequence[int], cap: float | None = None) -> list[tuple[int, ...]]:
    """Return the buckets that torch's DistributedDataParallel makes of gradients of one type, each as layer numbers.

    Gradients join a bucket in the order in which they become ready, the last layer first. A bucket is closed when it
    has reached the cap, so it may be larger by almost one gradient.

    Args:
        nbytes: bytes of each layer's gradient, layer 1 first.
        cap: bytes (``bucket_cap_mb`` times 2**20). None: 1 MiB for the first bucket and 25 MiB for all others.

    >>> torch_buckets([8, 8, 8, 8, 8], cap=16)
    [(5, 4), (3, 2), (1,)]
    """
    if cap is not None and not (_is_real(cap) and cap > 0):
        raise ValueError(f"cap is {cap!r}; a positive number of bytes is needed, or None for torch's own")
    buckets: list[tuple[int, ...]] = []
    open_bucket, size = [], 0
    for layer in range(len(nbytes), 0, -1):
        open_bucket.append(layer)
        size += nbytes[layer - 1]
        limit = cap if cap is not None else _CAP if buckets else FIRST_BUCKET
        if size >= limit:
            buckets.append(tuple(open_bucket))
            open_bucket, size = [], 0
    return buckets + ([tuple(open_bucket)] if open_bucket else [])


def bucketed(
    backward: Sequence[Any],
    nbytes: Sequence[Any],
    buckets: Sequence[Sequence[int]],
    cost: Callable[[Any], Any],
    forward: Any = 0,
    channels: int = 1,
) -> list[Task]:
    """Return a step that all-reduces each bucket when the last of its gradients is ready.

    Args:
        backward: seconds of each layer, layer 1 first.
        nbytes: bytes of each layer's gradient.
        buckets: layer numbers of each bucket, in the order in which the channel takes them; see :func:`torch_buckets`.
            A bucket that comes too early in that order holds up those behind it.
        cost: seconds of an all-reduce of so many bytes, for example ``link.time``.
        forward: seconds of the forward pass.
        channels: buckets that may be on their way at once.

    Raises:
        ValueError: unless each layer is in exactly one bucket.
    """
    _same_length(backward, nbytes)
    _check_partition(buckets, len(backward))
    lanes = _whole("channels", channels)
    reduces = [
        _reduce(f"bucket {k + 1}", cost(_bytes_of(bucket, nbytes)), _channel(k % lanes, lanes), f"bwd {min(bucket)}")
        for k, bucket in enumerate(buckets)
    ]
    return _backward(backward, forward) + reduces


def bucketed_time(
    backward: Sequence[Any],
    nbytes: Sequence[Any],
    buckets: Sequence[Sequence[int]],
    cost: Callable[[Any], Any],
    forward: Any = 0,
) -> Any:
    """Return the time of :func:`bucketed` on one channel: forward + max_b (ready_b + sum_{c>=b} AR_c)."""
    _same_length(backward, nbytes)
    _check_partition(buckets, len(backward))
    rest, longest = 0, sum(backward)
    for bucket in reversed(buckets):
        rest += cost(_bytes_of(bucket, nbytes))
        longest = max(longest, sum(backward[min(bucket) - 1 :]) + rest)
    return forward + longest


def best_bucket_cap(
    backward: Sequence[Any], nbytes: Sequence[int], cost: Callable[[Any], Any], caps: Sequence[float] | None = None
) -> tuple[float, Any]:
    """Return the bucket size in bytes, of ``caps``, for which torch's rule gives the shortest step, and that time.

    Without ``caps``, 64 sizes from the smallest gradient to all of them are tried. Of equal ones the largest is taken.
    """
    total, least = sum(nbytes), min((size for size in nbytes if size), default=1)
    tried = caps or [least * (total / least) ** (k / 63) for k in range(64)]
    times = {cap: bucketed_time(backward, nbytes, torch_buckets(nbytes, cap), cost) for cap in tried}
    best = min(times.values())
    return next((cap, times[cap]) for cap in sorted(times, reverse=True) if times[cap] <= best * (1 + 1e-12))


def best_buckets(
    backward: Sequence[Any], nbytes: Sequence[Any], cost: Callable[[Any], Any]
) -> tuple[list[tuple[int, ...]], Any]:
    """Return the buckets of neighbouring layers with the shortest step of all, and its time, by dynamic programming.

    The first i gradients to be ready are all sent at the earliest by
    done(i) = min_{j<i} max(done(j), ready(i)) + cost(bytes of j+1..i).
    """
    size = len(_same_length(backward, nbytes))
    sizes, seconds = list(nbytes)[::-1], list(backward)[::-1]
    done, came_from, ready = [0], [0], 0
    for i in range(1, size + 1):
        ready += seconds[i - 1]
        load, options = 0, []
        for j in range(i - 1, -1, -1):
            load += sizes[j]
            options.append((max(done[j], ready) + cost(load), j))
        finish, cut = min(options)
        done.append(finish)
        came_from.append(cut)
    cuts = [size]
    while cuts[-1]:
        cuts.append(came_from[cuts[-1]])
    pairs = list(zip(cuts[1:], cuts, strict=False))[::-1]
    return [tuple(size - i for i in range(low, high)) for low, high in pairs], done[-1]


def _bytes_of(bucket: Sequence[int], nbytes: Sequence[Any]) -> Any:
    return sum(nbytes[layer - 1] for layer in bucket)


def _check_partition(buckets: Sequence[Sequence[int]], layers: int) -> None:
    found = sorted(layer for bucket in buckets for layer in bucket)
    if found != list(range(1, layers + 1)):
        raise ValueError(f"buckets hold the layers {found}; each of 1 to {layers} must be in exactly one")


# ------------------------------------------------------------------------------- sharded parameters: ZeRO-3 and FSDP


def sharded(
    forward: Sequence[Any],
    backward: Sequence[Any],
    all_gather: Sequence[Any],
    reduce_scatter: Sequence[Any],
    prefetch: int = 1,
) -> list[Task]:
    """Return a step of ZeRO-3 or FSDP: a layer's weights are gathered before each use, its gradients scattered after.

    All communication goes through one channel. The last layer keeps its weights from the forward to the backward pass.

    Args:
        forward, backward, all_gather, reduce_scatter: seconds of each layer, layer 1 first.
        prefetch: how many layers ahead weights are gathered; 0 gathers a layer's weights when it is needed. More of it
            holds more weights in memory at once.
    """
    size = len(_same_length(forward, backward, all_gather, reduce_scatter))
    if not (isinstance(prefetch, Integral) and prefetch >= 0):
        raise ValueError(f"prefetch is {prefetch!r}; a whole number of at least 0 is needed")
    uses = [f"fwd {k}" for k in range(1, size + 1)] + [f"bwd {k}" for k in range(size, 0, -1)]
    tasks = [Task(f"fwd {k}", forward[k - 1], "compute", (f"gather fwd {k}",)) for k in range(1, size + 1)]
    needs = [(f"bwd {k}", (f"gather bwd {k}",) if k < size else ()) for k in range(size, 0, -1)]
    tasks += [Task(name, backward[int(name[4:]) - 1], "compute", after) for name, after in needs]
    for place in range(len(uses)):
        # What is gathered ahead of this use goes out before the gradients that the use before it has left.
        tasks += _gather(place, uses, all_gather, prefetch)
        if place and uses[place - 1].startswith("bwd"):
            tasks.append(_scatter(uses[place - 1], reduce_scatter))
    return [*tasks, _scatter(uses[-1], reduce_scatter)]


def _gather(place: int, uses: Sequence[str], seconds: Sequence[Any], prefetch: int) -> list[Task]:
    """The gathers that go out while use number ``place`` computes; before the first use also those it needs itself."""
    targets = range(place + prefetch if place else 0, min(place + prefetch + 1, len(uses)))
    kept = len(uses) // 2
    found = []
    for target in (t for t in targets if t != kept):
        # Gathered no more than ``prefetch`` uses ahead: the use before those has ended by then.
        gate = target - prefetch - 1
        after = (uses[gate],) if gate >= 0 else ()
        layer = int(uses[target][4:])
        found.append(_reduce(f"gather {uses[target]}", seconds[layer - 1], "channel", *after))
    return found


def _scatter(use: str, seconds: Sequence[Any]) -> Task:
    layer = int(use[4:])
    return _reduce(f"scatter {layer}", seconds[layer - 1], "channel", use)


# ----------------------------------------------------------------------------------------- pipelines and accumulation


def one_forward_one_backward(stages: int, microbatches: int, forward: Any, backward: Any, send: Any = 0) -> list[Task]:
    """Return a pipeline-parallel step under the 1F1B schedule (Narayanan et al. 2019, 2021).

    Stage s of p starts with p - s forward passes of different microbatches (s from 1), then alternates one backward and
    one forward, and ends with the backward passes that are left.

    Args:
        stages, microbatches: p and the number of microbatches.
        forward, backward: seconds of one microbatch on one stage.
        send: seconds to send an activation or its gradient to the neighbour, on a channel for each pair and direction.
    """
    p, m = _whole("stages", stages), _whole("microbatches", microbatches)
    works = [(stage, work) for stage in range(p) for work in _stage_order(p, m, stage)]
    return [_work(stage, *work, p, forward, backward, send) for stage, work in works] + _sends(p, m, send)


def _stage_order(stages: int, microbatches: int, stage: int) -> list[tuple[str, int]]:
    ahead = min(stages - stage - 1, microbatches)
    order = [("F", k) for k in range(ahead)]
    for k in range(microbatches - ahead):
        order += [("F", ahead + k), ("B", k)]
    return order + [("B", k) for k in range(microbatches - ahead, microbatches)]


def _work(stage: int, what: str, batch: int, stages: int, forward: Any, backward: Any, send: Any) -> Task:
    """One pass of one microbatch on one stage, after its neighbour's (and the message between them)."""
    neighbour = stage - 1 if what == "F" else stage + 1
    after: tuple[str, ...] = ()
    if 0 <= neighbour < stages:
        after = (f"{'send ' if send else ''}{what}{batch} on {neighbour}",)
    elif what == "B":
        after = (f"F{batch} on {stage}",)
    seconds = forward if what == "F" else backward
    return Task(f"{what}{batch} on {stage}", seconds, f"stage {stage}", after, COMPUTE, stage)


def _sends(stages: int, microbatches: int, send: Any) -> list[Task]:
    """The messages between neighbours, those of one pair and direction on a channel of their own."""
    if not send:
        return []
    pairs = [("F", s, s + 1) for s in range(stages - 1)] + [("B", s, s - 1) for s in range(1, stages)]
    return [
        Task(f"send {w}{k} on {s}", send, f"{s} to {t}", (f"{w}{k} on {s}",), COMMUNICATION, s)
        for w, s, t in pairs
        for k in range(microbatches)
    ]


def pipeline_time(stages: int, microbatches: int, forward: Any, backward: Any) -> Any:
    """Return the time of 1F1B (and of GPipe) with free messages: (m + p - 1)(forward + backward)."""
    return (_whole("microbatches", microbatches) + _whole("stages", stages) - 1) * (forward + backward)


def bubble_fraction(stages: int, microbatches: int) -> float:
    """Return the idle time of a stage over its work, (p - 1) / m (Narayanan et al. 2021, section 2.2.1)."""
    return (_whole("stages", stages) - 1) / _whole("microbatches", microbatches)


def accumulated(
    forward: Any, backward: Sequence[Any], all_reduce: Sequence[Any], steps: int, every_step: bool = False
) -> list[Task]:
    """Return a step of so many microsteps, whose gradients are all-reduced in the last one, or in ``every_step``.

    DDP's backward pass returns when its all-reduces have ended, so the next microstep begins after them.
    """
    tasks: list[Task] = []
    for step in range(1, _whole("steps", steps) + 1):
        speaks = every_step or step == steps
        part = layerwise(backward, all_reduce, forward) if speaks else _backward(backward, forward)
        part = [_renamed(task, {t.name: f"{step}: {t.name}" for t in part}) for task in part]
        if tasks:
            part[0] = replace(part[0], after=(tasks[-1].name,))
        tasks += part
    return tasks


def _renamed(task: Task, names: Mapping[str, str]) -> Task:
    return replace(task, name=names[task.name], after=tuple(names[name] for name in task.after))


# ------------------------------------------------------------------------------------------------ what is refused


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _seconds(name: str, value: Any) -> Any:
    if not (_is_real(value) and value >= 0):
        raise ValueError(f"{name} is {value!r}; a finite number of at least 0 is needed")
    return value


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}; a whole number of at least 1 is needed")
    return int(value)


def _same_length(*sequences: Sequence[Any]) -> Sequence[Any]:
    lengths = [len(sequence) for sequence in sequences]
    if len(set(lengths)) != 1 or not lengths[0]:
        raise ValueError(f"the layers' times have {lengths} entries; the same number of at least 1 is needed")
    return sequences[0]
