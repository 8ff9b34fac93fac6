"""Comparison of predictions with measurements: a whole plan by part, and single rows of a profile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ..errors import GpuplanError, NoAnswerError, UsageError
from ..estimate_document import read_offers
from ..predict.step_time import StepTime
from ..profile_schema import ProfileDocument, RowRecord, Timing
from ..records import parse_json, to_plain
from ..units import MS_PER_S, SECONDS_PER_HOUR

SCHEMA = "gpuplan.reconcile/1"
PLAN = "gpuplan.estimate/1"
MAKE_PLAN = "make it: `gpuplan estimate train.py -o {path}`"
OFFER_KEYS = ("provider", "instance_type", "region", "purchase")


def read_plan(path: Path) -> dict[str, Any]:
    """Read a plan written by `gpuplan estimate -o`; UsageError if the file cannot be read, or is not one."""
    try:
        plan = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"no such file: `{path}`", hint=MAKE_PLAN.format(path=path)) from None
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}", hint="name another file") from error
    except ValueError as error:
        raise UsageError(f"`{path}` is no plan: {error}", hint=MAKE_PLAN.format(path="plan.json")) from error
    if not isinstance(plan, dict) or plan.get("schema") != PLAN:
        raise UsageError(f"`{path}` is no plan", hint=MAKE_PLAN.format(path="plan.json"))
    return plan


def reconcile(plan: Mapping[str, Any], profile: ProfileDocument) -> dict[str, Any]:
    """Compare the values of a plan (`gpuplan.estimate/1`) with those that a run took.

    Raises:
        NoAnswerError: The plan has no offer with the measured accelerator, or another batch size.
    """
    offer = _find_offer(plan, profile)
    row, fit = _find_row(plan, profile)
    memory = row["memory"]
    parts = [
        _compare("step", "s", offer["step_time_s"], fit["median_s"]),
        *_compare_run(offer, profile),
        *_compare_machine(offer, profile),
        _compare(
            "memory", "bytes", _point(offer["memory_bytes"]), memory["device_peak_bytes"] if memory else None
        ),
        _compare("compilation", "s", None, row["prepare"].get("compile_s") or row["prepare"].get("first_step_s")),
    ]
    return {
        "schema": SCHEMA,
        "model": profile["model"],
        "accelerator": profile["accelerator"],
        "devices": profile["devices"],
        "batch_size": row["batch_size"],
        "offer": {name: offer[name] for name in OFFER_KEYS},
        "basis": offer["basis"],
        "parts": parts,
        "findings": row["findings"],
    }


def _find_offer(plan: Mapping[str, Any], profile: ProfileDocument) -> Mapping[str, Any]:
    name, devices = profile["accelerator"], profile["devices"]
    wanted: dict[str, Any] = {"accelerator": name, "devices": devices}
    if launched := profile.get("launch"):
        wanted |= {key: launched[key] for key in OFFER_KEYS}
    elif name == "CPU":
        wanted["provider"] = "local"
    found = [one for one in read_offers(plan) if all(one[key] == value for key, value in wanted.items())]
    if not found:
        raise NoAnswerError(
            f"the plan has no offer of {devices:g}× {name or 'an unknown device'}",
            hint="estimate with that accelerator, or on the measured machine",
        )
    return found[0]


def _find_row(plan: Mapping[str, Any], profile: ProfileDocument) -> tuple[RowRecord, Timing]:
    """Return the row with the plan's batch size and precision, and its step time."""
    wanted = plan["workload"]["batch_size"], plan["workload"]["precision"]
    measured = [(row, fit) for row in profile["rows"] if (fit := row["fit"]) and fit["median_s"]]
    for row, fit in measured:
        if (row["batch_size"], row["precision"]) == wanted:
            return row, fit
    had = ", ".join(f"{row['batch_size']} in {row['precision']}" for row, _ in measured) or "nothing"
    raise NoAnswerError(
        f"the plan is for batch size {wanted[0]} in {wanted[1]}, the profile has {had}",
        hint="estimate with `--batch-size` and `--precision` of the run",
    )


def _compare_run(offer: Mapping[str, Any], profile: ProfileDocument) -> list[dict[str, Any]]:
    """Compare steps, training and validation; empty if the profile is not of a whole run."""
    run = profile["run"]
    if run is None:
        return []
    steps = sum(run["steps"])
    training_s = sum(run["epochs_s"]) - sum(run["validation_s"])
    whole = offer["train_time_s"] if offer["steps"] == steps else None
    return [
        _compare("steps", "", _point(offer["steps"]), steps),
        _compare("training", "s", whole, training_s),
        _compare("validation", "s", None, sum(run["validation_s"])),
    ]


def _compare_machine(offer: Mapping[str, Any], profile: ProfileDocument) -> list[dict[str, Any]]:
    """Compare lifetime and cost of the machine; empty unless the run was launched."""
    launched = profile.get("launch")
    if launched is None:
        return []
    price = None if offer["usd_per_hour"] is None else float(offer["usd_per_hour"]) / SECONDS_PER_HOUR
    whole = offer["run_time_s"]
    compute = None if whole is None or price is None else {end: whole[end] * price for end in whole}
    return [
        _compare("machine", "s", whole, launched["ran_s"]),
        _compare("compute", "USD", compute, launched["compute_usd"]),
        _compare("whole bill", "USD", offer["cost_usd"], None),
    ]


def _point(value: float | None) -> dict[str, float | None] | None:
    return None if value is None else {"low": None, "mid": value, "high": None}


def _compare(name: str, unit: str, predicted: Mapping[str, Any] | None, actual: float | None) -> dict[str, Any]:
    ends: Mapping[str, Any] = predicted or dict.fromkeys(("low", "mid", "high"))
    low, mid, high = ends["low"], ends["mid"], ends["high"]
    return {
        "part": name,
        "unit": unit,
        "predicted": predicted,
        "actual": actual,
        "actual_over_predicted": actual / mid if actual is not None and mid else None,
        "inside": low <= actual <= high if low is not None and actual is not None else None,
    }


def compare_with_prediction(document: ProfileDocument, model: Any) -> list[str]:
    """Return sentences on whether the measured step lies in the predicted interval; errors become sentences too.

    Adds prediction and traced workload of the Keras model to the profile, which has one row.
    """
    row = document["rows"][0]
    measured_s = row["fit"]["median_s"] if row["fit"] else None
    if row["batch_size"] is None:
        return ["no prediction: the batch size is unknown; give `StepTimer(batch_size=...)`"]
    if document["accelerator"] is None:
        return ["no prediction: this device is not in the catalog"]
    if measured_s is None:
        return ["too few steps to compare with a prediction"]
    try:
        predicted = _predict(document, row["batch_size"], model)
    except GpuplanError as error:
        return [f"no prediction: {error}"]
    if predicted is None:
        return ["no prediction is possible for this device"]
    low, high = predicted.time_s.low, predicted.time_s.high
    prediction = {"step_time_s": to_plain(predicted.time_s), "basis": predicted.basis}
    cast("dict[str, Any]", row)["predicted"] = prediction
    verdict = "inside" if low <= measured_s <= high else "outside"
    return [
        f"{measured_s * MS_PER_S:.4g} ms per step is {verdict} the predicted {low * MS_PER_S:.3g} to "
        f"{high * MS_PER_S:.3g} ms ({predicted.basis})"
    ]


def _predict(document: ProfileDocument, batch_size: int, model: Any) -> StepTime | None:
    from ..offers.catalog import load_catalog
    from ..offers.local import probe_local_offer
    from ..offers.rows import CPU
    from ..predict.predictor import Predictor
    from ..workload.capture.load import trace_keras_model
    from ..workload.options import WorkloadOptions

    catalog = load_catalog()
    workload = trace_keras_model(model, options=WorkloadOptions(batch_size=batch_size))
    document["workloads"] = [workload.to_json()]
    document["rows"][0] |= {"workload": 0, "precision": workload.precision}
    name = document["accelerator"] or ""
    accelerator = catalog.accelerators.get(name)
    if name == CPU:
        own = probe_local_offer(catalog)[1]
        accelerator = own if own.name == CPU else None
    if accelerator is None:
        return None
    stack = "keras" if workload.compiled else "eager"
    devices, predictor = document["devices"], Predictor.load()
    found = predictor.step_time(workload, accelerator, devices=devices, look_up=False, stack=stack)
    return found if isinstance(found, StepTime) else None
