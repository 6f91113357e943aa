"""The catalogue against the published table beside the repository, and against the arithmetic of the links."""

import csv
import re
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distgen_lab import hardware
from distgen_lab.hardware import ACCELERATORS, LINKS, NODES, accelerator


@pytest.fixture(scope="module")
def table(shared):
    with (shared / "data" / "accelerators.csv").open(encoding="utf-8", newline="") as file:
        return {re.split(r"-SXM| \(|-HGX", row["accelerator"])[0]: row for row in csv.DictReader(file)}


def number(text: str, scale: float = 1.0) -> float | None:
    return float(text) * scale if text else None


def test_the_catalogue_holds_the_published_accelerators(table):
    assert set(ACCELERATORS) == set(table) and len(table) == 14


@pytest.mark.parametrize("name", ACCELERATORS)
def test_every_number_is_the_published_one(table, name):
    ours, row = ACCELERATORS[name], table[name]
    assert (ours.vendor, ours.year) == (row["vendor"], int(row["year"]))
    assert ours.memory == float(row["hbm_GB"]) * 1e9
    assert ours.memory_bandwidth == float(row["hbm_GBps"]) * 1e9
    assert ours.scaleup == float(row["scaleup_per_direction_GBps"]) * 1e9
    assert 2 * ours.scaleup == float(row["scaleup_bidirectional_GBps"]) * 1e9
    assert ours.scaleout == number(row["scaleout_per_direction_GBps"], 1e9)
    assert ours.power == number(row["tdp_W"])
    assert ours.ridge == pytest.approx(float(row["ridge_flop_per_byte"]), abs=0.06)


@pytest.mark.parametrize("name", ACCELERATORS)
def test_every_dense_peak_is_the_published_one(table, name):
    row = table[name]
    published = {"bf16": row["fp16_bf16_dense_tflops"], "fp8": row["fp8_dense_tflops"], "fp32": row["fp32_tflops"]}
    published = {precision: float(text) * 1e12 for precision, text in published.items() if text}
    assert ACCELERATORS[name].flops == pytest.approx(published, rel=1e-12)
    assert {precision: ACCELERATORS[name].peak(precision) for precision in published} == ACCELERATORS[name].flops


@pytest.mark.parametrize(
    ("precision", "printed"), [("bf16", 1979e12), ("fp8", 3958e12)]
)  # NVIDIA's page, "with sparsity"
def test_peaks_are_dense_not_sparse(precision, printed):
    assert accelerator("H100").peak(precision) == pytest.approx(printed / 2, rel=1e-3)


def test_everything_names_its_source():
    for row in [*ACCELERATORS.values(), *LINKS.values(), *NODES.values()]:
        assert len(row.source) > 10, row.name
    for catalogue in (ACCELERATORS, LINKS, NODES):
        assert all(name == row.name for name, row in catalogue.items())


@pytest.mark.parametrize(
    ("name", "gigabits"),
    [("PCIe 5.0 x16", 32 * 16), ("NVLink 4, one link", 900 * 8 / 2 / 18), ("InfiniBand NDR port", 400),
     ("InfiniBand XDR port", 800)],
)  # fmt: skip
def test_links_are_their_line_rate_over_eight(name, gigabits):
    assert LINKS[name].bandwidth == gigabits * 1e9 / 8
    assert LINKS[name].both_ways == 2 * gigabits * 1e9 / 8


def test_every_link_is_tested():
    assert len(LINKS) == 4


def test_a_dgx_h100_has_640_gb_and_eight_400_gigabit_ports():
    node = NODES["DGX H100"]
    assert node.memory == 640e9
    assert node.network == 8 * 400e9 / 8 == node.count * node.device.scaleout
    assert node.device.scaleup == 18 * LINKS["NVLink 4, one link"].bandwidth


@given(st.sampled_from(sorted(ACCELERATORS)), st.sampled_from([str.lower, str.upper, str.title]))
def test_a_name_is_found_in_upper_or_lower_case(name, spell):
    assert accelerator(spell(name)) is ACCELERATORS[name]


@given(st.sampled_from(sorted(ACCELERATORS)), st.data())
def test_a_misspelt_name_suggests_names_that_exist(name, data):
    place = data.draw(st.integers(1, len(name) - 1))
    wrong = name[:place] + data.draw(st.sampled_from(["", "-", "x", name[place] * 2])) + name[place + 1 :]
    if wrong.lower() in {known.lower() for known in ACCELERATORS}:
        return
    with pytest.raises(ValueError) as caught:
        accelerator(wrong)
    said, _, near = str(caught.value).partition("; did you mean ")
    assert said == f"unknown accelerator {wrong!r}"
    assert set(near.removesuffix("?").split(", ")) <= set(ACCELERATORS)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("H10", "H100"), ("A100-SXM", "A100"), ("TPUv4", "TPU v4"), ("gaudi3", "Gaudi 3"), ("MI300", "MI300X"),
     ("B300", "B200"), ("??", "V100")],
)  # fmt: skip
def test_an_unknown_name_suggests_near_ones(wrong, near):
    with pytest.raises(ValueError, match=rf"unknown accelerator .*did you mean .*\b{near}\b"):
        accelerator(wrong)


def test_a_precision_it_lacks_lists_those_it_has():
    with pytest.raises(ValueError, match="V100 has no fp8 rate here; it has fp32, bf16"):
        accelerator("V100").peak("fp8")


def test_entries_cannot_be_changed_and_can_be_kept_in_a_set():
    with pytest.raises(FrozenInstanceError):
        accelerator("H100").memory = 1
    assert len({*ACCELERATORS.values()}) == len(ACCELERATORS)


def test_the_public_names_exist():
    assert all(hasattr(hardware, name) for name in hardware.__all__)
