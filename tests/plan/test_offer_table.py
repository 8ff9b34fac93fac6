"""Offers as columns: equal to the offers' own numbers, and objects only where they are looked at."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from factories import (
    FakePredictor,
    estimate_workload,
    find_phase_s,
    make_accelerator,
    make_offer,
    make_selection,
    make_workload,
)
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan import offer_table
from gpuplan.plan.bill import Bill, CostBasis, Fees
from gpuplan.plan.cost_terms import CostTerms
from gpuplan.plan.estimate import Estimate
from gpuplan.plan.money import NANO
from gpuplan.plan.offer_estimate import OfferEstimate
from gpuplan.plan.offer_table import Pricer
from gpuplan.plan.question import Filters, Question, select
from gpuplan.plan.timeline import TRAINING, Timeline, TimelinePhase
from gpuplan.settings_entries import Discount, Tax
from gpuplan.units import Interval

CATALOG = load_catalog()
PLAIN = CostTerms(costs=CATALOG.costs)
DISCOUNTED = replace(
    PLAIN,
    tax=Tax(name="VAT", percent=Decimal("7.7")),
    today=date(2026, 1, 1),
    discounts=(Discount(provider="aws", percent=Decimal("12.5")),),
)
UNKNOWN_LENGTH = {"steps": None, "samples": None, "epochs": None}


def estimate(terms: CostTerms = PLAIN, *, sort: Any = "cost", **changes: object) -> Estimate:
    """Return the answer for the whole catalog, retired machines included."""
    filters = Filters(include_retired=True)
    return estimate_workload(
        make_workload(**changes),
        selection=select(filters, catalog=CATALOG),
        predictor=FakePredictor(),
        question=Question(filters=filters, sort=sort, scaling="weak"),
        terms=terms,
    )


def sort_key(one: OfferEstimate, sort: str) -> tuple[bool, bool, float, float]:
    """Return the place of an offer by its own numbers: usable, known, then the best."""
    time_s, cost_usd, device_estimate = one.run_time_s, None, one.device_estimate
    usable = not device_estimate.is_ruled_out and one.offer.complete
    time = None if time_s is None else time_s.mid
    if one.bill is not None:
        cost_usd = one.bill.nano[1] * 1e-9
    elif time is None and device_estimate.step_time_s is not None:
        samples = device_estimate.run.global_batch_size
        time = device_estimate.step_time_s.mid / samples
        per_1000 = one.usd_per_1000_steps
        cost_usd = None if per_1000 is None else float(per_1000) / (1000 * samples)
    first, second = (cost_usd, time) if sort == "cost" else (time, cost_usd)
    if sort == "co2":
        first = None if one.co2_kg is None else one.co2_kg.mid
    values = [float("inf") if value is None else value for value in (first, second)]
    return (not usable, None in (first, second), values[0], values[1])


@pytest.mark.parametrize("sort", ["cost", "time", "co2"])
@pytest.mark.parametrize(
    ("terms", "changes"),
    [(PLAIN, {}), (DISCOUNTED, {"steps": 40, "epochs": 1}), (PLAIN, UNKNOWN_LENGTH)],
    ids=["plain", "discount, tax and minimum", "unknown length"],
)
def test_the_order_is_that_of_the_offers_own_numbers(
    sort: str, terms: CostTerms, changes: dict[str, object]
) -> None:
    """Law: columns sort as the objects would, to the last bit."""
    keys = [sort_key(one, sort) for one in estimate(terms, sort=sort, **changes).offers]

    assert keys == sorted(keys)
    assert len({key[2:] for key in keys}) > 100


def test_a_discount_of_one_region_is_not_given_to_another() -> None:
    """By hand: a quarter off the machine's hours at $1 in one region, nothing in the other, in either order."""
    east, west = (make_offer("T4", region=region) for region in ("us-east-1", "us-west-2"))
    discount = Discount(provider="lambda", region="us-west-2", percent=Decimal(25))
    for offers in ((east, west), (west, east)):
        answer = estimate_workload(
            make_workload(),
            selection=make_selection(*((offer, CATALOG.accelerators["T4"]) for offer in offers)),
            predictor=FakePredictor(),
            question=Question(),
            terms=replace(PLAIN, discounts=(discount,), today=date(2026, 1, 1)),
        )
        bills = {one.offer.region: one.bill for one in answer.offers}
        off = {line.item: line.usd.mid for line in bills["us-west-2"].lines}["discount"]
        hours = Decimal(answer.offers[0].run_time_s.mid) / 3600
        assert off == pytest.approx(Decimal("-0.25") * hours, abs=Decimal("1e-8"))
        assert bills["us-east-1"].total.mid == bills["us-west-2"].total.mid - off


def test_the_cheapest_and_the_fastest_are_those_of_the_objects() -> None:
    """Law: no usable paid offer that fits and may be recommended is cheaper or faster."""
    answer = estimate()
    chosen = answer.recommendation
    assert chosen.cheapest is not None
    assert chosen.fastest is not None

    fitting = [one for one in answer.offers if one.device_estimate.memory.fits and one.offer.usd_per_hour]
    had = [
        one
        for one in fitting
        if one.sessions == 1 and one.selected.availability not in ("reserved", "unlisted", "retired")
    ]
    paid = [key for key in (sort_key(one, "cost") for one in had) if not key[0] and not key[1]]
    assert sort_key(answer.offers[chosen.cheapest], "cost")[2] == min(key[2] for key in paid)
    assert sort_key(answer.offers[chosen.fastest], "cost")[3] <= min(key[3] for key in paid)


def test_few_rows_become_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count: an answer makes no object for most of the offers; what is looked at twice is made once."""
    made = []

    def make(**values: Any) -> OfferEstimate:
        made.append(values["offer"])
        return OfferEstimate(**values)

    monkeypatch.setattr(offer_table, "OfferEstimate", make)
    offers = estimate().offers

    assert len(made) < len(offers) / 8
    assert offers[0] is offers[0]
    assert offers[-1] is offers[len(offers) - 1]
    assert offers[1:3] == (offers[1], offers[2])
    assert len(list(offers)) == len(offers)
    with pytest.raises(IndexError):
        offers[len(offers)]


def test_accelerators_are_predicted_together_where_as_many_are_offered() -> None:
    """By hand: four T4 and two hosts without a GPU; all may be predicted alone, unknown devices never."""
    t4, small, large = make_accelerator("T4"), make_accelerator("CPU"), make_accelerator("CPU", tflop_per_s=2.0)
    four = make_offer("T4", devices=4.0)
    selection = make_selection((four, t4), (make_offer("CPU"), small), (make_offer("CPU"), large), (four, None))

    assert selection.group_accelerators() == {1.0: [t4, small, large], 4.0: [t4]}


def test_each_device_estimate_has_its_own_timeline() -> None:
    """Law: estimates that are dropped at once, whose addresses are reused, do not get each other's times."""
    (context,) = make_selection((make_offer(), None)).offers
    pricer = Pricer(make_workload(), PLAIN, None)
    one = estimate().offers[0].device_estimate
    times_s = []
    for seconds in range(1, 100):
        step_time = replace(one.step_time, time_s=Interval(low=seconds, mid=seconds, high=seconds))
        single = replace(one, step_time=step_time, run=replace(one.run, steps=1))
        timeline = pricer.build_run(context, single).timeline
        times_s.append(None if timeline is None else find_phase_s(timeline, TRAINING).mid)

    assert times_s == list(range(1, 100))


def test_discount_and_tax_by_hand() -> None:
    """Closed form: an hour at $2, 12.5 % off, 20 % tax on what is left: $2.10."""
    hour = Interval(low=3600.0, mid=3600.0, high=3600.0)
    basis = CostBasis(
        Timeline((TimelinePhase(TRAINING, hour, ""),), hour, hour),
        Fees(discount=Decimal("0.125"), tax=Decimal("0.2")),
    )

    assert Bill(basis, usd_per_hour=Decimal(2)).nano[1] == 21 * NANO // 10
