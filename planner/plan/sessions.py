"""Sessions of a run, its calendar time, the user's hours, and the least that must be paid."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..records import Frozen
from ..units import SECONDS_PER_HOUR
from .cost_terms import HOURS_PER_DAY, CostTerms
from .money import compute_price_nano

if TYPE_CHECKING:
    from .select import OfferContext


DAYS_PER_WEEK = 7
DAYS_PER_MONTH = 30.0
USUAL_HOURS_A_DAY = 8.0  # for which a user keeps a notebook open, if not stated [h]


class Access(Frozen):
    """Terms on which a machine is had.

    Args:
        hours_a_day: Hours a day that the machine can run: 24 if unattended [h].
        hours_a_week: Weekly quota; None without one [h].
        chance: Chance of getting the accelerator on request; None if unknown, treated as certain [-].
        session_s: Longest session; None for no limit [s].
        hands_on_min: The user's time to start a session and fetch its results [min].
        attention_share: Share of the machine hours during which the user watches [-].
        pack_nano: Smallest pack of units that can be bought; 0 for none [1e-9 USD].
        month_nano: Subscription of a month; 0 for none [1e-9 USD].
    """

    hours_a_day: float = HOURS_PER_DAY
    hours_a_week: float | None = None
    chance: float | None = None
    session_s: float | None = None
    hands_on_min: float = 0.0
    attention_share: float = 0.0
    pack_nano: int = 0
    month_nano: int = 0

    def compute_wall_s(self, machine_s: float) -> float:
        """Return the calendar time that some machine time takes; the same if it runs day and night [s]."""
        if self.hours_a_day >= HOURS_PER_DAY and self.hours_a_week is None and self.chance is None:
            return machine_s
        return SECONDS_PER_HOUR * self.calendar_hours(machine_s / SECONDS_PER_HOUR)

    def count_months_nano(self, wall_s: float) -> int:
        """Return the subscription of the months that a time touches [1e-9 USD]."""
        return self.month_nano * max(1, math.ceil(wall_s / SECONDS_PER_HOUR / HOURS_PER_DAY / DAYS_PER_MONTH))

    def own_hours(self, *, sessions: int, machine_h: float) -> float:
        """Return the user's hours: attempts x hands-on time + attention share x machine hours [h].

        An uncertain accelerator takes sessions / chance attempts.

        Example:
            >>> Access(hands_on_min=5.0, attention_share=0.05).own_hours(sessions=3, machine_h=30.0)
            1.75
        """
        attempts = math.ceil(sessions / (self.chance or 1.0))
        return attempts * self.hands_on_min / 60.0 + self.attention_share * machine_h

    def calendar_hours(self, machine_h: float) -> float:
        """Return the calendar time that some machine hours take [h].

        Days are filled one after the other; work beyond the weekly quota waits for the next week. An uncertain
        accelerator takes 1 / chance attempts, so the calendar time is divided by the chance.

        Example:
            >>> Access(hours_a_day=4.0).calendar_hours(10.0)   # two full days and two hours of the third
            50.0
            >>> Access(hours_a_week=30.0).calendar_hours(60.0)  # a week, and 30 hours
            198.0
        """
        hours, waited = machine_h, 0.0
        if self.hours_a_week is not None:
            quota = min(self.hours_a_week, DAYS_PER_WEEK * self.hours_a_day)
            weeks = max(0, math.ceil(hours / quota) - 1)
            hours -= weeks * quota
            waited = weeks * DAYS_PER_WEEK * HOURS_PER_DAY
        nights = max(0, math.ceil(hours / self.hours_a_day) - 1) if self.hours_a_day < HOURS_PER_DAY else 0
        elapsed = waited + nights * (HOURS_PER_DAY - self.hours_a_day) + hours
        return elapsed if self.chance is None else elapsed / self.chance


ALWAYS = Access()


def build_access(selected: OfferContext, terms: CostTerms) -> Access:
    """Return the terms on which an offer is had, with the user's own hours, units and subscriptions."""
    place, limits = selected.place, selected.limits
    hands_on = terms.bounds("hands_on_min", place) or (0.0, 0.0, 0.0)
    if limits is None:
        return Access(hands_on_min=hands_on[1])
    weekly = limits.weekly_quota_hours
    if weekly is not None:
        weekly = terms.given("notebook_hours_a_week") or weekly
    daily = HOURS_PER_DAY if limits.background else terms.given("notebook_hours_a_day") or USUAL_HOURS_A_DAY
    usual = terms.bounds("free_hours_a_day", place)
    if limits.free and usual is not None and usual[1] > 0 and weekly is None:
        daily = min(daily, usual[1])
    attention = terms.bounds("attention_share", place) or (0.0, 0.0, 0.0)
    is_paid = limits.plan in terms.notebook_plans
    session_h = limits.session_hours_max
    return Access(
        hours_a_day=daily,
        hours_a_week=weekly,
        chance=None if limits.guaranteed else terms.given("chance"),
        session_s=None if session_h is None else SECONDS_PER_HOUR * min(session_h, daily),
        hands_on_min=hands_on[1],
        attention_share=0.0 if limits.background else attention[1],
        pack_nano=0 if is_paid or limits.pack_usd is None else compute_price_nano(limits.pack_usd),
        month_nano=0 if is_paid or limits.usd_per_month is None else compute_price_nano(limits.usd_per_month),
    )
