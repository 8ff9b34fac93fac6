"""The price that stands for an accelerator, by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.rows import Offer

from lab.accuracy import CLOUDS, find_reference_prices


def offer(usd: str | None, **other: Any) -> Offer:
    facts = {
        "provider": "aws", "instance_type": "g4dn.xlarge", "accelerator": "T4", "devices": 1, "vcpus": 4,
        "memory_gib": 16, "region": "us-east-1", "purchase": "on_demand", "price_as_of": "2026",
        "price_source": "by hand", "status": "active", **other,
    }  # fmt: skip
    return Offer(usd_per_hour=None if usd is None else Decimal(usd), **facts)


def price(*offers: Offer, providers: tuple[str, ...] | None = None) -> str | None:
    best = find_reference_prices(offers, providers=providers).get(("T4", 1.0))
    return None if best is None else str(best.usd_per_hour)


def test_the_cheapest_that_can_be_had() -> None:
    """An active offer goes before a cheaper legacy one, that before a cheaper retired one."""
    active, legacy, retired = offer("3"), offer("2", status="legacy"), offer("1", status="retired")
    assert price(retired, legacy, active, offer("4")) == "3"
    assert price(retired, legacy) == "2"
    assert price(retired) == "1"


def test_what_does_not_count() -> None:
    """Spot, parts of a machine, other numbers of devices and offers without a price."""
    assert price(offer("1", purchase="spot")) is None
    assert price(offer("1", complete=False)) is None
    assert price(offer("1", devices=4)) is None
    assert price(offer(None)) is None


def test_only_some_sellers() -> None:
    """A cheaper marketplace does not count among the clouds."""
    assert price(offer("1", provider="vast"), offer("3"), providers=CLOUDS) == "3"
    assert price(offer("1", provider="vast"), offer("3")) == "1"


def test_the_order_of_offers_does_not_matter() -> None:
    """The packaged catalog read backwards gives the same machines."""
    offers = load_catalog().offers
    assert find_reference_prices(offers) == find_reference_prices(tuple(reversed(offers)))


def test_every_chip_of_profet_has_a_price() -> None:
    """K80 and M60 are gone from the clouds, and are judged by what they were listed at."""
    prices = find_reference_prices(load_catalog().offers, providers=CLOUDS)
    assert {prices[name, 1.0].status for name in ("K80", "M60")} <= {"legacy", "retired"}
    assert {prices[name, 1.0].status for name in ("T4", "V100-16GB")} == {"active"}
