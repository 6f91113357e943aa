"""What the chapter prints, held against what the library computes: the data behind every *Check the book* box.

Each claim of the chapter is one record of ``data/claims/*.json``: the printed value, an expression over this library
that computes the right one, and in one sentence why they differ.
"""

import difflib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from html import escape
from importlib import import_module
from importlib.resources import files

from distgen_lab import units

__all__ = [
    "BASES",
    "MODULES",
    "VERDICTS",
    "Box",
    "Claim",
    "ClaimTable",
    "check_the_book",
    "claim",
    "claims",
    "html_table",
    "table",
]

VERDICTS = ("OK", "rounding", "WRONG", "MISLEADING", "outdated", "UNSOURCED")
"""OK; off in the last digit; wrong; a condition is missing; true once; no public source found."""
BASES = ("computed", "cited", "open")
"""What the right value stands on: computed by this library, taken from a source that was read, or neither."""

MODULES = (
    "alphabeta", "cg", "collectives", "hardware", "memory", "nccl_tuner", "occupancy", "overlap", "roofline",
    "scale", "simt", "simulate", "systolic", "topology", "units",
)  # fmt: skip
"""The modules that an expression of a claim may use."""
_FUNCTIONS = {
    "__builtins__": {}, "ceil": math.ceil, "log2": math.log2, "max": max, "min": min, "round": round, "sqrt": math.sqrt,
    "sum": sum,
}  # fmt: skip
_BOX = "border:1px solid #0072B2;border-left:6px solid #0072B2;border-radius:4px;padding:0.5em 1em;margin:0.5em 0"
_ERRATA = "errata.ipynb"


@dataclass(frozen=True)
class Claim:
    """One claim of the chapter.

    Attributes:
        id: a short name, e.g. "kv-70b".
        section: of the chapter, "0" for its introduction.
        line, topic: where it stands.
        claim: what the chapter says, in our words.
        printed, printed_value: the value as printed, and as a number in SI base units (None if it is not one number).
        compute: an expression over the modules of theory (``scale``, ``topology``, ...), None where there is none.
        expected: the right value from elsewhere, which the tests hold against ``compute``.
        unit: of both values: "B", "FLOP", "s", "1" for a plain number, ...
        verdict: one of ``VERDICTS``.
        right, why: the right statement, and one sentence on the difference.
        source, checked: where it stands; "computed", "looked up" (the source was read) or "open" (none was found).
        digits: significant digits of the printed value, where they are fewer than it shows.
    """

    id: str
    section: str
    line: int
    topic: str
    claim: str
    printed: str
    printed_value: float | None
    compute: str | None
    expected: float | None
    unit: str
    verdict: str
    right: str
    why: str
    source: str
    checked: str
    digits: int | None = None

    @cached_property
    def value(self) -> float | None:
        """The computed value in SI base units, None where nothing can be computed."""
        return None if self.compute is None else float(eval(self.compute, dict(_names())))

    @property
    def computed(self) -> str:
        """The computed value as a reader sees it, "-" where there is none."""
        return "-" if self.value is None else _readable(self.value, self.unit)

    @property
    def basis(self) -> str:
        """What the right value stands on, one of ``BASES``."""
        return "computed" if self.compute else "open" if self.checked == "open" else "cited"

    def agrees(self) -> bool | None:
        """Return whether printed and computed value are equal to the digits printed, None if there are not two."""
        if self.printed_value is None or self.value is None:
            return None
        last_digit = 10.0 ** (math.floor(math.log10(abs(self.printed_value))) + 1 - self._printed_digits())
        return abs(self.value - self.printed_value) <= last_digit / 2 * (1 + 1e-9)

    def _printed_digits(self) -> int:
        """Significant digits of the first number in ``printed``, trailing zeros included."""
        number = re.search(r"\d[\d,]*(\.\d+)?", self.printed)
        return self.digits or max(1, len(re.sub(r"\D", "", number[0] if number else "").lstrip("0")))


@cache
def _names() -> dict[str, object]:
    """What an expression may use; the modules are loaded when the first one is computed (some stand on this one)."""
    modules = {name: import_module(f"distgen_lab.{name}") for name in MODULES}
    return _FUNCTIONS | modules | {"numpy": import_module("numpy")}


@cache
def _all() -> dict[str, Claim]:
    """Every claim by id, in the order of the chapter; read once."""
    folder = files("distgen_lab") / "data" / "claims"
    pages = sorted((p for p in folder.iterdir() if p.name.endswith(".json")), key=lambda p: p.name)
    rows = [Claim(**row) for page in pages for row in json.loads(page.read_text(encoding="utf-8"))]
    return {row.id: row for row in rows}


def claims(section: str | int | None = None, verdict: str | None = None) -> list[Claim]:
    """Return the claims of a section ("0" is the introduction) and with a verdict, of all where None is given.

    Raises:
        ValueError: for a section or a verdict that there is not; the message lists those there are.

    >>> [c.id for c in claims(section=1, verdict="WRONG")][-1]
    'kv-70b'
    """
    rows = list(_all().values())
    if section is not None:
        section = _one_of("section", str(section), sorted({row.section for row in rows}))
    if verdict is not None:
        _one_of("verdict", verdict, VERDICTS)
    return [row for row in rows if section in (None, row.section) and verdict in (None, row.verdict)]


def claim(id: str) -> Claim:
    """Return the claim of that id.

    Raises:
        ValueError: for an unknown id; the message suggests near ones.

    >>> claim("kv-70b").printed, claim("kv-70b").computed
    ('3.3 TB', '335.5 GB')
    """
    if id not in _all():
        near = difflib.get_close_matches(id, _all(), n=5, cutoff=0.4) or sorted(_all())
        raise ValueError(f"unknown claim {id!r}; did you mean {', '.join(near)}?")
    return _all()[id]


@dataclass(frozen=True, repr=False)
class Box:
    """The *Check the book* box of one claim: HTML in a notebook, the same words in a terminal."""

    claim: Claim

    def _lines(self) -> list[tuple[str, str, str]]:
        """Label, text and code of each line; a line without text and code is left out."""
        one = self.claim
        computed = one.computed if one.compute else ""
        lines = [
            ("Printed", f"{one.printed} ({one.verdict})", ""),
            ("Computed here", computed, one.compute or ""),
            ("Right", one.right, ""),
            ("Why", one.why, ""),
            ("Source", one.source, ""),
        ]
        return [line for line in lines if line[1] or line[2]]

    def _repr_html_(self) -> str:
        one = self.claim
        lines = "".join(
            f"<div><b>{label}:</b> {escape(text)}{f' = <code>{escape(code)}</code>' if code else ''}</div>"
            for label, text, code in self._lines()
        )
        head = f"<b>Check the book</b>: chapter line {one.line}, {escape(one.topic)}. {escape(one.claim)}"
        link = f'<div><a href="{_ERRATA}">All checks: errata.ipynb</a></div>'
        return f'<div style="{_BOX}"><div>{head}</div>{lines}{link}</div>'

    def __repr__(self) -> str:
        one = self.claim
        lines = [f"  {label}: {text}{f' = {code}' if code else ''}" for label, text, code in self._lines()]
        head = f"Check the book: chapter line {one.line}, {one.topic}. {one.claim}"
        return "\n".join([head, *lines, f"  All checks: {_ERRATA}"])


def check_the_book(id: str) -> Box:
    """Return the box that sets what the chapter prints beside what is computed here.

    Raises:
        ValueError: for an unknown id; the message suggests near ones.
    """
    return Box(claim(id))


@dataclass(frozen=True, repr=False)
class ClaimTable:
    """Claims as a table: HTML in a notebook, one line a claim in a terminal."""

    rows: tuple[Claim, ...]

    def _repr_html_(self) -> str:
        names = ("Line", "Claim", "Printed", "Computed", "Verdict", "Right", "Source")
        return html_table(
            names, [(r.line, r.claim, r.printed, r.computed, r.verdict, r.right, r.source) for r in self.rows]
        )

    def __repr__(self) -> str:
        return "\n".join(
            f"line {r.line} {r.verdict}: {r.claim} Printed: {r.printed}. Computed: {r.computed}. "
            f"Right: {r.right} [{r.source}]"
            for r in self.rows
        )


def table(section: str | int | None = None, verdict: str | None = None) -> ClaimTable:
    """Return a table of the claims that :func:`claims` returns for the same arguments."""
    return ClaimTable(tuple(claims(section, verdict)))


def html_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table with these column names; every cell is escaped and no colour is set."""
    head = "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in names)
    cells = ("".join(f'<td style="text-align:left">{escape(str(cell))}</td>' for cell in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _readable(value: float, unit: str) -> str:
    """A value for the eye: four digits, an SI prefix; parameters in billions, plain numbers as they are."""
    if unit == "s":
        return units.duration(value, 4)
    if unit == "parameters":
        return f"{value / 1e9:,.4g} billion"
    return f"{value:,.4g}" if unit == "1" else units.quantity(value, unit, 4)


def _one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    """Return ``value``, or say which values there are if it is none of them."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; there are: {', '.join(allowed)}")
    return value
