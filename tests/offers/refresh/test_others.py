"""Contract: Lambda, RunPod, Vast and SkyPilot's catalog, from servers on loopback."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.refresh.jobs import build_jobs
from gpuplan.offers.refresh.run import RefreshOutcome, refresh_provider
from gpuplan.offers.refresh.store import PriceStore
from gpuplan.offers.rows import Offer
from vendors import others
from vendors.server import Asked, impatient, vendor

CATALOG = load_catalog()
KEYS = {"lambda": {"LAMBDA_API_KEY": "key"}, "runpod": {"RUNPOD_API_KEY": "key"}}
SOURCES = {"lambda": "lambda-api", "runpod": "runpod-api", "vast": "vast-api", "gcp": "skypilot-gcp"}


def packaged(provider: str) -> list[Offer]:
    """Return the packaged prices of a provider."""
    return [
        o for o in CATALOG.offers if o.provider == provider and o.usd_per_hour and "@" not in o.instance_type
    ]


def run(
    store: PriceStore, url: str, provider: str, *, environ: Mapping[str, str] | None = None
) -> RefreshOutcome:
    """Return how a refresh went."""
    (job,) = build_jobs(
        CATALOG,
        providers=(provider,),
        environ=KEYS.get(provider, {}) if environ is None else environ,
        endpoints={SOURCES[provider]: url},
    )
    return refresh_provider(job, store=store, http=impatient())


ANSWERS = {"lambda": others.instance_types, "runpod": others.gpu_types, "vast": others.bundles}
PATHS = {"lambda": "/api/v1/instance-types", "runpod": "/graphql", "vast": "/api/v0/bundles/"}


@pytest.mark.parametrize("provider", ["lambda", "runpod", "vast"])
def test_prices_equal_the_packaged_ones(tmp_path: Path, provider: str) -> None:
    """Every packaged type of theirs (15, 13 and 13); the key travels in a header."""
    expected = packaged(provider)
    store = PriceStore(tmp_path)

    with vendor(
        lambda asked: ANSWERS[provider](expected) if asked.path == PATHS[provider] else None
    ) as server:
        outcome = run(store, server.url, provider)

    found = {offer.key: offer for offer in store.offers(provider)}
    assert outcome.refused == []
    assert outcome.same == len(expected)
    for offer in expected:
        same = found[offer.instance_type, offer.region, "on_demand"]
        assert (same.usd_per_hour, same.accelerator, same.devices) == (
            offer.usd_per_hour,
            offer.accelerator,
            offer.devices,
        )
    if provider in KEYS:
        assert server.asked[0].headers["authorization"] == "Bearer key"


def test_a_gpu_that_the_catalog_does_not_know_is_told(tmp_path: Path) -> None:
    """RunPod lists an X9: one finding, no row."""
    with vendor(lambda _: others.gpu_types(packaged("runpod"))) as server:
        outcome = run(PriceStore(tmp_path), server.url, "runpod")

    assert {(s.code, s.what) for s in outcome.anomalies} == {
        ("unknown accelerator", "runpod:1xX9 any on demand"),
        ("unknown accelerator", "runpod:1xX9 any spot"),
    }


@pytest.mark.parametrize("provider", ["lambda", "runpod"])
def test_without_a_key_nothing_is_asked_and_the_way_is_told(tmp_path: Path, provider: str) -> None:
    """No request leaves; the variable is named."""
    with vendor(lambda _: {}) as server:
        outcome = run(PriceStore(tmp_path), server.url, provider, environ={})

    assert server.asked == []
    assert outcome.needs == [f"{SOURCES[provider]}: an API key in {provider.upper()}_API_KEY"]


@pytest.mark.parametrize(
    ("provider", "answer"),
    [("lambda", {"data": [1]}), ("runpod", {"errors": []}), ("vast", {"offers": [{}]}), ("vast", [])],
)
def test_another_form_is_refused(tmp_path: Path, provider: str, answer: Any) -> None:
    """JSON, and not theirs: one line, no traceback, nothing written."""
    with vendor(lambda _: answer) as server:
        outcome = run(PriceStore(tmp_path), server.url, provider)

    assert outcome.accepted == []
    assert "unexpected format" in outcome.anomalies[0].message


@pytest.mark.parametrize("fault", ["401", "403"])
def test_an_expired_key_is_one_question(tmp_path: Path, fault: str) -> None:
    """It is not asked again and again with a key that does not hold."""
    with vendor(lambda _: {}, faults=[fault]) as server:
        outcome = run(PriceStore(tmp_path), server.url, "lambda")

    assert len(server.asked) == 1
    assert f"answered {fault}" in outcome.anomalies[0].message


def test_google_by_way_of_skypilot_equals_the_packaged_prices(tmp_path: Path) -> None:
    """Without a key: add-on GPUs with hosts in Iowa, and TPU slices; the lowest zone; never 700."""
    theirs = [
        offer
        for offer in packaged("gcp")
        if offer.instance_type.startswith(("tpu-", "attach:", "n1-")) and offer.region == "us-central1"
    ]
    text = others.skypilot_catalog(theirs)
    store = PriceStore(tmp_path)

    def answer(asked: Asked) -> bytes | None:
        return text.encode() if asked.path == "/gcp/vms.csv" else None

    with vendor(answer) as server:
        outcome = run(store, server.url, "gcp", environ={})

    assert outcome.refused == ["gcp (SkyPilot)"], "far fewer than were packaged: refused as a whole"
    assert [s.code for s in outcome.anomalies] == ["far fewer rows"]

    with vendor(answer) as server:
        (job,) = build_jobs(
            CATALOG,
            providers=("gcp",),
            regions=("us-central1",),
            environ={},
            endpoints={"skypilot-gcp": server.url},
        )
        slices = [offer for offer in job.packaged if offer in theirs]
        few = type(job)(
            provider="gcp", slots=job.slots, specs=job.specs, packaged=slices, request=job.request
        )
        outcome = refresh_provider(few, store=store, http=impatient())

    found = {offer.key: offer for offer in store.offers("gcp")}
    assert outcome.anomalies == []
    assert len(theirs) >= 50
    for offer in theirs:
        same = found[offer.instance_type, offer.region, offer.purchase]
        assert abs((same.usd_per_hour or 0) - (offer.usd_per_hour or 0)) < Decimal("0.00001"), offer
        assert "SkyPilot" in same.note
