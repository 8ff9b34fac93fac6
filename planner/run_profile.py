"""Profile of a launched run, for later estimates: the machine's report in the form of a measured profile."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from .errors import GpuplanError, UsageError
from .launch.core.cloud_adapter import RunOutcome
from .launch.core.history import AttemptHistory, History
from .launch.core.request import RunSpec
from .launch.outcome import read_outcome
from .launch.service import Launcher
from .plan.money import compute_rental_usd
from .profile.document import complete_profile, create_profile, create_row
from .profile.windows import MeasurementRules, Meter
from .profile_schema import ProfileDocument, Timing
from .workload.options import ScriptOptions

NOTCH = 1.57  # R. McGill, J. W. Tukey, W. A. Larsen: Variations of Box Plots, The American Statistician 32 (1978)


def profile_of_run(
    launcher: Launcher, run: str, *, model: str, terms: ScriptOptions | None = None
) -> ProfileDocument:
    """Return the profile of an ended run, by the MODEL argument of its estimate and the terms of its tracing.

    Raises:
        UsageError: The run is unknown or has not ended.
        GpuplanError: It has no result, or never trained.
    """
    if run not in {log.run for log in launcher.ledger.runs()}:
        raise UsageError(f"no file and no run `{run}`", hint="see `gpuplan ps`, or give the path of a profile")
    launcher.refresh(run)
    history = launcher.ledger.peek(run)
    current = history.current()
    if current is None or not current.is_over:
        raise UsageError(f"run `{run}` has not ended yet", hint="`gpuplan launch PLAN --wait` waits for its end")
    outcome = read_outcome(launcher, history)
    if outcome.step_s is None:
        raise GpuplanError(
            f"run `{run}` has no timed steps: it ended as `{outcome.status}`", hint="see its log: `gpuplan ps`"
        )
    return _with_workload(
        _document(history, current, outcome, model=model), current.plan.request.spec, terms or ScriptOptions()
    )


def compute_median_bounds_s(quartiles_s: tuple[float, float, float], *, steps: int) -> tuple[float, float]:
    """Return the 95 % interval of the median of step times, of which quartiles are known [s].

    median ± 1.57 (Q3 - Q1) / sqrt(steps), McGill, Tukey and Larsen 1978. Valid for independent times; neighbouring
    steps are correlated, so the interval is a lower bound.

    Example:
        >>> compute_median_bounds_s((0.9, 1.0, 1.1), steps=100)
        (0.9686, 1.0314)
    """
    low, median, high = quartiles_s
    half = NOTCH * (high - low) / math.sqrt(steps)
    return median - half, median + half


def _document(history: History, current: AttemptHistory, outcome: RunOutcome, *, model: str) -> ProfileDocument:
    """Return the profile, without the table of operations."""
    candidate = current.attempt.candidate
    document = create_profile(
        model=model, mode="train", backend=outcome.backend or "unknown", data="script", rules={}, source="launch"
    )
    devices = max(1, int(candidate.devices))
    row = create_row(status="measured", batch_size=outcome.batch_size and max(1, outcome.batch_size // devices))
    row |= {"precision": outcome.precision, "fit": _build_timing(outcome)}
    lived_s = float(sum(_iter_lives_s(history, outcome)))
    paid = compute_rental_usd(duration_s=lived_s, usd_per_hour=candidate.usd_per_hour)
    document |= {
        "status": "complete" if outcome.status == "done" else "interrupted",
        "accelerator": candidate.accelerator,
        "devices": candidate.devices,
        "rows": [row],
        "run": {  # the training of the last attempt; validation is included
            "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "epochs_planned": None,
            "steps_per_epoch": None,
            "epochs_s": [outcome.train_s or 0.0],
            "validation_s": [0.0],
            "steps": [outcome.steps or 0],
            "total_s": outcome.train_s,
            "global_batch_size": outcome.batch_size,
        },
        "launch": {
            "run": history.run,
            "attempts": sum(one.begun for one in history.attempts()),
            "provider": current.plan.request.provider,
            "instance_type": candidate.instance_type,
            "region": candidate.region,
            "purchase": candidate.purchase,
            "ran_s": lived_s,
            "compute_usd": float(paid),
            "status": outcome.status,
        },
    }
    return complete_profile(document)


def _build_timing(outcome: RunOutcome) -> Timing:
    """Return the step times in the form of a profile; they were timed one by one, not in windows."""
    found: Timing = Meter(MeasurementRules()).to_json() | {"median_s": outcome.step_s}
    if outcome.step_s_quartiles is not None and outcome.timed_steps:
        low_s, high_s = compute_median_bounds_s(outcome.step_s_quartiles, steps=outcome.timed_steps)
        found |= {"low_s": low_s, "high_s": high_s, "width": (high_s - low_s) / outcome.step_s_quartiles[1]}
    return found


def _iter_lives_s(history: History, outcome: RunOutcome) -> Iterator[Decimal]:
    """Yield the life of each of the run's machines: the last by its own clock, others by the cloud's [s]."""
    for one in history.attempts():
        is_last = one.attempt.number == outcome.attempt and outcome.ran_s is not None
        yield Decimal(outcome.ran_s or 0) if is_last else one.lived_s or Decimal(0)


def _with_workload(document: ProfileDocument, spec: RunSpec, terms: ScriptOptions) -> ProfileDocument:
    """Add the traced workload of the run, which later estimates need, to the profile."""
    from .workload.capture.load import load_workload
    from .workload.options import WorkloadOptions

    row = document["rows"][0]
    kind, _, place = spec.source.partition(":")
    script = kind == "folder" and document["model"].endswith(".py")
    try:
        workload = load_workload(
            spec.script if script else document["model"],
            options=WorkloadOptions(batch_size=row["batch_size"], script=terms),
            base=Path(place) if script else None,
            argv=spec.arguments if script else (),
        )
    except GpuplanError as error:
        document["notes"].append(f"later estimates cannot use this run: it could not be traced: {error}")
        return document
    document["workloads"] = [workload.to_json()]
    row |= {"workload": 0, "precision": workload.precision}
    return document
