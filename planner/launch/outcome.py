"""Result of a run: wait for its end, compare it with the plan, convert it into a profile document."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from ..errors import GpuplanError, UsageError
from ..plan.money import compute_rental_usd
from ..profile.document import complete_profile, create_profile, create_row
from ..profile_schema import ProfileDocument, Timing
from ..units import SECONDS_PER_HOUR
from ..workload.options import ScriptOptions
from .core.cloud_adapter import RunOutcome
from .core.history import AttemptHistory, History
from .core.request import RunSpec, Seconds
from .reports import describe_progress
from .service import Launcher

SHOWN_LINES = 3  # of the log, on a terminal
SAID_S = 60.0  # between lines of progress, except at a new stage and the first epoch
END_S = 180.0  # a machine that has reported its end is gone by then, or only powered off


def wait_for_end(launcher: Launcher, run: str, *, show: Callable[[str], None] | None = None) -> RunOutcome:
    """Wait until a run has ended and return its result.

    `show` shows the present state, over the last one; without it, events `progress`, a line at most every minute.

    Raises:
        GpuplanError: The machine is gone without a result: killed, preempted or stopped.
    """
    clock, said, said_at, ended_at = launcher.clock, ("", False), -math.inf, math.inf
    for looks in itertools.count():
        launcher.refresh(run)
        history = launcher.ledger.peek(run)
        current = history.current()
        if current is None or current.is_over:
            return read_outcome(launcher, history)
        report = None
        with suppress(GpuplanError):  # refused or silent: the machine itself is looked at above
            report = launcher.watch(run)
        if report is not None:
            now_s, provider = clock.monotonic(), current.plan.request.provider
            text = describe_progress(report, current, now=launcher.adapter(provider).cloud_time() or clock.now())
            if show is not None:
                show("\n".join((text, *report.log.splitlines()[-SHOWN_LINES:])))
            elif (state := (report.stage, report.epoch is None)) != said or now_s - said_at >= SAID_S:
                launcher.tell("progress", text, current)
                said, said_at = state, now_s
            ended_at = min(ended_at, now_s) if report.status != "running" else math.inf
            if now_s - ended_at > END_S:
                return report
        clock.sleep(launcher.backoff.poll_delay_s(looks))
    raise AssertionError("unreachable: the loop has no end of its own")


def compare_with_plan(history: History, outcome: RunOutcome) -> list[dict[str, Any]]:
    """Return rows with planned and actual time and cost of an ended attempt; None: unknown."""
    past = next(one for one in history.attempts() if one.attempt.number == outcome.attempt)
    candidate = past.attempt.candidate
    price = candidate.usd_per_hour
    rented = None if outcome.ran_s is None else compute_rental_usd(duration_s=outcome.ran_s, usd_per_hour=price)
    hourly = float(price) / SECONDS_PER_HOUR
    return [
        _compare("step", "s", candidate.step_s, outcome.step_s),
        _compare("training", "s", candidate.run_s, outcome.train_s),
        _compare("whole machine", "s", None, outcome.ran_s),
        _compare("compute", "USD", candidate.run_s, None if rented is None else float(rented), scale=hourly),
    ]


def _compare(
    item: str, unit: str, planned: Seconds | None, actual: float | None, *, scale: float = 1.0
) -> dict[str, Any]:
    """Return a row with planned and actual value of one quantity; planned times are scaled to its unit."""
    bounds = {key: planned and getattr(planned, key) * scale for key in ("low", "mid", "high")}
    return {"item": item, "unit": unit, **bounds, "actual": actual}


def read_outcome(launcher: Launcher, history: History) -> RunOutcome:
    """Return the result of an ended run; raise GpuplanError without one."""
    current = history.current()
    report = launcher.report(current) if current is not None else None
    if report is not None and report.status != "running":
        return report
    seen = f"; its last report: {describe_progress(report, current, now=None)}" if report and current else ""
    raise GpuplanError(
        f"the machine of run `{history.run}` is gone and left no result{seen}",
        hint="the same command rents another machine, which is paid for again; it continues from the last "
        "checkpoint if the run has a bucket (`-O bucket=…`), which also keeps its log",
    )


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
    """Return the 95 % interval of the median of step times [s].

    Args:
        quartiles_s: Quartiles of the times [s].
        steps: Number of steps [-].

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
    row |= {"precision": outcome.precision, "fit": _timing(outcome)}
    lived_s = _lived_s(history, outcome)
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


def _timing(outcome: RunOutcome) -> Timing:
    """Return the step times in the form of a profile; they were timed one by one, not in windows."""
    found: Timing = {
        "median_s": outcome.step_s,
        "windows_s": [],
        "steps_per_window": [],
        "warm_up": {"windows_s": [], "settled": None},
        "stopped": "stopped",
    }
    if outcome.step_s_quartiles is not None and outcome.timed_steps:
        low_s, high_s = compute_median_bounds_s(outcome.step_s_quartiles, steps=outcome.timed_steps)
        found |= {"low_s": low_s, "high_s": high_s, "width": (high_s - low_s) / outcome.step_s_quartiles[1]}
    return found


def _lived_s(history: History, outcome: RunOutcome) -> float:
    """Return the total life of the run's machines: the last by its own clock, others by the cloud's [s]."""
    lived = Decimal(0)
    for one in history.attempts():
        if one.attempt.number == outcome.attempt and outcome.ran_s is not None:
            lived += Decimal(outcome.ran_s)
        else:
            lived += one.lived_s or Decimal(0)
    return float(lived)


def _with_workload(document: ProfileDocument, spec: RunSpec, terms: ScriptOptions) -> ProfileDocument:
    """Add the traced workload of the run, which later estimates need, to the profile."""
    from ..workload.capture.load import load_workload
    from ..workload.options import WorkloadOptions

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
