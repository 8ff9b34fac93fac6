"""AWS on demand without credentials: the bulk offer file of a region, a CSV of hundreds of MB, read as it streams.

https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-the-aws-price-list-bulk-api.html: five lines
of preamble (FormatVersion, Disclaimer, Publication Date, Version, OfferCode), then a header, then a line a price.
Lines are sorted out as bytes before any of them is parsed: fewer than one in a hundred is.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from .source import FetchError, Listed, Part, Request, decimal_of, float_of

if TYPE_CHECKING:
    from .http import Http

__all__ = ["AwsBulk", "parse_offer_file"]

ENDPOINT = "https://pricing.us-east-1.amazonaws.com"  # one host, which serves every region
DEFAULT_REGIONS = ("us-east-1",)  # every region is a file of hundreds of MB: more only when asked
PREAMBLE_LINES = 5
MUST_HAVE = (b'"OnDemand"', b'"Linux"', b'"Shared"', b'"Used"', b'"Hrs"')
EQUAL = {
    "TermType": "OnDemand", "Operating System": "Linux", "Tenancy": "Shared", "CapacityStatus": "Used",
    "Unit": "Hrs",
}  # fmt: skip
OPTIONAL_EQUAL = {"MarketOption": ("", "OnDemand"), "Pre Installed S/W": ("", "NA")}
NEEDED = (*EQUAL, "SKU", "RateCode", "PricePerUnit", "Currency", "Instance Type", "Region Code")
ACCELERATED = re.compile(r"GPU|Machine Learning", re.IGNORECASE)  # families; FPGAs and encoders are none


class AwsBulk:
    """The bulk offer files; on demand, one part a region."""

    name = "aws-bulk"
    provider = "aws"

    def missing(self, _request: Request) -> str | None:
        """Return None: nothing is needed."""
        return None

    def parts(self, request: Request) -> Sequence[Part]:
        """Return a part a region: us-east-1 unless others, or all, are asked for."""
        regions = request.wanted_regions or DEFAULT_REGIONS
        return [Part(region=r, purchases=("on_demand",), label=f"aws {r} on demand") for r in regions]

    def read(self, part: Part, request: Request, http: Http) -> Iterable[Listed]:
        """Return the Linux on-demand prices of a region."""
        base = request.endpoint(self.name, ENDPOINT)
        url = f"{base}/offers/v1.0/aws/AmazonEC2/current/{part.region}/index.csv"

        def attempt() -> list[Listed]:
            with http.stream(url) as lines:
                return list(parse_offer_file(lines, url=url))

        return http.retry(attempt)


def parse_offer_file(lines: Iterable[bytes], *, url: str) -> Iterator[Listed]:
    """Yield the Linux on-demand prices of an offer file; FetchError unless it is whole.

    Args:
        lines: Of the CSV file, each with its line break.
        url: Where they come from.
    """
    rows = iter(lines)
    header = _header(rows)
    position = {name: index for index, name in enumerate(header)}
    last = b""
    for line in rows:
        last = line
        if all(value in line for value in MUST_HAVE):
            cells = next(csv.reader([line.decode("utf-8")]))
            if len(cells) != len(header):
                raise FetchError(f"a line of {url} has {len(cells)} of {len(header)} cells", kind="truncated")
            if _is_wanted(cells, position):
                yield _listed(cells, position, url)
    if not last.endswith(b"\n"):
        raise FetchError(f"the last line of {url} is not whole", kind="truncated")


def _header(rows: Iterator[bytes]) -> list[str]:
    """Return the names of the columns, which follow the preamble; FetchError when one that matters is missing."""
    for _ in range(PREAMBLE_LINES):
        next(rows, b"")
    header = next(csv.reader([next(rows, b"").decode("utf-8", "replace")]), [])
    lacking = [name for name in NEEDED if name not in header]
    if lacking:
        raise FetchError(f"the offer file has no column `{lacking[0]}`", kind="malformed")
    return header


def _is_wanted(cells: Sequence[str], position: dict[str, int]) -> bool:
    """Return whether a line is a plain Linux machine on demand."""
    return all(cells[position[name]] == value for name, value in EQUAL.items()) and all(
        name not in position or cells[position[name]] in values for name, values in OPTIONAL_EQUAL.items()
    )


def _listed(cells: Sequence[str], position: dict[str, int], url: str) -> Listed:
    """Return a line as a price."""

    def cell(name: str) -> str:
        return cells[position[name]] if name in position else ""

    return Listed(
        instance_type=cell("Instance Type"),
        region=cell("Region Code"),
        purchase="on_demand",
        usd_per_hour=decimal_of(cell("PricePerUnit"), what=f"the price of {cell('RateCode')}"),
        currency=cell("Currency"),
        sku=cell("RateCode") or cell("SKU"),
        url=url,
        devices=float_of(cell("GPU")),
        vcpus=float_of(cell("vCPU")),
        memory_gib=float_of(cell("Memory")),
        is_accelerated=bool(float_of(cell("GPU")) or ACCELERATED.search(cell("Instance Family"))),
    )
