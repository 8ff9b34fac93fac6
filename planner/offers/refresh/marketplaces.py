"""Marketplaces: RunPod (an API key) and Vast (none). The lowest price of a GPU is what an offer means there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ..names import Names
from ..rows import Purchase
from .source import ANYWHERE, FetchError, Listed, Part, Request, decimal_of

if TYPE_CHECKING:
    from .http import Http
    from .shapes import Shapes

__all__ = ["Gpus", "RunPod", "Vast"]

REGION = "any"
NOTE = "marketplace: the lowest listed price"
RUNPOD = "https://api.runpod.io"
RUNPOD_KEY = "RUNPOD_API_KEY"
RUNPOD_QUERY = """
query { gpuTypes { id displayName memoryInGb securePrice communityPrice secureSpotPrice communitySpotPrice } }
"""
VAST = "https://console.vast.ai"
COUNTS = (1, 2, 4, 8)  # GPUs of a machine that are worth a row
VAST_QUERY = '{"rentable": {"eq": true}, "verified": {"eq": true}, "type": "on-demand", "limit": 5000}'


class _Marketplace:
    """What both have in common: one list of everything, wherever it stands.

    Args:
        shapes: What the marketplace's GPUs are called in the catalog.
    """

    provider: str

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes

    def parts(self, _request: Request) -> Sequence[Part]:
        """Return the one part."""
        return [Part(region=ANYWHERE, purchases=("on_demand", "spot"), label=self.provider)]


class RunPod(_Marketplace):
    """The GraphQL list of GPU types: one GPU of each, the cheaper of secure and community cloud."""

    name = "runpod-api"
    provider = "runpod"

    def missing(self, request: Request) -> str | None:
        """Return that an API key is needed."""
        return None if request.environ.get(RUNPOD_KEY) else f"an API key in {RUNPOD_KEY}"

    def read(self, _part: Part, request: Request, http: Http) -> Iterable[Listed]:
        """Return all GPU types."""
        url = f"{request.endpoint(self.name, RUNPOD)}/graphql"
        headers = {"Authorization": f"Bearer {request.environ[RUNPOD_KEY]}"}
        answer = http.json(url, headers=headers, body={"query": RUNPOD_QUERY})
        try:
            return [row for gpu in answer.data["data"]["gpuTypes"] for row in self._rows(gpu, url)]
        except (KeyError, TypeError) as error:
            raise FetchError(f"RunPod's answer has another form: {error!r}", kind="malformed") from error

    def _rows(self, gpu: dict[str, Any], url: str) -> Iterator[Listed]:
        """Yield the prices of a GPU type."""
        purchases: tuple[tuple[Purchase, tuple[str, str]], ...] = (
            ("on_demand", ("securePrice", "communityPrice")),
            ("spot", ("secureSpotPrice", "communitySpotPrice")),
        )
        for purchase, fields in purchases:
            prices = [
                decimal_of(gpu[field], what=f"{field} of {gpu['id']}") for field in fields if gpu.get(field)
            ]
            if prices:
                kind = Gpus(provider="runpod", name=str(gpu["displayName"]), memory_gb=gpu.get("memoryInGb"))
                yield kind.at(
                    min(prices), purchase=purchase, sku=str(gpu["id"]), url=url, shapes=self._shapes
                )


class Vast(_Marketplace):
    """The search of offers: the lowest price of each GPU and number of GPUs, and the lowest bid."""

    name = "vast-api"
    provider = "vast"

    def missing(self, _request: Request) -> str | None:
        """Return None: nothing is needed."""
        return None

    def read(self, _part: Part, request: Request, http: Http) -> Iterable[Listed]:
        """Return the lowest price of each GPU that is offered, by one, two, four or eight."""
        url = f"{request.endpoint(self.name, VAST)}/api/v0/bundles/"
        answer = http.json(url, params={"q": VAST_QUERY})
        try:
            return list(self._lowest_of(answer.data["offers"], url))
        except (KeyError, TypeError) as error:
            raise FetchError(f"Vast's answer has another form: {error!r}", kind="malformed") from error

    def _lowest_of(self, offers: Iterable[dict[str, Any]], url: str) -> Iterator[Listed]:
        """Yield the lowest on-demand price and the lowest bid of each kind and number of GPUs."""
        lowest: dict[tuple[Gpus, Purchase], tuple[Decimal, str]] = {}
        prices: tuple[tuple[Purchase, str], ...] = (("on_demand", "dph_base"), ("spot", "min_bid"))
        for offer in offers:
            if offer["num_gpus"] not in COUNTS:
                continue
            kind = Gpus(
                provider="vast", name=str(offer["gpu_name"]), memory_gb=_gb(offer.get("gpu_ram")),
                count=int(offer["num_gpus"]),
            )  # fmt: skip
            for purchase, field in prices:
                usd = (
                    decimal_of(offer[field], what=f"{field} of {offer['id']}")
                    if offer.get(field)
                    else Decimal(0)
                )
                if usd > 0 and ((kind, purchase) not in lowest or usd < lowest[kind, purchase][0]):
                    lowest[kind, purchase] = (usd, str(offer["id"]))
        for (kind, purchase), (usd, sku) in lowest.items():
            rounded = usd.quantize(Decimal("0.0001"))
            yield kind.at(rounded, purchase=purchase, sku=sku, url=url, shapes=self._shapes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """Some GPUs of a marketplace, under its own name; the memory tells an A100 from the other."""

    provider: str
    name: str
    memory_gb: int | None = None
    count: int = 1

    def at(self, usd: Decimal, *, purchase: Purchase, sku: str, url: str, shapes: Shapes) -> Listed:
        """Return them at a price; under the catalog's name where it knows the GPU."""
        accelerator = self._canonical(shapes.names)
        return Listed(
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

    def _canonical(self, names: Names) -> str | None:
        """Return the catalog's name; None when it does not know the GPU, or cannot tell which it is."""
        for name in (f"{self.name}-{self.memory_gb}GB", self.name):
            try:
                return names.resolve(name)
            except UsageError:
                continue
        return None


def _gb(mib: float | None) -> int | None:
    """Return memory as a GPU's name has it: 81,559 MiB are called 80 GB."""
    return None if mib is None else round(mib / 1024 / 8) * 8
