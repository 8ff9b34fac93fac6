"""What is kept: after every row, never half a file, nothing run twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpuplan.predict.measurements import read_measurements
from gpuplan.workload.reference import parse_reference
from measuring.plan import Configuration
from measuring.store import SCHEMA, Profile, write_csv

ENVIRONMENT = {
    "device": {"name": "NVIDIA H200", "nvidia_smi": {"driver_version": "580.1"}},
    "software": {"packages": {"keras": "3.15.1", "jax": "0.10.2"}, "image_data_format": "channels_last"},
}


def configuration(batch_size: int = 8, **changes: Any) -> Configuration:
    facts = {
        "model": "benchmarks/workloads.py:unet?width=8",
        "mode": "train",
        "precision": "tf32",
        "backend": "jax",
    }
    return Configuration(batch_size=batch_size, **{**facts, **changes})


def row(wanted: Configuration, status: str = "measured", **facts: Any) -> dict[str, Any]:
    told = {"environment": 0, "compiled": True, "stack": "keras", "measured_at": "2026-11-21T10:00:00+00:00"}
    return {**wanted.to_json(), "status": status, **told, **facts}


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    made = Profile(tmp_path / "h200-jax.json", accelerator="NVIDIA H200", backend="jax")
    assert made.environment(ENVIRONMENT) == 0
    return made


def test_a_row_is_on_disk_as_soon_as_it_is_known(profile: Profile) -> None:
    """The file is whole after every row, and nothing temporary stays beside it."""
    for size in (8, 16):
        profile.add(row(configuration(size), step_ms=1.5 * size))
        saved = json.loads(profile.path.read_text())
        assert saved["schema"] == SCHEMA
        assert saved["rows"][-1]["step_ms"] == 1.5 * size
    assert [path.name for path in profile.path.parent.iterdir()] == ["h200-jax.json"]


def test_what_is_done_is_not_run_again(profile: Profile) -> None:
    """A profile read from its file knows its rows; another precision or batch size is another row."""
    profile.add(row(configuration(), step_ms=1.0))
    again = Profile(profile.path, accelerator="NVIDIA H200", backend="jax")

    assert again.settles(configuration())
    assert again.settles(configuration(), retry=True)
    assert not again.settles(configuration(16))
    assert not again.settles(configuration(precision="float32"))
    assert again.environment(ENVIRONMENT) == 0


def test_a_limit_of_memory_ends_a_sweep_upwards_alone(profile: Profile) -> None:
    """After 32 did not fit, 64 is not tried; 16 is, and so is the same size in another precision."""
    profile.add(row(configuration(32), "out_of_memory"))

    assert profile.limit(configuration(64)) == 32
    assert profile.settles(configuration(64))
    assert not profile.settles(configuration(16))
    assert not profile.settles(configuration(64, precision="mixed_bfloat16"))


def test_failures_are_run_again_when_asked_and_replaced(profile: Profile) -> None:
    """A failed row settles, unless retried; then the new row takes its place."""
    profile.add(row(configuration(), "failed", message="driver"))
    assert profile.settles(configuration())
    assert not profile.settles(configuration(), retry=True)

    profile.add(row(configuration(), step_ms=2.0))
    assert [entry["status"] for entry in profile.rows] == ["measured"]


def test_another_devices_file_is_not_added_to(profile: Profile) -> None:
    """A name that was given to two devices is refused, not mixed."""
    profile.add(row(configuration(), step_ms=1.0))
    with pytest.raises(ValueError, match="NVIDIA H100 on jax"):
        Profile(profile.path, accelerator="NVIDIA H100", backend="jax")


def test_the_csv_is_a_table_of_measurements(profile: Profile, tmp_path: Path) -> None:
    """Read by gpuplan's own reader: measured rows alone, references found from the CSV's own folder."""
    profile.add(row(configuration(), step_ms=12.5))
    profile.add(row(configuration(model="ResNet50"), step_ms=80.0))
    profile.add(row(configuration(999), "out_of_memory"))
    path = tmp_path / "deeper" / "rows.csv"

    assert write_csv(path, [profile.data]) == 2
    unet, resnet = read_measurements(path)

    assert (unet.step_s, unet.precision, unet.compiled, unet.stack) == (0.0125, "tf32", True, "keras")
    assert (unet.accelerator, unet.devices, unet.feed) == ("NVIDIA H200", 1, "device")
    assert unet.source == (
        "benchmarks/measure_device.py on NVIDIA H200: keras 3.15.1, jax 0.10.2, driver 580.1, 2026-11-21"
    )
    assert parse_reference(unet.model, base=path.parent).arguments == {"width": 8}
    assert resnet.model == "ResNet50"
