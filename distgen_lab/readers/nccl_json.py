"""Read the JSON of nccl-tests (-J: one object with results) and of rccl-tests (records, in a list or one a line)."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from distgen_lab.readers.benchmark import BUS_FACTORS, BenchmarkLog, Measured, Run
from distgen_lab.readers.nccl_run import LARGEST, OPERATIONS, PERF, TYPES, Line, Table, plain_number, run_of
from distgen_lab.readers.source import ReadError, Text, unquoted
from distgen_lab.units import GB, US

__all__ = ["read_json", "runs_of_records"]

_PLACES = (("out_of_place", "out"), ("in_place", "in"))


def read_json(text: Text) -> BenchmarkLog:
    """Return the runs of reports of nccl-tests (objects with results) or of records of rccl-tests.

    Raises:
        ReadError: for what is neither, or contradicts itself; the message names the row or record.
    """
    values = _values(text)
    if values and all(isinstance(value, dict) and "results" in value for _, value in values):
        runs = [_report(text, value) for _, value in values]
    else:
        flat = [(line, one) for line, value in values for one in (value if isinstance(value, list) else [value])]
        runs = runs_of_records(text, flat)
    return BenchmarkLog(text.path, tuple(runs), text.notes)


def _values(text: Text) -> list[tuple[int, Any]]:
    """(line, value): the whole file as one value, else one a line."""
    try:
        return [(1, _decode("\n".join(text.lines)))]
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
            values.append((number, _decode(line)))
        except (ValueError, RecursionError):
            at = number if values else getattr(first, "lineno", number)
            raise text.fail(f"not valid JSON, neither as a whole nor line by line ({first})", at) from None
    return values


def _decode(body: str) -> Any:
    """JSON without NaN, infinities and keys that are given twice."""
    return json.loads(body, parse_constant=_no_constant, object_pairs_hook=_no_key_twice)


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, _ in pairs if [name for name, _ in pairs].count(key) > 1)
        raise ValueError(f"{twice} is given twice in one object")
    return found


class _Object:
    """One JSON object of the file, whose fields are checked as they are read."""

    def __init__(self, text: Text, data: Any, line: int, where: str) -> None:
        self.text, self.line, self.where = text, line, where
        if not isinstance(data, dict):
            raise text.fail(f"{where} is {type(data).__name__}, an object is needed", line, where)
        self.data = data

    def fail(self, problem: str, name: str = "") -> ReadError:
        """Make the error for this object."""
        return self.text.fail(f"{self.where}: {problem}", self.line, name or self.where)

    def get(self, *names: str) -> Any:
        """The value of the first of the names that is there."""
        for name in names:
            if name in self.data:
                return self.data[name]
        raise self.fail(f"has no {names[0]}", names[0])

    def real(self, *names: str, most: float = 1e15) -> float:
        """A number of at least 0; a string that is one, too."""
        value = self.get(*names)
        if isinstance(value, str):
            value = plain_number(value.strip()) if plain_number(value.strip()) is not None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise self.fail(f"{names[0]} is {str(value)[:40]!r}, a number of at least 0 is needed", names[0])
        return float(value)

    def whole(self, *names: str) -> int:
        """A whole number of at least 0."""
        value = self.real(*names, most=LARGEST)
        if value % 1:
            raise self.fail(f"{names[0]} is {value:g}, a whole number is needed", names[0])
        return int(value)

    def dtype(self) -> str:
        """The type of an element."""
        name = str(self.get("type")).lower()
        if name not in TYPES:
            raise self.fail(f"type {name[:30]!r} is unknown", "type")
        return name

    def inner(self, name: str) -> "_Object":
        """A field that is an object."""
        return _Object(self.text, self.get(name), self.line, f"{self.where}.{name}")


# ------------------------------------------------------------------------------------------------ nccl-tests -J


def _report(text: Text, data: dict) -> Run:
    """One report of nccl-tests -J."""
    whole = _Object(text, data, 1, "the report")
    results = data["results"]
    if not isinstance(results, list) or not results:
        raise whole.fail("results is no list with rows", "results")
    table = _said(whole)
    places = [number for number, line in enumerate(text.lines, 1) for _ in re.findall(r'"size"\s*:', line)]
    for place, row in enumerate(results):
        line = places[place] if len(places) == len(results) else 1
        table.rows.append(_row(_Object(text, row, line, f"results[{place}]"), place))
        if table.rows[-1].nbytes and table.rows[-1].nbytes in {row.nbytes for row in table.rows[:-1]}:
            raise text.fail(f"results[{place}] repeats size {table.rows[-1].nbytes}", line, "size")
    run = run_of(text, table)
    if "average_bus_bandwidth" in data:
        run = replace(run, printed_average=_checked_average(whole, run))
    if "out_of_bounds" in data:
        run = replace(run, out_of_bounds=whole.inner("out_of_bounds").whole("count"))
    return run


def _said(whole: _Object) -> Table:
    """What the report says beside its rows: devices, operation, version."""
    table = Table(header=["size", "count", "type", "redop", "root", "time"])
    config = whole.data.get("config")
    devices = config.get("devices") if isinstance(config, dict) else None
    for place, data in enumerate(devices if isinstance(devices, list) else []):
        device = _Object(whole.text, data, 1, f"devices[{place}]")
        names = (str(device.data.get(key, "")) for key in ("hostname", "device_info"))
        table.devices.append((device.whole("rank"), *names))
    args = whole.data.get("args")
    for word in args if isinstance(args, list) else []:
        if (found := PERF.search(str(word))) and found[1] in OPERATIONS:
            table.op, table.op_from = OPERATIONS[found[1]], f"args: {found[0]}"
    table.version = str(whole.data.get("nccl_version", ""))
    return table


def _row(row: _Object, place: int) -> Line:
    """One row of the results."""
    nbytes, count, dtype = row.whole("size"), row.whole("count"), row.dtype()
    sides = [_side(row.inner(name), short) for name, short in _PLACES if row.data.get(name) is not None]
    if not sides:
        raise row.fail("has neither out_of_place nor in_place")
    if nbytes and any(not time for _, time, *_ in sides):
        raise row.fail(f"{nbytes} bytes in no time", "time")
    root = str(row.data.get("root", "-1")).strip()
    if not re.fullmatch(r"-?\d{1,9}", root):
        raise row.fail(f"root is {root[:30]!r}, a rank or -1 is needed", "root")
    return Line(row.line, (str(place),), nbytes, count, dtype, str(row.data.get("redop", "none")), int(root), sides)


def _side(side: _Object, short: str) -> tuple[str, float, float, float, str]:
    wrong = "N/A" if side.data.get("nwrong") is None else str(side.whole("nwrong"))
    return short, side.real("time", "cpu_time"), side.real("alg_bw"), side.real("bus_bw"), wrong


def _checked_average(whole: _Object, run: Run) -> float:
    """The average in bytes/s, which must be that of the results."""
    printed, mean = whole.inner("average_bus_bandwidth").real("bandwidth"), run.average / GB
    if abs(printed - mean) > 1e-3 + 1e-3 * printed:
        problem = f"the average {printed} does not fit the results, whose mean is {mean:.3f}"
        raise whole.fail(problem, "average_bus_bandwidth")
    return printed * GB


# ------------------------------------------------------------------------------------------------ rccl-tests


def runs_of_records(text: Text, flat: Sequence[tuple[int, Any]]) -> list[Run]:
    """Return the runs of records of rccl-tests, each with its line; the names are those of its JSON.

    With several GPUs a process ``ranks`` may count processes or GPUs: the rates tell which.

    Raises:
        ReadError: for a record that contradicts itself or another one, and where the rates do not tell the ranks.
    """
    if not any(
        isinstance(data, dict) and str(data.get("gpusPerRank", 1)).strip() not in ("0", "1") for _, data in flat
    ):
        return list(_records(text, flat, False))
    found, problems = [], []
    for each_gpu in (False, True):
        try:
            found.append(list(_records(text, flat, each_gpu)))
        except ReadError as error:
            problems.append(error)
    if not found:
        raise problems[-1]
    if len(found) > 1:
        raise text.fail("gpusPerRank is above 1, and the rates do not tell whether ranks counts GPUs", 1, "ranks")
    return found[0]


def _records(text: Text, flat: Iterable[tuple[int, Any]], each_gpu: bool) -> Iterator[Run]:
    """Records of rccl-tests: a run for each operation, type, reduction and number of ranks, in order."""
    groups: dict[tuple, list[Measured]] = {}
    seen: dict[tuple, int] = {}
    for place, (line, data) in enumerate(flat):
        record = _Object(text, data, line, f"record {place}")
        if not {"busBw", "size"} <= record.data.keys():
            raise record.fail("is no record of rccl-tests (no busBw)")
        measured, key = _record(record, each_gpu)
        mark = (*key, str(record.data.get("numCycle", 0)), measured.nbytes, measured.place)
        if seen.setdefault(mark, place) != place:
            raise record.fail(f"repeats record {seen[mark]}: size {measured.nbytes} again", "size")
        groups.setdefault(key, []).append(measured)
    if not groups:
        raise text.fail("no records", 1)
    for (op, ranks, dtype, redop), rows in groups.items():
        lines = sum(row.place == "out" for row in rows) or len(rows)
        said = ("name in the record", ranks, "ranks in the record", "rccl", tuple(rows), lines, 0, dtype, redop)
        yield Run(op, *said, None, None, None, (), {}, "", ())


def _record(record: _Object, each_gpu: bool) -> tuple[Measured, tuple]:
    """One record, and what tells the run it belongs to; ``each_gpu`` if ranks counts processes of several GPUs."""
    name = str(record.get("name"))
    op = OPERATIONS.get(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()) or OPERATIONS.get(name.lower())
    if op is None:
        raise record.fail(f"name {name[:30]!r} is no known operation", "name")
    ranks, nbytes, dtype = record.whole("ranks", "gpus"), record.whole("size"), record.dtype()
    if each_gpu and "gpusPerRank" in record.data:
        ranks *= record.whole("gpusPerRank")
    time, alg, bus = record.real("time", "timeUsec") * US, record.real("algBw") * GB, record.real("busBw") * GB
    if not ranks or (nbytes and not time):
        raise record.fail(f"{ranks} ranks move {nbytes} bytes in {time:g} s", "ranks")
    if nbytes and not math.isclose(alg, nbytes / time, rel_tol=0.01, abs_tol=0.011 * GB):
        raise record.fail("size over time is not algBw", "algBw")
    if not math.isclose(bus, alg * BUS_FACTORS[op](ranks), rel_tol=0.01, abs_tol=0.011 * GB):
        raise record.fail(f"busBw over algBw is not that of {op} on {ranks} ranks", "busBw")
    counted = record.data.get("wrong", record.data.get("#wrong", "N/A"))
    checked = str(counted).strip().upper() != "N/A"
    wrong = record.whole("wrong", "#wrong") if checked else 0
    place = "in" if record.data.get("inPlace") else "out"
    row = (op, ranks, "rccl", nbytes, nbytes // TYPES[dtype], time, wrong, place, alg, bus, record.line, checked)
    return Measured(*row), (op, ranks, dtype, str(record.data.get("redop", "none")))
