"""What a verdict is: an answer in one sentence, what it rests on, what looks wrong, and the figures as JSON."""

from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Verdict:
    """What one file says.

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
        body = [*self.lines, *map(str, self.findings), *(f"inferred: {note}" for note in self.notes)]
        return "\n".join([f"{self.file} ({self.kind})", self.headline, *(f"  {line}" for line in body)])

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


def percent(part: float) -> str:
    """Return a share as percent, small ones in one digit.

    >>> percent(0.384), percent(0.0004), percent(0.0)
    ('38 %', '0.04 %', '0 %')
    """
    return f"{100 * part:.0f} %" if part >= 0.01 or part < 1e-9 else f"{100 * part:.1g} %"
