"""`gpuplan profile`, end to end: real child processes, real steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpuplan.cli.app import run

from .conftest import Done

MODELS = """
import keras

def tiny(width=4, batch=None, features=8):
    inputs = keras.Input((features,), batch_size=batch)
    model = keras.Sequential([inputs, keras.layers.Dense(width), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    return model

def broken():
    raise OSError("no weights")
"""
SCRIPT = """
import time
import keras, numpy as np
from models import tiny

class Slow(keras.utils.PyDataset):
    def __len__(self): return 20
    def __getitem__(self, index):
        time.sleep(0.03)
        return np.zeros((16, 8), "float32"), np.zeros((16, 1), "float32")

tiny().fit(Slow(), epochs=2)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and a script."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "models.py").write_text(MODELS)
    (folder / "train.py").write_text(SCRIPT)
    return folder


@pytest.fixture
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The same, as the working folder; yields a folder for files."""
    monkeypatch.chdir(folder)
    return tmp_path


def valid(path: Path) -> dict[str, Any]:
    """Return a profile that its schema accepts."""
    document: dict[str, Any] = json.loads(path.read_text())
    schema = json.loads(files("gpuplan.schemas").joinpath("gpuplan.profile.json").read_text())
    jsonschema.validate(document, schema)
    return document


@pytest.mark.slow
def test_two_batch_sizes_are_measured_and_kept(in_folder: Path, gpuplan: Callable[..., Done]) -> None:
    """The model's own batch size and a quarter separate fixed from per-sample time; the file is valid."""
    output = in_folder / "profile.json"
    done = gpuplan(
        "profile", "models.py:tiny", "--max-time", "0.6", "--processes", "2", "--backend", "jax", "-o", str(output)
    )
    document = valid(output)

    assert done.code == 0
    assert document["status"] == "complete"
    assert document["accelerator"] == "CPU"
    assert [row["batch_size"] for row in document["rows"]] == [32, 8]
    assert all(row["status"] == "measured" and row["fit"]["windows_s"] for row in document["rows"])
    assert [split["precision"] for split in document["splits"]] == ["float32"]
    limit = document["rows"][0]["limit"]
    assert limit in {"host", "device"}  # a busy machine stretches the device's part
    assert ("launch-bound" in done.err) == (limit == "host")
    assert done.out.splitlines()[0].split("\t")[:3] == ["batch_size", "precision", "status"]
    assert document["environment"]["packages"]["keras"]
    for timing in (row[name] for row in document["rows"] for name in ("fit", "step")):
        assert len(timing["process_medians_s"]) == len(timing["windows_per_process"]) == 2
        assert sum(timing["windows_per_process"]) == len(timing["windows_s"])
        assert (
            timing["low_s"]
            <= min(timing["process_medians_s"])
            <= max(timing["process_medians_s"])
            <= timing["high_s"]
        )


def test_a_slow_loader_is_named_input_bound(in_folder: Path, gpuplan: Callable[..., Done]) -> None:
    """Each batch of 16 takes its loader 30 ms, so no more than 533 samples/s arrive, whatever the model."""
    done = gpuplan(
        "profile",
        "train.py",
        "--data",
        "script",
        "--max-time",
        "0.5",
        "--processes",
        "1",
        "--backend",
        "jax",
        "--json",
    )
    row = json.loads(done.out)["rows"][0]

    assert row["limit"] == "input"
    assert "input-bound" in done.err
    assert 0 < row["pipeline"][0]["samples_per_s"] < 534
    assert row["fit"]["median_s"] > 0.0299


def test_what_does_not_fit_is_the_limit_found(in_folder: Path, gpuplan: Callable[..., Done]) -> None:
    """40 TB of random data cannot be had; what fits is measured, what is larger still is not tried."""
    output = in_folder / "profile.json"
    sizes = ["--batch-size", "16", "--batch-size", str(10**8), "--batch-size", str(10**9)]
    done = gpuplan(
        "profile",
        "models.py:tiny?features=100000",
        *sizes,
        "--max-time",
        "0.3",
        "--processes",
        "1",
        "--backend",
        "jax",
        "-o",
        str(output),
    )
    document = valid(output)

    assert done.code == 0
    assert [row["status"] for row in document["rows"]] == ["measured", "out_of_memory"]
    assert document["largest_batch_size"] == {"fitted": 16, "out_of_memory_at": 10**8}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["models.py:tiny", "--batch-size", "0"], 2, "--batch-size must be a whole number"),
        (["models.py:tiny", "--precision", "float8"], 2, "unknown precision `float8`"),
        (["models.py:tiny", "--max-time", "0"], 2, "--max-time must be above zero, not 0"),
        (["models.py:tiny", "--processes", "0"], 2, "--processes must be a whole number of at least 1, not 0"),
        (["models.py:tiny", "-o", "/nowhere/at/all.json"], 2, "there is no folder"),
        (["models.py:tiny", "--data", "script", "--mode", "infer"], 2, "--data script measures fit()"),
        (["train.py", "--data", "script", "--batch-size", "8"], 2, "--data script has its own batches"),
        (["nothing.py"], 2, "no such file"),
    ],
)
def test_what_is_wrong_is_told_before_anything_starts(
    in_folder: Path, gpuplan: Callable[..., Done], arguments: list[str], code: int, message: str
) -> None:
    """One line, and no process."""
    done = gpuplan("profile", *arguments)

    assert done.code == code
    assert message in done.err.splitlines()[0]


def test_a_model_that_cannot_be_built_says_why(in_folder: Path, gpuplan: Callable[..., Done]) -> None:
    """The user's own error, with its line, and no file."""
    output = in_folder / "profile.json"
    done = gpuplan("profile", "models.py:broken", "--backend", "jax", "-o", str(output))

    assert done.code == 1
    assert "OSError: no weights" in done.err
    assert "models.py, line 11" in done.err
    assert not output.exists()


def started(folder: Path, output: Path) -> subprocess.Popen[bytes]:
    """Start a long measurement in a process group of its own."""
    command = [sys.executable, "-m", "gpuplan", "profile", "models.py:tiny", "--max-time", "60", "-o", str(output)]
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def children_of(pid: int) -> list[Any]:
    import psutil

    return psutil.Process(pid).children(recursive=True)


def wait_until(condition: Callable[[], Any], within_s: float = 60.0) -> Any:
    """Poll a condition; its value once it is true."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError("never became true")


def test_ctrl_c_keeps_what_was_measured(in_folder: Path) -> None:
    """The first batch size is done or under way; the file holds it and says that it was interrupted."""
    output = in_folder / "profile.json"
    process = started(Path.cwd(), output)
    child = wait_until(lambda: children_of(process.pid))[0]
    wait_until(lambda: child.cpu_times().user > 4.0)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    document = valid(output)

    assert process.returncode == 130
    assert b"interrupted" in said
    assert document["status"] == "interrupted"
    assert document["rows"][-1]["status"] == "interrupted"
    assert not child.is_running() or child.status() == "zombie"


def test_a_killed_profiler_leaves_no_half_file_and_no_child(in_folder: Path) -> None:
    """SIGKILL while the first child measures: no file, and the child notices that its parent is gone."""
    output = in_folder / "profile.json"
    process = started(Path.cwd(), output)
    child = wait_until(lambda: children_of(process.pid))[0]
    process.kill()
    process.communicate(timeout=30)

    assert not output.exists()
    wait_until(lambda: not child.is_running() or child.status() == "zombie")


def test_help_needs_no_keras() -> None:
    """The command's help is there, and its exit code 0."""
    assert run(["profile", "--help"]) == 0


def read_cell(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the cell that a command prints."""
    assert run(["profile", *words, "--on", "colab"]) == 0
    said = capsys.readouterr()
    assert "Change runtime type > T4 GPU" in said.err
    return said.out


@pytest.mark.usefixtures("in_folder")
def test_a_cell_for_colab_runs_where_no_gpu_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In another folder, with the file that it wrote there; without a GPU it says so."""
    cell = read_cell("models.py:tiny?width=8", "--batch-size", "4", capsys=capsys)
    done = subprocess.run([sys.executable, "-c", cell], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "models.py").read_text() == MODELS
    assert "gpu" in done.stdout.lower()
    assert "--measured" not in done.stdout


@pytest.mark.usefixtures("in_folder")
def test_a_cell_for_colab_prints_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that the measurement ends with, of what the command says besides."""
    cell = read_cell("train.py", "--backend", "jax", "--precision", "mixed_float16", capsys=capsys)
    asked: list[list[str]] = []

    def fake_run(words: list[str], **_: Any) -> Any:
        asked.append(words)
        line = "gpuplan estimate train.py --measured T4=41.2+-0.4ms@128:3f9a1c"
        return subprocess.CompletedProcess(words, 0, stdout="table", stderr=f"batch 128: a finding\n{line}\n")

    monkeypatch.setattr(subprocess, "run", fake_run)
    monkeypatch.chdir(tmp_path)
    exec(cell, {})

    words = "-m gpuplan profile train.py --backend jax --device gpu --precision mixed_float16"
    assert asked == [[sys.executable, *words.split()]]
    assert capsys.readouterr().out == "gpuplan estimate train.py --measured T4=41.2+-0.4ms@128:3f9a1c\n"


@pytest.mark.usefixtures("in_folder")
@pytest.mark.parametrize("model", ["models:tiny", "missing.py"])
def test_what_does_not_fit_in_a_cell(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A module, and no file at all."""
    assert run(["profile", model, "--on", "colab"]) == 2
    assert "hint: " in capsys.readouterr().err
