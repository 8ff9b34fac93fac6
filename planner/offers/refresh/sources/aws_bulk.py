"""AWS on-demand prices without credentials: a region's bulk offer file, a CSV of hundreds of MB, parsed as a
stream, so that memory use does not depend on the file size or the number of regions.

https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-the-aws-price-list-bulk-api.html: five
lines of preamble (FormatVersion, Disclaimer, Publication Date, Version, OfferCode), then a header, then one
line per price. Lines are filtered as bytes before parsing: fewer than one in a hundred remains.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..errors import FetchError
from ..source import ListedPrice, PricePart, PriceSource, RefreshRequest, parse_decimal, parse_float

if TYPE_CHECKING:
    from ..http import HttpClient

ENDPOINT = "https://pricing.us-east-1.amazonaws.com"  # one host for every region
PREAMBLE_LINES = 5
MUST_HAVE = (b'"OnDemand"', b'"Linux"', b'"Shared"', b'"Used"', b'"Hrs"')
EQUAL = {
    "TermType": "OnDemand",
    "Operating System": "Linux",
    "Tenancy": "Shared",
    "CapacityStatus": "Used",
    "Unit": "Hrs",
}
OPTIONAL_EQUAL = {
    "MarketOption": ("", "OnDemand"),
    "Pre Installed S/W": ("", "NA"),
    # Local Zones, Wavelength Zones and Outposts may bear the code of their parent region.
    "Location Type": ("", "AWS Region"),
}
NEEDED = (*EQUAL, "SKU", "RateCode", "PricePerUnit", "Currency", "Instance Type", "Region Code")
ACCELERATED = re.compile(r"GPU|Machine Learning", re.IGNORECASE)  # instance families; no FPGAs


class AwsBulk(PriceSource):
    """Bulk offer files: on-demand prices, one part per region."""

    name = "aws-bulk"
    provider = "aws"

    def parts(self, request: RefreshRequest) -> Sequence[PricePart]:
        """Return one part per region."""
        return request.build_regional_parts("aws {} on demand", "on_demand")

    def read(self, part: PricePart, request: RefreshRequest, http: HttpClient) -> Iterable[ListedPrice]:
        """Return the Linux on-demand prices of a region."""
        base = request.endpoint(self.name, ENDPOINT)
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
    position = {name: index for index, name in enumerate(header)}
    last = b""
    for line in rows:
        last = line
        if all(value in line for value in MUST_HAVE):
            cells = next(csv.reader([line.decode("utf-8")]))
            if len(cells) != len(header):
                raise FetchError(f"a line of {url} has {len(cells)} of {len(header)} cells", kind="truncated")
            if _is_wanted(cells, position):
                yield _parse_price(cells, position, url)
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


def _is_wanted(cells: Sequence[str], position: dict[str, int]) -> bool:
    """Return whether a line is an on-demand price of a plain Linux machine."""
    return all(cells[position[name]] == value for name, value in EQUAL.items()) and all(
        name not in position or cells[position[name]] in values for name, values in OPTIONAL_EQUAL.items()
    )


def _parse_price(cells: Sequence[str], position: dict[str, int], url: str) -> ListedPrice:
    """Parse a line to a price."""

    def cell(name: str) -> str:
        return cells[position[name]] if name in position else ""

    return ListedPrice(
        instance_type=cell("Instance Type"),
        region=cell("Region Code"),
        purchase="on_demand",
        usd_per_hour=parse_decimal(cell("PricePerUnit"), what=f"the price of {cell('RateCode')}"),
        currency=cell("Currency"),
        sku=cell("RateCode") or cell("SKU"),
        url=url,
        devices=parse_float(cell("GPU")),
        vcpus=parse_float(cell("vCPU")),
        memory_gib=parse_float(cell("Memory")),
        is_accelerated=bool(parse_float(cell("GPU")) or ACCELERATED.search(cell("Instance Family"))),
    )
