"""Conjugate gradients on real ranks: the single-process solution, and reductions and halos counted in the recording."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distgen_lab import launch
from distgen_lab.cg import VARIANTS, Poisson, solve
from distgen_lab.labs import cg as lab
from distgen_lab.ranks.errors import RankError
from distgen_lab.timeline import Span, Timeline

pytestmark = pytest.mark.slow

SIDE, CONTRAST = 12, 4.0
BACKENDS = ["gloo", pytest.param("mpi", marks=pytest.mark.skipif(
    not (Path(sys.executable).parent / "mpiexec").exists(), reason="no mpiexec beside this Python"))]  # fmt: skip


def dense():
    """The matrix from its definition, without the library's stencil."""
    line = 2 * np.eye(SIDE) - np.eye(SIDE, k=1) - np.eye(SIDE, k=-1)
    scaling = np.diag(Poisson(SIDE, CONTRAST).scaling.ravel())
    return scaling @ (np.kron(line, np.eye(SIDE)) + np.kron(np.eye(SIDE), line)) @ scaling


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_ranks_solve_what_one_process_solves(variant, backend):
    run = launch(lab.solve_on_ranks, ranks=3, backend=backend, args=(variant, SIDE, CONTRAST, True, 1e-10))
    pieces = [solution.x for solution in run.values]
    assert np.concatenate(pieces) == pytest.approx(np.linalg.solve(dense(), np.ones(SIDE**2)), rel=1e-7)
    alone = solve(Poisson(SIDE, CONTRAST), np.ones(SIDE**2), variant, Poisson(SIDE, CONTRAST).inverse_diagonal(),
                  rtol=1e-10)  # fmt: skip
    iterations = {solution.iterations for solution in run.values}
    assert len(iterations) == 1 and abs(iterations.pop() - alone.iterations) <= 1
    assert len({solution.residuals for solution in run.values}) == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("variant", "sums", "beside"),
    [("classic", 2, 0), ("Chronopoulos-Gear", 1, 0), ("Gropp", 2, 1), ("pipelined", 1, 1)],
)
def test_an_iteration_is_counted_in_the_recording(variant, sums, beside, backend):
    short, long = (
        lab.counts(launch(lab.solve_on_ranks, 3, backend, (variant, SIDE, 1.0, False, 0.0, most)).timeline, 1)
        for most in (3, 8)
    )
    assert long.reductions - short.reductions == 5 * sums
    assert long.nonblocking - short.nonblocking == 5 * beside
    assert long.halos - short.halos == 5 * 2  # the middle strip has two neighbours
    assert long.halo_bytes - short.halo_bytes == 5 * 2 * 8 * SIDE


def test_one_rank_has_no_halo():
    run = launch(lab.solve_on_ranks, ranks=1, args=("pipelined", SIDE))
    assert lab.counts(run.timeline).halos == 0 and run[0].value.converged


def test_counts_by_hand():
    spans = [
        Span(0, "all_reduce", 0.0, 5.0, group=(0, 1), blocking=True),
        Span(0, "isend", 1.0, 2.0, nbytes=8, peer=1),
        Span(0, "all_reduce", 6.0, 7.0, group=(0, 1)),
        Span(1, "isend", 6.5, 7.0, nbytes=80, peer=0),
    ]
    assert lab.counts(Timeline(spans)) == lab.Counts(reductions=2, nonblocking=1, halos=1, halo_bytes=8)


def test_more_ranks_than_rows_are_refused():
    with pytest.raises(RankError, match="side is 2; at least one row of the grid for each of the 3 ranks"):
        launch(lab.solve_on_ranks, ranks=3, args=("classic", 2))


@pytest.mark.slow
def test_the_lab_runs_on_its_own():
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "distgen_lab.labs.cg", "--side", "20", "--iterations", "6"]
    out = subprocess.run(command, capture_output=True, text=True, timeout=90, env=env, check=True).stdout
    assert out.startswith("2 ranks over gloo") and all(name in out for name in VARIANTS)
