"""Mutations of the packaged samples (and of the real files where they are): a reader answers or refuses, nothing else.

Whatever is done to a file, no other exception than ReadError comes out of the readers and verdicts, verdicts are plain
JSON, and what only dresses a file (line ends, marks, colours, quoting, compression) leaves every number as it was.
"""

import gzip
import json
import random
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distgen_lab import sample
from distgen_lab.models import ModelShape
from distgen_lab.readers import BenchmarkLog, Machine, OsuLog, ReadError, Trace, read, verdict

NAMES = (
    "llama-2-7b.json",
    "deepseek-v3.json",
    "topology-gpu-off-nvlink.txt",
    "topology-8-mi300x.txt",
    "rccl-tests-8-mi300x.csv",
    "nccl-topology-4-h100.xml",
    "nccl-tests-16-h100.log",
    "osu-latency.txt",
    "trace-rank0.json.gz",
)
NUMBERS = (
    b"-1",
    b"0",
    b"1e400",
    b"9" * 40,
    b"9" * 5000,
    b"nan",
    b"inf",
    b"-0",
    b"1e-400",
    b"NaN",
    b"0x10",
    b"1.5",
    "٣".encode(),
    b"",
)


def contents(path):
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def figures(thing):
    """Every number of what was read, to be compared with ==."""
    if isinstance(thing, ModelShape):
        return thing.parameters, thing.active_parameters, thing.kv_bytes_per_token()
    if isinstance(thing, Machine):
        return thing.codes, thing.bundles, sorted(map(str, thing.graph.edges(data=True))), thing.nics
    if isinstance(thing, BenchmarkLog):
        return [
            (run.op, run.ranks, [(r.nbytes, r.count, r.seconds, r.busbw, r.wrong, r.place) for r in run.rows])
            for run in thing
        ]
    if isinstance(thing, OsuLog):
        return [(t.title, t.columns, [(r.nbytes, r.values) for r in t.rows]) for t in thing]
    assert isinstance(thing, Trace)
    return thing.shares(), thing.kernels, thing.buckets(), thing.steps


def answer(path, data):
    """What comes of reading: the thing or the error; anything else fails the test."""
    path.write_bytes(data)
    try:
        thing = read(path)
        said = verdict.of(thing, str(path))
    except ReadError as error:
        assert str(path) in str(error) and len(str(error)) < 2000
        return error
    assert all(str(one) for one in said)
    json.dumps([one.as_json() for one in said], allow_nan=False)
    return thing


def mutations(rng, data):
    """One mutation, drawn."""
    lines, place = data.split(b"\n"), rng.randrange(len(data))
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    swapped = [*lines]
    swapped[i], swapped[j] = lines[j], lines[i]
    digits = [m.span() for m in re.finditer(rb"\d+", data)] or [(0, 0)]
    low, high = rng.choice(digits)
    return rng.choice(
        (
            lambda: data[:place],
            lambda: b"\n".join([*lines[: i + 1], *lines[i:]]),
            lambda: b"\n".join(swapped),
            lambda: b"\n".join(lines[:i] + lines[i + 1 :]),
            lambda: data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :],
            lambda: data[:place] + data[place + rng.randrange(1, 9) :],
            lambda: data[:low] + rng.choice(NUMBERS) + data[high:],
            lambda: data[:place] + b"\xe9" + data[place:],
            lambda: data[:place] + b"\0" * rng.randrange(1, 60) + data[place:],
            lambda: b"\n".join(rng.sample(lines, len(lines))),
            lambda: data + data,
            lambda: data[place:],
            lambda: data[:place] + data[low : low + rng.randrange(200)] + data[place:],
            lambda: gzip.compress(data)[: place + 20],
            lambda: data.decode("utf-8", "replace").encode("utf-16"),
            lambda: b"\n".join(b"> " + line for line in lines),
            lambda: b"\n".join(b"\x1b[31m" + line + b"\x1b[0m" for line in lines),
        )
    )()


@pytest.mark.parametrize("name", NAMES)
def test_no_mutation_gets_more_than_an_answer_or_a_refusal(tmp_path, name):
    data, rng, outcomes = contents(sample(name)), random.Random(name), set()
    path = tmp_path / name.removesuffix(".gz")
    for _ in range(60):
        changed = data
        for _ in range(rng.choice((1, 1, 2, 3))):
            changed = mutations(rng, changed) if changed else b""
        outcomes.add(isinstance(answer(path, changed), ReadError))
    assert outcomes == {True, False}


@pytest.mark.slow
def test_no_mutation_of_a_real_file_gets_more_than_an_answer_or_a_refusal(tmp_path, shared):
    rng = random.Random(11)
    files = [
        p
        for p in sorted((shared / "inputs").rglob("*.*"))
        if p.name not in ("README.md", "manifest.csv") and p.stat().st_size < 60_000
    ]
    for _ in range(1500):
        real = rng.choice(files)
        changed = contents(real) if real.stat().st_size > 30 else real.read_bytes()
        for _ in range(rng.choice((1, 1, 2, 3))):
            changed = mutations(rng, changed) if changed else b""
        answer(tmp_path / real.name.removesuffix(".gz"), changed)


DRESS = {
    "crlf": lambda d: d.replace(b"\n", b"\r\n"),
    "mark": lambda d: b"\xef\xbb\xbf" + d,
    "gzip": gzip.compress,
    "colours": lambda d: b"\n".join(b"\x1b[4m" + line + b"\x1b[0m" for line in d.split(b"\n")),
    "quoted": lambda d: b"\n".join(b"> " + line for line in d.split(b"\n")),
    "mpirun": lambda d: b"\n".join(b"[1,0]<stdout>:" + line for line in d.split(b"\n")),
    "blank lines": lambda d: b"\n\n" + d + b"\n\n",
    "utf-16": lambda d: d.decode().encode("utf-16"),
}
TEXTS = ("topology-gpu-off-nvlink.txt", "nccl-tests-16-h100.log", "osu-latency.txt")


@pytest.mark.parametrize("dress", DRESS)
@pytest.mark.parametrize("name", TEXTS)
def test_dressing_a_text_leaves_every_number(tmp_path, name, dress):
    plain = figures(read(sample(name)))
    dressed = answer(tmp_path / name, DRESS[dress](contents(sample(name))))
    assert not isinstance(dressed, ReadError), str(dressed)
    assert figures(dressed) == plain


@pytest.mark.parametrize("dress", ["crlf", "mark", "gzip", "blank lines"])
@pytest.mark.parametrize("name", ["trace-rank0.json.gz", "nccl-topology-4-h100.xml"])
def test_dressing_json_and_xml_leaves_every_number(tmp_path, name, dress):
    plain = figures(read(sample(name)))
    dressed = answer(tmp_path / name.removesuffix(".gz"), DRESS[dress](contents(sample(name))))
    assert not isinstance(dressed, ReadError), str(dressed)
    assert figures(dressed) == plain


@pytest.mark.parametrize("name", [*TEXTS, "nccl-topology-4-h100.xml"])
def test_what_is_cut_keeps_no_invented_number(tmp_path, name):
    """Of a text cut anywhere every row that is read stood in the whole one, or the file is refused."""
    data, whole = contents(sample(name)), read(sample(name))
    for place in random.Random(name).sample(range(len(data)), 60):
        part = answer(tmp_path / name, data[:place])
        if isinstance(part, BenchmarkLog):
            assert set(figures(part)[0][2]) <= set(figures(whole)[0][2])
        elif isinstance(part, OsuLog):
            assert set(part[0].rows) <= set(whole[0].rows)
        elif isinstance(part, Machine):
            assert part.codes == whole.codes and {nic.label for nic in part.nics} <= {
                nic.label for nic in whole.nics
            } | {""}


@settings(max_examples=300, deadline=None)
@example(b"\x1f\x8b")
@example(b"[1,0]<stdout>:")
@example(b"{")
@example(b"<system")
@example(b"GPU0")
@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(str.encode)
    | st.lists(
        st.sampled_from(
            [
                b"GPU0",
                b"\tGPU0\tGPU1\tCPU Affinity\n",
                b"GPU1\tX\tNV2\n",
                b"# OSU MPI Latency Test\n",
                b"# Size Latency (us)\n",
                b"1 2.0\n",
                b"{",
                b"}",
                b"[",
                b'"traceEvents": [',
                b'"ph": "X"',
                b"# size count type redop root time algbw busbw #wrong\n",
                b"8 2 float sum -1 1.0 0.01 0.01 0\n",
                b"<system version='1'>",
                b"<pci busid='0000:00:00.0'>",
                b"</system>",
                b"\n",
                b"# Avg bus bandwidth : 1\n",
                b"0 ",
                b"-1 ",
                b"\0",
                b"\xff\xfe",
            ]
        ),
        max_size=14,
    ).map(b"".join)
)
def test_any_bytes_at_all(tmp_path_factory, data):
    answer(tmp_path_factory.getbasetemp() / "any.txt", data)


def test_bombs_of_text_are_refused(tmp_path):
    bomb = gzip.compress(b"# size count type\n" + b"0 " * 40_000_000)
    assert len(bomb) < 200_000 and "when unpacked" in str(answer(tmp_path / "a.log", bomb))
