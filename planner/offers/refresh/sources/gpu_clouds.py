"""Prices of GPU clouds: Lambda and RunPod (with an API key), and Vast.

Lambda: one call, prices in cents, equal in all regions (https://docs.lambda.ai/api/cloud). RunPod and Vast are
marketplaces: an offer stands for the lowest price of a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ....errors import UsageError
from ...aliases import AcceleratorNames
from ...rows import Purchase
from ..errors import FetchError
from ..source import ANYWHERE, ListedPrice, PricePart, RefreshRequest, parse_decimal, parse_float

if TYPE_CHECKING:
    from ..http import HttpClient
    from ..instance_types import InstanceSpecs

__all__ = ["LambdaCloud", "MarketplaceGpus", "RunPod", "Vast"]

REGION = "any"  # one price for all regions; availability changes by the minute
NOTE = "marketplace: the lowest listed price"
RUNPOD = "https://api.runpod.io"
RUNPOD_KEY = "RUNPOD_API_KEY"
RUNPOD_QUERY = """
query { gpuTypes { id displayName memoryInGb securePrice communityPrice secureSpotPrice communitySpotPrice } }
"""
VAST = "https://console.vast.ai"
COUNTS = (1, 2, 4, 8)  # numbers of GPUs per machine that get a row
VAST_QUERY = '{"rentable": {"eq": true}, "verified": {"eq": true}, "type": "on-demand", "limit": 5000}'


class _Marketplace:
    """Base class of marketplaces: one list for all regions.

    Args:
        shapes: Instance types, with the catalog's accelerator names.
    """

    provider: str

    def __init__(self, specs: InstanceSpecs) -> None:
        self._specs = specs

    def parts(self, _request: RefreshRequest) -> Sequence[PricePart]:
        """Return the single part."""
        return [PricePart(region=ANYWHERE, purchases=("on_demand", "spot"), label=self.provider)]


class RunPod(_Marketplace):
    """GraphQL list of GPU types: one GPU each, the cheaper of secure and community cloud."""

    name = "runpod-api"
    provider = "runpod"

    def missing(self, request: RefreshRequest) -> str | None:
        """Return the requirement of an API key if it is not set."""
        return None if request.environ.get(RUNPOD_KEY) else f"an API key in {RUNPOD_KEY}"

    def read(self, _part: PricePart, request: RefreshRequest, http: HttpClient) -> Iterable[ListedPrice]:
        """Return all GPU types."""
        url = f"{request.endpoint(self.name, RUNPOD)}/graphql"
        headers = {"Authorization": f"Bearer {request.environ[RUNPOD_KEY]}"}
        answer = http.json(url, headers=headers, body={"query": RUNPOD_QUERY})
        try:
            return [row for gpu in answer.data["data"]["gpuTypes"] for row in self._rows(gpu, url)]
        except (KeyError, TypeError) as error:
            raise FetchError(
                f"unexpected format of RunPod's response: {error!r}", kind="malformed"
            ) from error

    def _rows(self, gpu: dict[str, Any], url: str) -> Iterator[ListedPrice]:
        """Yield the prices of a GPU type."""
        purchases: tuple[tuple[Purchase, tuple[str, str]], ...] = (
            ("on_demand", ("securePrice", "communityPrice")),
            ("spot", ("secureSpotPrice", "communitySpotPrice")),
        )
        for purchase, fields in purchases:
            prices = [
                parse_decimal(gpu[field], what=f"{field} of {gpu['id']}")
                for field in fields
                if gpu.get(field)
            ]
            if prices:
                kind = MarketplaceGpus(
                    provider="runpod", name=str(gpu["displayName"]), memory_gb=gpu.get("memoryInGb")
                )
                yield kind.at(min(prices), purchase=purchase, sku=str(gpu["id"]), url=url, specs=self._specs)


class Vast(_Marketplace):
    """Search of Vast offers: the lowest price and lowest bid for each GPU model and count."""

    name = "vast-api"
    provider = "vast"

    def missing(self, _request: RefreshRequest) -> str | None:
        """Return None: there are no requirements."""
        return None

    def read(self, _part: PricePart, request: RefreshRequest, http: HttpClient) -> Iterable[ListedPrice]:
        """Return the lowest price of each offered GPU, for 1, 2, 4 or 8 GPUs."""
        url = f"{request.endpoint(self.name, VAST)}/api/v0/bundles/"
        answer = http.json(url, params={"q": VAST_QUERY})
        try:
            return list(self._find_lowest(answer.data["offers"], url))
        except (KeyError, TypeError) as error:
            raise FetchError(f"unexpected format of Vast's response: {error!r}", kind="malformed") from error

    def _find_lowest(self, offers: Iterable[dict[str, Any]], url: str) -> Iterator[ListedPrice]:
        """Yield the lowest on-demand price and the lowest bid for each GPU model and count."""
        lowest: dict[tuple[MarketplaceGpus, Purchase], tuple[Decimal, str]] = {}
        prices: tuple[tuple[Purchase, str], ...] = (("on_demand", "dph_base"), ("spot", "min_bid"))
        for offer in offers:
            if offer["num_gpus"] not in COUNTS:
                continue
            kind = MarketplaceGpus(
                provider="vast",
                name=str(offer["gpu_name"]),
                memory_gb=_nominal_gb(offer.get("gpu_ram")),
                count=int(offer["num_gpus"]),
            )
            for purchase, field in prices:
                usd = (
                    parse_decimal(offer[field], what=f"{field} of {offer['id']}")
                    if offer.get(field)
                    else Decimal(0)
                )
                if usd > 0 and ((kind, purchase) not in lowest or usd < lowest[kind, purchase][0]):
                    lowest[kind, purchase] = (usd, str(offer["id"]))
        for (kind, purchase), (usd, sku) in lowest.items():
            rounded = usd.quantize(Decimal("0.0001"))
            yield kind.at(rounded, purchase=purchase, sku=sku, url=url, specs=self._specs)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketplaceGpus:
    """GPUs of a marketplace under its own name; memory distinguishes variants of a model."""

    provider: str
    name: str
    memory_gb: int | None = None
    count: int = 1

    def at(
        self, usd: Decimal, *, purchase: Purchase, sku: str, url: str, specs: InstanceSpecs
    ) -> ListedPrice:
        """Build a listed price for them, with the catalog's accelerator name if known."""
        accelerator = self._canonical(specs.names)
        return ListedPrice(
            instance_type=f"{self.provider}:{self.count}x{accelerator or self.name}",
            region=REGION,
            purchase=purchase,
            usd_per_hour=usd,
            sku=sku,
            url=url,
            accelerator=accelerator or self.name,
            devices=float(self.count),
            is_accelerated=True,
            note=NOTE,
        )

    def _canonical(self, names: AcceleratorNames) -> str | None:
        """Return the catalog's name; None if unknown or ambiguous."""
        for name in (f"{self.name}-{self.memory_gb}GB", self.name):
            try:
                return names.resolve(name)
            except UsageError:
                continue
        return None


def _nominal_gb(mib: float | None) -> int | None:
    """Round memory to a GPU's nominal size [GB]: 81,559 MiB is 80 GB."""
    return None if mib is None else round(mib / 1024 / 8) * 8


ENDPOINT = "https://cloud.lambdalabs.com"
KEY_VARIABLE = "LAMBDA_API_KEY"


class LambdaCloud:
    """List of instance types of Lambda."""

    name = "lambda-api"
    provider = "lambda"

    def missing(self, request: RefreshRequest) -> str | None:
        """Return the requirement of an API key if it is not set."""
        return None if request.environ.get(KEY_VARIABLE) else f"an API key in {KEY_VARIABLE}"

    def parts(self, _request: RefreshRequest) -> Sequence[PricePart]:
        """Return the single part."""
        return [PricePart(region=ANYWHERE, purchases=("on_demand",), label="lambda on demand")]

    def read(self, _part: PricePart, request: RefreshRequest, http: HttpClient) -> Iterable[ListedPrice]:
        """Return all instance types."""
        url = f"{request.endpoint(self.name, ENDPOINT)}/api/v1/instance-types"
        key = request.environ[KEY_VARIABLE]
        answer = http.json(url, headers={"Authorization": f"Bearer {key}"})
        return list(_parse_prices(answer.data, url))


def _parse_prices(data: Any, url: str) -> Iterator[ListedPrice]:
    """Yield the instance types of a response; FetchError if its format is unknown."""
    try:
        for entry in data["data"].values():
            kind = entry["instance_type"]
            cents = parse_decimal(kind["price_cents_per_hour"], what=f"the price of {kind['name']}")
            specs = kind.get("specs") or {}
            yield ListedPrice(
                instance_type=kind["name"],
                region=REGION,
                purchase="on_demand",
                usd_per_hour=cents / Decimal(100),
                sku=kind["name"],
                url=url,
                accelerator=kind["name"].split("x_", 1)[-1] if "gpu" in kind["name"] else None,
                devices=parse_float(specs.get("gpus")),
                vcpus=parse_float(specs.get("vcpus")),
                memory_gib=parse_float(specs.get("memory_gib")),
                is_accelerated="gpu" in kind["name"],
            )
    except (KeyError, TypeError, AttributeError) as error:
        raise FetchError(f"unexpected format of Lambda's response: {error!r}", kind="malformed") from error
