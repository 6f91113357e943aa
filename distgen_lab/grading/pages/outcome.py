"""What became of an answer, in a word that pages and pictures share."""

from decimal import Decimal

from distgen_lab.grading.gradebook import Row

__all__ = ["OUTCOMES", "outcome", "section_name"]

OUTCOMES = {
    "full": "full points",
    "part": "some points",
    "worked": "right for the worked input only",
    "wrong": "wrong",
    "failed": "error or no end",
    "blank": "left blank",
    "missing": "not handed in",
}
"""Kinds of outcome, best first, and how a page calls them."""


def outcome(row: Row) -> str:
    """Return the kind of the row by what the checks gave; points by hand and lateness do not count."""
    if Decimal(row.points) >= Decimal(row.out_of):
        return "full"
    if Decimal(row.points) > 0:
        return "part"
    if not row.checks or row.reason.startswith("missing"):
        return "blank" if row.reason.startswith("blank") else "missing"
    visible = next((line.state for line in row.checks if line.kind == "visible"), "not run")
    if visible == "wrong":
        return "wrong"
    hidden = [line.state for line in row.checks if line.kind == "hidden"]
    return "worked" if visible == "right" and "wrong" in hidden else "failed"


def section_name(section: str) -> str:
    """Return a section as people call it: ``01_scale_arithmetic`` is ``1 Scale arithmetic``."""
    number, _, words = section.partition("_")
    return f"{int(number)} {words.replace('_', ' ').capitalize()}" if number.isdigit() and words else section
