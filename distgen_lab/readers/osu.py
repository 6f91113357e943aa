"""Read the output of the OSU micro-benchmarks (and their mpi4py port) as tables of sizes and values.

A table begins with its title ("# OSU MPI Latency Test v5.7.1") and a line that names the columns. The first column is
the message size, but for barriers there is none. Units stand in the names of the columns; where a title says latency
and a column MB/s the file contradicts itself and that is said.

Source: OSU Micro-Benchmarks (Ohio State University), c/util/osu_util*.c.
"""

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from distgen_lab.alphabeta import Fit, fit_where_it_holds
from distgen_lab.readers.source import Text, load, unquoted
from distgen_lab.units import MB, US

__all__ = ["OsuLog", "OsuRow", "OsuTable", "looks_like", "read_osu"]

_TITLE = re.compile(r"^#+\s*(OSU\s.*\S|(?:MPI|OMB-Py)\S*\s.*\b(?:Test|Benchmark)\b.*)$", re.IGNORECASE)
_VERSION = re.compile(r"\b(?:v|[Vv]ersion\s+)(\d+(?:\.\d+)*)")
_COLUMNS = re.compile(r"\b(?:latency|bandwidth|mb/s|messages/s|size|iterations|overall|overlap)\b", re.IGNORECASE)
_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?$")
_UNITS = ((r"latency|\(us\)|\[us\]|time", "us"), (r"mb/s|bandwidth", "MB/s"), (r"messages/s", "Messages/s"))
_NAMES = re.compile(
    r"size(?:\s*\[B\])?"
    r"|(?:avg|min|max|p\d+|median|overall|compute|pure comm\.?|init|post|wait|tail)?\s*"
    r"(?:latency|lat|bandwidth|time)\s*[\(\[][^)\]]*[\)\]]"
    r"|mb/s|messages/s|iterations|validation|overlap\s*[\(\[]%[\)\]]"
    r"|[\w.]+\s*[\(\[](?:us|%|MB/s)[\)\]]",
    re.IGNORECASE,
)
_PAIRS = re.compile(r"\[\s*pairs:\s*(\d{1,9})\s*\]")
_LARGEST = 2**50


@dataclass(frozen=True)
class OsuRow:
    """One row: the message size in bytes (None where there is no such column), its values as printed, its line."""

    nbytes: int | None
    values: tuple[float, ...]
    line: int


@dataclass(frozen=True)
class OsuTable:
    """One table.

    Attributes:
        title, version: as printed; version is None where it is missing.
        columns: names of the columns after the size, as printed.
        units: "us", "MB/s", "Messages/s", "%" or "" for each of them.
        rows: in the file's order.
        pairs: pairs of ranks of a multiple-bandwidth test, None where it is not said.
        notes: what was inferred or does not fit.
    """

    title: str
    version: str | None
    columns: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[OsuRow, ...]
    pairs: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def has_sizes(self) -> bool:
        """Whether the first column is a message size."""
        return self.rows[0].nbytes is not None

    @property
    def unit(self) -> str:
        """Unit of the first value."""
        return self.units[0]

    @property
    def is_bandwidth(self) -> bool:
        """Whether the first value is a rate: more is better."""
        return self.unit == "MB/s"

    @property
    def best(self) -> OsuRow:
        """The row with the lowest latency or the highest bandwidth."""
        key = max if self.is_bandwidth else min
        return key(self.rows, key=lambda row: row.values[0])

    def si(self) -> list[tuple[int | None, float]]:
        """Return (bytes, seconds) or (bytes, bytes/s) of the first value of each row."""
        scale = MB if self.is_bandwidth else US
        return [(row.nbytes, row.values[0] * scale) for row in self.rows]

    def fit(self, tolerance: float = 0.1) -> Fit | None:
        """Return alpha and beta of a latency table over the widest range where a line holds to ``tolerance``.

        The latency of osu_latency is half a round trip: the alpha and beta of one message. None for bandwidths, for
        fewer than three sizes, or where no line holds.
        """
        if self.is_bandwidth or not self.has_sizes or len(self.rows) < 3:
            return None
        pairs = [(nbytes or 0, seconds) for nbytes, seconds in self.si() if seconds > 0]
        if len({nbytes for nbytes, _ in pairs}) < 3:
            return None
        sizes, times = zip(*pairs, strict=True)
        return fit_where_it_holds(sizes, times, tolerance)


@dataclass(frozen=True)
class OsuLog:
    """The tables of one file."""

    source: str
    tables: tuple[OsuTable, ...]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[OsuTable]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def __getitem__(self, place: int) -> OsuTable:
        return self.tables[place]


def looks_like(text: Text) -> bool:
    """Whether the text has the title of such a benchmark, or the columns of one."""
    return any(_TITLE.match(unquoted(line).strip()) for line in text.lines)


def read_osu(path: str | os.PathLike) -> OsuLog:
    """Return the tables of a file.

    Raises:
        ReadError: for a file without a complete table, a size that is there twice, a row with another number of cells
            than the first, or a value that is no number or below zero; the message names the line.
    """
    text = load(path)
    raw = _tables(text)
    if not raw:
        first = next(line.strip() for line in text.lines if line.strip())
        raise text.fail(f"no table of the OSU benchmarks here; the file begins with {first[:60]!r}", 1)
    return OsuLog(text.path, tuple(_finished(text, table) for table in raw), text.notes)


@dataclass
class _Raw:
    """One table while it is read."""

    title: str
    line: int
    header: str = ""
    header_line: int = 0
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    pairs: int | None = None
    notes: list[str] = field(default_factory=list)


def _tables(text: Text) -> list[_Raw]:
    tables: list[_Raw] = []
    for number, raw in enumerate(text.lines, 1):
        line = unquoted(raw).strip()
        if found := _TITLE.match(line):
            tables.append(_Raw(found[1].strip(), number))
        elif not tables or not line:
            continue
        elif (pairs := _PAIRS.search(line)) is not None:
            tables[-1].pairs = int(pairs[1])
        elif line.startswith("#"):
            _comment(number, line, tables)
        elif not tables[-1].header and _names_columns(line):  # a barrier's columns have no '#'
            tables[-1].header, tables[-1].header_line = line, number
        elif tables[-1].header:
            _maybe_row(text, number, line, tables[-1])
    return tables


def _names_columns(line: str) -> bool:
    return bool(_COLUMNS.search(line)) and not re.search(r"\d{3,}|[:=]", line)


def _comment(number: int, line: str, tables: list[_Raw]) -> None:
    body = line.lstrip("# ")
    if not _names_columns(body):
        return
    if tables[-1].rows:  # the same title with new columns
        tables.append(_Raw(tables[-1].title, number))
    tables[-1].header, tables[-1].header_line = body, number


def _maybe_row(text: Text, number: int, line: str, table: _Raw) -> None:
    """Keep a row of numbers; refuse one whose first cell is a size but whose values are none."""
    cells = line.split()
    checked = "validation" in table.header.lower() and cells[-1].lower() in ("pass", "fail")
    if checked and cells.pop().lower() == "fail":
        table.notes.append(f"line {number}: the validation failed")
    if not cells:
        return
    numbers = [bool(_NUMBER.match(cell)) for cell in cells]
    if all(numbers):
        table.rows.append((number, cells))
    elif (
        re.match(r"-?\d+$", cells[0])
        and len(cells) > 1
        and re.match(r"^[+-]?(?:nan|inf|[X?*.-]+)\w*$", cells[1], re.IGNORECASE)
    ):
        raise text.fail(f'the value is "{cells[1][:40]}", a number is needed', number, "value")
    elif numbers[0] and len(cells) > 1 and numbers[1]:
        table.notes.append(f"line {number} begins like a row and was left out: {line[:40]!r}")


def _finished(text: Text, table: _Raw) -> OsuTable:
    """One table, checked."""
    if not table.header:
        raise text.fail(f'no columns are named below "{table.title[:60]}"', table.line)
    names = _names(table.header)
    sized = bool(re.search(r"\bsize\b", table.header, re.IGNORECASE))
    names = [name for name in (names[1:] if sized else names) if name.lower() != "validation"]
    if not table.rows:
        raise text.fail(f'"{table.title[:60]}" has no rows', table.header_line)
    notes = list(table.notes)
    names = _unnamed(names, sized, table, notes)
    width = len(names) + sized
    rows = [_row(text, number, cells, sized, width, names) for number, cells in table.rows]
    _no_size_twice(text, rows)
    _no_cut_value(text, table)
    units = tuple(_unit(name, table.title) for name in names)
    if re.search(r"latency", table.title, re.IGNORECASE) and units[0] == "MB/s":
        notes.append(f"the title says latency, the column {names[0]!r}: a rate is read, as the column says")
    if re.search(r"bandwidth", table.title, re.IGNORECASE) and units[0] == "us":
        notes.append(f"the title says bandwidth, the column {names[0]!r}: a time is read, as the column says")
    version = _VERSION.search(table.title)
    return OsuTable(
        table.title, version[1] if version else None, tuple(names), units, tuple(rows), table.pairs, tuple(notes)
    )


def _unnamed(names: list[str], sized: bool, table: _Raw, notes: list[str]) -> list[str]:
    """Names for values without one: every row has more of them, as where -f prints min, max and iterations too."""
    widths = {len(cells) - sized for _, cells in table.rows}
    more = max(widths) - len(names)
    if len(widths) != 1 or more <= 0 or len(names) != 1 or (len(table.rows) < 2 and sized):
        return names
    values = [[float(cell) for cell in cells[sized:]] for _, cells in table.rows]
    full = more == 3 and all(row[1] <= row[0] <= row[2] for row in values)
    given = ["Min", "Max", "Iterations"] if full else [f"value {place + 2}" for place in range(more)]
    notes.append(f"one name, {names[0]!r}, for {more + 1} values: the others are called {', '.join(given)}")
    return names + given


def _names(header: str) -> list[str]:
    """Column names: two spaces part them; else the known words do."""
    parts = [part for part in re.split(r"\s{2,}|\t+", header.strip()) if part]
    known = [found[0].strip() for found in _NAMES.finditer(header)]
    return known if len(known) > len(parts) else parts


def _row(text: Text, number: int, cells: list[str], sized: bool, width: int, names: list[str]) -> OsuRow:
    if len(cells) != width:
        raise text.fail(f"{len(cells)} cells, the columns are {width}: {', '.join(names)[:80]}", number, "row")
    values = [float(cell) for cell in cells]
    for name, value, cell in zip((["size"] if sized else []) + names, values, cells, strict=True):
        if value < 0 or not math.isfinite(value) or value > 1e15:
            raise text.fail(f"{name} is {cell[:40]}, a number from 0 to 1e15 is needed", number, name)
    if not sized:
        return OsuRow(None, tuple(values), number)
    if not re.fullmatch(r"\d{1,16}", cells[0]) or int(cells[0]) > _LARGEST:
        raise text.fail(f"size {cells[0][:40]} is no number of bytes", number, "size")
    if len(values) < 2:
        raise text.fail("a size without a value", number, "value")
    return OsuRow(int(cells[0]), tuple(values[1:]), number)


def _no_cut_value(text: Text, table: _Raw) -> None:
    """Refuse a last row that the end of the file has cut inside a number: it has other decimals than those above."""
    number, cells = table.rows[-1]
    if number < len(text.lines) or len(table.rows) < 2:
        return
    decimals = [cell.partition(".")[2] for cell in (table.rows[-2][1][-1], cells[-1])]
    if len(decimals[0]) != len(decimals[1]):
        raise text.fail(
            f"the last value, {cells[-1]}, is cut: those above have {len(decimals[0])} decimals", number, "value"
        )


def _no_size_twice(text: Text, rows: list[OsuRow]) -> None:
    seen: dict[int, OsuRow] = {}
    for row in rows:
        if row.nbytes is None:
            continue
        old = seen.setdefault(row.nbytes, row)
        if old is not row:
            how = (
                "the same value"
                if old.values == row.values
                else f"another value ({old.values[0]:g}, {row.values[0]:g})"
            )
            raise text.fail(f"repeats size {row.nbytes} of line {old.line} with {how}", row.line, "size")


def _unit(name: str, title: str) -> str:
    if "%" in name:
        return "%"
    found = next((unit for words, unit in _UNITS if re.search(words, name, re.IGNORECASE)), "")
    return found or (
        "" if re.search(r"iterations", name, re.IGNORECASE) else "us" if "latency" in title.lower() else ""
    )
