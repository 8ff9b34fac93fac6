"""Waiting for a run to come to its end, and what it took beside what was planned."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ...errors import GpuplanError
from ...plan.pricing.money import rental_usd
from ...units import SECONDS_PER_HOUR, Interval
from .cloud_adapter import RunOutcome
from .history import History
from .request import Seconds
from .service import Launcher

__all__ = ["PlanComparison", "compare_with_plan", "read_outcome", "wait_for_end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanComparison:
    """A line of what was planned and what it was, in the same unit; None is unknown."""

    item: str
    unit: str
    planned: Interval | None
    actual: float | None

    def to_json(self) -> dict[str, Any]:
        """Return a row."""
        bounds = self.planned.to_json() if self.planned else dict.fromkeys(("low", "mid", "high"))
        return {"item": self.item, "unit": self.unit, **bounds, "actual": self.actual}


def wait_for_end(launcher: Launcher, run: str) -> RunOutcome:
    """Return how a run ended, once nothing of it is left.

    Raises:
        GpuplanError: It is gone and left no word of how it ended: killed, reclaimed, or stopped.
    """
    for looks in itertools.count():
        launcher.refresh(run)
        history = launcher.ledger.peek(run)
        current = history.current()
        if current is None or current.is_over:
            return read_outcome(launcher, history)
        launcher.clock.sleep(launcher.backoff.poll_delay_s(looks))
    raise AssertionError("unreachable: the loop has no end of its own")


def compare_with_plan(history: History, outcome: RunOutcome) -> list[PlanComparison]:
    """Return time and money of an ended attempt beside its plan."""
    past = next(one for one in history.attempts() if one.attempt.number == outcome.attempt)
    candidate = past.attempt.candidate
    price = candidate.usd_per_hour
    rented = None if outcome.ran_s is None else rental_usd(duration_s=outcome.ran_s, usd_per_hour=price)
    return [
        PlanComparison(item="step", unit="s", planned=_interval(candidate.step_s), actual=outcome.step_s),
        PlanComparison(item="training", unit="s", planned=_interval(candidate.run_s), actual=outcome.train_s),
        PlanComparison(item="whole machine", unit="s", planned=None, actual=outcome.ran_s),
        PlanComparison(
            item="compute", unit="USD", planned=_usd(candidate.run_s, price),
            actual=None if rented is None else float(rented),
        ),
    ]  # fmt: skip


def _interval(planned: Seconds | None) -> Interval | None:
    """Return a planned time [s]."""
    return None if planned is None else Interval(low=planned.low, mid=planned.mid, high=planned.high)


def _usd(run_s: Seconds | None, price: Decimal) -> Interval | None:
    """Return a planned time as money [USD]."""
    times = _interval(run_s)
    return None if times is None else times.scaled(float(price) / SECONDS_PER_HOUR)


def read_outcome(launcher: Launcher, history: History) -> RunOutcome:
    """Return what the run left; GpuplanError when it left nothing."""
    current = history.current()
    if current is not None:
        request = current.plan.request
        outcome = launcher.outcome(request)
        if outcome is not None and outcome.attempt == current.attempt.number:
            return outcome
    raise GpuplanError(
        f"the machine of run `{history.run}` is gone, and left no word of how it ended",
        hint="the same command again goes on from its last checkpoint, where the run has one",
    )
