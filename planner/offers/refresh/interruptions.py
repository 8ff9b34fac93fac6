"""How often AWS takes spot machines back: the Spot Advisor's table, kept beside the prices."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from .aws_spot import InterruptionRate, read_interruption_rates
from .http import Http
from .source import FetchError, Request
from .store import Store

__all__ = ["known_interruption_rates", "refresh_interruption_rates"]

COLUMNS = (
    "instance_type", "region", "savings_percent", "low_percent", "high_percent", "url", "fetched_at",
)  # fmt: skip
FEWEST_SHARE = 0.6  # of the rows before


def refresh_interruption_rates(store: Store, request: Request, http: Http) -> int:
    """Return how many rates were read; FetchError, and the old ones stay, when the answer is not whole.

    Args:
        store: Where they are kept: `interruption/aws.csv`.
        request: Endpoints.
        http: Asks the vendor.
    """
    url, rates = read_interruption_rates(request, http)
    before = len(known_interruption_rates(store))
    if len(rates) < FEWEST_SHARE * before or not rates:
        raise FetchError(
            f"the Spot Advisor lists {len(rates)} types where it listed {before}", kind="truncated"
        )
    at = datetime.now(UTC).isoformat(timespec="seconds")
    rows = [
        (r.instance_type, r.region, str(r.savings_percent), str(r.low_percent),
         "" if r.high_percent is None else str(r.high_percent), url, at)
        for r in sorted(rates, key=lambda r: (r.instance_type, r.region))
    ]  # fmt: skip
    store.write_table("interruption", "aws", COLUMNS, rows)
    return len(rows)


def known_interruption_rates(store: Store) -> Mapping[tuple[str, str], InterruptionRate]:
    """Return the rates that were read last, by instance type and region; none when none were."""
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
