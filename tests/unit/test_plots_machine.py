"""The picture of a machine's ways: every code at its place, coloured by how far it is."""

import matplotlib.pyplot as plt
import pytest

from distgen_lab import plots, sample
from distgen_lab.readers import read
from distgen_lab.readers.machine import CODES

SAMPLES = ("topology-8-v100.txt", "topology-gpu-off-nvlink.txt", "topology-8-mi300x.txt", "nccl-topology-4-h100.xml")


@pytest.mark.parametrize("name", SAMPLES)
def test_every_code_stands_at_its_place(name):
    machine = read(sample(name))
    ax = plots.ways(plots.axes(), machine)
    devices = [device.shown for device in (*machine.gpus, *machine.nics)]
    shown = {text.get_position(): text.get_text() for text in ax.texts}
    assert [label.get_text() for label in ax.get_xticklabels()] == devices
    assert [label.get_text() for label in ax.get_yticklabels()] == [gpu.name for gpu in machine.gpus]
    for row, gpu in enumerate(machine.gpus):
        for column, device in enumerate((*machine.gpus, *machine.nics)):
            wanted = "" if row == column else machine.link(gpu.name, device.name)
            assert shown[column, row] == wanted
    plt.close("all")


def test_farther_ways_have_other_colours_and_no_way_is_left_white():
    machine = read(sample("topology-gpu-off-nvlink.txt"))
    (image,) = plots.ways(plots.axes(), machine).images
    colours = {}
    for row, gpu in enumerate(machine.gpus):
        for column, device in enumerate((*machine.gpus, *machine.nics)):
            code = "X" if row == column else machine.link(gpu.name, device.name)
            colours.setdefault(code, set()).add(tuple(image.cmap(image.norm(image.get_array()[row, column]))))
    assert set(colours) == {"X", "NV18", "PIX", "NODE", "SYS"} <= {"X", "NV18", *CODES}
    assert all(len(shades) == 1 for shades in colours.values())
    assert len(set.union(*colours.values())) == 5 and colours["X"] == {(1.0, 1.0, 1.0, 1.0)}
    plt.close("all")
