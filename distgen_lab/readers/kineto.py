"""Read PyTorch profiler traces (Kineto, Chrome JSON, plain or .gz) and count where the time of a step goes.

What is counted, for each rank: *communication* is the union of the intervals of its NCCL and RCCL kernels, *compute*
the union of all other kernels, *exposed* communication what no compute covers, *copies* what only memcpy and memset
cover, *idle* the rest. Waiting for a late rank is communication here, because that is where the kernel stands; the
report over several ranks takes it apart again: the ranks of a collective end together, so that whoever began last has
the shortest kernel, and the others waited for as long as theirs is longer.

Kernels are told by their category and name, not by "nccl" anywhere: that word also stands in CPU operators, annotations
and Python frames. All generations of names are known: ncclAllReduceRingLLKernel_sum_f32, ncclKernel_AllReduce_RING_LL,
ncclDevKernel_AllReduce_Sum_f32, ncclDevKernel_Generic, ncclSymkDevKernel, mscclKernel.

Sources: pytorch/kineto, libkineto/src/output_json.cpp; pytorch, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp.
"""

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from distgen_lab.readers.source import ReadError
from distgen_lab.readers.streaming import EventStream
from distgen_lab.timeline import Span, Timeline
from distgen_lab.units import US

__all__ = ["Message", "Shares", "Step", "Trace", "TraceReport", "Waiting", "read_trace", "read_traces", "report"]

COMPUTE, COMMUNICATION, COPY = 0, 1, 2
_KINDS = {
    "kernel": COMPUTE,
    "concurrent_kernel": COMPUTE,
    "gpu_memcpy": COPY,
    "gpu_memset": COPY,
    "memcpy": COPY,
    "memset": COPY,
}
_COMM = re.compile(r"nccl|rccl|msccl", re.IGNORECASE)
_OTHER_COMM = re.compile(
    r"cross_device_reduce|multimem_all|nvshmem|one_shot_all_reduce|two_shot_all_reduce|deep_ep", re.IGNORECASE
)
_OPS = (
    ("all_reduce", r"all_?reduce"), ("all_gather", r"all_?gather"), ("reduce_scatter", r"reduce_?scatter"),
    ("all_to_all", r"all_?to_?all"), ("broadcast", r"broadcast"), ("sendrecv", r"send_?recv|\bsend\b|\brecv\b"),
    ("reduce", r"reduce"), ("barrier", r"barrier"),
)  # fmt: skip
_RECORD = re.compile(r"^(nccl|gloo|mpi|ucc|c10d)::?(\w+)", re.IGNORECASE)
_STEP = re.compile(r"^ProfilerStep\s*#\s*(\d{1,15})$")
_BYTES = {
    "float": 4, "float32": 4, "double": 8, "half": 2, "float16": 2, "bfloat16": 2, "long": 8, "long int": 8, "int64": 8,
    "int": 4, "int32": 4, "short": 2, "byte": 1, "char": 1, "signed char": 1, "unsigned char": 1, "bool": 1, "uint8": 1,
    "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
_LATEST = 1e18


@dataclass(frozen=True)
class Message:
    """One collective as c10d recorded it on the CPU, or as a kernel carries it: operation, bytes of one rank, group."""

    op: str
    nbytes: int
    ranks: int | None = None
    backend: str = "nccl"


@dataclass(frozen=True)
class Step:
    """One ProfilerStep: number, and its window in seconds from the beginning of the trace."""

    number: int
    start: float
    end: float


@dataclass(frozen=True)
class Shares:
    """Where the seconds of a window went, on one rank: compute + exposed + copies + idle = window."""

    window: float
    compute: float
    communication: float
    exposed: float
    copies: float
    idle: float

    @property
    def overlap(self) -> float | None:
        """Share of the communication that compute covers; None without communication."""
        return 1 - self.exposed / self.communication if self.communication else None


@dataclass
class Trace:
    """One trace file: one process, one rank.

    Attributes:
        source, form: the file, and "object" or "array".
        rank, world_size, backend: of distributedInfo; None where it says nothing.
        events: events of any kind; ``flows`` of them are arrows between CPU and GPU.
        start, end: seconds of each kernel, memcpy and memset, from the beginning of the trace, in order of start.
        kind: 0 compute, 1 communication, 2 copy, for each of them.
        stream, device: their stream and GPU.
        name_ids, names: their names.
        nbytes: bytes of the message of each communication kernel that carries it, else 0.
        messages: collectives as c10d recorded them on the CPU.
        steps: ProfilerSteps, in order.
        cpu_communication: (start, end, op) in seconds of collectives that ran on the CPU (Gloo, MPI).
        named_elsewhere: events that are no kernels and have nccl in their name.
        first: time of the beginning of the trace in microseconds, as the file has it, and ``base`` of its clock.
        notes: what to know about the numbers.
    """

    source: str
    form: str
    rank: int | None
    world_size: int | None
    backend: str | None
    events: int
    flows: int
    start: np.ndarray
    end: np.ndarray
    kind: np.ndarray
    stream: np.ndarray
    device: np.ndarray
    name_ids: np.ndarray
    names: tuple[str, ...]
    nbytes: np.ndarray
    messages: tuple[Message, ...]
    steps: tuple[Step, ...]
    cpu_communication: tuple[tuple[float, float, str], ...]
    named_elsewhere: int
    first: float
    base: float
    notes: tuple[str, ...]
    header: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def kernels(self) -> int:
        """Number of kernels, communication included, copies not."""
        return int((self.kind != COPY).sum())

    @property
    def communication_kernels(self) -> int:
        """Number of NCCL and RCCL kernels."""
        return int((self.kind == COMMUNICATION).sum())

    @property
    def streams(self) -> int:
        """Number of streams that kernels ran on."""
        mine = self.kind != COPY
        return len(set(zip(self.device[mine].tolist(), self.stream[mine].tolist(), strict=True)))

    @property
    def communication_sum(self) -> float:
        """Seconds of all communication kernels added up; more than their union where they overlap each other."""
        mine = self.kind == COMMUNICATION
        return float((self.end[mine] - self.start[mine]).sum())

    @property
    def kernel_sum(self) -> float:
        """Seconds of all kernels added up."""
        mine = self.kind != COPY
        return float((self.end[mine] - self.start[mine]).sum())

    def shares(self, step: int | None = None) -> Shares | None:
        """Return where the time goes in a step (its number), or from the first to the last kernel of the trace.

        None for a trace without kernels: there is nothing to count then, which is not the same as 0 % exposed.

        Raises:
            ValueError: for a step that is not in the trace.
        """
        if not self.kernels:
            return None
        low, high = self._window(step)
        parts = [self._intervals(low, high, kind) for kind in (COMPUTE, COMMUNICATION, COPY)]
        compute, communication = covered(*parts[0]), covered(*parts[1])
        both, busy = (covered(*map(np.concatenate, zip(*some, strict=True))) for some in (parts[:2], parts))
        window = high - low
        return Shares(window, compute, communication, both - compute, busy - both, max(0.0, window - busy))

    def _window(self, step: int | None) -> tuple[float, float]:
        if step is None:
            return float(self.start.min()), float(self.end.max())
        found = next((one for one in self.steps if one.number == step), None)
        if found is None:
            there = ", ".join(str(one.number) for one in self.steps) or "none"
            raise ValueError(f"step is {step}; the trace has {there}")
        return found.start, found.end

    def _intervals(self, low: float, high: float, kind: int) -> tuple[np.ndarray, np.ndarray]:
        """Starts and ends of one kind, cut to a window."""
        mine = (self.kind == kind) & (self.end > low) & (self.start < high)
        return np.maximum(self.start[mine], low), np.minimum(self.end[mine], high)

    def collectives(self) -> list[tuple[str, float, float, int]]:
        """Return (operation, start, end, bytes or 0) of each communication kernel, in order."""
        places = np.flatnonzero(self.kind == COMMUNICATION)
        return [
            (op_of(self.names[self.name_ids[i]]), float(self.start[i]), float(self.end[i]), int(self.nbytes[i]))
            for i in places
        ]

    def buckets(self, op: str = "all_reduce") -> Counter[int]:
        """Return how many messages of which bytes an operation sent: of the kernels if they say it, else of c10d."""
        said = Counter(nbytes for name, _, _, nbytes in self.collectives() if name == op and nbytes)
        return said or Counter(message.nbytes for message in self.messages if message.op == op and message.nbytes)

    def timeline(self, step: int | None = None, most: int = 5000) -> Timeline:
        """Return the kernels of a step (of the whole trace) as a Timeline: a lane a stream, in the streams' order.

        Communication spans are called by their operation ("all_reduce", ...), other kernels "compute", copies "copy";
        their name is the kernel's. Of more than ``most`` spans the longest are kept.
        """
        if not len(self.start):
            return Timeline([], 0)
        low, high = self._window(step)
        inside = np.flatnonzero((self.end > low) & (self.start < high))
        longest = inside[np.argsort(self.start[inside] - self.end[inside], kind="stable")[:most]]
        lanes = {
            key: lane
            for lane, key in enumerate(sorted(set(zip(self.device.tolist(), self.stream.tolist(), strict=True))))
        }
        return Timeline([self._span(int(i), lanes, low) for i in longest], len(lanes))

    def _span(self, i: int, lanes: Mapping[tuple[int, int], int], low: float) -> Span:
        name = self.names[self.name_ids[i]]
        op = {COMPUTE: "compute", COPY: "copy"}.get(int(self.kind[i])) or op_of(name)
        lane = lanes[int(self.device[i]), int(self.stream[i])]
        return Span(lane, op, float(self.start[i]) - low, float(self.end[i]) - low, int(self.nbytes[i]), name=name[:80])


def covered(start: np.ndarray, end: np.ndarray) -> float:
    """Return the length of the union of intervals, in any order.

    >>> covered(np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0, 6.0]))
    4.0
    """
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.concatenate([start[:1], np.maximum.accumulate(end)[:-1]])
    return float(np.maximum(0.0, end - np.maximum(start, reached)).sum())


def op_of(name: str) -> str:
    """Return the operation in a kernel's or annotation's name, "collective" where it does not say."""
    plain = name.split("(")[0].split("<")[0]
    return next((op for op, words in _OPS if re.search(words, plain, re.IGNORECASE)), "collective")


# ------------------------------------------------------------------------------------------------ reading


def read_trace(path: str | os.PathLike) -> Trace:
    """Return one trace, read event by event in bounded memory.

    Raises:
        ReadError: for what is no trace, is cut, or has a kernel without a time: file, line and event are named.
    """
    stream = EventStream(path)
    reader = _Reader(stream)
    for event in stream:
        reader.take(event)
    return reader.trace()


class _Reader:
    """Keeps what matters of the events."""

    def __init__(self, stream: EventStream) -> None:
        self.stream, self.notes = stream, []
        self.rows: list[tuple[float, float, int, int, int, int, int]] = []
        self.names: dict[str, int] = {}
        self.kinds: list[int] = []
        self.odd: list[bool] = []
        self.steps: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
        self.messages: list[tuple[float, Message]] = []
        self.cpu: list[tuple[float, float, str]] = []
        self.flows = self.elsewhere = self.others = 0

    def take(self, event: Any) -> None:
        """Look at one event."""
        if not isinstance(event, dict):
            raise self._fail(f"is {type(event).__name__}, an object is needed", "")
        phase, category, name = event.get("ph"), event.get("cat"), event.get("name")
        if category == "ac2g" or phase in ("s", "f", "t"):
            self.flows += category == "ac2g"
            return
        if phase != "X" or not isinstance(name, str) or not isinstance(category, str):
            return
        kind = _KINDS.get(category.lower())
        if kind is not None:
            self._kernel(event, name, kind, category)
            return
        if "nccl" in name or "NCCL" in name:
            self.elsewhere += 1
        if category in ("user_annotation", "gpu_user_annotation", "cpu_op"):
            self._annotation(event, name, category)

    def _kernel(self, event: dict, name: str, kind: int, category: str) -> None:
        number = self.names.get(name)
        if number is None:
            number = self.names[name] = len(self.names)
            plain = name.split("(")[0].split("<")[0]
            self.kinds.append(COMMUNICATION if _COMM.search(plain) else COMPUTE)
            self.odd.append(self.kinds[-1] == COMPUTE and _OTHER_COMM.search(name) is not None)
        if kind == COMPUTE:
            kind = self.kinds[number]
            self.others += self.odd[number]
        start, length = self._time(event, "ts", category), self._time(event, "dur", category)
        if length < 0:
            raise self._fail("dur below zero", category, "dur")
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        nbytes = _said_bytes(args) if kind == COMMUNICATION else 0
        stream, device = args.get("stream", event.get("tid")), args.get("device", event.get("pid"))
        self.rows.append((start, length, kind, _small(stream), _small(device), number, nbytes))

    def _time(self, event: dict, key: str, category: str) -> float:
        value = event.get(key)
        if value is None:
            raise self._fail(f"no {key}", category, key)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or abs(value) > _LATEST
        ):
            raise self._fail(f"{key} is not a number: {str(value)[:40]!r}", category, key)
        return value

    def _fail(self, problem: str, category: str, key: str = "") -> ReadError:
        where = f"event {self.stream.index}" + (f" ({category})" if category else "")
        error = self.stream.fail(problem, where)
        error.field = key or where
        return error

    def _annotation(self, event: dict, name: str, category: str) -> None:
        if found := _STEP.match(name):
            if category == "cpu_op":
                return
            start, length = self._time(event, "ts", category), self._time(event, "dur", category)
            if length < 0:
                raise self._fail("dur below zero", category, "dur")
            self.steps[category].append((int(found[1]), start, start + length))
        elif category == "user_annotation" and (found := _RECORD.match(name)):
            start, length = self._time(event, "ts", category), self._time(event, "dur", category)
            op, backend = op_of(found[2]), found[1].lower()
            args = event.get("args")
            nbytes = _dims_bytes(args) if isinstance(args, dict) else 0
            self.messages.append((start, Message(op, nbytes, None, backend)))
            if backend in ("gloo", "mpi"):
                self.cpu.append((start, start + max(0, length), op))

    def trace(self) -> Trace:
        """The trace, with times from its beginning in seconds."""
        header = self.stream.header
        info = header.get("distributedInfo")
        info = info if isinstance(info, dict) else {}
        self.rows.sort(key=lambda row: row[:2])
        first = min(
            [row[0] for row in self.rows[:1]]
            + [s[1] for some in self.steps.values() for s in some]
            + [c[0] for c in self.cpu],
            default=0,
        )
        starts = np.array([row[0] - first for row in self.rows], float) * US
        ends = np.array([row[0] - first + row[1] for row in self.rows], float) * US
        columns = [np.array([row[place] for row in self.rows], np.int64) for place in range(2, 7)]
        kind, stream, device, names, nbytes = columns
        steps = self.steps.get("gpu_user_annotation") or self.steps.get("user_annotation") or []
        windows = tuple(Step(n, (a - first) * US, (b - first) * US) for n, a, b in sorted(steps, key=lambda s: s[1]))
        messages = tuple(message for _, message in sorted(self.messages, key=lambda pair: pair[0]))
        base = header.get("baseTimeNanoseconds")
        base = base / 1000 if isinstance(base, int | float) and not isinstance(base, bool) and abs(base) < 1e21 else 0.0
        cpu = tuple(((a - first) * US, (b - first) * US, op) for a, b, op in self.cpu)
        rank, world = (_whole(info.get(key)) for key in ("rank", "world_size"))
        backend = info.get("backend") if isinstance(info.get("backend"), str) else None
        return Trace(
            self.stream.path, self.stream.form, rank, world, backend, self.stream.index + 1, self.flows, starts, ends,
            kind.astype(np.int8), stream, device, names, tuple(self.names), nbytes, messages, windows, cpu,
            self.elsewhere, float(first), base, tuple(self._remarks(kind, cpu)), header,
        )  # fmt: skip

    def _remarks(self, kind: np.ndarray, cpu: Sequence) -> Iterator[str]:
        if not (kind != COPY).any():
            yield "no GPU kernel in the trace: compute, communication and overlap cannot be measured from it"
        if cpu:
            yield f"{len(cpu)} collectives ran on the CPU; how much of them compute hides cannot be told"
        if self.others:
            yield f"{self.others} kernels look like communication outside NCCL (custom all-reduce); counted as compute"


def _small(value: object) -> int:
    """A stream or device number; -1 for what is none."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value):
        return int(value)
    return value if isinstance(value, int) and abs(value) < 2**62 else -1


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def _type_bytes(name: object) -> int:
    return _BYTES.get(str(name).lower().removeprefix("c10::").removeprefix("torch.").strip(), 0)


def _said_bytes(args: Mapping) -> int:
    """Bytes of the larger buffer of a kernel that carries its message (torch 2.2 and newer)."""
    counts = [args.get(key) for key in ("In msg nelems", "Out msg nelems")]
    known = [n for n in counts if isinstance(n, int) and not isinstance(n, bool) and 0 < n < 2**48]
    return max(known, default=0) * _type_bytes(args.get("dtype"))


def _dims_bytes(args: Mapping) -> int:
    """Bytes of the input tensors of a c10d record."""
    total = 0
    dims, types = args.get("Input Dims"), args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list):
        return 0
    for shape, kind in zip(dims, types, strict=False):
        if isinstance(shape, list) and shape and all(isinstance(n, int) and 0 <= n < 2**48 for n in shape):
            total += math.prod(shape) * _type_bytes(kind)
    return total if total < 2**60 else 0


# ------------------------------------------------------------------------------------------------ several ranks


@dataclass(frozen=True)
class Waiting:
    """How long a rank waited in collectives, and for whom most: seconds by the rank that began last."""

    rank: int
    seconds: float
    by_rank: dict[int, float]

    @property
    def mostly_for(self) -> int | None:
        """The rank it waited for longest; None if it waited for nobody."""
        return max(self.by_rank, key=self.by_rank.__getitem__) if self.by_rank else None


@dataclass
class TraceReport:
    """The traces of some or all ranks of one job, in order of their ranks."""

    traces: tuple[Trace, ...]
    notes: tuple[str, ...] = ()

    @property
    def world_size(self) -> int | None:
        """Ranks of the job, where the traces say it."""
        return next((trace.world_size for trace in self.traces if trace.world_size), None)

    @property
    def complete(self) -> bool:
        """Whether all ranks of the job are here; False where the traces do not say how many there are."""
        return self.world_size is not None and {trace.rank for trace in self.traces} == set(range(self.world_size))

    @property
    def coverage(self) -> str:
        """What the report is over, in words."""
        said = self.world_size
        if said is None:
            return f"{len(self.traces)} rank{'s' * (len(self.traces) > 1)}; the traces do not say of how many"
        return f"all {said} ranks" if self.complete else f"{len(self.traces)} of {said} ranks only"

    @cached_property
    def waiting(self) -> tuple[Waiting, ...]:
        """How long each rank waited and for whom; empty for fewer than two ranks with the same collectives."""
        return tuple(_waiting(self.traces))

    @property
    def straggler(self) -> int | None:
        """The rank that the others waited for longest."""
        blamed: Counter[int] = Counter()
        for one in self.waiting:
            blamed.update(one.by_rank)
        return blamed.most_common(1)[0][0] if blamed else None


def read_traces(paths: Iterable[str | os.PathLike]) -> TraceReport:
    """Return the report over the traces of several ranks, one file a rank.

    Raises:
        ReadError: as :func:`read_trace`, and as :func:`report`.
    """
    return report([read_trace(path) for path in paths])


def report(traces: Sequence[Trace]) -> TraceReport:
    """Return the report over traces of one job.

    Raises:
        ReadError: for two traces of one rank, or of jobs of different size.
    """
    seen: dict[int, Trace] = {}
    sizes: dict[int, str] = {}
    for trace in traces:
        if trace.rank is not None and seen.setdefault(trace.rank, trace) is not trace:
            raise ReadError(
                trace.source, f"is rank {trace.rank} like {seen[trace.rank].source}", field="distributedInfo"
            )
        if trace.world_size:
            sizes.setdefault(trace.world_size, trace.source)
        if len(sizes) > 1:
            raise ReadError(trace.source, f"the traces are of jobs of {sorted(sizes)} ranks", field="distributedInfo")
    return TraceReport(tuple(sorted(traces, key=lambda trace: trace.rank if trace.rank is not None else 2**31)))


def _waiting(traces: Sequence[Trace]) -> Iterator[Waiting]:
    """Match the k-th collective of each operation over the ranks; the shortest kernel of a match began last."""
    known = [trace for trace in traces if trace.rank is not None]
    calls = {trace.rank: [(op, end - start) for op, start, end, _ in trace.collectives()] for trace in known}
    orders = {tuple(op for op, _ in some) for some in calls.values()}
    if len(known) < 2 or len(orders) != 1 or not next(iter(orders)):
        return
    waited: dict[int, Counter[int]] = {rank: Counter() for rank in calls}
    for match in zip(*calls.values(), strict=True):
        lengths = dict(zip(calls, (length for _, length in match), strict=True))
        last = min(lengths, key=lengths.__getitem__)
        for rank, length in lengths.items():
            if rank != last:
                waited[rank][last] += length - lengths[last]
    for rank, by_rank in waited.items():
        yield Waiting(rank, sum(by_rank.values()), dict(by_rank))
