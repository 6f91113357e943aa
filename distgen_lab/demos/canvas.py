"""A canvas on which a picture that differs little from the last one is drawn in a fraction of the time.

Most of what a small picture costs is its words and ticks. A word is rendered once and then copied, and an axis of a
:class:`Sketch` makes no ticks, each of which is five artists: they are drawn here, as one line and a few words.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis, YAxis
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.text import Text

__all__ = ["Sketch", "pixels"]

_WORDS = 4096  # words kept; some kB each
_POINT = 1 / 72  # inches


class _NoTicks:
    """The ticks of an axis that never makes any."""

    def __get__(self, axis: Any, owner: Any = None) -> list:
        return []


class _Bare(Axis):
    """An axis that knows where its ticks are and how they look, but has none."""

    majorTicks = minorTicks = _NoTicks()

    def get_major_ticks(self, numticks: int | None = None) -> list:
        """Return no ticks."""
        return []

    get_minor_ticks = get_major_ticks


class _BareX(_Bare, XAxis):
    def get_ticks_position(self) -> str:
        return "bottom"


class _BareY(_Bare, YAxis):
    def get_ticks_position(self) -> str:
        return "left"


class _Axes(Axes):
    def _init_axis(self) -> None:
        self.xaxis, self.yaxis = _BareX(self, clear=False), _BareY(self, clear=False)
        for name, spine in self.spines.items():
            spine.register_axis(self.xaxis if name in ("bottom", "top") else self.yaxis)


class Sketch(Figure):
    """A figure for :func:`pixels`, whose axes are made in half the time."""

    def add_axes(self, *where: Any, **options: Any) -> Axes:
        """Add axes as ``Figure.add_axes`` does."""
        return super().add_axes(*where, **{"axes_class": _Axes} | options)

    def add_subplot(self, *where: Any, **options: Any) -> Axes:
        """Add axes as ``Figure.add_subplot`` does."""
        return super().add_subplot(*where, **{"axes_class": _Axes} | options)


def pixels(figure: Figure) -> np.ndarray:
    """Draw a figure, whose axes are simplified for it, and return its pixels: uint8 of shape (height, width, 4)."""
    canvas = _Canvas(figure)
    for ax in figure.axes:
        _simplify(ax)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


class _Renderer(RendererAgg):
    """Renders a word once and copies it from then on."""

    def draw_text(
        self, gc: Any, x: float, y: float, s: str, prop: FontProperties, angle: float, ismath: Any = False,
        mtext: Text | None = None,
    ) -> None:  # fmt: skip
        word, left, low = _word(s, prop.copy(), angle, ismath, self.dpi, tuple(gc.get_rgb()), gc.get_alpha())
        self.draw_image(gc, round(x) + left, self.height - round(y) + low, word)

    def get_text_width_height_descent(self, s: str, prop: FontProperties, ismath: Any) -> tuple[float, float, float]:
        return _measure(s, prop.copy(), ismath, self.dpi)


class _Canvas(FigureCanvasAgg):
    def get_renderer(self) -> _Renderer:
        width, height = np.round(self.figure.bbox.size)  # 4.6 inches are 460 pixels, not 459
        return _Renderer(width, height, self.figure.dpi)


@lru_cache(maxsize=_WORDS)
def _measure(s: str, prop: FontProperties, ismath: Any, dpi: float) -> tuple[float, float, float]:
    return RendererAgg(1, 1, dpi).get_text_width_height_descent(s, prop, ismath)


@lru_cache(maxsize=_WORDS)
def _word(
    s: str, prop: FontProperties, angle: float, ismath: Any, dpi: float, color: tuple, alpha: float
) -> tuple[np.ndarray, int, int]:
    """A word's pixels from the bottom up, and where their lower left corner is from the word's own, in pixels."""
    width, height, _ = _measure(s, prop, ismath, dpi)
    if angle:
        width = height = 2 * np.hypot(width, height)
    left, low = (int(width) // 2 + 8, int(height) // 2 + 8) if angle else (8, int(height) + 8)
    renderer = RendererAgg(int(width) + 16, int(1.5 * height) + 16, dpi)
    context = renderer.new_gc()
    context.set_foreground(color, isRGBA=True)
    context.set_alpha(alpha)
    renderer.draw_text(context, left, low, s, prop, angle, ismath)
    drawn = np.asarray(renderer.buffer_rgba())
    rows, columns = (np.flatnonzero(drawn[..., 3].any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return np.zeros((1, 1, 4), np.uint8), 0, 0
    cut = drawn[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return np.ascontiguousarray(cut[::-1]), int(columns[0]) - left, low - int(rows[-1]) - 1


def _simplify(ax: Axes) -> None:
    """Draw the ticks of both axes as one line and a few words each."""
    for spine in ax.spines.values():
        spine.get_spine_transform()  # puts it into its place, as labels of ticks would, where there are any
    for axis in (ax.xaxis, ax.yaxis):
        if not ax.axison:
            axis.set_visible(False)  # else the title asks where its ticks would be
        elif axis.get_visible():
            _ticks(ax, axis)


def _ticks(ax: Axes, axis: Axis) -> None:
    """Exchange an axis for its major ticks, their labels, its grid and its label; minor ticks are left out."""
    along = axis is ax.xaxis
    places = np.asarray(axis.get_majorticklocs(), float)
    labels = axis.get_major_formatter().format_ticks(places)
    ax.text(int(along), int(not along), axis.get_major_formatter().get_offset(), transform=ax.transAxes, va="bottom")
    low, high = sorted(axis.get_view_interval())
    rim = 1e-9 * (high - low)
    shown = [(p, label) for p, label in zip(places, labels, strict=True) if low - rim <= p <= high + rim]
    places, style = [place for place, _ in shown], axis.get_tick_params()
    _grid(ax, along, places, style)
    marks = style.get("bottom" if along else "left", True)
    length = style.get("length", 3.5) if marks else 0.0
    if marks and places:
        _marks(ax, along, places, length)
    pad, wide = length + style.get("pad", 3.5), 0.0
    if style.get("labelbottom" if along else "labelleft", True):
        wide = _labels(ax, along, shown, pad, style.get("labelsize", 10))
    _name(ax, axis, along, pad + wide)
    axis.set_visible(False)


def _grid(ax: Axes, along: bool, places: Sequence[float], style: dict) -> None:
    if not style.get("gridOn", False):
        return
    ends = [((p, 0), (p, 1)) if along else ((0, p), (1, p)) for p in places]
    transform = ax.get_xaxis_transform() if along else ax.get_yaxis_transform()
    alpha = style.get("grid_alpha", 1.0)
    lines = LineCollection(ends, colors="#b0b0b0", linewidths=0.8, alpha=alpha, transform=transform, zorder=0.5)
    lines.set_clip_path(ax.patch)
    ax.add_artist(lines)


def _marks(ax: Axes, along: bool, places: Sequence[float], length: float) -> None:
    rim = [0.0] * len(places)
    xs, ys = (places, rim) if along else (rim, places)
    transform = ax.get_xaxis_transform() if along else ax.get_yaxis_transform()
    ticks = Line2D(
        xs, ys, color="black", linestyle="", marker=3 if along else 0, markersize=length, markeredgewidth=0.8,
        transform=transform, clip_on=False, zorder=2.01,
    )  # fmt: skip
    ax.add_artist(ticks).set_clip_path(None)


def _labels(ax: Axes, along: bool, shown: Sequence[tuple[float, str]], pad: float, size: float) -> float:
    """Write the labels; return how far they reach, in points."""
    shift, vertical, horizontal = ax.get_xaxis_text1_transform(pad) if along else ax.get_yaxis_text1_transform(pad)
    wide = 0.0
    for place, label in shown:
        x, y = (place, 0) if along else (0, place)
        word = ax.text(x, y, label, transform=shift, ha=horizontal, va=vertical, fontsize=size, zorder=2.5)
        if not along and label:
            dpi = ax.figure.dpi
            wide = max(wide, _measure(label, word.get_fontproperties().copy(), False, dpi)[0] * 72 / dpi)
    return 1.25 * word.get_fontsize() if along and shown else wide


def _name(ax: Axes, axis: Axis, along: bool, out: float) -> None:
    """Write the axis's label beyond its ticks."""
    if not axis.label.get_text():
        return
    away, box = (out + axis.labelpad) * _POINT * ax.figure.dpi, ax.bbox
    x, y = ((box.x0 + box.x1) / 2, box.y0 - away) if along else (box.x0 - away, (box.y0 + box.y1) / 2)
    ax.text(
        x, y, axis.label.get_text(), transform=None, fontsize=axis.label.get_fontsize(), color=axis.label.get_color(),
        ha="center", va="top" if along else "bottom", rotation=0 if along else 90, rotation_mode="anchor", zorder=2.5,
    )  # fmt: skip
