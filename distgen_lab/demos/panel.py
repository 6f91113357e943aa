"""The wiring every demo shares: controls above one picture that is exchanged in place, so that nothing flickers."""

import gc
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from html import escape
from io import BytesIO
from typing import Any

import ipywidgets as widgets
from matplotlib.figure import Figure
from PIL import Image

from distgen_lab.demos.canvas import Sketch, pixels
from distgen_lab.plots import PALETTE
from distgen_lab.units import count

__all__ = ["LARGE", "Panel", "choice", "log_slider", "menu", "panel", "picture", "stamp", "whole"]

DPI = 100
LARGE = 1.25
"""How many times as large everything is when large type is asked for."""
START = "start"
"""The button that brings the first state back."""
_SHORT = 17  # characters of an option that fit beside a slider of the usual width
_KEPT = 64  # pictures a panel remembers, for the way back and for presets
_COLORS = 64  # of a picture that is stored in a notebook
_STYLE = """<style>
.distgen-demo {overflow: hidden}
.distgen-demo .widget-hslider {width: 460px !important; margin: 1px 8px 1px 0}
.distgen-demo .widget-hslider > .widget-label {width: 115px !important}
.distgen-demo .widget-hslider > .widget-readout {max-width: none; overflow: visible; white-space: nowrap}
.distgen-demo .distgen-menu > .widget-readout {min-width: 120px}
.distgen-demo .distgen-wide {width: 720px !important}
.distgen-demo .distgen-wide > .widget-readout {min-width: 300px; text-align: left}
.distgen-demo .distgen-buttons button {width: auto; padding: 0 10px}
.distgen-demo > .widget-html {width: 100%; max-width: 1125px}
.distgen-demo .widget-html-content {line-height: 1.4; min-height: 4.2em; color: var(--jp-content-font-color1)}
.distgen-demo img.widget-image {max-width: 100%; height: auto !important}
.distgen-demo :focus-visible {outline: 3px solid #E69F00; outline-offset: 1px}
.distgen-large {--jp-widgets-font-size: 19px; --jp-widgets-inline-height: 34px}
.distgen-large .widget-hslider {width: 470px !important}
.distgen-large .widget-hslider > .widget-label {width: 150px !important}
.distgen-large .widget-hslider > .widget-readout {min-width: 84px}
.distgen-large .distgen-menu > .widget-readout {min-width: 165px}
.distgen-large .distgen-wide {width: 940px !important}
.distgen-large .distgen-wide > .widget-readout {min-width: 420px}
</style>"""


class Panel(widgets.VBox):
    """Controls, buttons, picture and caption.

    Where no widget can live (a stored notebook, a page of HTML) the first picture and the caption stand for it.
    """

    def __init__(
        self,
        controls: Sequence[widgets.Widget],
        image: widgets.Image,
        caption: widgets.HTML,
        buttons: Sequence[widgets.Widget] = (),
    ) -> None:
        self.image, self.caption = image, caption
        self.controls, self.buttons = tuple(controls), tuple(buttons)
        style = widgets.HTML(_STYLE, layout=widgets.Layout(display="none"))
        rows = [_row(self.controls), _row(self.buttons, "distgen-buttons"), image, caption, style]
        super().__init__(rows, _dom_classes=("distgen-demo",))

    def still(self) -> bytes:
        """Return the picture as a small PNG with a palette."""
        return _with_palette(self.image.value)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        still = {"image/png": b64encode(self.still()).decode(), "text/plain": self.caption.value}
        return super()._repr_mimebundle_(**kwargs) | still


def _row(children: Sequence[widgets.Widget], *classes: str) -> widgets.Box:
    """Widgets side by side as far as there is room."""
    return widgets.Box(children, layout=widgets.Layout(flex_flow="row wrap"), _dom_classes=classes)


def picture(draw: Callable[[Figure], None], size: tuple[float, float], scale: float = 1.0) -> bytes:
    """Return the PNG that ``draw`` makes on an empty figure of ``size`` inches, type and all ``scale`` times as large.

    Little compression: what is saved in bytes would be lost in time, and a slider waits for this.
    """
    figure = Sketch(figsize=size, dpi=DPI * scale, layout="none")
    draw(figure)
    stream = BytesIO()
    Image.fromarray(pixels(figure)).convert("RGB").save(stream, format="PNG", compress_level=1)
    return stream.getvalue()


def _with_palette(png: bytes) -> bytes:
    """The same picture with a palette of a few colours instead of three bytes a pixel."""
    full, stream = Image.open(BytesIO(png)).convert("RGB"), BytesIO()
    few = full.quantize(_COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(stream, format="PNG", optimize=True)
    return stream.getvalue()


def panel(
    controls: dict[str, widgets.Widget],
    data: Callable[..., Any],
    draw: Callable[[Figure, Any], None],
    words: Callable[[Any], str],
    size: tuple[float, float] = (9, 3.4),
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    large: bool = False,
) -> Panel:
    """Return a panel that shows ``draw(figure, data(**values))`` and ``words(data)`` for the controls' values.

    The picture keeps its size while it changes. A combination that ``data`` refuses with a ValueError is answered with
    its sentence, and the last picture stays.

    Args:
        controls: widgets by the argument of ``data`` they set.
        data, draw, words: the demo.
        size: of the picture in inches.
        presets: for each button the values it sets; what it does not name goes back to its first value.
        large: whether it begins in large type; a button changes that.
    """
    _settle()
    larger = widgets.ToggleButton(large, description="large type", tooltip="for a projector")
    view = _View(controls, data, draw, words, size, larger)
    first = {name: control.value for name, control in controls.items()}
    buttons = [
        _button(name, view, first | dict(preset)) for name, preset in ({START: {}} | dict(presets or {})).items()
    ]
    shown = Panel(list(controls.values()), view.image, view.caption, [*buttons, larger])

    def resize(change: Any = None) -> None:
        (shown.add_class if larger.value else shown.remove_class)("distgen-large")
        view.refresh()

    larger.observe(resize, "value")
    resize()
    return shown


@cache
def _settle() -> None:
    """Take what is loaded out of the garbage collector's rounds: each made a slider wait for a tenth of a second."""
    gc.collect()
    gc.freeze()


class _View:
    """The picture and the caption of a panel, kept in step with its controls."""

    def __init__(
        self,
        controls: Mapping[str, widgets.Widget],
        data: Callable[..., Any],
        draw: Callable[[Figure, Any], None],
        words: Callable[[Any], str],
        size: tuple[float, float],
        larger: widgets.ToggleButton,
    ) -> None:
        self.controls, self.size, self.larger = controls, size, larger
        self.image, self.caption = widgets.Image(format="png", layout=widgets.Layout(flex="0 0 auto")), widgets.HTML()
        self.held = False

        def made(scale: float, *values: Any) -> tuple[bytes, str]:
            shown = data(**dict(zip(controls, values, strict=True)))
            return picture(lambda figure: draw(figure, shown), size, scale), words(shown)

        self.made = lru_cache(maxsize=_KEPT)(made)
        for control in controls.values():
            control.observe(self.refresh, "value")

    def refresh(self, change: Any = None) -> None:
        """Show what the controls say now."""
        if self.held:
            return
        scale = LARGE if self.larger.value else 1.0
        try:
            png, said = self.made(scale, *(control.value for control in self.controls.values()))
        except ValueError as error:
            self.caption.value = f"<b>{escape(str(error))}</b>"
            return
        self._fit(scale)
        self.image.value, self.caption.value = png, said

    def _fit(self, scale: float) -> None:
        """Give the image the picture's size, so that the page keeps still while it is exchanged."""
        width, height = (round(inches * DPI * scale) for inches in self.size)
        self.image.width, self.image.height = str(width), str(height)
        self.image.layout.width, self.image.layout.height = f"{width}px", f"{height}px"

    def set(self, values: Mapping[str, Any]) -> None:
        """Set several controls and show the result once."""
        self.held = True
        try:
            for name, value in values.items():
                self.controls[name].value = value
        finally:
            self.held = False
        self.refresh()


def _button(name: str, view: _View, values: Mapping[str, Any]) -> widgets.Button:
    button = widgets.Button(description=name)
    button.on_click(lambda _: view.set(values))
    return button


def stamp(figure: Figure, word: str) -> None:
    """Say in a frame at the upper right whether a picture shows what was recorded or what was simulated."""
    color = PALETTE["red"] if word == "recorded" else PALETTE["grey"]
    frame = {"facecolor": "white", "edgecolor": color, "boxstyle": "round,pad=0.3"}
    figure.text(0.985, 0.955, word, color=color, fontsize=10, ha="right", va="center", weight="bold", bbox=frame)


def log_slider(label: str, low: float, high: float, value: float, *more: float) -> widgets.SelectionSlider:
    """Return a slider over 1, 2, 5 per decade from ``low`` to ``high``, ``value`` and ``more``, read out as a count."""
    steps = [m * 10.0**e for e in range(-3, 20) for m in (1, 2, 5)]
    options = [(count(s), s) for s in sorted({*steps, value, *more}) if low <= s <= high]
    return widgets.SelectionSlider(options=options, value=value, description=label)


def choice(label: str, values: Iterable[float], value: float) -> widgets.SelectionSlider:
    """Return a slider over the given numbers."""
    options = [(f"{number:,.6g}", number) for number in values]
    return widgets.SelectionSlider(options=options, value=value, description=label)


def whole(label: str, low: int, high: int, value: int) -> widgets.IntSlider:
    """Return a slider over the whole numbers from ``low`` to ``high``."""
    return widgets.IntSlider(value, low, high, description=label)


def menu(label: str, options: Iterable[Any], value: Any = None) -> widgets.SelectionSlider:
    """Return a choice among the options, with ``value`` (the first where None is given) chosen.

    It is a slider, not a drop-down menu: JupyterLab keeps the arrow keys from those.
    """
    options = list(options)
    wide = max(len(str(option)) for option in options) > _SHORT
    chosen = widgets.SelectionSlider(options=options, value=options[0] if value is None else value, description=label)
    return chosen.add_class("distgen-wide" if wide else "distgen-menu")
