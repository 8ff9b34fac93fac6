"""From hours on a machine to days on the calendar, and to hours of one's own."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Availability", "calendar_hours", "own_hours"]

HOURS_PER_DAY = 24.0
DAYS_PER_WEEK = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """How much of a machine one gets.

    Args:
        hours_a_day: That the machine runs on a day: 24 where nobody has to be there [h].
        hours_a_week: Quota; None: none [h].
        chance: Of getting the accelerator when it is asked for; None: not known, taken as certain [-].
    """

    hours_a_day: float = HOURS_PER_DAY
    hours_a_week: float | None = None
    chance: float | None = None


def calendar_hours(machine_h: float, availability: Availability) -> float:
    """Return how long some hours on a machine take on the calendar [h].

    Args:
        machine_h: On the machine [h].
        availability: How much of it one gets in a day and a week.

    Days are filled one after the other from the first hour on; a full week's quota waits for the next week. An
    uncertain accelerator takes 1 / chance tries, and every failed try is taken to cost the day.

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
    """Return the hours of one's own that a run takes [h].

    Args:
        sessions: Times that somebody sets it going [-].
        machine_h: On the machine [h].
        hands_on_min: To set one session going, and to fetch what it made [min].
        attention_share: Of the machine's hours that somebody has to keep an eye on it [-].

    Example:
        >>> own_hours(sessions=3, machine_h=30.0, hands_on_min=5.0, attention_share=0.05)
        1.75
    """
    return sessions * hands_on_min / 60.0 + attention_share * machine_h
