"""How the age of a price widens the cost of a run: closed forms by hand, and laws."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from factories import FakePredictor, estimate_workload, make_accelerator, make_offer, make_selection, make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.rows import Offer
from gpuplan.plan.bill import Bill, CostBasis
from gpuplan.plan.cost_terms import CostTerms, compute_price_factor
from gpuplan.plan.estimate import Estimate
from gpuplan.plan.question import Question
from gpuplan.plan.timeline import TRAINING, Timeline, TimelinePhase
from gpuplan.units import Interval
from hypothesis import given
from hypothesis import strategies as st

TODAY = date(2026, 11, 25)
TERMS = CostTerms(costs=load_catalog().costs, today=TODAY)


def bill(low_s: float, mid_s: float, high_s: float, *, half_width: float) -> Bill:
    """Return the bill of a run at $3,600 an hour: a dollar a second."""
    time_s = Interval(low=low_s, mid=mid_s, high=high_s)
    timeline = Timeline(phases=(TimelinePhase(TRAINING, time_s, ""),), total_s=time_s, wall_s=time_s)
    return Bill(CostBasis(timeline), usd_per_hour=Decimal(3600), half_width=half_width)


def test_a_certain_time_at_an_uncertain_price() -> None:
    """exp(± ln 2) around $100: $50 to $200."""
    low, mid, high = (float(usd) for usd in vars_of(bill(100, 100, 100, half_width=math.log(2))))

    assert (low, mid, high) == (pytest.approx(50), 100, pytest.approx(200))


def test_half_widths_add_up_as_squares() -> None:
    """Time by a factor of 2 and price by a factor of 2: 2^sqrt(2) = 2.665, not 4."""
    low, mid, high = (float(usd) for usd in vars_of(bill(50, 100, 200, half_width=math.log(2))))

    assert mid == 100
    assert (low, high) == (pytest.approx(100 / 2.66514, rel=1e-4), pytest.approx(266.514, rel=1e-4))


def vars_of(of: Bill) -> tuple[Decimal, Decimal, Decimal]:
    """Return the three amounts of a total."""
    return (of.total.low, of.total.mid, of.total.high)


@given(ratio=st.floats(1.0, 10.0), narrow=st.floats(0.0, 2.0), more=st.floats(0.0, 2.0), upper=st.booleans())
def test_more_uncertainty_never_narrows(ratio: float, narrow: float, more: float, upper: bool) -> None:
    """A wider price gives a wider cost; the factor is above 1 at the upper end and below it at the lower."""
    time_ratio = ratio if upper else 1 / ratio
    first, second = (
        compute_price_factor(time_ratio=time_ratio, half_width=width, upper=upper)
        for width in (narrow, narrow + more)
    )

    assert (second >= first * (1 - 1e-12) >= 1 - 1e-9) if upper else (second <= first * (1 + 1e-12) <= 1 + 1e-9)
    if more > 0.1:
        assert second > first if upper else second < first


def test_the_rate_of_googles_spot_prices() -> None:
    """0.66 a root of a year: after a year a factor of 1.93 either way; a day later hardly more than 1."""
    year_old = make_offer("T4", provider="gcp", purchase="spot", price_as_of="2025-11-25")

    assert TERMS.price_half_width(year_old) == pytest.approx(0.66, abs=0.001)
    assert TERMS.price_half_width(replace(year_old, price_as_of="2026-11-24")) < 0.04
    assert TERMS.price_half_width(replace(year_old, price_as_of="2026-11-25")) == 0


def test_what_does_not_age() -> None:
    """List prices of AWS on demand (80 % of pairs did not move), and what the user said."""
    assert TERMS.price_half_width(make_offer("T4", provider="aws", price_as_of="2026-01-21")) == 0
    assert TERMS.price_half_width(make_offer("T4", provider="own", price_as_of=None)) == 0


def test_a_provider_without_two_dates_has_the_rate_of_any() -> None:
    """CoreWeave was read once."""
    rate = TERMS.price_half_width(make_offer("T4", provider="coreweave", price_as_of="2025-11-25"))

    assert rate == pytest.approx(0.45, abs=0.001)


def offer(name: str, usd: str, as_of: str, **changes: Any) -> Offer:
    """Return an offer of Vast at a dated price."""
    return make_offer(
        name, provider="vast", instance_type=f"1x {name}", usd_per_hour=Decimal(usd), price_as_of=as_of, **changes
    )


def ask(*offers: Offer) -> Estimate:
    """Estimate a run of an hour on some offers."""
    chips = {one.accelerator: make_accelerator(one.accelerator, tflop_per_s=1) for one in offers}
    return estimate_workload(
        make_workload(),
        selection=make_selection(*((one, chips[one.accelerator]) for one in offers)),
        predictor=FakePredictor(),
        question=Question(),
        terms=TERMS,
    )


def test_an_old_price_does_not_decide_alone() -> None:
    """By hand: $1.00 of a year ago may be $3.00 today (1.10 a root of a year): the $1.20 of today is taken.

    $4.00 of today is out of that range, and two recent prices are compared as they are.
    """
    old, new = offer("A", "1", "2025-11-25"), offer("B", "1.2", "2026-11-24")

    for offers, taken in (
        ((old, new), "B"),
        ((old, offer("B", "4", "2026-11-24")), "A"),
        ((offer("A", "1", "2026-11-20"), new), "A"),
    ):
        answer = ask(*offers)
        assert answer.offers[answer.decision.recommended].offer.accelerator == taken
