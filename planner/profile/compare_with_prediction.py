"""Comparison of a measured step with the prediction for its accelerator."""

from __future__ import annotations

from typing import Any

from ..errors import GpuplanError
from ..plain import to_plain
from ..predict.step_time import StepTime
from ..profile_schema import ProfileDocument
from ..units import MS_PER_S

__all__ = ["compare_with_prediction"]


def compare_with_prediction(document: ProfileDocument, model: Any) -> list[str]:
    """Return sentences on whether the measured step lies in the predicted interval.

    Adds prediction and traced workload to the profile. Errors become sentences, since the run itself succeeded.

    Args:
        document: A profile with one row.
        model: The Keras model that was measured.
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
    row["predicted"] = {"step_time_s": to_plain(predicted.time_s), "basis": predicted.basis}
    inside = low <= measured_s <= high
    verdict = "inside" if inside else "outside"
    return [
        f"{measured_s * MS_PER_S:.4g} ms per step is {verdict} the predicted {low * MS_PER_S:.3g} to "
        f"{high * MS_PER_S:.3g} ms ({predicted.basis})"
    ]


def _predict(document: ProfileDocument, batch_size: int, model: Any) -> StepTime | None:
    from ..offers.catalog import load_catalog
    from ..offers.local import probe_local_offer
    from ..offers.rows import CPU
    from ..predict.predictor import Predictor
    from ..workload.load import trace_keras_model
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
    found = Predictor.load().step_time(
        workload,
        accelerator,
        devices=document["devices"],
        look_up=False,
        stack="keras" if workload.compiled else "eager",
    )
    return found if isinstance(found, StepTime) else None
