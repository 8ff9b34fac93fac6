"""Contract: RunPod and Vast, from servers on loopback that speak the vendors' own form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.refresh import gpu_clouds as sources
from gpuplan.offers.refresh.run import RefreshOutcome, build_jobs
from gpuplan.offers.refreshed_prices import PriceStore
from vendors import gpu_clouds
from vendors.server import Asked, impatient, refresh_provider, vendor

CATALOG = load_catalog()
SOURCES = {"runpod": "runpod-api", "vast": "vast-api"}


def run(store: PriceStore, provider: str, answer: Callable[[Asked], Any]) -> tuple[RefreshOutcome, list[Asked]]:
    """Return how a refresh went, and what was asked."""
    with vendor(answer) as server:
        (job,) = build_jobs(
            CATALOG,
            providers=(provider,),
            environ={"RUNPOD_API_KEY": "not to be sent"},
            endpoints={SOURCES[provider]: server.url},
        )
        # without the packaged rows: whether rows of another day are near is not the question here
        return refresh_provider(replace(job, packaged=()), store=store, http=impatient()), server.asked


def test_runpods_types_in_stock_in_both_tiers(tmp_path: Path) -> None:
    """An H100 in both clouds, an A40 in the secure one only; B200 is out of stock, RTX 2000 Ada in no catalog.

    No key is sent.
    """
    store = PriceStore(tmp_path)

    outcome, asked = run(store, "runpod", gpu_clouds.types_of_gpu)
    assert "authorization" not in asked[0].headers

    found = {(o.instance_type, o.purchase): (o.accelerator, o.usd_per_hour) for o in store.offers("runpod")}
    expected: dict[tuple[str, str], tuple[str, Decimal]] = {}
    for name, _, _, usd, spot, stock, accelerator in gpu_clouds.RUNPOD_TYPES:
        if stock and accelerator:
            tiers = {"community": (usd, spot), "secure": gpu_clouds.RUNPOD_SECURE.get(name, (None, None))}
            for tier, prices in tiers.items():
                for purchase, price in zip(("on_demand", "spot"), prices, strict=True):
                    if price:
                        expected[f"{name} [{tier}]", purchase] = (accelerator, Decimal(str(price)))
    assert found == expected
    assert found["NVIDIA H100 80GB HBM3 [secure]", "on_demand"] == ("H100-SXM", Decimal("3.99"))
    assert found["NVIDIA H100 80GB HBM3 [community]", "spot"] == ("H100-SXM", Decimal("1.75"))
    assert ("NVIDIA A40 [community]", "on_demand") not in found
    assert outcome.anomalies == []
    assert outcome.names_left_out == {
        "not for sale": ["NVIDIA B200"],
        "unknown accelerator": ["NVIDIA RTX 2000 Ada Generation"],
    }


def test_vasts_lowest_and_median_of_each_kind_over_all_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of five, in order of price: all 42 offers are seen once. Three asks a kind: p, 1.1 p and 1.2 p."""
    monkeypatch.setattr(sources, "VAST_PAGE", 5)
    monkeypatch.setattr(sources, "VAST_QUERY", {**sources.VAST_QUERY, "limit": 5})
    store = PriceStore(tmp_path)

    outcome, asked = run(store, "vast", gpu_clouds.search())

    found = {
        o.instance_type: (o.accelerator, o.usd_per_hour) for o in store.offers("vast") if o.purchase == "on_demand"
    }
    assert len(asked) >= 42 / 5
    for part in ('"order": [["dph_total", "asc"]]', '"verified": {"eq": true}', '"rentable": {"eq": true}'):
        assert all(part in one.query["q"] for one in asked)
    assert found == {
        f"{name} [{tier}]": (accelerator, Decimal(str(round(usd * factor, 4))))
        for _, _, _, usd, _, name, accelerator in gpu_clouds.VAST_OFFERS
        for tier, factor in (("lowest", 1.0), ("verified", 1.1))
        if accelerator
    }
    assert outcome.anomalies == []
    assert outcome.names_left_out == {"unknown accelerator": ["RTX 5060"]}


def test_vasts_offers_out_of_order_are_refused(tmp_path: Path) -> None:
    """A sample in no order could miss the cheapest: it is not taken."""
    whole = gpu_clouds.search()

    def answer(asked: Asked) -> Any:
        found = whole(asked)
        return found and {"offers": found["offers"][::-1]}

    outcome, _ = run(PriceStore(tmp_path), "vast", answer)

    assert outcome.accepted == []
    assert "not in order of price" in outcome.anomalies[0].message


@pytest.mark.parametrize(
    ("provider", "reply"), [("runpod", {"errors": []}), ("vast", {"offers": [{}]}), ("vast", [])]
)
def test_another_form_is_refused(tmp_path: Path, provider: str, reply: Any) -> None:
    """JSON, and not theirs: one line, no traceback, nothing written."""
    outcome, _ = run(PriceStore(tmp_path), provider, lambda _: reply)

    assert outcome.accepted == []
    assert "unexpected format" in outcome.anomalies[0].message
