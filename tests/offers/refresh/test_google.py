"""Contract: Google's own client against a server that speaks its format, held against the discovery document."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.refresh.jobs import build_jobs
from gpuplan.offers.refresh.run import RefreshOutcome, refresh_provider
from gpuplan.offers.refresh.store import PriceStore
from vendors import google
from vendors.server import Asked, impatient, vendor

CATALOG = load_catalog()
TOLERANCE_USD = Decimal(
    "0.000002"
)  # packaged prices are rounded to a millionth, and so are unit prices summed
GOOGLE = [
    offer
    for offer in CATALOG.offers
    if offer.provider == "gcp" and offer.usd_per_hour and "@" not in offer.instance_type
]


def run(store: PriceStore, url: str, *, regions: Sequence[str] = (), read_s: float = 5.0) -> RefreshOutcome:
    """Return how a refresh with an API key went."""
    (job,) = build_jobs(
        CATALOG,
        providers=("gcp",),
        regions=regions,
        environ={"GCP_API_KEY": "secret-key"},
        endpoints={"gcp-billing": url, "skypilot-gcp": url},
    )
    return refresh_provider(job, store=store, http=impatient(read_s=read_s))


@pytest.fixture(scope="module")
def skus() -> dict[str, list[dict[str, Any]]]:
    """SKUs of all regions."""
    return google.skus_of(GOOGLE)


def test_machines_put_together_from_skus_equal_the_packaged_prices(
    tmp_path: Path, skus: dict[str, list[dict[str, Any]]]
) -> None:
    """All types in all regions, on demand and spot: bundles, add-on GPUs with hosts, TPU slices."""
    store = PriceStore(tmp_path)

    with vendor(lambda asked: google.page_of(skus, asked)) as server:
        outcome = run(store, server.url)

    found = {offer.key: offer for offer in store.offers("gcp")}
    wrong = []
    for offer in GOOGLE:
        same = found.get((offer.instance_type, offer.region, offer.purchase))
        if same is None or abs((same.usd_per_hour or 0) - (offer.usd_per_hour or 0)) > TOLERANCE_USD:
            wrong.append((offer, same))
    assert wrong[:3] == []
    assert len({offer.instance_type for offer in GOOGLE}) >= 50
    assert outcome.anomalies == []
    a2 = found["a2-highgpu-1g", "us-central1", "on_demand"]
    assert a2.sku.startswith("12 x ")
    assert a2.sku.count(" + ") == 2
    assert "secret-key" not in store.path("prices", "gcp").read_text()
    assert all(asked.headers["x-goog-api-key"] == "secret-key" for asked in server.asked)
    assert all("secret-key" not in str(asked.query) for asked in server.asked)
    assert len(server.asked) > 4


def test_parts_of_which_skus_disagree_make_no_price(
    tmp_path: Path, skus: dict[str, list[dict[str, Any]]]
) -> None:
    """Two prices of an A2 core in Iowa: no A2 machine there is priced; all others are."""
    double = google.sku("A2 Instance Core running in Iowa", ["us-central1"], 0.5)
    both = {**skus, google.COMPUTE_SERVICE: [*skus[google.COMPUTE_SERVICE], double]}
    store = PriceStore(tmp_path)

    with vendor(lambda asked: google.page_of(both, asked)) as server:
        outcome = run(store, server.url)

    doubted = {s.what for s in outcome.anomalies}
    assert {s.code for s in outcome.anomalies} == {"two prices"}
    assert all(name.startswith("a2-") and "us-central1 on demand" in name for name in doubted)
    assert len(doubted) == 9
    assert ("g2-standard-4", "us-central1", "on_demand") in {o.key for o in store.offers("gcp")}


@pytest.mark.parametrize("fault", ["503", "429", "reset", "half", "not json", "stall"])
def test_what_passes_is_waited_for_and_what_does_not_changes_nothing(
    tmp_path: Path, skus: dict[str, list[dict[str, Any]]], fault: str
) -> None:
    """Through Google's client as through ours: three faults are overcome, four are one refusal."""
    few = {service: list(found[:100]) for service, found in skus.items()}
    read_s = 0.4 if fault == "stall" else 5.0
    for times, refused in ((3, []), (4, ["gcp us-central1"])):
        store = PriceStore(tmp_path / str(times))
        with vendor(lambda asked: google.page_of(few, asked), faults=[fault] * times) as server:
            outcome = run(store, server.url, regions=("us-central1",), read_s=read_s)

        failed = [s.what for s in outcome.anomalies if s.code == "failed" and "gcp us-central1" in s.what]
        assert failed == refused


@pytest.mark.parametrize("fault", ["401", "403", "400"])
def test_an_expired_key_is_told_and_not_tried_again(tmp_path: Path, fault: str) -> None:
    """One question, one line with the way out, and no key in it."""
    with vendor(lambda asked: {"skus": []} if "/v1/" in asked.path else None, faults=[fault] * 3) as server:
        outcome = run(PriceStore(tmp_path), server.url)

    asked = [asked for asked in server.asked if "/v1/" in asked.path]
    assert len(asked) <= (3 if fault == "401" else 1)  # Google's client itself asks again after a 401
    (why,) = [s for s in outcome.anomalies if "Google" in s.message]
    assert "is the key valid" in why.message
    assert "secret-key" not in why.message


def test_pages_that_go_in_circles_are_refused(tmp_path: Path, skus: dict[str, list[dict[str, Any]]]) -> None:
    """The second page points back to itself."""

    def circular(asked: Asked) -> Any:
        page = google.page_of(skus, asked)
        return page and {**page, "nextPageToken": "300"}

    with vendor(circular) as server:
        outcome = run(PriceStore(tmp_path), server.url)

    assert any("returned more than" in s.message for s in outcome.anomalies)
