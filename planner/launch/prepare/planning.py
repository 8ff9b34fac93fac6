"""From a request to a launch plan: pure. The same request gives the same plan, to the letter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from ..._version import __version__
from ...errors import NoAnswerError, UsageError
from ..core.cloud_adapter import Adapter
from ..core.launch_plan import Attempt, LaunchPlan
from ..core.request import LaunchCandidate, LaunchRequest
from .exposure import describe_exposure
from .limits import cap_s, worst_case_usd

__all__ = ["apply_cap", "make_plan", "rebuild_plan"]


def make_plan(request: LaunchRequest, adapter: Adapter) -> LaunchPlan:
    """Return the plan of a request. Nobody is asked anything.

    Raises:
        UsageError: The provider cannot do what its options ask for.
        NoAnswerError: It would cost more than was allowed.
    """
    attempts = adapter.attempts(request)
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
    """Return a candidate with the longest life that the limits allow.

    Args:
        candidate: Its own ``cap_s`` is kept where the limits allow it; 0: it has none yet.
        max_usd: What is left for this attempt [USD].

    Raises:
        NoAnswerError: The run would not be done in that time.
    """
    terms = adapter.terms(candidate, options)
    life_s = cap_s(
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
    """Return the plan that a written plan's request gives here and now; UsageError unless it is the same."""
    try:
        made = make_plan(plan.request, adapter)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"nothing can be planned from the launch plan's request: {error}",
            hint="make it anew: `gpuplan launch plan.json --dry-run -o launch.json`",
        ) from error
    if made != plan:
        raise UsageError(
            "the launch plan is not what its own request gives: it was edited, or gpuplan is another version",
            hint="make it anew: `gpuplan launch plan.json --dry-run -o launch.json`",
        )
    return made


def _worst_case(attempt: Attempt, adapter: Adapter, request: LaunchRequest) -> Decimal:
    """Return the most that an attempt can cost [USD]."""
    terms, cap_s = adapter.terms(attempt.candidate, request.options), attempt.candidate.cap_s
    slowest_s = max((layer.fires_after_s for layer in attempt.layers if layer.where == "cloud"), default=0.0)
    rented = worst_case_usd(
        cap_s=cap_s, slack_s=max(terms.slack_s, slowest_s - cap_s), max_usd_per_hour=terms.max_usd_per_hour
    )
    return rented + terms.left_usd


def _notes(
    candidates: Sequence[LaunchCandidate], adapter: Adapter, options: Mapping[str, str]
) -> tuple[str, ...]:
    """Return what the terms of all candidates leave out, each once."""
    found = [note for candidate in candidates for note in adapter.terms(candidate, options).notes]
    return tuple(dict.fromkeys(found))
