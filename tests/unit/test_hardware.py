"""The catalogue against the published table beside the repository, and against the arithmetic of the links."""

import csv
import re
from dataclasses import FrozenInstanceError
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distgen_lab import hardware
from distgen_lab.hardware import (
    ACCELERATORS,
    CAPABILITIES,
    CPUS,
    LINKS,
    NODES,
    PODS,
    accelerator,
    bytes_of,
    capability,
    link,
    node,
    show,
    show_levels,
    show_links,
    show_nodes,
)  # fmt: skip


@pytest.fixture(scope="module")
def table(shared):
    with (shared / "data" / "accelerators.csv").open(encoding="utf-8", newline="") as file:
        return {re.split(r"-SXM| \(|-HGX", row["accelerator"])[0]: row for row in csv.DictReader(file)}


FILED = ("bf16", "fp8", "fp32")


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
    ours = {precision: peak for precision, peak in ACCELERATORS[name].flops.items() if precision in FILED}
    assert ours == pytest.approx(published, rel=1e-12)
    assert {precision: ACCELERATORS[name].peak(precision) for precision in published} == ours


@pytest.mark.parametrize(
    ("name", "precision", "tera"),
    [("A100", "tf32", 156), ("B200", "fp4", 9000), ("TPU v5p", "int8", 918), ("TPU v6e", "int8", 1836),
     ("TPU v5e", "int8", 393)],
)  # fmt: skip
def test_the_peaks_that_stand_in_the_notes_of_the_table(table, name, precision, tera):
    assert str(tera) in table[name]["confidence_and_notes"]
    assert accelerator(name).peak(precision) == tera * 1e12


@pytest.mark.parametrize("name", ACCELERATORS)
def test_links_and_ports_are_those_of_the_table(table, name):
    ours, kind = ACCELERATORS[name], table[name]["scaleup_kind"]
    assert int(re.match(r"\d+", kind)[0]) == ours.links
    rate = re.search(r"x ([\d.]+) GB/s", kind)
    if rate:
        assert ours.neighbour.bandwidth == float(rate[1]) * 1e9
    assert ours.scaleout is None or ours.scaleout == pytest.approx(ours.port.bandwidth * ours.ports)


@pytest.mark.parametrize(
    ("precision", "printed"), [("bf16", 1979e12), ("fp8", 3958e12)]
)  # NVIDIA's page, "with sparsity"
def test_peaks_are_dense_not_sparse(precision, printed):
    assert accelerator("H100").peak(precision) == pytest.approx(printed / 2, rel=1e-3)


def everything():
    """Every row of every catalogue that holds a number of a device, with the rows inside them."""
    rows = [*ACCELERATORS.values(), *LINKS.values(), *NODES.values(), *PODS.values(), *CPUS.values()]
    rows += CAPABILITIES.values()
    chips = [row.chip for row in ACCELERATORS.values() if row.chip]
    return [*rows, *chips, *(level for chip in chips for level in chip.levels)]


def test_everything_names_its_source_and_its_year():
    assert len(everything()) > 80
    for row in everything():
        assert len(row.source) > 10, row
        assert not hasattr(row, "year") or 2009 < row.year < 2027, row
    for catalogue in (ACCELERATORS, LINKS, NODES, PODS, CPUS, CAPABILITIES):
        assert all(name == row.name for name, row in catalogue.items())


@pytest.mark.parametrize("name", LINKS)
def test_both_ways_is_twice_per_direction(name):
    assert LINKS[name].both_ways == 2 * LINKS[name].bandwidth


GIGABITS = {
    "PCIe 3.0 x16": 8 * 16, "PCIe 4.0 x16": 16 * 16, "PCIe 5.0 x16": 32 * 16, "PCIe 6.0 x16": 64 * 16,
    "InfiniBand EDR port": 100, "InfiniBand HDR port": 200, "InfiniBand NDR port": 400, "InfiniBand XDR port": 800,
    "Slingshot-11 port": 200, "RoCE 100 GbE port": 100, "RoCE 200 GbE port": 200, "RoCE 400 GbE port": 400,
}  # fmt: skip
"""Line rates per direction."""
PRINTED = {
    "NVLink 2, one link": (6, 300), "NVLink 3, one link": (12, 600), "NVLink 4, one link": (18, 900),
    "NVLink 5, one link": (18, 1800), "NVLink-C2C": (1, 900), "NV-HBI": (1, 10000), "xGMI, one link": (7, 896),
    "ICI v4, one link": (6, 600), "ICI v5e, one link": (4, 400), "ICI v5p, one link": (6, 1200),
    "ICI v6e, one link": (4, 800),
}  # fmt: skip
"""Links and GB/s both ways, all of them together, as the vendors print them."""


@pytest.mark.parametrize("name", GIGABITS)
def test_ports_are_their_line_rate_over_eight(name):
    assert LINKS[name].bandwidth == GIGABITS[name] * 1e9 / 8


@pytest.mark.parametrize("name", PRINTED)
def test_links_add_up_to_what_vendors_print_both_ways(name):
    links, printed = PRINTED[name]
    assert links * LINKS[name].both_ways == printed * 1e9


def test_every_link_is_tested():
    assert set(LINKS) == set(GIGABITS) | set(PRINTED)


# what a node has, as its data sheet prints it: GB of HBM, GB/s both ways of all NVLinks, Gb/s out
SHEETS = {
    "DGX-1V": (256, 8 * 300, 400), "DGX A100": (640, 8 * 600, 1600), "DGX H100": (640, 7200, 3200),
    "DGX H200": (1128, 7200, 3200), "DGX B200": (1440, 14400, 3200), "GB200 NVL72": (13400, 130000, 28800),
    "MI300X platform": (1536, 8 * 896, 3200), "HLS-Gaudi 2": (768, 8 * 525, 2400), "HLB-325": (1024, 8400, 4800),
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_nodes_are_what_their_data_sheets_print(name):
    memory, both_ways, gigabits = SHEETS[name]
    row = NODES[name]
    assert row.memory == pytest.approx(memory * 1e9, rel=1e-3)
    assert 2 * row.injection == pytest.approx(both_ways * 1e9, rel=4e-3)
    assert row.network == gigabits * 1e9 / 8 == pytest.approx(row.count * row.device.scaleout)


def test_no_pair_gets_the_whole_nvlink_while_all_talk():
    row = node("DGX H100")
    pairs = row.count * (row.count - 1) / 2
    assert pairs * 2 * row.device.scaleup == 25.2e12 > 2 * row.injection == 7.2e12
    assert row.per_peer == pytest.approx(450e9 / 7)
    assert row.device.scaleup / row.nic.bandwidth == 9


def test_pods_are_as_large_as_google_says():
    assert [pod.chips for pod in PODS.values()] == [4096, 256, 8960, 256]
    printed = {"TPU v4 pod": 24e12, "TPU v5e pod": 1.6e12, "TPU v6e pod": 3.2e12}  # bisection bandwidth of a pod
    for name, bisection in printed.items():
        assert PODS[name].bisection == pytest.approx(bisection, rel=0.07), name


CHIPS = [name for name, row in ACCELERATORS.items() if row.chip]


@pytest.mark.parametrize("name", CHIPS)
def test_units_times_clock_is_the_published_peak(name):
    row = ACCELERATORS[name]
    assert row.chip.matrix_peak == pytest.approx(row.flops["bf16"], rel=4e-3)
    if row.chip.lanes:
        assert row.chip.vector_peak == pytest.approx(row.flops["fp32"], rel=4e-3)


def test_an_h100_holds_270_336_threads_in_16_896_lanes():
    chip = accelerator("H100").chip
    assert (chip.cores * chip.lanes, chip.threads, chip.bus) == (16896, 270336, 5120)
    sm = capability(chip.capability)
    assert (sm.registers, sm.l1, sm.shared, sm.shared_block) == (65536, 256 * 1024, 228 * 1024, 227 * 1024)


@pytest.mark.parametrize(("name", "terabytes", "over_hbm"), [("A100", 19.5, 9.6), ("H100", 33.5, 10.0)])
def test_shared_memory_is_ten_times_as_fast_as_hbm(name, terabytes, over_hbm):
    levels = {level.name: level.bandwidth for level in accelerator(name).levels}
    assert levels["shared memory and L1"] == pytest.approx(terabytes * 1e12, rel=3e-3)
    assert levels["shared memory and L1"] / levels["HBM"] == pytest.approx(over_hbm, abs=0.05)


@pytest.mark.parametrize("name", ACCELERATORS)
def test_memory_slows_from_the_inside_out(name):
    levels = [level for level in accelerator(name).levels if level.bandwidth]
    assert levels[-1].name == "HBM" and levels[-1].size == accelerator(name).memory
    assert all(a.bandwidth > b.bandwidth for a, b in pairwise(levels))


@pytest.mark.parametrize(("name", "share"), [("A100", 0.859), ("H100", 0.801), ("B200", 0.776)])
def test_the_fastest_measured_product_is_a_falling_share_of_the_peak(name, share):
    row = accelerator(name)
    assert row.measured / row.peak() == pytest.approx(share, abs=6e-4)


def test_a_server_processor():
    epyc = CPUS["EPYC 9654"]
    assert (epyc.cores, epyc.boost_clock, epyc.memory_bandwidth) == (96, 3.7e9, 460.8e9)
    assert epyc.peak == 96 * 2 * 8 * 2 * 2.4e9  # two multiply-adds of 8 FP32 values


@pytest.mark.parametrize(
    ("name", "precision", "printed"),
    [("H100", "bf16", 1979e12), ("H100", "fp8", 3958e12), ("A100", "bf16", 624e12), ("B200", "fp8", 9000e12),
     ("MI300X", "fp8", 5229.8e12), ("H100", "fp32", 66.9e12), ("TPU v4", "bf16", 275e12)],
)  # fmt: skip
def test_the_rate_with_sparsity_is_the_one_data_sheets_print(name, precision, printed):
    assert accelerator(name).sparse(precision) == pytest.approx(printed, rel=1e-3)


def test_fp16_runs_at_the_rate_of_bf16_and_bytes_are_known():
    assert accelerator("V100").peak("fp16") == 125e12
    assert [bytes_of(kind) for kind in ("fp64", "tf32", "bf16", "fp8", "fp4")] == [8, 4, 2, 1, 0.5]
    with pytest.raises(ValueError, match="unknown precision 'fp12'; there are fp64, fp32"):
        bytes_of("fp12")


# ----------------------------------------------------------------------------- tables


def column(table, head):
    return [row[table.heads.index(head)] for row in table.rows]


def test_the_table_is_sorted_by_a_key():
    numbers = [float(text.replace(",", "")) for text in column(show(by="memory"), "HBM, GB")]
    assert len(numbers) == len(ACCELERATORS) and numbers == sorted(numbers, reverse=True)
    names = column(show(by="name"), "name")
    assert names == sorted(names) and set(names) == set(ACCELERATORS)


def test_what_is_not_published_stands_at_the_end_as_a_dash():
    powers = column(show(by="power"), "power, W")
    assert powers[-3:] == ["-"] * 3 and "-" not in powers[:-3]


def test_the_table_of_some_has_units_and_both_directions():
    shown = show("h100", "A100", by="bf16")
    assert column(shown, "name") == ["H100", "A100"]
    assert column(shown, "neighbours per direction, GB/s") == ["450", "300"]
    assert column(shown, "neighbours both ways, GB/s") == ["900", "600"]
    assert column(shown, "year") == ["2022", "2020"]
    html, text = shown._repr_html_(), repr(shown)
    assert html.count("<tr>") == 3 and "FLOP/B" in html and text.splitlines()[1].startswith("H100  NVIDIA  2022  989.4")


@pytest.mark.parametrize(("table_of", "rows"), [(show_links, LINKS), (show_nodes, NODES)])
def test_links_and_nodes_have_tables(table_of, rows):
    assert set(column(table_of(by="name"), "name")) == set(rows)


def test_the_levels_of_a_device_have_their_ridges():
    shown = show_levels("H100")
    assert column(shown, "level") == ["registers", "shared memory and L1", "L2", "HBM"]
    assert column(shown, "ridge in 16 bit") == ["-", "29.6 FLOP/B", "-", "295 FLOP/B"]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [(lambda: show(by="speed"), "by is 'speed'; a column is needed: name, vendor"),
     (lambda: show("H10"), "unknown accelerator 'H10'; did you mean .*H100"),
     (lambda: link("NVLink 4"), "unknown link 'NVLink 4'; did you mean .*NVLink 4, one link"),
     (lambda: node("DGX H10"), "unknown node 'DGX H10'; did you mean .*DGX H100"),
     (lambda: capability("9.1"), "unknown compute capability '9.1'; there are 7.0, 8.0, 9.0, 10.0")],
)  # fmt: skip
def test_unknown_names_are_answered_with_known_ones(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


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
