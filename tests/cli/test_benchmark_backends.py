"""`gpuplan benchmark` as a process, on JAX, TensorFlow and PyTorch, and interrupted as on a terminal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest
from gpuplan.predict.measurements import read_measurements

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-m", "gpuplan", "benchmark", "--device", "cpu")
FRAMEWORKS = {"jax": ("jax", True), "tensorflow": ("tensorflow2", False), "torch": ("pytorch", False)}


@pytest.mark.parametrize("backend", list(FRAMEWORKS))
def test_one_workload_on_each_backend(backend: str, tmp_path: Path) -> None:
    """A valid document, and a row of the backend: on a CPU alone Keras has XLA compile for JAX only."""
    if find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed; the extra `test` brings it")
    path = tmp_path / "rows.csv"
    options = ("--only", "mlp", "--minutes", "1", "--backend", backend, "--json", "-o", str(path))
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    schema = json.loads((files("gpuplan.schemas") / "gpuplan.benchmark.json").read_text())
    jsonschema.validate(document, schema)
    (row,) = read_measurements(path)
    assert (row.framework, row.compiled) == FRAMEWORKS[backend]
    assert row.accelerator == "CPU"
    assert document["rows"][0]["framework_version"] in row.software


def test_ctrl_c_keeps_the_rows(tmp_path: Path) -> None:
    """The signal comes while the second workload is measured: exit 130, and the first one's row is there."""
    path = tmp_path / "rows.csv"
    options = ("--only", "mlp", "--only", "lstm-text", "--minutes", "3", "--backend", "jax", "-o", str(path))
    process = subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ends_s = time.monotonic() + 150
    while not path.exists() and time.monotonic() < ends_s:
        time.sleep(0.2)
    time.sleep(2.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert [line.split("\t")[0] for line in out.splitlines()] == ["workload", "mlp"]
    assert len(read_measurements(path)) == 1
    assert err.splitlines()[-1] == "interrupted"
