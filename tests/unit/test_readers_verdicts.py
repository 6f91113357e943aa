"""Verdicts: what `distgen read` says of healthy and of sick machines, its JSON, and its exit codes."""

import json
import subprocess
import sys

import pytest

from distgen_lab import sample
from distgen_lab.cli import main
from distgen_lab.readers import read, read_topology, verdict
from distgen_lab.readers.saying import percent

HEAD = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"


def run_log(tmp_path, busbw, ranks=8, per_node=8, name="NVIDIA H100 80GB HBM3", wrong=0, powers=range(26, 34)):
    """An all-reduce log whose large sizes reach a bus bandwidth in GB/s."""
    lines = [f"#  Rank {r} Group 0 Pid 1 on n{r // per_node} device {r % per_node} [0x0f] {name}" for r in range(ranks)]
    for power in powers:
        time = round(2**power * 2 * (ranks - 1) / ranks / (busbw * 1e3), 1)
        rate = 2**power / time / 1e3
        side = f"{time:.1f} {rate:.2f} {rate * 2 * (ranks - 1) / ranks:.2f} {wrong}"
        lines.append(f"{2**power} {2 ** (power - 2)} float sum -1 {side} {side}")
    path = tmp_path / "run.log"
    path.write_text("\n".join(lines[:ranks]) + "\n" + HEAD + "\n".join(lines[ranks:]) + "\n", encoding="utf-8")
    return path


def judged(tmp_path, *args, machine=None, device=None, **more):
    (one,) = verdict.of(read(run_log(tmp_path, *args, **more)), machine=machine, device=device)
    return one


@pytest.mark.parametrize(
    "ranks, busbw, healthy, cause",
    [
        (8, 365, True, "NVLS off"),
        (8, 475, True, "NVLS"),
        (8, 20, False, "PCIe instead of NVLink"),
        (8, 180, False, "NVLinks down"),
        (16, 360, True, ""),
        (16, 470, True, "NVLS"),
        (16, 322, False, "1 of 8 NICs"),
        (16, 276, False, "2 of 8 NICs"),
        (16, 45, False, "one NIC a node"),
        (16, 3, False, "TCP sockets"),
        (16, 110, False, "network below"),
    ],
)
def test_health_and_the_likely_cause(tmp_path, ranks, busbw, healthy, cause):
    one = judged(tmp_path, busbw, ranks)
    assert one.healthy is healthy and one.headline.startswith("healthy" if healthy else "NOT healthy")
    assert cause in " ".join(map(str, one.findings)) and one.facts["ranks"] == ranks
    assert one.facts["expected_busbw"] == pytest.approx(370e9, rel=0.02)
    assert one.facts["peak_busbw"] == pytest.approx(busbw * 1e9, rel=0.01) and one.facts["ratio"] == pytest.approx(
        busbw / 370, rel=0.03
    )


def test_a_log_without_a_known_gpu_is_not_judged_unless_it_is_named(tmp_path):
    unknown = judged(tmp_path, 60, name="Tesla K80")
    assert (
        unknown.healthy is None and "not in the catalogue" in str(unknown) and unknown.facts["expected_busbw"] is None
    )
    assert judged(tmp_path, 230, name="", device="A100").healthy is True
    with pytest.raises(ValueError, match="A1000"):
        judged(tmp_path, 230, device="A1000")


def test_a_topology_gives_the_expectation(tmp_path):
    machine = read_topology(sample("topology-gpu-off-nvlink.txt"))
    one = judged(tmp_path, 23, machine=machine)
    assert one.healthy is True and "topology's rings" in str(one) and one.facts["expected_busbw"] == 24e9


def test_wrong_elements_are_never_healthy(tmp_path):
    one = judged(tmp_path, 365, wrong=2)
    assert one.healthy is False and one.findings[0].level == "problem" and "32 wrong elements" in one.findings[0].what


def test_small_sizes_are_not_judged_hard(tmp_path):
    one = judged(tmp_path, 10, powers=range(16, 22))
    assert one.healthy is None
    assert any("run to 1 GiB" in f.what for f in one.findings) and not any(f.level == "problem" for f in one.findings)


def test_a_gpu_off_nvlink_and_nics_across_sockets():
    (one,) = verdict.of(read(sample("topology-gpu-off-nvlink.txt")))
    assert (
        one.healthy is False
        and one.findings[0].what.startswith("GPU5 is off NVLink")
        and "371 GB/s" in one.findings[0].what
    )
    assert one.facts["links_per_gpu"][5] == 0 and one.facts["nearest_nics"]["GPU0"] == {
        "code": "PIX",
        "nics": ["mlx5_0"],
    }


def test_nics_across_sockets(tmp_path):
    text = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\t X \tNV12\tPIX\t0\nGPU1\tNV12\t X \tSYS\t1\nNIC0\tPIX\tSYS\t X \n"
    path = tmp_path / "t.txt"
    path.write_text(text, encoding="utf-8")
    (one,) = verdict.of(read(path))
    assert one.healthy is False and "GPU1: the nearest NIC lies across sockets" in str(one)
    path.write_text(text.replace("PIX", "SYS"), encoding="utf-8")
    (one,) = verdict.of(read(path))
    assert one.healthy is True and "virtual machine" in str(one)


def test_a_config_counts_devices_as_scale_does():
    (one,) = verdict.of(read(sample("llama-2-7b.json")), "x.json")
    assert one.facts["parameters"] == 6738415616 and one.facts["kv_bytes_per_token"] == 2 * 32 * 4096 * 2
    assert one.facts["fewest_devices"]["H100"] == {"weights": 1, "training": 2}  # 13.5 GB and 107.8 GB in 72 GB each
    assert "6,738,415,616 parameters" in one.headline and "524 kB a token" in str(one)


def test_a_trace_says_what_is_exposed_and_what_buckets_would_hide():
    verdicts, errors = verdict.judge([sample("trace-rank0.json.gz"), sample("trace-rank1.json.gz")])
    (one,) = verdicts
    assert (
        not errors and "of the time is exposed all-reduce; buckets of" in one.headline and "would hide" in one.headline
    )
    assert one.facts["straggler"] == 1 and one.facts["overlap"][0] == pytest.approx(0.59, abs=0.02)
    assert 0 < one.facts["hidden"] < one.facts["exposed"][0] and "over all 2 ranks" in one.lines
    (alone,), _ = verdict.judge([sample("trace-rank0.json.gz")])
    assert "over 1 of 2 ranks only" in alone.lines and not alone.facts["waiting"]


def test_the_device_settles_the_links_of_a_topology():
    (plain,), _ = verdict.judge([sample("topology-gpu-off-nvlink.txt")])
    (named,), _ = verdict.judge([sample("topology-gpu-off-nvlink.txt")], device="B200")
    assert "371 GB/s" in str(plain) and "722 GB/s" in str(named) and "B200 has as many" not in str(named)


def test_percent():
    assert [percent(x) for x in (0.384, 1.0, 0.01, 0.004, 0.0, 1e-12)] == [
        "38 %",
        "100 %",
        "1 %",
        "0.4 %",
        "0 %",
        "0 %",
    ]


# ----------------------------------------------------------------------------- the command


KEYS = ["file", "kind", "headline", "healthy", "lines", "findings", "facts", "notes"]


def test_the_command_reads_every_packaged_kind(capsys):
    names = [
        "gpt2.json",
        "topology-gpu-off-nvlink.txt",
        "nccl-topology-4-h100.xml",
        "nccl-tests-16-h100.log",
        "osu-latency.txt",
        "trace-rank0.json.gz",
    ]
    assert main(["read", *(str(sample(name)) for name in names), "--json"]) == 1
    out = json.loads(capsys.readouterr().out)
    assert out["schema"] == 1 and out["errors"] == []
    assert [v["kind"] for v in out["verdicts"]] == ["config", "topology", "nccl-xml", "nccl-tests", "osu", "trace"]
    documented = verdict.Verdict.as_json.__doc__
    for one in out["verdicts"]:
        assert list(one) == KEYS and all(key in documented for key in (*KEYS, *one["facts"]))


def test_exit_codes_and_errors(tmp_path, capsys):
    broken = tmp_path / "broken.log"
    broken.write_text("# nothing\n", encoding="utf-8")
    assert main(["read", str(sample("gpt2.json"))]) == 0
    assert "124,439,808 parameters" in capsys.readouterr().out
    assert main(["read", str(broken), str(sample("gpt2.json"))]) == 2
    said = capsys.readouterr()
    assert f"distgen read: {broken}, line 1" in said.err and "124,439,808" in said.out
    assert main(["read", str(broken), "--json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["file"] == str(broken) and error["line"] == 1 and set(error) == {"file", "line", "field", "message"}
    assert (
        main(["read", str(broken), "--kind", "nonsense"]) == 2
        and main(["read", str(sample("gpt2.json")), "--kind", "osu"]) == 2
    )


def test_reading_takes_nothing_heavy():
    code = (
        "import sys, distgen_lab.readers.verdict;"
        "print([m for m in ('torch', 'matplotlib', 'mpi4py', 'ipywidgets') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_no_reader_stands_on_an_upper_floor(repo):
    import ast

    for path in (repo / "distgen_lab" / "readers").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [a.name for a in getattr(node, "names", [])]
                if isinstance(node, ast.Import)
                else []
            )
            assert not any(
                n.startswith(f"distgen_lab.{up}")
                for n in names
                for up in ("bench", "ranks", "plots", "cli", "labs", "demos", "grading")
            ), path


def test_a_notebook_shows_the_name_of_the_file_and_a_terminal_its_path():
    path = sample("topology-gpu-off-nvlink.txt")
    (said,) = verdict.of(read(path))
    assert str(said).startswith(f"{path} (topology)") and repr(said).startswith(f"{path.name} (topology)")
    assert repr(said).splitlines()[1:] == str(said).splitlines()[1:]
    assert str(path.parent) not in repr(said) + said._repr_html_()
    assert said._repr_html_().count("<li>") == len(str(said).splitlines()) - 2


def test_html_of_a_verdict_holds_no_markup_of_the_file(tmp_path):
    text = sample("topology-gpu-off-nvlink.txt").read_text("utf-8").replace("mlx5_0", "<b>mlx&5_0</b>")
    (tmp_path / "node.txt").write_text(text, encoding="utf-8")
    (said,) = verdict.of(read(tmp_path / "node.txt"))
    assert "<b>mlx" not in said._repr_html_() and "&lt;b&gt;mlx&amp;5_0" in said._repr_html_()


def test_amd_machines_are_said_to_run_rccl():
    (said,) = verdict.of(read(sample("topology-8-mi300x.txt")))
    assert "RCCL can lay 7 rings" in said.headline and said.facts["rings"] == 7
    (log,) = verdict.of(read(sample("rccl-tests-8-mi300x.csv")), machine=read(sample("topology-8-mi300x.txt")))
    assert log.healthy and log.facts["expected_busbw"] == pytest.approx(7 * 48e9)
