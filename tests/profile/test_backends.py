"""The same on JAX, TensorFlow and PyTorch, each in a process of its own: Keras's hooks really fire there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytestmark = pytest.mark.slow

BACKENDS = ("jax", "tensorflow", "torch")
RUNS = Path(__file__).with_name("run_on_backend.py")


@pytest.fixture(scope="module", params=BACKENDS)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `run_on_backend.py` found."""
    if find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed; the extra `test` brings it")
    environment = {
        **os.environ, "KERAS_BACKEND": request.param, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1",
        "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(RUNS), str(tmp_path_factory.mktemp("timer"))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**answer, "stderr": done.stderr}


def test_the_loop_and_the_step_alone_are_measured(ran: dict[str, Any]) -> None:
    """Training and predictions, on the backend that was asked for."""
    assert ran["told"] == ["fit", "step"]
    for mode in ("train", "infer"):
        assert ran[mode]["fit"]["median_s"] > 0
        assert ran[mode]["step"]["median_s"] > 0
        assert ran[mode]["prepare"]["first_step_s"] > 0
    assert ran["environment"]["device"]["backend"] == ran["backend"]
    assert ran["environment"]["device"]["platform"] == "cpu"


def test_every_step_of_every_epoch_is_seen(ran: dict[str, Any]) -> None:
    """Ten steps in each of three epochs, validation known apart, batch size found without being told."""
    profile = ran["validated"]
    schema = json.loads(files("gpuplan.schemas").joinpath("gpuplan.profile.json").read_text())
    jsonschema.validate(profile, schema)

    assert profile["run"]["steps"] == [10, 10, 10]
    assert all(validation_s > 0 for validation_s in profile["run"]["validation_s"])
    assert profile["rows"][0]["batch_size"] == 32
    assert profile["rows"][0]["fit"]["median_s"] > 0
    assert profile["run"]["total_s"] >= sum(profile["run"]["epochs_s"])
    assert profile["source"] == "step_timer"
    assert profile["status"] == "complete"


def test_the_remaining_time_is_printed(ran: dict[str, Any]) -> None:
    """After the first epoch at the latest."""
    assert "ms per step; done in" in ran["stderr"]


def test_early_stopping_is_no_trouble(ran: dict[str, Any]) -> None:
    """Fifty epochs were planned, two were run."""
    assert ran["stopped_early"]["run"]["epochs_planned"] == 50
    assert ran["stopped_early"]["run"]["steps"] == [10, 10]


def test_several_steps_an_execution(ran: dict[str, Any]) -> None:
    """Two calls of five steps are ten steps."""
    if ran["backend"] == "torch":
        pytest.skip("Keras refuses steps_per_execution on PyTorch")
    assert ran["several_steps"]["run"]["steps"] == [10, 10]


def test_what_is_learnt_is_the_same(ran: dict[str, Any]) -> None:
    """Bit for bit, with the timer and without."""
    assert ran["same_weights"]


def test_the_rate_of_a_slow_loader_is_measured(ran: dict[str, Any]) -> None:
    """Its one worker delivers 32 samples in 50 ms; TensorFlow takes batches where they cannot be timed."""
    row = ran["loaded"]["rows"][0]
    if ran["backend"] == "tensorflow":
        assert row["pipeline"] is None
        return
    (found,) = row["pipeline"]
    assert found["workers"] == 1
    assert row["batch_size"] == 32
    assert 0.5 * 32 / 0.05 < found["samples_per_s"] <= 32 / 0.05
