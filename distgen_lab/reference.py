"""The API reference, made from the code and the notebooks as they are: what each public name is and who uses it."""

import ast
import importlib
import inspect
import json
import pkgutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any

import distgen_lab
from distgen_lab.claims import MODULES, claims

__all__ = ["Entry", "entries", "modules", "page", "used_names"]

_STYLE = """body {font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em;
color-scheme: light dark} code, pre {font-size: 0.9em} h3 {margin-bottom: 0} .use {opacity: 0.75; font-size: 0.9em}
pre {white-space: pre-wrap; margin: 0.3em 0}"""


@dataclass(frozen=True)
class Entry:
    """One public name: its module, how it is called, what its docstring says, and the files that use it."""

    module: str
    name: str
    signature: str
    words: str
    used: tuple[str, ...] = ()


def modules() -> Iterator[ModuleType]:
    """Yield the library's modules that say what is public (``__all__``), each before its own submodules."""
    for found in pkgutil.walk_packages(distgen_lab.__path__, "distgen_lab."):
        module = importlib.import_module(found.name)
        if hasattr(module, "__all__"):
            yield module


def entries(root: Path) -> list[Entry]:
    """Return every public name where it is defined, with the files below ``root`` that use it.

    Looked at are notebooks, solutions and the library itself (but for the module of the name); tests do not count.
    """
    users = _users(root)
    return [
        Entry(module.__name__, name, _signature(thing), inspect.getdoc(thing) or "", users[_home(module, name)])
        if callable(thing)
        else Entry(module.__name__, name, "", "", users[_home(module, name)])
        for module in modules()
        for name, thing in ((name, getattr(module, name)) for name in module.__all__)
        if _home(module, name) == f"{module.__name__}.{name}"
    ]


def _home(module: ModuleType, name: str) -> str:
    """Where a public name is defined, also if it is seen through another module."""
    thing = getattr(module, name, None)
    owner = getattr(thing, "__module__", None) if inspect.isroutine(thing) or inspect.isclass(thing) else None
    return f"{owner if (owner or '').startswith('distgen_lab') else module.__name__}.{name}"


def _signature(thing: Any) -> str:
    try:
        return str(inspect.signature(thing))
    except (TypeError, ValueError):
        return ""


def _users(root: Path) -> defaultdict[str, tuple[str, ...]]:
    """The files that use each name, by where the name is defined."""
    found: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for path, source in _sources(root):
        for name in sorted(used_names(source)):
            found[name] += (path,)
    return found


def _sources(root: Path) -> Iterator[tuple[str, str]]:
    """The course's Python: name of the file, and its code."""
    for folder in ("notebooks", "solutions"):
        for path in sorted((root / folder).glob("*.ipynb")):
            cells = json.loads(path.read_text("utf-8"))["cells"]
            yield f"{folder}/{path.stem}", "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    package = Path(distgen_lab.__path__[0])
    for path in sorted(package.rglob("*.py")):
        if path.name != "__init__.py":  # hands on what is defined elsewhere
            yield f"distgen_lab/{path.relative_to(package).as_posix()}", path.read_text("utf-8")
    yield "the chapter's claims", "\n".join([f"from distgen_lab import {', '.join(MODULES)}", *_expressions()])


def _expressions() -> Iterator[str]:
    """What is computed for the chapter's claims."""
    return (one.compute for one in claims() if one.compute)


def used_names(source: str) -> set[str]:
    """Return the public names of the library that Python code uses, each as module and name where it is defined.

    Seen are names that are imported and attributes of imported modules; code that does not parse uses nothing.

    >>> sorted(used_names("from distgen_lab import units, sample; units.quantity(1, 'B')"))
    ['distgen_lab.course.sample', 'distgen_lab.units.quantity']
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set()
    known: dict[str, set[str]] = defaultdict(set)  # two functions may import two things under one name
    for name, what in (pair for node in ast.walk(tree) for pair in _imported(node)):
        known[name].add(what)
    chains = {chain for node in ast.walk(tree) for chain in _chains(node, known)}.union(*known.values())
    return {name for chain in chains if (name := _resolved(chain))}


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names an import binds, and what they stand for."""
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "distgen_lab":
        yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
    elif isinstance(node, ast.Import):
        yield from ((alias.asname, alias.name) for alias in node.names if alias.asname and "distgen_lab" in alias.name)


def _chains(node: ast.AST, known: dict[str, set[str]]) -> Iterator[str]:
    """``module.name`` of an attribute of something imported, once for each thing its first name may stand for."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if parts and isinstance(node, ast.Name):
        yield from (".".join([start, *reversed(parts)]) for start in known.get(node.id, ()))


@cache
def _resolved(chain: str) -> str:
    """Where the first name in the chain that is no module is defined; "" if the chain ends at a module."""
    module, *rest = chain.split(".")
    thing = importlib.import_module(module)
    for part in rest:
        following = getattr(thing, part, None) or _submodule(thing.__name__, part)
        if not isinstance(following, ModuleType):
            return _home(thing, part) if following is not None else ""
        thing = following
    return ""


def _submodule(module: str, part: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"{module}.{part}")
    except ModuleNotFoundError:
        return None


def page(root: Path) -> str:
    """Return the reference as one page of HTML that needs no other file.

    Raises:
        FileNotFoundError: if there are no notebooks below ``root`` to be looked at.
    """
    if not any((root / "notebooks").glob("*.ipynb")):
        raise FileNotFoundError(f"{root / 'notebooks'}: no notebooks; the reference says where each name is used")
    by_module: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries(root):
        by_module[entry.module].append(entry)
    links = " · ".join(f'<a href="#{name}">{name.removeprefix("distgen_lab.")}</a>' for name in by_module)
    parts = [_module(name, found) for name, found in by_module.items()]
    head = f'<meta charset="utf-8"><title>DistGen Lab, API reference</title><style>{_STYLE}</style>'
    title = f"<h1>API reference</h1><p>DistGen Lab {distgen_lab.__version__}</p><nav>{links}</nav>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{title}{"".join(parts)}</body></html>\n'


def _module(name: str, found: list[Entry]) -> str:
    words = inspect.getdoc(importlib.import_module(name)) or ""
    return f'<h2 id="{name}">{name}</h2><pre>{escape(words)}</pre>{"".join(map(_entry, found))}'


def _entry(entry: Entry) -> str:
    used = ", ".join(entry.used) or "by itself"
    title = f'<h3 id="{entry.module}.{entry.name}"><code>{escape(entry.name)}</code></h3>'
    called = f"<code>{escape(entry.name + entry.signature)}</code>" if entry.signature else ""
    return f'{title}{called}<pre>{escape(entry.words)}</pre><div class="use">Used: {escape(used)}</div>'
