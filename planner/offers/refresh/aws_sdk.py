"""AWS prices with credentials, through boto3: Price List Query API, and spot price history by zone.

The query API returns pages of a hundred price lists, each a JSON string:
https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_GetProducts.html. With start
and end at the current time, the spot history returns the current price of each zone. boto3's
`AWS_ENDPOINT_URL` applies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .http import FetchError, FetchErrorKind
from .source import ListedPrice, PricePart, PriceSource, RefreshRequest, parse_decimal, parse_float

if TYPE_CHECKING:
    from .http import HttpClient


PRICING_REGION = "us-east-1"  # serves all regions
ACCELERATED_FAMILIES = re.compile(r"GPU|Machine Learning", re.IGNORECASE)  # instance families; no FPGAs
FILTERS = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
    "locationType": "AWS Region",  # Local Zones and Outposts may bear the code of their parent region
}
LINUX = "Linux/UNIX"
MOST_TYPES = 100  # instance types per spot history request
EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired")
CLOCK = ("RequestTimeTooSkewed", "SignatureDoesNotMatch")
DENIED = (
    "AuthFailure", "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "InvalidClientTokenId",
    "UnrecognizedClientException", "OptInRequired",
)  # fmt: skip
THROTTLED = ("Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException")


class _WithBoto3(PriceSource):
    """Base class of both sources: they need boto3 and credentials, and send requests by region."""

    provider = "aws"
    what: str

    def missing(self, request: RefreshRequest) -> str | None:
        """Return the missing package or credentials."""
        if find_spec("boto3") is None:
            return f"{self.what}: `pip install 'gpuplan[aws]'`, and AWS credentials"
        has_credentials = has_aws_credentials(request.environ)
        return None if has_credentials else f"{self.what}: AWS credentials (`aws configure`)"


class AwsQuery(_WithBoto3):
    """On-demand prices by region."""

    name = "aws-query"
    label = "aws {} on demand"
    purchases = ("on_demand",)
    what = "on demand in every region within minutes"

    def read(self, part: PricePart, request: RefreshRequest, _http: HttpClient) -> Iterable[ListedPrice]:
        """Return the Linux on-demand prices of a region."""
        with translate_aws_errors():
            client = build_aws_client("pricing", PRICING_REGION, request.endpoint(self.name, ""))
            return list_products(client, regionCode=part.region)


class AwsSpotHistory(_WithBoto3):
    """Spot prices by zone: a region's price is that of its cheapest zone, and the note lists the others."""

    name = "aws-spot-history"
    label = "aws {} spot"
    purchases = ("spot",)
    what = "spot prices by zone"

    def read(self, part: PricePart, request: RefreshRequest, _http: HttpClient) -> Iterable[ListedPrice]:
        """Return the current spot prices of a region."""
        with translate_aws_errors():
            client = build_aws_client("ec2", part.region, request.endpoint(self.name, ""))
            zones = list_spot_prices(client, part.region, sorted(self._specs.known), now=datetime.now(UTC))
            url = f"{client.meta.endpoint_url}/#DescribeSpotPriceHistory"
        return [_build_spot_price(name, part.region, by_zone, url) for name, by_zone in zones.items()]


def list_products(client: Any, **asked: str) -> list[ListedPrice]:
    """Return the Linux on-demand prices of machines with these attributes; `client` is boto3's, for `pricing`."""
    pages = client.get_paginator("get_products").paginate(
        ServiceCode="AmazonEC2",
        Filters=[{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in {**FILTERS, **asked}.items()],
    )
    url = f"{client.meta.endpoint_url}/#GetProducts"
    return [row for page in pages for text in page["PriceList"] for row in parse_products(text, url)]


def list_spot_prices(
    client: Any, region: str, types: Sequence[str], *, now: datetime
) -> dict[str, dict[str, Decimal]]:
    """Return the current spot prices of Linux by instance type and zone; `client` is boto3's, for `ec2`."""
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for start in range(0, len(types), MOST_TYPES):
        pages = client.get_paginator("describe_spot_price_history").paginate(
            # A filter ignores types unknown in a region; `InstanceTypes` would raise an error.
            Filters=[{"Name": "instance-type", "Values": types[start : start + MOST_TYPES]}],
            ProductDescriptions=[LINUX],
            StartTime=now,
            EndTime=now,
        )
        for entry in (entry for page in pages for entry in page["SpotPriceHistory"]):
            key = (entry["InstanceType"], entry["AvailabilityZone"])
            is_newer = key not in newest or newest[key]["Timestamp"] < entry["Timestamp"]
            if is_newer and is_zone_of_region(entry["AvailabilityZone"], region):
                newest[key] = entry
    zones: dict[str, dict[str, Decimal]] = {}
    for (name, zone), entry in newest.items():
        zones.setdefault(name, {})[zone] = parse_decimal(entry["SpotPrice"], what=f"the spot price of {name}")
    return zones


def is_zone_of_region(zone: str, region: str) -> bool:
    """Return whether a zone is in a region itself, and not a Local Zone or Wavelength Zone attached to it.

    Example:
        >>> is_zone_of_region("us-west-2b", "us-west-2"), is_zone_of_region("us-west-2-lax-1a", "us-west-2")
        (True, False)
    """
    return re.fullmatch(rf"{re.escape(region)}[a-z]", zone) is not None


def has_aws_credentials(environ: Mapping[str, str]) -> bool:
    """Return whether boto3 would find credentials, without querying the instance metadata service."""
    if environ.get("AWS_ACCESS_KEY_ID") or environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return True
    import botocore.session

    try:
        session = botocore.session.Session(profile=environ.get("AWS_PROFILE"))
        resolver = session.get_component("credential_provider")
        resolver.remove("env")  # checked above, in the given environment
        resolver.remove("iam-role")
        return resolver.load_credentials() is not None
    except Exception:  # a broken configuration counts as no credentials; boto3 reports it on use
        return False


def build_aws_client(service: str, region: str, endpoint: str) -> Any:
    """Build a boto3 client with boto3's own retries; an empty endpoint means Amazon's."""
    import boto3
    from botocore.config import Config

    retries = {"mode": "standard", "max_attempts": 2}
    config = Config(retries=retries, connect_timeout=5, read_timeout=10, user_agent_extra="gpuplan")
    # A session of its own: the default one is not safe to build clients from in several threads.
    return boto3.Session().client(service, region_name=region, endpoint_url=endpoint or None, config=config)


@contextmanager
def translate_aws_errors() -> Iterator[None]:
    """Convert boto3 errors to FetchErrors."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as error:
        found = error.response.get("Error", {})
        code = str(found.get("Code"))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        kind, hint = _classify_error(code, status)
        raise FetchError(f"AWS answered {code}: {found.get('Message', '')}", kind=kind, hint=hint) from error
    except (BotoCoreError, ResponseParserError) as error:
        raise FetchError(f"AWS request failed: {' '.join(str(error).split())}", kind="unreachable") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FetchError(f"unexpected response format of AWS: {error!r}", kind="malformed") from error


def _classify_error(code: str, status: int) -> tuple[FetchErrorKind, str | None]:
    """Return the error kind of an error code, and a hint."""
    if code in EXPIRED:
        return "credentials", "log in again: `aws sso login`, or renew the keys"
    if code in CLOCK:
        return "credentials", "set this machine's clock: request signatures include the time"
    if code in DENIED or status in (401, 403):
        needed = "pricing:GetProducts and ec2:DescribeSpotPriceHistory"
        return "credentials", f"the role needs {needed}; is the region enabled?"
    if code in THROTTLED or status == 429:
        return "throttled", None
    return ("server" if status >= 500 else "refused"), None


def parse_products(text: str, url: str) -> Iterator[ListedPrice]:
    """Yield the on-demand prices of one price list."""
    entry = json.loads(text)
    attributes = entry["product"]["attributes"]
    family = attributes.get("instanceFamily", "")
    for term in entry["terms"].get("OnDemand", {}).values():
        for code, dimension in term["priceDimensions"].items():
            if dimension["unit"] != "Hrs":
                continue
            ((currency, price),) = dimension["pricePerUnit"].items()
            yield ListedPrice(
                instance_type=attributes["instanceType"],
                region=attributes["regionCode"],
                purchase="on_demand",
                usd_per_hour=parse_decimal(price, what=f"the price of {code}"),
                currency=currency,
                sku=code,
                url=url,
                devices=parse_float(attributes.get("gpu")),
                vcpus=parse_float(attributes.get("vcpu")),
                memory_gib=parse_float(attributes.get("memory")),
                is_accelerated=bool(parse_float(attributes.get("gpu")) or ACCELERATED_FAMILIES.search(family)),
            )


def _build_spot_price(name: str, region: str, by_zone: Mapping[str, Decimal], url: str) -> ListedPrice:
    """Build the price of a region from its cheapest zone."""
    zone, usd = min(by_zone.items(), key=lambda item: (item[1], item[0]))
    others = ", ".join(f"{other} {price:f}" for other, price in sorted(by_zone.items()) if other != zone)
    return ListedPrice(
        instance_type=name,
        region=region,
        purchase="spot",
        usd_per_hour=usd,
        sku=f"spot:{zone}:{name}:linux",
        url=url,
        note=f"zone {zone}" + (f" (others: {others})" if others else ""),
    )
