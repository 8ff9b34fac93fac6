"""How old a price is, and when no money is spent on it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from factories import make_offer
from gpuplan.errors import NoAnswerError
from gpuplan.offers.price_history import compute_age_days, require_recent_prices, summarize_ages

TODAY = date(2026, 11, 21)


@pytest.mark.parametrize(
    ("as_of", "days"),
    [
        ("2026-11-21", 0),
        ("2026-10-22", 30),
        ("2026-10-21", 31),
        ("2026-10", 51),
        ("2026-11", 20),
        ("2026", 324),
        ("2025", 689),
        ("2019-2023", 2881),
        ("2026-12-01", 0),
    ],
)
def test_a_partial_date_is_as_old_as_it_can_be(as_of: str, days: int) -> None:
    """Counted by hand from the first day that the date can mean; nothing is younger than today."""
    assert compute_age_days(as_of, today=TODAY) == days


def test_no_money_is_spent_on_a_price_of_91_days() -> None:
    """90 days are taken; 91 are not, unless the user accepts it."""
    require_recent_prices(["2026-08-23"], today=TODAY)
    old = ["2026-08-22"]

    with pytest.raises(NoAnswerError, match="the price is 91 days old") as caught:
        require_recent_prices(old, today=TODAY)
    require_recent_prices(old, today=TODAY, accept_old=True)

    assert "GPUPLAN_ACCEPT_OLD_PRICES=true" in (caught.value.hint or "")


def test_ages_are_counted_by_provider_and_way_to_pay() -> None:
    """By hand: 34, 110 and 20 days on demand, 50 at spot; what is retired, free or undated does not count."""
    dates = ("2026-10-22", "2026-08-03", "2026-11-05", None)
    offers = [make_offer(price_as_of=day, purchase="on_demand") for day in dates]
    spot = make_offer(price_as_of="2026-10-06", purchase="spot")
    found = summarize_ages([*offers, replace(spot, status="retired"), spot], today=date(2026, 11, 25))

    assert [list(row.values())[1:] for row in found] == [
        ["on_demand", 3, "2026-11-05", "2026-08-03", 2, 1],
        ["spot", 1, "2026-10-06", "2026-10-06", 1, 0],
    ]
