"""Demo: a backward pass and its all-reduces on a Gantt chart, with buckets, a network and channels to choose."""

from dataclasses import dataclass

from matplotlib.figure import Figure

from distgen_lab import overlap, plots
from distgen_lab.alphabeta import Link
from distgen_lab.alphabeta import cost as collective
from distgen_lab.demos.panel import Panel, choice, log_slider, panel
from distgen_lab.overlap import Execution
from distgen_lab.units import GB, MB, MS, US, duration

__all__ = ["Explored", "data", "draw", "overlap_explorer", "words"]

LAYERS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
CHANNELS = (1, 2, 4, 8)
RANKS = 64
"""Ranks of the ring all-reduce."""
SIZE = (7.2, 3.5)
"""Inches of the picture."""
PRESETS = {
    "a bucket a layer": {"bucket": 50.0},
    "one bucket for all": {"bucket": 10_000.0},
    "slow network": {"bandwidth": 5.0},
    "fast network": {"bandwidth": 200.0},
    "many small layers": {"layers": 64, "compute": 0.2, "mbytes": 1.0, "bucket": 1.0, "alpha": 20.0},
    "the same, larger buckets": {"layers": 64, "compute": 0.2, "mbytes": 1.0, "bucket": 20.0, "alpha": 20.0},
}
"""Buttons for a lecture."""


@dataclass(frozen=True)
class Explored:
    """A step with overlap and the same without.

    Attributes:
        run: with buckets, sent as soon as they are ready.
        naive: everything sent in one bucket after the backward pass.
        buckets: how many there are.
        compute, communication: seconds of the backward pass, and of all buckets one after the other.
    """

    run: Execution
    naive: Execution
    buckets: int
    compute: float
    communication: float

    @property
    def bound(self) -> float:
        """Seconds below which no bucket size comes: the longer of the backward pass and what the channels carry."""
        return max(self.compute, self.run.bound)


def data(layers: int, compute: float, mbytes: float, bucket: float, alpha: float, bandwidth: float,
         channels: int) -> Explored:  # fmt: skip
    """Return a step of that many equal layers.

    Args:
        layers, channels: numbers of them.
        compute: backward pass of a layer in ms.
        mbytes: gradients of a layer in MB.
        bucket: bucket size in MB.
        alpha: start-up of a message in us.
        bandwidth: of the link in GB/s per direction.
    """
    ring, link = collective("all_reduce", "ring", RANKS), Link(alpha * US, 1 / (bandwidth * GB))
    backward, nbytes = [compute * MS] * layers, [mbytes * MB] * layers

    def seconds(size: float) -> float:
        return ring.time(link, size)

    buckets = overlap.torch_buckets(nbytes, bucket * MB)
    run = overlap.simulate(overlap.bucketed(backward, nbytes, buckets, seconds, channels=channels))
    everything = [tuple(range(layers, 0, -1))]
    naive = overlap.simulate(overlap.bucketed(backward, nbytes, everything, seconds))
    spoken = sum(task.seconds for task in run.tasks if task.kind == overlap.COMMUNICATION)
    return Explored(run, naive, len(buckets), layers * compute * MS, spoken)


def draw(figure: Figure, shown: Explored) -> None:
    """Draw the step without overlap above the one with it, on one clock."""
    layout = {"left": 0.17, "right": 0.98, "bottom": 0.1, "top": 0.9, "hspace": 0.35}
    heights = [2, max(2, len(shown.run.lanes))]
    top, bottom = figure.subplots(2, 1, sharex=True, gridspec_kw=layout | {"height_ratios": heights})
    plots.gantt(top, shown.naive, marks={"bound": shown.bound, "naive": shown.naive.seconds})
    plots.gantt(bottom, shown.run, legend=False)
    for ax, word in ((top, "naive"), (bottom, "overlapped")):
        ax.set_ylabel(word, labelpad=8)
    bottom.axvline(shown.bound, color=plots.PALETTE["grey"], linestyle="--", linewidth=1, zorder=0)
    bottom.set_xlim(0, 1.01 * max(shown.naive.seconds, shown.run.seconds))


def words(shown: Explored) -> str:
    """Say what the step takes, what stays exposed, and what was gained."""
    run = shown.run
    text = f"{shown.buckets} bucket{'s' if shown.buckets > 1 else ''}: a step takes {duration(run.seconds)}, of which "
    text += f"{duration(run.exposed())} is exposed communication ({run.efficiency():.0%} of it is hidden). "
    text += f"Without overlap {duration(shown.naive.seconds)}: {shown.naive.seconds / run.seconds:.2f} times as long. "
    return text + f"Bound: {duration(shown.bound)}. The buckets need {duration(shown.communication)} of channel time."


def overlap_explorer(large: bool = False) -> Panel:
    """Return the demo: show it by making it the last line of a cell; in large type for a projector."""
    controls = {
        "layers": choice("layers", LAYERS, 12),
        "compute": log_slider("ms a layer", 0.1, 100, 5.0),
        "mbytes": log_slider("MB a layer", 0.1, 1000, 50.0),
        "bucket": log_slider("bucket in MB", 0.1, 10_000, 100.0),
        "alpha": log_slider("α in us", 0.1, 1000, 5.0),
        "bandwidth": log_slider("1/β in GB/s", 1, 1000, 20.0),
        "channels": choice("channels", CHANNELS, 1),
    }
    return panel(controls, data, draw, words, SIZE, PRESETS, large)
