"""StepTimer on two devices: data parallel, several steps a call, validation and early stopping, all in one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

RUNS = Path(__file__).with_name("run_on_two_devices.py")


@pytest.mark.slow
def test_two_devices_share_every_batch(tmp_path: Path) -> None:
    """Batches of 32 over two devices: 16 each; three epochs of ten steps before early stopping has seen enough."""
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    done = subprocess.run(
        [sys.executable, str(RUNS), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    profile = answer["profile"]
    schema = json.loads(files("gpuplan.schemas").joinpath("gpuplan.profile.json").read_text())
    jsonschema.validate(profile, schema)

    assert answer["devices_of_weights"] == [2, 2, 2, 2]
    assert profile["devices"] == 2
    assert profile["rows"][0]["batch_size"] == 16
    assert profile["run"]["global_batch_size"] == 32
    assert profile["run"]["steps"] == [10, 10, 10]
    assert len(profile["run"]["validation_s"]) == 3
    assert min(profile["run"]["validation_s"]) > 0
    assert profile["rows"][0]["fit"]["median_s"] > 0
    assert "done in" in done.stderr
    assert "Traceback" not in done.stderr
