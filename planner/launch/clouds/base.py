"""Parts common to the cloud adapters: maximum spot price, and fields of a machine that come from its tags."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from ..core.resource_names import TAG_OWNER_NAME, TAG_RUN, usd_from_tag

__all__ = ["CENTS_OF_A_CENT", "SPOT_CEILING", "compute_spot_max_price", "parse_owner_tags", "parse_tags"]

SPOT_CEILING = Decimal("1.25")  # a spot price above this multiple of the planned one ends the machine
CENTS_OF_A_CENT = Decimal("0.0001")


def compute_spot_max_price(usd_per_hour: Decimal) -> Decimal:
    """Return the maximum price of a spot machine, 1.25 times the planned one [USD/h].

    Example:
        >>> compute_spot_max_price(Decimal("0.2"))
        Decimal('0.2500')
    """
    return (usd_per_hour * SPOT_CEILING).quantize(CENTS_OF_A_CENT)


def parse_owner_tags(tags: Mapping[str, str]) -> dict[str, Any]:
    """Return run, attempt and owner of a resource; empty or 0 without a tag.

    Example:
        >>> parse_owner_tags({"gpuplan-run": "r1", "gpuplan-attempt": "2"})
        {'run': 'r1', 'attempt': 2, 'owner': ''}
    """
    number = tags.get("gpuplan-attempt", "")
    return {
        "run": tags.get(TAG_RUN, ""),
        "attempt": int(number) if number.isdecimal() else 0,
        "owner": tags.get("gpuplan-owner", ""),
    }


def parse_tags(tags: Mapping[str, str], *, started_at: datetime, wait_s: float = 0.0) -> dict[str, Any]:
    """Return the fields of a `CloudMachine` that its tags contain.

    Args:
        tags: Tags or labels.
        started_at: Start of the machine by the cloud's clock.
        wait_s: Maximum time from that start until the cap begins [s].
    """
    cap_s = tags.get("gpuplan-cap-s", "")
    cap_at = started_at + timedelta(seconds=int(cap_s) + wait_s) if cap_s.isdecimal() else None
    return {
        **parse_owner_tags(tags),
        "owner_name": tags.get(TAG_OWNER_NAME, ""),
        "usd_per_hour": usd_from_tag(tags.get("gpuplan-microusd-per-hour")),
        "cap_at": cap_at,
    }
