"""Azure, on demand and spot, without credentials: the Retail Prices API, walked page by page, region by region.

https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices. A meter may be listed with
several effective dates: the newest that is not in the future holds. A page is checked against its own `Count`, and
the `$skip` of the next page against the items so far: a page that is missing, doubled or out of order is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from .source import FetchError, Listed, Part, Request, decimal_of

if TYPE_CHECKING:
    from .http import Http

__all__ = ["AzureRetail", "listed_of_items"]

ENDPOINT = "https://prices.azure.com"
API_VERSION = "2023-01-01-preview"
MOST_PAGES = 200  # a region has about ten
NOT_LINUX_VM = ("Windows", " Win", "CloudServices", "Cloud Services", "Dedicated")
GPU_SERIES = ("Standard_NC", "Standard_ND", "Standard_NV", "Standard_NG")


class AzureRetail:
    """The Retail Prices API; a part a region, on demand and spot together."""

    name = "azure-retail"
    provider = "azure"

    def missing(self, _request: Request) -> str | None:
        """Return None: nothing is needed."""
        return None

    def parts(self, request: Request) -> Sequence[Part]:
        """Return a part a region."""
        regions = request.wanted_regions or request.known_regions
        return [Part(region=r, purchases=("on_demand", "spot"), label=f"azure {r}") for r in regions]

    def read(self, part: Part, request: Request, http: Http) -> Iterable[Listed]:
        """Return the Linux prices of a region."""
        base = f"{request.endpoint(self.name, ENDPOINT)}/api/retail/prices"
        items = [item for page in _pages(base, part.region, http) for item in page]
        return listed_of_items(items, url=base, now=datetime.now(UTC))


def _pages(base: str, region: str, http: Http) -> Iterator[list[Any]]:
    """Yield the items of each page of a region; FetchError when pages do not follow one another."""
    chosen = (
        f"serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and armRegionName eq '{region}'"
    )
    url, params, so_far = base, {"api-version": API_VERSION, "$filter": chosen}, 0
    for _ in range(MOST_PAGES):
        data = http.json(url, params=params).data
        items = _items(data, region)
        so_far += len(items)
        yield items
        following = data.get("NextPageLink")
        if not following:
            return
        _require_next(following, so_far, region)
        url, params = _on_our_host(following, base), {}
    raise FetchError(f"Azure's pages of {region} do not end", kind="disordered")


def _items(data: Any, region: str) -> list[Any]:
    """Return the items of a page; FetchError unless it is a whole one."""
    items = data.get("Items") if isinstance(data, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise FetchError(f"Azure's answer for {region} has no list of items", kind="malformed")
    if data.get("Count", len(items)) != len(items):
        message = f"a page of {region} has {len(items)} items and says {data['Count']}"
        raise FetchError(message, kind="truncated")
    if any(str(item.get("armRegionName", region)).lower() != region.lower() for item in items):
        raise FetchError(f"a page of {region} lists another region", kind="disordered")
    return items


def _require_next(following: str, so_far: int, region: str) -> None:
    """Raise FetchError when the next page does not begin where this one ended."""
    skip = parse_qs(urlsplit(following).query).get("$skip", [None])[0]
    if skip is not None and skip != str(so_far):
        message = f"after {so_far} items of {region}, Azure goes on at {skip}"
        raise FetchError(message, kind="disordered")


def _on_our_host(following: str, base: str) -> str:
    """Return the next page's address on the endpoint that was asked: no answer leads us elsewhere."""
    return f"{base}?{urlsplit(following).query}"


def listed_of_items(items: Iterable[dict[str, Any]], *, url: str, now: datetime) -> list[Listed]:
    """Return the newest Linux price of each size, on demand and spot; FetchError for an item without a price."""
    newest: dict[tuple[str, str, str], tuple[datetime, list[Listed]]] = {}
    for item in filter(_is_linux_vm, items):
        since, row = _since(item), _listed(item, url)
        if since > now:
            continue
        if row.key not in newest or since > newest[row.key][0]:
            newest[row.key] = (since, [row])
        elif since == newest[row.key][0]:  # two prices of one day: the guards look at both
            newest[row.key][1].append(row)
    return [row for _, rows in newest.values() for row in rows]


def _is_linux_vm(item: dict[str, Any]) -> bool:
    """Return whether an item is a plain Linux machine by the hour."""
    product, sku = str(item.get("productName", "")), str(item.get("skuName", ""))
    return (
        item.get("type", "Consumption") == "Consumption"
        and item.get("unitOfMeasure") == "1 Hour"
        and bool(item.get("armSkuName"))
        and not any(word in product for word in NOT_LINUX_VM)
        and "Low Priority" not in sku
    )


def _since(item: dict[str, Any]) -> datetime:
    """Return since when a price holds."""
    try:
        since = datetime.fromisoformat(str(item["effectiveStartDate"]).replace("Z", "+00:00"))
    except (KeyError, ValueError) as error:
        raise FetchError("an Azure price has no effectiveStartDate", kind="malformed") from error
    return since if since.tzinfo else since.replace(tzinfo=UTC)


def _listed(item: dict[str, Any], url: str) -> Listed:
    """Return an item as a price."""
    size, meter = str(item["armSkuName"]), str(item.get("meterId", ""))
    price = item.get("retailPrice", item.get("unitPrice"))
    return Listed(
        instance_type=size,
        region=str(item.get("armRegionName", "")).lower(),
        purchase="spot" if " Spot" in str(item.get("skuName", "")) else "on_demand",
        usd_per_hour=decimal_of(price, what=f"the price of {size}"),
        currency=str(item.get("currencyCode", "USD")),
        sku=f"{item.get('meterName', size)} {meter}".strip(),
        url=url,
        is_accelerated=size.startswith(GPU_SERIES),
    )
