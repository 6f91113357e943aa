"""Reduce, reduce-scatter and all-reduce: collectives that sum what the ranks contribute."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from distgen_lab.collectives import patterns
from distgen_lab.collectives.copying import (
    binomial_broadcast,
    binomial_gather,
    direct_all_gather,
    ring_all_gather,
    rooted,
)
from distgen_lab.collectives.schedule import Round, Schedule, at_least, make_round

__all__ = [
    "binomial_all_reduce", "binomial_reduce", "direct_all_reduce", "direct_reduce_scatter", "double_tree_all_reduce",
    "flat_reduce", "hierarchical_all_reduce", "linear_reduce", "one_shot_all_reduce", "rabenseifner_all_reduce",
    "rabenseifner_reduce", "recursive_doubling_all_reduce", "recursive_halving_reduce_scatter", "ring_all_reduce",
    "ring_reduce_scatter", "torus_all_reduce",
]  # fmt: skip


def linear_reduce(ranks: int, root: int = 0) -> Schedule:
    """Return the reduce in which the root receives and adds one vector after the other: P-1 rounds of n."""
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        return (make_round([rank], 0, 0, True) for rank in range(1, ranks))

    return rooted(Schedule("linear reduce", "reduce", ranks, 1, rounds, 0), root)


def flat_reduce(ranks: int, root: int = 0) -> Schedule:
    """Return the reduce in one round: all send their n bytes to the root at the same time."""
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        yield make_round(np.arange(1, ranks), 0, 0, True)

    return rooted(Schedule("flat reduce", "reduce", ranks, 1, rounds, 0), root)


def binomial_reduce(ranks: int, root: int = 0) -> Schedule:
    """Return the reduce that is the binomial broadcast run backwards: ceil(log2 P) rounds of n bytes, any P."""
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        return (make_round(children, parents, 0, True) for parents, children, _ in reversed(patterns.binomial(ranks)))

    return rooted(Schedule("binomial reduce", "reduce", ranks, 1, rounds, 0), root)


def rabenseifner_reduce(ranks: int, root: int = 0, near_first: bool = True) -> Schedule:
    """Return the reduce by recursive halving and a binomial gather: 2 log2 P rounds, 2 (P-1)/P n bytes.

    Raises:
        ValueError: if P is not a power of two.
    """
    halving = recursive_halving_reduce_scatter(ranks, near_first)
    return halving.then(binomial_gather(ranks, root), "Rabenseifner reduce", "reduce", root)


def ring_reduce_scatter(ranks: int) -> Schedule:
    """Return the reduce-scatter in which partial sums travel round the ring: P-1 rounds of n/P."""
    ranks = at_least("ranks", ranks, 1)
    return _blocks("ring reduce-scatter", ranks, lambda: patterns.ring(ranks, reduce=True))


def recursive_halving_reduce_scatter(ranks: int, near_first: bool = True) -> Schedule:
    """Return the reduce-scatter in which pairs exchange half of what is left: log2 P rounds, (P-1)/P n bytes.

    Args:
        ranks: P.
        near_first: the first and largest exchange is at distance 1; else at P/2.

    Raises:
        ValueError: if P is not a power of two.
    """
    ranks = at_least("ranks", ranks, 1)
    patterns.power_of_two(ranks, "recursive halving", "ring_reduce_scatter")
    return _blocks("recursive halving reduce-scatter", ranks,
                   lambda: patterns.butterfly(ranks, near_first, reduce=True))  # fmt: skip


def direct_reduce_scatter(ranks: int) -> Schedule:
    """Return the reduce-scatter in one round: every rank sends every other the block that is its to sum."""
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        source, target = patterns.direct(ranks)
        yield make_round(source, target, target, True)

    return _blocks("direct reduce-scatter", ranks, rounds)


def ring_all_reduce(ranks: int) -> Schedule:
    """Return the ring all-reduce: reduce-scatter, then all-gather; 2 (P-1) rounds of n/P (Patarasuk and Yuan 2009).

    >>> ring_all_reduce(4).verify()
    right for all inputs
    """
    return ring_reduce_scatter(ranks).then(ring_all_gather(ranks), "ring all-reduce", "all_reduce")


def direct_all_reduce(ranks: int) -> Schedule:
    """Return the two-round all-reduce of fully connected ranks: 2 (P-1)/P n bytes, many messages at a time."""
    return direct_reduce_scatter(ranks).then(direct_all_gather(ranks), "direct all-reduce", "all_reduce")


def one_shot_all_reduce(ranks: int) -> Schedule:
    """Return the one-round all-reduce: every rank sends its whole vector to every other, (P-1) n bytes."""
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        yield make_round(*patterns.direct(ranks), 0, True)

    return _all_reduce("one-shot all-reduce", ranks, 1, rounds)


def recursive_doubling_all_reduce(ranks: int, near_first: bool = True) -> Schedule:
    """Return the all-reduce in which pairs exchange all n bytes: log2 P rounds.

    If P is no power of two, floor(log2 P) + 2 rounds: the ranks too many hand over first and get the sum last.
    """
    ranks = at_least("ranks", ranks, 1)

    def rounds() -> Iterator[Round]:
        return patterns.folded(ranks, 1, lambda inner: patterns.exchange(inner, near_first))

    return _all_reduce("recursive doubling all-reduce", ranks, 1, rounds)


def rabenseifner_all_reduce(ranks: int, near_first: bool = True) -> Schedule:
    """Return Rabenseifner's all-reduce, the chapter's butterfly: recursive halving, then recursive doubling.

    2 log2 P rounds and 2 (P-1)/P n bytes; if P is no power of two, two rounds of n more (Thakur et al. 2005).

    Args:
        ranks: P.
        near_first: halve with the neighbour first, when most bytes move, and double with it last. On a ring or torus
            that keeps most bytes on short ways; the other order sends half of n over the longest.
    """
    ranks = at_least("ranks", ranks, 1)
    parts = 1 << (ranks.bit_length() - 1)

    def core(inner: int) -> Iterator[Round]:
        halving = patterns.butterfly(inner, near_first, reduce=True)
        return chain(halving, patterns.butterfly(inner, not near_first, reduce=False))

    order = "near" if near_first else "far"
    return _all_reduce(f"Rabenseifner all-reduce, {order} first", ranks, parts,
                       lambda: patterns.folded(ranks, parts, core))  # fmt: skip


def binomial_all_reduce(ranks: int) -> Schedule:
    """Return the all-reduce by a binomial reduce and a binomial broadcast: 2 ceil(log2 P) rounds of n bytes."""
    return binomial_reduce(ranks).then(binomial_broadcast(ranks), "binomial all-reduce", "all_reduce")


def double_tree_all_reduce(ranks: int, segments: int = 8) -> Schedule:
    """Return the pipelined all-reduce over two binary trees at once (Sanders, Speck and Träff 2009).

    Each tree sums and then broadcasts one half of n in ``segments`` segments. A rank with children in one tree is a
    leaf of the other, so both trees together keep every rank's link busy: 2 (h + m - 1) rounds of at most n/m bytes a
    rank, with trees of height h = floor(log2 P) and m segments. A rank gets its two children's segments in one round.
    """
    ranks, segments = at_least("ranks", ranks, 1), at_least("segments", segments, 1)
    trees = _two_trees(ranks)

    def rounds() -> Iterator[Round]:
        return chain(_up(trees, segments), _down(trees, segments)) if ranks > 1 else iter(())

    return _all_reduce("double binary tree all-reduce", ranks, 2 * segments, rounds)


def torus_all_reduce(shape: Sequence[int]) -> Schedule:
    """Return the all-reduce of a torus of ranks (row-major): rings along one axis after the other.

    It reduce-scatters along the last axis, then the one before, ..., and all-gathers in the opposite order: 2 x the
    sum of (side - 1) rounds instead of 2 (P-1), for the same 2 (P-1)/P n bytes.

    Raises:
        ValueError: for no axis, or a side below 1.

    >>> torus_all_reduce((16, 16, 16)).traffic().rounds
    90
    """
    sides = tuple(at_least("shape", side, 1) for side in shape)
    if not sides:
        raise ValueError(f"shape is {shape!r}; at least one side is needed")
    return _grid_all_reduce("x".join(map(str, sides)) + " torus all-reduce", sides)


def hierarchical_all_reduce(nodes: int, per_node: int) -> Schedule:
    """Return the all-reduce of nodes with several ranks each; rank = node x per_node + place in the node.

    A ring reduce-scatter in each node, a ring all-reduce of each n/per_node among the nodes, a ring all-gather in each
    node: only 2 (nodes-1)/nodes n/per_node bytes of a rank leave its node.
    """
    sides = at_least("nodes", nodes, 1), at_least("per_node", per_node, 1)
    return _grid_all_reduce(f"hierarchical all-reduce, {nodes} nodes of {per_node}", sides)


def _grid_all_reduce(name: str, sides: tuple[int, ...]) -> Schedule:
    def rounds() -> Iterator[Round]:
        for axis in reversed(range(len(sides))):
            yield from patterns.grid(sides, axis, range(axis + 1, len(sides)), reduce=True)
        for axis in range(len(sides)):
            yield from patterns.grid(sides, axis, range(axis + 1, len(sides)), reduce=False)

    return _all_reduce(name, math.prod(sides), math.prod(sides), rounds)


def _two_trees(ranks: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Parent (-1 for the root) and depth of each rank in two trees, no rank having children in both.

    In the first, ranks with an odd number have the children. The second is its mirror image (P even), or is shifted
    by one rank (P odd).
    """
    parent, depth = _in_order_tree(ranks)
    everyone = np.arange(ranks)
    place = everyone[::-1] if ranks % 2 == 0 else (everyone + 1) % ranks
    rank_at = np.argsort(place)
    second = np.where(parent[place] < 0, -1, rank_at[parent[place]])
    return [(parent, depth), (second, depth[place])]


def _in_order_tree(ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """Parent and depth in a binary tree whose in-order walk is 0, 1, 2, ...; even ranks are leaves.

    Counting from 1, the lowest set bit of a number is its level: the parent has the next bit instead; where that is
    beyond P, the next one down the same side.
    """
    parent = np.full(ranks, -1)
    depth = np.zeros(ranks, np.int64)
    root = 1 << (ranks.bit_length() - 1)
    for number in sorted(range(1, ranks + 1), key=lambda n: -(n & -n)):
        low = number & -number
        if number != root:
            above = (number ^ low) | (low << 1)
            parent[number - 1] = (above if above <= ranks else number ^ low) - 1
            depth[number - 1] = depth[parent[number - 1]] + 1
    return parent, depth


def _up(trees: Sequence[tuple[np.ndarray, np.ndarray]], segments: int) -> Iterator[Round]:
    """Sum to the roots: the deepest ranks begin, and each level passes a segment on one round later."""
    height = int(trees[0][1].max())
    for number in range(height + segments - 1):
        rows = [_segment(tree, number - height + tree[1], segments, which) for which, tree in enumerate(trees)]
        source, target, chunk = np.concatenate(rows, axis=1)
        yield make_round(source, target, chunk, True)


def _down(trees: Sequence[tuple[np.ndarray, np.ndarray]], segments: int) -> Iterator[Round]:
    """Broadcast from the roots: each level passes a segment on one round later than the level above."""
    height = int(trees[0][1].max())
    for number in range(height + segments - 1):
        rows = [_segment(tree, number + 1 - tree[1], segments, which) for which, tree in enumerate(trees)]
        target, source, chunk = np.concatenate(rows, axis=1)
        yield make_round(source, target, chunk, False)


def _segment(tree: tuple[np.ndarray, np.ndarray], turn: np.ndarray, segments: int, which: int) -> np.ndarray:
    """Child, parent and chunk of the ranks whose link to their parent carries segment ``turn`` of a tree."""
    busy = np.flatnonzero((tree[0] >= 0) & (turn >= 0) & (turn < segments))
    return np.stack([busy, tree[0][busy], which * segments + turn[busy]])


def _blocks(name: str, ranks: int, rounds: object) -> Schedule:
    return Schedule(name, "reduce_scatter", ranks, ranks, rounds)


def _all_reduce(name: str, ranks: int, parts: int, rounds: object) -> Schedule:
    return Schedule(name, "all_reduce", ranks, parts, rounds)
