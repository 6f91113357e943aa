"""The page for instructors and authors; what it says about the installed course is read from the course."""

from argparse import ArgumentParser, _SubParsersAction
from importlib.resources import files
from string import Template

from distgen_lab import demos, hardware
from distgen_lab.grading import sandbox
from distgen_lab.topology import fat_tree, ring
from distgen_lab.units import quantity

__all__ = ["as_html", "guide"]

_STYLE = """body {font: 17px/1.6 system-ui, sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em;
color-scheme: light dark} table {border-collapse: collapse} th, td {text-align: left; padding: 0.2em 0.8em 0.2em 0;
vertical-align: top; border-bottom: 1px solid #8888} code {font-size: 0.9em}"""


def guide(parser: ArgumentParser) -> str:
    """Return the page in Markdown, with the commands of ``parser``."""
    text = (files("distgen_lab") / "data" / "guide.md").read_text(encoding="utf-8")
    return Template(text).substitute(
        commands=_commands(parser),
        memory=quantity(sandbox.ADDRESS_SPACE, "B"),
        file=quantity(sandbox.FILE_BYTES, "B"),
        processes=sandbox.PROCESSES,
        ring=f"{ring.__module__}.{ring.__name__}",
        fat_tree=f"{fat_tree.__module__}.{fat_tree.__name__}",
        accelerators=", ".join(hardware.ACCELERATORS),
        demos=", ".join(f"`{name}`" for name in demos.__all__),
    )


def _commands(parser: ArgumentParser) -> str:
    """The commands and what each is for, as a table."""
    groups = [action for action in parser._actions if isinstance(action, _SubParsersAction)]
    rows = [f"| `distgen {one.dest}` | {one.help} |" for group in groups for one in group._choices_actions]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def as_html(markdown: str) -> str:
    """Return Markdown as a page of HTML that needs no other file."""
    from nbconvert.filters import markdown2html

    title = markdown.lstrip("# ").partition("\n")[0]
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{markdown2html(markdown)}</body></html>\n'
