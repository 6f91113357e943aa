"""Read the CSV that rccl-tests writes with ``-Z csv -x FILE``: one record a line below a header.

Source: ROCm/rccl-tests, pull request 93 and Reporter::writeFile in src/common.cu. A version with MPI names nodes,
ranks, ranksPerNode and gpusPerRank, one without names gpus.
"""

import csv
from typing import Any

from distgen_lab.readers.benchmark import BenchmarkLog
from distgen_lab.readers.nccl_json import runs_of_records
from distgen_lab.readers.source import Text, unquoted

__all__ = ["is_header", "read_csv"]

_NAMES = {  # column in lower case: the name that the same figure has in the JSON of the tool
    "numcycle": "numCycle", "collective": "name", "nodes": "nodes", "ranks": "ranks", "rankspernode": "ranksPerNode",
    "gpusperrank": "gpusPerRank", "gpus": "gpus", "size": "size", "type": "type", "redop": "redop",
    "inplace": "inPlace", "time": "time", "algbw": "algBw", "busbw": "busBw", "#wrong": "wrong", "wrong": "wrong",
}  # fmt: skip
_NEEDED = ("collective", "size", "type", "inplace", "time", "algbw", "busbw")


def is_header(line: str) -> bool:
    """Whether a line names the columns of such a file."""
    columns = _columns(line)
    return len(columns) >= 8 and {"collective", "busbw"} <= set(columns)


def read_csv(text: Text) -> BenchmarkLog:
    """Return the runs of such a file: one for each operation, type, reduction and number of ranks.

    Raises:
        ReadError: for a header without a column that is needed, a line with too few or too many fields (the last one of
            a file may be cut: it is left out and noted), or records that contradict themselves.
    """
    columns: list[str] = []
    records: list[tuple[int, dict[str, Any]]] = []
    notes = list(text.notes)
    last = max(number for number, line in enumerate(text.lines, 1) if line.strip())
    for number, raw in enumerate(text.lines, 1):
        line = unquoted(raw).strip()
        if is_header(line):
            columns = _checked_columns(text, number, line)
        elif line and columns:
            fields = next(csv.reader([line], skipinitialspace=True))
            if len(fields) < len(columns) and number == last and records:
                notes.append(f"line {number} is cut: it is left out")
                continue
            records.append((number, _record(text, number, columns, fields)))
    if not records:
        raise text.fail("the header has no rows below it: the run was cut off or failed", last)
    return BenchmarkLog(text.path, tuple(runs_of_records(text, records)), tuple(notes))


def _columns(line: str) -> list[str]:
    return [name.strip().strip('"').lower() for name in line.split(",")]


def _checked_columns(text: Text, number: int, line: str) -> list[str]:
    columns = _columns(line)
    missing = [name for name in _NEEDED if name not in columns]
    if not {"ranks", "gpus"} & set(columns):
        missing.append("ranks or gpus")
    if missing:
        raise text.fail(f"the header has no column {missing[0]}", number, missing[0])
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise text.fail(f"the header names {twice} twice", number, twice)
    return columns


def _record(text: Text, number: int, columns: list[str], fields: list[str]) -> dict[str, Any]:
    """One line as the record that the JSON of the tool would hold."""
    if len(fields) != len(columns):
        raise text.fail(f"{len(fields)} fields, the header names {len(columns)} columns", number, "fields")
    cells = {column: cell.strip() for column, cell in zip(columns, fields, strict=True)}
    if cells["inplace"] not in ("0", "1"):
        raise text.fail(f'inplace is "{cells["inplace"][:20]}"; 0 or 1 is needed', number, "inplace")
    record: dict[str, Any] = {_NAMES[column]: cell for column, cell in cells.items() if column in _NAMES}
    return record | {"inPlace": int(cells["inplace"])}
