"""Pictures of data flow: blocks and letters where they belong, arrows for messages, computing beside a recording."""

import matplotlib
import pytest
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from distgen_lab import plots
from distgen_lab.timeline import Span, Timeline

matplotlib.use("Agg")
SCATTER = [[((0, 0),), ((0, 1),)], [(), ()]], [[((0, 0),)], [((0, 1),)]]


@pytest.fixture
def ax():
    return Figure(figsize=(5, 3)).subplots()


def letters(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


def test_every_block_is_drawn_with_its_letter_in_its_ranks_row(ax):
    assert plots.dataflow(ax, *SCATTER, "Scatter") is ax
    boxes = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert len(boxes) == 4 + 2 and ax.get_title() == "Scatter"
    rows = {text.get_text(): round(text.get_position()[1]) for text in ax.texts if text.get_text()}
    assert rows["A1"] == 1 and sorted(letters(ax)) == ["0", "1", "A0", "A0", "A1", "A1"]


def test_what_is_before_stands_left_of_what_is_after(ax):
    plots.dataflow(ax, *SCATTER)
    places = sorted(patch.get_x() for patch in ax.patches if isinstance(patch, Rectangle))
    (arrow,) = (text for text in ax.texts if getattr(text, "arrow_patch", None))
    assert places[3] + 0.92 <= arrow.xyann[0] < arrow.xy[0] <= places[4]


def test_sums_are_grey_and_a_partial_one_names_its_ranks(ax):
    whole, part = ((0, 2), (1, 2), (2, 2)), ((0, 0), (1, 0))
    plots.dataflow(ax, [[()]] * 3, [[whole], [part], [()]])
    assert letters(ax)[-2:] != [] and {"Σ2", "AB"} <= set(letters(ax))
    colors = [patch.get_facecolor() for patch in ax.patches if isinstance(patch, Rectangle)][3:]
    assert colors[0] == colors[1] != colors[2] == to_rgba("white")


def test_ranks_have_eight_different_colours_and_nothing_is_white():
    colors = [plots.rank_color([rank]) for rank in range(8)]
    assert len(set(colors)) == 8 and plots.rank_color([]) == "white" and plots.rank_color([8]) == colors[0]
    assert plots.rank_color([0, 1]) not in colors


def test_unequal_numbers_of_ranks_are_refused(ax):
    with pytest.raises(ValueError, match="after has 1 ranks and before 2"):
        plots.dataflow(ax, SCATTER[0], SCATTER[1][:1])


def test_holdings_frame_what_is_new_and_draw_each_message(ax):
    held = [[frozenset({0}), frozenset({0, 1})], [frozenset(), frozenset({1})]]
    plots.holdings(ax, held, [(0, 1)], [(1, 0)])
    plain, framed = (c for c in ax.collections if isinstance(c, PatchCollection))
    assert len(plain.get_paths()) == 3 and len(framed.get_paths()) == 1
    assert framed.get_linewidth()[0] > plain.get_linewidth()[0]
    assert {"A", "B", "AB"} <= set(letters(ax))
    (arrow,) = (patch for patch in ax.patches if isinstance(patch, FancyArrowPatch))
    assert arrow._posA_posB[0][1] == 1 and arrow._posA_posB[1][1] == 0


def test_many_chunks_have_no_letters(ax):
    plots.holdings(ax, [[frozenset({0})] * 20], [], [])
    assert letters(ax) == ["rank 0"]


def test_computing_is_drawn_on_the_recordings_clock(ax):
    timeline = Timeline([Span(0, "recv", 10.0, 13.0, peer=1), Span(1, "send", 12.0, 12.5, peer=0)])
    plots.computing(plots.spacetime(ax, timeline), timeline, [[(13.0, 14.0)], [(10.5, 12.0)]])
    bars = [(bar.get_x(), bar.get_width()) for bar in ax.patches if bar.get_height() == pytest.approx(0.2)]
    assert bars == [(pytest.approx(3), pytest.approx(1)), (pytest.approx(0.5), pytest.approx(1.5))]
    assert "computes" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_nothing_recorded_and_nothing_computed_draws_nothing(ax):
    plots.computing(ax, Timeline([]), [])
    assert not ax.patches
