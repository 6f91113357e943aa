"""Pictures: what is drawn is what was given, read back from the axes."""

import pytest
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure

from distgen_lab import plots, scale
from distgen_lab.history import LANDMARKS, Landmark
from distgen_lab.plots import PALETTE

OKABE_ITO = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"}
"""Okabe and Ito 2008, as published."""


@pytest.fixture
def ax():
    return Figure(figsize=(6, 4)).subplots()


def painted(ax):
    """The figure must also survive being painted."""
    ax.figure.canvas.draw()
    return ax


def words(ax):
    return [text.get_text() for text in ax.texts]


def test_the_palette_is_okabe_and_itos():
    assert set(PALETTE.values()) - {PALETTE["grey"]} < OKABE_ITO
    assert len(set(PALETTE.values())) == len(PALETTE) == 7
    red, green, blue = (int(PALETTE["grey"][i : i + 2], 16) for i in (1, 3, 5))
    assert red == green == blue


def test_landmarks_stand_at_their_year_and_size(ax):
    assert plots.landmarks(ax, LANDMARKS) is ax
    painted(ax)
    points = [tuple(map(float, group.get_offsets()[0])) for group in ax.collections]
    assert points == [(row.year, row.parameters) for row in LANDMARKS]
    assert words(ax) == [row.name for row in LANDMARKS]
    assert ax.get_yscale() == "log" and (ax.get_xlabel(), ax.get_ylabel()) == ("year", "parameters")
    low, high = ax.get_xlim()
    assert all(low < row.year < high for row in LANDMARKS)


def test_unconfirmed_landmarks_are_hollow(ax):
    plots.landmarks(ax, [Landmark("said", 2020, 1e9, None, "x"), Landmark("leaked", 2021, 1e9, None, "x", False)])
    filled, hollow = (group.get_facecolor() for group in ax.collections)
    assert filled[0][3] == 1 and (len(hollow) == 0 or hollow[0][3] == 0)


def test_a_later_landmark_is_seen(ax):
    plots.landmarks(ax, [*LANDMARKS, Landmark("new", 2026, 1e12, None, "x")])
    assert ax.get_xlim()[1] > 2026


def test_training_times_are_days(ax):
    devices = [1, 10, 100]
    plots.training_times(painted(ax), devices, {"A100": [864000, 86400, 8640], "H100": [259200, 25920, 2592]})
    lines = {line.get_label(): line for line in ax.lines}
    assert list(lines["A100"].get_xdata()) == devices
    assert list(lines["A100"].get_ydata()) == [10, 1, 0.1]
    assert list(lines["H100"].get_ydata()) == [3, 0.3, 0.03]
    assert words(ax) == ["a month", "a year"]
    assert [line.get_ydata()[0] for line in ax.lines[2:]] == [30, 365.25]
    assert ax.get_xscale() == ax.get_yscale() == "log" and ax.get_ylabel() == "training time in days"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["A100", "H100"]
    assert len({line.get_color() for line in ax.lines[:2]}) == 2


def test_no_line_is_dropped(ax):
    plots.training_times(ax, [1, 2], {str(i): [1e6, 2e6] for i in range(9)})
    assert len(ax.get_legend().get_texts()) == 9


def test_model_states_are_stacked_to_their_total(ax):
    states = {name: scale.model_state(7e9, name) for name in ("mixed-precision Adam", "BF16 SGD")}
    plots.model_states(ax, states, 80e9)
    painted(ax)
    parts = [[(bar.get_x(), bar.get_width()) for bar in group] for group in ax.containers]
    assert parts == [[(0, 14), (0, 14)], [(14, 14), (14, 14)], [(28, 84), (28, 0)]]
    assert [label.get_text() for label in ax.get_yticklabels()] == list(states)
    (line,) = ax.lines
    assert list(line.get_xdata()) == [80, 80] and line.get_label() == "one device"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "one device", "weights", "gradients", "optimizer"
    ] and ax.get_xlabel() == "GB"  # fmt: skip
    top, bottom = ax.get_ylim()
    assert top > bottom  # the first bar is on top


def test_bars_carry_their_values_in_words(ax):
    plots.bars(ax, {"a": 2e9, "b": 84e9}, "B", limit=("one device", 80e9), log=True)
    painted(ax)
    assert list(ax.lines[0].get_xdata()) == [2e9, 84e9]
    assert not ax.patches  # the length of a bar means nothing on a logarithmic scale
    assert words(ax) == ["2 GB", "84 GB"]
    assert ax.get_xscale() == "log" and list(ax.lines[1].get_xdata()) == [80e9, 80e9]
    assert ax.xaxis.get_major_formatter()(5e9, 0) == "5 GB"


def test_bars_without_a_limit_have_no_line_and_no_legend(ax):
    plots.bars(ax, {"a": 1.0}, "FLOP")
    painted(ax)
    assert not ax.lines and ax.get_legend() is None and ax.get_xscale() == "linear"


def test_step_times_are_a_line_each(ax):
    plots.step_times(ax, [1, 2, 4], {"compute": [8, 4, 2], "all-reduce": [0.5, 0.75, 0.875]})
    painted(ax)
    assert [(line.get_label(), list(line.get_ydata())) for line in ax.lines] == [
        ("compute", [8, 4, 2]), ("all-reduce", [0.5, 0.75, 0.875])
    ]  # fmt: skip
    assert ax.get_ylabel() == "seconds a step"


GPT3 = {"device_memory": 80e9, "peak_flops": 312e12, "network": 25e9, "batch_tokens": 4e6}


def three(devices, **more):
    axes = Figure(figsize=(9, 3.4)).subplots(1, 3)
    walls = scale.three_walls(175e9, 300e9, devices, **GPT3 | more)
    plots.three_walls(axes, walls)
    axes[0].figure.canvas.draw()
    return axes, walls


def test_the_three_walls_draw_memory_time_and_step():
    axes, walls = three(4000)
    heights = [[bar.get_height() for bar in ax.patches] for ax in axes]
    assert heights[0] == [walls.per_device, walls.device_memory]
    assert heights[1] == [walls.seconds]
    assert heights[2] == [walls.step_compute, walls.step_communication]
    assert all(ax.get_yscale() == "log" for ax in axes)
    assert words(axes[0]) == ["700 MB", "80 GB"]


@pytest.mark.parametrize(
    ("devices", "more", "passed"),
    [(1, {}, (False, False, True)), (1000, {}, (True, True, True)), (1000, {"network": 1e9}, (True, True, False)),
     (100, {"network": 1e12}, (True, False, True)),
     (20, {}, (False, False, True))],
)  # fmt: skip
def test_a_wall_says_in_words_and_colour_whether_it_is_passed(devices, more, passed):
    axes, walls = three(devices, **more)
    assert passed == (
        2800e9 / devices <= 80e9, walls.seconds < 365.25 * 86400 / 4, walls.step_communication < walls.step_compute
    )  # fmt: skip
    for ax, good in zip(axes, passed, strict=True):
        assert ax.get_title().endswith(": passed" if good else ": a wall")
        color = PALETTE["green"] if good else PALETTE["red"]
        assert to_rgba(ax.patches[0].get_facecolor()) == to_rgba(color) and to_hex(ax.title.get_color()) == to_hex(
            color
        )


def test_the_axes_of_the_walls_stay_put():
    one, other = three(1)[0], three(100_000)[0]
    for a, b in zip(one, other, strict=True):
        assert (a.get_ylim(), a.get_xlim(), list(a.get_yticks())) == (b.get_ylim(), b.get_xlim(), list(b.get_yticks()))
        low, high = a.get_ylim()
        for ax in (a, b):
            assert all(low < bar.get_height() < high for bar in ax.patches)
