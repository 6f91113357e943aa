"""What a lecturer makes of a notebook: a copy with the code taken out, to be typed live, and slides with notes."""

import ast
import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

__all__ = ["blank", "slides"]


def blank(notebook: NotebookNode) -> NotebookNode:
    """Return the notebook for typing live: text and cell ids as they are, code cells emptied, no outputs.

    Imports stay, and so do cells that only wait for a guess (``guess = None``). Of other cells the comments at the top
    stay, as a reminder of what is to be typed.
    """
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        cell.outputs, cell.execution_count = [], None
        if not _is_given(cell.source):
            cell.source = "\n".join(_first_comments(cell.source))
    return notebook


def _is_given(source: str) -> bool:
    """Whether the code is nothing but imports and names that are set to None."""
    try:
        lines = ast.parse(source).body
    except SyntaxError:  # a magic, or a sketch
        return False
    return all(
        isinstance(line, ast.Import | ast.ImportFrom)
        or (isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant) and line.value.value is None)
        for line in lines
    )


def _first_comments(source: str) -> list[str]:
    """The comments before the first line of code."""
    lines = source.splitlines()
    end = next((place for place, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return lines[:end]


def slides(path: Path, reveal: str = "") -> str:
    """Return the notebook at ``path`` as reveal.js slides: a heading begins a slide, text goes into the notes.

    A slide shows its heading, the first paragraph, and code with its stored output below it; everything else that the
    notebook says is in the speaker's notes (press S). Nothing is run.

    Args:
        path: an executed notebook.
        reveal: address or folder of reveal.js; where none is given the page loads it from the net when it is opened.
    """
    from nbconvert import SlidesExporter
    from traitlets.config import Config

    options = {"SlidesExporter": {"reveal_scroll": True, "reveal_theme": "simple"}}
    if reveal:
        options["SlidesExporter"]["reveal_url_prefix"] = reveal
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [part for cell in notebook.cells for part in _parts(cell)]
    page, _ = SlidesExporter(config=Config(options)).from_notebook_node(notebook, {"metadata": {"name": path.stem}})
    return page


def _parts(cell: NotebookNode) -> list[NotebookNode]:
    """One cell as what is shown and what is said."""
    if cell.cell_type == "raw":
        return []
    if cell.cell_type == "code":
        return [_placed(cell, "fragment" if cell.outputs else "-")]
    shown, said = _split(cell.source)
    parts = [_placed(new_markdown_cell(text, id=f"{cell.id}-{i}"), place) for i, (text, place) in enumerate(shown)]
    return parts + ([_placed(new_markdown_cell(said, id=f"{cell.id}-notes"), "notes")] if said else [])


def _split(source: str) -> tuple[list[tuple[str, str]], str]:
    """Headings with their first paragraph and where they begin, and the rest of the text."""
    shown, said = [], []
    for piece in re.split(r"(?m)^(?=#{1,6} )", source):
        heading, _, body = piece.partition("\n")
        if not heading.startswith("#"):
            said.append(piece)
            continue
        first, _, rest = body.strip().partition("\n\n")
        shown.append((f"{heading}\n\n{first}", "subslide" if heading.startswith("###") else "slide"))
        said.append(rest)
    return shown, "\n\n".join(text.strip() for text in said if text.strip())


def _placed(cell: NotebookNode, place: str) -> NotebookNode:
    cell.metadata["slideshow"] = {"slide_type": place}
    return cell
