"""Contract: an expired key, and SkyPilot's catalog, from servers on loopback."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

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
