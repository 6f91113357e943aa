"""Pictures of one machine: the way between each two of its devices."""

from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from distgen_lab.plots.canvas import PALETTE
from distgen_lab.readers.machine import CODES, Machine

__all__ = ["ways"]

_COLORS = (PALETTE["green"], "#D6EAF8", "#A9CCE3", "#F9E79F", "#F5B041", PALETTE["red"])


def ways(ax: Axes, machine: Machine) -> Axes:
    """Draw the way from each GPU (a row) to each GPU and NIC (a column), coloured from near to far.

    Args:
        ax: where to draw.
        machine: what :func:`distgen_lab.readers.read` returned for a topology file.
    """
    gpus, devices = machine.gpus, (*machine.gpus, *machine.nics)
    levels = [[_level(machine, gpu.name, device.name) for device in devices] for gpu in gpus]
    ax.imshow(levels, cmap=ListedColormap(["white", *_COLORS]), vmin=-1.5, vmax=len(_COLORS) - 0.5, aspect="auto")
    if len(devices) <= 24:
        for row, gpu in enumerate(gpus):
            for column, device in enumerate(devices):
                text = "" if gpu is device else machine.link(gpu.name, device.name)
                ax.text(column, row, text, ha="center", va="center", fontsize=7)
    ax.axvline(len(gpus) - 0.5, color="black", linewidth=0.8)
    ax.set_xticks(range(len(devices)), [device.shown for device in devices], rotation=60, ha="right", fontsize=8)
    ax.set_yticks(range(len(gpus)), [gpu.name for gpu in gpus], fontsize=8)
    ax.tick_params(length=0)
    return ax


def _level(machine: Machine, one: str, other: str) -> int:
    """0 for NVLink or xGMI, then 1 and up along :data:`CODES`; -1 for a device and itself."""
    if one == other:
        return -1
    code = machine.link(one, other)
    return 1 + CODES.index(code) if code in CODES else 0
