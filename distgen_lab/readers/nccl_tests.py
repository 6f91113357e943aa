"""Read logs of nccl-tests and rccl-tests: tables of every version, their JSON reports, and RCCL's JSON records.

Rows are found by their own form, not by their place, so that launch prefixes, NCCL INFO lines and notes may stand
between them. What the file does not say is worked out and said in ``op_from`` and ``ranks_from``: the columns
(reduction, root), size over count and busbw over algbw leave few operations and numbers of ranks. What contradicts
itself is refused: a row that is there twice, a size that is not count x type, a negative rate, an average that is not
that of the rows although none is missing.

Sources: NVIDIA/nccl-tests, src/common.cu, src/util.cu and doc/PERFORMANCE.md; ROCm/rccl-tests.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from distgen_lab.readers.benchmark import BUS_FACTORS, BenchmarkLog, Measured, Run, ranks_of_factor
from distgen_lab.readers.source import Text, load, looks_json, unquoted
from distgen_lab.units import GB, MS, US

__all__ = ["is_header", "looks_like", "read_log"]

_TYPES = {
    "int8": 1, "uint8": 1, "char": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "f8e4m3": 1, "f8e5m2": 1, "float8_e4m3": 1,
    "float8_e5m2": 1, "fp8e4m3": 1, "fp8e5m2": 1, "half": 2, "bfloat16": 2, "bf16": 2, "float16": 2, "int32": 4,
    "uint32": 4, "int": 4, "uint": 4, "float": 4, "float32": 4, "int64": 8, "uint64": 8, "double": 8, "float64": 8,
}  # fmt: skip
_OPS = {
    "all_reduce": "all_reduce", "allreduce": "all_reduce", "all_gather": "all_gather", "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter", "reducescatter": "reduce_scatter", "alltoall": "all_to_all",
    "all_to_all": "all_to_all", "broadcast": "broadcast", "reduce": "reduce", "sendrecv": "sendrecv",
    "sendreceive": "sendrecv", "gather": "gather", "scatter": "scatter", "hypercube": "hypercube",
}  # fmt: skip
_LARGEST = 2**60
_SLOWEST = 1e6  # seconds
_PERF = re.compile(r"\b([a-z]+(?:_[a-z]+)*)_perf\b")
_RANK = re.compile(r"^#?\s*Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?(?:Pid\s+\d+\s+)?(?:on|uses)\s+(\S+)\s*(.*)$")
_NRANKS = re.compile(r"\bnranks\s+(\d+)\b")
_PARAMETERS = re.compile(r"\bn?Threads?:?\s+\d+\s+nGpus:?\s+\d+")
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(\S+)")
_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d+)")
_VERSION = re.compile(r"\b(?:NCCL|RCCL) version\s*:?\s*(\S+)|nccl-tests version (\S+)|rc+l-tests: Version (\S+)")
_ELISION = re.compile(r"^\s*#?\s*(?:\.{3,}|…|\[\.\.\.\]|<snip>)\s*$")
_HEADER = re.compile(r"^#?\s*(?:size|bytes)\s+(?:count|N)\s+type\b")
_SIDE = ("time", "cputime")
_INTEGER = re.compile(r"\d+$")


def is_header(line: str) -> bool:
    """Whether a line names the columns of such a table."""
    return _HEADER.match(unquoted(line).strip()) is not None


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
        return _read_json(text)
    return _read_table(text)


# ------------------------------------------------------------------------------------------------ the table


@dataclass
class _Table:
    """One table while it is read."""

    header: list[str] | None = None
    milliseconds: bool = False
    rows: list["_Line"] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    op: str = ""
    op_from: str = ""
    devices: list[tuple[int, str, str]] = field(default_factory=list)
    nranks: int | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    average: tuple[str, int] | None = None
    out_of_bounds: int | None = None
    elided: int | None = None
    version: str = ""
    rccl: bool = False
    notes: list[str] = field(default_factory=list)
    next_op: tuple[str, str] | None = None

    def heir(self, *kept: str) -> "_Table":
        """A new table that keeps what was said before, as far as it still holds; all of it if nothing is named."""
        kept = kept or (
            "devices",
            "nranks",
            "parameters",
            "version",
            "rccl",
            *(() if self.next_op else ("op", "op_from")),
        )
        fresh = _Table(**{name: getattr(self, name) for name in kept})
        if self.next_op:
            fresh.op, fresh.op_from = self.next_op
        return fresh


@dataclass
class _Line:
    """One complete row: what stands before the two sides, and the sides."""

    line: int
    raw: tuple[str, ...]
    nbytes: int
    count: int
    dtype: str
    redop: str | None
    root: int | None
    sides: list[tuple[str, float, float, float, str]]  # place, time, algbw, busbw, wrong


def _read_table(text: Text) -> BenchmarkLog:
    tables = [table for table in _tables(text) if table.rows or table.broken]
    if not tables:
        _refuse_empty(text)
    runs = [_run(text, table) for table in tables]
    return BenchmarkLog(text.path, tuple(runs), text.notes)


def _refuse_empty(text: Text) -> None:
    header = next((n for n, line in enumerate(text.lines, 1) if _HEADER.match(unquoted(line).strip())), None)
    if header:
        raise text.fail("the header has no rows below it: the run was cut off or failed", header)
    first = next(line.strip() for line in text.lines if line.strip())
    raise text.fail(f"no rows and no header of nccl-tests here; the file begins with {first[:60]!r}", 1)


def _tables(text: Text) -> list[_Table]:
    """The tables of a text; a header begins a new one, and so do sizes that begin again."""
    tables = [_Table()]
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


def _again(table: _Table) -> _Table:
    """A further cycle below the same header; the average of the file is over all of them."""
    fresh = table.heir()
    fresh.header, fresh.milliseconds = table.header, table.milliseconds
    fresh.notes.append("another cycle below the same header")
    return fresh


def _remark(text: Text, number: int, line: str, table: _Table, tables: list[_Table]) -> _Table:
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


def _names(number: int, line: str, table: _Table) -> None:
    """Operation, version and number of ranks where a line tells them."""
    if (found := _PERF.search(line)) and found[1] in _OPS:
        said = _OPS[found[1]], f"{found[1]}_perf at line {number}"
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


def _row(text: Text, number: int, line: str, table: _Table) -> _Line | None:
    """A complete row, or None; a row that is cut is noted in the table."""
    cells = line.split()
    if len(cells) < 3 or not _INTEGER.match(cells[0]) or not _INTEGER.match(cells[1]) or line.startswith("#"):
        if len(cells) > 6 and re.match(r"-\d+$", cells[0]) and cells[2].lower() in _TYPES:
            raise text.fail(f"size {cells[0]} is below zero", number, "size")
        return None
    if cells[2].lower() not in _TYPES:
        if len(cells) >= 8 and re.match(r"[A-Za-z_]\w*$", cells[2]) and _number(cells[-3]) is not None:
            raise text.fail(f"type {cells[2][:30]!r} is unknown; float, half, bfloat16, ... are known", number, "type")
        return None
    names = _columns(table, cells)
    if names is None or len(cells) < len(names):
        table.broken.append(number)
        return None
    return _parsed(text, number, cells, names, table)


def _columns(table: _Table, cells: list[str]) -> list[str] | None:
    """The names of a row's columns: the header's, or for a file without one those that its number of cells leaves."""
    if table.header is not None:
        return [_plain(name) for name in table.header if _plain(name) != "timestamp"]
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


def _plain(name: str) -> str:
    name = name.lower().lstrip("#")
    return {"bytes": "size", "n": "count", "op": "redop", "error": "error", "res": "error", "cputime": "time"}.get(
        name, name
    )


def _parsed(text: Text, number: int, cells: list[str], names: list[str], table: _Table) -> _Line | None:
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
    return _Line(number, tuple(cells), nbytes, _whole(text, number, "count", count), lead["type"].lower(),
                 lead.get("redop"), int(root) if root is not None else None, sides)  # fmt: skip


def _whole(text: Text, number: int, name: str, cell: str) -> int:
    value = int(cell) if len(cell) < 60 else _LARGEST + 1
    if value > _LARGEST:
        raise text.fail(f"{name} {cell[:40]} is no size of a buffer", number, name)
    return value


def _number(cell: str) -> float | None:
    """A plain number as these tests print it."""
    return float(cell) if re.fullmatch(r"-?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?", cell) else None


def _side(text: Text, number: int, cells: list[str], place: str, table: _Table) -> tuple | None:
    """(place, time, algbw, busbw, wrong) of one side; time None where all is N/A; None where the row is cut."""
    if all(cell.upper() == "N/A" for cell in cells):
        return place, None, None, None, "N/A"
    values = []
    for name, cell in zip(("time", "algbw", "busbw"), cells, strict=False):
        value = _number(cell)
        if value is None:
            if re.fullmatch(r"[+-]?(?:nan|inf(?:inity)?)|X[X.]*|[?*-]+", cell, re.IGNORECASE):
                raise text.fail(f'{name} is "{cell}", a number is needed', number, f"{name} ({place} of place)")
            return None
        if value < 0:
            raise text.fail(f"{name} below zero: {cell}", number, f"{name} ({place} of place)")
        values.append(value)
    wrong = cells[3].rstrip("*")
    if wrong.upper() != "N/A" and _number(wrong) is None:
        return None
    if wrong.startswith("-"):
        raise text.fail(f"{cells[3]} wrong elements; a number below zero", number, f"#wrong ({place} of place)")
    return place, *values, wrong.upper()


def _add(text: Text, table: _Table, row: _Line) -> None:
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


# ---- what the rows say together


def _run(text: Text, table: _Table) -> Run:
    """One table as a run, after checking it."""
    if not table.rows:
        line = table.broken[0]
        raise text.fail("no complete row: every row is cut by other output", line, "row")
    notes: list[str] = []
    if table.broken:
        notes.append(f"{len(table.broken)} rows are cut (line {', '.join(map(str, table.broken[:5]))}) and left out")
    parts = _parts(text, table)
    unit = _unit(text, table)
    notes += table.notes
    low, high = _factors(text, table, unit)
    op, op_from, candidates = _operation(table, parts, low, high, notes)
    ranks, ranks_from = _ranks(table, parts, op, low, high, notes)
    _check_factor(text, table, op, ranks, (low, high), unit, notes)
    rows = tuple(_measured(row, side, op, ranks, table, unit) for row in table.rows for side in row.sides)
    average = _average(text, table, rows, notes)
    first = table.rows[0]
    if candidates > 1:
        notes.append(f"operation inferred: {op_from}")
    backend = "rccl" if table.rccl else "nccl"
    return Run(op, op_from, ranks, ranks_from, backend, rows, len(table.rows), len(table.broken), first.dtype,
               first.redop, first.root, average, table.out_of_bounds, tuple(table.devices), table.parameters,
               table.version, tuple(dict.fromkeys(notes)))  # fmt: skip


def _parts(text: Text, table: _Table) -> int | None:
    """Size over bytes of count: 1, or the number of ranks where count is of one rank; the same in every row."""
    found: dict[int, int] = {}
    for row in table.rows:
        nbytes = row.count * _TYPES[row.dtype]
        if not row.count and not row.nbytes:
            continue
        if not nbytes or row.nbytes % nbytes or not row.nbytes:
            problem = f"size {row.nbytes} does not agree with count {row.count} x {_TYPES[row.dtype]} bytes"
            raise text.fail(problem, row.line, "size")
        found.setdefault(row.nbytes // nbytes, row.line)
    if len(found) > 1:
        usual = max(
            found, key=lambda ratio: sum(row.nbytes == ratio * row.count * _TYPES[row.dtype] for row in table.rows)
        )
        ratio = next(ratio for ratio in found if ratio != usual)
        row = next(row for row in table.rows if row.line == found[ratio])
        wanted = f"count {row.count} x {_TYPES[row.dtype]} bytes" + (f" x {usual}" if usual > 1 else "")
        raise text.fail(f"size {row.nbytes} does not agree with {wanted}", row.line, "size")
    return next(iter(found), None)


def _unit(text: Text, table: _Table) -> float:
    """Seconds of the unit of time: us, or ms of the tests of NCCL 1; size over time must be the printed algbw."""
    unit = MS if table.milliseconds else US
    bad = [row for row in table.rows if not _agrees(row, unit)]
    if bad and not any(not _agrees(row, MS) for row in table.rows) and any(row.sides[0][2] > 1 for row in table.rows):
        table.notes.append("times are in milliseconds (tests of NCCL 1): size over time tells")
        return MS
    if bad and len(bad) * 5 > len(table.rows) + 4 and len(bad) > 1:
        row = bad[0]
        raise text.fail("size over time is not algbw, in most rows: is the unit of time another?", row.line, "time")
    for row in bad[:1]:
        raise text.fail("size over time is not the printed algbw", row.line, "algbw")
    return unit


def _agrees(row: _Line, unit: float) -> bool:
    """Whether algbw is size over time, within what rounding does to both."""
    return all(_near(algbw, _rates(row, time, unit)) for _, time, algbw, _, _ in row.sides if time and row.nbytes)


def _rates(row: _Line, time: float, unit: float) -> tuple[float, float]:
    """The least and the most GB/s that size over the rounded time may be."""
    seconds, slack = time * unit, _half_digit(time) * unit
    return row.nbytes / (seconds + slack) / GB, row.nbytes / max(seconds - slack, seconds * 0.01) / GB


def _near(printed: float, rates: tuple[float, float], factor: float = 1.0) -> bool:
    """Whether a rate printed with two decimals (large ones with fewer) lies in a range."""
    half = 0.0051 if printed < 1e4 else 0.51
    return rates[0] * factor * (1 - 5e-4) - half <= printed <= rates[1] * factor * (1 + 5e-4) + half


def _half_digit(time: float) -> float:
    """Half of the last digit a time is printed with (seven places)."""
    return 0.005 if time < 1e2 else 0.05 if time < 1e4 else 0.5 if time < 1e7 else time * 0.05


def _factors(text: Text, table: _Table, unit: float) -> tuple[float, float]:
    """Between which numbers busbw over algbw lies in every row; low above high if rows contradict each other."""
    spans = [(0.0, math.inf, table.rows[0])]
    for row in table.rows:
        for _, time, algbw, busbw, _ in row.sides:
            if algbw >= 0.1 and time:
                least, most = _rates(row, time, unit)
                half = 0.0051 if busbw < 1e4 else 0.51
                spans.append(((busbw - half) / most * (1 - 1e-5), (busbw + half) / least * (1 + 1e-5), row))
    low, high = max(span[0] for span in spans), min(span[1] for span in spans)
    if low > high and len(spans) < 1000:
        _refuse_outlier(text, spans[1:])
    return low, high


def _refuse_outlier(text: Text, spans: list[tuple[float, float, _Line]]) -> None:
    """Name the row whose busbw is not that of the others, if the others agree."""
    fitting = {(low + high) / 2: sum(a <= (low + high) / 2 <= b for a, b, _ in spans) for low, high, _ in spans}
    usual = max(fitting, key=fitting.__getitem__)
    odd = [span for span in spans if not span[0] <= usual <= span[1]]
    if fitting[usual] >= 3 and len(odd) * 3 <= len(spans):
        low, high, row = odd[0]
        problem = f"busbw over algbw is {(low + high) / 2:.3f} here and {usual:.3f} in the other rows"
        raise text.fail(problem, row.line, "busbw")


def _shape_of(table: _Table, parts: int | None) -> list[str]:
    """Operations whose columns and count look like these."""
    row = table.rows[0]
    summed = row.redop is not None and row.redop.lower() != "none"
    rooted = any(row.root not in (None, -1) for row in table.rows)
    if parts is None or parts == 1:
        if summed:
            return ["reduce"] if rooted else ["all_reduce", "reduce_scatter"] if parts is None else ["all_reduce"]
        return ["broadcast"] if rooted else ["sendrecv"]
    if summed:
        return ["reduce_scatter"]
    if rooted:
        return ["gather", "scatter"]
    places = {
        place: {side[4] for row in table.rows for side in row.sides if side[0] == place} for place in ("out", "in")
    }
    if places["in"] == {"N/A"} and "N/A" not in places["out"] and places["out"]:
        return ["all_to_all"]  # it is not checked in place
    return ["all_gather"] if places["in"] - {"N/A"} else ["all_gather", "all_to_all"]


def _operation(table: _Table, parts: int | None, low: float, high: float, notes: list[str]) -> tuple[str, str, int]:
    """The operation, how it is known, and how many it may be."""
    fitting = _shape_of(table, parts)
    if table.op:
        alike = {"all_gather", "all_to_all", "gather", "scatter", "hypercube", "reduce_scatter"}
        one = {"all_reduce", "broadcast", "reduce", "sendrecv", "hypercube"}
        if table.op in (alike if parts and parts > 1 else one | alike if parts is None or _two(low, high) else one):
            return table.op, table.op_from, 1
        notes.append(
            f"the file names {table.op} ({table.op_from}), but its columns and counts are those of {fitting[0]}"
        )
    said = " or ".join(fitting)
    why = f"not in the file; columns and size over count fit {said}"
    return fitting[0], why, 1 + len(fitting)


def _two(low: float, high: float) -> bool:
    return low <= 1 <= high


def _ranks(
    table: _Table, parts: int | None, op: str, low: float, high: float, notes: list[str]
) -> tuple[int | None, str]:
    """The number of ranks and how it is known."""
    listed = 1 + max((rank for rank, _, _ in table.devices), default=-1)
    if parts is not None and parts > 1:
        if listed > parts:
            notes.append(f"rank lines go up to {listed - 1}, but size over count is {parts}")
        return parts, f"size over count is {parts}" + (
            f", and rank lines go up to {listed - 1}" if listed == parts else ""
        )
    least, most = ranks_of_factor(op, low, high)
    known = listed or table.nranks or 0
    source = f"rank lines go up to {listed - 1}" if listed else f"nranks {known} in NCCL's own lines"
    if known and known >= 1 and (least - 0.5 <= known <= most + 0.5 or not high < math.inf):
        return known, source
    first = max(2, math.ceil(min(least, 10**6) - 1e-9))
    whole = list(range(first, min(first + 3, math.floor(min(most, 10**6) + 1e-9) + 1)))
    if low <= high and len(whole) == 1 and op not in ("broadcast", "reduce", "sendrecv"):
        if known:
            notes.append(f"{source}, but busbw over algbw is that of {whole[0]} ranks")
        middle = (max(low, 0) + high) / 2
        return whole[0], f"busbw over algbw is {middle:.4f}, that of {op} on {whole[0]} ranks"
    if known and low <= high and whole and known > max(whole):
        return known, source
    if known and not (low <= high):
        return known, source
    if low > high:
        why = "rows contradict each other"
    elif not math.isfinite(high):
        why = "the rates are too small to tell"
    else:
        why = f"busbw over algbw, {low:.4f} to {high:.4f}, fits {'several numbers' if whole else 'no ' + op}"
        if not whole:
            notes.append(f"the numbers contradict each other: {why}")
    return None, f"cannot be known: no rank lines, and {why}"


def _check_factor(
    text: Text, table: _Table, op: str, ranks: int | None, span: tuple[float, float], unit: float, notes: list[str]
) -> None:
    """Refuse a row whose busbw is not what the operation gives; say it where that is so in all of them."""
    low, high = span
    if low > high:
        notes.append("busbw over algbw differs between the rows: the numbers contradict each other")
        return
    if not ranks:
        return
    wanted = BUS_FACTORS[op](ranks)
    if not low - 1e-3 <= wanted <= high + 1e-3:
        notes.append(f"busbw over algbw lies between {low:.4f} and {high:.4f}; {op} on {ranks} ranks has {wanted:.4f}")
        return
    for row in table.rows:
        for place, time, _, busbw, _ in row.sides:
            rates = _rates(row, time, unit) if time and row.nbytes else (0.0, 0.0)
            if not _near(busbw, rates, wanted):
                problem = f"busbw {busbw} is not size over time x {wanted:.4f}, that of {op} on {ranks} ranks"
                raise text.fail(problem, row.line, f"busbw ({place} of place)")


def _measured(row: _Line, side: tuple, op: str, ranks: int | None, table: _Table, unit: float) -> Measured:
    place, time, algbw, busbw, wrong = side
    names = [_plain(name) for name in table.header or ()]
    deviation = float(wrong) if wrong != "N/A" and ("error" in names or float(wrong) % 1) else None
    checked = wrong != "N/A" and deviation is None
    count = int(float(wrong)) if checked else 0
    backend = "rccl" if table.rccl else "nccl"
    return Measured(op, ranks or 0, backend, row.nbytes, row.count, time * unit, count, place,
                    algbw * GB, busbw * GB, row.line, checked, deviation)  # fmt: skip


def _average(text: Text, table: _Table, rows: tuple[Measured, ...], notes: list[str]) -> float | None:
    """The printed average in bytes/s; one that is not that of the rows is refused if no row can be missing."""
    if table.average is None:
        if why := _missing(table, rows):
            notes.append(f"rows may be missing: {why}")
        return None
    cell, line = table.average
    printed = _number(cell)
    if printed is None:
        raise text.fail(f'the average is "{cell[:40]}", a number is needed', line, "Avg bus bandwidth")
    mean = sum(row.busbw for row in rows) / len(rows) / GB
    if abs(printed - mean) <= 0.0052 + 1e-5 * mean:
        return printed * GB
    why = _missing(table, rows)
    if not why:
        problem = f"the printed average {cell} does not fit the rows, whose mean is {mean:.3f}"
        raise text.fail(problem, line, "Avg bus bandwidth")
    notes.append(f"the printed average {cell} GB/s is not the mean of the rows here, {mean:.3f}: {why}")
    return printed * GB


def _missing(table: _Table, rows: tuple[Measured, ...]) -> str:
    """Why rows of the run are not in the file; "" if all seem to be there."""
    if table.elided:
        return f"rows are left out at line {table.elided}"
    if table.broken:
        return f"{len(table.broken)} rows are cut"
    if any("cycle" in note for note in table.notes):
        return "it is over several cycles"
    sizes = sorted({row.nbytes for row in rows if row.nbytes})
    asked = [table.parameters.get(name, "") for name in ("minbytes", "maxbytes")]
    if sizes and all(re.fullmatch(r"\d+", value) for value in asked):
        low, high = map(int, asked)
        if low > 0 and (sizes[0] >= 2 * low * 16 or 2 * sizes[-1] <= high):
            return f"the run asked for {low} to {high} bytes"
    return ""


# ------------------------------------------------------------------------------------------------ JSON


def _read_json(text: Text) -> BenchmarkLog:
    """The report of nccl-tests (one object with results) or the records of rccl-tests (a list, or one a line)."""
    records = _json_values(text)
    if len(records) == 1 and isinstance(records[0][1], dict) and "results" in records[0][1]:
        return BenchmarkLog(text.path, (_report(text, records[0][1]),), text.notes)
    flat = [(line, record) for line, value in records for record in (value if isinstance(value, list) else [value])]
    return BenchmarkLog(text.path, tuple(_records(text, flat)), text.notes)


def _json_values(text: Text) -> list[tuple[int, Any]]:
    """(line, value): the whole file as one value, else one a line."""

    def refuse(word: str) -> float:
        raise ValueError(f"{word} is no number")

    decode: Callable = lambda body: json.loads(body, parse_constant=refuse)  # noqa: E731
    try:
        return [(1, decode("\n".join(text.lines)))]
    except RecursionError:
        raise text.fail("is nested too deeply", 1) from None
    except ValueError as error:
        first = error
    values = []
    for number, line in enumerate(text.lines, 1):
        line = unquoted(line).strip().rstrip(",")
        if not line or line in "[]":
            continue
        try:
            values.append((number, decode(line)))
        except (ValueError, RecursionError):
            line_of = getattr(first, "lineno", number) if not values else number
            raise text.fail(f"not valid JSON, neither as a whole nor line by line ({first})", line_of) from None
    return values


def _field(text: Text, record: dict, line: int, where: str, *names: str) -> Any:
    """The value of the first of the names that is there."""
    for name in names:
        if name in record:
            return record[name]
    raise text.fail(f"{where} has no {names[0]}", line, names[0])


def _real(text: Text, value: Any, line: int, where: str, name: str, most: float = 1e15) -> float:
    """A number that is not negative, or the error."""
    if isinstance(value, str) and _number(value.strip()) is not None:
        value = _number(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise text.fail(f"{where}: {name} is {str(value)[:40]!r}, a number of at least 0 is needed", line, name)
    return float(value)


def _report(text: Text, data: dict) -> Run:
    """One report of nccl-tests -J."""
    results = data["results"]
    if not isinstance(results, list) or not results:
        raise text.fail("results is no list with rows", 1, "results")
    table = _Table(header=["size", "count", "type", "redop", "root", "time"])
    config = data.get("config") if isinstance(data.get("config"), dict) else {}
    devices = config.get("devices") if isinstance(config.get("devices"), list) else []
    for device in devices:
        if isinstance(device, dict) and isinstance(device.get("rank"), int) and device["rank"] >= 0:
            table.devices.append((device["rank"], str(device.get("hostname", "")), str(device.get("device_info", ""))))
    for word in data.get("args", []) if isinstance(data.get("args"), list) else []:
        if (found := _PERF.search(str(word))) and found[1] in _OPS:
            table.op, table.op_from = _OPS[found[1]], f"args: {found[0]}"
    table.version = str(data.get("nccl_version", ""))
    places = [number for number, line in enumerate(text.lines, 1) for _ in re.findall(r'"size"\s*:', line)]
    for place, row in enumerate(results):
        line = places[place] if len(places) == len(results) else 1
        table.rows.append(_json_row(text, row, place, line))
    average = data.get("average_bus_bandwidth")
    run = _run(text, table)
    if isinstance(average, dict) and "bandwidth" in average:
        printed = _real(text, average["bandwidth"], 1, "average_bus_bandwidth", "bandwidth")
        if abs(printed - run.average / GB) > 1e-3 + 1e-3 * printed:
            problem = f"the average {printed} does not fit the results, whose mean is {run.average / GB:.3f}"
            raise text.fail(problem, 1, "average_bus_bandwidth")
        run = Run(**{**run.__dict__, "printed_average": printed * GB})
    bounds = data.get("out_of_bounds")
    if isinstance(bounds, dict) and isinstance(bounds.get("count"), int):
        run = Run(**{**run.__dict__, "out_of_bounds": bounds["count"]})
    return run


def _json_row(text: Text, row: Any, place: int, line: int) -> _Line:
    where = f"results[{place}]"
    if not isinstance(row, dict):
        raise text.fail(f"{where} is no object", line, where)
    size, count = (
        _real(text, _field(text, row, line, where, name), line, where, name, _LARGEST) for name in ("size", "count")
    )
    dtype = str(_field(text, row, line, where, "type")).lower()
    if dtype not in _TYPES:
        raise text.fail(f"{where}: type {dtype[:30]!r} is unknown", line, "type")
    sides = []
    for name, short in (("out_of_place", "out"), ("in_place", "in")):
        side = row.get(name)
        if side is None:
            continue
        if not isinstance(side, dict):
            raise text.fail(f"{where}: {name} is no object", line, name)
        keys = (("time", "cpu_time"), ("alg_bw",), ("bus_bw",))
        values = [
            _real(text, _field(text, side, line, f"{where}.{name}", *key), line, f"{where}.{name}", key[0])
            for key in keys
        ]
        wrong = side.get("nwrong")
        shown = "N/A" if wrong is None else str(int(_real(text, wrong, line, f"{where}.{name}", "nwrong")))
        sides.append((short, *values, shown))
    if not sides:
        raise text.fail(f"{where} has neither out_of_place nor in_place", line, where)
    root = str(row.get("root", "-1")).strip()
    if not re.fullmatch(r"-?\d{1,9}", root):
        raise text.fail(f"{where}: root is {root[:30]!r}", line, "root")
    return _Line(line, (str(place),), int(size), int(count), dtype, str(row.get("redop", "none")), int(root), sides)


def _records(text: Text, flat: Iterable[tuple[int, Any]]) -> Iterator[Run]:
    """Records of rccl-tests: a run for each operation, type, reduction and number of ranks, in order."""
    groups: dict[tuple, list[Measured]] = {}
    seen: dict[tuple, int] = {}
    for place, (line, record) in enumerate(flat):
        where = f"record {place}"
        if not isinstance(record, dict) or not {"busBw", "size"} <= record.keys():
            raise text.fail(f"{where} is no record of rccl-tests (no busBw)", line, where)
        measured, key = _record(text, record, line, where)
        mark = (*key, record.get("numCycle", 0), measured.nbytes, measured.place)
        if mark in seen:
            raise text.fail(f"{where} repeats record {seen[mark]}: size {measured.nbytes} again", line, "size")
        seen[mark] = place
        groups.setdefault(key, []).append(measured)
    if not groups:
        raise text.fail("no records", 1)
    for (op, ranks, dtype, redop), rows in groups.items():
        lines = len({(row.nbytes, row.line) for row in rows if row.place == "out"}) or len(rows)
        yield Run(op, "name in the record", ranks, "ranks in the record", "rccl", tuple(rows), lines, 0, dtype, redop,
                  None, None, None, (), {}, "", ())  # fmt: skip


def _record(text: Text, record: dict, line: int, where: str) -> tuple[Measured, tuple]:
    name = str(_field(text, record, line, where, "name"))
    op = _OPS.get(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()) or _OPS.get(name.lower())
    if op is None:
        raise text.fail(f"{where}: name {name[:30]!r} is no known operation", line, "name")
    ranks, size = (
        _real(text, _field(text, record, line, where, key), line, where, key, _LARGEST) for key in ("ranks", "size")
    )
    dtype = str(record.get("type", "float")).lower()
    if ranks % 1 or size % 1 or ranks < 1 or dtype not in _TYPES:
        raise text.fail(
            f"{where}: ranks {ranks:g}, size {size:g}, type {dtype[:20]!r}: whole numbers, a known type", line, where
        )
    time, alg, bus = (
        _real(text, _field(text, record, line, where, *key), line, where, key[0])
        for key in (("time", "timeUsec"), ("algBw",), ("busBw",))
    )
    if (
        time
        and size
        and not 0.97 - 0.01 * 1e3 / max(size / time, 1e-9) <= alg / (size / (time * US) / GB) <= 1.03 + 1e-2
    ):
        raise text.fail(f"{where}: size over time is not algBw", line, "algBw")
    if alg > 0.1 and not math.isclose(bus / alg, BUS_FACTORS[op](int(ranks)), rel_tol=0.05):
        raise text.fail(
            f"{where}: busBw over algBw is {bus / alg:.3f}, not that of {op} on {ranks:g} ranks", line, "busBw"
        )
    wrong = str(record.get("wrong", "N/A")).strip()
    checked = wrong.upper() != "N/A"
    count = int(_real(text, wrong, line, where, "wrong")) if checked else 0
    place = "in" if record.get("inPlace") else "out"
    measured = Measured(op, int(ranks), "rccl", int(size), int(size) // _TYPES[dtype], time * US, count, place,
                        alg * GB, bus * GB, line, checked)  # fmt: skip
    return measured, (op, int(ranks), dtype, str(record.get("redop", "none")))
