"""Say how far a batch is and how long it will take, without filling the terminal."""

import re
import sys
import time
from typing import TextIO

__all__ = ["Progress"]

_COUNT = re.compile(r"(\d+) of (\d+) runs$")


class Progress:
    """Prints sentences as they come; one such as ``01: 3 of 40 runs`` gets the time left in its section.

    On a terminal a count replaces the one before; elsewhere one is printed every ``every`` seconds.
    """

    def __init__(self, stream: TextIO | None = None, every: float = 5.0) -> None:
        """Print to ``stream``, standard error by default."""
        self.stream = stream or sys.stderr
        self.every = every
        self.start = self.last = time.monotonic()
        self.open = False

    def __call__(self, text: str) -> None:
        """Print the sentence."""
        found = _COUNT.search(text)
        if not found:
            self.start = time.monotonic()
            self._line(text)
            return
        done, total = map(int, found.groups())
        if self.stream.isatty():
            self._count(text + self._left(done, total), done == total)
        elif done == total or time.monotonic() - self.last >= self.every:
            self.last = time.monotonic()
            self._line(text + self._left(done, total))

    def _left(self, done: int, total: int) -> str:
        """The time left, once there is something to go by."""
        seconds = (time.monotonic() - self.start) / done * (total - done)
        if done == total or done < 2:
            return ""
        return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {max(seconds, 1):.0f} s left"

    def _count(self, text: str, last: bool) -> None:
        print(f"\r\033[K{text}", end="\n" if last else "", file=self.stream, flush=True)
        self.open = not last

    def _line(self, text: str) -> None:
        print(("\n" if self.open else "") + text, file=self.stream, flush=True)
        self.open = False
