"""The chapter as a whole: what to correct first, how its claims fared, and where each of its parts is in the course.

The claims themselves are in :mod:`distgen_lab.claims`; here they are counted, put in order and made browsable.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from distgen_lab.claims import BASES, VERDICTS, Claim, claim, claims, html_table, table

if TYPE_CHECKING:
    from ipywidgets import VBox

__all__ = ["Correction", "Page", "Place", "browse", "corrections", "counts", "places", "what_to_correct_first"]

_ALL = "all"


@dataclass(frozen=True)
class Correction:
    """Claims of the chapter that one change mends, and why it is worth making early."""

    title: str
    reason: str
    claims: tuple[Claim, ...]

    @property
    def lines(self) -> str:
        """The chapter's lines it is about, e.g. "41, 127, 289"."""
        return ", ".join(map(str, sorted({one.line for one in self.claims})))


@dataclass(frozen=True)
class Place:
    """One part of the chapter, and where the course has it.

    Attributes:
        section, line, title: of the chapter; a part without a title of its own is described.
        kind: "section", "definition", "proof", "table", "figure", "example", "key idea", "list", "text", "exercises".
        absent: whether the chapter announces it and does not print it.
        notebook: path from ``notebooks/``.
        heading, cell: of the notebook, and the id of the cell it is in; "" for the whole notebook.
    """

    section: str
    line: int
    kind: str
    title: str
    absent: bool
    notebook: str
    heading: str
    cell: str

    @property
    def link(self) -> str:
        """What leads there from a notebook in ``notebooks/``; JupyterLab scrolls to the cell."""
        return self.notebook + (f"#cell-id={self.cell}" if self.cell else "")


@dataclass(frozen=True, repr=False)
class Page:
    """A table with a sentence above it: HTML in a notebook, lines in a terminal. A cell may be a :class:`Place`."""

    words: str
    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.words)}</p>{_with_links(self.names, self.rows)}"

    def __repr__(self) -> str:
        return "\n".join([self.words, *(" | ".join(map(_plain, row)) for row in (self.names, *self.rows))])


def _plain(cell: Any) -> str:
    return cell.link if isinstance(cell, Place) else str(cell).replace("\n", "; ")


def _with_links(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """The HTML table, with each place as a link and line breaks where the text has them."""
    found: list[Place] = [cell for row in rows for cell in row if isinstance(cell, Place)]
    marked = [[f"\0{found.index(cell)}\0" if isinstance(cell, Place) else cell for cell in row] for row in rows]
    html = html_table(names, marked).replace("\n", "<br>")
    for number, place in enumerate(found):
        words = escape(place.heading or place.notebook)
        html = html.replace(f"\0{number}\0", f'<a href="{escape(place.link)}">{words}</a>')
    return html


@cache
def _data() -> dict[str, list[dict[str, Any]]]:
    return json.loads((files("distgen_lab") / "data" / "errata.json").read_text(encoding="utf-8"))


@cache
def corrections() -> tuple[Correction, ...]:
    """Return what to correct, the most consequential first."""
    return tuple(Correction(row["title"], row["reason"], tuple(map(claim, row["claims"]))) for row in _data()["first"])


def what_to_correct_first() -> Page:
    """Return one page for the chapter's author: what to change, why, and each printed value beside the right one."""
    settled = sum(one.verdict in ("OK", "rounding") for one in claims())
    words = (
        f"Of {len(claims())} quantitative claims {settled} are right or off in the last digit. "
        f"These {len(corrections())} changes mend the others that matter most; most are a sentence or a number."
    )
    rows = (
        (number, one.title, one.lines, one.reason, _beside(one.claims)) for number, one in enumerate(corrections(), 1)
    )
    return Page(words, ("", "What", "Lines", "Why", "Printed and right"), tuple(rows))


def _beside(rows: Iterable[Claim]) -> str:
    """Each printed value and what is right, a line each."""
    return "\n".join(f"{one.printed} → {one.right.rstrip('.')}" for one in rows)


def counts() -> Page:
    """Return how many claims have each verdict, and what the right value stands on: computed, cited or open."""
    found = Counter((one.verdict, one.basis) for one in claims())
    rows = [[verdict, *(found[verdict, basis] for basis in BASES)] for verdict in VERDICTS]
    rows.append(["all", *(sum(found[verdict, basis] for verdict in VERDICTS) for basis in BASES)])
    totals = dict(zip(BASES, rows[-1][1:], strict=True))
    words = (
        f"{len(claims())} claims: {totals['computed']} right values are computed by this library, "
        f"{totals['cited']} are cited, {totals['open']} stay open, because no public source was found."
    )
    return Page(words, ("verdict", *BASES, "all"), tuple((*row, sum(row[1:])) for row in rows))


@cache
def _places() -> tuple[Place, ...]:
    return tuple(_place(**row) for row in _data()["places"])


def _place(notebook: str, kind: str, **facts: Any) -> Place:
    folder = "../exercises/" if kind == "exercises" else ""
    return Place(kind=kind, notebook=f"{folder}{notebook}.ipynb", **facts)


def places(section: str | int | None = None) -> Page:
    """Return a table of the chapter's parts, in its order, and where each is in the course; of one section if given.

    Raises:
        ValueError: for a section that there is not.
    """
    known = sorted({place.section for place in _places()})
    if section is not None and str(section) not in known:
        raise ValueError(f"section is {str(section)!r}; there are: {', '.join(known)}")
    chosen = [place for place in _places() if section is None or place.section == str(section)]
    absent = sum(place.absent for place in chosen)
    words = f"{len(chosen)} parts of the chapter; {absent} of them it announces and leaves out, the course has them."
    rows = ((p.line, p.title, p.kind + (", not in the chapter" if p.absent else ""), p) for p in chosen)
    return Page(words, ("line", "in the chapter", "kind", "in the course"), tuple(rows))


def browse(section: str | int = _ALL, verdict: str = _ALL) -> "VBox":
    """Return two menus, for section and verdict, above the table of the claims that fit both.

    Where no widget can live (a stored notebook, a page of HTML) the first table stands for it.

    Raises:
        ValueError: for a section or verdict that there is not.
    """
    import ipywidgets as widgets

    class Browser(widgets.VBox):
        """Menus and a table; the table alone where there are no widgets."""

        def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
            shown = _chosen(self.children[0].children[0].value, self.children[0].children[1].value)
            return super()._repr_mimebundle_(**kwargs) | {"text/html": shown[1], "text/plain": shown[0]}

    sections = widgets.Dropdown(
        options=[_ALL, *sorted({one.section for one in claims()})], value=_known(section), description="section"
    )
    verdicts = widgets.Dropdown(options=[_ALL, *VERDICTS], value=_known(verdict), description="verdict")
    shown = widgets.HTML()

    def refresh(change: Any = None) -> None:
        shown.value = _chosen(sections.value, verdicts.value)[1]

    for menu in (sections, verdicts):
        menu.observe(refresh, "value")
    refresh()
    return Browser([widgets.HBox([sections, verdicts]), shown])


def _known(value: str | int) -> str:
    """The value of a menu; claims() says what is wrong with one that is not there."""
    if value != _ALL:
        claims(**{"verdict" if isinstance(value, str) and not value.isdigit() else "section": str(value)})
    return str(value)


def _chosen(section: str, verdict: str) -> tuple[str, str]:
    """What is shown for two menus: words, and HTML."""
    rows = table(None if section == _ALL else section, None if verdict == _ALL else verdict)
    words = f"{len(rows.rows)} of {len(claims())} claims; section: {section}, verdict: {verdict}"
    found = rows._repr_html_() if rows.rows else ""
    return words, f'<div style="line-height:1.3"><p>{escape(words)}</p>{found}</div>'
