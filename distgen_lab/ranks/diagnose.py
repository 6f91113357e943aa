"""Say in words who waits for whom, and where ranks disagree: pure functions over what the ranks recorded."""

import linecache
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from distgen_lab.timeline import Span

__all__ = ["Rank", "call", "left_out", "mismatches", "place", "stuck", "unfinished", "waits"]

RUNNING, FINISHED, FAILED, DIED = "running", "finished", "failed", "died"


@dataclass(frozen=True)
class Rank:
    """What is known of one rank: its state, what it recorded, and for a dead one how it died."""

    state: str = RUNNING
    spans: tuple[Span, ...] = ()
    how: str = ""

    @property
    def waiting(self) -> Span | None:
        """The operation the rank stands in, None if it computes or is gone."""
        if self.state != RUNNING:
            return None
        return next((span for span in reversed(self.spans) if span.blocking and span.end is None), None)

    @property
    def gone(self) -> bool:
        """Whether the rank will never communicate again."""
        return self.state != RUNNING

    def collectives(self, group: tuple[int, ...]) -> list[Span]:
        """The collectives of a group that the rank has begun, in order."""
        return [span for span in self.spans if span.group == group]


Ranks = Mapping[int, Rank]


def place(span: Span) -> str:
    """Where a call stands: line, and the source line if it is known."""
    source = linecache.getline(span.file, span.line).strip()
    return f"line {span.line}" + (f": {source}" if source else f" of {span.file}")


def call(span: Span) -> str:
    """An operation in words: name, partner or group, data."""
    if span.is_collective:
        extra = f"({span.reduce_op})" if span.reduce_op else ""
        root = f" with root {span.root}" if span.root is not None else ""
        return f"{span.op}{extra}{root} of {_data(span)}" if span.count else f"{span.op}{extra}{root}"
    partner = "any rank" if span.peer is None else f"rank {span.peer}"
    tag = f" with tag {span.tag}" if span.tag else ""
    return f"{span.op} {'to' if 'send' in span.op else 'from'} {partner}{tag}"


def _data(span: Span) -> str:
    return f"{span.count:,} {span.dtype}" + (f" ({span.name})" if span.name else "")


def _targets(ranks: Ranks, me: int, span: Span) -> list[int]:
    """The ranks that could let ``me`` go on and have not done so yet; empty if the partner has already come."""
    if span.is_collective:
        own = ranks[me].collectives(span.group)
        number = own.index(span)
        return [peer for peer in span.group if peer != me and len(ranks[peer].collectives(span.group)) <= number]
    peers = [peer for peer in ranks if peer != me] if span.peer is None else [span.peer]
    return [] if any(_answered(ranks, me, peer, span) for peer in peers) else peers


def _answered(ranks: Ranks, me: int, peer: int, span: Span) -> bool:
    """Whether ``peer`` has begun the matching call, and stayed for it: more of them than ``me`` has used up."""
    mine, theirs = ("send", "recv") if "send" in span.op else ("recv", "send")
    if peer not in ranks:
        return False
    begun = [s for s in ranks[peer].spans if theirs in s.op and s.peer in (me, None) and s.tag == span.tag]
    if ranks[peer].gone:  # a send that it left without waiting for may never have gone out
        begun = [s for s in begun if s.end is not None]
    used = [s for s in ranks[me].spans if mine in s.op and s.peer in (peer, None) and s.tag == span.tag and s.end]
    return len(begun) > len(used)


def stuck(ranks: Ranks) -> dict[int, list[int]]:
    """Return the ranks that can never go on, each with those it waits for; empty if there is still hope.

    The largest set in which everyone waits only for ranks that are gone or are in the set themselves.
    """
    waiting = {me: rank.waiting for me, rank in ranks.items()}
    hopeless = {me: _targets(ranks, me, span) for me, span in waiting.items() if span is not None}
    while True:
        rescued = [me for me, targets in hopeless.items() if not _without_hope(ranks, waiting[me], targets, hopeless)]
        if not rescued:
            return hopeless
        for me in rescued:
            del hopeless[me]


def _without_hope(ranks: Ranks, span: Span, targets: Sequence[int], hopeless: Mapping[int, list[int]]) -> bool:
    """A receive from any rank needs one of its targets to come; everything else is lost if one never comes."""
    lost = [peer not in ranks or ranks[peer].gone or peer in hopeless for peer in targets]
    return bool(lost) and (all(lost) if span.peer is None and not span.is_collective else any(lost))


def waits(ranks: Ranks) -> list[str]:
    """Return one sentence for each rank that waits, and one for a circle if there is one."""
    sentences = []
    for me, rank in ranks.items():
        if rank.waiting is not None:
            reasons = "; ".join(_reason(ranks, peer) for peer in _targets(ranks, me, rank.waiting)[:4])
            sentences.append(f"Rank {me} waits in {call(rank.waiting)} ({place(rank.waiting)}){_because(reasons)}.")
    sentences += unfinished({me: rank for me, rank in ranks.items() if rank.state == FINISHED})
    circle = _circle(ranks)
    if circle:
        path = " -> ".join(map(str, circle))
        sentences.append(f"They wait for each other in a circle, {path}: no one can be the first to go on.")
    return sentences


def _because(reasons: str) -> str:
    return f", but {reasons}" if reasons else ""


def _reason(ranks: Ranks, peer: int) -> str:
    """What the awaited rank does instead."""
    if peer not in ranks:
        return f"there is no rank {peer}"
    rank = ranks[peer]
    if rank.waiting is not None:
        return f"rank {peer} itself waits in {call(rank.waiting)} (line {rank.waiting.line})"
    words = {FINISHED: "has finished without it", FAILED: "has failed", DIED: f"has died ({rank.how})"}
    return f"rank {peer} {words.get(rank.state, 'is still computing')}"


def _circle(ranks: Ranks) -> list[int]:
    """Follow who waits for whom among the stuck; return the first circle, its first rank again at the end."""
    targets = {me: [peer for peer in peers if peer in ranks] for me, peers in stuck(ranks).items()}
    for start in targets:
        path = [start]
        while path[-1] in targets and targets[path[-1]]:
            following = next((peer for peer in targets[path[-1]] if peer in targets), None)
            if following is None:
                break
            if following in path:
                return [*path[path.index(following) :], following]
            path.append(following)
    return []


def mismatches(ranks: Ranks) -> list[str]:
    """Return one sentence for each collective about which the ranks of a group disagree."""
    groups = dict.fromkeys(span.group for rank in ranks.values() for span in rank.spans if span.is_collective)
    return [sentence for group in groups for sentence in _group_mismatches(ranks, group)]


_FACTS = (
    ("op", "the operation"), ("reduce_op", "the reduction"), ("root", "the root"), ("dtype", "the type"),
    ("count", "the number of elements"),
)  # fmt: skip


_UNEVEN = ("all_to_all", "all_to_all_single")
"""Collectives in which each rank may hand over as much as it likes: the pieces it sends need not be equal."""


def _differ(name: str, spans: Collection[Span]) -> bool:
    """Whether the ranks' calls of one collective differ in this fact, and should not."""
    if name == "count" and all(span.op in _UNEVEN for span in spans):
        return False
    return len({getattr(span, name) for span in spans}) > 1


def _group_mismatches(ranks: Ranks, group: tuple[int, ...]) -> Iterator[str]:
    calls = {me: ranks[me].collectives(group) for me in group if me in ranks}
    for number, spans in enumerate(zip_longest(*calls.values()), 1):
        present = {me: span for me, span in zip(calls, spans, strict=True) if span is not None}
        differing = [words for name, words in _FACTS if _differ(name, present.values())]
        if differing:
            yield f"The ranks disagree about {' and '.join(differing)} of collective {number}: {_each(present)}."
            return  # what follows is out of step
        if _swapped(calls, number - 1):
            yield f"The ranks make their collectives in another order; collective {number}: {_each(present)}."
            return


def _each(present: Mapping[int, Span]) -> str:
    """Ranks that do the same are named together."""
    same: dict[str, list[int]] = {}
    for me, span in present.items():
        same.setdefault(f"{call(span)} at {place(span)}", []).append(me)
    return "; ".join(
        f"rank{'s' if len(who) > 1 else ''} {', '.join(map(str, who))}: {what}" for what, who in same.items()
    )


def _swapped(calls: Mapping[int, list[Span]], number: int) -> bool:
    """Two ranks take the same two things in opposite order: not two branches, but a swap."""
    lines = [[span.name or (span.file, span.line) for span in spans] for spans in calls.values()]
    first = lines[0]
    if number >= len(first):
        return False
    for other in lines[1:]:
        here, there = first[number], other[number] if number < len(other) else None
        if there is not None and here != there and here in other[number + 1 :] and there in first[number + 1 :]:
            return True
    return False


def left_out(ranks: Ranks) -> Iterator[str]:
    """Yield one sentence for each rank that left out a collective which the others could finish without it."""
    groups = dict.fromkeys(span.group for rank in ranks.values() for span in rank.spans if span.is_collective)
    for group in groups:
        calls = {me: ranks[me].collectives(group) for me in group}
        most = max(calls.values(), key=len)
        for me, spans in calls.items():
            if len(spans) < len(most):
                missed = most[len(spans)]
                took = f"Rank {me} took part in {len(spans)} of {len(most)} collectives"
                yield f"{took}: {call(missed)} ({place(missed)}) it left out."


def unfinished(ranks: Ranks) -> Iterator[str]:
    """Yield one sentence for each operation that no one waited for."""
    for me, rank in ranks.items():
        for span in rank.spans:
            if span.end is None:
                yield f"Rank {me} never waited for its {call(span)} ({place(span)})."
