"""Read a large JSON trace event by event, in bounded memory: the standard library's decoder on a moving window.

The file is one object with a list ``traceEvents`` (Kineto) or that list alone (Chrome). Events are decoded one at a
time with :meth:`json.JSONDecoder.raw_decode`; everything else of the object is decoded whole and kept.
"""

import codecs
import gzip
import json
import os
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from distgen_lab.readers.source import ReadError, open_bytes, read_some
from distgen_lab.units import GIB, MIB, quantity

__all__ = ["EventStream"]

_CHUNK = int(2 * MIB)
_LARGEST_VALUE = int(32 * MIB)  # characters of one event or one value beside the events
_MOST = int(8 * GIB)  # bytes after unpacking
_RATIO, _RATIO_FROM = 100, int(64 * MIB)  # a real trace unpacks to some 20 to 30 times its size
_BLANK = re.compile(r"[ \t\r\n]*")
_COMMA = re.compile(r"[ \t\r\n]*,[ \t\r\n]*")
_TAIL = 24  # characters a literal, number or escape may need more of


class EventStream:
    """The events of a trace, once through.

    Attributes:
        header: what stands beside the events in the object, complete when the events are used up.
        index: place of the event last yielded, from 0.
        line: its line, from 1.
        form: "object" or "array".
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path, self.header, self.index, self.form = str(path), {}, -1, "object"
        self._text, self._at, self._line, self._read, self._end = "", 0, 1, 0, False
        self._decoder = json.JSONDecoder(parse_constant=self._constant, strict=False)
        self._file: BinaryIO | None = None

    @property
    def line(self) -> int:
        """Line of the place reached."""
        return self._line + self._text.count("\n", 0, self._at)

    def fail(self, problem: str, field: str = "") -> ReadError:
        """Make an error at the place reached."""
        return ReadError(self.path, problem, self.line, field)

    def __iter__(self) -> Iterator[Any]:
        """Yield the events.

        Raises:
            ReadError: for what is no JSON, is cut, holds no ``traceEvents``, or unpacks to far more than a trace.
        """
        with open_bytes(self.path) as self._file:
            self._text_of = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
            first = self._next_char()
            if first == "":
                packed = " after unpacking" * isinstance(self._file, gzip.GzipFile)
                raise ReadError(self.path, f"is empty{packed}: a trace is needed")
            if first == "[":
                self.form = "array"
                yield from self._events()
            elif first == "{":
                yield from self._object()
            else:
                raise self.fail(f"is not JSON: it begins with {self._text[self._at : self._at + 40]!r}")
            if self._next_char():
                raise self.fail(f"more text follows the end of the trace: {self._text[self._at : self._at + 40]!r}")

    # ---- the grammar

    def _object(self) -> Iterator[Any]:
        self._at += 1
        found = False
        if self._next_char() == "}":
            raise self.fail("is an empty object; traceEvents is needed", "traceEvents")
        while True:
            key = self._value("a key")
            if not isinstance(key, str) or self._next_char() != ":":
                raise self._broken("a key and a colon")
            self._at += 1
            if key == "traceEvents":
                if found:
                    raise self.fail("traceEvents stands there twice", key)
                found = True
                if self._next_char() != "[":
                    raise self._broken("a list under traceEvents")
                yield from self._events()
            else:
                self.header[key] = self._value(key)
            mark = self._next_char()
            self._at += 1
            if mark == "}":
                break
            if mark != ",":
                self._at -= 1
                raise self._broken("a comma or the end of the object")
        if not found:
            keys = ", ".join(list(self.header)[:4])
            raise ReadError(self.path, f"wrong kind: no traceEvents (it has {keys}, ...)", self.line, "traceEvents")

    def _events(self) -> Iterator[Any]:
        self._at += 1
        if self._next_char() == "]":
            self._at += 1
            return
        while True:
            event = self._value()
            self.index += 1
            yield event
            between = _COMMA.match(self._text, self._at)
            if between is not None and between.end() < len(self._text) and self._text[between.end()] != "]":
                self._at = between.end()  # the usual case, at once
                continue
            mark = self._next_char()
            self._at += 1
            if mark == "]":
                return
            if mark != ",":
                self._at -= 1
                raise self._broken(f"a comma after event {self.index}")
            if self._next_char() == "]":
                raise self.fail("a comma stands before the end of the list", f"event {self.index}")

    def _broken(self, wanted: str) -> ReadError:
        """The error where something else stands, or nothing any more."""
        if self._end and self._at >= len(self._text):
            return self._cut()
        return self.fail(f"{self._text[self._at : self._at + 30]!r} stands where {wanted} is needed")

    def _cut(self) -> ReadError:
        self._at = len(self._text)
        body = self._text[: self._at]
        line = self._line + body.count("\n") - body.endswith("\n")
        problem = f"the JSON ends early, the file is cut off after event {self.index}; nothing is counted"
        return ReadError(self.path, problem, line, f"event {self.index + 1}")

    # ---- the window

    def _next_char(self) -> str:
        """The next character that is no blank; "" at the end."""
        skipped = 0
        while True:
            start = self._at
            self._at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]
            skipped += self._at - start
            if self._at < len(self._text):
                return self._text[self._at]
            if skipped > _LARGEST_VALUE:
                raise self.fail(f"more than {_LARGEST_VALUE} blanks in a row; that is no trace")
            if not self._more():
                return ""

    def _value(self, name: str = "") -> Any:
        """Decode the next value (an event if it has no name), reading on while it is incomplete."""
        if self._at >= len(self._text) or self._text[self._at] in " \t\r\n":
            self._next_char()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                unfinished = error.msg.startswith("Unterminated string") or error.pos >= len(self._text) - _TAIL
                if not unfinished:
                    self._at = error.pos
                    near = self._text[error.pos : error.pos + 30].split("\n")[0]
                    raise self.fail(f"not valid JSON at {near!r} ({error.msg})", self._called(name)) from None
                if not self._more():
                    raise self._ended(error, name) from None
            except RecursionError:
                raise self.fail("is nested too deeply", self._called(name)) from None
            except ReadError:
                raise
            except ValueError as error:  # a number of thousands of digits
                raise self.fail(f"a number that cannot be read ({error})", self._called(name)) from None
            else:
                whole = end < len(self._text) and self._text[end] not in ".eE"  # "12" may go on in the next chunk
                if whole or not self._more():
                    self._at = end
                    return value
            if len(self._text) - self._at > _LARGEST_VALUE:
                raise self.fail(f"is longer than {_LARGEST_VALUE} characters", self._called(name))

    def _ended(self, error: json.JSONDecodeError, name: str) -> ReadError:
        """The error at the end of the file: is something missing, or wrong?"""
        rest = error.doc[error.pos :].strip()
        begun = any(word.startswith(rest) for word in ("true", "false", "null"))
        missing = begun or re.fullmatch(r"[.eE+-]{0,2}\d*", rest) or "escape" in error.msg
        if missing or error.msg.startswith("Unterminated string"):
            return self._cut()
        return self.fail(f"not valid JSON at {rest[:30]!r} ({error.msg})", self._called(name))

    def _called(self, name: str) -> str:
        return name or f"event {self.index + 1}"

    def _more(self) -> bool:
        """Move the window on; whether there was more."""
        if self._end:
            return False
        assert self._file is not None
        self._line += self._text.count("\n", 0, self._at)
        self._text, self._at = self._text[self._at :], 0
        size = max(_CHUNK, len(self._text))  # doubling keeps the work on one long value linear
        data = read_some(self._file, size, self.path)
        self._read += len(data)
        self._check_size()
        self._end = not data
        self._text += self._text_of.decode(data, final=self._end)
        return not self._end

    def _check_size(self) -> None:
        if self._read > _MOST:
            raise self.fail(f"holds more than {quantity(_MOST, 'B')}; record fewer steps")
        if isinstance(self._file, gzip.GzipFile) and self._read > _RATIO_FROM:
            packed = os.path.getsize(self.path)
            if self._read > _RATIO * packed:
                raise self.fail(f"unpacks to more than {_RATIO} times its {quantity(packed, 'B')}; that is no trace")

    @staticmethod
    def _constant(word: str) -> float:
        raise ValueError(f"{word} is no JSON number")
