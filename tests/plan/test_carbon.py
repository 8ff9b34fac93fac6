"""Energy and carbon dioxide by hand, where data may lie, and moments to be done by."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from factories import make_accelerator, make_offer
from gpuplan.errors import NoAnswerError, UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.comparison import co2_kg, energy_kwh, machine_power_w
from gpuplan.plan.cost_terms import CostTerms
from gpuplan.plan.question import EU, Filters, OfferContext, resolve_countries, select
from gpuplan.plan.request import parse_seconds_until
from gpuplan.units import Interval

COSTS = load_catalog().costs
TERMS = CostTerms(costs=COSTS, overrides={"power_share": 1.0})


def test_power_and_carbon_of_a_v100_by_hand() -> None:
    """Closed form: 300 W and 8 vCPUs at (0.74 + 3.5) / 2 W, times 1.135 (AWS); 10 h in Virginia, 379 g/kWh."""
    offer = make_offer("V100-16GB", provider="aws", vcpus=8.0, region="us-east-1")
    board = replace(make_accelerator("V100-16GB"), tdp_w=300.0)
    power = machine_power_w(OfferContext(offer, board), TERMS)
    assert power is not None
    assert power[1] == pytest.approx(1.135 * (300 + 8 * 2.12))

    energy = energy_kwh(Interval(low=36_000, mid=36_000, high=36_000), power)
    assert energy.mid == pytest.approx(power[1] / 100)
    intensity = TERMS.g_co2_per_kwh("aws", "us-east-1")
    assert intensity == 379.069
    assert co2_kg(energy, g_co2_per_kwh=intensity).mid == pytest.approx(energy.mid * 0.379069)


def test_unknown_inputs_give_no_carbon() -> None:
    """Without board power, data-center overhead or region there is no number."""
    board = replace(make_accelerator("V100-16GB"), tdp_w=300.0)

    assert (
        machine_power_w(OfferContext(make_offer("V100-16GB", provider="aws"), make_accelerator("X")), TERMS)
        is None
    )
    assert machine_power_w(OfferContext(make_offer("V100-16GB", provider="vast"), board), TERMS) is None
    assert TERMS.g_co2_per_kwh("vast", "any") is None
    assert TERMS.g_co2_per_kwh("local", "local") is None
    assert CostTerms(costs=COSTS, overrides={"g_co2_per_kwh": 30.0}).g_co2_per_kwh("local", "local") == 30.0


def test_residency_selects_regions_and_own_machines() -> None:
    """Regions in the EU and the user's own machine pass; offers in the region `any` do not."""
    chosen = select(Filters(residency=("eu",))).offers
    regions = {(one.offer.provider, one.offer.region) for one in chosen}

    assert {COSTS.regions[key].country for key in regions if key[0] != "local"} <= EU
    assert ("local", "local") in regions
    assert ("aws", "eu-west-2") not in regions, "London left the Union"
    assert ("azure", "swedencentral") in regions
    with pytest.raises(UsageError, match="unknown residency `atlantis`"):
        resolve_countries(["atlantis"], known=["DE"])
    with pytest.raises(NoAnswerError, match="no offer is left after `--residency eu`"):
        select(Filters(residency=("eu",), providers=("vast",)))


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("Mon 08:00", 60.0),
        ("monday 08:00", 60.0),
        ("fri 21:00", 1.0),
        ("Fri 19:00", 167.0),
        ("18:30", 22.5),
        ("20:30", 0.5),
        ("2026-11-21 20:00", 24.0),
    ],
)
def test_time_until_a_point_in_time(text: str, hours: float) -> None:
    """From Friday, 20 November 2026, 20:00."""
    assert parse_seconds_until(text, now=datetime(2026, 11, 20, 20, 0)) / 3600 == pytest.approx(hours)


@pytest.mark.parametrize(
    ("text", "message"),
    [("soon", "is not a point in time"), ("2026-01-01 00:00", "has passed"), ("Mon", "is not")],
)
def test_invalid_points_in_time(text: str, message: str) -> None:
    """A usage error with an example."""
    with pytest.raises(UsageError, match=message):
        parse_seconds_until(text, now=datetime(2026, 11, 20, 20, 0))
