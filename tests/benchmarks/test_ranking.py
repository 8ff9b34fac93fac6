"""The benchmark of ranking runs on what an estimate asks of a workload."""

from __future__ import annotations

from ranking import build_ranking


def test_every_offer_of_the_catalog_is_priced_and_ranked() -> None:
    offers, rank = build_ranking()
    found = rank()
    assert len(found.offers) == offers > 1000
    assert found.recommendation.cheapest is not None
