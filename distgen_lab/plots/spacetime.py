"""Space-time pictures: what ranks send, receive and wait for, recorded or simulated."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import FuncFormatter, MaxNLocator

from distgen_lab.plots.canvas import PALETTE, plain_frame
from distgen_lab.timeline import Span, Timeline
from distgen_lab.units import duration

__all__ = ["FEW_MESSAGES", "spacetime"]

FEW_MESSAGES = 200
"""Up to so many messages are drawn as arrows, more as plain lines."""


def spacetime(ax: Axes, timeline: Timeline) -> Axes:
    """Draw ranks down, time to the right: a message from its send to the end of its receive, waiting and collectives.

    The same picture for a recorded and for a simulated run. Time starts at 0 with the first span.
    """
    begin = timeline.spans[0].start if timeline.spans else 0.0
    ax.hlines(range(timeline.lanes), 0, timeline.seconds, color=PALETTE["grey"], linewidth=0.6, zorder=1)
    for kind, color in (("collective", "green"), ("wait", "sky")):
        _spans(ax, [span for span in timeline.spans if _kind(span) == kind], begin, kind, PALETTE[color])
    _messages(ax, timeline.messages(), begin)
    ax.set(xlabel="time", ylabel="rank", yticks=range(timeline.lanes), ylim=(timeline.lanes - 0.5, -0.5))
    ax.set_yticks(range(0, timeline.lanes, max(1, timeline.lanes // 16)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    ax.xaxis.set_major_locator(MaxNLocator(6))
    if ax.get_legend_handles_labels()[1]:
        ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return plain_frame(ax)


def _kind(span: Span) -> str:
    """What a span is in the picture: a collective, a wait for a message, or a message on its way."""
    if span.is_collective:
        return "collective"
    return "wait" if "recv" in span.op and span.blocking else "message"


def _spans(ax: Axes, spans: Sequence[Span], begin: float, label: str, color: str) -> None:
    """Thick bars on the lanes; one that has not ended reaches to the end of the picture."""
    ended = [span for span in spans if span.end is not None]
    if ended:
        left, width = [span.start - begin for span in ended], [span.seconds for span in ended]
        ax.barh([span.lane for span in ended], width, left=left, height=0.36, color=color, label=label, zorder=2)


def _messages(ax: Axes, pairs: Sequence[tuple[Span, Span]], begin: float) -> None:
    """One line a message; an arrow head shows its direction while there are few."""
    color, drawn = PALETTE["blue"], [(send, receive) for send, receive in pairs if receive.end is not None]
    ends = [((send.start - begin, send.lane), (receive.end - begin, receive.lane)) for send, receive in drawn]
    if not ends:
        return
    ax.add_collection(LineCollection(ends, color=color, linewidth=0.9, zorder=3, label="message"))
    for start, end in ends if len(ends) <= FEW_MESSAGES else ():
        style = {"arrowstyle": "-|>", "color": color, "linewidth": 0, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", end, start, arrowprops=style, zorder=4)
