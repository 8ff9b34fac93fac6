"""Contract: Google's own client against a server that speaks its format, held against the discovery document."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.refresh.instance_types import InstanceSpec
from gpuplan.offers.refresh.jobs import build_jobs
from gpuplan.offers.refresh.run import RefreshOutcome, refresh_provider
from gpuplan.offers.refresh.sources.gcp_prices import (
    GoogleSku,
    assemble_machines,
    compute_part_prices,
    parse_part,
)
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
    if offer.provider == "gcp"
    and offer.usd_per_hour
    and not offer.note.startswith("sum of parts")
    and "@" not in offer.instance_type
]
# Descriptions of Google's own, as code that reads its catalog quotes them (SpareCores/sc-crawler, `_gcp.py` and
# its tests; https://cloud.google.com/skus/sku-groups/g4-on-demand-vms), and the part of a machine of each.
DESCRIPTIONS = {
    "H200 141GB GPU running in Netherlands": "gpu H200",
    "H200 141GB GPU attached to Spot Preemptible VMs running in Netherlands": "gpu H200",
    "Nvidia H100 80GB GPU running in Americas": "gpu H100-SXM",
    "Nvidia H100 80GB Mega GPU attached to Spot Preemptible VMs running in Tokyo": "gpu H100-SXM mega",
    "Nvidia H100 80GB Plus GPU running in Americas": "gpu H100-SXM mega",
    "RTX 6000 96GB running in Iowa": "gpu RTXPRO6000",
    "RTX 6000 96GB attached to Spot Preemptible VMs running in Belgium": "gpu RTXPRO6000",
    "1/8 vGPU no lssd running in Iowa": "slice 1/8 RTXPRO6000",
    "1/8 vGPU no lssd attached to DWS Defined Duration VMs running in Iowa": None,
    "A4 Nvidia B200 (1 gpu slice) running in Americas": "slice B200",
    "Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas": "slice B200",
    "DWS Calendar Mode A4 Nvidia B200 (1 gpu slice) running in Americas": None,
    "Commitment v1: A4 Nvidia B200 (1 gpu slice) in Americas for 1 Year": None,
    "Commitment v1: H200 141GB GPU running in Americas for 3 Years": None,
    "Reserved Nvidia H100 80GB Mega GPU in Americas": None,
    "Nvidia Tesla T4 GPU running in Americas": "gpu T4",
    "Nvidia Tesla T4 GPU attached to Sole Tenancy VMs running in Americas": None,
    "Nvidia Tesla A100 80GB GPU running in Americas": "gpu A100-80GB",
    "Nvidia L4 GPU attached to Spot Preemptible VMs running in Iowa": "gpu L4",
    "Nvidia L4 GPU attached to Spot VMs running in South Carolina": "gpu L4",
    "Nvidia L4 Virtual Workstation GPU running in Netherlands": None,
    "Nvidia L40 GPU running in Netherlands": None,
    "Spot Preemptible A3 Instance Core running in Americas": "a3-high core",
    "Spot G2 Instance Ram running in South Carolina": "g2 ram",
    "A3Plus Instance Core running in Americas": "a3-mega core",
    "G4 Instance Core running in Iowa": "g4 core",
    "TpuV5e running in Americas": "tpu v5e",
    "SSD backed Local Storage": None,
}


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


@pytest.mark.parametrize(("description", "part"), DESCRIPTIONS.items())
def test_google_s_own_descriptions_name_the_part(description: str, part: str | None) -> None:
    """Newer GPUs come without the maker's name, G4 without the word GPU, A4 as a GPU with its machine."""
    assert parse_part(description) == part


def test_machines_cost_what_google_s_own_rates_of_iowa_say() -> None:
    """By hand: 48 x 0.04891 + 180 x 0.00587 + 1.09565; one to four eighths; 8 x 16.11, on spot 8 x 4.9542."""
    rates = {
        "G4 Instance Core running in Iowa": "0.04891",
        "G4 Instance Ram running in Iowa": "0.00587",
        "RTX 6000 96GB running in Iowa": "1.09565",
        "1/8 vGPU no lssd running in Iowa": "0.64688",
        "A4 Nvidia B200 (1 gpu slice) running in Americas": "16.11",
        "Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas": "4.9542",
    }
    parts = compute_part_prices(
        GoogleSku(
            sku_id=text,
            description=text,
            usage_type="OnDemand",
            regions=("us-central1",),
            unit="h",
            usd=Decimal(usd),
            currency="USD",
        )
        for text, usd in rates.items()
    )
    known = {
        one.instance_type: InstanceSpec(one.accelerator, one.devices, one.vcpus, one.memory_gib)
        for one in CATALOG.offers
        if one.provider == "gcp"
    }

    found = {row.key: row.usd_per_hour for row in assemble_machines(known, parts, url="https://example.org")}
    assert {name: float(usd or 0) for (name, _, purchase), usd in found.items() if purchase == "on_demand"} == {
        "g4-standard-6": 0.64688, "g4-standard-12": 1.29376, "g4-standard-24": 2.58752,
        "g4-standard-48": 4.49993, "g4-standard-96": 8.99986, "g4-standard-192": 17.99972,
        "g4-standard-384": 35.99944, "a4-highgpu-8g": 128.88,
    }  # fmt: skip
    assert found["a4-highgpu-8g", "us-central1", "spot"] == Decimal("39.6336")


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
