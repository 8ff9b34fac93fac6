"""Require the user's explicit consent to a machine without a cap outside it."""

from __future__ import annotations

from ...errors import NoAnswerError
from ..core.cloud_adapter import Adapter
from ..core.launch_plan import LaunchPlan

__all__ = ["require_outer_cap"]

HOURS_PER_DAY = 24


def require_outer_cap(plan: LaunchPlan, adapter: Adapter) -> None:
    """Raise NoAnswerError when an attempt has no cap at its provider and the user did not consent.

    Args:
        plan: The plan.
        adapter: Adapter of its provider.
    """
    if not adapter.remote or plan.request.guest_cap_only:
        return
    for attempt in plan.attempts:
        if any(layer.where == "cloud" for layer in attempt.layers):
            continue
        one = attempt.candidate
        terms = adapter.compute_cost_bounds(one, plan.request.options)
        hour = terms.max_usd_per_hour
        raise NoAnswerError(
            f"no layer outside the machine ends the {one.instance_type} in {attempt.zone or one.region}: if it "
            f"hangs before its own timer is set, it costs ${hour:.2f} an hour, ${hour * HOURS_PER_DAY:.2f} a day, "
            "until `gpuplan reap` or `stop`",
            hint=f"{terms.outer_cap or 'choose another offer'}; or consent: `--guest-cap-only`",
        )
