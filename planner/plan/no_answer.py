"""Reasons for a negative answer: nothing fits, nothing is predicted, or deadline or budget is exceeded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import NoAnswerError
from ..predict.step_time import NoPrediction
from ..units import GIB, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from .question import Question
    from .result.estimate import Estimate
    from .result.offer_estimate import OfferEstimate

__all__ = ["explain_no_answer"]


def explain_no_answer(estimate: Estimate, question: Question) -> NoAnswerError | None:
    """Return the error that explains why no offer answers the question, or None if one does."""
    checks = [_nothing_in_time(estimate, question), _nothing_in_budget(estimate, question)]
    if estimate.recommendation.cheapest is None:
        checks = [_nothing_fits(estimate), _nothing_predicted(estimate), *checks]
    return next((why for why in checks if why is not None), None)


def _nothing_fits(estimate: Estimate) -> NoAnswerError | None:
    """Return an error if the step fits on no offer with known memory."""
    verdicts = [memory for one in estimate.offers if (memory := one.projection.memory).fits is not None]
    if not verdicts or any(verdict.fits for verdict in verdicts):
        return None
    largest = max(verdict.largest_batch_size or 0 for verdict in verdicts)
    workload = estimate.workload
    needed_gib = verdicts[0].needed_bytes / GIB
    return NoAnswerError(
        f"`{workload.model}` at batch size {workload.batch_size} fits on none of {len(verdicts)} offers: "
        f"it needs {needed_gib:.1f} GiB a device",
        hint=f"try `--batch-size {largest}` or less"
        if largest
        else "not even one sample fits: try `--precision bfloat16`, or devices with more memory",
    )


def _nothing_predicted(estimate: Estimate) -> NoAnswerError | None:
    """Return an error if no step time could be predicted."""
    steps = [one.projection.step_time for one in estimate.offers]
    if any(not isinstance(step, NoPrediction) for step in steps):
        return None
    reason = next(step.reason for step in steps if isinstance(step, NoPrediction))
    return NoAnswerError(
        f"no step time can be given on any of {len(steps)} offers: {reason}",
        hint="ask for another `--precision` or other accelerators; see `gpuplan accelerators`",
    )


def _nothing_in_time(estimate: Estimate, question: Question) -> NoAnswerError | None:
    """Return an error if no offer meets the deadline."""
    chosen = estimate.recommendation
    if question.deadline_s is None or chosen.within_deadline is not None:
        return None
    asked = f"no offer is safely done within {question.deadline_s / SECONDS_PER_HOUR:.3g} h"
    if chosen.fastest is None:
        return NoAnswerError(asked, hint="no offer that fits has a known time and price")
    best = estimate.offers[chosen.fastest]
    time_s = best.run_time_s
    best_h = "" if time_s is None else f"{_hours(time_s.mid)} (up to {_hours(time_s.high)}), on "
    return NoAnswerError(
        f"{asked}: the fastest takes {best_h}{_name(best)}", hint="allow more time, or train less"
    )


def _nothing_in_budget(estimate: Estimate, question: Question) -> NoAnswerError | None:
    """Return an error if no offer stays within the budget."""
    chosen = estimate.recommendation
    if question.budget_usd is None or chosen.within_budget is not None:
        return None
    asked = f"no offer safely stays within ${question.budget_usd:g}"
    if chosen.cheapest is None:
        return NoAnswerError(asked, hint="no offer that fits has a known time and price")
    best = estimate.offers[chosen.cheapest]
    usd = "" if best.bill is None else f"${best.bill.total.mid:.2f} (up to ${best.bill.total.high:.2f}), on "
    free = chosen.free
    hint = "allow more money, or train less" if free is None else f"free: {_name(estimate.offers[free])}"
    return NoAnswerError(f"{asked}: the cheapest costs {usd}{_name(best)}", hint=hint)


def _hours(time_s: float) -> str:
    """Format a time in hours."""
    return f"{time_s / SECONDS_PER_HOUR:.3g} h"


def _name(one: OfferEstimate) -> str:
    """Format the name of an offer."""
    return f"{one.offer.provider} {one.offer.instance_type} in {one.offer.region}"
