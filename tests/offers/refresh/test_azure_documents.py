"""Contract: the items that Azure publishes, from a server on loopback that filters and pages them.

The expected prices are those of the document in `vendors/documents`; no row of the catalog is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.refresh.azure import parse_items
from gpuplan.offers.refresh.run import RefreshOutcome, build_jobs
from gpuplan.offers.refresh.source import ListedPrice
from gpuplan.offers.refreshed_prices import PriceStore
from vendors import azure
from vendors.server import Asked, impatient, refresh_provider, vendor

CATALOG = load_catalog()
NOW = datetime(2026, 11, 25, tzinfo=UTC)
EXPECTED = {
    (size, purchase): Decimal(usd)
    for size, prices in azure.LISTED_USD.items()
    for purchase, usd in zip(("on_demand", "spot"), prices, strict=True)
    if usd
}


def parse(*items: Mapping[str, Any]) -> list[ListedPrice]:
    """Return the Linux prices of items."""
    return parse_items([dict(item) for item in items], url="https://prices.example", now=NOW)


def find_item(name: str, **fields: Any) -> dict[str, Any]:
    """Return the first item of a SKU name in eastus whose fields are the given ones."""
    return next(
        item
        for item in azure.read_items()
        if (item["skuName"], item["armRegionName"]) == (name, "eastus")
        and all(item.get(field) == value for field, value in fields.items())
    )


T4 = find_item("NC4as T4 v3", type="Consumption")


def refresh_region(url: str, store: PriceStore) -> RefreshOutcome:
    """Return the result of a refresh of one region from a server, without packaged prices."""
    (job,) = build_jobs(CATALOG, providers=("azure",), environ={}, endpoints={"azure-retail": url})
    job = replace(job, packaged=(), request=replace(job.request, regions=("eastus",)))
    return refresh_provider(job, store=store, http=impatient())


def test_the_pages_of_a_region_give_the_prices_of_plain_linux_machines(tmp_path: Path) -> None:
    """Windows, Low Priority, Cloud Services, hosts, other types, ended and coming prices are beside them."""
    store = PriceStore(tmp_path)

    with vendor(azure.answer) as server:
        outcome = refresh_region(server.url, store)

    assert {(o.instance_type, o.purchase): o.usd_per_hour for o in store.offers("azure")} == EXPECTED
    assert len(server.asked) == 4, "of 81 items those of machines with GPUs or in the catalog, in pages of 20"
    assert {one.query["api-version"] for one in server.asked} == {"2023-01-01-preview"}
    assert outcome.anomalies == []
    assert outcome.names_left_out["unknown machine"] == ["Standard_NCC40ads_H100_v5"]
    t4 = next(o for o in store.offers("azure") if o.key[0::2] == ("Standard_NC64as_T4_v3", "on_demand"))
    assert (t4.accelerator, t4.devices, t4.sku.split(" ")[:3]) == ("T4", 4, ["NC64as", "T4", "v3"])


def test_no_type_of_price_but_consumption_is_taken() -> None:
    """Without the server's filter too: reservations are totals of years, and read `1 Hour` all the same."""
    others = [item for item in azure.read_items() if item["type"] != "Consumption"]

    assert {item["type"] for item in others} == {"DevTestConsumption", "Reservation"}
    assert {item["unitOfMeasure"] for item in others} == {"1 Hour"}
    assert parse(*others) == []


def test_of_several_meters_of_a_size_the_primary_one_counts() -> None:
    """In either order of the items, and with a later date of the other meter."""
    primary = find_item("NC16as T4 v3", isPrimaryMeterRegion=True)
    other = find_item("NC16as T4 v3", isPrimaryMeterRegion=False)
    assert other["effectiveStartDate"] > primary["effectiveStartDate"]

    for items in ([primary, other], [other, primary]):
        assert [row.usd_per_hour for row in parse(*items)] == [Decimal("1.204")]
    assert [row.usd_per_hour for row in parse(other)] == [Decimal("1.4")], "better than none"


def test_a_rate_above_an_amount_of_use_is_not_the_price_of_an_hour() -> None:
    """The first hour is of tier 0."""
    assert parse(find_item("NC64as T4 v3", tierMinimumUnits=730.0)) == []


def test_a_meter_without_a_price_hides_no_other(tmp_path: Path) -> None:
    """A placeholder of 0 USD of a later day; alone, it is left to the sanity checks."""
    placeholder = find_item("NC48ads A100 v4", retailPrice=0.0)

    assert [row.usd_per_hour for row in parse(find_item("NC48ads A100 v4"), placeholder)] == [Decimal("7.346")]
    assert [row.usd_per_hour for row in parse(placeholder)] == [Decimal(0)]


@pytest.mark.parametrize("field", ["skuName", "meterName"])
def test_the_kind_of_purchase_is_told_by_either_name(field: str) -> None:
    """`Spot` and `Low Priority` behind the size."""
    spot, low = ({**T4, field: f"NC4as T4 v3 {suffix}"} for suffix in ("Spot", "Low Priority"))

    assert [row.purchase for row in parse(spot)] == ["spot"]
    assert parse(low) == []


@pytest.mark.parametrize(
    ("dates", "usd"),
    [
        ({"effectiveEndDate": "2026-06-30T23:59:59Z"}, []),
        ({"effectiveEndDate": "2099-01-01T00:00:00Z"}, ["0.526"]),
        ({"effectiveEndDate": None}, ["0.526"]),
        ({"effectiveStartDate": "2099-01-01T00:00:00Z"}, []),
        ({"effectiveStartDate": "2026-11-25T00:00:00Z"}, ["0.526"]),  # now
        ({"effectiveStartDate": "2026-11-25T00:00:01"}, []),
        ({"effectiveEndDate": "2026-11-25T00:00:00Z"}, []),
        ({"effectiveEndDate": "2026-11-25T00:00:01Z"}, ["0.526"]),
    ],
)
def test_a_meter_counts_from_its_first_day_to_its_last(dates: dict[str, Any], usd: list[str]) -> None:
    """The end may be later, null or absent."""
    assert [row.usd_per_hour for row in parse({**T4, **dates})] == [Decimal(price) for price in usd]


@pytest.mark.parametrize(
    "product",
    [
        "Virtual Machines NCasT4 v3 Series Windows",
        "Virtual Machines NCCadsv5 Srs Win",
        "NCasT4 v3 Series CloudServices",
        "NCasT4 v3 Series Cloud Services",
        "NCasT4 v3 Series Dedicated Host",
    ],
)
def test_another_product_of_a_size_is_not_a_linux_machine(product: str) -> None:
    """The product's name tells."""
    assert parse({**T4, "productName": product}) == []


def test_a_last_page_without_items_ends_the_list(tmp_path: Path) -> None:
    """The number of items is a multiple of the page size, and the link leads to an empty page."""
    items = [item for item in azure.read_items() if item["skuName"] in ("NC4as T4 v3", "NC4as T4 v3 Spot")]

    def answer(asked: Asked) -> Any:
        page = azure.answer(asked, items, size=len(items))
        if page is None or page["NextPageLink"] or "$skip" in asked.query:
            return page
        link = f"https://prices.azure.com:443/api/retail/prices?$filter={asked.query['$filter']}&$skip={page['Count']}"
        return {**page, "NextPageLink": link.replace(" ", "%20")}

    store = PriceStore(tmp_path)
    with vendor(answer) as server:
        outcome = refresh_region(server.url, store)

    assert outcome.refused == []
    assert {o.purchase: o.usd_per_hour for o in store.offers("azure")} == {
        "on_demand": Decimal("0.526"),
        "spot": Decimal("0.149174"),
    }
