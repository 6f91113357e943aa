"""Where an MPI library changes its protocol, seen in times over message sizes.

Small messages are sent at once and buffered at the receiver (*eager*); large ones are announced first and sent when
the receiver is ready (*rendezvous*), which costs a round trip more and saves a copy. A sweep of ``osu_latency`` then
follows two lines, one for each protocol, and no single one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from distgen_lab.alphabeta import Fit, fit
from distgen_lab.units import duration, quantity

__all__ = ["Switch", "protocol_switch"]

_EACH = 3  # sizes that a line is fitted to at least
_NO_NEED, _BETTER = 0.02, 0.4  # one line does to that mean error; two must leave at most that share of its squares


@dataclass(frozen=True)
class Switch:
    """A change of protocol between two measured sizes.

    Attributes:
        below, above: bytes of the last message of the old and of the first one of the new protocol.
        eager, rendezvous: the lines through the sizes on either side.
    """

    below: float
    above: float
    eager: Fit
    rendezvous: Fit

    @property
    def extra(self) -> float:
        """Seconds by which the new line begins above the old one."""
        return self.rendezvous.link.time(self.above) - self.eager.link.time(self.above)

    def __str__(self) -> str:
        sizes = f"between {quantity(self.below, 'B')} and {quantity(self.above, 'B')}"
        return f"protocol changes {sizes}: {duration(self.extra)} more than the line below says"


def protocol_switch(sizes: Sequence[float], seconds: Sequence[float]) -> Switch | None:
    """Return the cut after which two lines, one on each side, leave the least squared relative error.

    None where one line does: its mean error is below 2 %, or two leave more than 40 % of its squares, or times
    drop at the cut instead of rising.

    Args:
        sizes: bytes, each once, rising.
        seconds: the time of one message of each size.

    Raises:
        ValueError: for sizes that do not rise, and as :func:`distgen_lab.alphabeta.fit`.

    >>> sizes = [1024, 2048, 4096, 8192, 16384, 32768]
    >>> str(protocol_switch(sizes, [1.1e-6, 1.2e-6, 1.4e-6, 3.8e-6, 4.6e-6, 6.2e-6]))
    'protocol changes between 4.1 kB and 8.19 kB: 2 us more than the line below says'
    """
    if any(one >= two for one, two in pairwise(sizes)):
        raise ValueError("sizes must rise, each standing there once")
    whole = fit(sizes, seconds)
    left, switch = min(_cuts(sizes, seconds), key=lambda pair: pair[0], default=(1.0, None))
    needed = switch is not None and whole.mean_error >= _NO_NEED and switch.extra > 0
    return switch if needed and left <= _BETTER * _squares(whole, sizes, seconds) else None


def _cuts(sizes: Sequence[float], seconds: Sequence[float]) -> Iterator[tuple[float, Switch]]:
    """Every cut that leaves enough sizes on either side, with the squared errors of its two lines."""
    for cut in range(_EACH, len(sizes) - _EACH + 1):
        sides = [(sizes[part], seconds[part]) for part in (slice(cut), slice(cut, None))]
        lines = [fit(*side) for side in sides]
        left = sum(_squares(line, *side) for line, side in zip(lines, sides, strict=True))
        yield left, Switch(sizes[cut - 1], sizes[cut], *lines)


def _squares(line: Fit, sizes: Sequence[float], seconds: Sequence[float]) -> float:
    return sum((line.link.time(n) / t - 1) ** 2 for n, t in zip(sizes, seconds, strict=True))
