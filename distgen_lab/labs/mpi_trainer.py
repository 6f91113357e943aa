"""Data-parallel training over MPI: a small model, every way to combine its gradients, and the usual mistakes.

``mpiexec -n 4 python -m mpi4py -m distgen_lab.labs.mpi_trainer`` trains in each way and prints how far the result is
from that of a single process. The model is a perceptron with one hidden layer and a squared loss, in float64, small
enough that its gradients are written out here.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy import ndarray as Array

from distgen_lab.labs import ranks_of
from distgen_lab.labs.mpi_ranks import MPI, run_mpi

__all__ = [
    "MISTAKES", "SAMPLES", "SHAPES", "SYNCS", "backward", "batch", "bucketed", "chunks_of_count", "distance", "drift",
    "lab", "main", "new_weights", "one_by_one", "overlapped", "shard", "shards_seen", "symptoms", "train",
    "twin",
]  # fmt: skip

SHAPES = ((8, 32), (32,), (32, 1), (1,))
"""Weights and biases of both layers."""
SAMPLES = 48
"""Samples in a step, of all ranks together: 1, 2, 3, 4, 6, 8, 12, 16, 24 or 48 ranks get equal shares."""
RATE = 0.1
Gradients = Iterator[tuple[int, Array]]


def new_weights(seed: int = 0) -> list[Array]:
    """Return fresh weights, the same for the same seed."""
    draw = np.random.default_rng(seed)
    return [draw.normal(size=shape) / np.sqrt(shape[0]) for shape in SHAPES]


def batch(step: int) -> tuple[Array, Array]:
    """Return the whole batch of a step: inputs (48, 8) and targets (48, 1)."""
    draw = np.random.default_rng(1000 + step)
    x = draw.normal(size=(SAMPLES, SHAPES[0][0]))
    return x, np.sin(x.sum(1, keepdims=True))


def shard(step: int, rank: int, size: int) -> tuple[Array, Array]:
    """Return one rank's share of the batch: every ``size``-th sample, beginning with its own.

    Raises:
        ValueError: if the samples do not divide evenly: the mean of the ranks' means would not be the mean.
    """
    if SAMPLES % size:
        raise ValueError(f"size is {size}; a divisor of the {SAMPLES} samples is needed")
    return tuple(part[rank::size] for part in batch(step))


def backward(weights: Sequence[Array], x: Array, y: Array) -> Gradients:
    """Yield (place, gradient of the mean loss) for each weight, the last one first, as backpropagation finds them."""
    w1, b1, w2, b2 = weights
    hidden = np.tanh(x @ w1 + b1)
    error = 2 * (hidden @ w2 + b2 - y) / len(x)
    yield 3, error.sum(0)
    yield 2, hidden.T @ error
    inner = (error @ w2.T) * (1 - hidden**2)
    yield 1, inner.sum(0)
    yield 0, x.T @ inner


# ------------------------------------------------------------------ ways to combine gradients


def one_by_one(comm: Any, gradients: Gradients) -> dict[int, Array]:
    """Return the mean of the ranks' gradients: one blocking all-reduce for each, after the backward pass."""
    found = dict(gradients)
    for gradient in found.values():
        comm.Allreduce(MPI.IN_PLACE, gradient)
        gradient /= comm.size
    return found


def bucketed(comm: Any, gradients: Gradients, limit: int = 1024) -> dict[int, Array]:
    """The same with few all-reduces: gradients are packed into buckets of up to ``limit`` bytes."""
    found, start = dict(gradients), 0
    places = list(found)
    while start < len(places):
        stop, size = start + 1, found[places[start]].nbytes
        while stop < len(places) and size + found[places[stop]].nbytes <= limit:
            size, stop = size + found[places[stop]].nbytes, stop + 1
        _all_reduce_packed(comm, [found[place] for place in places[start:stop]])
        start = stop
    return found


def _all_reduce_packed(comm: Any, parts: list[Array]) -> None:
    """Average several arrays, in place, in one all-reduce."""
    packed = np.concatenate([part.ravel() for part in parts])
    comm.Allreduce(MPI.IN_PLACE, packed)
    packed /= comm.size
    ends = np.cumsum([part.size for part in parts])
    for part, mean in zip(parts, np.split(packed, ends[:-1]), strict=True):
        part[:] = mean.reshape(part.shape)


def overlapped(comm: Any, gradients: Gradients) -> dict[int, Array]:
    """The same, each all-reduce begun as soon as its gradient is there, while the next one is computed."""
    found, requests = {}, []
    for place, gradient in gradients:
        found[place] = gradient
        requests.append(comm.Iallreduce(MPI.IN_PLACE, gradient))
    for request in requests:
        request.Wait()
    for gradient in found.values():
        gradient /= comm.size
    return found


SYNCS: dict[str, Callable[..., dict[int, Array]]] = {
    "one by one": one_by_one, "bucketed": bucketed, "overlapped": overlapped,
}  # fmt: skip


# ------------------------------------------------------------------ training

MISTAKES = ("no broadcast", "sum, not mean", "aliased buffers", "the same data", "no all-reduce")
"""What :func:`train` can be told to do wrong."""


def train(steps: int = 5, sync: str = "one by one", mistake: str = "") -> list[list[Array]]:
    """Train in a rank, together with the others; return this rank's weights after each step.

    Args:
        steps: number of steps.
        sync: one of :data:`SYNCS`.
        mistake: "" or one of :data:`MISTAKES`.

    Raises:
        ValueError: for another sync or mistake, or ranks that do not divide the batch.
    """
    for name, value, known in (("sync", sync, SYNCS), ("mistake", mistake, ("", *MISTAKES))):
        if value not in known:
            raise ValueError(f"{name} is {value!r}; there are: {', '.join(filter(None, known))}")
    comm = MPI.COMM_WORLD
    weights = new_weights(seed=comm.rank)
    if mistake != "no broadcast":
        for weight in weights:
            comm.Bcast(weight, root=0)
    history = []
    for step in range(steps):
        x, y = _share(comm, step, mistake)
        means = _means(comm, backward(weights, x, y), sync, mistake)
        weights = [weight - RATE * means[place] for place, weight in enumerate(weights)]
        history.append(weights)
    return history


def _share(comm: Any, step: int, mistake: str) -> tuple[Array, Array]:
    return shard(step, 0 if mistake == "the same data" else comm.rank, comm.size)


def _means(comm: Any, gradients: Gradients, sync: str, mistake: str) -> dict[int, Array]:
    if mistake == "no all-reduce":
        return dict(gradients)
    if mistake == "aliased buffers":
        found = dict(gradients)
        for gradient in found.values():
            comm.Allreduce(gradient, gradient)
        return found
    means = SYNCS[sync](comm, gradients)
    return {place: mean * comm.size for place, mean in means.items()} if mistake == "sum, not mean" else means


def twin(steps: int = 5) -> list[list[Array]]:
    """Return the weights after each step of a single process on the whole batch: what all ranks should have."""
    weights, history = new_weights(seed=0), []
    for step in range(steps):
        gradients = dict(backward(weights, *batch(step)))
        weights = [weight - RATE * gradients[place] for place, weight in enumerate(weights)]
        history.append(weights)
    return history


def distance(one: Sequence[Sequence[Array]], other: Sequence[Sequence[Array]]) -> float:
    """Return the largest difference between two runs, over all steps and weights."""
    pairs = (pair for a, b in zip(one, other, strict=True) for pair in zip(a, b, strict=True))
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def drift(comm: Any, weights: Sequence[Array]) -> float:
    """Return, on every rank, how far apart the ranks' copies of the weights are: 0 if they are copies."""
    flat = np.concatenate([weight.ravel() for weight in weights])
    highest, lowest = np.empty_like(flat), np.empty_like(flat)
    comm.Allreduce(flat, highest, op=MPI.MAX)
    comm.Allreduce(flat, lowest, op=MPI.MIN)
    return float((highest - lowest).max())


def shards_seen(comm: Any, x: Array) -> int:
    """Return, on every rank, how many different shards the ranks work on: as many as ranks if all is well."""
    return len(set(comm.allgather(x.tobytes())))


def symptoms(mistake: str = "", steps: int = 3) -> tuple[float, float, int]:
    """Train in a rank with a mistake; return what gives it away, the same on every rank.

    Returns:
        the largest difference to the single-process twin, how far the ranks' copies are apart, and how many different
        shards there were.
    """
    comm = MPI.COMM_WORLD
    history = train(steps, mistake=mistake)
    far = comm.allreduce(distance(history, twin(steps)), op=MPI.MAX)
    return far, drift(comm, history[-1]), shards_seen(comm, _share(comm, 0, mistake)[0])


def chunks_of_count(count: int, most: int = 2**31 - 1) -> list[tuple[int, int]]:
    """Return (start, stop) of the calls that all-reduce ``count`` elements if a call takes at most ``most``.

    Counts of MPI's classic interface are C ``int``; MPI-4's large-count functions (``MPI_Allreduce_c``) take more.

    Raises:
        ValueError: for a negative count, or no room for one element.
    """
    if count < 0 or most < 1:
        raise ValueError(f"count is {count} and most is {most}; at least 0 and 1 are needed")
    return [(start, min(start + most, count)) for start in range(0, count, most)]


def lab(steps: int = 5) -> str:
    """Train in a rank in every way; return how far each is from the single-process twin, and what mistakes do."""
    comm, wanted = MPI.COMM_WORLD, twin(steps)
    lines = [ranks_of()]
    for sync in SYNCS:
        far = comm.allreduce(distance(train(steps, sync), wanted), op=MPI.MAX)
        lines.append(f"{sync:<14} {far:.1e} from the twin")
    for mistake in ("no broadcast", "sum, not mean", "the same data", "no all-reduce"):
        far, apart, shards = symptoms(mistake, steps)
        lines.append(f"{mistake:<14} {far:.1e} from the twin, the ranks {apart:.1e} apart, {shards} different shards")
    return "\n".join(lines)


def main() -> None:
    """Run the lab from the command line."""
    run_mpi(lab)


if __name__ == "__main__":
    main()
