"""Pictures of section 6: what they show is what they were given."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest

from distgen_lab import nccl_forecast, nccl_tuner, plots
from distgen_lab.labs import pipeline
from distgen_lab.labs.ddp import Fired
from distgen_lab.parallelism import Held


@pytest.fixture
def ax():
    yield plots.axes()
    plt.close("all")


def test_bands_cover_every_size_once(ax):
    rows = {f"{nodes} nodes": nccl_tuner.switches("H100", nodes=nodes) for nodes in (1, 8)}
    plots.tuner_bands(ax, rows, 2**34)
    for place, choices in enumerate(rows.values()):
        bars = [bar for bar in ax.patches if abs(bar.get_y() + bar.get_height() / 2 - place) < 1e-9]
        assert len(bars) == len(choices)
        assert sum(bar.get_width() for bar in bars) == pytest.approx(2**34 - 8)
    shown = {text.get_text() for text in ax.get_legend().get_texts()}
    assert shown == {f"{c.algorithm} {c.protocol}" for choices in rows.values() for c in choices}


def test_every_forecast_is_a_mark(ax):
    rows = nccl_forecast.forecasts()
    plots.forecast_dots(ax, rows)
    drawn = [(x, y) for line in ax.lines for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]
    assert sorted(drawn) == sorted((row.measured, row.error) for row in rows)


def test_bytes_are_printed_where_there_are_any(ax):
    plots.bytes_between(ax, [[0, 2**20], [3 * 2**19, 0]])
    assert sorted(text.get_text() for text in ax.texts) == ["1.00", "1.50"]


def test_no_bytes_known_is_said(ax):
    plots.bytes_between(ax, [])
    assert "does not tell" in ax.texts[0].get_text()


def test_buckets_end_where_their_last_gradient_ends(ax):
    fired = [Fired(0, 0, ("b", "a"), 30, 2), Fired(0, 1, ("c",), 5, 3)]
    plots.bucket_rows(ax, {"step 0": fired}, {"a": 10, "b": 20, "c": 5})
    assert [line.get_xdata()[0] for line in ax.lines] == [30, 35]
    assert sorted(bar.get_width() for bar in ax.patches) == [5, 10, 20]


def test_what_is_held_adds_up(ax):
    plots.held_bars(ax, {"stage 0": Held(2, 2, 12), "stage 3": Held(1, 1, 3)}, ("memory", 10))
    ends = [bar.get_x() + bar.get_width() for bar in ax.patches]
    assert sorted(ends)[-1] == 16 and len(ax.patches) == 6


def test_a_pipeline_has_a_box_a_pass(ax):
    begin = pipeline.slots(pipeline.one_f_one_b(3, 4), 1, 2)
    plots.pipeline_order(ax, begin)
    assert sum(len(container.patches) for container in ax.containers) == 2 * 3 * 4
    assert {text.get_text() for text in ax.texts} == set("0123")
