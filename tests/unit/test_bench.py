"""The benchmark table: sizes, factors, correctness check, files."""

import csv
import io
import json

import pytest

from distgen_lab import bench
from distgen_lab.cli import main


def test_bus_factors_are_those_of_nccl_tests():
    """PERFORMANCE.md of nccl-tests, for 8 ranks."""
    wanted = {"all_reduce": 1.75, "all_gather": 0.875, "reduce_scatter": 0.875, "all_to_all": 0.875}
    wanted |= {"broadcast": 1, "reduce": 1, "sendrecv": 1}
    assert {op: factor(8) for op, factor in bench.BUS_FACTORS.items()} == wanted


@pytest.mark.parametrize("op", bench.BUS_FACTORS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_operation_runs_right_on_gloo(op, ranks):
    (row,) = bench.sweep(op, [600], ranks, "gloo", repeats=2, warmup=0)
    assert row.wrong == 0
    assert row.nbytes >= 600
    assert row.nbytes == 4 * row.count
    assert row.busbw == pytest.approx(row.algbw * bench.BUS_FACTORS[op](ranks))


def test_sizes_grow_by_the_factor():
    assert bench.sizes(8, 5000, 10) == [8, 80, 800]
    for wrong in ((0, 8, 2), (8, 4, 2), (8, 16, 1)):
        with pytest.raises(ValueError, match="sizes from"):
            bench.sizes(*wrong)


def test_command_prints_a_table_and_writes_both_files(capsys, tmp_path):
    files = ["--csv", str(tmp_path / "t.csv"), "--json", str(tmp_path / "t.json")]
    assert main(["bench", "all_reduce", "--max", "4KiB", "--repeats", "2", *files]) == 0
    out = capsys.readouterr().out
    assert "busbw" in out
    assert "alpha" in out
    rows = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert [int(row["nbytes"]) for row in rows] == [64, 256, 1024, 4096]
    assert [row["nbytes"] for row in json.loads((tmp_path / "t.json").read_text())] == [64, 256, 1024, 4096]
    assert main(["bench", "all_reduce", *files]) == 2
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["all_reduced"], "unknown operation 'all_reduced'"),
        (["all_reduce", "--ranks", "0"], "ranks is 0"),
        (["all_reduce", "--repeats", "0"], "repeats is 0"),
        (["all_reduce", "--min", "64", "--max", "8"], "sizes from 64 to 8"),
        (["all_reduce", "--backend", "tcp"], "backend is 'tcp'"),
    ],
)
def test_bad_arguments_are_one_line(arguments, words, capsys):
    assert main(["bench", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "size"), [("64", 64), ("4kB", 4000), ("4KiB", 4096), ("2 MiB", 2**21), ("1GB", 10**9)]
)
def test_sizes_with_units(text, size):
    from distgen_lab.cli import _bytes

    assert _bytes(text) == size
