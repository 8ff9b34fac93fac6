"""AWS prices without credentials: bulk offer files, and the feed of the spot price page."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .errors import FetchError
from .http import HttpClient
from .source import ListedPrice, PricePart, PriceSource, RefreshRequest, parse_decimal, parse_float, reading

BULK_ENDPOINT = "https://pricing.us-east-1.amazonaws.com"  # one host for every region
PREAMBLE_LINES = 5
MUST_HAVE = (b'"OnDemand"', b'"Linux"', b'"Shared"', b'"Used"', b'"Hrs"')
# Values of an on-demand price of a plain Linux machine; columns that may be missing count as empty.
WANTED = {
    "TermType": ("OnDemand",),
    "Operating System": ("Linux",),
    "Tenancy": ("Shared",),
    "CapacityStatus": ("Used",),
    "Unit": ("Hrs",),
    "MarketOption": ("", "OnDemand"),
    "Pre Installed S/W": ("", "NA"),
    # Local Zones, Wavelength Zones and Outposts may bear the code of their parent region.
    "Location Type": ("", "AWS Region"),
}
NEEDED = (
    *(name for name in WANTED if "" not in WANTED[name]),
    "SKU",
    "RateCode",
    "PricePerUnit",
    "Currency",
    "Instance Type",
    "Region Code",
)
ACCELERATED_FAMILIES = re.compile(r"GPU|Machine Learning", re.IGNORECASE)  # instance families; no FPGAs


class AwsBulk(PriceSource):
    """Bulk offer files: on-demand prices, one part per region."""

    name = "aws-bulk"
    provider = "aws"
    label = "aws {} on demand"
    purchases = ("on_demand",)

    def read(self, part: PricePart, request: RefreshRequest, http: HttpClient) -> Iterable[ListedPrice]:
        """Return the Linux on-demand prices of a region."""
        base = request.endpoint(self.name, BULK_ENDPOINT)
        url = f"{base}/offers/v1.0/aws/AmazonEC2/current/{part.region}/index.csv"

        def attempt() -> list[ListedPrice]:
            with http.stream(url) as lines:
                return list(parse_offer_file(lines, url=url))

        return http.retry(attempt)


def parse_offer_file(lines: Iterable[bytes], *, url: str) -> Iterator[ListedPrice]:
    """Yield the Linux on-demand prices of an offer file; FetchError if it is incomplete.

    Args:
        lines: Lines of the CSV file, with line breaks.
        url: Source of the file.
    """
    rows = iter(lines)
    header = _read_header(rows)
    last = b""
    for line in rows:
        last = line
        if all(value in line for value in MUST_HAVE):
            cells = next(csv.reader([line.decode("utf-8")]))
            if len(cells) != len(header):
                raise FetchError(f"a line of {url} has {len(cells)} of {len(header)} cells", kind="truncated")
            row = dict(zip(header, cells, strict=True))
            if all(row.get(name, "") in values for name, values in WANTED.items()):
                yield _parse_price(row, url)
    if not last.endswith(b"\n"):
        raise FetchError(f"the last line of {url} is incomplete", kind="truncated")


def _read_header(rows: Iterator[bytes]) -> list[str]:
    """Return the column names, which follow the preamble; FetchError if a required one is missing."""
    for _ in range(PREAMBLE_LINES):
        next(rows, b"")
    header = next(csv.reader([next(rows, b"").decode("utf-8", "replace")]), [])
    lacking = [name for name in NEEDED if name not in header]
    if lacking:
        raise FetchError(f"the offer file has no column `{lacking[0]}`", kind="malformed")
    return header


def _parse_price(row: Mapping[str, str], url: str) -> ListedPrice:
    """Parse a line to a price."""
    gpus = parse_float(row.get("GPU"))
    return ListedPrice(
        instance_type=row["Instance Type"],
        region=row["Region Code"],
        purchase="on_demand",
        usd_per_hour=parse_decimal(row["PricePerUnit"], what=f"the price of {row['RateCode']}"),
        currency=row["Currency"],
        sku=row["RateCode"] or row["SKU"],
        url=url,
        devices=gpus,
        vcpus=parse_float(row.get("vCPU")),
        memory_gib=parse_float(row.get("Memory")),
        is_accelerated=bool(gpus or ACCELERATED_FAMILIES.search(row.get("Instance Family", ""))),
    )


FEED_ENDPOINT = "https://website.spot.ec2.aws.a2z.com"
# Names of the oldest regions in the feed.
OLD_NAMES = {
    "us-east": "us-east-1", "us-west": "us-west-1", "eu-ireland": "eu-west-1", "apac-sin": "ap-southeast-1",
    "apac-syd": "ap-southeast-2", "apac-tokyo": "ap-northeast-1",
}  # fmt: skip
ACCELERATED_GROUPS = ("gpu", "ml", "accelerated")  # prefixes or suffixes of accelerated groups


class AwsSpotFeed(PriceSource):
    """Spot price feed without credentials: one response for all regions."""

    name = "aws-spot-feed"
    provider = "aws"
    label = "aws spot"
    purchases = ("spot",)

    def read_all(self, request: RefreshRequest, http: HttpClient) -> Iterable[ListedPrice]:
        """Return the Linux spot prices of all regions."""
        url = f"{request.endpoint(self.name, FEED_ENDPOINT)}/spot.json"
        return _parse_feed(http.json(url), url)


def _parse_feed(data: Any, url: str) -> Iterator[ListedPrice]:
    """Yield the prices of a feed; FetchError if its format is unknown."""
    with reading("the spot feed"):
        for region in data["config"]["regions"]:
            name = OLD_NAMES.get(region["region"], region["region"])
            for group in region["instanceTypes"]:
                is_accelerated = str(group["type"]).lower().startswith(ACCELERATED_GROUPS)
                for size in group["sizes"]:
                    yield from _parse_size(size, name, url, is_accelerated=is_accelerated)


def _parse_size(size: Mapping[str, Any], region: str, url: str, *, is_accelerated: bool) -> Iterator[ListedPrice]:
    """Yield the Linux price of an instance size, if there is one."""
    for column in size["valueColumns"]:
        price = column["prices"]["USD"] if column["name"] == "linux" else None
        if price is not None and not str(price).startswith("N/A"):
            yield ListedPrice(
                instance_type=size["size"],
                region=region,
                purchase="spot",
                usd_per_hour=parse_decimal(price, what=f"the spot price of {size['size']} in {region}"),
                sku=f"spot:{region}:{size['size']}:linux",
                url=url,
                is_accelerated=is_accelerated,
            )
