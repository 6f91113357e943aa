"""Occupancy against rows that NVIDIA's own calculator printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distgen_lab.hardware import CAPABILITIES
from distgen_lab.occupancy import occupancy, register_sweep, shared_sweep

NVIDIA = """
7.0 256 32 50000 1 8 8 1 8192 50176
8.0 128 85 0 5 16 5 164 11264 1024
8.0 224 92 0 2 9 2 164 21504 1024
9.0 256 64 0 4 8 4 228 16384 1024
9.0 256 168 100000 1 8 1 2 43008 101120
10.0 384 168 232448 1 5 1 1 64512 233472
9.0 1024 128 0 0 2 0 228 131072 1024
8.0 1024 64 166912 1 2 1 1 65536 167936
9.0 128 255 0 2 16 2 228 32768 1024
7.0 1024 64 98304 1 2 1 1 65536 98304
10.0 64 20 7000 28 32 42 28 1536 8064
9.0 32 16 0 32 64 128 228 512 1024
8.0 96 40 10240 14 21 16 14 3840 11264
7.0 256 22 0 8 8 10 2147483647 6144 0
7.0 736 19 88446 1 2 3 1 17664 88576
7.0 256 105 16821 2 8 2 5 28672 16896
7.0 614 71 10506 1 3 1 9 46080 10752
7.0 96 95 81105 1 21 6 1 9216 81152
7.0 128 33 9269 10 16 12 10 5120 9472
7.0 591 117 0 0 3 0 2147483647 72960 0
7.0 256 194 15459 1 8 1 6 51200 15616
7.0 480 49 80796 1 4 2 1 26880 80896
7.0 448 238 23542 0 4 0 4 107520 23552
7.0 608 26 0 3 3 3 2147483647 19456 0
7.0 99 74 8727 6 16 6 10 10240 8960
7.0 128 63 0 8 16 8 2147483647 8192 0
7.0 593 221 4901 0 3 0 19 136192 5120
7.0 128 230 58217 1 16 2 1 29696 58368
7.0 128 23 31024 3 16 21 3 3072 31232
8.0 37 87 136263 1 32 10 1 5632 137344
8.0 256 27 0 8 8 8 164 8192 1024
8.0 128 26 1955 16 16 16 54 4096 3072
8.0 128 47 84874 1 16 10 1 6144 86016
8.0 577 53 6625 1 3 1 21 34048 7680
8.0 128 112 4931 4 16 4 27 14336 6016
8.0 128 36 160142 1 16 12 1 5120 161280
8.0 256 111 129320 1 8 2 1 28672 130432
8.0 256 63 7269 4 8 4 20 16384 8320
8.0 256 34 2977 6 8 6 41 10240 4096
8.0 576 88 0 1 3 1 164 50688 1024
8.0 128 66 0 7 16 7 164 9216 1024
8.0 296 26 11795 6 6 6 12 10240 12928
8.0 256 30 3260 8 8 8 38 8192 4352
8.0 128 60 0 8 16 8 164 8192 1024
8.0 160 40 11129 9 12 9 13 6400 12160
9.0 528 250 7561 0 3 0 26 139264 8704
9.0 480 21 0 4 4 5 228 11520 1024
9.0 256 28 80307 2 8 8 2 8192 81408
9.0 128 92 0 5 16 5 228 12288 1024
9.0 56 72 0 14 32 14 228 4608 1024
9.0 128 93 9033 5 16 5 23 12288 10112
9.0 128 61 4099 8 16 8 44 8192 5248
9.0 128 61 0 8 16 8 228 8192 1024
9.0 187 154 9122 2 10 2 22 30720 10240
9.0 128 180 8763 2 16 2 23 23552 9856
9.0 169 43 29343 6 10 6 7 9216 30464
9.0 128 66 71736 3 16 7 3 9216 72832
9.0 128 46 0 10 16 10 228 6144 1024
9.0 128 77 204921 1 16 6 1 10240 205952
9.0 128 25 0 16 16 16 228 4096 1024
9.0 544 88 7470 1 3 1 27 47872 8576
10.0 608 86 15558 1 3 1 14 53504 16640
10.0 562 29 17302 3 3 3 12 18432 18432
10.0 256 173 12023 1 8 1 17 45056 13056
10.0 448 17 0 4 4 6 228 10752 1024
10.0 960 24 0 2 2 2 228 23040 1024
10.0 652 70 0 1 3 1 228 48384 1024
10.0 384 201 175453 0 5 0 1 79872 176512
10.0 192 105 186357 1 10 2 1 21504 187392
10.0 960 84 6827 0 2 0 29 84480 7936
10.0 209 87 128482 1 9 2 1 19712 129536
10.0 256 203 0 1 8 1 228 53248 1024
10.0 256 60 8244 4 8 4 24 16384 9344
10.0 768 32 14197 2 2 2 15 24576 15232
10.0 256 26 154205 1 8 8 1 8192 155264
10.0 640 103 0 0 3 0 228 66560 1024
10.0 128 248 98699 2 16 2 2 31744 99840
"""
"""cudaOccMaxActiveBlocksPerMultiprocessor of cuda_occupancy.h (CUDA 13.5), compiled for itself, with the largest
carve-out of shared memory: compute capability, threads, registers, bytes of shared memory | blocks, limits by warps, by
registers and by shared memory, registers and bytes of shared memory that one block takes."""
ROWS = [tuple(line.split()) for line in NVIDIA.split("\n") if line]


@pytest.mark.parametrize("row", [row for row in ROWS if row[4] != "0"], ids="-".join)
def test_it_agrees_with_nvidias_calculator(row):
    threads, registers, shared, blocks, warps, by_registers, by_shared, taken, held = map(int, row[1:])
    found = occupancy(threads, registers, shared, row[0])
    assert (found.blocks, found.limits["warps"], found.limits["registers"]) == (blocks, warps, by_registers)
    assert (found.registers, found.shared) == (taken, held)
    assert found.warps == blocks * -(-threads // 32) and found.share == found.warps / 64
    assert found.limits["shared memory"] == by_shared or held == 0


@pytest.mark.parametrize("row", [row for row in ROWS if row[4] == "0"], ids="-".join)
def test_a_block_that_nvidia_cannot_place_is_refused(row):
    with pytest.raises(ValueError, match=rf"registers is {row[2]}; a block of \d+ warps can have at most \d+ a thread"):
        occupancy(int(row[1]), int(row[2]), int(row[3]), row[0])


# worked in the open: kokkos pull request 5739 (92 registers round up to 96; 5 warps fit a quarter, so 20, not 21, a
# multiprocessor), and xmartlabs/cuda-calculator pull request 1 (85 registers, blocks of 128: 5)
@pytest.mark.parametrize(("threads", "registers", "blocks", "warps"), [(224, 92, 2, 14), (128, 85, 5, 20)])
def test_it_agrees_with_worked_examples(threads, registers, blocks, warps):
    found = occupancy(threads, registers, on="8.0")
    assert (found.blocks, found.warps, found.limiter) == (blocks, warps, ("registers",))


def test_the_refusal_names_the_most_registers_that_do_run():
    with pytest.raises(ValueError, match="at most 64 a thread"):
        occupancy(1024, 65)
    assert occupancy(1024, 64).blocks == 1


@given(st.sampled_from(sorted(CAPABILITIES)), st.integers(1, 1024), st.integers(0, 64), st.integers(0, 96 * 1024))
def test_what_fits_does_fit_and_one_more_does_not(on, threads, registers, shared):
    found, sm = occupancy(threads, registers, shared, on), CAPABILITIES[on]
    warps = -(-threads // 32)
    assert found.blocks == min(found.limits.values()) >= 1
    assert found.warps <= sm.warps and found.blocks <= sm.blocks
    assert found.blocks * found.registers <= sm.registers and found.blocks * found.shared <= sm.shared
    assert found.shared >= shared + sm.reserved and found.registers >= 32 * registers * warps
    one_more = found.blocks + 1
    part = -(-one_more * warps // 4)  # warps in the fullest quarter
    assert (
        one_more > sm.blocks or one_more * warps > sm.warps or one_more * found.shared > sm.shared
        or part * found.registers // warps > sm.registers // 4
    )  # fmt: skip


def test_a_device_stands_for_its_capability():
    assert occupancy(256, 64, on="H100") == occupancy(256, 64, on="9.0")
    assert occupancy(128, 32, 20_000, on="a100") == occupancy(128, 32, 20_000, on="8.0")


def test_the_words_say_what_stops_the_next_block():
    assert str(occupancy(256, 32)) == "8 blocks, 64 warps, 100% occupancy; limited by warps and registers"


def test_sweeps_are_staircases_down():
    registers = register_sweep(256)
    assert registers[32] == 1 and registers[64] == 0.5 and registers[255] == 0.125
    assert list(registers) == list(range(16, 256)) and list(registers.values()) == sorted(registers.values())[::-1]
    assert max(register_sweep(1024)) == 64
    shared = shared_sweep(128, 32)
    assert max(shared) == 227 * 1024 and shared[0] == 1 and shared[227 * 1024] == 1 / 16


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: occupancy(0, 32), "threads is 0; a whole number from 1 to 1,024"),
        (lambda: occupancy(1025, 32), "threads is 1025"),
        (lambda: occupancy(64.5, 32), "threads is 64.5"),
        (lambda: occupancy(64, 256), "registers is 256; a whole number from 0 to 255"),
        (lambda: occupancy(64, 32, -1), "shared is -1; a whole number from 0 to 232,448"),
        (lambda: occupancy(64, 32, 233_000), "shared is 233000"),
        (lambda: occupancy(64, 32, on="9.5"), "unknown compute capability '9.5'; there are 7.0, 8.0"),
        (lambda: occupancy(64, 32, on="H10"), "unknown accelerator 'H10'; did you mean .*H100"),
        (lambda: occupancy(64, 32, on="MI300X"), "on is 'MI300X'; a compute capability or an NVIDIA accelerator"),
        (lambda: register_sweep(2000), "threads is 2000"),
    ],
)
def test_bad_input_is_named(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
