"""One shape for what ranks did and for what a model says they do: spans on lanes.

A recorded run of real processes, a simulated schedule and a profiler trace are all a :class:`Timeline`, so one picture,
one count of messages and one export serve them all.
"""

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass

__all__ = ["Span", "Timeline", "Traffic"]

_SENDS, _RECEIVES = ("send", "isend"), ("recv", "irecv")


@dataclass(frozen=True)
class Span:
    """One operation on one lane (a rank or a stream).

    Attributes:
        lane: rank or stream.
        op: "send", "recv", "all_reduce", ..., or what a compute span is called.
        start, end: seconds on a clock all lanes share; ``end`` is None while the operation has not ended.
        nbytes: bytes this lane hands to the operation (a receive: bytes it waits for).
        count, dtype: elements and their type.
        peer: the other rank of a send or receive, None for any.
        group: ranks of a collective, in order; empty for a send or receive.
        root: the root of a rooted collective.
        reduce_op: "SUM", "MAX", ..., for a reduction.
        tag: tag of a message.
        blocking: whether the lane stands still until the end (for an asynchronous operation: whether it waits).
        file, line, name: where the caller's code stands, and what it calls the data.
    """

    lane: int
    op: str
    start: float
    end: float | None = None
    nbytes: int = 0
    count: int = 0
    dtype: str = ""
    peer: int | None = None
    group: tuple[int, ...] = ()
    root: int | None = None
    reduce_op: str = ""
    tag: int = 0
    blocking: bool = True
    file: str = ""
    line: int = 0
    name: str = ""

    @property
    def seconds(self) -> float:
        """How long it took; 0 while it has not ended."""
        return 0.0 if self.end is None else self.end - self.start

    @property
    def is_collective(self) -> bool:
        """Whether a whole group takes part."""
        return bool(self.group)


@dataclass(frozen=True)
class Traffic:
    """What one lane sent and took part in: messages and bytes it sent and received, and collectives by operation."""

    lane: int
    sent_messages: int
    sent_bytes: int
    received_messages: int
    received_bytes: int
    collectives: dict[str, int]


class Timeline:
    """Spans in order of their start."""

    def __init__(self, spans: Iterable[Span], lanes: int | None = None) -> None:
        self.spans = sorted(spans, key=lambda span: (span.start, span.lane))
        self.lanes = lanes if lanes is not None else 1 + max((span.lane for span in self.spans), default=-1)

    def on(self, lane: int) -> list[Span]:
        """Return the spans of one lane, in order."""
        return [span for span in self.spans if span.lane == lane]

    @property
    def seconds(self) -> float:
        """Time from the first start to the last end."""
        ends = [span.end for span in self.spans if span.end is not None]
        return max(ends) - self.spans[0].start if ends else 0.0

    def traffic(self) -> list[Traffic]:
        """Return messages, bytes and collectives of each lane, in order of the lanes."""
        return [_traffic(lane, self.on(lane)) for lane in range(self.lanes)]

    def messages(self) -> list[tuple[Span, Span]]:
        """Return each message as its send and its receive, paired in order for each sender, receiver and tag.

        A receive from any rank has no known sender; it takes no part.
        """
        waiting: dict[tuple, deque[Span]] = defaultdict(deque)
        for span in self.spans:
            if span.op in _RECEIVES:
                waiting[span.peer, span.lane, span.tag].append(span)
        sends = (span for span in self.spans if span.op in _SENDS)
        queues = ((span, waiting[span.lane, span.peer, span.tag]) for span in sends)
        return [(send, queue.popleft()) for send, queue in queues if queue]

    def chrome_trace(self) -> str:
        """Return the timeline as Chrome trace JSON (microseconds), to open in a trace viewer."""
        events = [_chrome_event(span) for span in self.spans if span.end is not None]
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _traffic(lane: int, spans: list[Span]) -> Traffic:
    sent = [span for span in spans if span.op in _SENDS]
    received = [span for span in spans if span.op in _RECEIVES and span.end is not None]
    collectives = Counter(span.op for span in spans if span.is_collective)
    sizes = (sum(span.nbytes for span in part) for part in (sent, received))
    sent_bytes, received_bytes = sizes
    return Traffic(lane, len(sent), sent_bytes, len(received), received_bytes, dict(collectives))


def _chrome_event(span: Span) -> dict:
    facts = {key: value for key, value in asdict(span).items() if value and key not in ("lane", "op", "start", "end")}
    times = {"ts": span.start * 1e6, "dur": span.seconds * 1e6}
    return {"name": span.op, "ph": "X", "pid": span.lane, "tid": 0, "args": facts} | times
