"""How long a machine may live and what it may cost at most. Numbers in, numbers out."""

from __future__ import annotations

import math
from decimal import Decimal

from ...errors import NoAnswerError
from ...plan.pricing.money import rental_usd
from ...units import SECONDS_PER_HOUR

__all__ = ["HIGH_FACTOR", "STARTUP_ALLOWANCE_S", "cap_s", "worst_case_usd"]

HIGH_FACTOR = 1.5  # without a limit of the user's own: times the upper end of the plan's interval
STARTUP_ALLOWANCE_S = 1800.0  # boot, driver, installation, data, compilation: nobody predicts these yet
SHORTEST_CAP_S = 120  # a timer that counts in minutes cannot keep less


def worst_case_usd(*, cap_s: float, slack_s: float, max_usd_per_hour: Decimal) -> Decimal:
    """Return the most that a machine can cost when it ends at its cap and not before [USD].

    Args:
        cap_s: Longest life until the order to end [s].
        slack_s: From the order to the end of billing [s].
        max_usd_per_hour: Highest price that can be charged, disk included [USD/h].

    Leaves out what no cap can stop: traffic, tax, and storage that is kept on purpose.

    Example:
        >>> worst_case_usd(cap_s=3000.0, slack_s=600.0, max_usd_per_hour=Decimal("0.526"))
        Decimal('0.526000000')
    """
    return rental_usd(duration_s=cap_s + slack_s, usd_per_hour=max_usd_per_hour)


def cap_s(
    *,
    run_high_s: float | None,
    slack_s: float,
    max_usd_per_hour: Decimal,
    max_hours: float | None = None,
    max_usd: Decimal | None = None,
    planned_s: float | None = None,
) -> int:
    """Return the longest life of a machine [s]: the shortest of what the limits allow.

    Args:
        run_high_s: Upper end of the planned time of all steps; None when unknown [s].
        slack_s: From the order to end to the end of billing [s].
        max_usd_per_hour: Highest price that can be charged [USD/h].
        max_hours, max_usd: The user's own limits; the latter with the slack inside.
        planned_s: Of a plan that was made before, which limits only ever shorten; None: there is none [s].

    Raises:
        NoAnswerError: There is nothing to derive a cap from, or what is allowed is too little to start at all.

    Example:
        >>> cap_s(run_high_s=3600.0, slack_s=600.0, max_usd_per_hour=Decimal(2))
        7200
        >>> cap_s(run_high_s=None, slack_s=600.0, max_usd_per_hour=Decimal(2), max_usd=Decimal(1))
        1200
    """
    allowed: list[float] = []
    if max_hours is not None:
        allowed.append(max_hours * SECONDS_PER_HOUR)
    if max_usd is not None and max_usd_per_hour > 0:
        allowed.append(float(max_usd / max_usd_per_hour) * SECONDS_PER_HOUR - slack_s)
    if planned_s is not None:
        allowed.append(planned_s)
    if not allowed and run_high_s is not None:
        allowed.append(run_high_s * HIGH_FACTOR + STARTUP_ALLOWANCE_S)
    if not allowed:
        raise NoAnswerError(
            "the plan does not know how long the run takes, so there is no deadline to derive from it",
            hint="nothing is launched without one: add `--max-hours N` or `--max-usd N`",
        )
    shortest = math.floor(min(allowed))
    if shortest < SHORTEST_CAP_S:
        raise NoAnswerError(
            f"the limits leave {max(shortest, 0)} s for the machine: too little to start it",
            hint="raise `--max-usd` or `--max-hours`",
        )
    return shortest
