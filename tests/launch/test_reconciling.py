"""A launched run as a profile, and beside its plan: by hand, on the cloud in memory."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from gpuplan.errors import GpuplanError, UsageError
from gpuplan.launch.core.cloud_adapter import RunOutcome
from gpuplan.profile.end_to_end import reconcile
from gpuplan.run_profile import profile_of_run
from launch.conftest import Bench

SCHEMAS = Path(__file__).parents[2] / "schemas"
OUTCOME = RunOutcome(
    attempt=1,
    status="done",
    exit_code=0,
    ran_s=1800.0,
    train_s=1500.0,
    steps=1000,
    step_s=0.2,
    timed_steps=400,
    step_s_quartiles=(0.19, 0.2, 0.21),
    batch_size=64,
    precision="float32",
    backend="jax",
)
PLAN = {
    "workload": {"model": "train.py", "batch_size": 64, "precision": "float32"},
    "offers": [
        {
            "provider": provider, "instance_type": "big", "region": "here", "purchase": "on_demand",
            "accelerator": "T4", "devices": 1, "usd_per_hour": "1.5", "basis": "modelled", "steps": 1000,
            "step_time_s": {"low": 0.1, "mid": 0.16, "high": 0.3}, "memory_bytes": None,
            "train_time_s": {"low": 100.0, "mid": 160.0, "high": 300.0},
            "run_time_s": {"low": 400.0, "mid": 900.0, "high": 1700.0},
            "cost_usd": {"low": 0.2, "mid": 0.4, "high": 0.8},
        }
        for provider in ("other", "fake")
    ],
}  # fmt: skip


def ended(bench: Bench, outcome: RunOutcome | None, run: str = "r1") -> None:
    """Launch a run and let it come to its end."""
    bench.adapter.outcome = lambda request: outcome  # type: ignore[method-assign]
    bench.launcher.launch(bench.plan(run=run))
    bench.launcher.stop_run(run)


def test_time_and_money_stand_beside_the_plan_line_by_line(bench: Bench) -> None:
    """Half an hour at $1.5; steps of 0.2 s between 0.1 and 0.3; a machine longer than the plan's upper end."""
    ended(bench, OUTCOME)
    profile = profile_of_run(bench.launcher, "r1", model="train.py")
    found = reconcile(PLAN, profile)

    jsonschema.validate(profile, json.loads((SCHEMAS / "gpuplan.profile.json").read_text()))
    jsonschema.validate(found, json.loads((SCHEMAS / "gpuplan.reconcile.json").read_text()))
    parts = {one["part"]: one for one in found["parts"]}
    assert found["offer"]["provider"] == "fake"
    assert (parts["step"]["actual"], parts["step"]["inside"]) == (0.2, True)
    assert parts["step"]["actual_over_predicted"] == pytest.approx(1.25)
    assert (parts["machine"]["actual"], parts["machine"]["inside"]) == (1800.0, False)
    assert parts["compute"]["actual"] == pytest.approx(0.75)
    assert parts["compute"]["predicted"]["mid"] == pytest.approx(900 / 3600 * 1.5)
    assert (parts["whole bill"]["predicted"]["mid"], parts["whole bill"]["actual"]) == (0.4, None)


def test_the_median_brings_its_interval(bench: Bench) -> None:
    """0.2 s plus and minus 1.57 x 0.02 s / 20."""
    ended(bench, OUTCOME)
    fit = profile_of_run(bench.launcher, "r1", model="train.py")["rows"][0]["fit"]

    assert (fit["low_s"], fit["high_s"]) == pytest.approx((0.2 - 0.00157, 0.2 + 0.00157))


def test_what_cannot_be_traced_is_said_and_teaches_nothing(bench: Bench) -> None:
    """The run's folder is not here any more."""
    ended(bench, OUTCOME)
    profile = profile_of_run(bench.launcher, "r1", model="train.py")

    assert profile["workloads"] == []
    assert "later estimates cannot use this run" in profile["notes"][0]


def test_a_run_that_has_nothing_to_say_is_refused_in_a_line(bench: Bench) -> None:
    """Unknown, not over, gone without a word, ended before it trained."""
    with pytest.raises(UsageError, match="no file and no run `r1`"):
        profile_of_run(bench.launcher, "r1", model="train.py")
    bench.launcher.launch(bench.plan())
    with pytest.raises(UsageError, match="has not ended yet"):
        profile_of_run(bench.launcher, "r1", model="train.py")
    ended(bench, None, run="r2")
    with pytest.raises(GpuplanError, match="left no result"):
        profile_of_run(bench.launcher, "r2", model="train.py")
    ended(bench, OUTCOME.model_copy(update={"step_s": None, "status": "failed"}), run="r3")
    with pytest.raises(GpuplanError, match="has no timed steps"):
        profile_of_run(bench.launcher, "r3", model="train.py")
