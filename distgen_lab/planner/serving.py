"""Serving by roofline: time to the first token, time of each further one, memory, and tokens per second.

Prefill passes the prompt through all layers at once: compute limits it. Decode passes one token of each sequence: every
weight and the whole cache are read for it, so memory limits it until the batch is large. Tensor parallelism divides
both and adds two small all-reduces a layer, whose start-ups (NCCL's own constants) bound how fast one user is served.
"""

from dataclasses import dataclass
from os import PathLike

from distgen_lab import nccl_tuner
from distgen_lab.claims import html_table
from distgen_lab.hardware import bytes_of
from distgen_lab.models import ModelShape
from distgen_lab.planner.efficiency import Efficiency, best_rate, fitted
from distgen_lab.planner.layout import Batch, Layout
from distgen_lab.planner.machine import Cluster, collective_time
from distgen_lab.planner.memory import RESERVED
from distgen_lab.planner.shape import layer_of
from distgen_lab.planner.work import step_work
from distgen_lab.units import US, duration, quantity

__all__ = ["Served", "ServingPlan", "serve"]

READ = 0.8
"""Share of the memory bandwidth that reading weights and cache reaches; round, not fitted."""
LAUNCH = 5 * US
"""Seconds between the kernels of a recorded graph: nobody waits for the processor. Round, not fitted."""


@dataclass(frozen=True)
class Served:
    """Bytes on one device: weights, and keys and values of all sequences."""

    weights: float
    cache: float

    @property
    def total(self) -> float:
        """Both."""
        return self.weights + self.cache


@dataclass(frozen=True, repr=False)
class ServingPlan:
    """One replica of a model that answers ``batch`` requests at a time.

    Attributes:
        model, cluster: what runs where.
        tensor, batch, prompt, output: devices of the replica; sequences; tokens of a request and of an answer.
        prefill: seconds to the first token.
        decode: seconds of a further token of all sequences, at the mean length of the cache.
        parts_prefill, parts_decode: seconds of both by "compute", "HBM", "network" and "launch"; compute and reading
            go on at once, so the longer of them counts.
        memory: bytes on a device when the last token is there.
    """

    model: ModelShape
    cluster: Cluster
    tensor: int
    batch: int
    prompt: int
    output: int
    parts_prefill: dict[str, float]
    parts_decode: dict[str, float]
    memory: Served

    @property
    def prefill(self) -> float:
        """Seconds until all first tokens are there."""
        return _together(self.parts_prefill)

    @property
    def decode(self) -> float:
        """Seconds of one further token of every sequence."""
        return _together(self.parts_decode)

    @property
    def limit_prefill(self) -> str:
        """What takes most of the prefill: "compute", "HBM", "network" or "launch"."""
        return max(self.parts_prefill, key=self.parts_prefill.__getitem__)

    @property
    def limit_decode(self) -> str:
        """What takes most of a decoded token."""
        return max(self.parts_decode, key=self.parts_decode.__getitem__)

    @property
    def seconds(self) -> float:
        """Seconds from the requests to the last token."""
        return self.prefill + (self.output - 1) * self.decode

    @property
    def tokens_per_second(self) -> float:
        """Answered tokens per second of the replica, prefill counted."""
        return self.batch * self.output / self.seconds

    @property
    def per_user(self) -> float:
        """Tokens per second that one user sees while decoding."""
        return 1 / self.decode

    @property
    def capacity(self) -> float:
        """Bytes of a device that may be used."""
        return self.cluster.device.memory - RESERVED

    @property
    def fits(self) -> bool:
        """Whether weights and cache fit."""
        return self.memory.total <= self.capacity

    @property
    def problem(self) -> str:
        """ "" if it fits, else one sentence."""
        over = self.memory.total - self.capacity
        need = quantity(self.memory.total, "B")
        return "" if over <= 0 else f"needs {need} on a device, {quantity(over, 'B')} more than it may use"

    @property
    def largest_batch(self) -> int:
        """Most sequences whose cache fits beside the weights; 0 if not one does."""
        return max(0, int((self.capacity - self.memory.weights) // (self.memory.cache / self.batch)))

    def rows(self) -> list[tuple[str, str]]:
        """Return what the plan says, a line each."""
        of = self.memory
        return [
            ("first token", f"{duration(self.prefill)}, {self.limit_prefill} limits"),
            ("next token", f"{duration(self.decode)}, {self.limit_decode} limits: {self.per_user:,.1f} a second"),
            ("answered", f"{self.tokens_per_second:,.0f} tokens per second for {self.batch} at a time"),
            ("memory", f"weights {quantity(of.weights, 'B')}, cache {quantity(of.cache, 'B')} of "
                       f"{quantity(self.capacity, 'B')} on a device; room for {self.largest_batch} sequences"),
            *([("does not fit", self.problem)] if self.problem else []),
        ]  # fmt: skip

    def _title(self) -> str:
        sizes = f"{self.prompt} tokens in, {self.output} out, {self.batch} at a time"
        return f"{self.model.name} on {self.tensor} x {self.cluster.device.name}: {sizes}"

    def __repr__(self) -> str:
        return "\n".join([self._title(), *(f"  {name + ':':13} {words}" for name, words in self.rows())])

    def _repr_html_(self) -> str:
        return html_table((self._title(), ""), self.rows())


def serve(
    model: ModelShape | str | PathLike[str],
    cluster: Cluster,
    tensor: int = 1,
    batch: int = 1,
    prompt: int = 1024,
    output: int = 256,
    precision: str = "bf16",
    cache: str = "bf16",
    efficiency: Efficiency | None = None,
) -> ServingPlan:
    """Return how fast one replica on ``tensor`` devices serves ``batch`` requests at a time.

    Args:
        model: its shape, or the path of a ``config.json``.
        cluster: whose device and links are used.
        tensor: devices of the replica.
        batch: sequences at a time; all start together (no requests join on the way).
        prompt, output: tokens of a request and of an answer.
        precision: of weights and products.
        cache: precision of keys and values.
        efficiency: constants of kernels.

    Raises:
        ValueError: for heads that do not divide, more devices than the cluster has, sizes that are not positive whole
            numbers, or an unknown precision.

    >>> from distgen_lab import sample
    >>> from distgen_lab.planner import cluster
    >>> serve(sample("llama-2-7b.json"), cluster("A100")).limit_decode
    'HBM'
    """
    shape = model if isinstance(model, ModelShape) else ModelShape.from_config(model)
    for name, value in {"tensor": tensor, "batch": batch, "prompt": prompt, "output": output}.items():
        if isinstance(value, bool) or value != int(value) or value < 1:
            raise ValueError(f"{name} is {value!r}; a whole number of at least 1 is needed")
    if shape.heads % tensor:
        raise ValueError(f"{shape.heads} heads do not divide among tensor = {tensor}; choose a divisor")
    if tensor > cluster.devices:
        raise ValueError(f"tensor is {tensor}, but the cluster has {cluster.devices} devices")
    by, wide = efficiency or fitted(), bytes_of(precision)
    decoded = _decode(shape, cluster, tensor, batch, prompt + output / 2, precision, bytes_of(cache), by)
    held = Served(shape.parameters * wide / tensor, _cache(shape, tensor, batch, prompt + output, bytes_of(cache)))
    filled = _prefill(shape, cluster, tensor, batch, prompt, precision, by)
    return ServingPlan(shape, cluster, tensor, batch, prompt, output, filled, decoded, held)


def _together(spent: dict[str, float]) -> float:
    """Computing and reading at once, the rest after it."""
    return max(spent["compute"], spent["HBM"]) + spent["network"] + spent["launch"]


def _cache(model: ModelShape, tensor: int, batch: int, context: float, each: float) -> float:
    """Bytes of cache on a device; more devices than key and value heads hold copies, and MLA's vector always."""
    heads = model.kv_heads or 1
    return model.kv_cache_bytes(1, batch, each) * context / min(tensor, heads)


def _prefill(
    model: ModelShape, machine: Cluster, tensor: int, batch: int, prompt: int, precision: str, by: Efficiency
) -> dict[str, float]:
    layout = Layout(tensor=tensor, micro_batch=batch, stage=0, sequence_parallel=False, precision=precision)
    one = step_work(model, machine, Batch(batch, prompt), layout).forward
    reading = model.parameters * bytes_of(precision) / tensor / (machine.device.memory_bandwidth * READ)
    return {
        "compute": model.layers * (one.matmul / by.matmul + one.stream / by.stream),
        "HBM": reading, "network": model.layers * one.tensor, "launch": model.layers * one.kernels * LAUNCH,
    }  # fmt: skip


def _decode(
    model: ModelShape, machine: Cluster, tensor: int, batch: int, context: float, precision: str, cache: float,
    by: Efficiency,
) -> dict[str, float]:  # fmt: skip
    """A token of each sequence: weights and cache read once, two all-reduces a layer."""
    layer = layer_of(model)
    experts = layer.routed / layer.active if layer.active else 1.0
    met = 1 - (1 - 1 / experts) ** batch if layer.active else 0.0
    weights = model.matmul_parameters - model.layers * layer.active + model.layers * layer.routed * met
    read = weights * bytes_of(precision) / tensor + _cache(model, tensor, batch, context, cache)
    flops = batch * (2.0 * model.matmul_parameters + 4.0 * model.layers * context * layer.mixed) / tensor
    kernels = layer.products + 6
    return {
        "compute": flops / (best_rate(machine.device, precision) * by.matmul),
        "HBM": read / (machine.device.memory_bandwidth * READ),
        "network": 2 * model.layers * _small_all_reduce(2.0 * batch * model.hidden, tensor, machine),
        "launch": model.layers * kernels * LAUNCH,
    }


def _small_all_reduce(nbytes: float, ranks: int, machine: Cluster) -> float:
    """Seconds of an all-reduce of few bytes: what NCCL's tuner chooses, where it knows the device."""
    name = machine.device.name
    if ranks > 1 and ranks <= machine.per_node and name in nccl_tuner.MACHINES:
        return nccl_tuner.choose(nbytes, name, 1, ranks).seconds
    return collective_time("all_reduce", nbytes, ranks, 1, machine)
