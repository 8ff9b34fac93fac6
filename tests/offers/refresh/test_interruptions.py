"""The Spot Advisor's table: read, kept, and not replaced by half of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpuplan.offers.refresh.aws_public import COLUMNS, refresh_interruption_rates
from gpuplan.offers.refresh.errors import FetchError
from gpuplan.offers.refresh.source import RefreshRequest
from gpuplan.offers.refreshed_prices import PriceStore
from vendors.server import impatient, vendor

TYPES = ("g4dn.xlarge", "g5.xlarge", "p3.2xlarge", "p4d.24xlarge", "p5.48xlarge")


def advisor(types: tuple[str, ...]) -> dict[str, Any]:
    """Return the Spot Advisor's answer: savings may be negative, `r` is the bucket."""
    rows = {name: {"s": 60 - 20 * number, "r": number} for number, name in enumerate(types)}
    return {"ranges": [], "spot_advisor": {"us-east-1": {"Linux": rows, "Windows": {}}}}


def refreshed(store: PriceStore, answer: Any) -> int:
    """Return how many rates a refresh read."""
    with vendor(lambda _: answer) as server:
        request = RefreshRequest(endpoints={"aws-spot-advisor": server.url})
        return refresh_interruption_rates(store, request, impatient())


def test_rates_are_kept_by_type_and_region(tmp_path: Path) -> None:
    """Bucket 3 is 15 to 20 %, bucket 4 has no upper end; savings of -20 % are what they are."""
    store = PriceStore(tmp_path)

    assert refreshed(store, advisor(TYPES)) == 5
    rates = {(row["instance_type"], row["region"]): row for row in store.table("interruption", "aws", COLUMNS)}

    p4d, p5 = rates["p4d.24xlarge", "us-east-1"], rates["p5.48xlarge", "us-east-1"]
    assert (p4d["low_percent"], p4d["high_percent"], p4d["savings_percent"]) == ("15", "20", "0")
    assert (p5["low_percent"], p5["high_percent"], p5["savings_percent"]) == ("20", "", "-20")


@pytest.mark.parametrize("answer", [advisor(TYPES[:2]), advisor(()), {"spot_advisor": {"us-east-1": []}}])
def test_half_a_table_is_refused(tmp_path: Path, answer: Any) -> None:
    """What was known stays, byte for byte."""
    store = PriceStore(tmp_path)
    refreshed(store, advisor(TYPES))
    before = store.path("interruption", "aws").read_bytes()

    with pytest.raises(FetchError):
        refreshed(store, answer)

    assert store.path("interruption", "aws").read_bytes() == before
