"""Plan of a campaign and storage of its rows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from gpuplan.predict.measurements import read_measurements
from gpuplan.profile.measuring_process import ProcessResult
from gpuplan.profile.statistics import summarize
from gpuplan.workload.reference import parse_reference

from lab import campaign, campaign_plan
from lab.campaign_kernels import Kernel, chunk_kernels, list_kernels
from lab.campaign_plan import STEP_RULES, Session
from lab.campaign_round import RoundLimits
from lab.campaign_rows import SCHEMA, DeviceProfile, convert_timing, write_csv
from lab.campaign_steps import NETWORKS, PRECISIONS, Step, list_steps
from lab.kernel_times import trace_kernels

ENVIRONMENT = {
    "host": {"processor": "Xeon", "load_1_min": 0.5},
    "device": {"name": "NVIDIA H200"},
    "device_state": {"driver": "580.1", "sm_mhz": 1980},
    "packages": {"keras": "3.15.1", "jax": "0.11.2"},
    "variables": {},
}
STEP = Step(
    model="benchmarks/workloads.py:unet?width=8", batch_size=8, mode="train", precision="tf32", backend="jax"
)
TIMING: Any = {
    **summarize([0.01, 0.011, 0.012] * 4, [5] * 12),
    "windows_s": [0.01, 0.011, 0.012] * 4,
    "steps_per_window": [5] * 12,
    "warm_up": {"windows_s": [0.02], "settled": True},
    "stopped": "converged",
}


def with_size(batch_size: int, **changes: Any) -> Step:
    return Step(**{**STEP.to_json(), "batch_size": batch_size, **changes})


@pytest.fixture
def profile(tmp_path: Path) -> DeviceProfile:
    return DeviceProfile(tmp_path / "nvidia-h200-jax.json", accelerator="H200", backend="jax")


def find_kernels(op: str, **wanted: Any) -> list[Kernel]:
    return [
        one
        for one in list_kernels(["float32"], quick=True)
        if one.op == op and all(getattr(one, name) == value for name, value in wanted.items())
    ]


def test_flops_and_bytes_of_a_grouped_convolution() -> None:
    """By hand: 2 images of 8 x 8 x 4, 3 x 3 windows over 2 of 4 channels, 4 filters: 2*2*64*9*2*4 FLOPs.

    512 values in, 72 weights, 512 out.
    """
    [forward] = find_kernels("conv", family="grouped", direction="forward")
    assert forward.shapes == ((2, 8, 8, 4), (3, 3, 2, 4))
    assert forward.count_flops() == 2 * 2 * 64 * 9 * 2 * 4
    assert forward.count_bytes() == 4 * (512 + 72 + 512)
    [gradient] = find_kernels("conv", family="grouped", direction="filter_gradient")
    assert (gradient.count_flops(), gradient.count_bytes()) == (forward.count_flops(), forward.count_bytes())


def test_flops_and_bytes_of_other_operations() -> None:
    """By hand: depthwise 2*2*64*9*4; transposed 2*2*64*2*2*2*4; attention 4*2*2*8*8*8, 2.5 times backward.

    Adam reads a gradient, reads and writes a variable and two slots, of 20 values.
    """
    [depthwise] = find_kernels("depthwise_conv", direction="forward")
    [transposed] = find_kernels("conv_transpose", direction="forward")
    attention = find_kernels("attention", settings={"mask": "causal"})
    [adam] = find_kernels("optimizer", settings={"kind": "adam"})
    assert depthwise.count_flops() == 2 * 2 * 64 * 9 * 4
    assert transposed.count_flops() == 2 * 2 * 64 * 2 * 2 * 2 * 4
    assert transposed.out == (2, 16, 16, 2)
    assert [one.count_flops() for one in attention] == [8192, 2.5 * 8192]
    assert adam.count_bytes() == 4 * 20 * 7


def test_every_kernel_is_a_row_of_its_own() -> None:
    """Names, directions and precisions differ; TF32 only where something is multiplied; all families in each."""
    kernels = list_kernels()
    assert len({(one.name, one.direction, one.precision) for one in kernels}) == len(kernels) > 500
    assert not [one for one in kernels if one.precision == "tf32" and one.family in ("norm", "optimizer")]
    assert {one.op for one in kernels} == {one.op for one in list_kernels(quick=True)}


def test_the_first_chunk_of_every_family_comes_before_the_second() -> None:
    """So that a short session sees all of them."""
    chunks = chunk_kernels(list_kernels(), most=10)
    families = [chunk[0].family for chunk in chunks]
    assert len(set(families[: len(set(families))])) == len(set(families)) > 10
    assert all(len(chunk) <= 10 and len({one.family for one in chunk}) == 1 for chunk in chunks)
    assert sum(map(len, chunks)) == len(list_kernels())


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_forty_networks_the_middle_batch_size_first(backend: str) -> None:
    """Two precisions of every network before anything varies; several steps at once only where Keras runs them."""
    steps = list_steps(backend, PRECISIONS)
    assert len(NETWORKS) == 40
    assert len(steps) == len(set(steps))
    assert {one.model for one in steps[:40]} == {model for model, _ in NETWORKS}
    assert {one.precision for one in steps[:80]} == set(PRECISIONS[:2])
    assert {one.jit_compile for one in steps} == {None, backend == "torch"}
    assert any(one.steps_per_execution > 1 for one in steps) == (backend == "jax")


def test_a_row_is_on_disk_as_soon_as_it_is_known(profile: DeviceProfile) -> None:
    """The file is whole after every row, nothing temporary stays, and moving facts make no other environment."""
    for size, load in ((8, 0.5), (16, 0.9)):
        environment = {**ENVIRONMENT, "host": {"processor": "Xeon", "load_1_min": load}}
        assert profile.place_environment(environment, {}) == 0
        profile.add_step(with_size(size), {"status": "measured", "environment": 0})
        saved = json.loads(profile.path.read_text())
        assert (saved["schema"], saved["rows"][-1]["batch_size"]) == (SCHEMA, size)
    assert [path.name for path in profile.path.parent.iterdir()] == [profile.path.name]


def test_what_is_done_is_not_run_again(profile: DeviceProfile) -> None:
    """A file knows its rows when it is read again; another variant of a step is another row."""
    [kernel] = find_kernels("softmax", direction="forward")
    profile.add_step(STEP, {"status": "measured", "environment": 0})
    profile.add_kernel(kernel, {"status": "failed", "environment": 0})
    again = DeviceProfile(profile.path, accelerator="H200", backend="jax")
    assert again.settles_step(STEP)
    assert again.settles_step(STEP, retry=True)
    assert not again.settles_step(with_size(8, jit_compile=False))
    assert again.settles_kernel(kernel)
    assert not again.settles_kernel(kernel, retry=True)
    again.add_kernel(kernel, {"status": "measured", "environment": 0})
    assert [row["status"] for row in again.data["kernels"]] == ["measured"]
    with pytest.raises(ValueError, match="H100 on jax"):
        DeviceProfile(profile.path, accelerator="H100", backend="jax")


def test_rows_from_before_campaigns_settle_steps(profile: DeviceProfile) -> None:
    """They name neither `jit_compile` nor several steps at once: Keras's defaults."""
    old = {
        name: value for name, value in STEP.to_json().items() if name not in ("jit_compile", "steps_per_execution")
    }
    profile.data["rows"].append({**old, "status": "measured", "environment": 0})
    profile.path.write_text(json.dumps({name: value for name, value in profile.data.items() if name != "kernels"}))
    assert DeviceProfile(profile.path, accelerator="H200", backend="jax").settles_step(STEP)


def test_a_limit_of_memory_ends_a_sweep_upwards_alone(profile: DeviceProfile) -> None:
    """After 32 did not fit, 64 is not tried; 16 is, and so is 64 in another precision."""
    profile.add_step(with_size(32), {"status": "out_of_memory", "environment": None})
    assert profile.settles_step(with_size(64))
    assert not profile.settles_step(with_size(16))
    assert not profile.settles_step(with_size(64, precision="mixed_bfloat16"))


def test_times_are_kept_with_every_window() -> None:
    """By hand: four windows each of 10, 11 and 12 ms."""
    found = convert_timing(TIMING, STEP_RULES)
    assert found["step_ms"] == pytest.approx(11.0)
    assert found["step_ms_quartiles"] == pytest.approx([10.0, 11.0, 12.0])
    assert found["windows_ms"] == pytest.approx([10.0, 11.0, 12.0] * 4)
    assert any("differ by more than" in finding for finding in found["findings"])


def test_the_csv_is_a_table_of_measurements(profile: DeviceProfile, tmp_path: Path) -> None:
    """Read by gpuplan's own reader: measured steps alone, references found from the CSV's own folder."""
    place = profile.place_environment(ENVIRONMENT, {})
    told = {"environment": place, "compiled": True, "stack": "keras", "measured_at": "2026-11-21T10:00:00+00:00"}
    profile.add_step(STEP, {"status": "measured", "step_ms": 12.5, **told})
    profile.add_step(with_size(8, model="ResNet50"), {"status": "measured", "step_ms": 80.0, **told})
    profile.add_step(with_size(999), {"status": "out_of_memory", **told})
    path = tmp_path / "deeper" / "rows.csv"

    assert write_csv(path, [profile.data]) == 2
    unet, resnet = read_measurements(path)
    assert (unet.step_s, unet.precision, unet.compiled, unet.stack) == (0.0125, "tf32", True, "keras")
    assert (unet.accelerator, unet.devices, unet.feed) == ("H200", 1, "device")
    assert unet.source == (
        "python -m lab campaign on NVIDIA H200: keras 3.15.1, jax 0.11.2, driver 580.1, 2026-11-21"
    )
    assert parse_reference(unet.model, base=path.parent).arguments == {"width": 8}
    assert resnet.model == "ResNet50"


# --- rounds on a fake device -----------------------------------------------------------------------------------


class FakeRounds:
    """Stands for `run_round`: a device that holds `room` samples in all, whoever runs beside whom."""

    def __init__(self, room: int) -> None:
        self.room, self.batches = room, list[list[int]]()

    def __call__(self, requests: Sequence[Any], **_: Any) -> Iterator[tuple[int, ProcessResult]]:
        sizes = [request["options"]["batch_size"] for _, request in requests]
        self.batches.append(sizes)
        for place in range(len(sizes)):
            if sum(sizes) > self.room:
                yield place, ProcessResult(status="out_of_memory", message="full")
                continue
            values: Any = {
                "prepare": {}, "step": TIMING, "fit": TIMING, "memory": {"device_peak_bytes": 1},
                "epoch": {"beside_steps_s": None},
            }  # fmt: skip
            yield place, ProcessResult(status="measured", values=values)


def start(profile: DeviceProfile, *, together: int, seconds: float = 1000.0) -> Session:
    return Session(
        platform="gpu",
        profiles={"jax": profile},
        limits=RoundLimits(),
        together=together,
        stop_at_s=time.monotonic() + seconds,
        quick=False,
        retry=False,
    )


def test_what_did_not_fit_in_company_is_tried_alone(
    profile: DeviceProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for 10: 4 and 8 together fail and fit one by one; 16 fails alone too, and 32 is then not tried."""
    rounds = FakeRounds(room=10)
    monkeypatch.setattr(campaign, "run_round", rounds)
    campaign.run([("jax", with_size(size)) for size in (4, 8, 16, 32)], start(profile, together=2))
    assert rounds.batches == [[4, 8], [4], [8], [16, 32], [16]]
    found = {row["batch_size"]: row["status"] for row in profile.data["rows"]}
    assert found == {4: "measured", 8: "measured", 16: "out_of_memory"}


def test_no_round_starts_when_the_budget_is_nearly_spent(
    profile: DeviceProfile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = FakeRounds(room=10)
    monkeypatch.setattr(campaign, "run_round", rounds)
    campaign.run([("jax", STEP)], start(profile, together=1, seconds=14))
    assert rounds.batches == []
    assert "budget is spent" in capsys.readouterr().err


def test_what_the_budget_stopped_is_no_row(profile: DeviceProfile, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the next campaign takes it up again; what its own limit stopped is a row."""
    late = ProcessResult(status="failed", message="not measured within 9 s", is_late=True)
    monkeypatch.setattr(campaign, "run_round", lambda requests, **_: iter([(0, late)]))
    campaign._Round([("jax", STEP)], start(profile, together=1, seconds=5), may_retry=False).run()
    assert not profile.data["rows"]
    campaign._Round([("jax", STEP)], start(profile, together=1), may_retry=False).run()
    assert [row["status"] for row in profile.data["rows"]] == ["timed_out"]


def test_the_sister_chip_comes_first_among_others(
    profile: DeviceProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an H200, rows of an H100 before those of a T4; rows that failed there are left out."""
    for accelerator, size in (("A-T4", 1), ("H100-SXM", 2)):
        other = DeviceProfile(tmp_path / f"{accelerator}.json", accelerator=accelerator, backend="jax")
        other.add_step(with_size(size), {"status": "measured", "environment": 0})
        other.add_step(with_size(size + 10), {"status": "failed", "environment": 0})
    monkeypatch.setattr(campaign_plan, "MEASURED", tmp_path)
    assert [one.batch_size for one in campaign_plan.list_sister_steps(["jax"], start(profile, together=1))] == [
        2,
        1,
    ]


def test_a_backend_without_profiler_loses_no_row() -> None:
    """A reason instead of kernels: nothing traces TensorFlow."""
    assert "tensorflow" in trace_kernels("tensorflow", print, print)["message"]
