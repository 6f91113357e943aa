"""Readers of nccl-tests, rccl-tests and OSU output: logs written by an independent writer, and what must be refused."""

import csv
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab import bench, sample
from distgen_lab.readers import BUS_FACTORS, ReadError, read, read_log, read_osu
from distgen_lab.readers.benchmark import ranks_of_factor

OPS = {  # columns and count of each operation as nccl-tests prints them: redop, root, whether count is of one rank
    "all_reduce": ("sum", -1, False),
    "all_gather": ("none", -1, True),
    "reduce_scatter": ("sum", -1, True),
    "all_to_all": ("none", -1, True),
    "broadcast": ("none", 0, False),
    "reduce": ("sum", 0, False),
    "sendrecv": ("sum", -1, False),
}
PERF = {"all_to_all": "alltoall"}


def factor(op, ranks):
    """The bus factor, written down anew from nccl-tests' PERFORMANCE.md."""
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if op in ("all_gather", "reduce_scatter", "all_to_all") else 1.0


def number(value, width=7):
    return next(
        text for text in (f"{value:.2f}", f"{value:.1f}", f"{value:.0f}") if len(text) <= width or "." not in text
    )


def rows_of(op, ranks, powers, alpha=20e-6, bus=200e9, unit=1e-6):
    """(size, count, [(time, algbw, busbw) out, in]) as printed: rates from the rounded time."""
    for power in powers:
        parts = ranks if OPS[op][2] else 1
        size = 2**power // (4 * parts) * 4 * parts  # as the tests round it
        sides = []
        for slow in (1.0, 1.02):
            time = float(number((alpha + size * factor(op, ranks) / bus) * slow / unit))
            rate = size / (time * unit) / 1e9
            sides.append((number(time), f"{rate:.2f}", f"{rate * factor(op, ranks):.2f}"))
        yield size, size // 4 // (ranks if OPS[op][2] else 1), sides


def table(op, ranks, powers, wrong="0", columns="new", **more):
    redop, root, _ = OPS[op]
    lead = {
        "new": "redop root ",
        "old": {"all_reduce": "redop ", "reduce_scatter": "redop ", "reduce": "redop root ", "broadcast": "root "}.get(
            op, ""
        ),
    }[columns]
    side = f"time algbw busbw {'error' if columns == 'old' else '#wrong'} "
    lines = ["#  out-of-place in-place", f"# size count type {lead}{side * 2}", "# (B) (elements) (us) (GB/s) (GB/s)"]
    mean = []
    for size, count, sides in rows_of(op, ranks, powers, **more):
        cells = [size, count, "float", *([redop] if "redop" in lead else []), *([root] if "root" in lead else [])]
        lines.append("  ".join(map(str, [*cells, *(c for s in sides for c in (*s, wrong))])))
        mean += [float(s[2]) for s in sides]
    return (
        "\n".join([*lines, "# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {sum(mean) / len(mean):g}", "#"])
        + "\n"
    )


def devices(ranks, name="NVIDIA A100-SXM4-80GB", per_node=8):
    return "".join(
        f"#  Rank {r:2d} Group  0 Pid {r + 100} on node{r // per_node} device  {r % per_node} [0x0f] {name}\n"
        for r in range(ranks)
    )


def written(tmp_path, text, name="run.log"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(path):
    with pytest.raises(ReadError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


# ----------------------------------------------------------------------------- nccl-tests, what is inferred


@pytest.mark.parametrize("columns", ["new", "old"])
@pytest.mark.parametrize("op", sorted(set(OPS) - {"sendrecv"}))
def test_operation_and_ranks_are_inferred_from_the_table_alone(tmp_path, op, columns):
    (run,) = read(written(tmp_path, table(op, 16, range(20, 30), columns=columns)))
    alike = {"all_gather", "all_to_all"}
    assert run.op == op or {run.op, op} == alike
    assert run.op_from.startswith("not in the file") and any("operation inferred" in note for note in run.notes)
    if op in ("all_reduce", *alike, "reduce_scatter"):
        assert run.ranks == 16
    else:
        assert run.ranks is None and "cannot be known" in run.ranks_from


@pytest.mark.parametrize("op", sorted(OPS))
def test_a_named_operation_and_listed_ranks_are_taken(tmp_path, op):
    head = f"# Collective test starting: {PERF.get(op, op)}_perf{'_mpi' * (op > 'b')}\n" + devices(12)
    (run,) = read(written(tmp_path, head + table(op, 12, range(20, 28))))
    assert (run.op, run.ranks, len(run.devices), run.hosts) == (op, 12, 12, ["node0", "node1"])
    for row, (size, count, sides) in zip(run.rows[::2], rows_of(op, 12, range(20, 28)), strict=True):
        assert (row.nbytes, row.count, row.place) == (size, count, "out")
        assert row.seconds == pytest.approx(float(sides[0][0]) * 1e-6) and row.busbw == float(sides[0][2]) * 1e9


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 300), st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]), st.floats(5e9, 4e11))
def test_ranks_from_the_rates_are_never_wrong(tmp_path_factory, ranks, op, bus):
    if OPS[op][2]:
        ranks = 2 ** max(1, ranks.bit_length() - 1)  # count of one rank must be whole
    (run,) = read(written(tmp_path_factory.mktemp("n"), table(op, ranks, range(16, 34), bus=bus)))
    assert run.ranks in ({ranks} if OPS[op][2] or (ranks <= 32 and bus > 5e10) else {ranks, None})


def test_ranks_of_a_factor():
    for op, ranks in (("all_reduce", 7), ("all_gather", 12), ("all_to_all", 2)):
        assert ranks_of_factor(op, factor(op, ranks), factor(op, ranks)) == pytest.approx((ranks, ranks))
    assert ranks_of_factor("broadcast", 0.99, 1.01)[1] == float("inf") and ranks_of_factor("reduce", 1.2, 1.3)[1] == 0


def test_the_factors_are_those_of_bench_and_rows_go_through_its_functions():
    for op, rule in bench.BUS_FACTORS.items():
        assert (
            [BUS_FACTORS[op](n) for n in (2, 3, 8, 64)]
            == [rule(n) for n in (2, 3, 8, 64)]
            == [factor(op, n) for n in (2, 3, 8, 64)]
        )
    rows = list(read(sample("nccl-tests-16-h100.log")).rows)
    assert bench.fit_rows(rows).link.bandwidth == pytest.approx(322e9, rel=0.02)
    assert bench.to_csv(rows).count("\n") == 29 and json.loads(bench.to_json(rows))[0]["ranks"] == 16


# ----------------------------------------------------------------------------- nccl-tests, how logs look


def dress(style, text):
    lines = text.splitlines()
    noise = "node1:22:22 [0] NCCL INFO Channel 00/02 :    0   1"
    return {
        "plain": text,
        "crlf": text.replace("\n", "\r\n"),
        "bom": "\ufeff" + text,
        "mpirun": "".join(f"[1,0]<stdout>:{line}\n" for line in lines),
        "srun": "".join(f"0: {line}\n" for line in lines),
        "pdsh": "".join(f"node-01: {line}\n" for line in lines),
        "quote": "".join(f"> {line}\n" for line in lines),
        "indent": "".join(f"    {line}\n" for line in lines),
        "fence": f"# Result\n\n```\n{text}```\n",
        "ansi": "".join(f"\x1b[32m{line}\x1b[0m\n" for line in lines),
        "info": "".join(f"{line}\n{noise}\n" for line in lines),
    }[style]


STYLES = ["plain", "crlf", "bom", "mpirun", "srun", "pdsh", "quote", "indent", "fence", "ansi", "info"]


@pytest.mark.parametrize("style", STYLES)
def test_what_stands_around_the_rows_changes_nothing(tmp_path, style):
    text = devices(8) + table("all_reduce", 8, range(10, 30))
    plain, dressed = (read(written(tmp_path, t)) for t in (text, dress(style, text)))
    strip = [(r.nbytes, r.count, r.seconds, r.busbw, r.wrong, r.place) for r in plain.rows]
    assert [(r.nbytes, r.count, r.seconds, r.busbw, r.wrong, r.place) for r in dressed.rows] == strip and len(
        strip
    ) == 40
    assert (dressed[0].ranks, dressed[0].printed_average) == (8, plain[0].printed_average)


def test_utf16_and_single_spaces(tmp_path):
    text = table("all_reduce", 4, range(20, 26))
    assert read(written(tmp_path, text.encode("utf-16")))[0].lines == 6
    assert read(written(tmp_path, " ".join(text.split(" "))))[0].lines == 6


def test_several_runs_in_one_file_are_kept_apart(tmp_path):
    text = "$ mpirun all_reduce_perf -b 1M\n" + devices(16) + table("all_reduce", 16, range(20, 26))
    text += "$ mpirun all_gather_perf -b 1M\n" + devices(8) + table("all_gather", 8, range(20, 24))
    log = read(written(tmp_path, text))
    assert [(run.op, run.ranks, run.lines) for run in log] == [("all_reduce", 16, 6), ("all_gather", 8, 4)]
    twice = table("all_reduce", 16, range(20, 26)) + table("reduce_scatter", 16, range(20, 26))
    assert [(run.op, run.ranks) for run in read(written(tmp_path, twice))] == [
        ("all_reduce", 16),
        ("reduce_scatter", 16),
    ]


def test_cycles_below_one_header_are_runs_of_their_own(tmp_path):
    body = [line for line in table("all_reduce", 8, range(20, 24)).splitlines() if line[0] != "#"]
    other = [line for line in table("all_reduce", 8, range(20, 24), bus=190e9).splitlines() if line[0] != "#"]
    head = table("all_reduce", 8, range(20, 24)).splitlines()[:3]
    log = read(written(tmp_path, "\n".join([*head, *body, *other]) + "\n"))
    assert [run.lines for run in log] == [4, 4] and any("cycle" in note for note in log[1].notes)


def test_nccl_1_in_milliseconds(tmp_path):
    lines = [
        "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res"
    ]
    for size, count, sides in rows_of("all_reduce", 4, range(24, 30), unit=1e-3, bus=10e9):
        cells = [c for time, alg, bus in sides for c in (f"{float(time):.3f}", alg, bus, "0e+00")]
        lines.append("  ".join(map(str, [size, count, "float", "sum", *cells])))
    (run,) = read(written(tmp_path, "\n".join(lines) + "\n"))
    assert run.ranks == 4 and 1e-3 < run.rows[0].seconds < 1 and any("millisecond" in note for note in run.notes)
    assert run.wrong is None and run.rows[0].error == 0


def test_wrong_results_n_a_and_only_one_side(tmp_path):
    text = devices(8) + table("all_reduce", 8, range(20, 24), wrong="3")
    assert read(written(tmp_path, text))[0].wrong == 24
    none = read(written(tmp_path, devices(8) + table("all_reduce", 8, range(20, 24), wrong="N/A")))[0]
    assert none.wrong is None and not any(row.checked for row in none.rows)
    (run,) = read(
        written(
            tmp_path,
            "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
            "1048576 262144 float none -1 100.0 10.49 10.49 0 N/A N/A N/A N/A\n",
        )
    )
    assert [row.place for row in run.rows] == ["out"] and run.op == "sendrecv"


def test_rows_cut_by_other_output_are_counted_and_left_out(tmp_path):
    text = devices(8) + table("all_reduce", 8, range(20, 30))
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("4194304"))
    lines[at : at + 1] = [lines[at][:30] + "node0:1:2 [0] NCCL INFO ...", lines[at][30:]]
    (run,) = read(written(tmp_path, "\n".join(lines)))
    assert (run.lines, run.broken) == (9, 1) and any(f"line {at + 1}" in note for note in run.notes)
    assert 4194304 not in {row.nbytes for row in run.rows}
    elided = text.replace(next(line for line in lines if line.startswith("2097152")), "...")
    (run,) = read(written(tmp_path, elided))
    assert run.lines == 9 and any("left out" in note for note in run.notes) and run.printed_average


def test_a_truncated_log_says_so(tmp_path):
    head = "# nThread 1 nGpus 8 minBytes 1048576 maxBytes 8589934592 step: 2(factor)\n"
    text = (head + devices(8) + table("all_reduce", 8, range(20, 34))).split("134217728")[0]
    (run,) = read(written(tmp_path, text))
    assert run.lines == 7 and any("rows may be missing" in note for note in run.notes)


def test_single_digits_that_change_are_found(tmp_path):
    """No digit of a size, count, time or rate can change without the row being refused or staying what it was."""
    text = devices(8) + table("all_reduce", 8, range(18, 30))
    wanted = {(r.nbytes, r.place): r for r in read(written(tmp_path, text)).rows}
    rng, path = random.Random(3), tmp_path / "run.log"
    start, refused, kept = text.index("\n262144"), 0, 0
    places = [i for i in range(start, text.index("# Out of")) if text[i].isdigit()]
    for place in rng.sample(places, 250):
        changed = text[:place] + rng.choice("0123456789".replace(text[place], "")) + text[place + 1 :]
        path.write_text(changed, encoding="utf-8")
        try:
            rows = read_log(path).rows
        except ReadError as error:
            refused += error.line is not None
            continue
        kept += 1
        for row in rows:
            old = wanted[row.nbytes, row.place]
            assert row.seconds == pytest.approx(old.seconds, rel=2e-3) and row.busbw == pytest.approx(
                old.busbw, rel=2e-3, abs=2e7
            )
            assert row.count == old.count
    assert refused > 150 and refused + kept == 250


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("float", "flaot", "type 'flaot' is unknown"),
        ("1048576  262144", "1048576  262143", "does not agree with count"),
        ("1048576  262144", "-1048576  262144", "below zero"),
        ("Avg bus bandwidth    : ", "Avg bus bandwidth    : x", "a number is needed"),
        ("  sum  ", "  sum  nan  ", "cut|number is needed|no complete row"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, old, new, words):
    text = devices(8) + table("all_reduce", 8, range(20, 24))
    assert old in text
    with pytest.raises(ReadError, match=words):
        read_log(written(tmp_path, text.replace(old, new)))


def test_no_rows_at_all(tmp_path):
    assert "header has no rows" in refusal(
        written(tmp_path, "\n".join(table("all_reduce", 8, range(20, 21)).splitlines()[:3]))
    )
    with pytest.raises(ReadError, match="no rows and no header"):
        read_log(written(tmp_path, "hello\n"))


# ----------------------------------------------------------------------------- JSON


def report(op="all_reduce", ranks=8, powers=range(20, 24)):
    """What `nccl-tests -J` writes (src/util.cu, JSON_FILE_VERSION 1)."""
    redop, root, _ = OPS[op]
    results, mean = [], []
    for size, count, sides in rows_of(op, ranks, powers):
        row = {"size": size, "count": count, "type": "float", "redop": redop, "root": f"{root:6d}"}
        for name, (time, alg, bus) in zip(("out_of_place", "in_place"), sides, strict=True):
            row[name] = {"time": float(time), "alg_bw": float(alg), "bus_bw": float(bus), "nwrong": 0.0}
            mean.append(float(bus))
        results.append(row)
    listed = [
        {"rank": r, "group": 0, "pid": 1, "hostname": "n0", "device": r, "device_info": "NVIDIA H100"}
        for r in range(ranks)
    ]
    return {
        "version": 1,
        "args": [f"./{op}_perf", "-b", "1M"],
        "nccl_version": 22703,
        "config": {"devices": listed},
        "results": results,
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": sum(mean) / len(mean)},
    }


def test_json_reports(tmp_path):
    (run,) = read(written(tmp_path, json.dumps(report()), "out.json"))
    assert (run.op, run.ranks, run.lines, run.version, run.out_of_bounds) == ("all_reduce", 8, 4, "22703", 0)
    assert run.rows[0].seconds == pytest.approx(float(next(rows_of("all_reduce", 8, [20]))[2][0][0]) * 1e-6)
    assert run.printed_average == pytest.approx(run.average)
    for change, words in (
        (lambda d: d["results"][1]["in_place"].update(time=-1), "time is '-1'"),
        (lambda d: d["results"][1].pop("size"), "has no size"),
        (lambda d: d["results"][0]["out_of_place"].update(bus_bw="nan"), "bus_bw"),
        (lambda d: d.update(results=[]), "no list with rows"),
        (lambda d: d["average_bus_bandwidth"].update(bandwidth=1.0), "does not fit the results"),
    ):
        broken = report()
        change(broken)
        assert words in refusal(written(tmp_path, json.dumps(broken), "out.json"))


def records(ranks=4):
    for size, _, sides in rows_of("all_reduce", ranks, range(20, 24)):
        for inside, (time, alg, bus) in enumerate(sides):
            yield {
                "numCycle": 0,
                "name": "AllReduce",
                "nodes": 1,
                "ranks": ranks,
                "ranksPerNode": ranks,
                "gpusPerRank": 1,
                "size": size,
                "type": "float",
                "redop": "sum",
                "inPlace": inside,
                "time": float(time),
                "algBw": float(alg),
                "busBw": float(bus),
                "wrong": "0",
            }


@pytest.mark.parametrize("form", ["list", "lines", "prefixed"])
def test_rccl_records(tmp_path, form):
    rows = list(records())
    lines = [json.dumps(row) for row in rows]
    text = {"list": json.dumps(rows), "lines": "\n".join(lines), "prefixed": "".join(f"0: {line}\n" for line in lines)}[
        form
    ]
    log = read_log(written(tmp_path, text)) if form == "prefixed" else read(written(tmp_path, text, "rccl.json"))
    (run,) = log
    assert (run.op, run.ranks, run.backend, run.lines, run.wrong, len(run.rows)) == ("all_reduce", 4, "rccl", 4, 0, 8)


def test_rccl_records_that_do_not_fit(tmp_path):
    rows = list(records())
    assert "repeats record" in refusal(written(tmp_path, json.dumps([*rows, rows[-1]]), "r.json"))
    for key, value, words in (
        ("busBw", 9.0, "busBw over algBw"),
        ("name", "AllTheThings", "no known operation"),
        ("time", 1.0, "algBw"),
    ):
        assert words in refusal(written(tmp_path, json.dumps([*rows[:-1], rows[-1] | {key: value}]), "r.json"))


# ----------------------------------------------------------------------------- CSV of rccl-tests

# The columns are those that ROCm/rccl-tests writes (pull request 93; Reporter::writeFile), with MPI and without.
MPI = ("numCycle", "collective", "nodes", "ranks", "ranksPerNode", "gpusPerRank", "size", "type", "redop", "inplace")
ALONE = ("numCycle", "collective", "gpus", "size", "type", "redop", "inplace")
FIGURES = ("time", "algbw", "busbw", "#wrong")


def as_csv(columns=MPI, rows=None, quoted=False):
    names = {"collective": "name", "inplace": "inPlace", "algbw": "algBw", "busbw": "busBw", "#wrong": "wrong"}
    lines = [",".join((*columns, *FIGURES))]
    for row in rows if rows is not None else records():
        row = row | {"gpus": row["ranks"]}
        cells = [row[names.get(column, column)] for column in (*columns, *FIGURES)]
        lines.append(",".join(f'"{cell}"' if quoted and isinstance(cell, str) else str(cell) for cell in cells))
    return "\n".join(lines) + "\n"


def test_the_packaged_csv_against_the_standard_library():
    with open(sample("rccl-tests-8-mi300x.csv"), encoding="utf-8", newline="") as file:
        wanted = list(csv.DictReader(file))
    (run,) = read(sample("rccl-tests-8-mi300x.csv"))
    assert (run.op, run.ranks, run.backend, run.wrong, run.dtype, run.redop) == (
        "all_reduce",
        8,
        "rccl",
        0,
        "float",
        "sum",
    )
    assert [row.nbytes for row in run.rows] == [int(row["size"]) for row in wanted]
    assert [row.place for row in run.rows] == [{"0": "out", "1": "in"}[row["inplace"]] for row in wanted]
    for row, cells in zip(run.rows, wanted, strict=True):
        assert row.seconds == pytest.approx(float(cells["time"]) * 1e-6)
        assert row.busbw == pytest.approx(float(cells["busbw"]) * 1e9)
        assert row.busbw == pytest.approx(2 * 7 / 8 * row.nbytes / row.seconds, rel=1e-4)


@pytest.mark.parametrize("columns", [MPI, ALONE])
@pytest.mark.parametrize("quoted", [False, True])
def test_csv_holds_what_the_json_of_the_same_run_holds(tmp_path, columns, quoted):
    (run,) = read(written(tmp_path, as_csv(columns, quoted=quoted), "r.csv"))
    (same,) = read(written(tmp_path, json.dumps(list(records())), "r.json"))
    assert run.ranks == 4
    for one, other in zip(run.rows, same.rows, strict=True):
        assert (one.nbytes, one.seconds, one.busbw, one.place) == (
            other.nbytes,
            other.seconds,
            other.busbw,
            other.place,
        )


def test_csv_with_several_gpus_a_rank(tmp_path):
    two = [row | {"ranks": 2, "gpusPerRank": 2} for row in records()]
    assert read(written(tmp_path, as_csv(rows=two), "r.csv"))[0].ranks == 4  # 2 processes, rates of 4 ranks
    four = [row | {"gpusPerRank": 2} for row in records()]
    assert read(written(tmp_path, as_csv(rows=four), "r.csv"))[0].ranks == 4  # 4 GPUs of 2 processes
    tiny = [row | {"gpusPerRank": 2, "size": 4, "time": 1.0, "algBw": 0.004, "busBw": 0.006} for row in four[:1]]
    assert "do not tell whether ranks counts GPUs" in refusal(written(tmp_path, as_csv(rows=tiny), "r.csv"))


def test_csv_that_does_not_fit(tmp_path):
    good = as_csv()
    head, first, *rest = good.splitlines()
    cut = written(tmp_path, good[:-20], "cut.csv")
    (run,) = read(cut)
    assert len(run.rows) == 7 and any("is cut" in note for note in read(cut).notes)
    for text, words in (
        (head + "\n", "no rows below it"),
        ("\n".join([head, first[:30], *rest]), "fields, the header names 14 columns"),
        ("\n".join([head, first, first]), "repeats record"),
        (good.replace("busbw,", "busbw,busbw,"), "names busbw twice"),
        (good.replace("inplace", "place"), "has no column inplace"),
        (good.replace("ranks,ranksPerNode", "many,ranksPerNode"), "has no column ranks or gpus"),
        (good.replace("AllReduce", "AllTheThings"), "no known operation"),
        ("\n".join([head, first.replace("sum,0", "sum,yes")]), '"yes"; 0 or 1 is needed'),
        ("\n".join([head, first.rsplit(",", 2)[0] + ",99.0,0"]), "busBw over algBw"),
    ):
        assert words in refusal(written(tmp_path, text, "r.csv")), words


def test_records_of_the_first_version_of_the_json(tmp_path):
    old = [{("#wrong" if key == "wrong" else key): value for key, value in row.items()} for row in records()]
    old = [{("gpus" if key == "ranks" else key): value for key, value in row.items()} for row in old]
    (run,) = read(written(tmp_path, json.dumps([row | {"#wrong": "3"} for row in old]), "r.json"))
    assert (run.ranks, run.wrong) == (4, 24)


# ----------------------------------------------------------------------------- OSU


def osu(
    title="# OSU MPI Latency Test v7.4",
    head="# Size          Latency (us)",
    rows=((0, "1.20"), (1, "1.25"), (1048576, "90.10")),
):
    return "\n".join([title, head, *("  ".join(map(str, row)) for row in rows)]) + "\n"


def test_the_packaged_latency_sample():
    (table_,) = read(sample("osu-latency.txt"))
    line = table_.fit()
    assert line.link.bandwidth == pytest.approx(12.1e9, rel=0.01) and line.link.alpha == pytest.approx(3.8e-6, rel=0.01)
    assert table_.best.nbytes == 0 and table_.si()[0] == (0, pytest.approx(1.6e-6))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2**30), st.floats(0.01, 1e6)), min_size=1, max_size=20, unique_by=lambda row: row[0]
    ),
    st.sampled_from(["plain", "crlf", "bom", "mpirun", "srun", "quote", "ansi"]),
)
def test_any_table_comes_back(tmp_path_factory, rows, style):
    text = osu(rows=[(size, f"{value:.2f}") for size, value in rows])
    (table_,) = read(written(tmp_path_factory.mktemp("o"), dress(style, text)))
    assert [(row.nbytes, row.values) for row in table_.rows] == [
        (size, (float(f"{value:.2f}"),)) for size, value in rows
    ]


def test_tables_of_every_layout(tmp_path):
    barrier = osu(
        "# OSU MPI Barrier Latency Test v7.4",
        "# Avg Latency(us)  Min Latency(us)  Max Latency(us)  Iterations",
        [("3.10", "3.00", "3.20", 1000)],
    )
    overlap = osu(
        "# OSU MPI Non-blocking Allreduce Latency Test v7.4",
        "# Overall = Coll. Init + Compute + MPI_Test\n# Size  Overall(us)  Compute(us)  Pure Comm.(us)  Overlap(%)",
        [(4, "9.10", "5.00", "4.10", "0.00")],
    )
    check = osu(head="# Size          Latency (us)        Validation", rows=((1, "1.20", "Pass"), (2, "1.30", "Fail")))
    log = read(written(tmp_path, barrier + "\n" + overlap + "\n" + check))
    assert [len(t.columns) for t in log] == [4, 4, 1] and not log[0].has_sizes and log[0].rows[0].values[0] == 3.1
    assert log[1].units == ("us", "us", "us", "%") and any("validation failed" in note for note in log[2].notes)


def test_the_oldest_titles(tmp_path):
    (old,) = read(
        written(
            tmp_path, osu("# OSU MPI Bandwidth Test (Version 2.1)", "# Size\t\tBandwidth (MB/s)", [(1, "0.425076")])
        )
    )
    assert (old.version, old.unit, old.si()) == ("2.1", "MB/s", [(1, pytest.approx(0.425076e6))])


def test_one_name_for_four_values_and_a_mislabelled_unit(tmp_path):
    (four,) = read(
        written(tmp_path, osu(head="# Size  Avg Latency(us)", rows=((1, 2.5, 1.5, 3.5, 100), (2, 2.6, 1.6, 3.6, 100))))
    )
    assert four.columns == ("Avg Latency(us)", "Min", "Max", "Iterations") and any(
        "one name" in note for note in four.notes
    )
    (odd,) = read(written(tmp_path, osu(head="# Size  Bandwidth (MB/s)")))
    assert odd.is_bandwidth and any("title says latency" in note for note in odd.notes)


@pytest.mark.parametrize(
    "text, words",
    [
        (osu(rows=((1, "1.00"), (1, "1.00"))), "repeats size 1"),
        (osu(rows=((1, "-1.00"),)), "number from 0"),
        (osu(rows=((1, "nan"), (2, "1.00"))), "a number is needed"),
        (osu(rows=((1, "1.00"), (2, "1.00", "2.00"))), "3 cells"),
        (osu(rows=((10**30, "1.00"),)), "no number of bytes|from 0 to 1e15"),
        (osu(rows=()), "has no rows"),
        (osu(head="# hello"), "no columns"),
        (osu()[:-2], "is cut"),
        ("# Hello\n1 2\n", "no table"),
    ],
)
def test_osu_tables_that_do_not_fit(tmp_path, text, words):
    with pytest.raises(ReadError, match=words):
        read_osu(written(tmp_path, text))
