"""Prices of an instance: on demand, spot, and the maximum with disk and address."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from ....offers.refresh.errors import FetchError
from ....offers.refresh.sources.aws_sdk import FILTERS, LINUX, PRICING_REGION, parse_products
from ...core.api_call import CloudError, ErrorKind
from ...core.request import LaunchCandidate
from ..base import CENTS_OF_A_CENT, compute_spot_max_price

__all__ = [
    "PRICING_REGION",
    "max_usd_per_hour",
    "on_demand_usd",
    "spot_usd",
]


def on_demand_usd(client: Any, candidate: LaunchCandidate) -> Decimal:
    """Return the price of Linux on shared hardware; the highest of several [USD/h].

    Args:
        client: boto3 client for `pricing`.
        candidate: Type and region.
    """
    asked = {**FILTERS, "instanceType": candidate.instance_type, "regionCode": candidate.region}
    pages = client.get_paginator("get_products").paginate(
        ServiceCode="AmazonEC2",
        Filters=[{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in asked.items()],
    )
    texts = [text for page in pages for text in page["PriceList"]]
    try:
        rows = [row for text in texts for row in parse_products(text, "")]
    except (KeyError, TypeError, ValueError, FetchError) as error:
        raise CloudError(
            ErrorKind.UNKNOWN, "Malformed", f"unexpected form of the price list: {error}"
        ) from error
    prices = [row.usd_per_hour for row in rows if row.currency == "USD" and row.usd_per_hour > 0]
    if not prices:
        raise CloudError(ErrorKind.ABSENT, "NoPrice", _no_price(candidate))
    return max(prices)


def spot_usd(client: Any, candidate: LaunchCandidate, *, zones: str, now: datetime) -> Decimal:
    """Return the highest current spot price of the usable zones [USD/h].

    Args:
        client: boto3 client for `ec2` in the candidate's region.
        candidate: Type and region.
        zones: Last letters of the zones; empty: any.
        now: Time by the cloud's clock.
    """
    pages = client.get_paginator("describe_spot_price_history").paginate(
        InstanceTypes=[candidate.instance_type], ProductDescriptions=[LINUX], StartTime=now, EndTime=now
    )
    newest: dict[str, Mapping[str, Any]] = {}
    for entry in (entry for page in pages for entry in page["SpotPriceHistory"]):
        zone = entry["AvailabilityZone"]
        if zone not in newest or newest[zone]["Timestamp"] < entry["Timestamp"]:
            newest[zone] = entry
    prices = [Decimal(entry["SpotPrice"]) for zone, entry in newest.items() if not zones or zone[-1] in zones]
    if not prices:
        raise CloudError(ErrorKind.ABSENT, "NoPrice", _no_price(candidate))
    return max(prices)


def _no_price(candidate: LaunchCandidate) -> str:
    """Return the message for an offer without a price."""
    how = candidate.purchase.replace("_", " ")
    return f"no price of {candidate.instance_type} {how} in {candidate.region}"


# gp3 is $0.08 a GB-month in us-east-1 and below $0.16 wherever it is sold (aws.amazon.com/ebs/pricing); a month
# there has 730 hours. A public IPv4 address is $0.005 an hour (aws.amazon.com/vpc/pricing).
GP3_USD_PER_GB_MONTH = Decimal("0.16")
HOURS_PER_MONTH = Decimal(730)
ADDRESS_USD_PER_HOUR = Decimal("0.005")


def max_usd_per_hour(candidate: LaunchCandidate, *, disk_gb: int) -> Decimal:
    """Return the highest hourly price of an instance, its disk and its address [USD/h]."""
    spot = candidate.purchase == "spot"
    machine = compute_spot_max_price(candidate.usd_per_hour) if spot else candidate.usd_per_hour
    disk = (disk_gb * GP3_USD_PER_GB_MONTH / HOURS_PER_MONTH).quantize(CENTS_OF_A_CENT)
    return machine + disk + ADDRESS_USD_PER_HOUR
