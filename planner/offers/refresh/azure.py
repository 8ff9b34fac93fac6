"""Azure on-demand and spot prices without credentials: the Retail Prices API, by region and page.

https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices. A meter may be listed
with several effective dates: the latest one that is neither in the future nor past its end applies. Of several
meters of a size, the primary ones apply, by which Azure charges; one without a price applies only if it is alone.
A page is checked against its `Count`, and the `$skip` of the next page against the number of items so far:
missing, repeated or reordered pages are errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from .http import FetchError
from .source import ListedPrice, PricePart, PriceSource, RefreshRequest, parse_decimal

if TYPE_CHECKING:
    from .http import HttpClient


ENDPOINT = "https://prices.azure.com"
API_VERSION = "2023-01-01-preview"
MOST_PAGES = 200  # a region has about 10, of machines with GPUs one or two
GPU_SIZES = "Standard_N"
NOT_LINUX_VM = ("Windows", " Win", "CloudServices", "Cloud Services", "Dedicated")
GPU_SERIES = ("Standard_NC", "Standard_ND", "Standard_NV", "Standard_NG")
# Of a meter: priced before unpriced, primary before others, later before earlier.
Rank = tuple[bool, bool, datetime]


class AzureRetail(PriceSource):
    """Retail Prices API: one part per region, with on-demand and spot prices.

    Of machines without an accelerator, only those of the catalog are read.
    """

    name = "azure-retail"
    provider = "azure"
    label = "azure {}"

    def read(self, part: PricePart, request: RefreshRequest, http: HttpClient) -> Iterable[ListedPrice]:
        """Return the Linux prices of a region."""
        sizes = (f"armSkuName eq '{name}'" for name in self._specs.known if not name.startswith(GPU_SIZES))
        chosen = " or ".join((f"startswith(armSkuName, '{GPU_SIZES}')", *sizes))
        return read_listed(request, http, region=part.region, chosen=f"({chosen})", now=datetime.now(UTC))


def read_listed(
    request: RefreshRequest, http: HttpClient, *, region: str, chosen: str, now: datetime
) -> list[ListedPrice]:
    """Return the Linux prices of a region as they are listed now.

    Args:
        request: Refresh request with the endpoint.
        http: HTTP client.
        region: Region in Azure's spelling (`eastus`).
        chosen: Condition on the sizes, in the API's language.
        now: Time at which prices must be valid.
    """
    base = f"{request.endpoint(AzureRetail.name, ENDPOINT)}/api/retail/prices"
    items = [item for page in _read_pages(base, region, http, chosen) for item in page]
    return parse_items(items, url=base, now=now)


def _read_pages(base: str, region: str, http: HttpClient, sizes: str) -> Iterator[list[Any]]:
    """Yield the items of each page of a region; FetchError if the pages are not consecutive."""
    chosen = f"serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and armRegionName eq '{region}'"
    chosen += f" and {sizes}"
    url, params, so_far = base, {"api-version": API_VERSION, "$filter": chosen}, 0
    for _ in range(MOST_PAGES):
        data = http.json(url, params=params)
        items = _parse_items(data, region)
        so_far += len(items)
        yield items
        following = data.get("NextPageLink")
        if not following:
            return
        query = urlsplit(following).query  # the host in the response is ignored
        skip = parse_qs(query).get("$skip", [str(so_far)])[0]
        if skip != str(so_far):
            message = f"after {so_far} items of {region}, Azure's next page starts at {skip}"
            raise FetchError(message, kind="disordered")
        url, params = f"{base}?{query}", {}
    raise FetchError(f"Azure returned more than {MOST_PAGES} pages for {region}", kind="disordered")


def _parse_items(data: Any, region: str) -> list[Any]:
    """Return the items of a page; FetchError if it is incomplete."""
    items = data.get("Items") if isinstance(data, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise FetchError(f"the Azure response for {region} has no list of items", kind="malformed")
    if data.get("Count", len(items)) != len(items):
        message = f"a page of {region} has {len(items)} items, but `Count` is {data['Count']}"
        raise FetchError(message, kind="truncated")
    if any(str(item.get("armRegionName", region)).lower() != region.lower() for item in items):
        raise FetchError(f"a page of {region} lists another region", kind="disordered")
    return items


def parse_items(items: Iterable[dict[str, Any]], *, url: str, now: datetime) -> list[ListedPrice]:
    """Return the current Linux price of each size, on demand and spot; FetchError for an item without a price."""
    in_force: dict[tuple[str, str, str], list[tuple[Rank, ListedPrice]]] = {}
    for item in filter(_is_linux_vm, items):
        price, since = _parse_price(item, url), _date(item, "effectiveStartDate")
        has_ended = item.get("effectiveEndDate") and _date(item, "effectiveEndDate") <= now
        if since <= now and not has_ended:
            is_primary = item.get("isPrimaryMeterRegion", True) is not False
            rank = (price.usd_per_hour > 0, is_primary, since)
            in_force.setdefault(price.key, []).append((rank, price))
    highest = {key: max(rank for rank, _ in meters) for key, meters in in_force.items()}
    # Several meters of the highest rank with different prices are left to the sanity checks.
    return [price for key, meters in in_force.items() for rank, price in meters if rank == highest[key]]


def _is_linux_vm(item: dict[str, Any]) -> bool:
    """Return whether an item is an hourly price of a plain Linux machine, from the first hour on."""
    product = str(item.get("productName", ""))
    return (
        item.get("type", "Consumption") == "Consumption"
        and item.get("unitOfMeasure") == "1 Hour"
        and not item.get("tierMinimumUnits")
        and bool(item.get("armSkuName"))
        and not any(word in product for word in NOT_LINUX_VM)
        and "Low Priority" not in _names(item)
    )


def _names(item: dict[str, Any]) -> str:
    """Return the names of SKU and meter, either of which may state the purchase option."""
    return f"{item.get('skuName', '')}; {item.get('meterName', '')}"


def _date(item: dict[str, Any], name: str) -> datetime:
    """Return a date of a price; FetchError if it is missing or invalid."""
    try:
        date = datetime.fromisoformat(str(item[name]).replace("Z", "+00:00"))
    except (KeyError, ValueError) as error:
        raise FetchError(f"an Azure price has no {name}", kind="malformed") from error
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _parse_price(item: dict[str, Any], url: str) -> ListedPrice:
    """Parse an item to a price."""
    size, meter = str(item["armSkuName"]), str(item.get("meterId", ""))
    price = item.get("retailPrice", item.get("unitPrice"))
    return ListedPrice(
        instance_type=size,
        region=str(item.get("armRegionName", "")).lower(),
        purchase="spot" if " Spot" in _names(item) else "on_demand",
        usd_per_hour=parse_decimal(price, what=f"the price of {size}"),
        currency=str(item.get("currencyCode", "USD")),
        sku=f"{item.get('meterName', size)} {meter}".strip(),
        url=url,
        is_accelerated=size.startswith(GPU_SERIES),
    )
