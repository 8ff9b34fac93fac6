"""AWS spot prices without credentials: the feed behind the page of spot prices; and the Spot Advisor's rates.

Both are JSON of a few MB for all regions. A price in the feed is coarse (a region, not a zone) and may be `N/A*`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .source import ANYWHERE, FetchError, Listed, Part, Request, decimal_of

if TYPE_CHECKING:
    from .http import Http

__all__ = ["ADVISOR", "AwsSpotFeed", "InterruptionRate", "interruption_rates", "read_interruption_rates"]

ENDPOINT = "https://website.spot.ec2.aws.a2z.com"
ADVISOR = "https://spot-bid-advisor.s3.amazonaws.com"
# The feed's own names of its oldest regions.
OLD_NAMES = {
    "us-east": "us-east-1", "us-west": "us-west-1", "eu-ireland": "eu-west-1", "apac-sin": "ap-southeast-1",
    "apac-syd": "ap-southeast-2", "apac-tokyo": "ap-northeast-1",
}  # fmt: skip
ACCELERATED = ("gpu", "ml", "accelerated")  # how groups of accelerated types begin or end


class AwsSpotFeed:
    """The keyless feed of spot prices: one answer for all regions."""

    name = "aws-spot-feed"
    provider = "aws"

    def __init__(self) -> None:
        self._seen: tuple[str, Any] | None = None

    def missing(self, _request: Request) -> str | None:
        """Return None: nothing is needed."""
        return None

    def parts(self, request: Request) -> Sequence[Part]:
        """Return one part, or one a region that was asked for."""
        return request.parts_of("aws spot", "spot")

    def read(self, part: Part, request: Request, http: Http) -> Iterable[Listed]:
        """Return the Linux spot prices of all regions, or of the part's."""
        url = f"{request.endpoint(self.name, ENDPOINT)}/spot.json"
        if self._seen is None or self._seen[0] != url:
            self._seen = (url, http.json(url).data)
        return [row for row in _prices(self._seen[1], url) if part.region in (ANYWHERE, row.region)]


def _prices(data: Any, url: str) -> Iterator[Listed]:
    """Yield the prices of a feed; FetchError when it does not have the known form."""
    try:
        for region in data["config"]["regions"]:
            name = OLD_NAMES.get(region["region"], region["region"])
            for group in region["instanceTypes"]:
                is_accelerated = str(group["type"]).lower().startswith(ACCELERATED)
                for size in group["sizes"]:
                    yield from _price(size, name, url, is_accelerated=is_accelerated)
    except (KeyError, TypeError) as error:
        raise FetchError(f"the spot feed has another form: {error!r}", kind="malformed") from error


def _price(size: Mapping[str, Any], region: str, url: str, *, is_accelerated: bool) -> Iterator[Listed]:
    """Yield the Linux price of a size, where there is one."""
    for column in size["valueColumns"]:
        price = column["prices"]["USD"] if column["name"] == "linux" else None
        if price is not None and not str(price).startswith("N/A"):
            yield Listed(
                instance_type=size["size"],
                region=region,
                purchase="spot",
                usd_per_hour=decimal_of(price, what=f"the spot price of {size['size']} in {region}"),
                sku=f"spot:{region}:{size['size']}:linux",
                url=url,
                is_accelerated=is_accelerated,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionRate:
    """What the Spot Advisor says of a type in a region.

    Args:
        instance_type, region: Which.
        savings_percent: Against on demand; may be negative.
        low_percent, high_percent: Share of instances interrupted in the last month; no upper end above 20.
    """

    instance_type: str
    region: str
    savings_percent: int
    low_percent: int
    high_percent: int | None


BUCKETS = ((0, 5), (5, 10), (10, 15), (15, 20), (20, None))


def interruption_rates(data: Any) -> list[InterruptionRate]:
    """Return the Linux rows of a Spot Advisor answer; FetchError when it does not have the known form."""
    try:
        return [
            InterruptionRate(
                instance_type=instance_type,
                region=region,
                savings_percent=int(row["s"]),
                low_percent=BUCKETS[row["r"]][0],
                high_percent=BUCKETS[row["r"]][1],
            )
            for region, systems in data["spot_advisor"].items()
            for instance_type, row in systems["Linux"].items()
        ]
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise FetchError(f"the Spot Advisor has another form: {error!r}", kind="malformed") from error


def read_interruption_rates(request: Request, http: Http) -> tuple[str, list[InterruptionRate]]:
    """Return the Spot Advisor's address and rates."""
    url = f"{request.endpoint('aws-spot-advisor', ADVISOR)}/spot-advisor-data.json"
    return url, interruption_rates(http.json(url).data)
