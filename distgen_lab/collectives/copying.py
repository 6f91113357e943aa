"""Broadcast, scatter, gather, all-gather and all-to-all: collectives that move data and sum nothing."""

from collections.abc import Iterator

import numpy as np

from distgen_lab.collectives import patterns
from distgen_lab.collectives.schedule import Round, Schedule, at_least, make_round

__all__ = [
    "binomial_broadcast", "binomial_gather", "binomial_scatter", "bruck_all_gather", "bruck_all_to_all",
    "chain_broadcast", "direct_all_gather", "direct_all_to_all", "linear_broadcast", "linear_gather",
    "linear_scatter", "pairwise_all_to_all", "recursive_doubling_all_gather", "ring_all_gather",
    "scatter_doubling_broadcast", "scatter_ring_broadcast", "xor_all_to_all",
]  # fmt: skip


def linear_broadcast(ranks: int, root: int = 0) -> Schedule:
    """Return the broadcast in which the root sends n bytes to one rank after the other: P-1 rounds."""
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        return (make_round([0], rank, 0, False) for rank in range(1, ranks))

    return rooted(Schedule("linear broadcast", "broadcast", ranks, 1, rounds, 0), root)


def binomial_broadcast(ranks: int, root: int = 0) -> Schedule:
    """Return the broadcast in which all who know tell one more: ceil(log2 P) rounds of n bytes.

    The furthest partner is told first, so on a line or ring no two messages share a link.
    """
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        return (make_round(parents, children, 0, False) for parents, children, _ in patterns.binomial(ranks))

    return rooted(Schedule("binomial broadcast", "broadcast", ranks, 1, rounds, 0), root)


def scatter_ring_broadcast(ranks: int, root: int = 0) -> Schedule:
    """Return van de Geijn's broadcast: a binomial scatter, then a ring all-gather; for long messages.

    ceil(log2 P) + P - 1 rounds, 2 (P-1)/P n bytes, any P (Chan et al. 2007).
    """
    scatter = binomial_scatter(ranks, root)
    return scatter.then(ring_all_gather(ranks), "scatter + ring all-gather broadcast", "broadcast", root)


def scatter_doubling_broadcast(ranks: int, root: int = 0) -> Schedule:
    """Return the broadcast by a binomial scatter and a recursive-doubling all-gather: 2 log2 P rounds.

    Raises:
        ValueError: if P is not a power of two.
    """
    scatter = binomial_scatter(ranks, root)
    return scatter.then(recursive_doubling_all_gather(ranks), "scatter + doubling broadcast", "broadcast", root)


def chain_broadcast(ranks: int, segments: int = 8, root: int = 0) -> Schedule:
    """Return the broadcast along a chain of ranks that passes on m segments, one a round: P - 2 + m rounds of n/m."""
    ranks, segments = at_least("ranks", ranks, 1), at_least("segments", segments, 1)

    def rounds() -> Iterator[Round]:
        for number in range(ranks - 2 + segments if ranks > 1 else 0):
            source = np.arange(max(0, number - segments + 1), min(number, ranks - 2) + 1)
            yield make_round(source, source + 1, number - source, False)

    return rooted(Schedule("pipelined chain broadcast", "broadcast", ranks, segments, rounds, 0), root)


def linear_scatter(ranks: int, root: int = 0) -> Schedule:
    """Return the scatter in which the root sends one block after the other: P-1 rounds of n/P."""
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        return (make_round([0], rank, rank, False) for rank in range(1, ranks))

    return rooted(_blocks("linear scatter", "scatter", ranks, rounds, 0), root)


def linear_gather(ranks: int, root: int = 0) -> Schedule:
    """Return the gather in which the root receives one block after the other: P-1 rounds of n/P."""
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        return (make_round([rank], 0, rank, False) for rank in range(1, ranks))

    return rooted(_blocks("linear gather", "gather", ranks, rounds, 0), root)


def binomial_scatter(ranks: int, root: int = 0) -> Schedule:
    """Return the scatter that hands each child the blocks of its whole subtree: ceil(log2 P) rounds, any P."""
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        for parents, children, distance in patterns.binomial(ranks):
            blocks, which = patterns.spans(children, np.minimum(children + distance, ranks))
            yield make_round(parents[which], children[which], blocks, False)

    return rooted(_blocks("binomial scatter", "scatter", ranks, rounds, 0), root)


def binomial_gather(ranks: int, root: int = 0) -> Schedule:
    """Return the gather that is the binomial scatter run backwards: ceil(log2 P) rounds, any P."""
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        return (Round(item.target, item.source, item.chunk, item.reduce)
                for item in reversed(list(binomial_scatter(ranks).rounds())))  # fmt: skip

    return rooted(_blocks("binomial gather", "gather", ranks, rounds, 0), root)


def ring_all_gather(ranks: int) -> Schedule:
    """Return the all-gather in which every rank passes on to the next what it got last: P-1 rounds of n/P."""
    ranks = at_least("ranks", ranks, 1)
    return _blocks("ring all-gather", "all_gather", ranks, lambda: patterns.ring(ranks, reduce=False))


def recursive_doubling_all_gather(ranks: int, near_first: bool = True) -> Schedule:
    """Return the all-gather in which pairs exchange all they hold: log2 P rounds, (P-1)/P n bytes.

    Args:
        ranks: P.
        near_first: partners at distance 1, 2, 4, ...; else the furthest first.

    Raises:
        ValueError: if P is not a power of two.
    """
    ranks = at_least("ranks", ranks, 1)
    patterns.power_of_two(ranks, "recursive doubling", "bruck_all_gather")
    return _blocks("recursive doubling all-gather", "all_gather", ranks,
                   lambda: patterns.butterfly(ranks, near_first, reduce=False))  # fmt: skip


def bruck_all_gather(ranks: int) -> Schedule:
    """Return Bruck's all-gather: ceil(log2 P) rounds for any P, (P-1)/P n bytes (Bruck et al. 1997).

    In each round a rank sends the blocks it holds, its own first, to the rank 1, 2, 4, ... below.
    """
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        everyone = np.arange(ranks)[:, None]
        for distance in patterns.bits_of(ranks, near_first=True):
            held = np.arange(min(distance, ranks - distance))
            yield make_round(everyone, (everyone - distance) % ranks, (everyone + held) % ranks, False)

    return _blocks("Bruck all-gather", "all_gather", ranks, rounds)


def direct_all_gather(ranks: int) -> Schedule:
    """Return the all-gather in one round: every rank sends its block to every other at the same time."""
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        source, target = patterns.direct(ranks)
        yield make_round(source, target, source, False)

    return _blocks("direct all-gather", "all_gather", ranks, rounds)


def pairwise_all_to_all(ranks: int) -> Schedule:
    """Return the all-to-all in which rank i sends to i + 1, i + 2, ... in turn: P-1 rounds of n/P."""
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        source = np.arange(ranks)
        for distance in range(1, ranks):
            target = (source + distance) % ranks
            yield make_round(source, target, source * ranks + target, False)

    return _blocks("pairwise all-to-all", "all_to_all", ranks, rounds)


def xor_all_to_all(ranks: int) -> Schedule:
    """Return the all-to-all in which rank i exchanges with i XOR 1, i XOR 2, ...: P-1 rounds of n/P.

    Raises:
        ValueError: if P is not a power of two.
    """
    ranks = at_least("ranks", ranks, 1)
    patterns.power_of_two(ranks, "the XOR exchange", "pairwise_all_to_all")

    def rounds() -> Iterator[Round]:
        source = np.arange(ranks)
        return (make_round(source, source ^ bits, source * ranks + (source ^ bits), False) for bits in range(1, ranks))

    return _blocks("XOR all-to-all", "all_to_all", ranks, rounds)


def bruck_all_to_all(ranks: int) -> Schedule:
    """Return Bruck's all-to-all: ceil(log2 P) rounds of about n/2, for short messages (Bruck et al. 1997).

    A block that has to go ``distance`` ranks on hops 2^k on in round k if bit k of its distance is set.
    """
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        owner = np.arange(ranks)[:, None]
        for bit in patterns.bits_of(ranks, near_first=True):
            distance = np.arange(ranks)[np.arange(ranks) & bit > 0]
            here = owner + (distance & (bit - 1))
            yield make_round(here % ranks, (here + bit) % ranks, owner * ranks + (owner + distance) % ranks, False)

    return _blocks("Bruck all-to-all", "all_to_all", ranks, rounds)


def direct_all_to_all(ranks: int) -> Schedule:
    """Return the all-to-all in one round: every rank sends to every other at the same time."""
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        source, target = patterns.direct(ranks)
        yield make_round(source, target, source * ranks + target, False)

    return _blocks("direct all-to-all", "all_to_all", ranks, rounds)


def rooted(schedule: Schedule, root: int) -> Schedule:
    """Return the schedule, made for root 0, turned so that ``root`` is the root."""
    if not 0 <= at_least("root", root, 0) < schedule.ranks:
        raise ValueError(f"root is {root}; a rank from 0 to {schedule.ranks - 1} is needed")
    return schedule.mapped((np.arange(schedule.ranks) + root) % schedule.ranks) if root else schedule


def _blocks(name: str, collective: str, ranks: int, rounds: object, root: int | None = None) -> Schedule:
    """A schedule whose n is cut into P blocks."""
    return Schedule(name, collective, ranks, ranks, rounds, root)
