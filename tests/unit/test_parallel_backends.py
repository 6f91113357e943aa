"""Backends and copies: every operation on Gloo and MPI, refusals that are noticed, arithmetic of a staged message."""

import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from distgen_lab.labs import backends, staging
from distgen_lab.ranks import launch

pytestmark = pytest.mark.slow

MPIEXEC = Path(sys.executable).parent / "mpiexec"


@pytest.mark.parametrize("ranks", [2, 3])
def test_gloo_has_every_operation(ranks):
    for table in launch(backends.supported, ranks, record=False).values:
        assert list(table) == list(backends.OPERATIONS)
        assert all(table.values())


@pytest.mark.skipif(not MPIEXEC.exists(), reason="no mpiexec beside this Python")
def test_mpi_has_no_average_and_no_bfloat16():
    for table in launch(backends.supported, 3, "mpi", record=False).values:
        assert [name for name, there in table.items() if not there] == ["all_reduce (average)", "all_reduce (bfloat16)"]


def test_a_wrong_result_and_an_error_are_noticed():
    def work():
        def broken(tensor, *rest, **more):
            tensor.fill_(-1)

        def refused(*rest, **more):
            raise RuntimeError("not here")

        dist.all_reduce, dist.broadcast = broken, refused
        return backends.supported()

    table = launch(work, 2, record=False)[0].value
    assert not table["all_reduce (sum)"] and not table["broadcast"]
    assert table["reduce"] and table["barrier"]


def test_the_comparison_measures_what_is_here():
    found = {row.name: row for row in backends.compare()}
    assert "gloo" in found and found["gloo"].lacking == []
    assert all(row.latency > 0 and row.busbw > 0 and row.name in str(row) for row in found.values())


def test_a_staged_message_pays_for_each_copy():
    assert staging.staged(1e9, 64e9) == {"device to host": 1 / 64, "host to device": 1 / 64}
    assert sum(staging.staged(1e9, 50e9, 25e9).values()) == pytest.approx(0.08)


def test_copies_of_this_machine():
    rates = staging.copy_rates(2**20, 2)
    assert rates["host to host"] > 0
    assert ("host to device" in rates) == torch.cuda.is_available()
    with pytest.raises(ValueError, match="nbytes is 0"):
        staging.copy_rates(0)
