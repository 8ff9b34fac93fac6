"""AWS spot interruption rates: the Spot Advisor's table, stored next to the prices."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from .aws_spot import InterruptionRate, read_interruption_rates
from .fetch_error import FetchError
from .http import HttpClient
from .source import RefreshRequest
from .store import PriceStore

__all__ = ["load_interruption_rates", "refresh_interruption_rates"]

COLUMNS = (
    "instance_type", "region", "savings_percent", "low_percent", "high_percent", "url", "fetched_at",
)  # fmt: skip
MIN_ROW_SHARE = 0.6  # minimum share of the previous rows


def refresh_interruption_rates(store: PriceStore, request: RefreshRequest, http: HttpClient) -> int:
    """Update the stored rates and return their number; FetchError if the response is incomplete.

    Args:
        store: Store with `interruption/aws.csv`.
        request: Refresh request with endpoints.
        http: HTTP client.
    """
    url, rates = read_interruption_rates(request, http)
    before = len(load_interruption_rates(store))
    if len(rates) < MIN_ROW_SHARE * before or not rates:
        raise FetchError(f"the Spot Advisor lists {len(rates)} types instead of {before}", kind="truncated")
    at = datetime.now(UTC).isoformat(timespec="seconds")
    rows = [
        (r.instance_type, r.region, str(r.savings_percent), str(r.low_percent),
         "" if r.high_percent is None else str(r.high_percent), url, at)
        for r in sorted(rates, key=lambda r: (r.instance_type, r.region))
    ]  # fmt: skip
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
