"""A plan beside what a run really took, part by part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import NoAnswerError, UsageError
from ..units import SECONDS_PER_HOUR

__all__ = ["SCHEMA", "read_plan", "reconcile"]

SCHEMA = "gpuplan.reconcile/1"
PLAN = "gpuplan.estimate/1"


def read_plan(path: Path) -> dict[str, Any]:
    """Return what `gpuplan estimate -o` wrote.

    Raises:
        UsageError: It is something else.
    """
    try:
        plan = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read the plan `{path}`: {error}", hint="write it with `gpuplan estimate -o`"
        ) from error
    if not isinstance(plan, dict) or plan.get("schema") != PLAN:
        raise UsageError(f"`{path}` is no plan", hint="write it with `gpuplan estimate MODEL -o plan.json`")
    return plan


def reconcile(plan: Mapping[str, Any], profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return predicted against actual.

    Args:
        plan: Of schema `gpuplan.estimate/1`.
        profile: Of schema `gpuplan.profile/1`.

    Raises:
        NoAnswerError: The plan has no offer of what the profile was measured on, or another batch size.
    """
    offer = _offer(plan, profile)
    row = _row(plan, profile)
    parts = [
        _part("step", "s", offer["step_time_s"], row["fit"]["median_s"]),
        *_run_parts(offer, profile),
        *_machine_parts(offer, profile),
        _part("memory", "bytes", _point(offer["memory_bytes"]), (row["memory"] or {}).get("device_peak_bytes")),
        _part("compilation", "s", None, row["prepare"].get("compile_s") or row["prepare"].get("first_step_s")),
    ]  # fmt: skip
    return {
        "schema": SCHEMA, "model": profile["model"], "accelerator": profile["accelerator"],
        "devices": profile["devices"], "batch_size": row["batch_size"],
        "offer": {name: offer[name] for name in ("provider", "instance_type", "region", "purchase")},
        "basis": offer["basis"], "parts": parts, "findings": row["findings"],
    }  # fmt: skip


_PLACE = ("provider", "instance_type", "region", "purchase")


def _offer(plan: Mapping[str, Any], profile: Mapping[str, Any]) -> Mapping[str, Any]:
    name, devices = profile["accelerator"], profile["devices"]
    launched = profile.get("launch") or {}
    found = [
        offer for offer in plan["offers"]
        if offer["accelerator"] == name and offer["devices"] == devices
        and (launched or name != "CPU" or offer["provider"] == "local")
        and all(offer[key] == launched[key] for key in _PLACE if launched)
    ]  # fmt: skip
    if not found:
        raise NoAnswerError(
            f"the plan has no offer of {devices:g}× {name or 'an unknown device'}",
            hint="make it with that accelerator, or on the machine that was measured",
        )
    chosen: Mapping[str, Any] = found[0]
    return chosen


def _row(plan: Mapping[str, Any], profile: Mapping[str, Any]) -> Mapping[str, Any]:
    wanted = plan["workload"]["batch_size"], plan["workload"]["precision"]
    measured = [row for row in profile["rows"] if row["fit"] and row["fit"]["median_s"]]
    for row in measured:
        if (row["batch_size"], row["precision"]) == wanted:
            chosen: Mapping[str, Any] = row
            return chosen
    had = ", ".join(f"{row['batch_size']} in {row['precision']}" for row in measured) or "nothing"
    raise NoAnswerError(
        f"the plan is of batch size {wanted[0]} in {wanted[1]}, the profile has {had}",
        hint="make the plan with `--batch-size` and `--precision` of the run",
    )


def _run_parts(offer: Mapping[str, Any], profile: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the whole run, as far as the profile is of one."""
    run = profile["run"]
    if run is None:
        return []
    steps = sum(run["steps"])
    training_s = sum(run["epochs_s"]) - sum(run["validation_s"])
    whole = offer["train_time_s"] if offer["steps"] == steps else None
    return [
        _part("steps", "", _point(offer["steps"]), steps),
        _part("training", "s", whole, training_s),
        _part("validation", "s", None, sum(run["validation_s"])),
    ]  # fmt: skip


def _machine_parts(offer: Mapping[str, Any], profile: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the machine's whole life and what it cost, of a run that was launched."""
    launched = profile.get("launch")
    if launched is None:
        return []
    price = None if offer["usd_per_hour"] is None else float(offer["usd_per_hour"]) / SECONDS_PER_HOUR
    whole = offer["run_time_s"]
    compute = None if whole is None or price is None else {end: whole[end] * price for end in whole}
    return [
        _part("machine", "s", whole, launched["ran_s"]),
        _part("compute", "USD", compute, launched["compute_usd"]),
        _part("whole bill", "USD", offer["cost_usd"], None),
    ]  # fmt: skip


def _point(value: float | None) -> dict[str, float | None] | None:
    return None if value is None else {"low": None, "mid": value, "high": None}


def _part(name: str, unit: str, predicted: Mapping[str, Any] | None, actual: float | None) -> dict[str, Any]:
    mid = None if predicted is None else predicted["mid"]
    ends = None if predicted is None or predicted["low"] is None else (predicted["low"], predicted["high"])
    return {
        "part": name, "unit": unit, "predicted": predicted, "actual": actual,
        "actual_over_predicted": actual / mid if actual is not None and mid else None,
        "inside": ends[0] <= actual <= ends[1] if ends and actual is not None else None,
    }  # fmt: skip
