"""The JSON text of an estimate is that of its object."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from factories import FakePredictor, estimate_workload, make_workload
from gpuplan.estimate_document import read_offers
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.cost_terms import CostTerms
from gpuplan.plan.estimate import Estimate
from gpuplan.plan.offer_estimate import ServingEstimate
from gpuplan.plan.question import Filters, Question, select
from gpuplan.records import round_floats, to_plain
from gpuplan.render.estimate_output import format_estimate_json
from gpuplan.settings_entries import Discount, Tax
from gpuplan.units import Interval

CATALOG = load_catalog()
PLAIN = CostTerms(costs=CATALOG.costs)
DISCOUNTED = replace(
    PLAIN,
    tax=Tax(name='"VAT"', percent=Decimal(19)),
    today=date(2026, 1, 1),
    discounts=(Discount(provider="aws", percent=Decimal(10)),),
)


def estimate(terms: CostTerms = PLAIN, *, hosts: tuple[int, ...] = (1,), **changes: object) -> Estimate:
    """Return the answer for the whole catalog, retired machines and all."""
    filters = Filters(include_retired=True, hosts=hosts)
    return estimate_workload(
        make_workload(**changes),
        selection=select(filters, catalog=CATALOG),
        predictor=FakePredictor(),
        question=Question(filters=filters),
        terms=terms,
    )


@pytest.mark.parametrize(
    "answer",
    [
        estimate(),
        estimate(DISCOUNTED, steps=40, epochs=1),
        estimate(steps=None, samples=None, epochs=None),
        estimate(epochs=900, steps=90_000, hosts=(1, 2)),
    ],
    ids=["plain", "discount, tax and minimum", "unknown length", "long, two machines"],
)
def test_every_offer_of_the_catalog_reads_as_its_object(answer: Estimate) -> None:
    """Law: merged with its devices, an entry is the object to six digits; unknown, free, spot and several devices
    included.
    """
    document = json.loads(format_estimate_json(answer))

    assert document == json.loads(json.dumps(answer.to_json()))
    for read, one in zip(read_offers(document), answer.offers, strict=True):
        whole = one.to_json()
        del whole["usd_per_1000_steps"]
        assert read == json.loads(json.dumps(round_floats(whole)))


def test_facts_stand_once() -> None:
    """Every entry of `devices[]` and source of a price has an offer; equal ones have one entry."""
    document = estimate().to_json()
    keys = [one["price_source"] for one in document["offers"] if one["price_source"]]

    assert {one["device"] for one in document["offers"]} == set(range(len(document["devices"])))
    assert len({json.dumps(one) for one in document["devices"]}) == len(document["devices"])
    assert set(keys) == set(document["price_sources"])
    assert len(set(document["price_sources"].values())) == len(document["price_sources"])
    assert not {"limiter_why", "steps", "bill", "spot"} & {key for one in document["offers"] for key in one}


def test_plans_of_earlier_versions_are_read_as_they_are() -> None:
    """Their entries have no `device`: they are whole."""
    whole = [one.to_json(breakdown=True) for one in estimate().offers[:3]]

    assert read_offers({"offers": whole}) == whole


def test_predictions_are_written_too() -> None:
    """What `--mode infer` adds."""
    time_s = Interval(low=1.0, mid=2.0, high=3.0)
    served = ServingEstimate(latency_s=time_s, per_s=time_s, usd_per_million=Decimal("0.10"))
    answer = estimate()
    one = replace(answer.offers[0], serving=served)

    written = json.loads(format_estimate_json(replace(answer, offers=(one, *answer.offers[1:]))))["offers"][0]
    assert written["serving"] == served.to_json(to_plain)
