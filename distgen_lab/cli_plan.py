"""The command ``distgen plan``: a training run planned, searched, or held against published measurements."""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

__all__ = ["add_options", "run"]

_AXES = ("data", "tensor", "pipe", "context-parallel", "expert", "stage", "micro-batch", "chunks")
_FIELD = {"context-parallel": "context", "micro-batch": "micro_batch"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``distgen plan``."""
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a config.json, or a sample such as llama-3-70b")
    parser.add_argument("--cluster", default="DGX H100", help="a node, pod or accelerator of the catalogue")
    parser.add_argument("--devices", type=int, help="accelerators (default: one node, or the whole pod)")
    parser.add_argument("--network", type=float, metavar="GB/S", help="out of a node, for one device and direction")
    parser.add_argument("--price", type=float, metavar="DOLLARS", help="of a device-hour (default 2)")
    parser.add_argument("--sequences", type=int, default=256, help="of a step (default 256)")
    parser.add_argument("--context", type=int, default=4096, help="tokens of a sequence (default 4096)")
    for axis in _AXES:
        parser.add_argument(f"--{axis}", type=int, metavar="N", help="hold fixed (nothing fixed: try all layouts)")
    parser.add_argument("--recompute", choices=("none", "selective", "full"), help="hold fixed")
    parser.add_argument("--precision", default="bf16", help="of the matrix products (default bf16)")
    parser.add_argument("--search", action="store_true", help="try every layout that has the fixed values")
    parser.add_argument("--top", type=int, default=10, help="how many layouts a search prints (default 10)")
    parser.add_argument("--validate", action="store_true", help="print predictions beside published measurements")
    parser.add_argument("--rows", metavar="SOURCE", help="with --validate: every row of this source")
    parser.add_argument("--json", action="store_true", help="for machines")


def run(options: argparse.Namespace) -> int:
    """Do what was asked and return the exit code: 1 for a plan that does not fit.

    Raises:
        ValueError: for what cannot be planned; the message says why.
    """
    from distgen_lab import planner

    if options.validate:
        checked = planner.validate()
        print(checked.details(checked.rows(options.rows)[0].source) if options.rows else checked)
        return 0
    plans, text = _planned(options)
    if options.json:
        import json

        print(json.dumps([p.as_json() for p in plans], indent=1))
    else:
        print(text)
    return 0 if plans[0].fits else 1


def _planned(options: argparse.Namespace) -> tuple[list[Any], str]:
    """The plan that is described, or those that a search finds; and the text to print."""
    from distgen_lab import planner
    from distgen_lab.models import ModelShape

    if options.config is None:
        raise ValueError("name a config.json, or say --validate")
    if options.top < 1:
        raise ValueError(f"--top is {options.top}; 1 or more is needed")
    network = None if options.network is None else options.network * 1e9
    machine = planner.cluster(options.cluster, options.devices, network=network, price=options.price)
    batch, fixed = planner.Batch(options.sequences, options.context), _fixed(options)
    model = ModelShape.from_config(_config(options.config))
    if fixed and not options.search:
        rest = math.prod(fixed.get(axis, 1) for axis in ("tensor", "pipe", "context"))
        layout = planner.Layout(
            **{"data": max(1, machine.devices // max(1, rest))} | fixed, precision=options.precision
        )
        found = planner.plan(model, machine, batch, layout)
        return [found], repr(found)
    result = planner.search(
        model, machine, batch, keep=options.top, progress=_progress, precision=options.precision, **fixed
    )
    return [result.best, *result.ranked[1:]], repr(result)


def _fixed(options: argparse.Namespace) -> dict[str, Any]:
    """The values of the layout that were given. ``--context`` is a length, so its axis has a longer name."""
    given = {_FIELD.get(axis, axis): getattr(options, axis.replace("-", "_")) for axis in (*_AXES, "recompute")}
    return {name: value for name, value in given.items() if value is not None}


def _config(name: str) -> Path:
    """The file, or the sample of that name."""
    from distgen_lab.course import sample, samples

    stem = name if name.endswith(".json") else f"{name}.json"
    return sample(stem) if not Path(name).exists() and stem in samples() else Path(name)


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {of} layouts", end="\n" if done == of else "", file=sys.stderr, flush=True)
