"""The C programs: they compile without a warning, run on real ranks, and agree with their Python twins."""

import re
import shutil
import subprocess

import numpy as np
import pytest

from distgen_lab.labs import mpi_c
from distgen_lab.labs.mpi_c import PROGRAMS, CompileError, compile_and_run, listing

pytestmark = pytest.mark.slow

ELEMENTS = {"parameters": 1_000_000, "overlap": 1_000_000, "exchange": 500_000}


@pytest.fixture(scope="module")
def ran():
    """What each program printed on four ranks; skipped where none can be compiled."""
    try:
        mpi_c.compiler()
    except LookupError as error:
        pytest.skip(str(error))
    return {name: compile_and_run(name, 4) for name in PROGRAMS}


def test_every_rank_says_hello(ran):
    assert ran["hello"].splitlines() == [f"rank {rank} of 4" for rank in range(4)]


def test_parameters_arrive(ran):
    total = sum(i % 1000 for i in range(ELEMENTS["parameters"]))
    assert ran["parameters"] == f"rank 1 got 1000000 weights from rank 0 with tag 0, sum {total}"


def test_work_beside_a_send_is_done_and_the_message_is_whole(ran):
    work = np.sqrt(np.arange(100_000.0)).sum()
    assert ran["overlap"].splitlines() == [
        f"rank 0 worked out {work:.0f} meanwhile", f"rank 1 got 0 first and {ELEMENTS['overlap'] - 1} last",
    ]  # fmt: skip


def test_neighbours_exchange(ran):
    n = ELEMENTS["exchange"]
    wanted = [f"rank {r}: own sum {r * n}, sum from rank {(r - 1) % 4} {(r - 1) % 4 * n}" for r in range(4)]
    assert ran["exchange"].splitlines() == wanted


def test_collectives_are_those_of_their_definition(ran):
    table = 10 * np.arange(4)[:, None] + np.arange(4)
    wanted = [
        f"rank {r}: bcast 7, reduce {10 if r == 0 else 0}, allreduce 10, allgather ..4, scatter {table[0, r]}, "
        f"reduce_scatter {table[:, r].sum()}"
        for r in range(4)
    ]
    assert ran["collectives"].splitlines() == wanted


def sample(number):
    """What the C program calls so: C's % keeps the sign, but nothing here is negative."""
    x = [((number * (37 + 13 * i) + 5 * number * number * (i + 1)) % 19 - 9) / 9 for i in range(6)]
    return x, sum((i + 1) * value for i, value in enumerate(x))


def trained():
    """One process, double precision, all 48 samples: weights, and the mean loss before the last step."""
    x, y = (np.array(part) for part in zip(*map(sample, range(48)), strict=True))
    weights, loss = np.zeros(6), 0.0
    for _ in range(100):
        error = x @ weights - y
        loss = (error**2).mean()
        weights = weights - 0.2 * 2 * x.T @ error / 48
    return weights, loss


def test_the_trainer_equals_one_process_in_double_precision(ran):
    weights, loss = trained()
    first, *ranks = ran["trainer"].splitlines()
    assert float(first.split()[-1]) == pytest.approx(loss, rel=0.02)
    shown = [list(map(float, re.findall(r" (\d\.\d+)", line))) for line in ranks]
    assert len(ranks) == 4 and shown == [shown[0]] * 4
    assert shown[0] == pytest.approx(weights[[0, 1, 5]], abs=2e-3)


def test_the_trainer_does_not_depend_on_the_number_of_ranks(ran):
    assert compile_and_run("trainer", 1).splitlines() == ran["trainer"].splitlines()[:2]


@pytest.mark.parametrize("name", ["parameters", "overlap"])
def test_one_rank_is_too_few(ran, name):
    with pytest.raises(CompileError, match="two ranks are needed"):
        compile_and_run(name, 1)


def test_samples_that_do_not_divide_are_refused(ran):
    with pytest.raises(CompileError, match="48 samples do not divide over 5 ranks"):
        compile_and_run("trainer", 5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_listing_is_complete_frees_what_it_takes_and_keeps_arrays_off_the_stack(name):
    source = listing(name).source
    assert source.index("MPI_Init") < source.index("MPI_Finalize") and "(...)" not in source
    assert source.count("malloc(") + source.count("calloc(") == source.count("free(")
    assert not re.search(r"\b(float|double) \w+\[(N|D|ELEMENTS)\]", source)
    assert all(len(line) <= 120 for line in source.splitlines())
    assert listing(name)._repr_markdown_().startswith("```c\n/*")


def test_a_warning_is_an_error(ran, monkeypatch):
    bad = mpi_c.Listing("hello", "int main(void) { int unused; return 0; }\n")
    monkeypatch.setattr(mpi_c, "listing", lambda name: bad)
    with pytest.raises(CompileError, match="unused"):
        compile_and_run("hello", 1)


def test_without_a_compiler_the_reason_is_given(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert compile_and_run("hello").startswith("skipped: there is no mpicc")
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/bin/{name}" if name.startswith("mpi") else None)
    shown = subprocess.CompletedProcess([], 0, stdout="gcc -lmpi\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: shown)
    assert compile_and_run("hello") == "skipped: mpicc needs a C compiler, gcc, and there is none"


def test_an_unknown_program_is_named():
    with pytest.raises(ValueError, match="name is 'world'; there are: hello, parameters"):
        listing("world")
