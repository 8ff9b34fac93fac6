"""Costs besides the machine: which assumption holds where, what replaces it, and how it is told."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from factories import make_offer
from gpuplan.errors import UsageError
from gpuplan.plan.cost_terms import (
    CostTerms,
    Currency,
    build_cost_terms,
    compute_price_factor,
    parse_overrides,
    take_overrides,
)
from gpuplan.settings_entries import Tax


def row(key: str, place: str, mid: float) -> Any:
    """Return an assumption from half to twice its value."""
    return SimpleNamespace(key=key, place=place, bounds=(mid / 2, mid, 2 * mid), basis="measured", source="a page")


ROWS = [
    row("boot_s", "vm", 60.0),
    row("boot_s", "any", 90.0),
    row("setup_s", "any", 10.0),
    row("loss", "local", 4.0),
]
COSTS: Any = SimpleNamespace(
    assumptions={(one.key, one.place): one for one in ROWS},
    providers={"aws": "fees"},
    regions={("aws", "us-east-1"): SimpleNamespace(g_co2_per_kwh=300.0)},
    find_move=lambda provider, purchase: (
        SimpleNamespace(log_per_sqrt_year=0.5) if (provider, purchase) == ("aws", "spot") else None
    ),
)
TERMS, GIVEN = CostTerms(costs=COSTS), CostTerms(costs=COSTS, overrides={"boot_s": 7.0, "g_co2_per_kwh": 30.0})


def test_an_assumption_of_a_place_comes_before_that_of_any() -> None:
    """Of any place only on rented machines; a given value has no range, and is none where nothing is assumed."""
    assert TERMS.bounds("boot_s", "vm") == (30.0, 60.0, 120.0)
    assert TERMS.bounds("boot_s", "notebook") == (45.0, 90.0, 180.0)
    assert TERMS.bounds("boot_s", "local") is None
    assert TERMS.bounds("loss", "local") == (2.0, 4.0, 8.0)
    assert [GIVEN.bounds("boot_s", place) for place in ("vm", "local")] == [(7.0, 7.0, 7.0), None]
    assert CostTerms(overrides={"boot_s": 7.0}).bounds("boot_s", "vm") is None


def test_an_assumption_is_told_with_its_range_and_source() -> None:
    """Or as given; nothing for what is not assumed."""
    assert TERMS.because("boot_s", "vm") == "boot_s = 60 (30 to 120), measured: a page"
    assert TERMS.because("boot_s", "local") == CostTerms().because("boot_s", "vm") == ""
    assert GIVEN.because("boot_s", "local") == "boot_s = 7, as given"


def test_json_has_the_assumptions_that_hold() -> None:
    """Without those that a given value replaces, wherever they hold."""
    tax = Tax(name="VAT", percent=Decimal("19.5"))
    told = CostTerms(costs=COSTS, overrides={"boot_s": 7.0}, tax=tax, currency=Currency(code="EUR")).to_json()

    assert told["given"] == {"boot_s": 7.0}
    assert [(one["key"], one["place"]) for one in told["assumptions"]] == [("setup_s", "any"), ("loss", "local")]
    assert told["tax"] == {"name": "VAT", "percent": "19.5"}
    assert told["currency"]["code"] == "EUR"
    assert len(TERMS.to_json()["assumptions"]) == 4
    assert CostTerms().to_json()["assumptions"] == []
    assert CostTerms().to_json()["tax"] is None


def test_fees_and_grids_are_known_by_provider_and_region() -> None:
    """The grid of the user's own machines is what the user says."""
    assert [TERMS.provider_cost(name) for name in ("aws", "gcp")] == ["fees", None]
    assert CostTerms().provider_cost("aws") is None
    assert [TERMS.g_co2_per_kwh("aws", region) for region in ("us-east-1", "any")] == [300.0, None]
    assert GIVEN.g_co2_per_kwh("aws", "us-east-1") == 300.0
    assert [GIVEN.g_co2_per_kwh(name, "local") for name in ("local", "own")] == [30.0, 30.0]
    assert TERMS.g_co2_per_kwh("local", "local") is None
    assert CostTerms().g_co2_per_kwh("aws", "us-east-1") is None


def test_a_price_is_as_uncertain_as_it_is_old() -> None:
    """By hand: 0.5 per root of a year, 1,461 days of 365.25 are four years: 0.5 x 2 = 1."""
    terms = CostTerms(costs=COSTS, today=date(2026, 1, 1))
    old = {"provider": "aws", "purchase": "spot", "price_as_of": "2022-01-01"}

    assert terms.price_half_width(make_offer(**old)) == 1.0
    assert terms.price_half_width(make_offer(**{**old, "price_as_of": None})) == 0.0
    assert terms.price_half_width(make_offer(**{**old, "purchase": "on_demand"})) == 0.0
    assert CostTerms(today=date(2026, 1, 1)).price_half_width(make_offer(**old)) == 0.0


@pytest.mark.parametrize(("time_ratio", "half_width"), [(0.0, 1.0), (2.0, 0.0), (1.0, 0.0)])
def test_without_a_range_or_a_lower_bound_a_price_stays(time_ratio: float, half_width: float) -> None:
    """A factor of 1 at either end."""
    factors = {
        compute_price_factor(time_ratio=time_ratio, half_width=half_width, upper=upper) for upper in (False, True)
    }
    assert factors == {1.0}


@pytest.mark.parametrize(
    ("time_ratio", "upper", "factor"),
    [(1.0, True, 2.0), (1.0, False, 0.5), (2.0, True, 2 ** (2**0.5 - 1)), (0.5, False, 2 ** (1 - 2**0.5))],
)
def test_ranges_of_time_and_price_add_up_as_squares(time_ratio: float, upper: bool, factor: float) -> None:
    """By hand: a price within a factor of 2 and a time within one of 2 are a cost within one of 2^sqrt(2)."""
    found = compute_price_factor(time_ratio=time_ratio, half_width=math.log(2), upper=upper)

    assert found == pytest.approx(factor)


def test_an_amount_in_another_currency_by_hand() -> None:
    """Two to the dollar; a dollar is a dollar."""
    assert Currency(code="EUR", per_usd=Decimal(2)).of_usd(Decimal(3)) == 6
    assert Currency().of_usd(Decimal(3)) == 3


@pytest.mark.parametrize(
    ("code", "rates", "expected"),
    [
        ("EUR", {"EUR": ("2", "a bank", "2026-01-01")}, ("EUR", 2, "a bank of 2026-01-01")),
        ("EUR", {"EUR": ("2", "", None)}, ("EUR", 2, "")),
        ("EUR", {}, ("USD", 1, "")),
        ("USD", {"USD": ("3", "a bank", None)}, ("USD", 1, "")),
    ],
)
def test_settings_state_the_currency(
    code: str, rates: dict[str, tuple[str, str, str | None]], expected: tuple[str, int, str]
) -> None:
    """With a rate; dollars without one."""
    known = {
        name: SimpleNamespace(per_usd=Decimal(rate), source=source, as_of=as_of)
        for name, (rate, source, as_of) in rates.items()
    }
    settings: Any = SimpleNamespace(currency=code, exchange_rate=known, discount=(), tax=None, notebook_plans=())
    terms = build_cost_terms(settings, COSTS, assume=["boot_s=0", "setup_s=1e12", "disk_gb=5"])

    assert (terms.currency.code, terms.currency.per_usd, terms.currency.source) == expected
    assert terms.overrides == {"boot_s": 0.0, "setup_s": 1e12, "disk_gb": 5.0}
    assert (terms.given("disk_gb"), terms.given("loss")) == (5.0, None)


@pytest.mark.parametrize("text", ["boot_s=-0.1", "boot_s=1.1e12", "boot_s=", "boot_s", "=1", "unknown=1"])
def test_what_is_no_assumption_is_refused(text: str) -> None:
    """A number from 0 to 1e12 of a known key."""
    with pytest.raises(UsageError):
        parse_overrides([text], COSTS)


def test_other_keys_are_left_to_others() -> None:
    """With what is no pair."""
    assert take_overrides(["a=1", "b=2", "a"], {"a": "x"}) == ({"x": 1.0}, ("b=2", "a"))
