"""Memory traffic, counted while it happens: matrix products and attention that fetch every value they touch.

Arrays lie in a slow memory; a kernel may compute only with what it has read into a fast one. :class:`Memory` counts
each value read and written, and how many the fast memory holds at once. Results are real, so that they can be compared
with NumPy's; counts are in values (times the bytes of one they are traffic).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = [
    "Memory", "Traffic", "attention_memory", "flash_attention", "flash_blocks", "flash_bound", "least_loads",
    "naive_attention", "naive_matmul", "online_softmax", "tiled_matmul",
]  # fmt: skip


@dataclass
class Traffic:
    """Values that crossed one border: read from the slower side, written to it, and the most held on the faster one."""

    name: str
    reads: int = 0
    writes: int = 0
    held: int = 0
    most_held: int = 0

    @property
    def total(self) -> int:
        """Reads and writes."""
        return self.reads + self.writes

    def nbytes(self, bytes_per_value: float = 4) -> float:
        """Return the traffic in bytes."""
        return self.total * bytes_per_value


@dataclass
class Memory:
    """Slow memory behind a fast one: reads and writes go through it and are counted."""

    traffic: Traffic = field(default_factory=lambda: Traffic("HBM"))
    scratch_values: int = 0

    def read(self, array: np.ndarray, *where: slice) -> np.ndarray:
        """Return a copy of a part of ``array`` in fast memory."""
        part = array[where].copy()
        self.traffic.reads += part.size
        self.hold(part.size)
        return part

    def write(self, array: np.ndarray, values: np.ndarray, *where: slice) -> None:
        """Write values back into a part of ``array``."""
        array[where] = values
        self.traffic.writes += values.size

    def hold(self, values: int) -> None:
        """Take room for ``values`` more in fast memory (negative: free it)."""
        self.traffic.held += values
        self.traffic.most_held = max(self.traffic.most_held, self.traffic.held)

    def free(self, *parts: np.ndarray) -> None:
        """Forget parts that were read."""
        self.hold(-sum(part.size for part in parts))

    def scratch(self, *shape: int) -> np.ndarray:
        """Return a new array in slow memory for intermediate results; its size is counted."""
        self.scratch_values += math.prod(shape)
        return np.zeros(shape)


def naive_matmul(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, Traffic]:
    """Return the product and its traffic, each result computed by a thread of its own that fetches a row and a column.

    Raises:
        ValueError: for shapes that do not multiply.
    """
    _multiplicable(a, b)
    memory, out = Memory(), np.zeros((len(a), b.shape[1]))
    for i, j in np.ndindex(out.shape):
        row, column = memory.read(a, slice(i, i + 1)), memory.read(b, slice(None), slice(j, j + 1))
        memory.write(out, row @ column, slice(i, i + 1), slice(j, j + 1))
        memory.free(row, column)
    return out, memory.traffic


def tiled_matmul(
    a: np.ndarray, b: np.ndarray, tiles: Sequence[int] = (32,), depth: int = 0,
    names: Sequence[str] = ("HBM", "shared memory", "registers"),
) -> tuple[np.ndarray, list[Traffic]]:  # fmt: skip
    """Return the product and the traffic at each border, computed in tiles of results that stay while operands pass.

    Args:
        a, b: the factors.
        tiles: side of a square tile of results at each level, the outermost first: (64, 8) fetches from HBM into
            shared memory for tiles of 64 x 64, and from there into registers for tiles of 8 x 8. Within registers
            arithmetic is free.
        depth: columns of ``a`` that a step of the outermost level fetches at once; 0 for as many as the tile's side. 1
            leaves most of the fast memory to the results, which is best.
        names: of the memories, the outermost first.

    Raises:
        ValueError: for shapes that do not multiply, or tiles that are not positive and falling.
    """
    _multiplicable(a, b)
    if not tiles or min(tiles) < 1 or list(tiles) != sorted(tiles, reverse=True) or depth < 0 or len(tiles) > 3:
        raise ValueError(f"tiles is {tuple(tiles)} and depth {depth}; one to three positive sides, falling, are needed")
    borders = [Memory(Traffic(name)) for name in names[: len(tiles)]]
    out = np.zeros((len(a), b.shape[1]))
    _tiled(a, b, out, list(tiles), depth, borders)
    return out, [border.traffic for border in borders]


def _tiled(
    a: np.ndarray, b: np.ndarray, out: np.ndarray, tiles: list[int], depth: int, borders: list[Memory],
    add: bool = False,
) -> None:  # fmt: skip
    """Compute ``out`` (or add to it) tile by tile, fetching through the first border and handing on to the next."""
    side, memory, step = tiles[0], borders[0], depth or tiles[0]
    for i in _steps(len(a), side):
        for j in _steps(b.shape[1], side):
            tile = memory.read(out, i, j) if add else np.zeros_like(out[i, j])
            if not add:
                memory.hold(tile.size)
            for k in _steps(a.shape[1], step):
                left, right = memory.read(a, i, k), memory.read(b, k, j)
                _inside(left, right, tile, tiles, borders)
                memory.free(left, right)
            memory.write(out, tile, i, j)
            memory.free(tile)


def _inside(left: np.ndarray, right: np.ndarray, tile: np.ndarray, tiles: list[int], borders: list[Memory]) -> None:
    """Multiply what was fetched: at the innermost level at once, else in smaller tiles."""
    if len(tiles) == 1:
        tile += left @ right
    else:
        _tiled(left, right, tile, tiles[1:], 1, borders[1:], add=True)


def _steps(length: int, step: int) -> list[slice]:
    """Slices of ``step`` that cover ``length``."""
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def _multiplicable(a: np.ndarray, b: np.ndarray) -> None:
    """An error if the shapes do not multiply."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0] or 0 in (*a.shape, *b.shape):
        raise ValueError(f"shapes {a.shape} and {b.shape} do not multiply; (rows, inner) and (inner, cols) are needed")


def least_loads(rows: int, inner: int, cols: int, fast: int) -> float:
    """Return the fewest values any schedule of a matrix product must read with ``fast`` values of fast memory.

    2 rows inner cols / sqrt(fast) - 2 fast (Hong and Kung 1981 with the constant of Smith et al. 2019), and never
    less than both factors once.

    Raises:
        ValueError: for sizes below 1.
    """
    if min(rows, inner, cols, fast) < 1:
        raise ValueError(f"sizes are {rows}, {inner}, {cols} and fast {fast}; all must be 1 or more")
    return max(2 * rows * inner * cols / math.sqrt(fast) - 2 * fast, rows * inner + inner * cols)


def online_softmax(scores: np.ndarray, block: int) -> np.ndarray:
    """Return the softmax of one row, its maximum and sum found in a single pass over blocks.

    A new maximum rescales the sum that was found so far (Milakov and Gimelshein 2018).
    """
    _at_least_one(block=block)
    top, total = -math.inf, 0.0
    for part in _steps(len(scores), block):
        new = max(top, scores[part].max())
        total = total * math.exp(top - new) + np.exp(scores[part] - new).sum()
        top = new
    return np.exp(scores - top) / total


def naive_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, memory: Memory | None = None, causal: bool = False
) -> np.ndarray:
    """Return softmax(QK^T / sqrt(d))V, one kernel for each step, the scores and weights written to slow memory between.

    Args:
        q, k, v: arrays of tokens x head size.
        memory: where to count; three kernels, each a row at a time.
        causal: whether a token attends only to itself and those before it.

    Raises:
        ValueError: for shapes that do not fit.
    """
    memory, s = memory or Memory(), _attention_shapes(q, k, v)
    scores, weights, out = memory.scratch(s, s), memory.scratch(s, s), np.zeros_like(v, dtype=float)
    keys = memory.read(k)
    for i in _steps(s, 1):
        row = memory.read(q, i)
        memory.write(scores, _scores(row, keys, i, slice(0, s), causal), i)
        memory.free(row)
    memory.free(keys)
    for i in _steps(s, 1):
        row = memory.read(scores, i)
        top = np.exp(row - row.max())
        memory.write(weights, top / top.sum(), i)
        memory.free(row)
    values = memory.read(v)
    for i in _steps(s, 1):
        row = memory.read(weights, i)
        memory.write(out, row @ values, i)
        memory.free(row)
    memory.free(values)
    return out


def flash_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, block_q: int = 64, block_k: int = 64, memory: Memory | None = None,
    causal: bool = False,
) -> np.ndarray:  # fmt: skip
    """Return the same, with online softmax: a block of queries stays, blocks of keys and values pass (Dao 2023).

    Maximum, sum and result of each query are kept on the chip and rescaled when a larger score comes; nothing but the
    result is written. With ``causal`` blocks that lie wholly in the future are not fetched.

    Raises:
        ValueError: for shapes that do not fit, or blocks below 1.
    """
    memory, s = memory or Memory(), _attention_shapes(q, k, v)
    _at_least_one(block_q=block_q, block_k=block_k)
    out = np.zeros_like(v, dtype=float)
    for i in _steps(s, block_q):
        queries = memory.read(q, i)
        memory.hold(queries.size + 2 * len(queries))  # the result, the maxima and the sums
        memory.write(out, _query_block(queries, k, v, i, block_k, memory, causal), i)
        memory.hold(-2 * queries.size - 2 * len(queries))
    return out


def _query_block(
    queries: np.ndarray, k: np.ndarray, v: np.ndarray, i: slice, block: int, memory: Memory, causal: bool
) -> np.ndarray:
    """Pass all keys and values by one block of queries."""
    top, total = np.full((len(queries), 1), -np.inf), np.zeros((len(queries), 1))
    result = np.zeros((len(queries), v.shape[1]))
    for j in _steps(min(len(k), i.stop) if causal else len(k), block):
        keys, values = memory.read(k, j), memory.read(v, j)
        scores = _scores(queries, keys, i, j, causal)
        memory.hold(scores.size)
        new = np.maximum(top, scores.max(axis=1, keepdims=True))
        weights, scale = np.exp(scores - new), np.exp(top - new)
        total = total * scale + weights.sum(axis=1, keepdims=True)
        result, top = result * scale + weights @ values, new
        memory.free(scores, keys, values)
    return result / total


def _scores(queries: np.ndarray, keys: np.ndarray, i: slice, j: slice, causal: bool) -> np.ndarray:
    """Scaled scores of a block; of tokens in the future minus infinity."""
    scores = queries @ keys.T / math.sqrt(queries.shape[1])
    if causal:
        future = np.arange(j.start, j.stop)[None] > np.arange(i.start, i.stop)[:, None]
        scores = np.where(future, -np.inf, scores)
    return scores


def _attention_shapes(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> int:
    """The number of tokens, or an error that says which shapes do not fit."""
    if q.ndim != 2 or q.shape != k.shape or q.shape != v.shape or 0 in q.shape:
        raise ValueError(f"q, k, v have the shapes {q.shape}, {k.shape}, {v.shape}; three times tokens x head size")
    return len(q)


def _at_least_one(**given: int) -> None:
    """An error that names the first value below 1."""
    for name, value in given.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; 1 or more is needed")


def attention_memory(q: np.ndarray, k: np.ndarray, v: np.ndarray, kind: str = "flash", fast: int = 0) -> Memory:
    """Return the counted memory of one attention, blocks chosen for ``fast`` values of fast memory ("flash").

    Raises:
        ValueError: as :func:`flash_attention` and :func:`flash_blocks`, or for an unknown kind.
    """
    memory = Memory()
    if kind == "naive":
        naive_attention(q, k, v, memory)
    elif kind == "flash":
        flash_attention(q, k, v, *(flash_blocks(fast, q.shape[1]) if fast else (64, 64)), memory)
    else:
        raise ValueError(f"kind is {kind!r}; there are naive, flash")
    return memory


def flash_blocks(fast: int, head_size: int) -> tuple[int, int]:
    """Return rows of a block of queries and of keys for ``fast`` values of fast memory.

    ceil(M / 4d) queries and min(ceil(M / 4d), d) keys: the choice of Dao et al. 2022, algorithm 1, with the loops (and
    so the two) exchanged as kernels do since. It counts queries, keys, values and results; the scores and statistics
    of a block come on top, in registers.

    Raises:
        ValueError: if not even one row of each fits.
    """
    if head_size < 1 or fast < 4 * head_size:
        raise ValueError(f"fast is {fast}; {4 * head_size} values or more are needed for heads of {head_size}")
    rows = math.ceil(fast / (4 * head_size))
    return rows, min(rows, head_size)


def flash_bound(context: int, head_size: int, fast: int) -> float:
    """Return N^2 d^2 / M: the order of what FlashAttention moves, and for d <= M <= N d no exact attention moves less.

    Dao et al. 2022, theorem 2 and proposition 3, in values and without the constant.
    """
    _at_least_one(context=context, head_size=head_size, fast=fast)
    return (context * head_size) ** 2 / fast
