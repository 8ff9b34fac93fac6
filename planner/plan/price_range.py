"""Range of today's price from a dated one, and its combination with the range of a run's time.

ln(price) is taken as a random walk: after an age t, today's price lies in price x exp(± rate x sqrt(t)) with 80 %
probability. ``rate`` is the 80 % quantile of |ln(later / earlier)| / sqrt(years between) over the dated prices
of a provider and purchase option (`[[price_move]]` in catalog/costs.toml, benchmarks/price_moves.py). Price
and time are independent, so that half-widths of their logarithms add up as squares.
"""

from __future__ import annotations

import math

DAYS_PER_YEAR = 365.25


def compute_half_width(*, rate: float, age_days: float) -> float:
    """Return half of the 80 % interval of ln(today's price / dated price) [-].

    Args:
        rate: How fast such prices move [1/sqrt(year)].
        age_days: Age of the price [days].

    Example:
        >>> compute_half_width(rate=0.5, age_days=4 * 365.25)
        1.0
    """
    return rate * math.sqrt(age_days / DAYS_PER_YEAR)


def compute_price_factor(*, time_ratio: float, half_width: float, upper: bool) -> float:
    """Return the factor on the price at one end of a run's time, for a cost at the end of both ranges [-].

    Args:
        time_ratio: Time at that end over the central estimate [-].
        half_width: Half-width of ln(price) [-].
        upper: Whether it is the upper end.

    The cost at that end, relative to the central one, is time_ratio x factor = exp(± sqrt(ln(time_ratio)^2 +
    half_width^2)). 1 where the time has no lower bound.

    Example:
        >>> round(compute_price_factor(time_ratio=1.0, half_width=0.5, upper=True), 4)
        1.6487
        >>> compute_price_factor(time_ratio=2.0, half_width=0.0, upper=True)
        1.0
    """
    if half_width == 0.0 or time_ratio <= 0.0:
        return 1.0
    own = math.log(time_ratio)
    both = math.hypot(own, half_width)
    return math.exp((both if upper else -both) - own)
