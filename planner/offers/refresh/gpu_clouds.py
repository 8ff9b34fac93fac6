"""Prices of marketplaces under their own names, from public lists.

RunPod (https://graphql-spec.runpod.io) has a price in each tier, `[secure]` (its own data centers) and
`[community]` (others' hosts); Vast's verified hosts (https://docs.vast.ai/api-reference/search/search-offers) give
the one lowest ask, `[lowest]`, and the median of all, `[verified]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..aliases import AcceleratorNames
from ..rows import Purchase
from .http import FetchError
from .source import LeftOut, ListedPrice, PriceSource, RefreshRequest, parse_decimal, reading

if TYPE_CHECKING:
    from .http import HttpClient


REGION = "any"  # one price for all regions; availability changes by the minute
RUNPOD = "https://api.runpod.io"
RUNPOD_PRICES: Mapping[tuple[str, Purchase], str] = {
    ("secure", "on_demand"): "securePrice",
    ("secure", "spot"): "secureSpotPrice",
    ("community", "on_demand"): "communityPrice",
    ("community", "spot"): "communitySpotPrice",
}
RUNPOD_QUERY = """
query { gpuTypes { id displayName memoryInGb secureCloud communityCloud
  securePrice secureSpotPrice communityPrice communitySpotPrice
  lowestPrice(input: {gpuCount: 1}) { stockStatus } } }
"""
VAST = "https://console.vast.ai"
COUNTS = (1, 2, 4, 8)  # numbers of GPUs per machine that get a row
VAST_PAGE, MOST_PAGES = 1000, 50
VAST_ORDER = "dph_total"  # price with storage [USD/h]: pages follow each other in its order
VAST_QUERY: Mapping[str, Any] = {
    "rentable": {"eq": True},
    "verified": {"eq": True},
    "num_gpus": {"in": list(COUNTS)},
    "type": "on-demand",
    "order": [[VAST_ORDER, "asc"]],
    "limit": VAST_PAGE,
}


class RunPod(PriceSource):
    """GraphQL list of GPU types: the prices of one GPU in both tiers, of the types in stock."""

    name = "runpod-api"
    provider = label = "runpod"

    def read_all(self, request: RefreshRequest, http: HttpClient) -> Iterable[ListedPrice | LeftOut]:
        """Return all GPU types in stock, and the names of those out of stock."""
        url = f"{request.endpoint(self.name, RUNPOD)}/graphql"
        data = http.json(url, body={"query": RUNPOD_QUERY})
        with reading("RunPod's response"):
            return [row for gpu in data["data"]["gpuTypes"] for row in self._list_prices(gpu, url)]

    def _list_prices(self, gpu: dict[str, Any], url: str) -> Iterator[ListedPrice | LeftOut]:
        """Yield the prices of a GPU type in its tiers, or its name if there is no stock or price."""
        name, lowest = str(gpu["id"]), gpu["lowestPrice"] or {}
        prices = {key: gpu.get(field) for key, field in RUNPOD_PRICES.items() if gpu.get(f"{key[0]}Cloud")}
        if not lowest.get("stockStatus") or not any(prices.values()):
            yield LeftOut(reason="not for sale", name=name)
            return
        accelerator = _resolve(self._specs.names, name, gpu.get("memoryInGb")) or name
        for (tier, purchase), price in prices.items():
            if price:
                usd, sku = parse_decimal(price, what=f"{tier} price of {name}"), str(gpu["displayName"])
                note = f"RunPod's {tier} cloud"
                yield _build_price(f"{name} [{tier}]", (accelerator, 1, purchase), (usd, sku), url, note)


class Vast(PriceSource):
    """Search of offers of verified hosts, in order of price: lowest and median for each GPU model and count."""

    name = "vast-api"
    provider = label = "vast"

    def read_all(self, request: RefreshRequest, http: HttpClient) -> Iterable[ListedPrice]:
        """Return the lowest and the median price of each offered GPU, for 1, 2, 4 or 8 GPUs."""
        url = f"{request.endpoint(self.name, VAST)}/api/v0/bundles/"
        with reading("Vast's response"):
            return list(self._summarize(_read_vast_offers(url, http), url))

    def _summarize(self, offers: Iterable[dict[str, Any]], url: str) -> Iterator[ListedPrice]:
        """Yield the lowest and the median ask and bid for each GPU model and count."""
        asks: dict[tuple[str, str | None, int, Purchase], list[tuple[Decimal, str]]] = {}
        prices: tuple[tuple[Purchase, str], ...] = (("on_demand", "dph_base"), ("spot", "min_bid"))
        for offer in offers:
            if offer["num_gpus"] not in COUNTS:
                continue
            ram_mib = offer.get("gpu_ram")  # 81,559 MiB is 80 GB
            memory_gb = None if ram_mib is None else round(ram_mib / 1024 / 8) * 8
            name, accelerator = self._identify(str(offer["gpu_name"]), memory_gb)
            for purchase, field in prices:
                usd = parse_decimal(offer.get(field) or 0, what=f"{field} of {offer['id']}")
                if usd > 0:
                    key = (name, accelerator, int(offer["num_gpus"]), purchase)
                    asks.setdefault(key, []).append((usd, str(offer["id"])))
        for (name, accelerator, count, purchase), found in asks.items():
            found.sort()
            for tier, (usd, sku) in (("lowest", found[0]), ("verified", found[(len(found) - 1) // 2])):
                note = f"{'the lowest' if tier == 'lowest' else 'median'} of {len(found)} asks of verified hosts"
                machine = (accelerator or name, count, purchase)
                rounded = usd.quantize(Decimal("0.0001"))
                yield _build_price(f"{count}x {name} [{tier}]", machine, (rounded, sku), url, note)

    def _identify(self, name: str, memory_gb: int | None) -> tuple[str, str | None]:
        """Return Vast's name, with the memory if the name alone is ambiguous, and the catalog's name."""
        accelerator = _resolve(self._specs.names, name, memory_gb)
        needs_memory = accelerator is not None and _resolve(self._specs.names, name, None) != accelerator
        full_name = f"{name} {memory_gb}GB" if needs_memory else name
        listed = self._specs.known.get(f"1x {full_name} [lowest]")  # whose form the catalog knows
        return full_name, accelerator or (listed.accelerator if listed else None)


def _read_vast_offers(url: str, http: HttpClient) -> Iterator[dict[str, Any]]:
    """Yield all offers once, page by page in order of price; FetchError if they are not in that order.

    The search has no page numbers: each page begins at the last price of the previous one.
    """
    seen: set[Any] = set()
    floor = 0.0
    for _ in range(MOST_PAGES):
        query = {**VAST_QUERY, VAST_ORDER: {"gte": floor}}
        page = http.json(url, params={"q": json.dumps(query)})["offers"]
        fresh = [offer for offer in page if offer["id"] not in seen]
        for offer in fresh:
            if offer[VAST_ORDER] < floor:
                raise FetchError("Vast's offers are not in order of price", kind="disordered")
            floor = offer[VAST_ORDER]
            seen.add(offer["id"])
            yield offer
        if len(page) < VAST_PAGE:
            return
        if not fresh:
            raise FetchError(f"Vast has more than {VAST_PAGE} offers of one price", kind="disordered")
    raise FetchError(f"Vast returned more than {MOST_PAGES} pages", kind="disordered")


def _build_price(
    instance_type: str, machine: tuple[str, int, Purchase], price: tuple[Decimal, str], url: str, note: str
) -> ListedPrice:
    """Build a listed price of a marketplace; an unknown accelerator has the marketplace's own name."""
    (accelerator, count, purchase), (usd, sku) = machine, price
    return ListedPrice(
        instance_type=instance_type,
        region=REGION,
        purchase=purchase,
        usd_per_hour=usd,
        sku=sku,
        url=url,
        accelerator=accelerator,
        devices=float(count),
        is_accelerated=True,
        note=note,
    )


def _resolve(names: AcceleratorNames, name: str, memory_gb: int | None) -> str | None:
    """Return the catalog's name of a GPU by its most precise unambiguous spelling; None without one."""
    return (names.find(f"{name}-{memory_gb}GB") if memory_gb else None) or names.find(name)
