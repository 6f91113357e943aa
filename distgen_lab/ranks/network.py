"""A link on a laptop: real messages between ranks that end no earlier than alpha + n beta after they began.

The sender notes when it began a message in a file that the receiver reads. A rank sends one message at a time (the next
begins when the one before has left, alpha + n beta later) and takes in one at a time. Collectives of the library
communicate below the reach of the emulation; they are refused, so that nobody takes loopback times for the link's.
"""

import os
import struct
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # importing it would load numpy into every rank
    from distgen_lab.alphabeta import Link

__all__ = ["EmulatedNetwork"]

_RECORD = struct.Struct("qd")
"""Tag, and the moment the message began."""


class EmulatedNetwork:
    """Point-to-point functions of ``torch.distributed`` behind an emulated link."""

    refused = frozenset(
        ("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "all_gather_single", "gather",
         "scatter", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single", "all_to_all",
         "all_to_all_single")
    )  # fmt: skip

    def __init__(self, link: "Link", isend: Callable, irecv: Callable, rank: int, folder: Path) -> None:
        self.link, self._isend, self._irecv, self.rank, self.folder = link, isend, irecv, rank, folder
        self.sending_until = self.receiving_until = 0.0
        self._files: dict[tuple[int, int], int] = {}
        self._begun: dict[tuple[int, int], deque[float]] = defaultdict(deque)

    def replace(self, name: str, original: Callable) -> Callable | None:
        """Return what stands for a function of the library, None if it is left as it is."""
        if name in self.refused:
            return _refusal(name, original)
        return {"send": self.send, "isend": self.isend, "recv": self.recv, "irecv": self.irecv}.get(name)

    def isend(self, tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, **rest: Any) -> Any:
        """Send; the handle is done when the message has left the emulated port."""
        begin = max(time.monotonic(), self.sending_until)
        until = self.sending_until = begin + self.link.time(_size(tensor))
        peer = _world_rank(dst, group, rest.get("group_dst"))
        os.write(self._file(self.rank, peer), _RECORD.pack(tag, begin))
        return _Pending(self._isend(tensor, dst, group, tag, **rest), lambda work: until)

    def irecv(self, tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, **rest: Any) -> Any:
        """Receive; the handle is done when the message has come through the emulated port."""
        peer = _world_rank(src, group, rest.get("group_src"))

        def arrival(work: Any) -> float | None:
            begun = self._begin(work._source_rank() if peer is None else peer, tag)
            if begun is None:
                return None
            start = max(begun + self.link.alpha, self.receiving_until)
            self.receiving_until = start + _size(tensor) * self.link.beta
            return self.receiving_until

        return _Pending(self._irecv(tensor, src, group, tag, **rest), arrival)

    def send(self, *args: Any, **kwargs: Any) -> None:
        """Send and wait."""
        self.isend(*args, **kwargs).wait()

    def recv(self, *args: Any, **kwargs: Any) -> int:
        """Receive and wait; return the sender."""
        pending = self.irecv(*args, **kwargs)
        pending.wait()
        return pending.work._source_rank()

    def _file(self, source: int, target: int) -> int:
        """The file in which ``source`` notes its messages to ``target``."""
        if (source, target) not in self._files:
            path = self.folder / f"{source}-{target}.begun"
            self._files[source, target] = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        return self._files[source, target]

    def _begin(self, source: int, tag: int) -> float | None:
        """When the next message with this tag from ``source`` began; None if it has not.

        The sender notes it before it sends: once the message is here, so is its moment.
        """
        waiting = self._begun[source, tag]
        while not waiting and (noted := os.read(self._file(source, self.rank), 64 * _RECORD.size)):
            for found, moment in _RECORD.iter_unpack(noted):
                self._begun[source, found].append(moment)
        return waiting.popleft() if waiting else None


class _Pending:
    """Handle of an emulated message."""

    def __init__(self, work: Any, end: Callable[[Any], float]) -> None:
        self.work, self._end, self._until = work, end, None

    def wait(self, timeout: Any = None) -> bool:
        """Wait for the real message and for the emulated one."""
        self.work.wait()
        self._until = self._end(self.work) if self._until is None else self._until
        time.sleep(max(0.0, self._until - time.monotonic()))
        return True

    def is_completed(self) -> bool:
        """Return whether the emulated message has come through; the real one is then there or about to be."""
        if self._until is None:
            self._until = self._end(self.work)
        return self._until is not None and time.monotonic() >= self._until and self.wait()


def _world_rank(rank: int | None, group: Any, group_rank: int | None) -> int | None:
    import torch.distributed as dist

    if group_rank is None:
        return rank
    return dist.get_global_rank(group or dist.group.WORLD, group_rank)


def _size(tensor: Any) -> int:
    return tensor.numel() * tensor.element_size()


def _refusal(name: str, original: Callable) -> Callable:
    """Refuse a collective; but those that carry Python objects (a run's figures, not its data) may use it."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        if _for_objects(sys._getframe(1)):
            return original(*args, **kwargs)
        raise RuntimeError(
            f"{name} communicates inside the library, where the emulated link does not reach; "
            "write it with isend and recv, or launch without network="
        )

    return refuse


def _for_objects(frame: FrameType | None) -> bool:
    """Whether the call comes from ``all_gather_object`` or one like it, our own wrapper between them or not."""
    callers = (frame, frame and frame.f_back)
    return any(f is not None and "_object" in f.f_code.co_name for f in callers)
