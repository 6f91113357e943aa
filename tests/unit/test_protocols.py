"""Where a sweep changes its protocol: drawn sweeps whose change is known, sweeps without one, and a real one."""

import random

import pytest

from distgen_lab.alphabeta import Link
from distgen_lab.course import sample
from distgen_lab.protocols import protocol_switch
from distgen_lab.readers import read_osu

SIZES = [2**k for k in range(23)]


def sweep(limit, eager, rendezvous, noise=0.0, seed=0):
    """Times of messages that are eager up to ``limit`` bytes."""
    draw = random.Random(seed)
    return [(eager if n <= limit else rendezvous).time(n) * draw.uniform(1, 1 + noise) for n in SIZES]


@pytest.mark.parametrize("limit", [2**k for k in range(9, 18)])
@pytest.mark.parametrize("seed", range(5))
def test_a_drawn_switch_is_found_under_noise(limit, seed):
    eager, rendezvous = Link(2e-6, 1 / 8e9), Link(2e-6 + 0.6 * limit / 8e9 + 4e-6, 1 / 12e9)
    found = protocol_switch(SIZES, sweep(limit, eager, rendezvous, 0.02, seed))
    assert (found.below, found.above) == (limit, 2 * limit)
    assert found.extra == pytest.approx(rendezvous.time(2 * limit) - eager.time(2 * limit), rel=0.15)
    assert found.rendezvous.link.bandwidth == pytest.approx(12e9, rel=0.03)
    assert (found.eager.smallest, found.rendezvous.largest) == (1, SIZES[-1])


@pytest.mark.parametrize("seed", range(5))
def test_one_line_has_no_switch(seed):
    link = Link(3e-6, 1 / 10e9)
    assert protocol_switch(SIZES, sweep(0, link, link, 0.03, seed)) is None
    assert protocol_switch(SIZES[:5], sweep(0, link, link)[:5]) is None


def test_the_sample_switches_above_four_kibibytes():
    found = protocol_switch(*zip(*read_osu(sample("osu-latency.txt"))[0].si(), strict=True))
    assert (found.below, found.above) == (4096, 8192)
    assert "2.48 us more" in str(found)


def test_real_sweeps_switch_where_their_times_jump(shared):
    """Times as printed: 1.96 us at 4 KiB and 4.36 at 8; 62.5 us at 64 KiB and 138.14 at 128."""
    for name, below in (("26-mpi4py-latency.txt", 4096), ("12-pcluster-p5-osu_latency.txt", 65536)):
        found = protocol_switch(*zip(*read_osu(shared / "inputs" / "osu" / name)[0].si(), strict=True))
        assert found.below == below


def test_bad_sweeps():
    with pytest.raises(ValueError, match="sizes must rise"):
        protocol_switch([1, 2, 2, 4], [1, 1, 1, 1])
    with pytest.raises(ValueError, match="times positive"):
        protocol_switch([1, 2, 4], [1, 0, 1])
