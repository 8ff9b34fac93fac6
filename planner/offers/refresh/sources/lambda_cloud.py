"""Lambda on-demand prices: one call with an API key; prices in cents, equal in all regions.

https://docs.lambda.ai/api/cloud
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..errors import FetchError
from ..source import ANYWHERE, ListedPrice, PricePart, RefreshRequest, parse_decimal, parse_float

if TYPE_CHECKING:
    from ..http import HttpClient

__all__ = ["LambdaCloud"]

ENDPOINT = "https://cloud.lambdalabs.com"
KEY_VARIABLE = "LAMBDA_API_KEY"
REGION = "any"  # one price for all regions; availability changes by the minute


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
