"""AWS with credentials, through boto3: the Price List Query API, and the spot price history of every zone.

The query API answers in pages of a hundred price lists, each a text of JSON:
https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_GetProducts.html. From now to
now, the spot history is the price in force in each zone. Endpoints follow boto3's own `AWS_ENDPOINT_URL` as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .source import FetchError, Kind, Listed, Part, Request, decimal_of, float_of

if TYPE_CHECKING:
    from ..rows import Purchase
    from .http import Http
    from .shapes import Shapes

__all__ = ["AwsQuery", "AwsSpotHistory", "aws_client", "aws_errors", "has_aws_credentials"]

PRICING_REGION = "us-east-1"  # the query API answers for all regions from there
FILTERS = {
    "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used",
    "marketoption": "OnDemand",
}  # fmt: skip
LINUX = "Linux/UNIX"
MOST_TYPES = 100  # instance types in one question for the spot history
EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired")
CLOCK = ("RequestTimeTooSkewed", "SignatureDoesNotMatch")
DENIED = (
    "AuthFailure", "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "InvalidClientTokenId",
    "UnrecognizedClientException", "OptInRequired",
)  # fmt: skip
THROTTLED = ("Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException")


class _WithBoto3:
    """What both sources have in common: they need boto3 and credentials, and ask region by region."""

    provider = "aws"
    what = ""
    purchase: Purchase

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes

    def missing(self, request: Request) -> str | None:
        """Return which package or credentials are needed."""
        if find_spec("boto3") is None:
            return f"{self.what}: `pip install 'gpuplan[aws]'`, and AWS credentials"
        return (
            None
            if has_aws_credentials(request.environ)
            else f"{self.what}: AWS credentials (`aws configure`)"
        )

    def parts(self, request: Request) -> Sequence[Part]:
        """Return a part a region: all of the catalog unless some are asked for."""
        regions = request.wanted_regions or request.known_regions
        how = self.purchase.replace("_", " ")
        return [Part(region=r, purchases=(self.purchase,), label=f"aws {r} {how}") for r in regions]


class AwsQuery(_WithBoto3):
    """On demand, region by region."""

    name = "aws-query"
    what = "on demand in every region within minutes"
    purchase = "on_demand"

    def read(self, part: Part, request: Request, _http: Http) -> Iterable[Listed]:
        """Return the Linux on-demand prices of a region."""
        endpoint = request.endpoint(self.name, "")
        with aws_errors():
            client = aws_client("pricing", PRICING_REGION, endpoint)
            asked = {**FILTERS, "regionCode": part.region}
            pages = client.get_paginator("get_products").paginate(
                ServiceCode="AmazonEC2",
                Filters=[{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in asked.items()],
            )
            url = f"{client.meta.endpoint_url}/#GetProducts"
            return [row for page in pages for text in page["PriceList"] for row in _products(text, url)]


class AwsSpotHistory(_WithBoto3):
    """Spot, by zone: a region's price is its cheapest zone's, and the note has the others."""

    name = "aws-spot-history"
    what = "spot prices by zone"
    purchase = "spot"

    def read(self, part: Part, request: Request, _http: Http) -> Iterable[Listed]:
        """Return the spot prices that are in force in a region."""
        endpoint = request.endpoint(self.name, "")
        with aws_errors():
            client = aws_client("ec2", part.region, endpoint)
            now, types = datetime.now(UTC), sorted(self._shapes.known)
            zones: dict[str, dict[str, Decimal]] = {}
            for start in range(0, len(types), MOST_TYPES):
                pages = client.get_paginator("describe_spot_price_history").paginate(
                    # A filter passes over types that a region does not know; `InstanceTypes` would be an error.
                    Filters=[{"Name": "instance-type", "Values": types[start : start + MOST_TYPES]}],
                    ProductDescriptions=[LINUX],
                    StartTime=now,
                    EndTime=now,
                )
                for entry in (entry for page in pages for entry in page["SpotPriceHistory"]):
                    usd = decimal_of(entry["SpotPrice"], what=f"the spot price of {entry['InstanceType']}")
                    zones.setdefault(entry["InstanceType"], {})[entry["AvailabilityZone"]] = usd
            url = f"{client.meta.endpoint_url}/#DescribeSpotPriceHistory"
        return [_spot(name, part.region, by_zone, url) for name, by_zone in zones.items()]


def has_aws_credentials(environ: Mapping[str, str]) -> bool:
    """Return whether boto3 would find credentials, without asking a machine's metadata service."""
    if environ.get("AWS_ACCESS_KEY_ID") or environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return True
    import botocore.session

    try:
        session = botocore.session.Session(profile=environ.get("AWS_PROFILE"))
        resolver = session.get_component("credential_provider")
        resolver.remove("env")  # asked above, of the environment that was given
        resolver.remove("iam-role")
        return resolver.load_credentials() is not None
    except Exception:  # a broken configuration is no credentials; boto3 says more when they are used
        return False


def aws_client(service: str, region: str, endpoint: str) -> Any:
    """Return a boto3 client with boto3's own retries; an empty endpoint is Amazon's."""
    import boto3
    from botocore.config import Config

    retries = {"mode": "standard", "max_attempts": 5}
    config = Config(retries=retries, connect_timeout=10, read_timeout=60, user_agent_extra="gpuplan")
    return boto3.client(service, region_name=region, endpoint_url=endpoint or None, config=config)


@contextmanager
def aws_errors() -> Iterator[None]:
    """Turn the errors of boto3 into FetchErrors."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as error:
        found = error.response.get("Error", {})
        code, status = (
            str(found.get("Code")),
            error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0),
        )
        kind, hint = _kind_of(code, int(status))
        raise FetchError(f"AWS answered {code}: {found.get('Message', '')}", kind=kind, hint=hint) from error
    except (BotoCoreError, ResponseParserError) as error:
        raise FetchError(f"AWS cannot be read: {' '.join(str(error).split())}", kind="unreachable") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FetchError(f"AWS answered in another form: {error!r}", kind="malformed") from error


def _kind_of(code: str, status: int) -> tuple[Kind, str | None]:
    """Return what an error code means, and what to do."""
    if code in EXPIRED:
        return "credentials", "log in again: `aws sso login`, or renew the keys"
    if code in CLOCK:
        return "credentials", "set this machine's clock: requests are signed with the time"
    if code in DENIED or status in (401, 403):
        return (
            "credentials",
            "the role needs pricing:GetProducts and ec2:DescribeSpotPriceHistory; is the region enabled?",
        )
    if code in THROTTLED or status == 429:
        return "throttled", None
    return ("server" if status >= 500 else "refused"), None


def _products(text: str, url: str) -> Iterator[Listed]:
    """Yield the on-demand prices of one price list."""
    entry = json.loads(text)
    attributes = entry["product"]["attributes"]
    for term in entry["terms"].get("OnDemand", {}).values():
        for code, dimension in term["priceDimensions"].items():
            if dimension["unit"] != "Hrs":
                continue
            ((currency, price),) = dimension["pricePerUnit"].items()
            yield Listed(
                instance_type=attributes["instanceType"],
                region=attributes["regionCode"],
                purchase="on_demand",
                usd_per_hour=decimal_of(price, what=f"the price of {code}"),
                currency=currency,
                sku=code,
                url=url,
                devices=float_of(attributes.get("gpu")),
                vcpus=float_of(attributes.get("vcpu")),
                memory_gib=float_of(attributes.get("memory")),
                is_accelerated=bool(float_of(attributes.get("gpu"))),
            )


def _spot(name: str, region: str, by_zone: Mapping[str, Decimal], url: str) -> Listed:
    """Return the cheapest zone of a region."""
    zone, usd = min(by_zone.items(), key=lambda item: (item[1], item[0]))
    others = ", ".join(f"{other} {price:f}" for other, price in sorted(by_zone.items()) if other != zone)
    return Listed(
        instance_type=name, region=region, purchase="spot", usd_per_hour=usd, sku=f"spot:{zone}:{name}:linux",
        url=url, note=f"zone {zone}" + (f" (others: {others})" if others else ""),
    )  # fmt: skip
