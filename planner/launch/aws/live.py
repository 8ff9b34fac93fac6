"""Today's price of an instance type: the Price List Query API on demand, the spot price history for spot."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from ...offers.refresh.aws_sdk import FILTERS, LINUX, PRICING_REGION, products_of
from ...offers.refresh.fetch_error import FetchError
from ..faults import CloudFault, FaultKind
from ..request import Candidate

__all__ = ["PRICING_REGION", "on_demand_usd", "spot_usd"]


def on_demand_usd(client: Any, candidate: Candidate) -> Decimal:
    """Return the price of Linux on shared hardware; the highest when there are several [USD/h].

    Args:
        client: boto3's, for `pricing`.
        candidate: Type and region.
    """
    asked = {**FILTERS, "instanceType": candidate.instance_type, "regionCode": candidate.region}
    pages = client.get_paginator("get_products").paginate(
        ServiceCode="AmazonEC2",
        Filters=[{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in asked.items()],
    )
    texts = [text for page in pages for text in page["PriceList"]]
    try:
        rows = [row for text in texts for row in products_of(text, "")]
    except (KeyError, TypeError, ValueError, FetchError) as error:
        raise CloudFault(FaultKind.UNKNOWN, "Malformed", f"a price list in another form: {error}") from error
    prices = [row.usd_per_hour for row in rows if row.currency == "USD" and row.usd_per_hour > 0]
    if not prices:
        raise CloudFault(FaultKind.ABSENT, "NoPrice", _no_price(candidate))
    return max(prices)


def spot_usd(client: Any, candidate: Candidate, *, zones: str, now: datetime) -> Decimal:
    """Return the highest of the prices in force in the zones that may be used [USD/h].

    Args:
        client: boto3's, for `ec2` in the candidate's region.
        candidate: Type and region.
        zones: Last letters of the zones that are tried; empty: any.
        now: By the cloud's clock.
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
        raise CloudFault(FaultKind.ABSENT, "NoPrice", _no_price(candidate))
    return max(prices)


def _no_price(candidate: Candidate) -> str:
    """Return the words for an offer that no price list has."""
    how = candidate.purchase.replace("_", " ")
    return f"no price of {candidate.instance_type} {how} in {candidate.region}"
