"""Maximum life and cost of a machine. Pure functions of numbers."""

from __future__ import annotations

import math
from decimal import Decimal

from ...errors import NoAnswerError
from ...plan.pricing.money import compute_rental_usd
from ...units import SECONDS_PER_HOUR

__all__ = ["HIGH_FACTOR", "STARTUP_ALLOWANCE_S", "compute_cap_s", "compute_worst_case_usd"]

HIGH_FACTOR = 1.5  # default cap over the upper end of the planned time [-]
STARTUP_ALLOWANCE_S = 1800.0  # boot, driver, installation, data, compilation: not predicted
SHORTEST_CAP_S = 120  # timers count in minutes


def compute_worst_case_usd(*, cap_s: float, slack_s: float, max_usd_per_hour: Decimal) -> Decimal:
    """Return the cost of a machine that ends at its cap: (cap_s + slack_s) * price [USD].

    Args:
        cap_s: Maximum time until the order to end [s].
        slack_s: Time from the order to the end of billing [s].
        max_usd_per_hour: Maximum price, disk included [USD/h].

    Excludes costs that no cap limits: traffic, tax, and storage that is kept on purpose.

    Example:
        >>> compute_worst_case_usd(cap_s=3000.0, slack_s=600.0, max_usd_per_hour=Decimal("0.526"))
        Decimal('0.526000000')
    """
    return compute_rental_usd(duration_s=cap_s + slack_s, usd_per_hour=max_usd_per_hour)


def compute_cap_s(
    *,
    run_high_s: float | None,
    slack_s: float,
    max_usd_per_hour: Decimal,
    max_hours: float | None = None,
    max_usd: Decimal | None = None,
    planned_s: float | None = None,
) -> int:
    """Return the cap of a machine: the shortest time that the limits allow [s].

    min(max_hours, max_usd / price - slack_s, planned_s); without any of these 1.5 * run_high_s + 1800 s.

    Args:
        run_high_s: Upper end of the planned time of all steps; None: unknown [s].
        slack_s: Time from the order to end to the end of billing [s].
        max_usd_per_hour: Maximum price [USD/h].
        max_hours, max_usd: The user's limits; the latter includes the slack.
        planned_s: Cap of an earlier plan, which limits can only shorten; None without one [s].

    Raises:
        NoAnswerError: There is no limit to derive a cap from, or it is too short to start.

    Example:
        >>> compute_cap_s(run_high_s=3600.0, slack_s=600.0, max_usd_per_hour=Decimal(2))
        7200
        >>> compute_cap_s(run_high_s=None, slack_s=600.0, max_usd_per_hour=Decimal(2), max_usd=Decimal(1))
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
            "the run time in the plan is unknown, so no deadline can be derived",
            hint="add a limit: `--max-hours N` or `--max-usd N`",
        )
    shortest = math.floor(min(allowed))
    if shortest < SHORTEST_CAP_S:
        raise NoAnswerError(
            f"the limits leave {max(shortest, 0)} s for the machine, and {SHORTEST_CAP_S} s is the minimum",
            hint="raise `--max-usd` or `--max-hours`",
        )
    return shortest
