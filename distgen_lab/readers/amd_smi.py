"""Read what ``amd-smi topology`` prints as a Machine (:mod:`distgen_lab.readers.machine`).

The tool prints one table below the other, of access, weight, hops, link type and more, between GPUs that it names by
their PCIe address. The table of link types is needed; hops tell whether a pair over PCIe shares a socket, weights
whether an xGMI pair is joined directly, access whether it may use the way at all.

Source: ROCm/amdsmi, amdsmi_cli and docs/how-to/amdsmi-cli-tool.md (hops: 1 xGMI, 2 PCIe in one NUMA node, 3 across).
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from distgen_lab.hardware import LINKS
from distgen_lab.readers.machine import Bundle, Device, Machine, build
from distgen_lab.readers.source import Text, unquoted
from distgen_lab.units import GB

__all__ = ["XGMI_RATE", "direct_pairs", "looks_like", "read_amd_smi", "xgmi_notes"]

XGMI_RATE = 48 * GB
"""Bytes/s that RCCL counts on for one xGMI link of MI300 (ROCm/rccl, src/graph/topo.h)."""

_TITLE = re.compile(r"([A-Z][A-Z -]*[A-Z]) TABLE:$")
_BDF = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$")
_LEAD = re.compile(r"^[\s>#|]+")
_ALLOWED = {  # title: the diagonal, what else a cell may hold, the same in words
    "LINK TYPE": ("SELF", r"XGMI|PCIE", "XGMI or PCIE"),
    "HOPS": ("0", r"\d{1,4}", "a number"),
    "WEIGHT": ("0", r"\d{1,6}|N/A", "a number"),
    "ACCESS": ("ENABLED", r"ENABLED|DISABLED|N/A", "ENABLED or DISABLED"),
}
_MOST_GPUS = 1024


@dataclass
class _Table:
    """Cells by row and column; ``lines`` are those of the rows, ``line`` that of the title."""

    title: str
    line: int
    names: list[str] = field(default_factory=list)
    rows: dict[str, list[str]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    def pairs(self) -> Iterator[tuple[str, str, str, str]]:
        """(row, column, cell, the cell on the other side of the diagonal) with the row before the column."""
        for i, one in enumerate(self.names):
            for j, other in enumerate(self.names[i + 1 :], i + 1):
                yield one, other, self.rows[one][j], self.rows[other][i]


def looks_like(text: Text) -> bool:
    """Whether the text holds a table of amd-smi topology."""
    return any((found := _TITLE.match(_strip(line))) and found[1] in _ALLOWED for line in text.lines)


def read_amd_smi(text: Text) -> Machine:
    """Return the machine that the output of ``amd-smi topology`` shows; its GPUs are named by their PCIe address.

    Raises:
        ReadError: if the table of link types is missing, or a table is given twice, cut or contradicts itself.
    """
    tables = _tables(text)
    if "LINK TYPE" not in tables:
        raise text.fail('no "LINK TYPE TABLE:" here; run `amd-smi topology`', 1)
    types = tables["LINK TYPE"]
    for table in tables.values():
        _check(text, table, types.names)
    kinds = {(one, other): cell for one, other, cell, _ in types.pairs()}
    weights = {(one, other): cell for one, other, cell, _ in tables["WEIGHT"].pairs()} if "WEIGHT" in tables else {}
    direct = direct_pairs({pair: weights.get(pair, "0") for pair, kind in kinds.items() if kind == "XGMI"})
    places = {name: place for place, name in enumerate(types.names)}
    bundles = [Bundle(places[one], places[other], 1) for one, other in direct]
    codes = {pair: kind if kind == "XGMI" else _pcie_code(pair, tables) for pair, kind in kinds.items()}
    devices = [Device(name, "gpu") for name in types.names]
    name = f"{len(devices)} GPUs of {os.path.basename(text.path)}"
    notes = [*text.notes, *_notes(kinds, direct, tables)]
    link = LINKS["xGMI, one link"].bandwidth
    return build(name, "amd-smi", text.path, devices, codes, bundles, link, XGMI_RATE, notes)


def direct_pairs(weights: dict[tuple[str, str], str]) -> list[tuple[str, str]]:
    """Return the pairs of the smallest weight: the driver gives 15 to a direct xGMI link and more to longer ways.

    Weights that are not known, or 0 as some versions print everywhere, leave all pairs direct.
    """
    known = {pair: int(weight) for pair, weight in weights.items() if weight.isdigit() and int(weight)}
    if len(known) < len(weights):
        return list(weights)
    return [pair for pair, weight in known.items() if weight == min(known.values())]


def xgmi_notes(pairs: int, direct: int) -> Iterator[str]:
    """Yield what is assumed where so many pairs say xGMI, of which so many are direct."""
    if pairs:
        yield "each xGMI pair taken as one link of MI300 (64 GB/s per direction)"
    if direct < pairs:
        yield f"{pairs - direct} xGMI pairs weigh more than the others: taken as joined through other GPUs only"


def _notes(
    kinds: dict[tuple[str, str], str], direct: list[tuple[str, str]], tables: dict[str, _Table]
) -> Iterator[str]:
    """What was assumed, and what looks odd."""
    xgmi = sum(kind == "XGMI" for kind in kinds.values())
    yield from xgmi_notes(xgmi, len(direct))
    if xgmi < len(kinds):
        if "HOPS" not in tables:
            yield "without the table of hops each PCIe pair is taken as across sockets"
        yield "PCIe taken as 4.0 x16: its speed does not stand in the file"
    access = tables["ACCESS"].pairs() if "ACCESS" in tables else ()
    denied = [f"{one} and {other}" for one, other, cell, _ in access if cell == "DISABLED"]
    if denied:
        yield f"no direct access between {denied[0]}" + f", nor in {len(denied) - 1} more pairs" * (len(denied) > 1)


def _pcie_code(pair: tuple[str, str], tables: dict[str, _Table]) -> str:
    """2 hops are PCIe within a NUMA node, more are across."""
    if "HOPS" not in tables:
        return "SYS"
    hops = tables["HOPS"]
    return "NODE" if hops.rows[pair[0]][hops.names.index(pair[1])] == "2" else "SYS"


def _strip(line: str) -> str:
    """Without what quoting puts before a line."""
    return _LEAD.sub("", unquoted(line)).strip()


def _tables(text: Text) -> dict[str, _Table]:
    """The tables that are read, by title."""
    tables: dict[str, _Table] = {}
    table = None
    for number, raw in enumerate(text.lines, 1):
        line = _strip(raw)
        cells = line.split()
        if found := _TITLE.match(line):
            table = _Table(found[1], number) if found[1] in _ALLOWED else None
            if table is not None:
                if table.title in tables:
                    problem = f'"{line}" begins a second time (first at line {tables[table.title].line})'
                    raise text.fail(f"{problem}; one file holds one machine", number, table.title)
                tables[table.title] = table
        elif table is not None and cells and _BDF.match(cells[0]):
            _add(text, table, number, cells)
        elif cells and line.lower().startswith("legend"):
            table = None
    return tables


def _add(text: Text, table: _Table, number: int, cells: list[str]) -> None:
    """A header of addresses, or a row that begins with one."""
    if not table.names:
        if not all(_BDF.match(cell) for cell in cells) or len(set(cells)) < len(cells) or len(cells) > _MOST_GPUS:
            raise text.fail(f"the header of {table.title} is no list of different PCIe addresses", number, table.title)
        table.names = cells
        return
    name, cells = cells[0], cells[1:]
    if name in table.rows:
        raise text.fail(f"row {name} is given twice (first at line {table.lines[name]})", number, name)
    if name not in table.names:
        raise text.fail(f"row {name} is not in the header of {table.title}", number, name)
    if len(cells) != len(table.names):
        raise text.fail(f"row {name} has {len(cells)} cells, the header {len(table.names)} GPUs", number, name)
    table.rows[name], table.lines[name] = cells, number


def _check(text: Text, table: _Table, names: list[str]) -> None:
    """Rows that are missing, cells that mean nothing, and pairs whose two cells differ."""
    if table.names != names:
        raise text.fail(f"the tables {table.title} and LINK TYPE name different GPUs", table.line, table.title)
    missing = next((name for name in names if name not in table.rows), None)
    if missing:
        raise text.fail(f'row {missing} is missing in "{table.title} TABLE:"', table.line, missing)
    own, allowed, words = _ALLOWED[table.title]
    for name in names:
        for column, cell in zip(names, table.rows[name], strict=True):
            if not (cell == own if name == column else re.fullmatch(allowed, cell)):
                wanted = f"{own} on the diagonal" if name == column else words
                problem = f'"{cell[:40]}" in "{table.title} TABLE:"; {wanted} is needed'
                raise text.fail(problem, table.lines[name], f"{name}-{column}")
    for one, other, here, there in table.pairs():
        if here != there:
            problem = f"{one}-{other} is {here} but {other}-{one} is {there} (line {table.lines[other]})"
            raise text.fail(problem, table.lines[one], f"{one}/{other}")
