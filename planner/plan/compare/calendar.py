"""Conversion of machine hours to calendar time and to hours of the user's time."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Availability", "calendar_hours", "own_hours"]

HOURS_PER_DAY = 24.0
DAYS_PER_WEEK = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Availability of a machine.

    Args:
        hours_a_day: Hours a day that the machine can run: 24 if unattended [h].
        hours_a_week: Weekly quota; None without one [h].
        chance: Chance of getting the accelerator on request; None if unknown, treated as certain [-].
    """

    hours_a_day: float = HOURS_PER_DAY
    hours_a_week: float | None = None
    chance: float | None = None


def calendar_hours(machine_h: float, availability: Availability) -> float:
    """Return the calendar time that some machine hours take [h].

    Days are filled one after the other; work beyond the weekly quota waits for the next week. An uncertain
    accelerator takes 1 / chance attempts, so the calendar time is divided by the chance.

    Args:
        machine_h: Machine hours [h].
        availability: Availability of the machine per day and week.

    Example:
        >>> calendar_hours(10.0, Availability(hours_a_day=4.0))   # two full days and two hours of the third
        50.0
        >>> calendar_hours(60.0, Availability(hours_a_day=24.0, hours_a_week=30.0))  # a week, and 30 hours
        198.0
    """
    hours = machine_h
    waited = 0.0
    if availability.hours_a_week is not None:
        quota = min(availability.hours_a_week, DAYS_PER_WEEK * availability.hours_a_day)
        weeks = max(0, math.ceil(hours / quota) - 1)
        hours -= weeks * quota
        waited = weeks * DAYS_PER_WEEK * HOURS_PER_DAY
    days = max(0, math.ceil(hours / availability.hours_a_day) - 1)
    elapsed = waited + days * HOURS_PER_DAY + hours - days * availability.hours_a_day
    return elapsed if availability.chance is None else elapsed / availability.chance


def own_hours(*, sessions: int, machine_h: float, hands_on_min: float, attention_share: float) -> float:
    """Return the user's hours for a run: sessions x hands-on time + attention share x machine hours [h].

    Args:
        sessions: Number of sessions that the user starts [-].
        machine_h: Machine hours [h].
        hands_on_min: Time to start one session and fetch its results [min].
        attention_share: Share of the machine hours during which the user watches [-].

    Example:
        >>> own_hours(sessions=3, machine_h=30.0, hands_on_min=5.0, attention_share=0.05)
        1.75
    """
    return sessions * hands_on_min / 60.0 + attention_share * machine_h
