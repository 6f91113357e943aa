"""Readers against the real files beside the repository: every expected value of their manifest, or a clear refusal."""

import csv
import json
import re
from collections import Counter

import pytest

from distgen_lab.models import ModelShape
from distgen_lab.readers import ReadError, read, read_topology, read_trace, recognise

KINDS = {
    "hf_config": "config",
    "nvsmi_topo": "topology",
    "nccl_topo_xml": "nccl-xml",
    "nccl_tests": "nccl-tests",
    "osu": "osu",
    "kineto": "trace",
}
REFUSED = {  # real files that hold too little, or a known defect of the tool, and model families that are not counted
    "hf_config/22-nemotron-3-nano-30b.json": "model_type",
    "hf_config/23-nemotron-super-49b.json": "model_type",
    "hf_config/38-chatglm3-6b.json": "model_type",
    "hf_config/59-mamba-2.8b.json": "model_type",
    "nvsmi_topo/39-rocm-mi300-tpx-xxxx.txt": "Weight between two GPUs",
    "nccl_topo_xml/08-aws-g5.xml": "class",
    "kineto/27-cut-plain.json": "line 13820.*cut",
}
NAMED = {  # what the message about a broken file must name, from the manifest's own words
    "01-hf": "17",
    "04-hf": "binary",
    "05-hf": "num_hidden_layers.*-32",
    "06-hf": "hidden_size",
    "07-hf": "hidden_size.*twice",
    "08-hf": "num_attention_heads.*33.*hidden_size 4096.*head_dim",
    "09-hf": "num_key_value_heads.*5.*num_attention_heads 32",
    "10-hf": "hidden_size.*string",
    "11-hf": "num_hidden_layers.*32.5",
    "13-hf": "line 33",
    "15-hf": "line 2.*UTF-8",
    "17-hf": "line 9.*CONFIG_HIDDEN_SIZE",
    "18-hf": "list.*object",
    "20-hf": "num_experts_per_tok.*16.*num_local_experts 8",
    "21-hf": "line 1.*HTML",
    "22-hf": "vocab_size.*0",
    "29-topo": "GPU0.*NV12.*GPU1.*NV6",
    "30-topo": "line 5.*GPU1.*twice",
    "31-topo": "GPU3.*missing.*8 GPUs",
    "32-topo": 'line 5.*"QPI"',
    "33-topo": "line 5.*X off the diagonal",
    "34-topo": 'line 5.*"NV-2"',
    "36-topo": "topo -m",
    "37-topo": "NVIDIA-SMI has failed",
    "39-xml": "line 20.*ends early",
    "42-xml": 'line 3.*link_speed.*"fast"',
    "43-xml": "line 2.*DOCTYPE",
    "47-xml": "line 1.*not XML",
    "48-nccl": 'line 5.*"XXXXX"',
    "49-nccl": "line 29.*busbw below zero",
    "50-nccl": "line 29.*size",
    "52-nccl": "line 30 repeats line 29",
    "54-nccl": "1.0.*464.075",
    "59-nccl": "no rows, no header",
    "65-osu": "line 16.*2048.*another value",
    "69-kin": "no traceEvents",
    "70-kin": r"event 5 \(kernel\).*dur below zero",
    "71-kin": r"event 5 \(kernel\).*no dur",
    "72-kin": r"event 5 \(kernel\).*ts is not a number",
    "76-kin": "empty after unpacking",
}
VALUES = {"35-topo", "55-nccl", "56-nccl", "57-nccl", "67-osu"}  # better read than refused


@pytest.fixture(scope="module")
def manifest(shared):
    folder = shared / "inputs"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here: the real files do not travel with the repository")
    with (folder / "manifest.csv").open(encoding="utf-8", newline="") as file:
        return [
            (row["kind"], row["file"], folder / row["file"], json.loads(row["expected"]))
            for row in csv.DictReader(file)
        ]


def of_kind(manifest, kind):
    found = [(name, path, wanted) for its, name, path, wanted in manifest if its == kind]
    assert found
    return found


def try_all(rows, check):
    """Right, refused and wrong; a wrong value is an assertion error of ``check``."""
    counts = Counter()
    for name, path, wanted in rows:
        try:
            thing = read(path)
        except ReadError as error:
            assert name in REFUSED and re.search(REFUSED[name], str(error)), str(error)
            assert str(path) in str(error)
            counts["refused"] += 1
        else:
            assert name not in REFUSED, name
            check(thing, wanted)
            counts["right"] += 1
    return counts


def close(mine, wanted, slack=2e-3):
    assert mine == pytest.approx(wanted, abs=slack), (mine, wanted)


def test_every_file_is_recognised_by_its_content(manifest, tmp_path):
    for kind, _, path, _wanted in manifest:
        if kind != "bad":
            assert recognise(path) == KINDS[kind], path
            plain = tmp_path / "file.txt"  # without the help of its name
            plain.write_bytes(path.read_bytes())
            assert recognise(plain) == KINDS[kind], path


def test_configs(manifest):
    def check(shape, wanted):
        assert isinstance(shape, ModelShape) and shape.parameters == wanted["total_params"]
        assert shape.active_parameters == wanted.get("active_params", shape.parameters)
        if wanted.get("kv_bytes_per_token_bf16"):
            assert shape.kv_bytes_per_token() == wanted["kv_bytes_per_token_bf16"]

    counts = try_all(of_kind(manifest, "hf_config"), check)
    assert counts["refused"] == 4 and counts["right"] >= 20


def check_topology(machine, wanted):
    names = [gpu.name for gpu in machine.gpus]
    assert (machine.tool, machine.hosts) == (wanted["tool"], wanted["gpus"]) and len(names) == wanted["gpus"]
    assert machine.pair_counts() == wanted["gpu_pair_counts"]
    for pair, code in wanted["gpu_links"].items():
        assert machine.link(*pair.split("-")) == machine.link(*pair.split("-")[::-1]) == code
    if "nic_names" in wanted:
        assert [nic.shown for nic in machine.nics] == wanted["nic_names"]
        assert machine.pair_links() == wanted["nvlinks_per_gpu"]
    for one in machine.nearest():
        if one.gpu in wanted.get("nearest_nic", ()):
            code, nics = wanted["nearest_nic"][one.gpu]
            assert (one.code, list(one.nics)) == (code, nics)
    if "weight_0_1" in wanted:
        assert machine.facts_read["Weight"]["GPU0", "GPU1"] == wanted["weight_0_1"]
        assert machine.facts_read["Hops"]["GPU0", "GPU1"] == wanted["hops_0_1"]


def test_topologies(manifest):
    assert try_all(of_kind(manifest, "nvsmi_topo"), check_topology) == {"right": 7, "refused": 1}


def test_xml_topologies(manifest):
    vias = {"PIX": "pci", "PXB": "pci", "PHB": "cpu", "SYS": "SYS"}

    def check(machine, wanted):
        facts = json.loads(json.dumps(machine.facts_read))
        compared = facts.keys() & wanted.keys()
        assert {"gpus", "nics", "net_ports", "bridges", "pci_depth", "gpu_busids", "gpu_link", "nic_link"} <= compared
        assert {key: facts[key] for key in compared} == {key: wanted[key] for key in compared}
        nearest = {one.gpu: one for one in machine.nearest()}
        busids = {nic.name: nic for nic in machine.nics}
        for gpu, near in wanted.get("nearest_nics", {}).items():
            assert vias[nearest[gpu].code] == near["via"]
            if near["nics"] and near["nics"][0] in busids:
                assert list(nearest[gpu].nics) == near["nics"]
        for kind in ("nvlink", "xgmi"):
            if f"{kind}_gpu_pairs" in wanted:
                assert sum(bundle.other is not None for bundle in machine.bundles) == wanted[f"{kind}_gpu_pairs"]

    assert try_all(of_kind(manifest, "nccl_topo_xml"), check) == {"right": 8, "refused": 1}


def check_log(log, wanted):
    (run,) = log
    peak = run.peak
    assert (run.lines, run.broken, run.ranks) == (wanted["rows"], wanted["rows_broken"], wanted["ranks"])
    assert (run.dtype, run.redop, run.root) == (wanted["dtype"], wanted["redop"], wanted["root"])
    assert run.op == wanted["op"] if wanted["op"] else run.op_from.startswith("not in the file")
    sizes = [row.nbytes for row in run.rows]
    assert (min(sizes), max(sizes)) == (wanted["min_size"], wanted["max_size"])
    close(peak.busbw / 1e9, wanted["peak_busbw"], 1e-6)
    assert (peak.nbytes, peak.place) == (wanted["peak_size"], wanted["peak_side"])
    close(run.average / 1e9, wanted["mean_busbw_of_rows"], 1e-4)
    assert run.wrong == wanted["wrong_total"]
    assert (run.printed_average is None) == (wanted["avg_busbw_printed"] is None)
    if run.printed_average:
        close(run.printed_average / 1e9, wanted["avg_busbw_printed"], 1e-6)
    assert (run.out_of_bounds is None) == (wanted["out_of_bounds"] is None) and not run.out_of_bounds
    if "max_error" in wanted:
        assert max(row.error for row in run.rows) == wanted["max_error"]
    if wanted["status"].startswith("numbers inconsistent"):
        assert any("contradict" in note for note in run.notes)


def test_benchmark_logs(manifest):
    assert try_all(of_kind(manifest, "nccl_tests"), check_log) == {"right": 28}


def test_osu_tables(manifest):
    def check(log, wanted):
        assert len(log) == wanted["tables"]
        table, wanted = log[0], wanted["table"]
        assert (table.title, table.version, table.unit) == (wanted["title"], wanted["version"], wanted["unit"])
        assert (len(table.columns), len(table.rows)) == (wanted["value_columns"], wanted["rows"])
        for row, cells in ((table.rows[0], wanted["first"]), (table.rows[-1], wanted["last"])):
            assert [*([row.nbytes] if table.has_sizes else []), *row.values] == list(map(float, cells))
        values = [row.values[0] for row in table.rows]
        assert (min(values), max(values)) == (wanted["min"], wanted["max"])
        assert table.best.nbytes == wanted.get("best_at_size") and table.has_sizes == wanted.get("size_column", True)

    assert try_all(of_kind(manifest, "osu"), check) == {"right": 13}


def test_traces(manifest):
    def check(trace, wanted):
        mine = {
            "form": trace.form,
            "events": trace.events,
            "kernel_events": trace.kernels,
            "streams": trace.streams,
            "nccl_kernels": trace.communication_kernels,
            "memcpy_memset": len(trace.start) - trace.kernels,
            "flow_events": trace.flows,
            "nccl_in_name_but_not_kernel": trace.named_elsewhere,
        }
        assert mine == {key: wanted[key] for key in mine}
        assert (trace.rank, trace.world_size, trace.backend) == tuple(
            map(wanted.get, ("rank", "world_size", "backend"))
        )
        shares = trace.shares()
        if "kernel_time_sum_us" not in wanted:
            assert shares is None and any("no GPU kernel" in note for note in trace.notes)
            return
        close(trace.kernel_sum * 1e6, wanted["kernel_time_sum_us"])
        close(trace.communication_sum * 1e6, wanted["comm_time_sum_us"])
        close(shares.compute * 1e6, wanted["compute_union_us"])
        close(shares.communication * 1e6, wanted["comm_time_union_us"])
        close(shares.exposed * 1e6, wanted["exposed_comm_us"])

    counts = try_all(of_kind(manifest, "kineto"), check)
    assert counts["refused"] == 1 and counts["right"] >= 14


READER = {"kineto": read_trace, "nvsmi_topo": read_topology}


def test_broken_files_are_refused_with_line_and_field_or_read_right(manifest):
    seen = set()
    for name, path, wanted in of_kind(manifest, "bad"):
        key = "-".join(name.removeprefix("bad/").split("-")[:2])
        seen.add(key)
        if key in VALUES:
            check_values(key, READER.get(wanted["reader"], read)(path), wanted["values"])
            continue
        with pytest.raises(ReadError) as caught:
            READER.get(wanted["reader"], read)(path)
        assert re.search(NAMED[key], str(caught.value), re.DOTALL), str(caught.value)
        assert str(path) in str(caught.value) and caught.value.file == str(path)
    assert seen == NAMED.keys() | VALUES


def check_values(key, thing, wanted):
    if key.endswith("topo"):
        assert (thing.hosts, len(thing.nics), thing.pair_counts()) == (
            wanted["gpus"],
            wanted["nics"],
            wanted["gpu_pair_counts"],
        )
    elif key.endswith("nccl"):
        assert thing[0].lines == wanted["rows"]
        close(thing[0].average / 1e9, wanted["avg_busbw"], 1e-6)
    else:
        rows = thing[0].rows
        assert len(rows) == wanted["rows"] and [rows[-1].nbytes, rows[-1].values[0]] == list(map(float, wanted["last"]))
