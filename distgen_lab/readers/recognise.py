"""Tell what kind of file this is, and read it with the reader of that kind."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from distgen_lab.models import ConfigError, ModelShape
from distgen_lab.readers import kineto, nccl_tests, nccl_xml, nvsmi_topo, osu
from distgen_lab.readers.benchmark import BenchmarkLog
from distgen_lab.readers.machine import Machine
from distgen_lab.readers.source import ReadError, Text, load, looks_json, open_bytes, read_some
from distgen_lab.units import MIB

__all__ = ["KINDS", "Read", "read", "recognise"]

Read = ModelShape | Machine | BenchmarkLog | osu.OsuLog | kineto.Trace
"""What :func:`read` returns."""

_HEAD = int(4 * MIB)
_CONFIG_KEYS = r'"(?:model_type|architectures|hidden_size|num_hidden_layers|vocab_size|n_embd|d_model|text_config)"\s*:'
_TRACE_KEYS = r'"(?:traceEvents|deviceProperties|distributedInfo|baseTimeNanoseconds|schemaVersion|traceName)"\s*:'


def _read_config(path: str | os.PathLike) -> ModelShape:
    """A config, with the reader's own error."""
    try:
        return ModelShape.from_config(path)
    except ConfigError as error:
        said = re.match(r"(?:, line (\d+))?: (.*)$", str(error).removeprefix(str(path)), re.DOTALL)
        line, problem = (int(said[1]) if said and said[1] else None), (said[2] if said else str(error))
        field = re.match(r"([A-Za-z_][\w.\[\]]*) (?:is|has|must|stands|and)\b", problem)
        wrapped = ReadError(path, problem.rstrip("."), line)
        wrapped.field = field[1] if field else ""
        raise wrapped from None


_READERS: dict[str, Callable] = {
    "config": _read_config,
    "topology": nvsmi_topo.read_topology,
    "nccl-xml": nccl_xml.read_xml,
    "nccl-tests": nccl_tests.read_log,
    "osu": osu.read_osu,
    "trace": kineto.read_trace,
}
KINDS = tuple(_READERS)
"""Names of the kinds: a Hugging Face config, what nvidia-smi, rocm-smi or amd-smi print, NCCL's XML, logs, traces."""


def read(path: str | os.PathLike, kind: str | None = None, accelerator: str | None = None) -> Read:
    """Read a file of any kind: the one door to the readers.

    Args:
        path: the file; gzip is unpacked.
        kind: one of :data:`KINDS`; None to find out from the content.
        accelerator: the GPU of a topology whose file does not say it, for the bandwidth of its links.

    Returns:
        A :class:`~distgen_lab.models.ModelShape` of a config, a :class:`Machine` (a Topology) of a topology file, a
        :class:`BenchmarkLog` of nccl-tests or rccl-tests, an :class:`OsuLog`, or a :class:`Trace`.

    Raises:
        ReadError: if the file cannot be read or its kind is not known; the message names file, line and field.
        ValueError: for an unknown ``kind`` or ``accelerator``.
    """
    if kind is not None and kind not in _READERS:
        raise ValueError(f"kind is {kind!r}; one of {', '.join(KINDS)} is needed")
    kind = kind or recognise(path)
    return nvsmi_topo.read_topology(path, accelerator) if kind == "topology" else _READERS[kind](path)


def recognise(path: str | os.PathLike) -> str:
    """Return the kind of a file, one of :data:`KINDS`, from its content (its name only where that says nothing).

    Raises:
        ReadError: for a file that cannot be opened, is empty, or is of no known kind.
    """
    with open_bytes(path) as file:
        head = read_some(file, _HEAD, path)
    suffixes = Path(path).suffixes
    if not head.strip():
        if ".json" in suffixes and ".gz" in suffixes:
            return "trace"
        load(path)
    text = head.decode("utf-8-sig", "replace")
    if looks_json(text):
        if re.search(r'"link_type"\s*:', text) and re.search(r'"num_hops"\s*:', text):
            raise ReadError(path, "is the JSON of `amd-smi topology`; its tables are needed: run it without --json", 1)
        return _json_kind(text, suffixes)
    if ".json" in suffixes and not text.lstrip().startswith("<system"):
        return "config"  # its reader says what is wrong
    if ".xml" in suffixes:
        return "nccl-xml"
    return _text_kind(load(path))


def _json_kind(head: str, suffixes: list[str]) -> str:
    """The kind of a JSON file by its keys."""
    if re.search(r'"traceEvents"\s*:', head):
        return "trace"
    if re.search(r'"(?:busBw|bus_bw|average_bus_bandwidth)"\s*:', head):
        return "nccl-tests"
    if ".xml" in suffixes:
        return "nccl-xml"
    if re.search(_CONFIG_KEYS, head):
        return "config"
    if ".gz" in suffixes or re.search(_TRACE_KEYS, head) or re.match(r'\s*\[\s*\{[^{}]*"ph"\s*:', head):
        return "trace"
    return "config"


def _text_kind(text: Text) -> str:
    """The kind of a text; what is most particular is asked first."""
    if nccl_xml.looks_like(text):
        return "nccl-xml"
    strong = any(nccl_tests.is_header(line) for line in text.lines)
    for kind, found in (
        ("nccl-tests", strong),
        ("osu", not strong and osu.looks_like(text)),
        ("topology", not strong and nvsmi_topo.looks_like(text)),
        ("nccl-tests", not strong and nccl_tests.looks_like(text)),
    ):
        if found:
            return kind
    number = next(n for n, line in enumerate(text.lines, 1) if line.strip())
    first = text.lines[number - 1].strip()
    what = "an HTML page" if re.match(r"<(?:!doctype )?html", first, re.IGNORECASE) else "no file of a known kind"
    raise text.fail(f"is {what}; it begins with {first[:60]!r}. Known kinds: {', '.join(KINDS)}", number)
