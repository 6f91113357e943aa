"""What the rows of an nccl-tests table say together: unit of time, operation, number of ranks, and whether they agree.

What the file does not say is worked out: the columns (reduction, root), size over count and busbw over algbw leave few
operations and numbers of ranks. What contradicts itself is refused with the line.
"""

import math
import re
from dataclasses import dataclass, field

from distgen_lab.readers.benchmark import BUS_FACTORS, Measured, Run, ranks_of_factor
from distgen_lab.readers.source import Text
from distgen_lab.units import GB, MS, US

__all__ = ["LARGEST", "OPERATIONS", "PERF", "TYPES", "Line", "Table", "plain_name", "plain_number", "run_of"]

TYPES = {
    "int8": 1, "uint8": 1, "char": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "f8e4m3": 1, "f8e5m2": 1, "float8_e4m3": 1,
    "float8_e5m2": 1, "fp8e4m3": 1, "fp8e5m2": 1, "half": 2, "bfloat16": 2, "bf16": 2, "float16": 2, "int32": 4,
    "uint32": 4, "int": 4, "uint": 4, "float": 4, "float32": 4, "int64": 8, "uint64": 8, "double": 8, "float64": 8,
}  # fmt: skip
OPERATIONS = {
    "all_reduce": "all_reduce", "allreduce": "all_reduce", "all_gather": "all_gather", "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter", "reducescatter": "reduce_scatter", "alltoall": "all_to_all",
    "all_to_all": "all_to_all", "broadcast": "broadcast", "reduce": "reduce", "sendrecv": "sendrecv",
    "sendreceive": "sendrecv", "gather": "gather", "scatter": "scatter", "hypercube": "hypercube",
}  # fmt: skip
LARGEST = 2**60
PERF = re.compile(r"\b([a-z]+(?:_[a-z]+)*)_perf(?:_mpi)?\b")


@dataclass
class Table:
    """One table while it is read."""

    header: list[str] | None = None
    milliseconds: bool = False
    rows: list["Line"] = field(default_factory=list)
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

    def heir(self, *kept: str) -> "Table":
        """A new table that keeps what was said before, as far as it still holds; all of it if nothing is named."""
        kept = kept or ("devices", "nranks", "parameters", "version", "rccl", "op", "op_from")
        fresh = Table(**{name: getattr(self, name) for name in kept})
        if self.next_op:
            fresh.op, fresh.op_from = self.next_op
        return fresh


@dataclass
class Line:
    """One complete row: what stands before the two sides, and the sides."""

    line: int
    raw: tuple[str, ...]
    nbytes: int
    count: int
    dtype: str
    redop: str | None
    root: int | None
    sides: list[tuple[str, float, float, float, str]]  # place, time, algbw, busbw, wrong


_OTHER_NAMES = {"bytes": "size", "n": "count", "op": "redop", "res": "error", "cputime": "time"}


def plain_name(name: str) -> str:
    """Return a column's name as today's tests call it: those of NCCL 1 said bytes, N, op and res."""
    name = name.lower().lstrip("#")
    return _OTHER_NAMES.get(name, name)


def plain_number(cell: str) -> float | None:
    """A plain number as these tests print it."""
    return float(cell) if re.fullmatch(r"-?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?", cell) else None


def run_of(text: Text, table: Table) -> Run:
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


def _parts(text: Text, table: Table) -> int | None:
    """Size over bytes of count: 1, or the number of ranks where count is of one rank; the same in every row."""
    found: dict[int, int] = {}
    for row in table.rows:
        nbytes = row.count * TYPES[row.dtype]
        if not row.count and not row.nbytes:
            continue
        if not nbytes or row.nbytes % nbytes or not row.nbytes:
            problem = f"size {row.nbytes} does not agree with count {row.count} x {TYPES[row.dtype]} bytes"
            raise text.fail(problem, row.line, "size")
        found.setdefault(row.nbytes // nbytes, row.line)
    if len(found) > 1:
        usual = max(
            found, key=lambda ratio: sum(row.nbytes == ratio * row.count * TYPES[row.dtype] for row in table.rows)
        )
        ratio = next(ratio for ratio in found if ratio != usual)
        row = next(row for row in table.rows if row.line == found[ratio])
        wanted = f"count {row.count} x {TYPES[row.dtype]} bytes" + (f" x {usual}" if usual > 1 else "")
        raise text.fail(f"size {row.nbytes} does not agree with {wanted}", row.line, "size")
    return next(iter(found), None)


def _unit(text: Text, table: Table) -> float:
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


def _agrees(row: Line, unit: float) -> bool:
    """Whether algbw is size over time, within what rounding does to both."""
    return all(_near(algbw, _rates(row, time, unit)) for _, time, algbw, _, _ in row.sides if time)


def _rates(row: Line, time: float, unit: float) -> tuple[float, float]:
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


def _factors(text: Text, table: Table, unit: float) -> tuple[float, float]:
    """Between which numbers busbw over algbw lies in every row; low above high if rows contradict each other."""
    spans = [(0.0, math.inf, table.rows[0])]
    for row in table.rows:
        for _, time, algbw, busbw, _ in row.sides:
            if algbw >= 0.1 and time and row.nbytes:
                least, most = _rates(row, time, unit)
                half = 0.0051 if busbw < 1e4 else 0.51
                spans.append(((busbw - half) / most * (1 - 1e-5), (busbw + half) / least * (1 + 1e-5), row))
    low, high = max(span[0] for span in spans), min(span[1] for span in spans)
    if low > high and len(spans) < 1000:
        _refuse_outlier(text, spans[1:])
    return low, high


def _refuse_outlier(text: Text, spans: list[tuple[float, float, Line]]) -> None:
    """Name the row whose busbw is not that of the others, if the others agree."""
    fitting = {(low + high) / 2: sum(a <= (low + high) / 2 <= b for a, b, _ in spans) for low, high, _ in spans}
    usual = max(fitting, key=fitting.__getitem__)
    odd = [span for span in spans if not span[0] <= usual <= span[1]]
    if fitting[usual] >= 3 and len(odd) * 3 <= len(spans):
        low, high, row = odd[0]
        problem = f"busbw over algbw is {(low + high) / 2:.3f} here and {usual:.3f} in the other rows"
        raise text.fail(problem, row.line, "busbw")


def _shape_of(table: Table, parts: int | None) -> list[str]:
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


def _operation(table: Table, parts: int | None, low: float, high: float, notes: list[str]) -> tuple[str, str, int]:
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
    table: Table, parts: int | None, op: str, low: float, high: float, notes: list[str]
) -> tuple[int | None, str]:
    """The number of ranks and how it is known."""
    listed = 1 + max((rank for rank, _, _ in table.devices), default=-1)
    if parts is not None and parts > 1:
        if listed > parts:
            notes.append(f"rank lines go up to {listed - 1}, but size over count is {parts}")
        agree = f", and rank lines go up to {listed - 1}" if listed == parts else ""
        return parts, f"size over count is {parts}{agree}"
    known = listed or table.nranks or 0
    source = f"rank lines go up to {listed - 1}" if listed else f"nranks {known} in NCCL's own lines"
    fitting = _ranks_that_fit(op, low, high)
    if known and (low > high or not math.isfinite(high) or not fitting or known in fitting):
        return known, source
    if len(fitting) == 1:
        if known:
            notes.append(f"{source}, but busbw over algbw is that of {fitting[0]} ranks")
        return fitting[0], f"busbw over algbw is {(low + high) / 2:.4f}, that of {op} on {fitting[0]} ranks"
    why = _why_unknown(op, low, high, fitting)
    if not fitting and low <= high:
        notes.append(f"the numbers contradict each other: {why}")
    return None, f"cannot be known: no rank lines, and {why}"


def _ranks_that_fit(op: str, low: float, high: float) -> range:
    """The numbers of ranks whose bus factor lies between two numbers; none where any number has the same."""
    least, most = ranks_of_factor(op, low, high)
    if (not math.isfinite(most) and least <= 1) or low > high:
        return range(0)
    top = 10**6
    return range(max(2, math.ceil(min(least, top) - 1e-9)), math.floor(min(most, top) + 1e-9) + 1)


def _why_unknown(op: str, low: float, high: float, fitting: range) -> str:
    """Why the rates do not tell the number of ranks."""
    if low > high:
        return "rows contradict each other"
    if not math.isfinite(high):
        return "the rates are too small to tell"
    return f"busbw over algbw, {low:.4f} to {high:.4f}, fits {'several numbers' if fitting else 'no ' + op}"


def _check_factor(
    text: Text, table: Table, op: str, ranks: int | None, span: tuple[float, float], unit: float, notes: list[str]
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


def _measured(row: Line, side: tuple, op: str, ranks: int | None, table: Table, unit: float) -> Measured:
    place, time, algbw, busbw, wrong = side
    names = [plain_name(name) for name in table.header or ()]
    deviation = float(wrong) if wrong != "N/A" and ("error" in names or float(wrong) % 1) else None
    checked = wrong != "N/A" and deviation is None
    count = int(float(wrong)) if checked else 0
    backend = "rccl" if table.rccl else "nccl"
    return Measured(op, ranks or 0, backend, row.nbytes, row.count, time * unit, count, place,
                    algbw * GB, busbw * GB, row.line, checked, deviation)  # fmt: skip


def _average(text: Text, table: Table, rows: tuple[Measured, ...], notes: list[str]) -> float | None:
    """The printed average in bytes/s; one that is not that of the rows is refused if no row can be missing."""
    if table.average is None:
        if why := _missing(table, rows):
            notes.append(f"rows may be missing: {why}")
        return None
    cell, line = table.average
    printed = plain_number(cell)
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


def _missing(table: Table, rows: tuple[Measured, ...]) -> str:
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
