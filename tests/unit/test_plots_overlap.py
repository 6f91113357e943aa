"""Pictures of overlap: bars and curves are the numbers they were given, exposed time has its colour."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from distgen_lab import cg, overlap, plots
from distgen_lab.plots import PALETTE
from distgen_lab.timeline import Span, Timeline

BLUE, SKY, RED = PALETTE["blue"], PALETTE["sky"], PALETTE["red"]
times = st.integers(0, 6)


@pytest.fixture
def ax():
    return Figure(figsize=(6, 3)).subplots()


def painted(ax):
    """The figure must also survive being painted."""
    ax.figure.canvas.draw()
    return ax


def length(ax, color):
    """Seconds drawn in a colour."""
    bars = [part for part in ax.collections if to_hex(part.get_facecolor()[0]).upper() == color]
    return sum(path.get_extents().width for part in bars for path in part.get_paths())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(times, times), min_size=1, max_size=6))
def test_colours_add_up_to_compute_hidden_and_exposed(rows):
    backward, reduces = zip(*rows, strict=True)
    run = overlap.simulate(overlap.layerwise(backward, reduces))
    drawn = plots.gantt(Figure().subplots(), run)
    assert length(drawn, BLUE) == pytest.approx(run.compute())
    assert length(drawn, RED) == pytest.approx(run.exposed())
    assert length(drawn, SKY) == pytest.approx(run.communication() - run.exposed())


def test_a_timeline_is_drawn_as_the_run_it_came_from(ax):
    run = overlap.simulate(overlap.layerwise([1, 2], [3, 4], forward=5, channels=2))
    other = plots.gantt(Figure().subplots(), run.timeline, run.lanes)
    plots.gantt(ax, run)
    assert [length(ax, c) for c in (BLUE, SKY, RED)] == [length(other, c) for c in (BLUE, SKY, RED)]
    assert [t.get_text() for t in painted(ax).get_yticklabels()] == ["compute", "channel 1", "channel 2"]
    assert [t.get_text() for t in painted(other).get_yticklabels()] == ["compute", "channel 1", "channel 2"]


def test_each_device_hides_its_own_messages(ax):
    run = overlap.simulate(overlap.one_forward_one_backward(2, 2, 2, 2, 1))
    plots.gantt(ax, run)
    assert length(ax, RED) == pytest.approx(sum(run.exposed(device) for device in range(2)))


def test_marks_labels_and_open_spans(ax):
    spans = [Span(0, "compute", 0, 4, name="bwd 2"), Span(1, "communication", 1, None), Span(0, "compute", 4, 4)]
    painted(plots.gantt(ax, Timeline(spans, 2), marks={"naive": 9.0}, legend=False))
    assert ax.get_legend() is None and len(ax.collections) == 1
    assert [text.get_text() for text in ax.texts] == ["2", "naive 9 s"]


def test_a_trace_is_drawn_with_its_operations_as_communication_and_without_copies(ax):
    """Compute 0 to 4, two collectives 2 to 6 and 6 to 7, a copy over all of it: 2 s hide, 3 s are exposed."""
    spans = [Span(0, "compute", 0, 4), Span(1, "all_reduce", 2, 6), Span(0, "copy", 0, 9), Span(1, "all_gather", 6, 7)]
    painted(plots.gantt(ax, Timeline(spans, 2)))
    assert [length(ax, color) for color in (BLUE, SKY, RED)] == pytest.approx([4, 2, 3])


def test_curves_are_the_numbers_given(ax):
    painted(plots.bucket_times(ax, [1e3, 1e6], {"rule": [2, 1]}, {"best": 0.5}, {"measured": ([1e4], [1.5])}))
    assert [list(line.get_ydata()) for line in ax.lines] == [[2, 1], [1.5], [0.5, 0.5]]
    ax.clear()
    painted(plots.rank_times(ax, [1, 2], {"classic": [4.0, 2.0]}, crossing=2))
    assert list(ax.lines[0].get_ydata()) == [4.0, 2.0] and ax.texts[0].get_text() == "2 ranks"
    ax.clear()
    painted(plots.residuals(ax, {"true": [1, 1e-3, 0], "by the recurrence": [1, 1e-20]}))
    assert [list(line.get_ydata()) for line in ax.lines] == [[1, 1e-3], [1]]
    ax.clear()
    painted(plots.speedups(ax, [0.5, 1], {"S": [1.5, 2]}))
    assert list(ax.lines[0].get_ydata()) == [1.5, 2]


def test_a_solver_s_history_fits(ax):
    found = cg.solve(cg.Poisson(5), [1.0] * 25, watch=True)
    painted(plots.residuals(ax, {"classic": found.true_residuals}))
    assert len(ax.lines[0].get_xdata()) == found.iterations + 1
