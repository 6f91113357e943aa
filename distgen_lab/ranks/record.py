"""Record what a rank communicates: begin, wait and end of each operation, appended to a file as they happen.

The file outlives the process, so the launcher can say what a rank was doing when it was killed or aborted.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from inspect import Signature, signature
from pathlib import Path
from types import FrameType
from typing import Any

from distgen_lab.ranks.network import EmulatedNetwork
from distgen_lab.timeline import Span

__all__ = ["RecordedWork", "Recorder", "data_facts", "read_spans", "record_torch"]

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Recorder:
    """Appends one JSON line an event; one write a line, so that nothing is lost when the process is."""

    def __init__(self, path: Path, rank: int, library: str) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.rank, self.library, self.count, self.busy = rank, library, 0, False

    def _write(self, event: dict[str, Any]) -> None:
        os.write(self.file, (json.dumps(event) + "\n").encode())

    def begin(self, op: str, data: Any = None, **facts: Any) -> int:
        """Note that an operation on ``data`` begins; return its number."""
        self.count += 1
        frame = self._frame()
        where = {"file": frame.f_code.co_filename, "line": frame.f_lineno, "name": _name(frame, data)}
        self._write({"begin": self.count, "op": op, "t": time.monotonic()} | where | facts)
        return self.count

    def wait(self, number: int) -> None:
        """Note that the rank now waits for an operation that began without blocking."""
        frame = self._frame()
        self._write({"wait": number, "file": frame.f_code.co_filename, "line": frame.f_lineno})

    def end(self, number: int) -> None:
        """Note that an operation has ended."""
        self._write({"end": number, "t": time.monotonic()})

    def _frame(self) -> FrameType:
        """Return the innermost frame that is neither the library's nor ours: the caller's own code."""
        frame = sys._getframe(2)
        while frame.f_back and frame.f_code.co_filename.startswith((self.library, _HERE)):
            frame = frame.f_back
        return frame


def _name(frame: FrameType, data: Any) -> str:
    """What the caller calls the data, "" if it has no name there."""
    return next((name for name, value in frame.f_locals.items() if value is data), "") if data is not None else ""


def read_spans(path: Path, rank: int) -> list[Span]:
    """Return what a rank recorded; a line that was cut off by the end of the process is left out."""
    spans: dict[int, Span] = {}
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    for line in lines:
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue
        _apply(event, spans, rank)
    return list(spans.values())


def _apply(event: dict[str, Any], spans: dict[int, Span], rank: int) -> None:
    if "begin" in event:
        facts = {key: value for key, value in event.items() if key not in ("begin", "t")}
        facts["group"] = tuple(facts.get("group", ()))
        spans[event["begin"]] = Span(lane=rank, start=event["t"], **facts)
    elif "wait" in event:
        place = {"file": event["file"], "line": event["line"]}
        spans[event["wait"]] = replace(spans[event["wait"]], blocking=True, **place)
    elif spans[event["end"]].end is None:
        spans[event["end"]] = replace(spans[event["end"]], end=event["t"])


class RecordedWork:
    """A torch ``Work`` handle whose wait and completion are noted."""

    def __init__(self, work: Any, recorder: Recorder, number: int) -> None:
        self._work, self._recorder, self._number = work, recorder, number

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for the operation."""
        self._recorder.wait(self._number)
        result = self._work.wait(*args, **kwargs)
        self._recorder.end(self._number)
        return result

    def is_completed(self) -> bool:
        """Return whether the operation has ended."""
        done = self._work.is_completed()
        if done:
            self._recorder.end(self._number)
        return done

    def get_future(self) -> Any:
        """Return the future of the operation, which notes its end before anyone sees it."""
        return self._work.get_future().then(self._ended)

    def _ended(self, future: Any) -> Any:
        self._recorder.end(self._number)
        return future.value()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


_POINT_TO_POINT = {"send": "dst", "isend": "dst", "recv": "src", "irecv": "src"}
_ROOTS = {"broadcast": "src", "reduce": "dst", "gather": "dst", "scatter": "src", "broadcast_object_list": "src"}
_DATA = {
    "all_gather_into_tensor": "input_tensor", "all_gather_single": "input_tensor", "reduce_scatter": "input_list",
    "reduce_scatter_tensor": "input", "reduce_scatter_single": "input", "all_to_all": "input_tensor_list",
    "all_to_all_single": "input",
}  # fmt: skip
_COLLECTIVES = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "all_gather_single", "reduce_scatter",
    "reduce_scatter_tensor", "reduce_scatter_single", "all_to_all", "all_to_all_single", "gather", "scatter", "barrier",
    "monitored_barrier", "all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list",
)  # fmt: skip


def record_torch(recorder: Recorder | None, network: EmulatedNetwork | None = None) -> None:
    """Replace the communication functions of ``torch.distributed``, under both their names.

    The new ones record (unless ``recorder`` is None) and, if there is a ``network``, send through it.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    for name in (name for name in (*_POINT_TO_POINT, *_COLLECTIVES) if hasattr(distributed_c10d, name)):
        original = getattr(distributed_c10d, name)
        function = (network and network.replace(name, original)) or original
        if recorder is not None:
            function = _recorded(recorder, name, function, signature(original))
        for module in (dist, distributed_c10d):
            setattr(module, name, function)


def _recorded(recorder: Recorder, name: str, original: Callable, shape: Signature) -> Callable:
    """Wrap one function; what it calls in turn is not recorded again."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if recorder.busy:
            return original(*args, **kwargs)
        given = shape.bind(*args, **kwargs)
        given.apply_defaults()
        data = given.arguments.get(_DATA.get(name, "tensor"))
        number = recorder.begin(name, data, **_facts(name, given.arguments, data))
        recorder.busy = True
        try:
            result = original(*args, **kwargs)
        finally:
            recorder.busy = False
        if name in ("isend", "irecv") or given.arguments.get("async_op"):
            return RecordedWork(result, recorder, number) if result is not None else None
        recorder.end(number)
        return result

    call.__name__, call.__doc__, call.__wrapped__ = name, original.__doc__, original
    return call


def _facts(name: str, given: dict[str, Any], data: Any) -> dict[str, Any]:
    """What is worth knowing of a call: data, partner or group, root, reduction, tag."""
    import torch.distributed as dist

    group = given.get("group")
    facts = data_facts(data)
    facts["blocking"] = not (name in ("isend", "irecv") or given.get("async_op", False))
    if name in _POINT_TO_POINT:
        side = _POINT_TO_POINT[name]
        return facts | {"peer": _global_rank(given, side), "tag": given.get("tag", 0)}
    ranks = dist.get_process_group_ranks(group) if group is not None else range(dist.get_world_size())
    facts["group"] = list(ranks)
    if name in _ROOTS:
        facts["root"] = _global_rank(given, _ROOTS[name])
    if "op" in given:
        facts["reduce_op"] = str(given["op"]).rpartition(".")[2]
    return facts


def _global_rank(given: dict[str, Any], side: str) -> int | None:
    """The partner or root as a rank of the world, however it was named."""
    import torch.distributed as dist

    if given.get(side) is None and given.get(f"group_{side}") is not None:
        return dist.get_global_rank(given.get("group") or dist.group.WORLD, given[f"group_{side}"])
    default = None if side == "src" and "tag" in given else 0
    return default if given.get(side) is None else int(given[side])


def data_facts(data: Any) -> dict[str, Any]:
    """Return elements, bytes and type of a tensor or a list of tensors."""
    tensors: Iterable[Any] = data if isinstance(data, list | tuple) else [data]
    tensors = [tensor for tensor in tensors if hasattr(tensor, "element_size")]
    count = sum(tensor.numel() for tensor in tensors)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return {"count": count, "nbytes": size, "dtype": str(tensors[0].dtype).removeprefix("torch.") if tensors else ""}
