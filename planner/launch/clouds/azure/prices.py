"""Prices of a machine: maximum per hour, disk and address after auto-shutdown, and current retail price."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from decimal import Decimal

from ...core.cloud_adapter import LivePrice
from ...core.request import LaunchCandidate
from ..base import find_exact_price, read_price_list

__all__ = ["LEFT_HOURS", "left_usd_per_hour", "live_price"]

# Upper bounds, not prices: a standard SSD is about $0.08 a GB and month (https://azure.microsoft.com/pricing/details/
# managed-disks), a standard address $0.005 an hour (https://azure.microsoft.com/pricing/details/ip-addresses).
DISK_USD_PER_GB_HOUR = Decimal("0.0003")
ADDRESS_USD_PER_HOUR = Decimal("0.01")
LEFT_HOURS = 24  # time of disk and address after the cap that the maximum cost includes


def left_usd_per_hour(*, disk_gb: int) -> Decimal:
    """Return the maximum price of a deallocated machine's disk and address [USD/h].

    Example:
        >>> left_usd_per_hour(disk_gb=100)
        Decimal('0.0400')
    """
    return DISK_USD_PER_GB_HOUR * disk_gb + ADDRESS_USD_PER_HOUR


def live_price(candidate: LaunchCandidate) -> LivePrice:
    """Return the price of a machine from the Retail Prices API, which needs no credentials.

    Raises:
        CloudError: The API is unreachable, or has no price or several prices for the machine.
    """
    from ....offers.refresh.source import RefreshRequest
    from ....offers.refresh.sources.azure import read_listed
    from ....settings import load_settings

    now, one = datetime.now(UTC), candidate
    request = RefreshRequest(environ=os.environ, endpoints=load_settings().endpoint)
    rows = read_price_list(
        lambda http: read_listed(request, http, region=one.region, size=one.instance_type, now=now),
        name="RetailPrices",
    )
    return find_exact_price(candidate, rows, name="Azure's retail prices", read_at=now)
