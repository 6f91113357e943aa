"""All demos with their first states as one page of HTML that needs no server and no network."""

import importlib
from base64 import b64encode
from html import escape
from pathlib import Path

from distgen_lab import demos

__all__ = ["page", "write_page"]

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>DistGen Lab: lecture demos</title>
<style>
body {font: 18px/1.5 sans-serif; max-width: 1125px; margin: 2em auto; padding: 0 1em; background: white; color: #222}
img {max-width: 100%; height: auto} h2 {margin-top: 2em}</style></head>
<body><h1>Lecture demos</h1>
"""


def page() -> str:
    """Return the page: for each demo what it shows, its first picture and its caption."""
    return _HEAD + "\n".join(map(_section, demos.__all__)) + "\n</body></html>\n"


def _section(name: str) -> str:
    module = importlib.import_module(f"distgen_lab.demos.{name}")
    shown = getattr(module, name)(large=True)
    said = module.__doc__.splitlines()[0].removeprefix("Demo: ")
    picture = b64encode(shown.still()).decode()
    title = escape(name.replace("_", " ").capitalize())
    return (
        f'<section id="{name}"><h2>{title}</h2><p>{escape(said[0].upper() + said[1:])}</p>\n'
        f'<img alt="{title}" src="data:image/png;base64,{picture}">\n<p>{shown.caption.value}</p></section>'
    )


def write_page(path: Path) -> int:
    """Write the page to a new file and return how many demos it shows.

    Raises:
        FileExistsError: if the file is there; it stays as it is.
    """
    text = page()
    with open(path, "x", encoding="utf-8") as file:
        file.write(text)
    return len(demos.__all__)
