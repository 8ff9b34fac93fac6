"""The whole script, in real processes on the CPU, with models that take milliseconds."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from measuring.models import ROOT
from measuring.plan import Configuration
from measuring.rounds import Limits, Outcome, run_round

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "benchmarks" / "measure_device.py"
RULES = {"window_s": 0.005, "windows": 3, "windows_most": 3, "warm_up_steps": 4}
TINY = "benchmarks/workloads.py:mlp?width=16&depth=1"


def script(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def outcomes(*models: str, limits: Limits | None = None, seconds: float = 240.0) -> list[Outcome]:
    todo = [
        Configuration(model=model, batch_size=4, mode="train", precision="float32", backend="jax")
        for model in models
    ]
    stop_at = time.monotonic() + seconds
    return list(run_round(todo, rules=RULES, limits=limits or Limits(), platform="cpu", stop_at=stop_at))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return the folder and the answer of one real run."""
    folder = tmp_path_factory.mktemp("measured")
    done = script(*COMMAND, "-o", folder, "--csv", folder / "rows.csv")
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


COMMAND = ("--quick", "--device", "cpu", "--backend", "jax", "--precision", "float32", "--only", "mlp")


def test_a_profile_holds_raw_samples_and_where_they_come_from(measured: tuple[Path, dict[str, Any]]) -> None:
    """Device, host, versions, rules; every window of every row; compile time apart; a loss, so training ran."""
    folder, told = measured
    profile = json.loads((folder / "cpu-jax.json").read_text())
    [environment] = profile["environments"]

    assert (profile["schema"], profile["accelerator"], told["measured"]) == (
        "gpuplan.device-profile/1",
        "CPU",
        3,
    )
    assert environment["software"]["packages"].keys() >= {"keras", "jax", "jaxlib", "numpy"}
    assert environment["host"]["logical_cores"] >= 1
    assert environment["device"]["nvidia_smi"] is None
    assert environment["method"]["rules"]["settle_steps"] == 3
    for row in profile["rows"]:
        low, high = row["step_ms_range"]
        assert len(row["windows_ms"]) >= 4
        assert low <= row["step_ms"] <= high
        assert row["prepare"]["compile_s"] > 0
        assert row["prepare"]["jax_default_matmul_precision"] == "highest"
        assert (row["loss"] is None) == (row["mode"] == "infer")


def test_a_second_run_measures_nothing_again(measured: tuple[Path, dict[str, Any]]) -> None:
    """The file stays as it was, byte for byte."""
    folder, told = measured
    before = (folder / "cpu-jax.json").read_bytes()
    done = script(*COMMAND, "-o", folder)

    assert "0 of 3 to run" in done.stderr
    assert json.loads(done.stdout) == told
    assert (folder / "cpu-jax.json").read_bytes() == before


def test_its_rows_are_traced_as_what_was_timed(measured: tuple[Path, dict[str, Any]]) -> None:
    """The CSV's reference leads gpuplan to a model of the same number of parameters, in the same precision."""
    from gpuplan.predict.measured_run import load_measured_workload
    from gpuplan.predict.measurements import read_measurements

    folder, _ = measured
    profile = json.loads((folder / "cpu-jax.json").read_text())
    measurement = read_measurements(folder / "rows.csv")[0]
    workload = load_measured_workload(measurement)

    assert workload.parameters == profile["rows"][0]["prepare"]["parameters"]
    assert (workload.precision, workload.compiled, workload.batch_size) == (
        "float32",
        True,
        measurement.batch_size,
    )


def test_profiles_can_be_converted_later(measured: tuple[Path, dict[str, Any]]) -> None:
    """`--to-csv` gives the file that `--csv` gave, and times nothing."""
    folder, _ = measured
    done = script("--to-csv", folder / "again.csv", folder / "cpu-jax.json")

    assert done.returncode == 0, done.stderr
    assert (folder / "again.csv").read_text() == (folder / "rows.csv").read_text()


def test_a_cpus_rows_stay_out_of_the_accelerators_folder() -> None:
    """Without --output a CPU is refused, before anything is measured."""
    done = script("--quick", "--device", "cpu", "--backend", "jax")

    assert done.returncode == 2
    assert "name a folder with --output" in done.stderr
    assert not list((ROOT / "profiles" / "measured").glob("cpu-*"))


def test_a_model_that_fails_does_not_end_the_round() -> None:
    """One of two breaks while it is built: it is written down with the reason, and the other is measured."""
    found = {o.configuration.model: o for o in outcomes("benchmarks/workloads.py:no_such_model", TINY)}

    broken, fine = found["benchmarks/workloads.py:no_such_model"], found[TINY]
    assert (broken.status, fine.status) == ("failed", "measured")
    assert "no_such_model" in broken.facts["message"]
    assert fine.facts["step_ms"] > 0


def test_a_process_that_takes_too_much_memory_ends_alone() -> None:
    """64 MiB are less than Python with JAX holds: out of memory, and told whose."""
    [outcome] = outcomes(TINY, limits=Limits(host_bytes=64 * 2**20))

    assert outcome.status == "out_of_memory"
    assert "GiB of the host's memory" in outcome.facts["message"]


def test_a_process_that_takes_too_long_is_ended() -> None:
    """Half a second is less than importing Keras takes: timed out. If the budget ended it: stopped, so no row."""
    [late] = outcomes(TINY, limits=Limits(prepare_s=0.5))
    [stopped] = outcomes(TINY, seconds=4.2)

    assert (late.status, stopped.status) == ("timed_out", "stopped")


def test_a_backend_that_does_not_see_the_device_is_left_out_unless_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """PyTorch without CUDA beside JAX with it: JAX is timed, and it is said; asked for by name, it is refused."""
    import measure_device

    answers = {
        "jax": {"event": "done", "device": {"platform": "gpu"}},
        "torch": {"event": "done", "device": {"platform": "cpu"}},
    }
    assert list(measure_device.seeing(answers, platform="gpu", required=[])) == ["jax"]
    assert "torch computes on a cpu, not a gpu" in capsys.readouterr().err
    with pytest.raises(measure_device.RefusalError, match="torch computes on a cpu"):
        measure_device.seeing(answers, platform="gpu", required=["torch"])
    with pytest.raises(measure_device.RefusalError):
        measure_device.seeing({"torch": answers["torch"]}, platform="gpu", required=[])


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_pytorch_is_timed_kernel_by_kernel(tmp_path: Path) -> None:
    """The same command on the other backend: rows of the stack `keras`, TF32 told to be off, a finite loss."""
    done = script(*("torch" if word == "jax" else word for word in COMMAND), "-o", tmp_path)
    assert done.returncode == 0, done.stderr

    row = json.loads((tmp_path / "cpu-torch.json").read_text())["rows"][0]
    assert (row["status"], row["compiled"], row["stack"]) == ("measured", False, "keras")
    assert row["prepare"].get("torch_fp32_precision", "ieee") == "ieee"
    assert row["loss_is_finite"] is True


def test_timing_needs_no_gpuplan() -> None:
    """Script, worker and all parts import where gpuplan cannot be imported."""
    parts = "measure_device, measuring.worker, measuring.stepper, measuring.models, measuring.machine"
    code = f"import sys; sys.modules['gpuplan'] = None; import {parts}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=SCRIPT.parent, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("cores", "gib", "together"), [(16, 141, 8), (4, 16, 1), (64, 80, 5), (2, 141, 1), (8, None, 1)]
)
def test_how_many_compile_at_the_same_time(cores: int, gib: int | None, together: int) -> None:
    """By hand: two cores and 16 GiB of the device for each, at most eight, at least one."""
    import measure_device

    memory = None if gib is None else gib * 2**30
    assert measure_device.default_together("gpu", cores, memory) == together
    assert measure_device.default_together("tpu", cores, memory) == 1
