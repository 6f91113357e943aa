"""The measured roofline: counts, arithmetic and command line; no assertion depends on how fast this machine is."""

import json
import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from distgen_lab.labs import roofline as lab
from distgen_lab.labs.roofline import Measured, Placed, Prediction
from distgen_lab.roofline import Work, layernorm, matmul

pytestmark = pytest.mark.slow

MEASURED = Measured("a machine", "fp32", 1e11, 1e-6, (1000, 10_000, 1_000_000), (4e10, 2e10, 1e10))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A short run of everything, with its file and the lines it showed."""
    file, lines = tmp_path_factory.mktemp("roofline") / "found.json", []
    patch = pytest.MonkeyPatch()
    patch.setitem(lab.MATMULS, "cpu", (32, 64))
    patch.setitem(lab.WORKING_SETS, "cpu", (2**12, 2**16))
    fast = lab.fastest
    patch.setattr(lab, "fastest", lambda call, device="cpu", seconds=0: fast(call, device, 1e-4))
    before = torch.get_num_threads()
    prediction = lab.lab("cpu", file=str(file), threads=1, progress=lines.append)
    patch.undo()
    assert torch.get_num_threads() == before
    return prediction, json.loads(file.read_text()), lines


def test_a_run_measures_places_and_predicts(found):
    prediction, facts, lines = found
    measured = prediction.measured
    assert measured.precision == "fp32" and measured.device.endswith("1 thread")
    assert measured.peak > 0 and measured.overhead > 0 and measured.working_sets == tuple(2**k for k in range(12, 17))
    assert len(measured.bandwidths) == 5 and min(measured.bandwidths) > 0
    assert len(lines) == 2 + 5 + len(prediction.placed) and "predicted" in lines[-1]
    for row in prediction.placed:
        assert row.predicted == measured.predict(row.work) > 0 and row.seconds > 0
    assert facts["peak"] == measured.peak and len(facts["kernels"]) == len(prediction.placed)
    assert facts["typical_factor"] == prediction.typical_factor >= 1


def test_the_text_states_the_error(found):
    text = str(found[0])
    assert f"{found[0].typical_factor:.2f} (median)" in text and found[0].worst.work.name in text
    assert text.count("ratio") == len(found[0].placed)


def test_the_kernels_do_the_work_they_claim():
    pairs = lab.kernels("cpu", "fp32")
    assert len({work.name for work, _ in pairs}) == len(pairs) >= 10
    counted = 0
    for work, call in pairs:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            call()
        if counter.get_total_flops():  # torch counts products only
            assert counter.get_total_flops() == work.flops, work.name
            counted += 1
    assert counted >= 5


def test_bandwidth_between_sizes_is_read_off_by_the_logarithm():
    assert MEASURED.bandwidth_at(1) == MEASURED.bandwidth_at(1000) == 4e10
    assert MEASURED.bandwidth_at(10_000) == pytest.approx(2e10)
    assert MEASURED.bandwidth_at(math.sqrt(1000 * 10_000)) == pytest.approx(3e10)
    assert MEASURED.bandwidth_at(100_000) == pytest.approx(1.5e10)
    assert MEASURED.bandwidth_at(1e12) == MEASURED.main_memory == 1e10


def test_a_prediction_is_an_empty_call_and_the_longer_of_computing_and_moving():
    assert MEASURED.predict(Work("x", 1e9, 1e4)) == pytest.approx(1e-6 + 1e-2)
    assert MEASURED.predict(Work("x", 1e3, 1e6)) == pytest.approx(1e-6 + 1e-4)


def test_the_measured_roof_has_a_cache_and_main_memory():
    over = MEASURED.roof()
    assert dict(over.bandwidths) == {"cache": 4e10, "DRAM": 1e10}
    assert over.ridge() == 10 and over.ridge("cache") == 2.5


def test_errors_count_either_way():
    rows = [Placed(matmul(2, 2, 2), t, 1.0) for t in (0.25, 2.0, 1.0)]
    found = Prediction(MEASURED, tuple(rows))
    assert [row.ratio for row in rows] == [0.25, 2, 1]
    assert found.typical_factor == 2 and found.worst is rows[0]
    assert rows[1].achieved == 16 / 2.0


def test_the_fastest_call_is_timed_and_calls_are_real():
    calls = []
    seconds = lab.fastest(lambda: calls.append(1), seconds=1e-3)
    assert 0 < seconds < 1 and len(calls) > 3


def test_a_triad_is_a_plus_three_b():
    out = lab._triad(5, "cpu", "fp64")()
    assert out.tolist() == [4.0] * 5 and out.dtype == torch.float64


def test_other_kernels_can_be_placed():
    work = layernorm(4, 4, "fp32")
    found = lab.place_kernels(MEASURED, seconds=1e-4, which=[(work, lambda: None)])
    assert [row.work for row in found.placed] == [work]


@pytest.mark.parametrize(
    ("name", "row"),
    [("NVIDIA H200", "H200"), ("NVIDIA A100-SXM4-80GB", "A100"), ("Tesla V100-SXM2-32GB", "V100"),
     ("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA RTX A6000", None), ("AMD EPYC, 2 threads", None)],
)  # fmt: skip
def test_the_catalogue_knows_devices_by_what_they_call_themselves(name, row):
    known = lab.published(name)
    assert (known and known.name) == row


@pytest.mark.parametrize(
    ("call", "sentence"),
    [(lambda: lab.lab("tpu"), "device is 'tpu'; this machine has cpu"),
     (lambda: lab.measure("cpu", "fp8"), "precision is 'fp8'; fp32, bf16, fp64 can be measured"),
     (lambda: lab.lab("cpu", threads=-1), "threads is -1; 1 or more is needed")],
)  # fmt: skip
def test_bad_input_is_named(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_the_command_line_says_what_is_wrong(capsys):
    with pytest.raises(SystemExit) as caught:
        lab.main(["--device", "tpu"])
    assert caught.value.code == 2 and "device is 'tpu'" in capsys.readouterr().err


def test_free_threads_are_between_one_and_all():
    assert 1 <= lab.free_threads() <= torch.get_num_threads()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_is_measured_as_well():
    found = lab.lab("cuda")
    assert found.measured.precision == "bf16" and found.measured.peak > 1e12
    known = lab.published(found.measured.device)
    assert known is None or found.measured.peak <= known.peak()


@pytest.mark.slow
def test_the_whole_lab_runs_from_the_command_line(tmp_path, capsys):
    lab.main(["--device", "cpu", "--json", str(tmp_path / "x.json")])
    assert "prediction off by a factor" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "x.json").read_text())["bandwidths"]) == 15
