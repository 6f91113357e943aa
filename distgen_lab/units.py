"""SI base units as plain floats, and the one way the course prints a quantity.

Every quantity in the library is a float in base units: bytes, seconds, FLOP, FLOP/s, bytes/s per direction.
Multiply by a constant of this module to enter a number (``80 * GB``), divide to read one (``t / US``).
"""

import math
from collections.abc import Sequence

__all__ = [
    "DAY", "GB", "GIB", "HOUR", "KB", "KIB", "MB", "MIB", "MS", "PFLOP", "TB", "TFLOP", "US", "YEAR",
    "count", "duration", "quantity",
]  # fmt: skip

KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
KIB, MIB, GIB = 2.0**10, 2.0**20, 2.0**30
TFLOP, PFLOP = 1e12, 1e15
US, MS = 1e-6, 1e-3
HOUR, DAY = 3600.0, 86400.0
YEAR = 365.25 * DAY

_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_COUNTS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_DURATIONS = (
    *((YEAR, "years"), (DAY, "days"), (HOUR, "h"), (60.0, "min"), (1.0, "s"), (MS, "ms"), (US, "us"), (1e-9, "ns")),
)


def quantity(value: float, unit: str, digits: int = 3) -> str:
    """Return ``value`` with an SI prefix (powers of 1000), e.g. ``quantity(84e9, "B") == "84 GB"``.

    Above 1e21 the number is printed in scientific notation without a prefix.

    >>> quantity(335.5e9, "B", 4), quantity(3.15e23, "FLOP"), quantity(0, "B")
    ('335.5 GB', '3.15e+23 FLOP', '0 B')
    """
    if not math.isfinite(value) or abs(value) >= 1e21:
        return f"{value:.{digits}g} {unit}"
    scale, prefix = _best(value, _PREFIXES, digits)
    return f"{_plain(value / scale, digits)} {prefix}{unit}"


def count(value: float, digits: int = 3) -> str:
    """Return a number of things as people say it: thousand (k), million (M), billion (B), trillion (T).

    >>> count(175e9), count(1.8e12), count(8), count(2048)
    ('175 B', '1.8 T', '8', '2.05 k')
    """
    scale, suffix = _best(value, _COUNTS, digits)
    return f"{_plain(value / scale, digits)} {suffix}".rstrip()


def duration(seconds: float, digits: int = 3) -> str:
    """Return seconds in the largest unit that keeps the number at 1 or more.

    >>> duration(1.006e9), duration(14.0), duration(3e-6)
    ('31.9 years', '14 s', '3 us')
    """
    if not math.isfinite(seconds) or seconds == 0:
        return f"{seconds:g} s"
    scale, name = _best(seconds, _DURATIONS, digits)
    text = _plain(seconds / scale, digits)
    return f"{text} {name.removesuffix('s') if text == '1' and len(name) > 3 else name}"


def _best(value: float, units: Sequence[tuple[float, str]], digits: int) -> tuple[float, str]:
    """The largest unit in which the value, rounded to ``digits``, is at least 1; the smallest if there is none."""
    rounded = abs(float(f"{value:.{digits}g}"))
    nearly = 1 - 0.5 * 10**-digits  # 0.9996 s is 1 s in three digits
    return next((unit for unit in units if rounded >= unit[0] * nearly), units[-1])


def _plain(value: float, digits: int) -> str:
    """Format to ``digits`` significant digits; large numbers with separators instead of an exponent."""
    text = f"{value:.{digits}g}"
    return f"{float(text):,.0f}" if "e" in text and 1 <= abs(value) < 1e6 else text
