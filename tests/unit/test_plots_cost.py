"""Pictures of costs: the curves, dots and colours are those of the numbers they were given."""

import csv
import json
from importlib.resources import files

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from distgen_lab import plots
from distgen_lab.alphabeta import Link, algorithms, cost, costs, fit, fit_where_it_holds, winners
from distgen_lab.plots import PALETTE

LINK = Link(1e-6, 1 / 25e9)
SIZES = np.geomspace(100, 1e10, 161)


@pytest.fixture
def ax():
    return Figure(figsize=(6, 4)).subplots()


def painted(ax):
    """The figure must also survive being painted."""
    ax.figure.canvas.draw()
    return ax


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_meeting_point_is_where_two_lines_cross_by_hand():
    tree, ring = cost("all_reduce", "binomial tree", 256), cost("all_reduce", "ring", 256)
    ((size, seconds),) = plots.meeting_points([tree, ring], LINK, SIZES)
    # 16 alpha + 16 n beta = 510 alpha + 2 (255/256) n beta
    by_hand = (510 - 16) * 1e-6 / ((16 - 2 * 255 / 256) / 25e9)
    assert size == pytest.approx(by_hand) and seconds == pytest.approx(16 * (1e-6 + by_hand / 25e9))


def test_no_meeting_point_where_one_is_never_slower():
    assert plots.meeting_points([cost("all_reduce", "ring", 64), cost("all_reduce", "Rabenseifner", 64)], LINK,
                                SIZES) == []  # fmt: skip


def test_a_meeting_point_is_found_where_two_are_equal_before_it():
    rows = [cost("broadcast", "binomial", 100), cost("broadcast", "double binary tree", 100)]
    ((size, seconds),) = plots.meeting_points(rows, LINK, SIZES)
    # with one segment both take 7 alpha + 7 n beta, with two the trees take 8 alpha + 4 n beta
    assert size == pytest.approx(25e9 * 1e-6 / 3) and seconds == pytest.approx(7e-6 + 7e-6 / 3)


@pytest.mark.parametrize("ranks", [3, 8, 100])
def test_meeting_points_are_where_a_brute_force_search_changes_its_mind(ranks):
    rows = list(costs("all_reduce", ranks))
    found = [size for size, _ in plots.meeting_points(rows, LINK, SIZES)]
    names = winners("all_reduce", LINK, [ranks], SIZES)[0]
    changes = np.flatnonzero(names[1:] != names[:-1])
    assert len(found) == len(changes) > 0
    for size, place in zip(found, changes, strict=True):
        assert SIZES[place] * (1 - 1e-9) <= size <= SIZES[place + 1] * (1 + 1e-9)


def test_curves_are_the_costs_and_a_dot_marks_the_crossover(ax):
    table = costs("all_reduce", 256)
    rows = [table["binomial tree"], table["ring"]]
    assert plots.cost_curves(ax, rows, LINK, SIZES, nbytes=5e6) is ax
    painted(ax)
    tree, ring, dot, mark = ax.lines
    assert np.allclose(tree.get_ydata(), 16 * (1e-6 + SIZES / 25e9))
    assert np.allclose(ring.get_ydata(), 510e-6 + 2 * 255 / 256 * SIZES / 25e9)
    assert dot.get_marker() == "o" and len(dot.get_xdata()) == 1
    assert [text.get_text() for text in ax.texts] == ["882 kB"]
    assert list(mark.get_xdata()) == [5e6, 5e6]
    assert labels(ax) == ["binomial tree", "ring"] and ax.get_xscale() == ax.get_yscale() == "log"
    assert ax.xaxis.get_major_formatter()(1e6, 0) == "1 MB" and ax.yaxis.get_major_formatter()(1e-3, 0) == "1 ms"


def test_the_map_shows_each_winner_in_its_colour(ax):
    names = np.array([["ring", "ring", "Rabenseifner"], ["recursive doubling", "ring", "Rabenseifner"]])
    plots.winner_map(ax, names, [2, 4], [1e3, 1e4, 1e5], "all_reduce")
    painted(ax)
    (mesh,) = ax.collections
    shown = [to_hex(color) for color in mesh.to_rgba(mesh.get_array().ravel())]
    color = dict(zip(labels(ax), (to_hex(p.get_facecolor()) for p in ax.get_legend().get_patches()), strict=True))
    assert shown == [color[name] for name in names.ravel()]
    assert len(set(color.values())) == 3 and [t.get_text() for t in ax.get_yticklabels()] == ["2", "4"]
    edges = mesh.get_coordinates()[0, :, 0]
    assert (edges[:-1] < [1e3, 1e4, 1e5]).all() and (edges[1:] > [1e3, 1e4, 1e5]).all()


def test_the_map_refuses_names_of_another_shape(ax):
    with pytest.raises(ValueError, match=r"names has shape \(1, 2\); \(2, 2\) is needed"):
        plots.winner_map(ax, np.array([["ring", "ring"]]), [2, 4], [1, 10], "all_reduce")


@pytest.mark.parametrize("collective", ["all_reduce", "broadcast"])
def test_no_two_algorithms_share_a_colour(collective):
    names = algorithms(collective)
    assert len({plots.cost.algorithm_color(collective, name) for name in names}) == len(names)


def test_a_fit_is_solid_where_it_holds_and_dotted_elsewhere(ax):
    sizes = [10.0**k for k in range(2, 9)]
    times = [LINK.time(size) * (3 if size < 1e5 else 1) for size in sizes]
    found = fit_where_it_holds(sizes, times)
    plots.fitted_line(ax, sizes, times, found)
    painted(ax)
    dots, dotted, solid = ax.lines
    assert list(dots.get_xdata()) == sizes and list(dots.get_ydata()) == times
    assert solid.get_linestyle() == "-" and dotted.get_linestyle() == ":"
    assert (min(solid.get_xdata()), max(solid.get_xdata())) == pytest.approx((1e5, 1e8))
    assert (min(dotted.get_xdata()), max(dotted.get_xdata())) == pytest.approx((100, 1e8))
    assert np.allclose(solid.get_ydata(), 1e-6 + np.asarray(solid.get_xdata()) / 25e9)


def test_measured_are_dots_and_predicted_a_line(ax):
    plots.measured_and_predicted(ax, {"ring": [(1e6, 3.0, 2.0), (1e3, 1.5, 1.0)], "tree": [(1e3, 9.0, 8.0)]})
    painted(ax)
    line, dots, *_ = ax.lines
    assert list(line.get_ydata()) == [1.0, 2.0] and list(dots.get_ydata()) == [1.5, 3.0]
    assert line.get_color() == dots.get_color() == PALETTE["blue"] and dots.get_marker() == "o"
    assert labels(ax) == ["ring", "tree"]


def test_bus_bandwidth_of_elsewhere_is_hollow_and_the_line_rate_dashed(ax):
    plots.bus_bandwidth(ax, [1e3, 1e6], {"recorded": [1e9, 2e9]}, {"fit": [1.1e9, 2.1e9]}, 3e9)
    painted(ax)
    dots, model, rate = ax.lines
    assert dots.get_markerfacecolor() == "none" and list(dots.get_ydata()) == [1e9, 2e9]
    assert list(model.get_ydata()) == [1.1e9, 2.1e9] and dots.get_color() != model.get_color()
    assert list(rate.get_ydata()) == [3e9, 3e9] and rate.get_linestyle() == "--"
    assert labels(ax) == ["recorded", "fit", "one link, per direction"]


def test_latency_shares_add_up_to_the_whole_message(ax):
    plots.latency_shares(ax, Link(3e-6, 1 / 50e9), [1500, 150e3, 15e6])
    painted(ax)
    start, rest = ([bar.get_width() for bar in group] for group in ax.containers)
    assert start == pytest.approx([3 / 3.03, 0.5, 3 / 303])
    assert np.allclose(np.add(start, rest), 1)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["1.5 kB, 3.03 us", "150 kB, 6 us", "15 MB, 303 us"]


def sweep():
    return json.loads((files("distgen_lab") / "data" / "measured" / "h100x8_all_reduce.json").read_text("utf-8"))


def test_the_sweep_that_travels_is_the_published_one(shared):
    data = sweep()
    with open(shared / "data" / "nccl_measured.csv", encoding="utf-8", newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["dataset"] == "aws_1xp5_batch" and r["placement"] == "out"]
    assert data["bytes"] == [int(row["bytes"]) for row in rows]
    assert data["seconds"] == pytest.approx([float(row["time_us"]) * 1e-6 for row in rows])
    assert all(row["source"].startswith("aws-samples/awsome-distributed-training@7217859f67bc") for row in rows)


def test_one_line_over_the_whole_sweep_is_as_bad_as_published(shared):
    data = sweep()
    found = fit(data["bytes"], data["seconds"])
    with open(shared / "data" / "alpha_beta_fits.csv", encoding="utf-8", newline="") as file:
        row = next(r for r in csv.DictReader(file) if r["dataset"] == "aws_1xp5_batch")
    assert found.mean_error * 100 == pytest.approx(float(row["mape_pct"]), abs=1)
    assert 1.75 * found.link.bandwidth / 1e9 == pytest.approx(float(row["busbw_asymptotic_GBps"]), rel=0.02)
