"""Read logs of nccl-tests and rccl-tests: tables of every version, JSON reports, and RCCL's JSON and CSV records.

Rows are found by their own form, not by their place, so that launch prefixes, NCCL INFO lines and notes may stand
between them. What the file does not say is worked out and said in ``op_from`` and ``ranks_from`` (see
:mod:`distgen_lab.readers.nccl_run`). What contradicts itself is refused: a row that is there twice, a size that is not
count x type, a negative rate, an average that is not that of the rows although none is missing.

Sources: NVIDIA/nccl-tests, src/common.cu, src/util.cu and doc/PERFORMANCE.md; ROCm/rccl-tests.
"""

import os
import re

from distgen_lab.readers import nccl_csv
from distgen_lab.readers.benchmark import BenchmarkLog
from distgen_lab.readers.nccl_json import read_json
from distgen_lab.readers.nccl_run import LARGEST, OPERATIONS, PERF, TYPES, Line, Table, plain_name, plain_number, run_of
from distgen_lab.readers.source import Text, load, looks_json, unquoted

__all__ = ["is_header", "looks_like", "read_log"]

_RANK = re.compile(r"^#?\s*Rank\s+(\d{1,7})\s+(?:Group\s+\d+\s+)?(?:Pid\s+\d+\s+)?(?:on|uses)\s+(\S+)\s*(.*)$")
_NRANKS = re.compile(r"\bnranks\s+(\d{1,7})\b")
_PARAMETERS = re.compile(r"\bn?Threads?:?\s+\d+\s+nGpus:?\s+\d+")
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(\S+)")
_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d{1,15})\b")
_VERSION = re.compile(r"\b(?:NCCL|RCCL) version\s*:?\s*(\S+)|nccl-tests version (\S+)|rc+l-tests: Version (\S+)")
_ELISION = re.compile(r"^\s*#?\s*(?:\.{3,}|…|\[\.\.\.\]|<snip>)\s*$")
_HEADER = re.compile(r"^#?\s*(?:size|bytes)\s+(?:count|N)\s+type\b")
_MOST = 1e12  # microseconds or GB/s
_INTEGER = re.compile(r"\d+$")


def is_header(line: str) -> bool:
    """Whether a line names the columns of such a table."""
    return _HEADER.match(unquoted(line).strip()) is not None or nccl_csv.is_header(line)


def looks_like(text: Text) -> bool:
    """Whether the text holds a table of these tests, or their JSON."""
    found = any(is_header(line) or _AVERAGE.search(line) for line in text.lines)
    whole = "\n".join(text.lines[:400])
    return found or bool(re.search(r'"busBw"|"bus_bw"|\bnThread\s+\d+\s+nGpus\b|_perf\b.*\s-[beg]\s', whole))


def read_log(path: str | os.PathLike) -> BenchmarkLog:
    """Return the runs of a log of nccl-tests or rccl-tests.

    Raises:
        ReadError: for a file without a complete row, or one that contradicts itself; the message names the line.
    """
    text = load(path)
    if looks_json("\n".join(map(unquoted, text.lines[:50]))):
        return read_json(text)
    if any(map(nccl_csv.is_header, text.lines)):
        return nccl_csv.read_csv(text)
    return _read_table(text)


# ------------------------------------------------------------------------------------------------ the table


def _read_table(text: Text) -> BenchmarkLog:
    tables = [table for table in _tables(text) if table.rows or table.broken]
    if not tables:
        _refuse_empty(text)
    runs = [run_of(text, table) for table in tables]
    return BenchmarkLog(text.path, tuple(runs), text.notes)


def _refuse_empty(text: Text) -> None:
    header = next((n for n, line in enumerate(text.lines, 1) if _HEADER.match(unquoted(line).strip())), None)
    if header:
        raise text.fail("the header has no rows below it: the run was cut off or failed", header)
    first = next(line.strip() for line in text.lines if line.strip())
    raise text.fail(f"no rows and no header of nccl-tests here; the file begins with {first[:60]!r}", 1)


def _tables(text: Text) -> list[Table]:
    """The tables of a text; a header begins a new one, and so do sizes that begin again."""
    tables = [Table()]
    for number, raw in enumerate(text.lines, 1):
        line = unquoted(raw).strip().replace("`", "")
        table = tables[-1]
        if _HEADER.match(line):
            if table.rows or table.broken:
                table = table.heir()
                tables.append(table)
            table.header = line.lstrip("#").split()
        elif (row := _row(text, number, line, table)) is not None:
            if table.rows and row.nbytes == table.rows[0].nbytes < table.rows[-1].nbytes:
                table.notes.append("sizes begin again without a new header: read as another cycle")
                tables.append(_again(table))
            _add(text, tables[-1], row)
        else:
            tables[-1] = _remark(text, number, line, table, tables)
    return tables


def _again(table: Table) -> Table:
    """A further cycle below the same header; the average of the file is over all of them."""
    fresh = table.heir()
    fresh.header, fresh.milliseconds = table.header, table.milliseconds
    fresh.notes.append("another cycle below the same header")
    return fresh


def _remark(text: Text, number: int, line: str, table: Table, tables: list[Table]) -> Table:
    """What a line that is no row says about the run; it may begin the next one."""
    begins = _PARAMETERS.search(line) or re.search(r"Collective test starting", line)
    if begins and (table.rows or table.broken):
        table = table.heir("version")
        tables.append(table)
    if found := _RANK.match(line):
        if table.rows:
            table = table.heir("parameters")
            tables.append(table)
        table.devices.append((int(found[1]), found[2], found[3].strip()))
    elif _PARAMETERS.search(line):
        pairs = re.findall(r"(\w+(?: iters)?):?\s+(\d+(?:\(\w+\))?)", line)
        table.parameters = {
            name.lower().replace(" ", "").replace("nthreads", "nthread"): value for name, value in pairs
        }
    elif found := _AVERAGE.search(line):
        table.average = (found[1], number)
    elif found := _BOUNDS.search(line):
        table.out_of_bounds = int(found[1])
    elif _ELISION.match(line):
        table.elided = table.elided or (number if table.rows or table.header else None)
    elif re.search(r"\(ms\)", line) and "B/s" in line:
        table.milliseconds = True
    _names(number, line, table)
    return table


def _names(number: int, line: str, table: Table) -> None:
    """Operation, version and number of ranks where a line tells them."""
    if (found := PERF.search(line)) and found[1] in OPERATIONS:
        said = OPERATIONS[found[1]], f"{found[1]}_perf at line {number}"
        if table.rows and "concluded" not in line:
            table.next_op = said
        else:
            table.op, table.op_from = said
    if found := _VERSION.search(line):
        table.version = next(group for group in found.groups() if group)
    if re.search(r"\brc+l|RCCL", line):
        table.rccl = True
    if found := _NRANKS.search(line):
        table.nranks = max(table.nranks or 0, min(int(found[1]), 10**7))


# ---- one row


def _row(text: Text, number: int, line: str, table: Table) -> Line | None:
    """A complete row, or None; a row that is cut is noted in the table."""
    cells = line.split()
    if len(cells) < 3 or not _INTEGER.match(cells[0]) or not _INTEGER.match(cells[1]) or line.startswith("#"):
        if len(cells) > 6 and re.match(r"-\d+$", cells[0]) and cells[2].lower() in TYPES:
            raise text.fail(f"size {cells[0]} is below zero", number, "size")
        return None
    if cells[2].lower() not in TYPES:
        if len(cells) >= 8 and re.match(r"[A-Za-z_]\w*$", cells[2]) and plain_number(cells[-3]) is not None:
            raise text.fail(f"type {cells[2][:30]!r} is unknown; float, half, bfloat16, ... are known", number, "type")
        return None
    names = _columns(table, cells)
    if names is None or len(cells) < len(names):
        table.broken.append(number)
        return None
    return _parsed(text, number, cells, names, table)


def _columns(table: Table, cells: list[str]) -> list[str] | None:
    """The names of a row's columns: the header's, or for a file without one those that its number of cells leaves."""
    if table.header is not None:
        return [plain_name(name) for name in table.header if plain_name(name) != "timestamp"]
    lead = ["size", "count", "type"]
    rest = cells[3:]
    if rest and not re.match(r"[-\d]", rest[0]):
        lead.append("redop")
        rest = rest[1:]
    side = ["time", "algbw", "busbw", "wrong"]
    if len(rest) in (5, 9) and re.fullmatch(r"-?\d+", rest[0]):
        lead.append("root")
        rest = rest[1:]
    return lead + side * (len(rest) // 4) if len(rest) in (4, 8) else None


def _parsed(text: Text, number: int, cells: list[str], names: list[str], table: Table) -> Line | None:
    """A row by the names of its columns."""
    begins = [place for place, name in enumerate(names) if name == "time"]
    if not begins:
        return None
    lead = dict(zip(names[: begins[0]], cells, strict=False))
    size, count = lead.get("size", ""), lead.get("count", "")
    root = lead.get("root")
    if root is not None and not re.fullmatch(r"-?\d{1,9}", root):
        table.broken.append(number)
        return None
    sides = []
    for place, at in zip(("out", "in"), begins, strict=False):
        side = _side(text, number, cells[at : at + 4], place, table)
        if side is None:
            table.broken.append(number)
            return None
        if side[1] is not None:
            sides.append(side)
    if not sides:
        raise text.fail("no side of the row has numbers", number, "time")
    nbytes = _whole(text, number, "size", size)
    if nbytes and any(not side[1] for side in sides):
        raise text.fail(f"{nbytes} bytes in no time", number, "time")
    return Line(number, tuple(cells), nbytes, _whole(text, number, "count", count), lead["type"].lower(),
                 lead.get("redop"), int(root) if root is not None else None, sides)  # fmt: skip


def _whole(text: Text, number: int, name: str, cell: str) -> int:
    value = int(cell) if len(cell) < 60 else LARGEST + 1
    if value > LARGEST:
        raise text.fail(f"{name} {cell[:40]} is no size of a buffer", number, name)
    return value


def _side(text: Text, number: int, cells: list[str], place: str, table: Table) -> tuple | None:
    """(place, time, algbw, busbw, wrong) of one side; time None where all is N/A; None where the row is cut."""
    if all(cell.upper() == "N/A" for cell in cells):
        return place, None, None, None, "N/A"
    values = []
    for name, cell in zip(("time", "algbw", "busbw"), cells, strict=False):
        value = plain_number(cell)
        if value is None:
            if re.fullmatch(r"[+-]?(?:nan|inf(?:inity)?)|X[X.]*|[?*-]+", cell, re.IGNORECASE):
                raise text.fail(f'{name} is "{cell}", a number is needed', number, f"{name} ({place} of place)")
            return None
        if value < 0 or value > _MOST:
            what = "below zero" if value < 0 else "beyond reason"
            raise text.fail(f"{name} {what}: {cell[:40]}", number, f"{name} ({place} of place)")
        values.append(value)
    wrong = cells[3].rstrip("*")
    if wrong.upper() != "N/A" and plain_number(wrong) is None:
        return None
    if wrong.upper() != "N/A" and not 0 <= float(wrong) <= LARGEST:
        raise text.fail(f"{cells[3][:40]} wrong elements", number, f"#wrong ({place} of place)")
    return place, *values, wrong.upper()


def _add(text: Text, table: Table, row: Line) -> None:
    """Keep a row, unless it stands there already."""
    for old in reversed(table.rows[-64:]):
        if old.raw == row.raw and row.nbytes:
            raise text.fail(
                f"line {row.line} repeats line {old.line}; two processes wrote into one log?", row.line, "row"
            )
        if (
            old.nbytes == row.nbytes
            and row.nbytes
            and (old.dtype, old.redop, old.root) == (row.dtype, row.redop, row.root)
        ):
            problem = f"size {row.nbytes} is there twice with different numbers (first at line {old.line})"
            raise text.fail(problem, row.line, "size")
    if table.rows and row.nbytes < table.rows[-1].nbytes and row.nbytes:
        table.notes.append(f"line {row.line}: the sizes are not in order")
    table.rows.append(row)
