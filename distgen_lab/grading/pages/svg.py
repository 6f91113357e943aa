"""Small pictures as inline SVG: no library, no file, a title for whoever cannot see them."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

__all__ = ["columns", "strip"]


def _picture(width: float, height: float, title: str, body: Sequence[Markup]) -> Markup:
    head = Markup('<svg viewBox="0 0 {:g} {:g}" role="img" aria-label="{}"><title>{}</title>')
    return head.format(width, height, title, title) + Markup("").join(body) + Markup("</svg>")


def strip(counts: Mapping[str, int], colors: Mapping[str, str], names: Mapping[str, str], label: str) -> Markup:
    """Return a bar of full width divided by the counts, each part with its number where there is room."""
    total = sum(counts.values()) or 1
    part = Markup('<g><title>{}</title><rect x="{:.2f}" y="0" width="{:.2f}" height="22" fill="{}"/>{}</g>')
    number = Markup('<text x="{:.2f}" y="15.5" text-anchor="middle" class="{}">{}</text>')
    body, x = [], 0.0
    for kind, count in counts.items():
        width = 300 * count / total
        dark = "on-dark" if kind in ("full", "wrong", "failed") else "on-light"
        text = number.format(x + width / 2, dark, count) if width >= 12 else ""
        if count:
            body.append(part.format(f"{names[kind]}: {count}", x, max(width - 0.8, 0.5), colors[kind], text))
        x += width
    said = ", ".join(f"{count} {names[kind]}" for kind, count in counts.items() if count)
    return _picture(300, 22, f"{label}: {said}", body)


def columns(heights: Sequence[int], labels: Sequence[str], color: str, title: str, below: str) -> Markup:
    """Return columns with their numbers on top and labels beneath, and a line of text below all."""
    width, room, top = 560.0, 130.0, 18.0
    step, most = width / max(len(heights), 1), max([*heights, 1])
    column = Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>')
    text = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="middle" class="{}">{}</text>')
    body = []
    for i, (height, label) in enumerate(zip(heights, labels, strict=True)):
        tall, middle = room * height / most, (i + 0.5) * step
        body.append(column.format(i * step + 2, top + room - tall, step - 4, tall, color))
        if height:
            body.append(text.format(middle, top + room - tall - 4, "count", height))
        body.append(text.format(middle, top + room + 16, "tick", label))
    body.append(Markup('<line x1="0" y1="{0}" x2="{1}" y2="{0}" class="axis"/>').format(top + room, width))
    body.append(text.format(width / 2, top + room + 36, "tick", escape(below)))
    return _picture(width, top + room + 42, title, body)
