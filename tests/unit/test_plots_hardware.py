"""Pictures of section 2: what is drawn is what was given, read back from the axes."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from distgen_lab import occupancy, plots, roofline, systolic
from distgen_lab.hardware import accelerator
from distgen_lab.plots import PALETTE
from distgen_lab.roofline import Roof, Work, place
from distgen_lab.simt import branch

ROOF = Roof("x", "fp32", 1e12, {"cache": 1e12, "DRAM": 1e11})


@pytest.fixture
def ax():
    return Figure(figsize=(6, 4)).subplots()


def painted(ax):
    ax.figure.canvas.draw()
    return ax


def words(ax):
    return [text.get_text() for text in ax.texts]


def test_a_roof_bends_at_its_ridge(ax):
    assert painted(plots.roofline(ax, ROOF)) is ax
    (line,) = ax.lines
    assert list(line.get_xdata()) == [0.01, 10, 1e4]
    assert list(line.get_ydata()) == [1e9, 1e12, 1e12]
    assert ax.get_xscale() == ax.get_yscale() == "log" and ax.get_legend() is None
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("arithmetic intensity, FLOP/B", "FLOP/s")
    assert ax.yaxis.get_major_formatter()(1e12, 0) == "1 T"


def test_levels_and_precisions_are_told_apart(ax):
    plots.roofline(ax, ROOF, levels=("DRAM", "cache"))
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["x fp32, DRAM", "x fp32, cache"]
    other = Figure().subplots()
    plots.roofline(other, list(roofline.roofs("H100").values()))
    assert len({line.get_color() for line in other.lines}) == 5


def test_operations_stand_on_the_roof_or_where_they_were_measured(ax):
    low, high = Work("low", 1e6, 1e6), Work("high", 1e9, 1e6)
    plots.roofline(ax, ROOF, [low, high, place(low, ROOF, measured=1e-4)])
    dots = [(dot.get_xdata()[0], dot.get_ydata()[0], to_hex(dot.get_color()).upper()) for dot in painted(ax).lines[1:]]
    assert dots == [(1, 1e11, PALETTE["red"]), (1000, 1e12, PALETTE["green"]), (1, 1e10, PALETTE["red"])]
    assert words(ax) == ["low", "high", "low"]


def test_an_operation_without_flop_stands_at_the_edge_as_an_arrow(ax):
    plots.roofline(ax, ROOF, [Work("lookup", 0, 100)])
    dot = painted(ax).lines[1]
    assert dot.get_marker() == "<" and dot.get_xdata()[0] == 0.01 and dot.get_ydata()[0] == 1e9


def test_a_bandwidth_curve_marks_its_caches(ax):
    painted(plots.bandwidth_curve(ax, [1e4, 1e6, 1e8], [3e11, 2e11, 4e10], {"L2": 1e6}))
    assert list(ax.lines[0].get_ydata()) == [3e11, 2e11, 4e10] and ax.lines[1].get_xdata()[0] == 1e6
    assert words(ax) == ["L2"] and ax.get_ylim()[0] == 0
    assert ax.xaxis.get_major_formatter()(1e6, 0) == "1 MB"


def test_memory_levels_are_those_with_a_bandwidth(ax):
    devices = [accelerator(name) for name in ("A100", "H100")]
    painted(plots.memory_levels(ax, devices))
    assert [len(line.get_xdata()) for line in ax.lines] == [3, 2]
    assert list(ax.lines[1].get_ydata())[-1] == 3.35e12 and words(ax).count("HBM") == 2


def test_a_warp_is_a_row_a_lane_and_a_column_a_cycle(ax):
    done = branch(lambda lane: lane < 8, 4, 3)
    painted(plots.warp(ax, done))
    (image,) = ax.images
    assert np.array_equal(image.get_array(), done.masks().T) and image.get_array().shape == (32, 8)
    assert "8 cycles, 53%" in ax.get_title() and words(ax) == ["if", "then", "otherwise"]


def test_occupancy_is_a_staircase_a_label(ax):
    curves = {f"{threads} threads": occupancy.register_sweep(threads) for threads in (128, 256)}
    painted(plots.occupancy_curve(ax, curves, "registers of a thread"))
    assert [line.get_drawstyle() for line in ax.lines] == ["steps-post"] * 2
    assert list(ax.lines[1].get_ydata()) == list(curves["256 threads"].values())
    assert ax.yaxis.get_major_formatter()(0.5, 0) == "50%" and ax.get_xlabel() == "registers of a thread"


@pytest.mark.parametrize("flow", systolic.DATAFLOWS)
def test_cells_that_work_are_filled_and_hold_their_values(ax, flow):
    state = list(systolic.steps(np.ones((2, 3)), np.full((3, 2), 5.0), flow))[2]
    painted(plots.systolic(ax, state))
    filled = [to_hex(cell.get_facecolor()).upper() == PALETTE["sky"] for cell in ax.patches]
    assert filled == state.active.ravel().tolist() and 0 < sum(filled) < len(filled) + 1
    bold = [text.get_text() for text in ax.texts if text.get_weight() == "bold"]
    assert bold == [f"{value:g}" for value in state.held.ravel()]
    assert f"cycle 3: {sum(filled)} of {len(filled)} cells work" in ax.get_title()


def test_only_finished_results_are_shown(ax):
    states = list(systolic.steps(np.ones((2, 3)), np.ones((3, 2))))
    painted(plots.product_so_far(ax, states[3]))
    assert len(ax.patches) == 4 and words(ax) == ["3"] * int(np.isfinite(states[3].finished).sum())
