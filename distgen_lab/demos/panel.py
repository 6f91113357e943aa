"""The wiring every demo shares: controls above one picture that is exchanged in place, so that nothing flickers."""

from base64 import b64encode
from collections.abc import Callable
from html import escape
from io import BytesIO
from typing import Any

import ipywidgets as widgets
from matplotlib.figure import Figure

from distgen_lab.units import count

__all__ = ["Panel", "log_slider", "panel", "picture"]

DPI = 100


class Panel(widgets.VBox):
    """Controls, picture and caption; where no widget can live (a stored notebook) the first picture stands for it."""

    def __init__(self, controls: list[widgets.Widget], image: widgets.Image, caption: widgets.HTML) -> None:
        self.image, self.caption = image, caption
        super().__init__([widgets.VBox(controls), image, caption])

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        still = {"image/png": b64encode(self.image.value).decode(), "text/plain": self.caption.value}
        return super()._repr_mimebundle_(**kwargs) | still


def picture(draw: Callable[[Figure], None], size: tuple[float, float]) -> bytes:
    """Return the PNG that ``draw`` makes on an empty figure of ``size`` inches."""
    figure = Figure(figsize=size, dpi=DPI, layout="none")
    draw(figure)
    stream = BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()


def panel(
    controls: dict[str, widgets.Widget],
    data: Callable[..., Any],
    draw: Callable[[Figure, Any], None],
    words: Callable[[Any], str],
    size: tuple[float, float] = (9, 3.4),
) -> Panel:
    """Return a panel that shows ``draw(figure, data(**values))`` and ``words(data)`` for the controls' values.

    The picture keeps its size while it changes. A combination that ``data`` refuses with a ValueError is answered with
    its sentence, and the last picture stays.
    """
    width, height = (round(inches * DPI) for inches in size)
    image = widgets.Image(format="png", width=width, height=height)
    image.layout = widgets.Layout(width=f"{width}px", height=f"{height}px", flex="0 0 auto")
    caption = widgets.HTML()

    def refresh(change: Any = None) -> None:
        try:
            shown = data(**{name: control.value for name, control in controls.items()})
        except ValueError as error:
            caption.value = f"<b>{escape(str(error))}</b>"
            return
        image.value = picture(lambda figure: draw(figure, shown), size)
        caption.value = words(shown)

    for control in controls.values():
        control.observe(refresh, "value")
    refresh()
    return Panel(list(controls.values()), image, caption)


def log_slider(label: str, low: float, high: float, value: float) -> widgets.SelectionSlider:
    """Return a slider over 1, 2, 5 per decade from ``low`` to ``high`` (and ``value``), read out as a count."""
    steps = [m * 10.0**e for e in range(-3, 20) for m in (1, 2, 5)]
    options = [(count(s), s) for s in sorted({*steps, value}) if low <= s <= high]
    layout = widgets.Layout(width="520px")
    return widgets.SelectionSlider(
        options=options, value=value, description=label, layout=layout, style={"description_width": "130px"}
    )
