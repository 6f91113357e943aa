"""Open a foreign file: size limits, gzip, encodings, and errors that name file, line and field.

A text comes back as clean lines with their numbers: byte order mark, carriage returns, ANSI colours and holes of NUL
bytes are taken out and said in ``notes``. What is taken out never stands for a number.
"""

import gzip
import os
import re
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from distgen_lab.units import MIB, quantity

__all__ = ["MOST_TEXT", "ReadError", "Text", "load", "looks_json", "open_bytes", "read_some", "unquoted"]

MOST_TEXT = int(64 * MIB)
"""Bytes, after unpacking, of a file that is read at one go; traces are streamed and have a limit of their own."""

_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_ANSI_LEFT = re.compile(r"\[[0-9]{1,2}(?:;[0-9]{1,3})*m")  # what is left when a tool has eaten the escape byte
_PREFIX = re.compile(
    r"^[ \t]*(?:\[\d+,\d+\](?:<std(?:out|err)>)?:?"  # mpirun --tag-output
    r"|\[\d+\]:?(?=[ \t#])"  # mpiexec -l
    r"|\d{1,6}:(?=[ \t#]|$)"  # srun --label
    r"|[A-Za-z0-9][\w.-]*:(?=[ \t#]))"  # pdsh, clush
)
_QUOTE = re.compile(r"^[ \t]*(?:>[ \t]?)+")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class ReadError(ValueError):
    """A file that cannot be read: one sentence naming file, line, field and what would be right.

    Attributes:
        file: its path as given.
        line: line number from 1, None where there is none (a binary file).
        field: the column, key, row or event in question, "" where it is the whole line.
    """

    def __init__(self, file: str | os.PathLike, problem: str, line: int | None = None, field: str = "") -> None:
        self.file, self.line, self.field = str(file), line, field
        where = [str(file), *([f"line {line}"] if line else []), *([field] if field else [])]
        super().__init__(f"{', '.join(where)}: {problem}")


@dataclass(frozen=True)
class Text:
    """The lines of a text file, without line ends, and what had to be cleaned (``notes``)."""

    path: str
    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def fail(self, problem: str, line: int | None = None, field: str = "") -> ReadError:
        """Make the error; raise it."""
        return ReadError(self.path, problem, line, field)


def looks_json(text: str) -> bool:
    """Whether a text begins like JSON; "[1,0]<stdout>:" and "[0] MPI startup()" do not."""
    return re.match(r'\s*(?:\{\s*["}]|\{\s*$|\[\s*[\[{"]|\[\s*\]?\s*$)', text) is not None


def unquoted(line: str) -> str:
    """Return a line without what Markdown quoting and launchers (mpirun, srun, pdsh) put before it."""
    return _PREFIX.sub("", _QUOTE.sub("", line))


def open_bytes(path: str | os.PathLike) -> BinaryIO:
    """Open a file, unpacking gzip by its first bytes and not by its name.

    Raises:
        ReadError: for a missing file, a folder, or what is no regular file.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise ReadError(path, f"cannot be opened ({getattr(error, 'strerror', None) or error})") from None
    if not stat.S_ISREG(mode):
        raise ReadError(path, "is a folder, a file is needed" if stat.S_ISDIR(mode) else "is not a regular file")
    try:
        with Path(path).open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        return gzip.open(path, "rb") if packed else Path(path).open("rb")  # type: ignore[return-value]
    except OSError as error:
        raise ReadError(path, f"cannot be opened ({error.strerror})") from None


def read_some(file: BinaryIO, count: int, path: str | os.PathLike) -> bytes:
    """Read at most ``count`` bytes; a broken gzip file is a ReadError."""
    try:
        return file.read(count)
    except (EOFError, OSError, zlib.error) as error:
        raise ReadError(path, f"the gzip file is cut or damaged ({error})") from None


def load(path: str | os.PathLike, most: int = MOST_TEXT) -> Text:
    """Return a file as clean text.

    Raises:
        ReadError: if it cannot be opened, unpacks to more than ``most`` bytes, is empty, or is no text.
    """
    with open_bytes(path) as file:
        data = read_some(file, most + 1, path)
        packed = isinstance(file, gzip.GzipFile)
    if len(data) > most:
        raise ReadError(path, f"holds more than {quantity(most, 'B')}{' when unpacked' * packed}; that is no such file")
    if not data.strip():
        raise ReadError(path, f"is empty{' after unpacking' * packed}: no rows, no header")
    return _clean(str(path), *_decode(path, data))


def _decode(path: str | os.PathLike, data: bytes) -> tuple[str, list[str]]:
    """The text, and what was unusual about its encoding."""
    mark = next((mark for mark in _MARKS if data.startswith(mark)), b"")
    wide = _wide(data)
    if mark or wide:
        name = _MARKS[mark] if mark else wide
        try:
            return data[len(mark) :].decode(name), [f"is {name}{' with a byte order mark' if mark else ''}"]
        except UnicodeDecodeError as error:
            raise ReadError(path, f"is not right {name} text at byte {error.start + len(mark)}") from None
    try:
        return data.decode("utf-8"), []
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        if _is_binary(data):
            raise ReadError(path, "is a binary file, text is needed", line) from None
        return data.decode("latin-1"), [f"line {line} is not UTF-8; read as Latin-1"]


def _wide(data: bytes) -> str:
    """UTF-16 without its mark: every other byte of the beginning is NUL."""
    head = data[:200]
    if len(head) >= 8 and not any(head[1::2]) and all(head[::2]):
        return "utf-16-le"
    return "utf-16-be" if len(head) >= 8 and not any(head[::2]) and all(head[1::2]) else ""


def _is_binary(data: bytes) -> bool:
    """More control bytes than a log has, outside holes of NUL bytes."""
    head = data[:65536].replace(b"\0", b"")
    odd = sum(byte < 9 or 13 < byte < 27 or 27 < byte < 32 for byte in head)
    return odd > len(head) // 100


def _clean(path: str, text: str, notes: list[str]) -> Text:
    """Without colours, control characters and carriage returns."""
    lines, holes = [], []
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        if "\0" in line:
            holes.append(number)
        if "\x1b" in line:
            line = _ANSI.sub("", line)
        lines.append(_CONTROL.sub("", _ANSI_LEFT.sub("", line)))
    if holes:
        notes.append(f"line {holes[0]} held NUL bytes (a hole in the file), which were skipped")
    if not any(line.strip() for line in lines):
        raise ReadError(path, "is empty: no rows, no header")
    return Text(path, tuple(lines), tuple(notes))
