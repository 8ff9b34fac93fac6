"""AWS spot prices without credentials, from the feed of the spot price page; and Spot Advisor interruption
rates.

Both are JSON of a few MB for all regions. A price of the feed is per region, not per zone, and may be `N/A*`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..errors import FetchError
from ..http import HttpClient
from ..source import ANYWHERE, ListedPrice, PricePart, PriceSource, RefreshRequest, parse_decimal, reading
from ..store import PriceStore

ENDPOINT = "https://website.spot.ec2.aws.a2z.com"
ADVISOR = "https://spot-bid-advisor.s3.amazonaws.com"
# Names of the oldest regions in the feed.
OLD_NAMES = {
    "us-east": "us-east-1", "us-west": "us-west-1", "eu-ireland": "eu-west-1", "apac-sin": "ap-southeast-1",
    "apac-syd": "ap-southeast-2", "apac-tokyo": "ap-northeast-1",
}  # fmt: skip
ACCELERATED = ("gpu", "ml", "accelerated")  # prefixes or suffixes of accelerated groups


class AwsSpotFeed(PriceSource):
    """Spot price feed without credentials: one response for all regions."""

    name = "aws-spot-feed"
    provider = "aws"

    def __init__(self) -> None:
        self._seen: tuple[str, Any] | None = None

    def parts(self, request: RefreshRequest) -> Sequence[PricePart]:
        """Return a single part, or one per requested region."""
        return request.build_parts("aws spot", "spot")

    def read(self, part: PricePart, request: RefreshRequest, http: HttpClient) -> Iterable[ListedPrice]:
        """Return the Linux spot prices of all regions, or of the part's region."""
        url = f"{request.endpoint(self.name, ENDPOINT)}/spot.json"
        if self._seen is None or self._seen[0] != url:
            self._seen = (url, http.json(url))
        return [row for row in _parse_feed(self._seen[1], url) if part.region in (ANYWHERE, row.region)]


def _parse_feed(data: Any, url: str) -> Iterator[ListedPrice]:
    """Yield the prices of a feed; FetchError if its format is unknown."""
    with reading("the spot feed"):
        for region in data["config"]["regions"]:
            name = OLD_NAMES.get(region["region"], region["region"])
            for group in region["instanceTypes"]:
                is_accelerated = str(group["type"]).lower().startswith(ACCELERATED)
                for size in group["sizes"]:
                    yield from _parse_size(size, name, url, is_accelerated=is_accelerated)


def _parse_size(
    size: Mapping[str, Any], region: str, url: str, *, is_accelerated: bool
) -> Iterator[ListedPrice]:
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


class InterruptionRate(NamedTuple):
    """Spot Advisor entry of an instance type in a region.

    Args:
        instance_type, region: Instance type and region.
        savings_percent: Savings compared with on demand; may be negative.
        low_percent, high_percent: Share of instances interrupted in the last month; no upper bound above 20.
    """

    instance_type: str
    region: str
    savings_percent: int
    low_percent: int
    high_percent: int | None


BUCKETS = ((0, 5), (5, 10), (10, 15), (15, 20), (20, None))
COLUMNS = (*InterruptionRate._fields, "url", "fetched_at")
MIN_ROW_SHARE = 0.6  # minimum share of the previous rows


def refresh_interruption_rates(store: PriceStore, request: RefreshRequest, http: HttpClient) -> int:
    """Update the stored rates and return their number; FetchError if the response is incomplete.

    Args:
        store: Store with `interruption/aws.csv`.
        request: Refresh request with endpoints.
        http: HTTP client.
    """
    url = f"{request.endpoint('aws-spot-advisor', ADVISOR)}/spot-advisor-data.json"
    data = http.json(url)
    with reading("the Spot Advisor"):
        rates = [
            InterruptionRate(instance_type, region, int(row["s"]), *BUCKETS[row["r"]])
            for region, systems in data["spot_advisor"].items()
            for instance_type, row in systems["Linux"].items()
        ]
    before = len(load_interruption_rates(store))
    if len(rates) < MIN_ROW_SHARE * before or not rates:
        raise FetchError(f"the Spot Advisor lists {len(rates)} types instead of {before}", kind="truncated")
    at = datetime.now(UTC).isoformat(timespec="seconds")
    rows = [
        (*("" if value is None else str(value) for value in rate), url, at)
        for rate in sorted(rates, key=lambda rate: rate[:2])
    ]
    store.write_table("interruption", "aws", COLUMNS, rows)
    return len(rows)


def load_interruption_rates(store: PriceStore) -> Mapping[tuple[str, str], InterruptionRate]:
    """Return the stored rates by instance type and region; empty if there are none."""
    return {
        (row["instance_type"], row["region"]): InterruptionRate(
            instance_type=row["instance_type"],
            region=row["region"],
            savings_percent=int(row["savings_percent"]),
            low_percent=int(row["low_percent"]),
            high_percent=int(row["high_percent"]) if row["high_percent"] else None,
        )
        for row in store.table("interruption", "aws", COLUMNS)
    }
