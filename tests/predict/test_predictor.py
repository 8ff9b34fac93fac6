"""The packaged predictor on a real traced workload."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.coefficients import load_coefficients
from gpuplan.predict.executed_ops import find_keras_execution
from gpuplan.predict.measurements import load_published_measurements
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.step_time import NoPrediction, StepTime
from gpuplan.records import to_plain
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.model import Workload
from gpuplan.workload.options import WorkloadOptions

MODELS = load_published_measurements()[0].base


@pytest.fixture(scope="module")
def workload() -> Workload:
    options = WorkloadOptions(batch_size=64, precision="float32", compiled=False)
    return load_workload("models.py:cifar10_cnn?image_size=32&classes=10", options=options, base=MODELS)


def step(workload: Workload, accelerator: str, *, devices: float = 1, look_up: bool = False) -> StepTime:
    found = Predictor.load().step_time(
        workload, load_catalog().accelerators[accelerator], devices=devices, look_up=look_up
    )
    assert isinstance(found, StepTime)
    return found


def test_published_steps_are_looked_up_by_their_work(workload: Workload) -> None:
    """PROFET measured this workload: 5.3 ms on g4dn.xlarge, 15.4 ms on p2.xlarge (published medians)."""
    t4 = step(workload, "T4", look_up=True)
    assert t4.basis == "measured"
    assert t4.time_s.mid == pytest.approx(5.3e-3, rel=0.02)
    assert step(workload, "K80", look_up=True).time_s.mid == pytest.approx(15.4e-3, rel=0.02)
    assert sum(t4.parts_s.values()) == pytest.approx(t4.time_s.mid)
    assert Predictor.load().step_time(workload, load_catalog().accelerators["T4"]) == t4


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("backend", ["jax", "torch", "tensorflow"])
@pytest.mark.parametrize("compiled", [True, False])
def test_each_chip_has_the_kernels_of_its_own_execution(precision: str, backend: str, *, compiled: bool) -> None:
    """Tables that chips share, compared with each chip's own, as the fit builds it."""
    options = WorkloadOptions(batch_size=64, precision=precision, compiled=compiled)
    model = "vision_resnet.py:resnext50_32x4d?image_size=64"
    workload = load_workload(model, options=options, base=MODELS)
    versions = {"keras": "3.15.1", "jax": "0.10", **({} if backend == "jax" else {backend: "2.13"})}
    workload, predictor = replace(workload, versions=versions), Predictor.load()

    for accelerator in load_catalog().accelerators.values():
        execution = find_keras_execution(workload, accelerator)
        kernels = execution.build_kernels(execution.select_ops(workload))
        alone = execution.build_table(kernels)
        assert predictor.kernel_table(workload, accelerator).contents == alone.contents, accelerator.name


def test_parts_of_a_step_whose_host_is_ahead_add_up(workload: Workload) -> None:
    """The input has its share of what the host adds to the device's time: 100 times as much is waited for less."""
    ahead = replace(workload, versions={"keras": "3.15.1", "jax": "0.10"}, compiled=True)
    fed = replace(ahead, memory=replace(ahead.memory, input_bytes=100 * ahead.memory.input_bytes))
    one, other = (step(each, "H100-SXM") for each in (ahead, fed))
    for each in (one, other):
        assert sum(each.parts_s.values()) == pytest.approx(each.time_s.mid)
    added_s = 99 * ahead.memory.input_bytes / load_coefficients().hosts["keras"].feed_bytes_per_s
    device_s = sum(one.parts_s[name] for name in ("compute", "memory bandwidth"))
    assert added_s - device_s < other.time_s.mid - one.time_s.mid < added_s
    assert other.limiter == "input"


def test_parts_add_up_and_the_basis_is_said(workload: Workload) -> None:
    """Where the time goes sums to the central estimate; a chip with measurements is modelled, others borrow."""
    modelled, borrowed = step(workload, "T4"), step(workload, "L4")
    for one in (modelled, borrowed):
        assert sum(one.parts_s.values()) == pytest.approx(one.time_s.mid)
        assert one.time_s.low < one.time_s.mid < one.time_s.high
        assert one.limiter in one.parts_s
    assert (modelled.basis, borrowed.basis) == ("modelled", "datasheet")
    assert borrowed.note
    assert borrowed.time_s.high / borrowed.time_s.low > modelled.time_s.high / modelled.time_s.low


def test_no_quantized_step_was_fitted(workload: Workload) -> None:
    """The same kernels in int8 on a chip whose float32 was measured: the data sheet, and the note says of what."""
    assert step(workload, "T4").basis == "modelled"
    found = step(replace(workload, quantization="int8"), "T4")

    assert found.basis == "datasheet"
    assert "T4 int8_from_float32" in found.note


def test_accelerators_that_are_predicted_together_have_the_steps_that_each_has_alone(workload: Workload) -> None:
    """Every accelerator of the catalog, in float32 and in TF32, compiled and kernel by kernel."""
    catalog = tuple(load_catalog().accelerators.values())
    for one in (workload, replace(workload, compiled=True), replace(workload, mode="infer", precision="tf32")):
        predicted, together, alone = 0, Predictor.load(peers={1.0: catalog}), Predictor.load()
        for accelerator in catalog:
            found, expected = (each.step_time(one, accelerator, look_up=False) for each in (together, alone))
            if isinstance(expected, NoPrediction):
                assert found == expected
                continue
            predicted += 1
            assert isinstance(found, StepTime)
            assert found.time_s.low == pytest.approx(expected.time_s.low, rel=1e-12)
            assert found.time_s.high == pytest.approx(expected.time_s.high, rel=1e-12)
            assert found.parts_s == pytest.approx(expected.parts_s, rel=1e-12)
        assert predicted > 20


def test_every_gpu_of_the_catalog_gets_a_time_or_a_reason(workload: Workload) -> None:
    """Nothing is silently skipped: a StepTime, or words."""
    for accelerator in load_catalog().accelerators.values():
        found = Predictor.load().step_time(workload, accelerator)
        assert isinstance(found, StepTime) or found.reason


def test_an_unknown_peak_is_unknown(workload: Workload) -> None:
    """Without a bandwidth there is no time, and the reason names it."""
    blank = replace(load_catalog().accelerators["T4"], name="X", memory_gb_per_s=None)
    found = Predictor.load().step_time(workload, blank)
    assert isinstance(found, NoPrediction)
    assert "bandwidth" in found.reason


def test_half_a_gpu_is_slower_and_eight_pay_for_the_link(workload: Workload) -> None:
    """Law: a share of a device is never faster than the device; N devices add what they say."""
    whole = step(workload, "V100-16GB")
    half = step(workload, "V100-16GB", devices=0.5)
    assert half.time_s.mid > whole.time_s.mid
    assert half.parts_s["compute"] > 1.5 * whole.parts_s["compute"]
    eight = step(workload, "V100-16GB", devices=8)
    assert eight.parts_s["link"] > 0
    assert sum(eight.parts_s.values()) == pytest.approx(eight.time_s.mid)
    assert whole.time_s.mid < eight.time_s.mid


def test_more_bandwidth_and_more_peak_are_never_slower(workload: Workload) -> None:
    """Law: a better datasheet never lengthens a step."""
    t4 = load_catalog().accelerators["T4"]
    base = Predictor.load().step_time(workload, t4, look_up=False)
    assert isinstance(base, StepTime)
    for name in ("memory_gb_per_s", "fp32_tflop_per_s"):
        better = replace(t4, **{name: 2 * getattr(t4, name)})
        faster = Predictor.load().step_time(workload, better, look_up=False)
        assert isinstance(faster, StepTime)
        assert faster.time_s.mid <= base.time_s.mid


def test_a_compiled_step_is_never_slower_than_kernel_by_kernel(workload: Workload) -> None:
    """Fusion moves no more bytes and launches no more kernels."""
    assert step(replace(workload, compiled=True), "T4").time_s.mid < step(workload, "T4").time_s.mid


def test_coefficients_survive_a_round_trip(tmp_path: Path) -> None:
    """What `python -m lab calibrate` writes is what predict reads."""
    coefficients = load_coefficients()
    path = tmp_path / "efficiency.json"
    path.write_text(json.dumps(to_plain(coefficients)))
    assert load_coefficients(path) == coefficients
