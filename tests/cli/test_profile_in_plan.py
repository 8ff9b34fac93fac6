"""A profile given to `estimate`, kept by `reconcile`, and forgotten. The profiles here are made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpuplan.estimate_document import read_offers
from gpuplan.profile.document import create_profile, create_row

from .conftest import Done

ACCELERATORS = ("--accelerator", "T4", "--accelerator", "V100-16GB", "--accelerator", "CPU")


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of each test's own."""
    monkeypatch.setenv("GPUPLAN_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def invented_profile(saved: str, tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes a made-up profile of the MNIST example."""

    def write(accelerator: str, step_s: float, *, run: dict[str, Any] | None = None, **columns: Any) -> str:
        workload = json.loads(Path(saved).read_text())
        document = create_profile(
            model="made up", mode="train", backend="jax", data="synthetic", rules={}, source="profile"
        )
        timing = {
            "median_s": step_s, "low_s": 0.99 * step_s, "high_s": 1.01 * step_s, "windows_s": [step_s],
            "steps_per_window": [1], "warm_up": {"windows_s": [], "settled": True}, "stopped": "converged",
        }  # fmt: skip
        row = create_row(status="measured", batch_size=workload["batch_size"])
        row |= {"precision": "float32", "fit": timing, "workload": 0, **columns}
        document |= {"status": "complete", "accelerator": accelerator, "rows": [row], "workloads": [workload]}
        document["run"] = run
        path = tmp_path / f"{accelerator}.json"
        path.write_text(json.dumps(document))
        schema = json.loads(files("gpuplan.schemas").joinpath("gpuplan.profile.json").read_text())
        jsonschema.validate(document, schema)
        return str(path)

    return write


def steps(done: Done) -> dict[str, dict[str, Any]]:
    """Step time and basis by accelerator, this machine under `local`."""
    assert done.code == 0, done.err
    found = {}
    for offer in read_offers(json.loads(done.out)):
        if offer["devices"] == 1 and offer["step_time_s"] is not None:
            name = "local" if offer["provider"] == "local" else offer["accelerator"]
            found.setdefault(
                name, {"s": offer["step_time_s"]["mid"], "basis": offer["basis"], **offer["step_time_s"]}
            )
    return found


def test_the_measured_accelerator_is_measured_and_the_others_corrected(
    saved: str, gpuplan: Callable[..., Done], invented_profile: Callable[..., str]
) -> None:
    """A T4 that takes three times as long as modelled: its row says so, and a V100's goes up, by less."""
    before = steps(gpuplan("estimate", saved, *ACCELERATORS, "--json"))
    profile = invented_profile("T4", 3 * before["T4"]["s"])
    after = steps(gpuplan("estimate", saved, "--profile", profile, *ACCELERATORS, "--json"))

    assert after["T4"]["basis"] == "measured"
    assert after["T4"]["s"] == pytest.approx(3 * before["T4"]["s"])
    assert before["V100-16GB"]["s"] < after["V100-16GB"]["s"] < 3 * before["V100-16GB"]["s"]
    assert after["local"] == before["local"]


def test_a_profile_is_a_model(gpuplan: Callable[..., Done], invented_profile: Callable[..., str]) -> None:
    """`gpuplan estimate profile.json` knows the work and what it took."""
    after = steps(gpuplan("estimate", invented_profile("T4", 0.25), *ACCELERATORS, "--json"))

    assert after["T4"]["s"] == 0.25
    assert after["T4"]["high"] / after["T4"]["low"] < 1.1


def test_a_cpu_tells_of_itself_alone(
    saved: str, gpuplan: Callable[..., Done], invented_profile: Callable[..., str]
) -> None:
    """This machine's row becomes measured and corrects other CPUs; no published set has both CPUs and GPUs."""
    before = steps(gpuplan("estimate", saved, *ACCELERATORS, "--json"))
    after = steps(gpuplan("estimate", saved, "--profile", invented_profile("CPU", 0.125), *ACCELERATORS, "--json"))

    assert after["local"]["s"] == 0.125
    assert after["local"]["basis"] == "measured"
    assert after["CPU"]["s"] / before["CPU"]["s"] == pytest.approx(0.125 / before["local"]["s"], rel=1e-3)
    gpus = before.keys() - {"local", "CPU"}
    assert len(gpus) == 2
    assert {name: after[name] for name in gpus} == {name: before[name] for name in gpus}


def test_a_slow_pipeline_is_a_ceiling_elsewhere(
    saved: str, gpuplan: Callable[..., Done], invented_profile: Callable[..., str]
) -> None:
    """A generator of 100 samples/s: a batch of 128 takes 1.28 s on every GPU, unless `--feed` says otherwise.

    The step alone, not the wait, says what the model was off by: the V100 stays about where it was.
    """
    before = steps(gpuplan("estimate", saved, *ACCELERATORS, "--json"))
    pipeline = [{"workers": None, "samples_per_s": 100.0, "cores": 1.0, "samples_per_s_per_core": 100.0}]
    step = {"median_s": before["T4"]["s"], "windows_s": [], "steps_per_window": [], "stopped": "converged"}
    step["warm_up"] = {"windows_s": [], "settled": True}
    slow = invented_profile("T4", 1.28, pipeline=pipeline, step=step, limit="input")
    after = steps(gpuplan("estimate", saved, "--profile", slow, *ACCELERATORS, "--json"))
    said = steps(gpuplan("estimate", saved, "--profile", slow, "--feed", "arrays", *ACCELERATORS, "--json"))

    assert after["V100-16GB"]["s"] == pytest.approx(1.28)
    assert after["T4"]["s"] == pytest.approx(1.28)
    assert said["V100-16GB"]["s"] == pytest.approx(before["V100-16GB"]["s"], rel=0.1)


def test_runs_are_kept_and_forgotten(
    saved: str,
    gpuplan: Callable[..., Done],
    invented_profile: Callable[..., str],
    tmp_path: Path,
    data_folder: Path,
) -> None:
    """Runs saved by reconcile correct later estimates; `--forget` deletes them."""
    plan = tmp_path / "plan.json"
    before = steps(gpuplan("estimate", saved, *ACCELERATORS, "--json", "-o", str(plan)))
    step_s = 2 * before["T4"]["high"]
    done = gpuplan("reconcile", str(plan), invented_profile("T4", step_s), "--json")
    result = json.loads(done.out)
    schema = json.loads(files("gpuplan.schemas").joinpath("gpuplan.reconcile.json").read_text())
    jsonschema.validate(result, schema)
    kept = steps(gpuplan("estimate", saved, *ACCELERATORS, "--json"))
    forgotten = gpuplan("reconcile", "--forget")

    assert result["parts"][0]["part"] == "step"
    assert result["parts"][0]["inside"] is False
    assert result["parts"][0]["actual_over_predicted"] == pytest.approx(step_s / before["T4"]["s"])
    assert kept["T4"]["s"] == pytest.approx(step_s)
    assert "deleted 1 runs" in forgotten.err
    assert not list((data_folder / "runs").iterdir())
    assert steps(gpuplan("estimate", saved, *ACCELERATORS, "--json")) == before


def test_the_whole_run_is_compared(
    saved: str, gpuplan: Callable[..., Done], invented_profile: Callable[..., str], tmp_path: Path
) -> None:
    """15 epochs of 422 steps each, 10 s of training and 2 s of validation an epoch: by hand 150 s and 30 s."""
    plan = tmp_path / "plan.json"
    gpuplan("estimate", saved, *ACCELERATORS, "-o", str(plan))
    run = {"epochs_s": [12.0] * 15, "validation_s": [2.0] * 15, "steps": [422] * 15}
    done = gpuplan("reconcile", str(plan), invented_profile("T4", 0.02, run=run), "--json")
    parts = {part["part"]: part for part in json.loads(done.out)["parts"]}

    assert parts["training"]["actual"] == pytest.approx(150.0)
    assert parts["validation"]["actual"] == pytest.approx(30.0)
    assert parts["steps"]["actual_over_predicted"] == pytest.approx(1.0)
    assert parts["training"]["predicted"] is not None


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["reconcile"], 2, "a plan and a profile are needed"),
        (["reconcile", "{saved}", "{profile}"], 2, "is no plan"),
        (["reconcile", "{saved}", "{saved}"], 2, "is no plan"),
        (["reconcile", "{plan}", "{saved}"], 2, "is no profile: its schema is"),
        (["reconcile", "{plan}", "{other}"], 3, "the plan has no offer of 1× A100-80GB"),
        (["estimate", "{saved}", "--profile", "{plan}"], 2, "is no profile: its schema is"),
        (["estimate", "{saved}", "--profile", "nowhere.json"], 2, "cannot read the profile"),
    ],
)
def test_wrong_files_are_told(  # noqa: PLR0917 - fixtures
    saved: str,
    gpuplan: Callable[..., Done],
    invented_profile: Callable[..., str],
    tmp_path: Path,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    """One line: which file, and what it is not."""
    plan = tmp_path / "plan.json"
    gpuplan("estimate", saved, *ACCELERATORS, "-o", str(plan))
    names = {
        "saved": saved,
        "plan": plan,
        "profile": invented_profile("T4", 0.1),
        "other": invented_profile("A100-80GB", 0.1),
    }
    done = gpuplan(*(argument.format(**names) for argument in arguments))

    assert done.code == code
    assert message in done.err.splitlines()[0]
