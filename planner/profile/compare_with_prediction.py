"""A measured run beside what is predicted for its accelerator."""

from __future__ import annotations

from typing import Any

from ..errors import GpuplanError
from ..predict.step_time import StepTime
from ..units import MS_PER_S

__all__ = ["compare_with_prediction"]


def compare_with_prediction(document: dict[str, Any], model: Any) -> list[str]:
    """Say whether a measured step lies in the predicted interval; adds the traced workload to the profile.

    Nothing that goes wrong here may spoil a run that has ended well: it becomes a sentence.

    Args:
        document: A profile of one row.
        model: The Keras model that ran.
    """
    row = document["rows"][0]
    measured_s = row["fit"]["median_s"]
    if row["batch_size"] is None:
        return ["the batch size is not known, so nothing is predicted: `StepTimer(batch_size=...)`"]
    if document["accelerator"] is None:
        return ["this device is not in the catalog, so nothing is predicted for it"]
    if measured_s is None:
        return ["too few steps to compare with anything"]
    try:
        predicted = _predicted(document, row["batch_size"], model)
    except GpuplanError as error:
        return [f"nothing is predicted: {error}"]
    if predicted is None:
        return ["nothing can be predicted for this device"]
    low, high = predicted.time_s.low, predicted.time_s.high
    row["predicted"] = {"step_time_s": predicted.time_s.to_json(), "basis": predicted.basis}
    inside = low <= measured_s <= high
    verdict = "inside" if inside else "outside"
    return [
        f"{measured_s * MS_PER_S:.4g} ms a step is {verdict} the predicted {low * MS_PER_S:.3g} to "
        f"{high * MS_PER_S:.3g} ms ({predicted.basis})"
    ]


def _predicted(document: dict[str, Any], batch_size: int, model: Any) -> StepTime | None:
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
    name = document["accelerator"]
    accelerator = catalog.accelerators.get(name)
    if name == CPU:
        own = probe_local_offer(catalog)[1]
        accelerator = own if own.name == CPU else None
    if accelerator is None:
        return None
    found = Predictor.load().step_time(
        workload, accelerator, devices=document["devices"], look_up=False,
        stack="keras" if workload.compiled else "eager",
    )  # fmt: skip
    return found if isinstance(found, StepTime) else None
