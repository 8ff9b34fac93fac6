"""AWS spot prices without credentials, from the feed of the spot price page; and Spot Advisor interruption
rates.

Both are JSON of a few MB for all regions. A price of the feed is per region, not per zone, and may be `N/A*`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ..errors import FetchError
from ..http import HttpClient
from ..source import LeftOut, ListedPrice, PricePart, PriceSource, RefreshRequest, parse_decimal, reading
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
        self._rows: list[ListedPrice] | None = None

    def parts(self, request: RefreshRequest) -> Sequence[PricePart]:
        """Return a single part, or one per requested region."""
        return request.build_parts("aws spot", "spot")

    def read(
        self, part: PricePart, request: RefreshRequest, http: HttpClient
    ) -> Iterable[ListedPrice | LeftOut]:
        """Return the Linux spot prices of all regions, or of the part's region."""
        if self._rows is None:
            url = f"{request.endpoint(self.name, ENDPOINT)}/spot.json"
            self._rows = list(_parse_feed(http.json(url), url))
        return part.select(self._rows)


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


# Savings compared with on demand, which may be negative, and the share of instances interrupted in the last month.
COLUMNS = (
    "instance_type", "region", "savings_percent", "low_percent", "high_percent", "url", "fetched_at",
)  # fmt: skip
BUCKETS = (("0", "5"), ("5", "10"), ("10", "15"), ("15", "20"), ("20", ""))  # no upper bound above 20 %
MIN_ROW_SHARE = 0.6  # minimum share of the previous rows


def refresh_interruption_rates(store: PriceStore, request: RefreshRequest, http: HttpClient) -> int:
    """Update the stored rates and return their number; FetchError if the response is incomplete.

    Args:
        store: Store with `interruption/aws.csv`.
        request: Refresh request with endpoints.
        http: HTTP client.
    """
    url = f"{request.endpoint('aws-spot-advisor', ADVISOR)}/spot-advisor-data.json"
    data, at = http.json(url), datetime.now(UTC).isoformat(timespec="seconds")
    with reading("the Spot Advisor"):
        rows = sorted(
            (instance_type, region, str(int(row["s"])), *BUCKETS[row["r"]], url, at)
            for region, systems in data["spot_advisor"].items()
            for instance_type, row in systems["Linux"].items()
        )
    before = len(store.table("interruption", "aws", COLUMNS))
    if len(rows) < MIN_ROW_SHARE * before or not rows:
        raise FetchError(f"the Spot Advisor lists {len(rows)} types instead of {before}", kind="truncated")
    store.write_table("interruption", "aws", COLUMNS, rows)
    return len(rows)
