"""A systolic array, cycle by cycle: multiply-add cells that hand operands to their neighbours.

Weight-stationary (the TPU's; Jouppi et al. 2017): weights are loaded into the cells, activations enter at the left and
move right, partial sums move down and leave at the bottom. Output-stationary: activations move right, weights move
down, and each cell adds up one result. Either way an operand is fetched once and used in a whole row or column.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

__all__ = ["DATAFLOWS", "Run", "State", "intensity", "multiply", "steps"]

DATAFLOWS = ("weight-stationary", "output-stationary")
"""What stays in the cells while the rest moves."""


@dataclass(frozen=True)
class State:
    """The array after one cycle.

    Attributes:
        cycle: from 1.
        dataflow: what stays.
        left: activations in the cells (moving right), 0 where there is none.
        down: partial sums (weight-stationary) or weights (output-stationary), moving down.
        held: what stays: weights, or the sums so far.
        active: cells that multiplied two operands in this cycle.
        entering: values that entered at the edges in this cycle.
        finished: results that are complete, NaN where they are not.
    """

    cycle: int
    dataflow: str
    left: np.ndarray
    down: np.ndarray
    held: np.ndarray
    active: np.ndarray
    entering: int
    finished: np.ndarray


@dataclass(frozen=True)
class Run:
    """A whole product: the result, cycles, multiply-adds, and values that entered and left the array.

    Attributes:
        product: the result.
        cells: cells of the array.
        cycles: cycles in all.
        macs: multiply-adds that were done.
        operands: values that entered: activations and weights.
        results: values that left: results, or partial sums that are added up outside.
    """

    product: np.ndarray
    cells: int
    cycles: int
    macs: int
    operands: int
    results: int

    @property
    def utilisation(self) -> float:
        """Multiply-adds over those that all cells could have done in these cycles."""
        return self.macs / (self.cells * self.cycles)

    def intensity(self, bytes_per_value: float = 2, results: bool = False) -> float:
        """Return FLOP per byte of operands that enter the array (with the results that leave, if asked for)."""
        return 2 * self.macs / (bytes_per_value * (self.operands + results * self.results))


def steps(a: np.ndarray, b: np.ndarray, dataflow: str = DATAFLOWS[0]) -> Iterator[State]:
    """Yield the array after every cycle of ``a @ b``, on an array that fits the product.

    Weight-stationary the array has the shape of ``b`` (inner x cols) and starts with its weights loaded;
    output-stationary that of the product (rows x cols).

    Raises:
        ValueError: for shapes that do not multiply or an unknown dataflow.
    """
    _fits(a, b)
    if dataflow not in DATAFLOWS:
        raise ValueError(f"dataflow is {dataflow!r}; there are {', '.join(DATAFLOWS)}")
    return _weight_stationary(a, b) if dataflow == DATAFLOWS[0] else _output_stationary(a, b)


def _weight_stationary(a: np.ndarray, b: np.ndarray) -> Iterator[State]:
    """Activations of row m enter row k of the array at cycle m + k, so that they meet the sum that comes from above."""
    (m, k), n = a.shape, b.shape[1]
    skewed = _skew(a.T, m + k + n - 2)  # row k of the array, by cycle
    out = np.full((m, n), np.nan)
    left, down, there = np.zeros((k, n)), np.zeros((k, n)), np.zeros((k, n), dtype=bool)
    for cycle in range(m + k + n - 2):
        values, valid = skewed[:, cycle], _enters(k, m, cycle)
        left, there = _shift(left, values, 1), _shift(there, valid, 1)
        above = np.vstack([np.zeros((1, n)), down[:-1]])
        down = np.where(there, above + left * b, 0.0)
        for column in range(n):  # row i of the product leaves column j at cycle i + k - 1 + j
            row = cycle - (k - 1) - column
            if 0 <= row < m:
                out[row, column] = down[-1, column]
        shown = np.where(there, left, 0.0)
        yield State(cycle + 1, DATAFLOWS[0], shown, down, b, there, int(valid.sum()), out.copy())


def _output_stationary(a: np.ndarray, b: np.ndarray) -> Iterator[State]:
    """Row i of ``a`` enters row i, column j of ``b`` column j, each a cycle later than its neighbour."""
    (m, k), n = a.shape, b.shape[1]
    cycles = m + k + n - 2
    rows, cols = _skew(a, cycles), _skew(b.T, cycles)
    left, down, held = np.zeros((m, n)), np.zeros((m, n)), np.zeros((m, n))
    there, done = np.zeros((m, n), dtype=bool), np.zeros((m, n), dtype=int)
    for cycle in range(cycles):
        from_left, from_top = _enters(m, k, cycle), _enters(n, k, cycle)
        left, there = _shift(left, rows[:, cycle], 1), _shift(there, from_left, 1)
        down = _shift(down, cols[:, cycle], 0)
        held, done = held + np.where(there, left * down, 0.0), done + there
        entering = int(from_left.sum() + from_top.sum())
        finished = np.where(done == k, held, np.nan)
        shown = (np.where(there, operand, 0.0) for operand in (left, down))
        yield State(cycle + 1, DATAFLOWS[1], *shown, held.copy(), there, entering, finished)


def _skew(lines: np.ndarray, cycles: int) -> np.ndarray:
    """Line i delayed by i cycles: what enters each edge cell, by cycle."""
    out = np.zeros((len(lines), cycles))
    for i, line in enumerate(lines):
        out[i, i : i + len(line)] = line
    return out


def _enters(lines: int, length: int, cycle: int) -> np.ndarray:
    """Which edge cells get a value in this cycle."""
    return (np.arange(lines) <= cycle) & (cycle < np.arange(lines) + length)


def _shift(grid: np.ndarray, edge: np.ndarray, axis: int) -> np.ndarray:
    """Move the grid by one along ``axis``; the edge gets new values."""
    moved = np.roll(grid, 1, axis=axis)
    if axis:
        moved[:, 0] = edge
    else:
        moved[0] = edge
    return moved


def multiply(a: np.ndarray, b: np.ndarray, side: int = 128, dataflow: str = DATAFLOWS[0]) -> Run:
    """Return the product computed on an array of side x side, tile by tile, every tile cycle by cycle.

    Weight-stationary: a tile of side x side weights stays while all rows of ``a`` stream past it; partial sums of the
    tiles of one column are added up outside. Output-stationary: a tile of results stays while ``inner`` values pass.
    The next tile streams in behind the last, its weights loaded (results moved out) meanwhile in ``side`` cycles: with
    fewer rows than that the array waits. One tile takes 3 side + stream - 2 cycles, as in SCALE-Sim (Samajdar 2018).

    Raises:
        ValueError: for shapes that do not multiply, an unknown dataflow, or a side below 1.
    """
    _fits(a, b)
    if side < 1:
        raise ValueError(f"side is {side}; 1 or more is needed")
    if dataflow not in DATAFLOWS:
        raise ValueError(f"dataflow is {dataflow!r}; there are {', '.join(DATAFLOWS)}")
    return _run(a, b, side, dataflow)


def _run(a: np.ndarray, b: np.ndarray, side: int, dataflow: str) -> Run:
    """Go through the tiles; add up what each did."""
    (m, k), n = a.shape, b.shape[1]
    still = dataflow == DATAFLOWS[0]
    first, second = (_tiles(k, side), _tiles(n, side)) if still else (_tiles(m, side), _tiles(n, side))
    product, macs, operands, results = np.zeros((m, n)), 0, 0, 0
    for x in first:
        for y in second:
            left, right = (a[:, x], b[x, y]) if still else (a[x], b[:, y])
            *_, last = counted = list(steps(left, right, dataflow))
            macs += sum(int(state.active.sum()) for state in counted)
            operands += sum(state.entering for state in counted) + (right.size if still else 0)
            product[(slice(None) if still else x), y] += last.finished
            results += last.finished.size
    stream = m if still else k
    cycles = side + (len(first) * len(second) - 1) * max(stream, side) + stream + 2 * side - 2
    return Run(product, side * side, cycles, macs, operands, results)


def _tiles(length: int, side: int) -> list[slice]:
    """Slices of ``side`` that cover ``length``."""
    return [slice(start, min(start + side, length)) for start in range(0, length, side)]


def _fits(a: np.ndarray, b: np.ndarray) -> None:
    """An error if the shapes do not multiply."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0] or 0 in (*a.shape, *b.shape):
        raise ValueError(f"shapes {a.shape} and {b.shape} do not multiply; (rows, inner) and (inner, cols) are needed")


def intensity(side: int, bytes_per_value: float = 2) -> float:
    """Return FLOP per byte of operands of a (side x K)(K x side) product on an array of that side: side / bytes.

    2 side^2 K FLOP over 2 side K values. The chapter's 128 FLOP/B for a side of 128 is FLOP per *value*; in BF16 it is
    64 per byte.

    Raises:
        ValueError: for a side or bytes that are not positive.

    >>> intensity(128), intensity(128, 1)
    (64.0, 128.0)
    """
    if not (side >= 1 and bytes_per_value > 0):
        raise ValueError(f"side is {side} and bytes_per_value {bytes_per_value}; both must be positive")
    return side / bytes_per_value
