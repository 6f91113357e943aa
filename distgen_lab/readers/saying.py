"""What a verdict is: an answer in one sentence, what it rests on, what looks wrong, and the figures as JSON."""

import html
import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

__all__ = ["Finding", "Verdict", "percent"]


@dataclass(frozen=True)
class Finding:
    """One thing that looks wrong or is worth knowing: "problem", "warning" or "note"; the likely cause and a remedy."""

    level: str
    what: str
    cause: str = ""

    def __str__(self) -> str:
        return f"{self.level}: {self.what}" + (f" Likely: {self.cause}" if self.cause else "")


@dataclass(frozen=True, repr=False)
class Verdict:
    """What one file says; a notebook shows it with the file's name in place of its path.

    Attributes:
        kind: "config", "topology", "nccl-xml", "nccl-tests", "osu" or "trace".
        file: where it stands.
        headline: the answer in one sentence.
        healthy: True, False, or None where the file cannot tell.
        lines: what the answer rests on.
        findings: what looks wrong, the worst first.
        facts: the figures in SI base units, by stable names (bytes, seconds, bytes/s).
        notes: what was inferred or left out.
    """

    kind: str
    file: str
    headline: str
    healthy: bool | None
    lines: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self._words(self.file)

    def __repr__(self) -> str:
        return self._words(PurePath(self.file).name)

    def _words(self, file: str) -> str:
        return "\n".join([f"{file} ({self.kind})", self.headline, *(f"  {line}" for line in self._body())])

    def _body(self) -> list[str]:
        return [*self.lines, *map(str, self.findings), *self._inferred()]

    def _inferred(self) -> list[str]:
        return [f"inferred: {note}" for note in self.notes]

    def _repr_html_(self) -> str:
        """What looks wrong stands first here: a page is read from the top, a terminal from the bottom."""
        found = "".join(_item(str(finding), finding.level != "note") for finding in self.findings)
        rest = "".join(map(_item, [*self.lines, *self._inferred()]))
        head = html.escape(f"{PurePath(self.file).name} ({self.kind}): {self.headline}")
        return f"<p><b>{head}</b></p><ul>{found}{rest}</ul>"

    def as_json(self) -> dict[str, Any]:
        """Return it with the keys file, kind, headline, healthy, lines, findings (level, what, cause), facts, notes.

        The facts by kind:
            config: parameters, active_parameters, kv_bytes_per_token, weights_bytes, training_bytes, fewest_devices.
            topology, nccl-xml: gpus, nics, links_per_gpu, pair_counts, rings, busbw, nearest_nics.
            nccl-tests: op, ranks, rows, peak_busbw, peak_bytes, average_busbw, wrong, expected_busbw, ratio, alpha,
            beta_busbw, fit_smallest, fit_largest.
            osu: title, unit, rows, best, best_bytes, alpha, bandwidth.
            trace: ranks_here, world_size, window, compute, communication, exposed, copies, idle, overlap (lists, one
            value a rank), straggler, waiting, buckets, bucket_bytes, hidden.
        """
        findings = [{"level": f.level, "what": f.what, "cause": f.cause} for f in self.findings]
        return {
            "file": self.file, "kind": self.kind, "headline": self.headline, "healthy": self.healthy,
            "lines": list(self.lines), "findings": findings, "facts": self.facts, "notes": list(self.notes),
        }  # fmt: skip


def _item(line: str, strong: bool = False) -> str:
    """A line as HTML; commands between backticks as code."""
    text = re.sub("`([^`]*)`", r"<code>\1</code>", html.escape(line))
    return f"<li><b>{text}</b></li>" if strong else f"<li>{text}</li>"


def percent(part: float) -> str:
    """Return a share as percent, small ones in one digit.

    >>> percent(0.384), percent(0.0004), percent(0.0)
    ('38 %', '0.04 %', '0 %')
    """
    return f"{100 * part:.0f} %" if part >= 0.01 or part < 1e-9 else f"{100 * part:.1g} %"
