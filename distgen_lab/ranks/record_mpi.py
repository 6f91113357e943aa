"""Record what a rank communicates through mpi4py: communicators and requests of the same interface that take notes.

mpi4py's types cannot be changed, so ``MPI.COMM_WORLD`` and ``MPI.Request`` are bound to subclasses; what a
communicator or request brings forth (``Split``, ``Dup``, ``Create_cart``, ``Isend``) is of these subclasses too.
"""

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from inspect import Signature, signature
from numbers import Integral
from operator import index
from typing import Any

from mpi4py import MPI

from distgen_lab.ranks.record import Recorder

__all__ = ["MpiRecorder", "RecordedCartcomm", "RecordedIntracomm", "RecordedPrequest", "RecordedRequest", "record_mpi"]


class MpiRecorder(Recorder):
    """A recorder that can correct an operation that has not ended: a receive knows its partner only afterwards.

    Attributes:
        begun: the operations that have not ended, by number.
        failed: number of the operation that raised last.
        pickled: bytes of the first object pickled since an operation began.
        kept: where each persistent request that has not been freed was made.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.begun: dict[int, dict[str, Any]] = {}
        self.failed, self.pickled = 0, 0
        self.kept: dict[int, str] = {}

    def _write(self, event: dict[str, Any]) -> None:
        if "begin" in event:
            self.begun[event["begin"]] = event
        elif "wait" in event:
            place = {"blocking": True, "file": event["file"], "line": event["line"]}
            self.begun[event["wait"]] = self.begun[event["wait"]] | place
        else:
            self.begun.pop(event["end"], None)
        super()._write(event)

    def amend(self, number: int, **facts: Any) -> None:
        """Replace facts of an operation that has not ended."""
        known = self.begun[number]
        if any(known.get(name) != value for name, value in facts.items()):
            self._write(known | facts)

    def place(self) -> str:
        """Return where the caller's code stands."""
        frame = self._frame()
        return f"line {frame.f_lineno} of {frame.f_code.co_filename}"

    @contextmanager
    def during(self, numbers: Sequence[int]) -> Iterator[None]:
        """Note the end of the operations if they raise."""
        try:
            yield
        except BaseException:
            self.failed = numbers[0] if numbers else 0
            for number in numbers:
                self.end(number)
            raise


class _Current:
    """The recorder of this process: communicators that MPI makes know of no other."""

    recorder: MpiRecorder


def record_mpi(recorder: MpiRecorder) -> None:
    """Bind the names of mpi4py that communication starts from to those that record."""
    _Current.recorder = recorder
    plain = pickle.dumps

    def dumps(*args: Any) -> bytes:
        data = plain(*args)
        recorder.pickled = recorder.pickled or len(data)
        return data

    MPI.pickle.__init__(dumps, pickle.loads)
    MPI.Request, MPI.Prequest = RecordedRequest, RecordedPrequest
    MPI.COMM_WORLD, MPI.COMM_SELF = RecordedIntracomm(MPI.COMM_WORLD), RecordedIntracomm(MPI.COMM_SELF)


# ------------------------------------------------------------------ facts of data


def _data_facts(data: Any, parts: int = 1) -> dict[str, Any]:
    """Elements, bytes and type of a ``parts``-th of what MPI takes as a buffer: an array, bytes, [buf, count, type]."""
    buffer, *rest = data if isinstance(data, list | tuple) and data else [data]
    try:
        available = MPI.buffer(buffer).nbytes
        dtype, size = _explicit_type(rest) or _own_type(buffer)
    except (TypeError, ValueError, KeyError, BufferError, MPI.Exception):
        return {"count": 0, "nbytes": 0, "dtype": ""}
    number = _explicit_count(rest)
    nbytes = available if number is None else number * _extent(rest, size)
    return {"count": nbytes // size // parts, "nbytes": nbytes // parts, "dtype": dtype}


def _datatype(rest: Sequence[Any]) -> MPI.Datatype | None:
    given = next((part for part in rest if isinstance(part, MPI.Datatype | str)), None)
    return MPI.Datatype.fromcode(given) if isinstance(given, str) else given


def _extent(rest: Sequence[Any], size: int) -> int:
    """Bytes of data in one element of the type that was given, which may be a derived one."""
    datatype = _datatype(rest)
    return datatype.Get_size() if datatype is not None else size


def _explicit_type(rest: Sequence[Any]) -> tuple[str, int] | None:
    """Name and bytes of the basic type that was given, that a derived type is made of."""
    datatype = _datatype(rest)
    while datatype is not None and not datatype.is_predefined:
        base = datatype.decode()[0]
        datatype = base if isinstance(base, MPI.Datatype) else MPI.BYTE
    return None if datatype is None else (_type_name(datatype), max(1, datatype.Get_size()))


_KINDS = {"f": "float", "i": "int", "u": "uint", "c": "complex"}


def _type_name(datatype: MPI.Datatype) -> str:
    """Return MPI's type in the words of an array: MPI.DOUBLE is float64."""
    kind, size = datatype.typestr[0], datatype.typestr[1:]
    return f"{_KINDS[kind]}{8 * int(size)}" if kind in _KINDS else datatype.Get_name().removeprefix("MPI_").lower()


def _own_type(buffer: Any) -> tuple[str, int]:
    """Name and bytes of the type of an array."""
    if hasattr(buffer, "dtype"):
        return str(buffer.dtype).removeprefix("torch."), buffer.dtype.itemsize
    view = memoryview(buffer)
    return _type_name(MPI.Datatype.fromcode(view.format)), view.itemsize


def _explicit_count(rest: Sequence[Any]) -> int | None:
    """Elements that were given, as a number or with a displacement."""
    given = next((part for part in rest if not isinstance(part, MPI.Datatype | str) and part is not None), None)
    if isinstance(given, tuple | list):
        given = given[0] if given else None
    return index(given) if isinstance(given, Integral) else None


def _reduction(op: Any) -> str:
    """Return "SUM", "MAX", ... for an operation of MPI, "user" for one of the caller's."""
    names = ("SUM", "PROD", "MAX", "MIN", "MAXLOC", "MINLOC", "LAND", "LOR", "LXOR", "BAND", "BOR", "BXOR", "REPLACE")
    return next((name for name in names if op == getattr(MPI, name)), "user")


# ------------------------------------------------------------------ requests


class _AsPlain(type):
    """Requests that do not record count as instances too, as they do of mpi4py's own class."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.plain)


class _Waiting:
    """What recording requests have in common: their wait and completion are noted."""

    numbers: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()

    def __new__(cls, request: MPI.Request | None = None, *_: Any) -> Any:
        """Take over the handle of a plain request."""
        return super().__new__(cls, request)

    def Wait(self, status: MPI.Status | None = None) -> Any:
        """Wait for the operation."""
        return self._wait(super().Wait, status)

    def wait(self, status: MPI.Status | None = None) -> Any:
        """Wait for the operation; return the object that was received."""
        return self._wait(super().wait, status)

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Return whether the operation has ended."""
        status = status or MPI.Status()
        with _Current.recorder.during(self.numbers):
            done = super().Test(status)
        return self._end(status) if done else done

    def test(self, status: MPI.Status | None = None) -> tuple[bool, Any]:
        """Return whether the operation has ended, and the object that was received."""
        status = status or MPI.Status()
        with _Current.recorder.during(self.numbers):
            done, value = super().test(status)
        if done:
            self._end(status)
        return done, value

    def _wait(self, wait: Callable, status: MPI.Status | None) -> Any:
        status = status or MPI.Status()
        for number in self.numbers:
            _Current.recorder.wait(number)
        with _Current.recorder.during(self.numbers):
            result = wait(status)
        self._end(status)
        return result

    def _end(self, status: MPI.Status | None) -> bool:
        for number in self.numbers:
            _end(number, status, self.ranks)
        self.numbers = ()
        return True

    @classmethod
    def Waitall(cls, requests: Sequence[MPI.Request], statuses: list[MPI.Status] | None = None) -> bool:
        """Wait for all operations, one after the other, so that the one that does not end is known."""
        for request, status in zip(requests, _enough(statuses, requests), strict=False):
            request.Wait(status)
        return True

    @classmethod
    def waitall(cls, requests: Sequence[MPI.Request], statuses: list[MPI.Status] | None = None) -> list[Any]:
        """Wait for all operations; return the objects that were received."""
        pairs = zip(requests, _enough(statuses, requests), strict=False)
        return [request.wait(status) for request, status in pairs]


def _enough(statuses: list[MPI.Status] | None, requests: Sequence[MPI.Request]) -> list[MPI.Status]:
    """Return a status for each request, the caller's list lengthened if there is one."""
    statuses = [] if statuses is None else statuses
    statuses += [MPI.Status() for _ in range(len(requests) - len(statuses))]
    return statuses


def _end(number: int, status: MPI.Status | None, ranks: Sequence[int]) -> None:
    """Note the end of an operation, and of a receive from whom it came and how much."""
    recorder = _Current.recorder
    event = recorder.begun.get(number)
    if event is None:
        return
    if status is not None and "recv" in event["op"]:
        recorder.amend(number, **_received(event, status, ranks))
    recorder.end(number)


def _received(event: dict[str, Any], status: MPI.Status, ranks: Sequence[int]) -> dict[str, Any]:
    """What the status tells of a receive."""
    source, nbytes = status.Get_source(), status.Get_count(MPI.BYTE)
    if not 0 <= source < len(ranks) or nbytes < 0:
        return {}
    count = nbytes * event["count"] // event["nbytes"] if event["nbytes"] else event["count"]
    return {"peer": ranks[source], "tag": status.Get_tag(), "nbytes": nbytes, "count": count}


def _some(name: str) -> Callable:
    """Return Waitany, Testsome, ...: mpi4py's own, after which the operations it says have ended are noted."""
    plain, many, all_of = getattr(MPI.Request, name), "any" not in name, "all" in name

    def call(_: type, requests: Sequence[MPI.Request], status: Any = None) -> Any:
        status = _enough(status, requests) if many else status or MPI.Status()
        result = plain(requests, status)
        first = result[0] if isinstance(result, tuple) else result
        if all_of:
            done = range(len(requests)) if first else ()
        elif many:
            done = first or ()
        else:
            done = [first] if first != MPI.UNDEFINED and (name.lower() == "waitany" or result[1]) else []
        for place, number in enumerate(done):
            request = requests[number]
            if isinstance(request, _Waiting):
                request._end(status[number if all_of else place] if many else status)
        return result

    call.__name__, call.__doc__ = name, plain.__doc__
    return classmethod(call)


for _name in ("Waitany", "Waitsome", "Testall", "Testany", "Testsome"):
    for _form in (_name, _name.lower()):
        setattr(_Waiting, _form, _some(_form))


class RecordedRequest(_Waiting, MPI.Request, metaclass=_AsPlain):
    """A request whose wait and completion are noted."""

    plain = MPI.Request

    def __init__(self, request: Any = None, numbers: tuple[int, ...] = (), ranks: tuple[int, ...] = ()) -> None:
        self.numbers, self.ranks = numbers, ranks

    def Free(self) -> None:
        """Let go of the request."""
        super().Free()
        self._end(None)

    free = Free


class RecordedPrequest(_Waiting, MPI.Prequest, metaclass=_AsPlain):
    """A persistent request: each start is an operation."""

    plain = MPI.Prequest

    def __init__(self, request: Any = None, begin: Callable = int, ranks: tuple[int, ...] = ()) -> None:
        self.begin, self.ranks = begin, ranks
        _Current.recorder.kept[id(self)] = _Current.recorder.place()

    def Start(self) -> None:
        """Start the operation once more."""
        self.numbers = (self.begin(),)
        super().Start()

    @classmethod
    def Startall(cls, requests: Sequence[MPI.Prequest]) -> None:
        """Start several operations."""
        for request in requests:
            request.Start()

    def Free(self) -> None:
        """Let go of the request."""
        _Current.recorder.kept.pop(id(self), None)
        super().Free()

    free = Free


# ------------------------------------------------------------------ communicators

_SENDS = {name: "send" for name in ("Send", "Ssend", "Bsend", "Rsend", "send", "ssend", "bsend")}
_SENDS |= {name: "isend" for name in ("Isend", "Issend", "Ibsend", "Irsend", "isend", "issend", "ibsend")}
_RECEIVES = {"Recv": "recv", "recv": "recv", "Irecv": "irecv", "irecv": "irecv", "Probe": "probe", "probe": "probe"}
_BOTH = ("Sendrecv", "Sendrecv_replace", "sendrecv", "Isendrecv", "Isendrecv_replace")
_COLLECTIVES = {
    "bcast": "broadcast", "reduce": "reduce", "allreduce": "all_reduce", "gather": "gather", "gatherv": "gather",
    "scatter": "scatter", "scatterv": "scatter", "allgather": "all_gather", "allgatherv": "all_gather",
    "alltoall": "all_to_all", "alltoallv": "all_to_all", "alltoallw": "all_to_all", "scan": "scan", "exscan": "exscan",
    "reduce_scatter": "reduce_scatter", "reduce_scatter_block": "reduce_scatter", "barrier": "barrier",
}  # fmt: skip
_MAKERS = (
    "Dup", "Dup_with_info", "Clone", "Split", "Split_type", "Create", "Create_group", "Create_cart", "Create_graph",
    "Create_dist_graph", "Create_dist_graph_adjacent", "Sub",
)  # fmt: skip
_PERSISTENT = {"Send_init": "isend", "Ssend_init": "isend", "Bsend_init": "isend", "Recv_init": "irecv"}


class _Recording:
    """What the recording communicators have in common; :func:`_record` adds the methods."""

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks of this communicator as ranks of the world."""
        if "_members" not in self.__dict__:
            self._members = _world_ranks(self.Get_group())
        return self._members

    def Abort(self, errorcode: int = 0) -> None:
        """End all ranks; this one at once, so that what it did last is what led here."""
        super().Abort(errorcode)
        os._exit(errorcode % 256)


def _world_ranks(group: MPI.Group) -> tuple[int, ...]:
    return tuple(MPI.Group.Translate_ranks(group, range(group.size), _world()))


@cache
def _world() -> MPI.Group:
    return MPI.COMM_WORLD.Get_group()


class RecordedIntracomm(_Recording, MPI.Intracomm):
    """A communicator that notes what goes through it."""


class RecordedCartcomm(_Recording, MPI.Cartcomm):
    """A Cartesian communicator that notes what goes through it."""


class _Graphcomm(_Recording, MPI.Graphcomm):
    """A communicator with a graph that notes what goes through it."""


class _Distgraphcomm(_Recording, MPI.Distgraphcomm):
    """A communicator with a distributed graph that notes what goes through it."""


_TYPES = {
    MPI.Intracomm: RecordedIntracomm, MPI.Cartcomm: RecordedCartcomm, MPI.Graphcomm: _Graphcomm,
    MPI.Distgraphcomm: _Distgraphcomm,
}  # fmt: skip


def _recording(comm: MPI.Comm) -> MPI.Comm:
    """Return a communicator that MPI made as one that records; a null one as it is."""
    return _TYPES[type(comm)](comm) if comm and type(comm) in _TYPES else comm


def _record(name: str, describe: Callable, blocking: bool = True) -> None:
    """Give the recording communicators a method that notes what ``describe`` says of a call, then makes it."""
    holder = MPI.Cartcomm if name == "Sub" else MPI.Intracomm
    if not hasattr(holder, name):
        return
    shape = signature(getattr(holder, name))

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        plain, recorder = getattr(super(_Recording, self), name), _Current.recorder
        given = _given(shape, self, args, kwargs)
        numbers = tuple(recorder.begin(op, data, **facts) for op, data, facts in describe(self, given))
        recorder.pickled, status = 0, given.get("status")
        if "status" in given and status is None:
            given["status"] = status = MPI.Status()
            args, kwargs = (), {key: value for key, value in given.items() if key != "self"}
        with recorder.during(numbers):
            result = plain(*args, **kwargs)
        _amend_pickled(recorder, numbers)
        if not blocking:
            return RecordedRequest(result, numbers, self.members)
        for number in numbers:
            _end(number, status, self.members)
        return _recording(result) if name in _MAKERS else result

    call.__name__, call.__doc__ = name, getattr(holder, name).__doc__
    setattr(_Recording, name, call)


def _given(shape: Signature, comm: MPI.Comm, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name; those that do not fit as they are, for mpi4py to complain of."""
    try:
        given = shape.bind(comm, *args, **kwargs)
    except TypeError:
        return {"unfit": True}
    given.apply_defaults()
    return given.arguments


def _amend_pickled(recorder: MpiRecorder, numbers: tuple[int, ...]) -> None:
    """Note how large the object was that has been pickled, if any."""
    for number in numbers:
        event = recorder.begun[number]
        if event["dtype"] == "object" and "recv" not in event["op"] and recorder.pickled:
            recorder.amend(number, nbytes=recorder.pickled)


Facts = Iterator[tuple[str, Any, dict[str, Any]]]


def _message(comm: Any, op: str, data: Any, peer: int, tag: int, facts: dict[str, Any]) -> Facts:
    """Describe a send or a receive; one with no partner is none."""
    if peer == MPI.PROC_NULL:
        return
    partner = comm.members[peer] if 0 <= peer < comm.size else None if peer == MPI.ANY_SOURCE else int(peer)
    blocking = not op.startswith("i")
    yield op, _named(data), {"peer": partner, "tag": int(tag), "blocking": blocking} | facts


def _named(data: Any) -> Any:
    """What the caller has a name for: the buffer itself."""
    return data[0] if isinstance(data, list | tuple) and data else data


OBJECT = {"count": 1, "nbytes": 0, "dtype": "object"}


def _send(name: str, op: str) -> Callable:
    key = "obj" if name.islower() else "buf"

    def describe(comm: Any, given: dict[str, Any]) -> Facts:
        if key in given:
            facts = OBJECT if key == "obj" else _data_facts(given[key])
            yield from _message(comm, op, given[key], given["dest"], given["tag"], facts)

    return describe


def _receive(name: str, op: str) -> Callable:
    def describe(comm: Any, given: dict[str, Any]) -> Facts:
        if "source" in given:
            data = given.get("buf") if name[0].isupper() else None
            facts = _data_facts(data) if data is not None else OBJECT
            yield from _message(comm, op, data, given["source"], given["tag"], facts)

    return describe


def _send_and_receive(name: str) -> Callable:
    sent, got = ("isend", "irecv") if name.startswith("I") else ("isend", "recv")

    def describe(comm: Any, given: dict[str, Any]) -> Facts:
        if "unfit" in given:
            return
        out = given.get("sendbuf", given.get("sendobj", given.get("buf")))
        into = given.get("recvbuf", given.get("buf"))
        facts = [OBJECT if name.islower() else _data_facts(data) for data in (out, into)]
        yield from _message(comm, sent, out, given["dest"], given["sendtag"], facts[0])
        yield from _message(comm, got, into, given["source"], given["recvtag"], facts[1])

    return describe


def _collective(name: str, op: str, blocking: bool) -> Callable:
    def describe(comm: Any, given: dict[str, Any]) -> Facts:
        if "unfit" in given:
            return
        data, parts = _contribution(op, given, comm.size)
        facts = OBJECT if name.islower() and op != "barrier" else _data_facts(data, parts)
        if name.endswith(("v", "w")):
            facts["count"] = 0  # may differ between the ranks
        facts = facts | {"group": list(comm.members), "blocking": blocking}
        if "root" in given:
            facts["root"] = comm.members[given["root"]] if 0 <= given["root"] < comm.size else int(given["root"])
        if "op" in given:
            facts["reduce_op"] = _reduction(given["op"])
        yield op, _named(data), facts

    return describe


def _contribution(op: str, given: dict[str, Any], size: int) -> tuple[Any, int]:
    """The buffer that has the same number of elements on every rank, and how many such parts it has."""
    sent = given.get("sendbuf", given.get("sendobj", given.get("buf", given.get("obj"))))
    got = given.get("recvbuf")
    if op == "scatter" and got is not None:
        return (sent, size) if _in_place(got) else (got, 1)
    if _in_place(sent):
        return got, size if op in ("gather", "all_gather") else 1
    return sent, 1


def _in_place(data: Any) -> bool:
    return isinstance(data, type(MPI.IN_PLACE)) and data is MPI.IN_PLACE


def _maker(name: str) -> Callable:
    def describe(comm: Any, given: dict[str, Any]) -> Facts:
        members = _world_ranks(given["group"]) if name == "Create_group" and "group" in given else comm.members
        yield name.lower(), None, {"group": list(members), "count": 0, "nbytes": 0, "dtype": ""}

    return describe


def _persistent(name: str, op: str) -> None:
    """Send_init and its like: the operation begins with each start of the request."""
    describe = (_send if "Send" in name or "send" in name else _receive)(name, op)
    shape = signature(getattr(MPI.Intracomm, name))

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = _given(shape, self, args, kwargs)
        request = getattr(super(_Recording, self), name)(*args, **kwargs)
        facts = list(describe(self, given))
        if not facts:
            return request
        ((op, data, known),) = facts
        return RecordedPrequest(request, lambda: _Current.recorder.begin(op, data, **known), self.members)

    call.__name__, call.__doc__ = name, getattr(MPI.Intracomm, name).__doc__
    setattr(_Recording, name, call)


def _record_all() -> None:
    for name, op in _SENDS.items():
        _record(name, _send(name, op), blocking=op == "send")
    for name, op in _RECEIVES.items():
        _record(name, _receive(name, op), blocking=op != "irecv")
    for name in _BOTH:
        _record(name, _send_and_receive(name), blocking=not name.startswith("I"))
    for name, op in _COLLECTIVES.items():
        _record(name, _collective(name, op, True))
        _record(name.capitalize(), _collective(name.capitalize(), op, True))
        _record(f"I{name}", _collective(f"I{name}", op, False), blocking=False)
    for name in _MAKERS:
        _record(name, _maker(name))
    for name, op in _PERSISTENT.items():
        _persistent(name, op)


_record_all()
