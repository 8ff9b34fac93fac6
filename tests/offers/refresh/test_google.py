"""Contract: Google's own client against a server of its published SKUs, held against the discovery document.

The expected prices are sums of the rates in `vendors/documents`; no row of the catalog is compared.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.cloud.billing_v1 import Sku
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.refresh import gcp as gcp_source
from gpuplan.offers.refresh.gcp import GoogleSku, assemble_machines, compute_part_prices, parse_part
from gpuplan.offers.refresh.run import RefreshOutcome, build_jobs
from gpuplan.offers.refresh.source import InstanceSpec
from gpuplan.offers.refreshed_prices import PriceStore
from vendors import google
from vendors.server import Asked, impatient, refresh_provider, vendor

CATALOG = load_catalog()
# Descriptions of Google's own, as code that reads its catalog quotes them (SpareCores/sc-crawler@55aec325
# `tests/test_gcp.py`; wayneornn/public-pricing@305b3f1a `src/connectors/live/providers/google-tpu.js`;
# https://cloud.google.com/skus/sku-groups/g4-on-demand-vms), and the part of a machine of each.
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
    "TpuV6e attached to Spot Preemptible VMs running in Americas": "tpu v6e",
    "Capacity Optimized TpuV6e running in Americas": None,
    "Reserved TpuV5p in Delhi in Calendar Mode": None,
    "Commitment v1: TpuV5p running in Netherlands for 3 Years": None,
    "TPU7x running in Americas": "tpu v7x",
    "TPU-v2 Accelerator USA": "tpu v2",
    "Tpu-v4 Pod Accelerator USA": "tpu v4 pod",
    "SSD backed Local Storage": "ssd",
    "SSD backed Local Storage in Bangkok": "ssd",
    "SSD backed Local Storage running in Paris": "ssd",
    "SSD backed Local Storage attached to Spot Preemptible VMs": "ssd",
    "SSD backed Local Storage attached to DWS Defined Duration VMs": None,
    "C3 Instance Local SSD attached to Calendar mode reservations running in Iowa": None,
    "VM state: preserved local SSD in Bangkok": None,
}


def run(store: PriceStore, url: str) -> RefreshOutcome:
    """Return the result of a refresh with an API key, without packaged prices: the document has some machines."""
    (job,) = build_jobs(
        CATALOG,
        providers=("gcp",),
        environ={"GCP_API_KEY": "secret-key"},
        endpoints={"gcp-billing": url},
        verify=True,
    )
    return refresh_provider(replace(job, packaged=()), store=store, http=impatient())


@pytest.fixture
def skus() -> dict[str, list[dict[str, Any]]]:
    """The document's SKUs; a test may add to them."""
    return google.read_skus()


T4 = "Nvidia Tesla T4 GPU running in"
SSD_HOUR = Decimal("0.08") / 730  # a GiB of local disk in the oldest regions: 0.08 USD a month
SPOT_SSD_HOUR = Decimal("0.0389") / 730


def sums(*parts: tuple[float, str | Decimal]) -> Decimal:
    """Return a sum of quantity × rate, rounded as prices of machines are."""
    total = sum((Decimal(str(amount)) * Decimal(rate) for amount, rate in parts), Decimal(0))
    return total.quantize(Decimal("0.000001")).normalize()


def expected_in_the_americas() -> dict[tuple[str, str], Decimal]:
    """Return the prices of machines in us-central1, us-east1 and us-west1 alike, by the document's rates."""
    core, ram = "0.031611", "0.004237"
    found = {}
    for n in (1, 2, 4, 8):
        found[f"a2-highgpu-{n}g", "on_demand"] = sums((12 * n, core), (85 * n, ram), (n, "2.933908"))
        found[f"a2-highgpu-{n}g", "spot"] = sums((12 * n, "0.015805"), (85 * n, "0.002118"), (n, "1.7603"))
        ultra = ((12 * n, core), (170 * n, ram), (n, "3.928"), (375 * n, SSD_HOUR))
        found[f"a2-ultragpu-{n}g", "on_demand"] = sums(*ultra)
    found["a2-megagpu-16g", "on_demand"] = sums((96, core), (1360, ram), (16, "2.933908"))
    found["a2-megagpu-16g", "spot"] = sums((96, "0.015805"), (1360, "0.002118"), (16, "1.7603"))
    found["a4-highgpu-8g", "on_demand"] = sums((8, "16.11"))
    found["a4-highgpu-8g", "spot"] = sums((8, "4.9542"))
    spot_core, spot_ram = "0.006655", "0.000892"
    for cores, gib in ((4, 15), (8, 30)):
        found[f"n1-standard-{cores}", "on_demand"] = sums((cores, core), (gib, ram))
        found[f"n1-standard-{cores}", "spot"] = sums((cores, spot_core), (gib, spot_ram))
    for cores, gib, n in ((4, 15, 1), (8, 30, 2), (16, 60, 4)):
        found[f"n1-standard-{cores}+{n}xT4", "on_demand"] = sums((cores, core), (gib, ram), (n, "0.35"))
        found[f"n1-standard-{cores}+{n}xT4", "spot"] = sums((cores, spot_core), (gib, spot_ram), (n, "0.209"))
    for cores, n in ((4, 1), (8, 1), (12, 1), (16, 1), (24, 2), (32, 1), (48, 4), (96, 8)):
        g2 = (cores, "0.024988"), (4 * cores, "0.0029275"), (n, "0.56004")
        found[f"g2-standard-{cores}", "on_demand"] = sums(*g2)
        spot = (cores, "0.009995"), (4 * cores, "0.001171"), (n, "0.2231")
        found[f"g2-standard-{cores}", "spot"] = sums(*spot)
    found["tpu-v7x-8", "on_demand"] = sums((4, "12"))
    found["c4d-standard-8", "on_demand"] = sums((8, "0.0327035"), (32 * 1.073741824, "0.003495578"))
    return found | {("attach:T4", "on_demand"): Decimal("0.35"), ("attach:T4", "spot"): Decimal("0.209")}


def expected() -> dict[tuple[str, str, str], Decimal]:
    """Return the prices of all known machines by the document's rates; quantities as on Google's pages."""
    americas = expected_in_the_americas()
    places = ("us-central1", "us-east1", "us-west1")
    found = {(name, region, how): usd for region in places for (name, how), usd in americas.items()}
    for n in (1, 2, 4, 8):
        h100 = (26 * n, "0.03222"), (234 * n, "0.002817"), (n, "11.06"), (750 * n, SSD_HOUR)
        found[f"a3-highgpu-{n}g", "us-central1", "on_demand"] = sums(*h100)
        spot = (26 * n, "0.0161"), (234 * n, "0.0014"), (n, "6.3"), (750 * n, SPOT_SSD_HOUR)
        found[f"a3-highgpu-{n}g", "us-central1", "spot"] = sums(*spot)
    mega = (208, "0.0312"), (1872, "0.0027"), (8, "9.27246"), (6000, Decimal("0.104") / 730)
    found["a3-megagpu-8g", "asia-northeast1", "spot"] = sums(*mega)
    ultra = (224, "0.033"), (2952, "0.0029"), (8, "10.5"), (12000, Decimal("0.088") / 730)
    found["a3-ultragpu-8g", "europe-west4", "on_demand"] = sums(*ultra)
    for n in (1, 2, 4):
        found[f"g4-standard-{6 * n}", "us-central1", "on_demand"] = sums((n, "0.64688"))
    for n in (1, 2, 4, 8):
        g4 = (48 * n, "0.04891"), (180 * n, "0.00587"), (n, "1.09565")
        found[f"g4-standard-{48 * n}", "us-central1", "on_demand"] = sums(*g4)
    for n in (1, 4, 8, 16, 32, 64):
        for region in ("us-central1", "us-east1"):
            found[f"tpu-v5litepod-{n}", region, "on_demand"] = sums((n, "1.2"))
        found[f"tpu-v5litepod-{n}", "us-central1", "spot"] = sums((n, "0.342218"))
        found[f"tpu-v6e-{n}", "us-south1", "on_demand"] = sums((n, "2.7"))
    for cores in (8, 16, 32):  # half as many chips
        found[f"tpu-v5p-{cores}", "southamerica-east1", "on_demand"] = sums((cores // 2, "6.430995"))
    for cores in (8, 16, 32, 64, 128):
        found[f"tpu-v4-{cores}", "us-central2", "on_demand"] = sums((cores // 8, "12.88"))
    found["tpu-v2-8", "us-central1", "on_demand"] = Decimal("4.5")
    found["tpu-v2-8", "us-central1", "spot"] = Decimal("1.35")
    return found


def test_machines_are_put_together_from_google_s_skus(
    tmp_path: Path, skus: dict[str, list[dict[str, Any]]]
) -> None:
    """Pages of both services, the first one empty: bundles, add-on GPUs, slices, TPUs; and nothing else."""
    store = PriceStore(tmp_path)

    def answer(asked: Asked) -> Any:
        is_first = "/skus" in asked.path and not asked.query.get("pageToken")
        return {"skus": [], "nextPageToken": "0"} if is_first else google.page_of(skus, asked, size=20)

    with vendor(answer) as server:
        outcome = run(store, server.url)

    assert {offer.key: offer.usd_per_hour for offer in store.offers("gcp")} == expected()
    assert outcome.anomalies == []
    assert outcome.names_left_out == {"no accelerator": ["M3 Memory-optimized Instance"]}
    a2 = next(o for o in store.offers("gcp") if o.key == ("a2-highgpu-1g", "us-central1", "on_demand"))
    assert a2.sku.startswith("12 x ")
    assert a2.sku.count(" + ") == 2
    assert "secret-key" not in store.path("prices", "gcp").read_text()
    assert all(asked.headers["x-goog-api-key"] == "secret-key" for asked in server.asked)
    assert all("secret-key" not in str(asked.query) for asked in server.asked)
    assert len(server.asked) == 8, "84 and 4 SKUs in pages of 20, and two empty ones"


@pytest.mark.parametrize(("usd", "kept"), [(["0.30", "0.35"], "0.35"), (["0.35"], "0.35")])
def test_of_a_timeline_of_prices_the_last_one_counts(
    skus: dict[str, list[dict[str, Any]]], usd: list[str], kept: str
) -> None:
    """`pricingInfo` is in order of time."""
    (t4,) = [one for one in skus[google.COMPUTE_SERVICE] if one["description"].startswith(T4)]
    infos = [one for price in usd for one in google.sku(T4, ["us-central1"], float(price))["pricingInfo"]]

    assert read_usd({**t4, "pricingInfo": infos}) == Decimal(kept)


def test_an_amount_that_is_free_is_not_the_price_of_what_follows() -> None:
    """Tiers: nothing up to 100 hours, 0.35 USD after that; a SKU without a price stays without one."""
    free, paid = (google.sku(T4, ["us-central1"], usd)["pricingInfo"][0] for usd in (0.0, 0.35))
    tiers = [one["pricingExpression"]["tieredRates"][0] for one in (free, paid)]
    tiers[1]["startUsageAmount"] = 100.0
    both = {**free, "pricingExpression": {**free["pricingExpression"], "tieredRates": tiers}}
    sku = google.sku(T4, ["us-central1"], 0.0)

    assert read_usd({**sku, "pricingInfo": [both]}) == Decimal("0.35")
    assert read_usd(sku) == 0


def test_the_currency_is_that_of_the_price() -> None:
    """`currencyCode` of the unit price; a SKU without any rate is in USD, as the catalog is."""
    sku = google.sku(T4, ["us-central1"], 0.35)
    (info,) = sku["pricingInfo"]
    (tier,) = info["pricingExpression"]["tieredRates"]
    tier["unitPrice"]["currencyCode"] = "EUR"

    assert read_sku(sku).currency == "EUR"
    assert read_sku({**sku, "pricingInfo": []}).currency == "USD"


def read_usd(sku: dict[str, Any]) -> Decimal:
    """Return the price of a SKU as it is read from Google's client."""
    return read_sku(sku).usd


def read_sku(sku: dict[str, Any]) -> GoogleSku:
    """Return a SKU as it is read from Google's client."""
    return gcp_source._convert_sku(Sku.pb(Sku.from_json(json.dumps(sku))))


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
            resource_group="GPU",
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


def test_parts_of_which_skus_disagree_make_no_price(tmp_path: Path, skus: dict[str, list[dict[str, Any]]]) -> None:
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
    assert ("a2-highgpu-1g", "us-east1", "on_demand") in {o.key for o in store.offers("gcp")}


def test_what_google_prices_and_the_catalog_does_not_have_is_named(
    tmp_path: Path, skus: dict[str, list[dict[str, Any]]]
) -> None:
    """A GPU that is not in the catalog, two of no machine in it, and a series of tomorrow."""
    descriptions = {
        "Nvidia R9000 GPU running in Netherlands": "GPU",
        "Nvidia L40 GPU running in Netherlands": "GPU",
        "Nvidia L40 GPU attached to Spot Preemptible VMs running in Netherlands": "GPU",
        "Nvidia Tesla K80 GPU running in Americas": "GPU",
        "Nvidia L4 Virtual Workstation GPU running in Netherlands": "GPU",
        "A9 Instance Core running in Iowa": "CPU",
        "A9 Instance Ram running in Iowa": "RAM",
    }
    new = [google.sku(words, ["us-central1"], 1.0, group=group) for words, group in descriptions.items()]
    both = {**skus, google.COMPUTE_SERVICE: [*skus[google.COMPUTE_SERVICE], *new]}

    with vendor(lambda asked: google.page_of(both, asked)) as server:
        outcome = run(PriceStore(tmp_path), server.url)

    assert outcome.anomalies == []
    assert outcome.names_left_out == {
        "no accelerator": ["M3 Memory-optimized Instance"],
        "unknown accelerator": ["Nvidia R9000 GPU"],
        "unknown machine": ["A9 Instance", "Nvidia L40 GPU", "Nvidia Tesla K80 GPU"],
    }


@pytest.mark.parametrize("fault", ["503", "429", "reset", "half", "not json"])
def test_what_passes_is_waited_for_and_what_does_not_changes_nothing(
    tmp_path: Path, skus: dict[str, list[dict[str, Any]]], fault: str
) -> None:
    """Through Google's client as through ours: three faults are overcome, four are one refusal."""
    for times, refused in ((3, []), (4, ["gcp"])):
        store = PriceStore(tmp_path / str(times))
        with vendor(lambda asked: google.page_of(skus, asked), faults=[fault] * times) as server:
            outcome = run(store, server.url)

        failed = [s.what for s in outcome.anomalies if s.code == "failed" and s.what == "gcp"]
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
        page = google.page_of(skus, asked, size=20)
        return page and {**page, "nextPageToken": "20"}

    with vendor(circular) as server:
        outcome = run(PriceStore(tmp_path), server.url)

    assert any("returned more than" in s.message for s in outcome.anomalies)
