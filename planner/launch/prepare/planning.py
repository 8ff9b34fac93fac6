"""Compute a launch plan from a request. Pure: the same request gives the same plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from ..._version import __version__
from ...errors import NoAnswerError, UsageError
from ..core.cloud_adapter import Adapter
from ..core.launch_plan import Attempt, LaunchPlan
from ..core.request import LaunchCandidate, LaunchRequest
from .exposure import describe_exposure
from .limits import compute_cap_s, compute_worst_case_usd

__all__ = ["apply_cap", "make_plan", "rebuild_plan"]


def make_plan(request: LaunchRequest, adapter: Adapter) -> LaunchPlan:
    """Return the plan of a request; sends nothing.

    Raises:
        UsageError: The provider does not support its options.
        NoAnswerError: It could cost more than `--max-usd`.
    """
    attempts = adapter.build_attempts(request)
    worst = max(_worst_case(attempt, adapter, request) for attempt in attempts)
    if request.max_usd is not None and worst + request.spent_usd > request.max_usd:
        raise NoAnswerError(
            f"the run could cost ${worst + request.spent_usd:.2f}, and `--max-usd` is ${request.max_usd}",
            hint="raise `--max-usd`, or lower `--max-hours`",
        )
    first = attempts[0].candidate
    return LaunchPlan(
        gpuplan_version=__version__,
        request=request,
        attempts=attempts,
        usd_per_hour=first.usd_per_hour,
        cap_s=first.cap_s,
        worst_case_usd=worst,
        stop=(f"gpuplan stop {request.run}", attempts[0].stop_by_hand),
        notes=_notes(request.candidates, adapter, request.options),
        exposure=describe_exposure(request, attempts[0].details),
    )


def apply_cap(
    candidate: LaunchCandidate,
    adapter: Adapter,
    *,
    options: Mapping[str, str],
    max_hours: float | None,
    max_usd: Decimal | None,
) -> LaunchCandidate:
    """Return a candidate with the longest cap that the limits allow.

    Args:
        candidate: The offer; limits only shorten its ``cap_s``; 0: not set yet.
        max_usd: Money left for this attempt [USD].

    Raises:
        NoAnswerError: The run would not finish in that time.
    """
    terms = adapter.compute_cost_bounds(candidate, options)
    life_s = compute_cap_s(
        run_high_s=candidate.run_s.high if candidate.run_s else None,
        slack_s=terms.slack_s,
        max_usd_per_hour=terms.max_usd_per_hour,
        max_hours=max_hours,
        max_usd=None if max_usd is None else max_usd - terms.left_usd,
        planned_s=candidate.cap_s or None,
    )
    if candidate.run_s is not None and candidate.run_s.mid > life_s:
        raise NoAnswerError(
            f"the run takes about {candidate.run_s.mid:.0f} s on {candidate.instance_type}, and the limits end it "
            f"after {life_s} s",
            hint="raise `--max-usd` or `--max-hours`, or launch a faster offer with `--rank N`",
        )
    return candidate.model_copy(update={"cap_s": life_s})


def rebuild_plan(plan: LaunchPlan, adapter: Adapter) -> LaunchPlan:
    """Plan the request of a written plan again; raise UsageError unless the result is the same."""
    try:
        made = make_plan(plan.request, adapter)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"the launch plan's request cannot be planned: {error}",
            hint="create it again: `gpuplan launch plan.json --dry-run -o launch.json`",
        ) from error
    if made != plan:
        raise UsageError(
            "the launch plan does not match its request: it was edited, or written by another version of gpuplan",
            hint="create it again: `gpuplan launch plan.json --dry-run -o launch.json`",
        )
    return made


def _worst_case(attempt: Attempt, adapter: Adapter, request: LaunchRequest) -> Decimal:
    """Return the maximum cost of an attempt [USD]."""
    terms, cap_s = adapter.compute_cost_bounds(attempt.candidate, request.options), attempt.candidate.cap_s
    slowest_s = max((layer.fires_after_s for layer in attempt.layers if layer.where == "cloud"), default=0.0)
    rented = compute_worst_case_usd(
        cap_s=cap_s, slack_s=max(terms.slack_s, slowest_s - cap_s), max_usd_per_hour=terms.max_usd_per_hour
    )
    return rented + terms.left_usd


def _notes(
    candidates: Sequence[LaunchCandidate], adapter: Adapter, options: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the notes of all candidates, without duplicates."""
    found = [
        note for candidate in candidates for note in adapter.compute_cost_bounds(candidate, options).notes
    ]
    return tuple(dict.fromkeys(found))
