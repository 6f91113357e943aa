"""Traces: shares of time against a count tick by tick, streaming over any chunk, and who waits for whom."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab import sample
from distgen_lab.overlap import exposed_time
from distgen_lab.readers import ReadError, read, read_trace, read_traces, streaming
from distgen_lab.readers.kineto import op_of
from distgen_lab.readers.streaming import EventStream
from distgen_lab.timeline import Timeline

GEMM = "ampere_sgemm_128x64_nn"
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def kernel(start, length, name=GEMM, stream=7, cat="kernel", **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": start,
        "dur": length,
        "args": {"stream": stream, **args},
    }


def step(number, start, length, cat="user_annotation"):
    return {"ph": "X", "cat": cat, "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1, "ts": start, "dur": length}


def written(tmp_path, events, rank=0, world=1, name="trace.json", **more):
    data = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
        "traceEvents": events,
        **more,
    }
    path = tmp_path / name
    text = json.dumps(data).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def refusal(tmp_path, text, name="trace.json"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ReadError) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def by_hand(events, low, high):
    """Compute, communication, exposed, copies and idle in microseconds, one by one."""
    ticks = {kind: set() for kind in ("compute", "comm", "copy")}
    for event in events:
        kind = "copy" if event["cat"] == "gpu_memcpy" else "comm" if "nccl" in event["name"] else "compute"
        ticks[kind] |= set(range(max(low, event["ts"]), min(high, event["ts"] + event["dur"])))
    busy = ticks["compute"] | ticks["comm"]
    return (
        len(ticks["compute"]),
        len(ticks["comm"]),
        len(ticks["comm"] - ticks["compute"]),
        len(ticks["copy"] - busy),
        high - low - len(busy | ticks["copy"]),
    )


SPAN = st.tuples(
    st.integers(0, 120),
    st.integers(0, 40),
    st.sampled_from([(GEMM, "kernel"), (ALLREDUCE, "kernel"), ("Memcpy DtoH", "gpu_memcpy")]),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(SPAN, min_size=1, max_size=25), st.integers(0, 60), st.integers(1, 100))
def test_shares_are_those_of_a_count_tick_by_tick(tmp_path_factory, spans, begin, length):
    base = 1_682_725_898_240_982  # as large as a real clock
    events = [kernel(start, span, name, cat=cat) for start, span, (name, cat) in spans]
    kernels = [event for event in events if event["cat"] == "kernel"]
    shifted = [event | {"ts": event["ts"] + base} for event in events] + [step(3, base + begin, length)]
    trace = read_trace(written(tmp_path_factory.mktemp("t"), shifted))
    if not kernels:
        assert trace.shares() is None and trace.notes
        return
    low, high = min(e["ts"] for e in events), max(e["ts"] + e["dur"] for e in events)
    for shares, window in ((trace.shares(), (low, high)), (trace.shares(3), (begin, begin + length))):
        mine = (shares.compute, shares.communication, shares.exposed, shares.copies, shares.idle)
        assert [value * 1e6 for value in mine] == pytest.approx(by_hand(events, *window), abs=1e-3)
        assert shares.window * 1e6 == pytest.approx(window[1] - window[0], abs=1e-3)
    parts = {True: [], False: []}
    for event in kernels:
        parts["nccl" in event["name"]].append((event["ts"], event["ts"] + event["dur"]))
    assert trace.shares().exposed * 1e6 == pytest.approx(exposed_time(parts[True], parts[False]), abs=1e-3)


@pytest.mark.parametrize(
    "name, op",
    [
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
        ("ncclKernel_AllReduce_TREE_LL_Sum_float(ncclDevComm*)", "all_reduce"),
        ("ncclDevKernel_AllReduce_Sum_bf16_NVLS(x)", "all_reduce"),
        ("ncclSymkDevKernel_AllGather_LL", "all_gather"),
        ("ncclKernel_ReduceScatter_RING_SIMPLE_Sum_half", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(x)", "sendrecv"),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "collective"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("mscclKernel_Sum_float_Simple_true", "collective"),
    ],
)
def test_communication_kernels_of_every_naming(tmp_path, name, op):
    events = [
        kernel(0, 10, name),
        kernel(0, 4),
        kernel(20, 5, "void my_kernel<ncclLike>(nccl_t)"),
        {"ph": "X", "cat": "cpu_op", "name": name, "ts": 0, "dur": 99},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "nccl:x", "ts": 0, "dur": 99},
    ]
    trace = read_trace(written(tmp_path, events))
    assert op_of(name) == op and trace.communication_kernels == 1 and trace.kernels == 3
    assert trace.collectives()[0][0] == op and trace.shares().exposed == pytest.approx(6e-6)


def test_gloo_without_a_gpu_is_not_zero_percent_exposed(tmp_path):
    events = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": "gloo:all_reduce",
            "ts": 5,
            "dur": 10,
            "args": {"Input Dims": [[10, 3], []], "Input type": ["float", "Scalar"]},
        }
    ]
    trace = read_trace(written(tmp_path, events))
    assert trace.shares() is None and trace.cpu_communication == ((0.0, pytest.approx(1e-5), "all_reduce"),)
    assert trace.buckets() == {120: 1} and trace.messages[0].backend == "gloo"


def test_messages_of_kernels_and_of_c10d_records(tmp_path):
    said = {"In msg nelems": 1000, "Out msg nelems": 8000, "dtype": "BFloat16"}
    events = [
        kernel(0, 10, ALLREDUCE, **said | {"Out msg nelems": 1000}),
        kernel(20, 10, "ncclDevKernel_AllGather_RING_LL(x)", **said),
    ]
    trace = read_trace(written(tmp_path, events))
    assert trace.buckets() == {2000: 1} and trace.buckets("all_gather") == {16000: 1}
    record = {
        "ph": "X",
        "cat": "user_annotation",
        "name": "nccl:all_reduce",
        "ts": 0,
        "dur": 1,
        "args": {"Input Dims": [[7]], "Input type": ["c10::Half"]},
    }
    assert read_trace(written(tmp_path, [kernel(0, 10, ALLREDUCE), record])).buckets() == {14: 1}


def test_a_step_as_a_timeline(tmp_path):
    events = [
        step(4, 100, 100),
        step(5, 200, 100),
        kernel(110, 20),
        kernel(120, 50, ALLREDUCE, stream=9),
        kernel(210, 30),
        kernel(130, 5, "Memcpy", cat="gpu_memcpy"),
    ]
    trace = read_trace(written(tmp_path, events))
    line = trace.timeline(4)
    assert isinstance(line, Timeline) and line.lanes == 2 and [s.number for s in trace.steps] == [4, 5]
    assert [(s.lane, s.op, round(s.start * 1e6), round(s.end * 1e6)) for s in line.spans] == [
        (0, "compute", 10, 30),
        (1, "all_reduce", 20, 70),
        (0, "copy", 30, 35),
    ]
    assert len(trace.timeline().spans) == 4 and len(trace.timeline(most=2).spans) == 2
    with pytest.raises(ValueError, match="step is 6; the trace has 4, 5"):
        trace.shares(6)


# ----------------------------------------------------------------------------- several ranks


def test_who_waits_for_whom(tmp_path):
    late = {0: (0, 300), 1: (200, 0), 2: (50, 40)}  # when each rank comes to the first and to the second collective
    paths = []
    for rank, (first, second) in late.items():
        events = [kernel(first, 210 - first, ALLREDUCE), kernel(1000 + second, 310 - second, ALLREDUCE), kernel(5, 90)]
        paths.append(written(tmp_path, events, rank, 4, f"r{rank}.json.gz"))
    report = read_traces(paths)
    assert report.coverage == "3 of 4 ranks only" and not report.complete
    waits = {one.rank: {r: round(s * 1e6) for r, s in one.by_rank.items()} for one in report.waiting}
    assert waits == {0: {1: 200}, 1: {0: 300}, 2: {1: 150, 0: 260}} and report.straggler == 0
    assert {one.rank: one.mostly_for for one in report.waiting} == {0: 1, 1: 0, 2: 0}


def test_the_packaged_pair_is_complete_and_rank_1_is_late():
    report = read_traces([sample("trace-rank1.json.gz"), sample("trace-rank0.json.gz")])
    assert report.coverage == "all 2 ranks" and report.straggler == 1 and [t.rank for t in report.traces] == [0, 1]
    assert report.waiting[0].seconds == pytest.approx(2.4e-3, rel=0.01)
    assert read(sample("trace-rank0.json.gz")).shares(3).overlap == pytest.approx(0.59, abs=0.02)


def test_traces_that_do_not_belong_together(tmp_path):
    one, same, other = (
        written(tmp_path, [kernel(0, 1)], rank, world, f"{n}.json")
        for n, (rank, world) in enumerate(((0, 2), (0, 2), (1, 8)))
    )
    with pytest.raises(ReadError, match="is rank 0 like"):
        read_traces([one, same])
    with pytest.raises(ReadError, match=r"jobs of \[2, 8\] ranks"):
        read_traces([one, other])


# ----------------------------------------------------------------------------- streaming


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(JSON, max_size=6),
    st.dictionaries(st.text(max_size=8).filter(lambda key: key != "traceEvents"), JSON, max_size=4),
    st.integers(1, 50),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
    st.integers(0, 4),
)
def test_any_json_comes_through_any_chunk(tmp_path_factory, events, header, chunk, indent, ascii_, place):
    items = list(header.items())
    items.insert(min(place, len(items)), ("traceEvents", events))
    path = tmp_path_factory.mktemp("s") / "t.json"
    path.write_text(
        json.dumps(dict(items), indent=indent, ensure_ascii=ascii_),
        encoding="utf-8",
        newline="",
        errors="surrogatepass",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "_CHUNK", chunk)
        stream = EventStream(path)
        found = list(stream)
    plain = json.loads(path.read_bytes().decode("utf-8", "replace"))
    assert found == plain.pop("traceEvents") and stream.header == plain and stream.index == len(events) - 1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 400), st.integers(1, 60))
def test_a_trace_cut_anywhere_is_refused(tmp_path_factory, place, chunk):
    folder = tmp_path_factory.mktemp("c")
    text = json.dumps(
        {"a": [1, {"b": "c\\"}], "traceEvents": [kernel(1, 2), kernel(3.25, 4e2), kernel(9, 9)], "end": -1.5e3},
        indent=1,
    )
    path = folder / "t.json"
    path.write_text(text[: place % (len(text) - 1)], encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "_CHUNK", chunk)
        with pytest.raises(ReadError, match=r"line \d+.*(ends early|no traceEvents)|is empty"):
            read_trace(path)


def test_a_bare_list_is_a_trace_too(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps([kernel(0, 5), kernel(3, 5, ALLREDUCE)]), encoding="utf-8")
    trace = read(path)
    assert trace.form == "array" and trace.rank is None and trace.shares().exposed == pytest.approx(3e-6)


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "is empty"),
        ("   \n", "is empty"),
        ("{}", "empty object"),
        ('{"a": 1}', "no traceEvents"),
        ("hello", "is not JSON"),
        ('{"traceEvents": 3}', "a list under traceEvents"),
        ('{"traceEvents": [{}],}', "Expecting property name|not valid JSON|a key"),
        ('{"traceEvents": [{},]}', "comma stands before the end"),
        ('{"traceEvents": [{} {}]}', "a comma after event 0"),
        ('{"traceEvents": []} x', "more text follows"),
        ('{"traceEvents": [], "traceEvents": []}', "stands there twice"),
        ('{"traceEvents": [1]}', "event 0: is int, an object is needed"),
        ('{"traceEvents": [{"a": NaN}]}', "NaN is no JSON number"),
        ('{"traceEvents": [' + "[" * 100_000, "nested too deeply|ends early"),
        ('{"traceEvents": [' + "9" * 10_000 + "]}", "cannot be read"),
        ('{"traceEvents": [{"a": tru}]}' + " " * 99, "not valid JSON at 'tru"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path, text, words):
    import re

    assert re.search(words, refusal(tmp_path, text)), refusal(tmp_path, text)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"dur": -1}, r"event 1 \(kernel\): dur below zero"),
        ({"dur": None}, "no dur"),
        ({"ts": "12ms"}, "ts is not a number: '12ms'"),
        ({"ts": True}, "ts is not a number"),
        ({"ts": 10**30}, "ts is not a number"),
        ({"dur": [1]}, "dur is not a number"),
    ],
)
def test_a_kernel_without_a_time_is_refused(tmp_path, change, words):
    path = written(tmp_path, [kernel(0, 1), kernel(1, 1) | change])
    with pytest.raises(ReadError, match=words) as caught:
        read_trace(path)
    assert caught.value.field in ("ts", "dur") and caught.value.line == 1


def test_bombs_are_refused_and_broken_gzip_too(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "_RATIO_FROM", 2**20)
    monkeypatch.setattr(streaming, "_LARGEST_VALUE", 2**18)
    monkeypatch.setattr(streaming, "_CHUNK", 2**16)
    empties = b'{"traceEvents": [' + b"{}," * 4_000_000
    assert "unpacks to more than 100 times" in refusal(tmp_path, gzip.compress(empties), "a.json.gz")
    assert "is longer than" in refusal(tmp_path, gzip.compress(b'{"traceEvents": ["' + b"x" * 900_000), "b.json.gz")
    assert "blanks in a row" in refusal(tmp_path, gzip.compress(b'{"traceEvents": [' + b" " * 900_000), "c.json.gz")
    whole = written(tmp_path, [kernel(0, 1)] * 99, name="d.json.gz").read_bytes()
    assert "cut or damaged" in refusal(tmp_path, whole[:-20], "e.json.gz")
    assert "cut or damaged" in refusal(tmp_path, whole[:40] + b"zzzz" + whole[44:], "f.json.gz")


@pytest.mark.slow
def test_a_large_trace_is_read_in_bounded_memory(tmp_path):
    import subprocess
    import sys

    path = tmp_path / "big.json"
    with path.open("w", encoding="utf-8") as file:
        file.write('{"traceEvents": [\n')
        for i in range(300_000):
            file.write(
                json.dumps(kernel(i * 10, 9, ALLREDUCE if i % 7 == 0 else GEMM, grid=[1, 1, 1], correlation=i)) + ",\n"
            )
        file.write(json.dumps(kernel(0, 1)) + "]}")
    code = (
        "import re, sys; from distgen_lab.readers import read_trace; t = read_trace(sys.argv[1]);"
        "print(t.kernels, re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert int(out[0]) == 300_001 and int(out[1]) < 400_000  # kB
