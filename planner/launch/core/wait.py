"""Wait for the end of a run, and compare its time and cost with the plan."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ...errors import GpuplanError
from ...plain import to_plain
from ...plan.pricing.money import compute_rental_usd
from ...units import SECONDS_PER_HOUR, Interval
from .cloud_adapter import RunOutcome
from .history import History
from .request import Seconds
from .service import Launcher

__all__ = ["PlanComparison", "compare_with_plan", "read_outcome", "wait_for_end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanComparison:
    """Planned and actual value of one quantity; None: unknown."""

    item: str
    unit: str
    planned: Interval | None
    actual: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON."""
        bounds = to_plain(self.planned) if self.planned else dict.fromkeys(("low", "mid", "high"))
        return {"item": self.item, "unit": self.unit, **bounds, "actual": self.actual}


def wait_for_end(launcher: Launcher, run: str) -> RunOutcome:
    """Wait until a run has ended and return its result.

    Raises:
        GpuplanError: The machine is gone without a result: killed, preempted or stopped.
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
    """Return planned and actual time and cost of an ended attempt."""
    past = next(one for one in history.attempts() if one.attempt.number == outcome.attempt)
    candidate = past.attempt.candidate
    price = candidate.usd_per_hour
    rented = (
        None if outcome.ran_s is None else compute_rental_usd(duration_s=outcome.ran_s, usd_per_hour=price)
    )
    return [
        PlanComparison(item="step", unit="s", planned=_interval(candidate.step_s), actual=outcome.step_s),
        PlanComparison(item="training", unit="s", planned=_interval(candidate.run_s), actual=outcome.train_s),
        PlanComparison(item="whole machine", unit="s", planned=None, actual=outcome.ran_s),
        PlanComparison(
            item="compute",
            unit="USD",
            planned=_usd(candidate.run_s, price),
            actual=None if rented is None else float(rented),
        ),
    ]


def _interval(planned: Seconds | None) -> Interval | None:
    """Return a planned time [s]."""
    return None if planned is None else Interval(low=planned.low, mid=planned.mid, high=planned.high)


def _usd(run_s: Seconds | None, price: Decimal) -> Interval | None:
    """Return the cost of a planned time [USD]."""
    times = _interval(run_s)
    return None if times is None else times.scaled(float(price) / SECONDS_PER_HOUR)


def read_outcome(launcher: Launcher, history: History) -> RunOutcome:
    """Return the result of an ended run; raise GpuplanError without one."""
    current = history.current()
    if current is not None:
        request = current.plan.request
        outcome = launcher.outcome(request)
        if outcome is not None and outcome.attempt == current.attempt.number:
            return outcome
    raise GpuplanError(
        f"the machine of run `{history.run}` is gone and left no result",
        hint="repeat the command to continue from the last checkpoint, if the run has one",
    )
