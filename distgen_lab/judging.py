"""Compare what two answers report: numbers by tolerance, schedules and plans by what they do.

Two right schedules may differ in every transfer. So a reported schedule (``Schedule.arrays()``) is not compared with
the reference's, it is proved and counted: right for all inputs, with no more rounds, messages at a time and bytes.
Reported as ``{"schedule": arrays, "network": name, "nbytes": n}`` it must be right and no slower on that network.
Plans are judged the same way: one reported by :meth:`distgen_lab.planner.Task.report` must do what the task demands,
and be no slower or dearer than the reference's.
"""

from collections.abc import Callable
from typing import Any

from distgen_lab import plain
from distgen_lab.plain import REL

__all__ = ["NETWORKS", "difference", "same"]

_FIELDS = {"name", "collective", "ranks", "parts", "root", "rounds"}
_PRICED = {"schedule", "network", "nbytes"}
_PLANNED = {"task", "layout", "machine"}
_NOUNS = {"planned": "a plan"}


def _dgx_pair() -> Any:
    """Two nodes of eight GPUs: 450 GB/s and 1 us inside a node, eight rails of 50 GB/s and 5 us between them."""
    import networkx as nx

    from distgen_lab.topology import from_graph

    graph = nx.Graph()
    for gpu in range(16):
        graph.add_edge(gpu, ("node", gpu // 8), capacity=450e9, latency=0.5e-6)
    for rail in range(8):
        graph.add_edge(rail, ("rail", rail), capacity=50e9, latency=2.5e-6)
        graph.add_edge(rail + 8, ("rail", rail), capacity=50e9, latency=2.5e-6)
    return from_graph(graph, range(16), name="two nodes of eight GPUs")


NETWORKS: dict[str, Callable[[], Any]] = {"dgx_pair": _dgx_pair}
"""The networks that a question may price on."""


def difference(got: Any, want: Any, rel: float = REL) -> str | None:
    """Return None if the encoded report ``got`` is as good as ``want``, else one sentence on where it is not."""
    faults: list[str] = []
    masked = _masked(got, want, faults, rel)
    return faults[0] if faults else plain.difference(*masked, rel)


def same(one: Any, other: Any, rel: float = REL) -> bool:
    """Return whether two encoded reports say the same; schedules and plans are the same that do and cost alike."""
    return plain.difference(_summary(one), _summary(other), rel) is None


def _masked(got: Any, want: Any, faults: list[str], rel: float) -> tuple[Any, Any]:
    """Both with every schedule and plan that ``want`` holds replaced by a word, once it has been judged."""
    if _kind(want):
        fault = _judge(got, want, rel)
        faults += [fault] if fault else []
        return _kind(want), _kind(want)
    if isinstance(want, list) and isinstance(got, list) and len(got) == len(want):
        pairs = [_masked(a, b, faults, rel) for a, b in zip(got, want, strict=True)]
        return [a for a, _ in pairs], [b for _, b in pairs]
    if isinstance(want, dict) and isinstance(got, dict) and got.keys() == want.keys():
        named = {key: _masked(got[key], want[key], faults, rel) for key in want}
        return {key: a for key, (a, _) in named.items()}, {key: b for key, (_, b) in named.items()}
    return got, want


def _kind(value: Any) -> str:
    """What kind of schedule or plan an encoded value is, "" if it is none."""
    keys = value.keys() if isinstance(value, dict) else ()
    kinds = (("counted", _FIELDS), ("priced", _PRICED), ("planned", _PLANNED))
    return next((kind for kind, fields in kinds if keys == fields), "")


def _judge(got: Any, want: dict, rel: float) -> str | None:
    """One sentence on what a schedule or plan lacks beside the reference, None if it lacks nothing."""
    if _kind(got) != _kind(want):
        return f"the answer is a {type(got).__name__}, {_NOUNS.get(_kind(want), 'a schedule')} is wanted"
    if _kind(want) == "planned":
        return _judge_plan(got | {"task": want["task"]}, want, rel)
    found, wanted = _facts(got | {key: want[key] for key in ("network", "nbytes") if key in want}), _facts(want)
    for key in ("collective", "ranks", "root"):
        if found.get(key) != wanted[key]:
            return found.get("fault") or f"the schedule's {key} is {found.get(key)}, {wanted[key]} is wanted"
    if found["fault"]:
        return found["fault"]
    worse = [key for key in _WORDS if key in wanted and found[key] > wanted[key] * (1 + rel)]
    return _WORDS[worse[0]].format(found[worse[0]], wanted[worse[0]]) if worse else None


def _judge_plan(got: dict, want: dict, rel: float) -> str | None:
    """One sentence on what a plan lacks beside the reference, None if it lacks nothing."""
    (_, found), (task, best) = _planned(got), _planned(want)
    if isinstance(found, str):
        return found
    return task.fault(found) or task.worse(task.measure(found), task.measure(best), rel) or None


def _planned(value: dict) -> tuple[Any, Any]:
    """The task of a reported plan and the plan, or one sentence on why there is none."""
    from distgen_lab.planner import Task

    try:
        task, layout, machine = Task.read(value)
        return task, task.plan(layout, machine)
    except ValueError as error:
        return None, str(error)


_WORDS = {
    "rounds": "it takes {} rounds, {} are enough",
    "ports": "one rank sends or receives {} messages in one round, {} at a time are allowed",
    "bytes": "one rank sends or receives {:.4g} n bytes, {:.4g} n are enough",
    "seconds": "it takes {:.4g} s on that network, {:.4g} s are enough",
}


def _facts(value: dict) -> dict[str, Any]:
    """What a reported schedule is and does: collective, ranks, root, its first fault, and what it costs."""
    from distgen_lab.collectives import Schedule

    arrays = value.get("schedule", value)
    try:
        schedule = Schedule.from_arrays(arrays)
        verdict = schedule.verify()
    except ValueError as error:
        return {"fault": str(error)}
    facts = {"collective": schedule.collective, "ranks": schedule.ranks, "root": schedule.root}
    if not verdict:
        return facts | {"fault": verdict.fault}
    return facts | {"fault": ""} | (_price(schedule, value) if "network" in value else _count(schedule))


def _count(schedule: Any) -> dict[str, float]:
    table = schedule.traffic()
    return {"rounds": table.rounds, "ports": table.ports, "bytes": float(table.busiest)}


def _price(schedule: Any, value: dict) -> dict[str, float]:
    from distgen_lab.simulate import price

    return {"seconds": price(schedule, NETWORKS[value["network"]](), value["nbytes"]).seconds}


def _summary(value: Any) -> Any:
    """The value with every schedule and plan replaced by what it is and does."""
    if _kind(value) == "planned":
        task, found = _planned(value)
        return found if isinstance(found, str) else [task.fault(found), task.measure(found)]
    if _kind(value):
        return _facts(value)
    if isinstance(value, list):
        return [_summary(item) for item in value]
    return {key: _summary(item) for key, item in value.items()} if isinstance(value, dict) else value
