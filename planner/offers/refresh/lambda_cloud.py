"""Lambda, on demand: one call with an API key; prices in cents, everywhere alike.

https://docs.lambda.ai/api/cloud
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from .source import ANYWHERE, FetchError, Listed, Part, Request, decimal_of, float_of

if TYPE_CHECKING:
    from .http import Http

__all__ = ["LambdaCloud"]

ENDPOINT = "https://cloud.lambdalabs.com"
KEY_VARIABLE = "LAMBDA_API_KEY"
REGION = "any"  # one price for all regions; which of them has machines changes by the minute


class LambdaCloud:
    """The list of instance types."""

    name = "lambda-api"
    provider = "lambda"

    def missing(self, request: Request) -> str | None:
        """Return that an API key is needed."""
        return None if request.environ.get(KEY_VARIABLE) else f"an API key in {KEY_VARIABLE}"

    def parts(self, _request: Request) -> Sequence[Part]:
        """Return the one part."""
        return [Part(region=ANYWHERE, purchases=("on_demand",), label="lambda on demand")]

    def read(self, _part: Part, request: Request, http: Http) -> Iterable[Listed]:
        """Return all instance types."""
        url = f"{request.endpoint(self.name, ENDPOINT)}/api/v1/instance-types"
        key = request.environ[KEY_VARIABLE]
        answer = http.json(url, headers={"Authorization": f"Bearer {key}"})
        return list(_prices(answer.data, url))


def _prices(data: Any, url: str) -> Iterator[Listed]:
    """Yield the instance types of an answer; FetchError when it has another form."""
    try:
        for entry in data["data"].values():
            kind = entry["instance_type"]
            cents = decimal_of(kind["price_cents_per_hour"], what=f"the price of {kind['name']}")
            specs = kind.get("specs") or {}
            yield Listed(
                instance_type=kind["name"],
                region=REGION,
                purchase="on_demand",
                usd_per_hour=cents / Decimal(100),
                sku=kind["name"],
                url=url,
                accelerator=kind["name"].split("x_", 1)[-1] if "gpu" in kind["name"] else None,
                devices=float_of(specs.get("gpus")),
                vcpus=float_of(specs.get("vcpus")),
                memory_gib=float_of(specs.get("memory_gib")),
                is_accelerated="gpu" in kind["name"],
            )
    except (KeyError, TypeError, AttributeError) as error:
        raise FetchError(f"Lambda's answer has another form: {error!r}", kind="malformed") from error
