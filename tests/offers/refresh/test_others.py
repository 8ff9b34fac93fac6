"""Contract: an expired key, and SkyPilot's catalog, from servers on loopback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.refresh.jobs import build_jobs
from gpuplan.offers.refresh.run import RefreshOutcome, refresh_provider
from gpuplan.offers.refreshed_prices import PriceStore
from vendors import others
from vendors.server import Asked, impatient, vendor

CATALOG = load_catalog()
KEYS = {"lambda": {"LAMBDA_API_KEY": "key"}, "runpod": {"RUNPOD_API_KEY": "key"}}
SOURCES = {"lambda": "lambda-api", "runpod": "runpod-api", "vast": "vast-api", "gcp": "skypilot-gcp"}


def run(store: PriceStore, url: str, provider: str, *, environ: Mapping[str, str] | None = None) -> RefreshOutcome:
    """Return how a refresh went."""
    (job,) = build_jobs(
        CATALOG,
        providers=(provider,),
        environ=KEYS.get(provider, {}) if environ is None else environ,
        endpoints={SOURCES[provider]: url},
    )
    return refresh_provider(job, store=store, http=impatient())


@pytest.mark.parametrize("fault", ["401", "403"])
def test_an_expired_key_is_one_question(tmp_path: Path, fault: str) -> None:
    """It is not asked again and again with a key that does not hold."""
    with vendor(lambda _: {}, faults=[fault]) as server:
        outcome = run(PriceStore(tmp_path), server.url, "lambda")

    assert len(server.asked) == 1
    assert f"answered {fault}" in outcome.anomalies[0].message


def skypilot(asked: Asked) -> bytes | None:
    """Answer with the catalog of Google Cloud."""
    return others.SKYPILOT_CATALOG.read_bytes() if asked.path == "/gcp/vms.csv" else None


def test_a_catalog_with_far_fewer_machines_is_refused(tmp_path: Path) -> None:
    """The document lists a part of what is packaged."""
    with vendor(skypilot) as server:
        outcome = run(PriceStore(tmp_path), server.url, "gcp", environ={})

    assert outcome.refused == ["gcp (SkyPilot)"]
    assert [s.code for s in outcome.anomalies] == ["far fewer rows"]


def test_skypilot_s_rows_are_put_together(tmp_path: Path) -> None:
    """Without a key: add-on GPUs, with hosts, and TPU slices; never 700, 0 or a rate of the scheduler."""
    store = PriceStore(tmp_path)
    with vendor(skypilot) as server:
        (job,) = build_jobs(CATALOG, providers=("gcp",), environ={}, endpoints={"skypilot-gcp": server.url})
        outcome = refresh_provider(replace(job, packaged=()), store=store, http=impatient())

    assert outcome.anomalies == []
    assert outcome.names_left_out == {
        "no accelerator": ["n1-highmem-8", "n1-standard-16", "n4-highmem-4"],
        "unknown machine": ["a3-edgegpu-8g", "tpu-v5p-6144"],
    }
    assert all("SkyPilot" in offer.note for offer in store.offers("gcp"))
    found: dict[str, dict[tuple[str, str], Decimal | None]] = {"on_demand": {}, "spot": {}}
    for offer in store.offers("gcp"):
        found[offer.purchase][offer.instance_type, offer.region] = offer.usd_per_hour
    assert found["on_demand"] == {
        ("attach:P100", "us-central1"): Decimal("1.46"),
        ("attach:P4", "us-central1"): Decimal("0.6"),
        ("attach:T4", "us-central1"): Decimal("0.35"),
        ("attach:T4", "us-west4"): Decimal("0.37"),
        ("n1-standard-4", "us-central1"): Decimal("0.19"),
        ("n1-standard-8", "us-central1"): Decimal("0.38"),
        ("n1-standard-4+1xP4", "us-central1"): Decimal("0.79"),
        ("n1-standard-8+2xP4", "us-central1"): Decimal("1.58"),
        ("n1-standard-16+4xP4", "us-central1"): Decimal("3.16"),
        ("n1-standard-8+1xP100", "us-central1"): Decimal("1.84"),
        ("n1-standard-4+1xT4", "us-central1"): Decimal("0.54"),
        ("n1-standard-8+2xT4", "us-central1"): Decimal("1.08"),
        ("n1-standard-16+4xT4", "us-central1"): Decimal("2.16"),
        # 8 GPUs at 78.37241 and their host at 9.46006; in Iowa, 33.60609 is not the rate on demand
        ("a3-highgpu-8g", "us-east4"): Decimal("87.83247"),
        ("a3-megagpu-8g", "us-central1"): Decimal("92.21427"),
        ("a3-megagpu-8g", "us-east4"): Decimal("92.2143"),
        ("tpu-v6e-1", "southamerica-west1"): Decimal("2.7"),
        ("tpu-v6e-1", "us-central1"): Decimal("2.7"),
        ("tpu-v6e-1", "us-south1"): Decimal("2.7"),
        ("tpu-v6e-8", "us-central1"): Decimal("21.6"),
        ("tpu-v6e-64", "us-east5"): Decimal("172.8"),
    }
    assert found["spot"] == {
        ("attach:P100", "us-central1"): Decimal("0.7034"),
        ("attach:P4", "us-central1"): Decimal("0.2236"),
        ("attach:T4", "us-central1"): Decimal("0.175"),
        ("attach:T4", "us-west4"): Decimal("0.1258"),
        ("n1-standard-4", "us-central1"): Decimal("0.04"),
        ("n1-standard-8", "us-central1"): Decimal("0.08"),
        ("n1-standard-4+1xP4", "us-central1"): Decimal("0.2636"),
        ("n1-standard-8+2xP4", "us-central1"): Decimal("0.5272"),
        ("n1-standard-16+4xP4", "us-central1"): Decimal("1.0544"),
        ("n1-standard-8+1xP100", "us-central1"): Decimal("0.7834"),
        ("n1-standard-4+1xT4", "us-central1"): Decimal("0.215"),
        ("n1-standard-8+2xT4", "us-central1"): Decimal("0.43"),
        ("n1-standard-16+4xT4", "us-central1"): Decimal("0.86"),
        ("a3-highgpu-8g", "us-central1"): Decimal("26.83013"),
        ("a3-highgpu-8g", "us-east4"): Decimal("20.04446"),
        ("a3-megagpu-8g", "us-central1"): Decimal("28.17013"),
        ("a3-megagpu-8g", "us-east4"): Decimal("17.05486"),
        ("tpu-v6e-1", "us-central1"): Decimal("0.54421"),
        ("tpu-v6e-1", "us-south1"): Decimal("1.35"),
        ("tpu-v6e-8", "us-central1"): Decimal("4.35366"),
        ("tpu-v6e-64", "us-east5"): Decimal("77.76"),
    }
