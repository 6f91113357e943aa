"""The few patterns of rounds that the algorithms are made of."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from distgen_lab.collectives.schedule import Round, make_round, relabelled

__all__ = ["binomial", "bits_of", "butterfly", "direct", "exchange", "folded", "grid", "power_of_two", "ring", "spans"]


def ring(ranks: int, reduce: bool) -> Iterator[Round]:
    """P-1 rounds in which every rank sends one chunk to the next.

    Adding up, chunk i ends whole on rank i; copying, chunk i starts there. All rounds share their arrays but one.
    """
    source = np.arange(ranks)
    target, flags = (source + 1) % ranks, np.full(ranks, reduce)
    for number in range(ranks - 1):
        yield Round(source, target, (source - number - reduce) % ranks, flags)


def grid(shape: Sequence[int], axis: int, whole: Sequence[int], reduce: bool) -> Iterator[Round]:
    """Rings along one axis of a grid of ranks (row-major), all at the same time.

    Chunks are numbered like ranks. ``whole`` are the axes along which a rank holds only its own coordinate's chunks
    when the rings have added up (or before they copy); each message carries the chunks of all other axes.
    """
    place = np.indices(shape).reshape(len(shape), -1)
    stride = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    free = _all_of([(stride[i], shape[i]) for i in range(len(shape)) if i != axis and i not in whole])
    own = sum((place[i] * stride[i] for i in whole), np.zeros(math.prod(shape), np.int64))
    ranks = np.arange(math.prod(shape))
    onward = ranks + ((place[axis] + 1) % shape[axis] - place[axis]) * stride[axis]
    first = make_round(ranks[:, None], onward[:, None], free, reduce)
    for number in range(shape[axis] - 1):
        along = (place[axis] - number - reduce) % shape[axis] * stride[axis]
        yield Round(first.source, first.target, ((own + along)[:, None] + free).ravel(), first.reduce)


def _all_of(axes: Sequence[tuple[int, int]]) -> np.ndarray:
    """Every sum of one multiple of each stride."""
    found = np.zeros(1, np.int64)
    for stride, size in axes:
        found = (found[:, None] + stride * np.arange(size)).ravel()
    return found


def bits_of(ranks: int, near_first: bool) -> list[int]:
    """The distances 1, 2, 4, ... below P, nearest or furthest first."""
    bits = [1 << i for i in range((ranks - 1).bit_length())]
    return bits if near_first else bits[::-1]


def exchange(ranks: int, near_first: bool) -> Iterator[Round]:
    """log2 P rounds in which rank i and rank i XOR distance add up all they have, in one chunk."""
    everyone = np.arange(ranks)
    for bit in bits_of(ranks, near_first):
        yield make_round(everyone, everyone ^ bit, 0, True)


def butterfly(ranks: int, near_first: bool, reduce: bool) -> Iterator[Round]:
    """log2 P rounds between rank i and rank i XOR distance; chunk i ends (adding) or starts (copying) on rank i.

    Adding, each sends the half of its remaining chunks that the other keeps; copying, all it holds.
    """
    everyone = np.arange(ranks)[:, None]
    bits = bits_of(ranks, near_first)
    for number, bit in enumerate(bits):
        settled, open_bits = (
            (sum(bits[: number + 1]), bits[number + 1 :]) if reduce else (sum(bits[number:]), bits[:number])
        )
        keeper = everyone ^ bit if reduce else everyone
        yield make_round(everyone, everyone ^ bit, (keeper & settled) + _all_of([(b, 2) for b in open_bits]), reduce)


def folded(ranks: int, parts: int, core: Callable[[int], Iterator[Round]]) -> Iterator[Round]:
    """An all-reduce for a power of two P', used for any P: the ranks too many hand over first and get it back last.

    The first 2 (P - P') ranks pair up, the even ones hand over to the odd ones (Thakur et al. 2005, section 4.4).
    """
    inner = 1 << (ranks.bit_length() - 1)
    even = 2 * np.arange(ranks - inner)[:, None]
    taking_part = np.r_[even.ravel() + 1, np.arange(2 * len(even), ranks)]
    chunks = np.arange(parts)
    if len(even):
        yield make_round(even, even + 1, chunks, True)
    yield from relabelled(core(inner), taking_part)
    if len(even):
        yield make_round(even + 1, even, chunks, False)


def binomial(ranks: int) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """The binomial tree from rank 0 as parents, children and distance of each round, furthest first.

    So neighbours in the tree at the end are neighbours in rank, and no two messages of a round cross on a line.
    """
    tree = []
    for bit in bits_of(ranks, near_first=False):
        parents = np.arange(0, ranks - bit, 2 * bit)
        tree.append((parents, parents + bit, bit))
    return tree


def spans(start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers from each start up to its stop, in a row, and for each of them which start it came from."""
    sizes = stop - start
    owner = np.repeat(np.arange(len(start)), sizes)
    return np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + start[owner], owner


def direct(ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """Source and target of a message from every rank to every other."""
    source, target = np.indices((ranks, ranks)).reshape(2, -1)
    return source[source != target], target[source != target]


def power_of_two(ranks: int, algorithm: str, instead: str) -> None:
    """Say that an algorithm needs a power of two, unless it has one."""
    if ranks & (ranks - 1):
        raise ValueError(f"ranks is {ranks}; {algorithm} needs a power of two ({instead} takes any number)")
