"""Compute a launch plan from a request, with the permissions and network access of its machines.

Pure: the same request gives the same plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from decimal import Decimal
from itertools import chain

from .._version import __version__
from ..errors import NoAnswerError, UsageError
from ..plan.money import compute_rental_usd
from ..units import SECONDS_PER_HOUR
from .core.cloud_adapter import Adapter
from .core.launch_plan import Attempt, CostBounds, LaunchPlan
from .core.request import LONGEST_CAP_S, SHORTEST_CAP_S, LaunchCandidate, LaunchRequest

PLAN_AGAIN = "create it again: `gpuplan launch plan.json --dry-run -o launch.json`"


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
        exposure=describe_exposure(request, attempts[0].details, adapter=adapter),
    )


HIGH_FACTOR = 1.5  # default cap over the upper end of the planned time [-]
STARTUP_ALLOWANCE_S = 1800.0  # boot, driver, installation, data, compilation: not predicted


def apply_cap(
    candidate: LaunchCandidate,
    terms: CostBounds,
    *,
    max_hours: float | None,
    max_usd: Decimal | None,
    is_planned: bool = False,
) -> LaunchCandidate:
    """Return a candidate with the longest cap that the limits allow, at most 30 days [s].

    min(max_hours, (max_usd - left_usd) / price - slack_s); without any limit 1.5 * run_s.high + 1800 s. The cap of
    a planned candidate can only be shortened. `max_usd` is the money left for this attempt.

    Raises:
        NoAnswerError: There is no limit to derive a cap from, or the run would not start or finish within it.
    """
    run, allowed = candidate.run_s, [float(candidate.cap_s)] if is_planned else []
    if max_hours is not None:
        allowed.append(max_hours * SECONDS_PER_HOUR)
    if max_usd is not None and terms.max_usd_per_hour > 0:
        paid_h = float((max_usd - terms.left_usd) / terms.max_usd_per_hour)
        allowed.append(paid_h * SECONDS_PER_HOUR - terms.slack_s)
    if not allowed and run is not None:
        allowed.append(run.high * HIGH_FACTOR + STARTUP_ALLOWANCE_S)
    if not allowed:
        raise NoAnswerError(
            "the run time in the plan is unknown, so no deadline can be derived",
            hint="add a limit: `--max-hours N` or `--max-usd N`",
        )
    cap_s = math.floor(min(*allowed, LONGEST_CAP_S))
    if cap_s < SHORTEST_CAP_S:
        raise NoAnswerError(
            f"the limits leave {max(cap_s, 0)} s for the machine, and {SHORTEST_CAP_S} s is the minimum",
            hint="raise `--max-usd` or `--max-hours`",
        )
    if run is not None and run.mid > cap_s:
        raise NoAnswerError(
            f"the run takes about {run.mid:.0f} s on {candidate.instance_type}, and the limits end it "
            f"after {cap_s} s",
            hint="raise `--max-usd` or `--max-hours`, or choose a faster offer with `--rank N`",
        )
    return candidate.changed(cap_s=cap_s)


def require_unedited(plan: LaunchPlan, adapter: Adapter) -> None:
    """Plan the request of a written plan again; raise UsageError unless the result is the same."""
    try:
        made = make_plan(plan.request, adapter)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"the launch plan's request cannot be planned: {error}", hint=PLAN_AGAIN) from error
    if made != plan:
        raise UsageError(
            "the launch plan does not match its request: it was edited, or written by another version of gpuplan",
            hint=PLAN_AGAIN,
        )


def _worst_case(attempt: Attempt, adapter: Adapter, request: LaunchRequest) -> Decimal:
    """Return the maximum cost of an attempt, without traffic, tax, and storage that is kept on purpose [USD]."""
    terms, cap_s = adapter.compute_cost_bounds(attempt.candidate, request.options), attempt.candidate.cap_s
    slowest_s = max((layer.fires_after_s for layer in attempt.outer_layers or attempt.layers), default=0.0)
    duration_s = float(cap_s) + max(terms.slack_s, slowest_s - cap_s)
    return compute_rental_usd(duration_s=duration_s, usd_per_hour=terms.max_usd_per_hour) + terms.left_usd


def _notes(candidates: Sequence[LaunchCandidate], adapter: Adapter, options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the changes that scripts need and the notes of all candidates, without duplicates."""
    sharded = (one.describe_layout() for one in candidates)
    found = chain.from_iterable(adapter.compute_cost_bounds(one, options).notes for one in candidates)
    return tuple(dict.fromkeys(filter(None, chain(sharded, found))))


_PAYERS = ("project", "subscription")


def describe_exposure(request: LaunchRequest, details: Mapping[str, str], *, adapter: Adapter) -> dict[str, str]:
    """Return account, image, bucket, open ports and identity of a request's machines; empty for this computer.

    The details of the first attempt name the account where no option does.
    """
    if adapter.options_type is None:
        return {}
    own = fields(adapter.options_type)
    chosen = {**{one.name: str(one.default) for one in own if one.default is not MISSING}, **request.options}
    image = adapter.pick_image(request.candidates[0], request.options)
    image += " (runs a container)" if request.spec.source.startswith("image:") else ""
    identity = chosen.get("profile") or chosen.get("service_account") or "none"
    if request.provider == "azure":
        identity = "its own, with rights on itself only"
    ports = f"22 from {chosen['ssh_from']}" if chosen.get("ssh_from") else "none"
    if "ssh_from" not in chosen:
        ports = f"those of the network `{chosen['network']}`; gpuplan adds none"
    owner = chosen.get("bucket_owner")
    whose = f"of account {owner}" if owner else "of the account that launches"
    if owner is None:
        whose = "whose it is, is not checked"
    found = {
        "account": next((details[name] for name in _PAYERS if name in details), "from the credentials"),
        "image": image or "the slice's own",
        "bucket": f"{chosen['bucket']} ({whose})" if chosen.get("bucket") else "none",
        "open ports": ports,
        "identity": identity,
    }
    if chosen.get("scheduler_role"):
        found["ended by"] = chosen["scheduler_role"]
    return found


HOURS_PER_DAY = 24


def require_outer_cap(plan: LaunchPlan, adapter: Adapter) -> None:
    """Raise NoAnswerError when an attempt has no cap at its provider and the user did not consent."""
    bare = [one for one in plan.attempts if all(layer.where == "machine" for layer in one.layers)]
    if not bare or not adapter.remote or plan.request.guest_cap_only:
        return
    one, zone = bare[0].candidate, bare[0].zone
    terms = adapter.compute_cost_bounds(one, plan.request.options)
    hour = terms.max_usd_per_hour
    raise NoAnswerError(
        f"no layer outside the machine ends the {one.instance_type} in {zone or one.region}: if it hangs before "
        f"its own timer is set, it costs ${hour:.2f} an hour, ${hour * HOURS_PER_DAY:.2f} a day, until "
        "`gpuplan reap` or `stop`",
        hint=f"{terms.outer_cap or 'choose another offer'}; or accept this: `GPUPLAN_GUEST_CAP_ONLY=true`",
    )
