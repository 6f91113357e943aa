"""Fill the page templates; everything that is put into one is escaped."""

import re
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

__all__ = ["render"]


@cache
def _environment() -> Environment:
    folder = files("distgen_lab") / "data" / "pages"
    loader = FunctionLoader(lambda name: (folder / name).read_text("utf-8"))
    strict = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=loader, **strict)
    environment.filters["marked"] = _marked
    return environment


def _marked(text: str) -> Markup:
    """The text, escaped, with the ``*emphasis*`` and `` `code` `` that hints are written with."""
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"(?<![*\w])\*([^*\s][^*]*?)\*(?![*\w])", r"<em>\1</em>", safe))


def render(template: str, **facts: Any) -> str:
    """Return the template of ``distgen_lab/data/pages`` with the facts in it, HTML-escaped."""
    return _environment().get_template(template).render(**facts)
