"""Result of a run: wait for its end, and compare it with the plan."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..errors import GpuplanError
from ..plan.money import compute_rental_usd
from ..units import SECONDS_PER_HOUR
from .core.cloud_adapter import RunOutcome
from .core.history import History
from .core.request import Seconds
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
