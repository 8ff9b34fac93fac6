"""Azure's format: pages of the Retail Prices API, as
https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices shows them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuplan.offers.rows import Offer

from .server import Asked

__all__ = ["item_of", "pages"]


def item_of(offer: Offer, **changes: Any) -> dict[str, Any]:
    """Return an offer as an item of a page."""
    name = offer.instance_type.removeprefix("Standard_").replace("_", " ")
    spot = " Spot" if offer.purchase == "spot" else ""
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": float(offer.usd_per_hour or 0),
        "unitPrice": float(offer.usd_per_hour or 0),
        "armRegionName": offer.region,
        "location": "US East",
        "effectiveStartDate": "2024-03-01T00:00:00Z",
        "meterId": "000a794b-bdb0-58be-a0cd-0c3a0f222923",
        "meterName": f"{name}{spot}",
        "productId": "DZH318Z0BQPS",
        "skuId": f"DZH318Z0BQPS/{abs(hash(name)) % 9999:04d}",
        "productName": "Virtual Machines Series",
        "skuName": f"{name}{spot}",
        "serviceName": "Virtual Machines",
        "serviceId": "DZH313Z7MMC8",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": offer.instance_type,
        **changes,
    }


def pages(
    items_by_region: Mapping[str, Sequence[dict[str, Any]]], asked: Asked, *, size: int = 20
) -> dict[str, Any] | None:
    """Return the page that a request asks for; a region that is not listed has one page without items."""
    if asked.path != "/api/retail/prices":
        return None
    chosen = re.search(r"armRegionName eq '([^']+)'", asked.query["$filter"])
    items = items_by_region.get(chosen.group(1), []) if chosen else []
    skip = int(asked.query.get("$skip", 0))
    page = list(items[skip : skip + size])
    more = skip + size < len(items)
    following = (
        "https://prices.azure.com:443/api/retail/prices?api-version=2023-01-01-preview"
        f"&$filter={asked.query['$filter'].replace(' ', '%20')}&$skip={skip + size}"
    )
    return {
        "BillingCurrency": "USD",
        "CustomerEntityId": "Default",
        "CustomerEntityType": "Retail",
        "Items": page,
        "NextPageLink": following if more else None,
        "Count": len(page),
    }
