"""Buying compared with renting: closed forms and laws, on made-up prices and the packaged ones."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from factories import FakePredictor, make_accelerator, make_offer, make_selection, make_workload
from gpuplan.errors import NoAnswerError, UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.rows import Offer
from gpuplan.plan.buy_or_rent import (
    HOURS_PER_WEEK,
    WEEKS_PER_MONTH,
    BuyOrRent,
    MonthlyWork,
    OwnedMachine,
    compare_by_price,
    compare_for_work,
    months_to_break_even,
)
from gpuplan.plan.cost_terms import NO_TERMS, CostTerms
from gpuplan.plan.question import EstimateContext, Filters, OfferContext, Question, select
from gpuplan.plan.timeline import build_access
from gpuplan.units import Interval
from gpuplan.workload.options import WorkloadOptions
from hypothesis import given
from hypothesis import strategies as st
from plan.test_decision_laws import FakePeaks

CATALOG = load_catalog()
HOURS_A_MONTH = 20.0 * WEEKS_PER_MONTH
rigs = st.builds(
    OwnedMachine,
    purchase_usd=st.floats(100, 1e5),
    value_lost_per_year=st.floats(0, 0.9),
    power_w=st.floats(50, 5000),
    hours_a_week=st.floats(1, 168),
)
savings = st.floats(0.05, 5000)


def make_work(usd: float, *, hours: float = HOURS_A_MONTH, **offer: object) -> MonthlyWork:
    """Return a month of work on a T4 of a cloud for an amount, half or double of it."""
    context = OfferContext(make_offer("T4", **offer), make_accelerator("T4"))
    money = Interval(low=usd / 2, mid=usd, high=2 * usd)
    return MonthlyWork(selected=context, hours=hours, money_usd=money, others_usd=0.0)


def test_break_even_by_hand() -> None:
    """Closed form: $2,000 lose $600 in the first year; $50 saved a month make that up after 12 months, and a
    machine that keeps its value pays off at once, or never where it saves nothing.
    """
    rig = OwnedMachine(purchase_usd=2000.0, power_w=500.0)
    kept = OwnedMachine(purchase_usd=2000.0, value_lost_per_year=0.0, power_w=500.0)

    assert months_to_break_even(rig, saved_usd_per_month=50.0) == pytest.approx(12.0, abs=1e-6)
    assert months_to_break_even(kept, saved_usd_per_month=0.01) == 0.0
    assert months_to_break_even(kept, saved_usd_per_month=-0.01) is None


@given(rig=rigs, usd=savings, more=st.floats(1.0, 10.0))
def test_saving_more_never_breaks_even_later(rig: OwnedMachine, usd: float, more: float) -> None:
    """Law: the higher the rent, the earlier owning breaks even."""
    before, after = (months_to_break_even(rig, saved_usd_per_month=saved) for saved in (usd, usd * more))

    assert (240.0 if after is None else after) <= (240.0 if before is None else before) + 1e-6


@given(rig=rigs, usd=savings)
def test_there_is_one_crossing(rig: OwnedMachine, usd: float) -> None:
    """Law: owning costs more before the crossing and less after it."""
    months = months_to_break_even(rig, saved_usd_per_month=usd)

    if months is not None and 0.1 < months < 200:
        assert rig.value_lost_usd(0.9 * months) >= 0.9 * months * usd - 1e-6
        assert rig.value_lost_usd(1.1 * months) <= 1.1 * months * usd + 1e-6


def test_total_and_range_by_hand() -> None:
    """Closed form: electricity of $10 a month against a rent of $60 ($30 to $120): $50 saved a month pay off after
    12 months; $110 earlier, $20 later. Idle power of 100 W takes 741.5 kWh less what is used, at $0.20.
    """
    rig = OwnedMachine(purchase_usd=2000.0, power_w=500.0)
    own = MonthlyWork(
        selected=make_work(0.0).selected,
        hours=HOURS_A_MONTH,
        money_usd=Interval(low=10, mid=10, high=10),
        others_usd=0.0,
    )
    found = BuyOrRent.of(rig, own, [make_work(60.0)], NO_TERMS)
    (rival,) = map(found.rival_json, found.rentals)

    assert rival["months_to_break_even"] == pytest.approx(12.0, abs=1e-6)
    assert rival["months_low"] < 12.0 < rival["months_high"]
    assert rival["after_years"]["1"] == {"own_usd": "720.00", "rent_usd": "720.00"}
    assert found.is_worth_buying
    idle = replace(rig, idle_power_w=100.0, electricity_usd_per_kwh=0.2)
    assert idle.idle_usd_per_month == pytest.approx((168 - 20) * WEEKS_PER_MONTH * 0.1 * 0.2)


def test_a_rental_that_cannot_do_the_hours_is_no_alternative() -> None:
    """By hand: at 0.024 of the speed, 20 h a week are 833 h: more than the 168 of a week, however cheap."""
    rig, own = OwnedMachine(purchase_usd=2500.0, power_w=600.0), make_work(9.0)
    slow = make_work(0.01, hours=HOURS_A_MONTH / 0.024, instance_type="slow")
    fast = make_work(40.0, instance_type="fast")

    rentals = BuyOrRent.of(rig, own, [slow, fast], NO_TERMS).rentals
    assert [one.selected.offer.instance_type for one in rentals] == ["fast"]
    with pytest.raises(NoAnswerError, match="nothing to rent does 20 h of a T4 within a week"):
        BuyOrRent.of(rig, own, [slow], NO_TERMS)


@pytest.mark.parametrize("hours_a_week", [5.0, 20.0, 60.0, 168.0])
@pytest.mark.parametrize("exponent", [7, 9, 11])
def test_no_rental_is_too_slow_at_packaged_prices(hours_a_week: float, exponent: int) -> None:
    """Law: each does the work of a week within a week, at its daily hours and weekly quota; and of what can, the
    first has the least total of the decision, which contains the wait.
    """
    workload = make_workload(batch_size=64, samples=1_000_000, epochs=20, steps=15_625 * 20)
    terms = CostTerms(costs=CATALOG.costs)
    context = EstimateContext(
        workload=workload,
        options=WorkloadOptions(),
        selection=select(Filters(include_local=False), catalog=CATALOG),
        predictor=FakePeaks(10**exponent, overhead_s=0.002),
        catalog=CATALOG,
        terms=terms,
    )
    rig = OwnedMachine(purchase_usd=2500.0, power_w=600.0, hours_a_week=hours_a_week)
    found = compare_for_work(rig, accelerator="RTX4090", devices=1.0, context=context, question=Question())

    assert found.rentals
    assert found.own.hours_a_week == pytest.approx(hours_a_week)
    for one in found.rentals:
        access = build_access(one.selected, terms)
        assert access.calendar_hours(one.hours_a_week) <= HOURS_PER_WEEK
        assert one.others_usd > 0
    totals = [one.total_usd.mid for one in found.rentals]
    assert totals == sorted(totals)


def test_work_by_hand() -> None:
    """Closed form: 87 h a month on the machine to buy, at 0.25 kW and $0.17. A rental of twice the speed takes
    half of the hours, at $1; an hour of waiting costs $2.
    """
    owned, rented = make_accelerator("T4", tflop_per_s=1.0), make_accelerator("L4", tflop_per_s=2.0)
    context = EstimateContext(
        workload=make_workload(),
        options=WorkloadOptions(),
        selection=make_selection((make_offer("L4", usd_per_hour=Decimal(1)), rented)),
        predictor=FakePredictor(),
        catalog=FakeCatalog({"T4": owned}),  # type: ignore[arg-type]
        terms=NO_TERMS,
    )
    rig = OwnedMachine(purchase_usd=2000.0, power_w=250.0)
    question = Question(hour_value_usd=0.0, wait_value_usd=2.0)
    found = compare_for_work(rig, accelerator="T4", devices=1.0, context=context, question=question)
    (rival,) = found.rentals

    assert found.own.money_usd.mid == pytest.approx(HOURS_A_MONTH * 0.25 * 0.17)
    assert found.own.others_usd == pytest.approx(HOURS_A_MONTH * 2.0)
    assert rival.hours_a_week == pytest.approx(10.0)
    assert rival.money_usd.mid == pytest.approx(HOURS_A_MONTH / 2)
    assert rival.others_usd == pytest.approx(HOURS_A_MONTH / 2 * 2.0)


class FakeCatalog:
    """A catalog of accelerators alone."""

    def __init__(self, accelerators: dict[str, object]) -> None:
        self.accelerators = accelerators


def test_hour_for_hour_by_hand() -> None:
    """Without a model: the same accelerator at its price; nothing free, retired or too scarce for the hours."""
    rig = OwnedMachine(purchase_usd=1400.0, power_w=500.0, hours_a_week=40.0)
    found = compare_by_price(rig, accelerator="RTX3090", devices=1.0, catalog=CATALOG, terms=NO_TERMS)
    offers = [one.selected.offer for one in found.rentals]

    def get_price(offer: Offer) -> float:
        return float(offer.usd_per_hour or 0)

    assert {offer.accelerator for offer in offers} == {"RTX3090"}
    assert [get_price(offer) for offer in offers] == sorted(map(get_price, offers))
    assert min(map(get_price, offers)) > 0
    assert [one.money_usd.mid for one in found.rentals] == pytest.approx(
        [40.0 * WEEKS_PER_MONTH * get_price(offer) for offer in offers]
    )
    with pytest.raises(NoAnswerError, match="no offer"):
        compare_by_price(rig, accelerator="RTX3090", devices=99.0, catalog=CATALOG, terms=NO_TERMS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"purchase_usd": 0.0}, "--price must be above zero"),
        ({"hours_a_week": 200.0}, "--hours-a-week must be at most 168"),
        ({"value_lost_per_year": 1.0}, "`--assume value_lost_per_year` must be"),
        ({"electricity_usd_per_kwh": -1.0}, "at least zero"),
    ],
)
def test_invalid_machines(changes: dict[str, float], message: str) -> None:
    """One line each."""
    with pytest.raises(UsageError, match=message):
        OwnedMachine(**{"purchase_usd": 2000.0, "power_w": 500.0, **changes})
