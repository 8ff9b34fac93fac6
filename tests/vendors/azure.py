"""Azure's published document: items of the Retail Prices API, filtered and paged as
https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices tells.

The items are in `documents`, with Azure's names; `documents/README.md` has their sources.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .server import Asked

__all__ = ["LISTED_USD", "answer", "plain_item", "read_items"]

DOCUMENT = Path(__file__).parent / "documents" / "azure-retail-prices.json"
# What a plain Linux machine costs in eastus by the document: on demand and on spot [USD/h].
LISTED_USD: Mapping[str, tuple[str, str | None]] = {
    "Standard_NC4as_T4_v3": ("0.526", "0.149174"),
    "Standard_NC8as_T4_v3": ("0.752", "0.2133"),
    "Standard_NC16as_T4_v3": ("1.204", "0.3415"),
    "Standard_NC64as_T4_v3": ("4.352", "1.2343"),
    "Standard_NC24ads_A100_v4": ("3.673", "0.67877"),
    "Standard_NC48ads_A100_v4": ("7.346", "1.35754"),
    "Standard_NC96ads_A100_v4": ("14.692", "2.71508"),
    "Standard_NC40ads_H100_v5": ("6.98", "1.289904"),
    "Standard_NC80adis_H100_v5": ("13.96", "2.579808"),
    "Standard_ND96asr_v4": ("27.197", "5.904469"),
    "Standard_ND96isr_H100_v5": ("98.32", "18.169536"),
    "Standard_NV6ads_A10_v5": ("0.454", "0.083899"),
    "Standard_NV36ads_A10_v5": ("3.2", "0.5914"),
    "Standard_NC6s_v3": ("3.06", None),
    "Standard_D8s_v5": ("0.384", None),
}
# Fields that a filter of the API may name, by the name in an item.
FILTERED = {
    "serviceName": "serviceName", "priceType": "type", "armRegionName": "armRegionName",
    "armSkuName": "armSkuName",
}  # fmt: skip


@cache
def _read_document() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(DOCUMENT.read_text())
    return found


def read_items() -> list[dict[str, Any]]:
    """Return all items of the document: of several regions and types of price."""
    return [dict(item) for item in _read_document()["Items"]]


def plain_item(size: str, **changes: Any) -> dict[str, Any]:
    """Return the document's on-demand item of a Linux machine in eastus, with changes by field."""
    usd = float(LISTED_USD[size][0])
    found = next(
        item
        for item in _read_document()["Items"]
        if (item["armSkuName"], item["retailPrice"], item["type"]) == (size, usd, "Consumption")
        and item["armRegionName"] == "eastus"
        and "Windows" not in item["productName"]
    )
    return {**found, **changes}


def answer(
    asked: Asked, items: Sequence[dict[str, Any]] | None = None, *, size: int = 20
) -> dict[str, Any] | None:
    """Return the page of items that a request's filter leaves, in the document's order.

    Args:
        asked: The request.
        items: Other items than the document's.
        size: Items per page; Azure's pages have 1,000.
    """
    if asked.path != "/api/retail/prices":
        return None
    found = read_items() if items is None else list(items)
    for condition in re.findall(r"\([^()]*\([^()]*\)[^()]*\)|\w+ eq '[^']*'", asked.query["$filter"]):
        found = [item for item in found if _fits(item, condition)]
    return _page(found, asked, size)


def _fits(item: Mapping[str, Any], condition: str) -> bool:
    """Return whether an item fits a comparison, or one of several: `(startswith(NAME, 'x') or NAME eq 'y')`."""
    begins = re.findall(r"startswith\((\w+), '([^']*)'\)", condition)
    equals = re.findall(r"(\w+) eq '([^']*)'", condition)
    return any(item[FILTERED[name]].startswith(text) for name, text in begins) or any(
        item[FILTERED[name]] == text for name, text in equals
    )


def _page(items: Sequence[dict[str, Any]], asked: Asked, size: int) -> dict[str, Any]:
    """Return a page; the link to the next one has Azure's own host, port and spelling."""
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
