"""Contract: AWS and Azure without credentials, from servers on loopback that speak the vendors' formats."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.refresh.jobs import build_jobs
from gpuplan.offers.refresh.overlay import merge_refreshed
from gpuplan.offers.refresh.run import RefreshOutcome, refresh_provider
from gpuplan.offers.refresh.sources.aws_bulk import parse_offer_file
from gpuplan.offers.refresh.store import PriceStore
from gpuplan.offers.rows import Offer
from vendors import aws
from vendors.server import Asked, impatient, vendor

CATALOG = load_catalog()


def packaged(provider: str, *, region: str, purchase: str) -> list[Offer]:
    """Return the packaged prices that a vendor listed itself."""
    return [
        offer
        for offer in CATALOG.offers
        if (offer.provider, offer.region, offer.purchase) == (provider, region, purchase)
        and offer.usd_per_hour
        and not offer.estimated
        and offer.status != "historical"
    ]


def run(
    store: PriceStore,
    url: str,
    provider: str,
    *,
    regions: Sequence[str] = (),
    accept_moves: bool = False,
    read_s: float = 5.0,
    with_packaged: bool = True,
) -> RefreshOutcome:
    """Return how a refresh went whose sources are all at one address.

    Args:
        store, url, provider, regions, accept_moves, read_s: As the refresh has them.
        with_packaged: Whether packaged prices are known; a document lists a part of the machines.
    """
    names = ("aws-bulk", "aws-spot-feed", "azure-retail")
    (job,) = build_jobs(
        CATALOG,
        providers=(provider,),
        regions=regions,
        environ={},
        endpoints=dict.fromkeys(names, url),
        accept_moves=accept_moves,
    )
    if not with_packaged:
        job = replace(job, packaged=())
    return refresh_provider(job, store=store, http=impatient(read_s=read_s))


def amazon(on_demand: Sequence[Offer], spot: Sequence[Offer], extra: Sequence[dict[str, str]] = ()) -> Any:
    """Return what Amazon answers."""

    def answer(asked: Asked) -> bytes | dict[str, Any] | None:
        if asked.path == "/spot.json":
            return aws.spot_feed(spot)
        region = asked.path.split("/")[-2]
        lines = [aws.offer_line(o) for o in on_demand if o.region == region]
        return aws.offer_file([*lines, *extra]) if lines else None

    return answer


def test_a_new_size_of_a_known_family_is_taken_and_an_unknown_accelerator_is_not(tmp_path: Path) -> None:
    """The accelerator of a new g6e size is the family's; `p9` is told and left out."""
    on_demand = packaged("aws", region="us-east-1", purchase="on_demand")
    g6e = next(offer for offer in on_demand if offer.instance_type.startswith("g6e."))
    new = aws.offer_line(
        g6e, **{"Instance Type": "g6e.64xlarge", "GPU": "16", "vCPU": "256", "PricePerUnit": "60.5"}
    )
    unknown = aws.offer_line(g6e, **{"Instance Type": "p9.48xlarge", "GPU": "8", "PricePerUnit": "99.0"})
    store = PriceStore(tmp_path)

    with vendor(amazon(on_demand, [], [new, unknown])) as server:
        outcome = run(store, server.url, "aws")

    found = {offer.instance_type: offer for offer in store.offers("aws")}
    assert (found["g6e.64xlarge"].accelerator, found["g6e.64xlarge"].devices) == ("L40S", 16)
    assert "p9.48xlarge" not in found
    assert [s.code for s in outcome.anomalies if "p9" in s.what] == ["unknown accelerator"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"PricePerUnit": "0.0000000000"}, "not above 0"),
        ({"PricePerUnit": "1.7000000000"}, "moved"),
        ({"PricePerUnit": "0.1700000000"}, "moved"),
    ],
)
def test_a_price_that_cannot_be_is_left_out_and_the_old_one_stays(
    tmp_path: Path, change: dict[str, str], code: str
) -> None:
    """g4dn.xlarge costs 0.526: not 0, not threefold up or down. The other prices of the answer are taken."""
    on_demand = packaged("aws", region="us-east-1", purchase="on_demand")
    others = [offer for offer in on_demand if offer.instance_type != "g4dn.xlarge"]
    (g4dn,) = [offer for offer in on_demand if offer.instance_type == "g4dn.xlarge"]
    store = PriceStore(tmp_path)
    with vendor(amazon(on_demand, [])) as server:
        run(store, server.url, "aws")

    with vendor(amazon(others, [], [aws.offer_line(g4dn, **change)])) as server:
        outcome = run(store, server.url, "aws")
        kept = {offer.instance_type: offer for offer in store.offers("aws")}["g4dn.xlarge"]
        looked_at = run(store, server.url, "aws", accept_moves=True)

    doubted = [s for s in outcome.anomalies if s.what.startswith("g4dn.xlarge")]
    assert [s.code for s in doubted] == [code]
    assert doubted[0].sku
    assert kept.usd_per_hour == Decimal("0.526")
    assert kept.note == "", "it is still listed: only its price is not believed"
    assert outcome.same == len(others)
    assert looked_at.changed == (1 if code == "moved" else 0)


def test_an_answer_that_is_wrong_as_a_whole_is_refused(tmp_path: Path) -> None:
    """Far fewer rows; all prices times ten; another currency: all old prices stay, byte for byte."""
    on_demand = packaged("aws", region="us-east-1", purchase="on_demand")
    store = PriceStore(tmp_path)
    with vendor(amazon(on_demand, [])) as server:
        run(store, server.url, "aws")
    before = store.path("prices", "aws").read_bytes()
    tenfold = [replace(o, usd_per_hour=(o.usd_per_hour or 0) * 10) for o in on_demand]
    in_yuan = [aws.offer_line(offer, Currency="CNY") for offer in on_demand]

    for answer, code in (
        (amazon(on_demand[: len(on_demand) // 2], []), "far fewer rows"),
        (amazon(tenfold, []), "most prices moved"),
        (lambda asked: aws.offer_file(in_yuan) if "offers" in asked.path else None, "currency"),
    ):
        with vendor(answer) as server:
            outcome = run(store, server.url, "aws")

        assert code in [s.code for s in outcome.anomalies if s.rejects_part]
        assert store.path("prices", "aws").read_bytes() == before


def test_a_machine_that_is_no_longer_listed_is_gone_packaged_rows_included(tmp_path: Path) -> None:
    """It leaves the store and the catalog with the accepted answer, and comes back when it is listed again."""
    on_demand = packaged("aws", region="us-east-1", purchase="on_demand")
    name = on_demand[0].instance_type
    store = PriceStore(tmp_path)
    for listed in (on_demand, on_demand[1:], on_demand):
        with vendor(amazon(listed, [])) as server:
            outcome = run(store, server.url, "aws", regions=("us-east-1",))
        offered = {
            o.instance_type
            for o in merge_refreshed(CATALOG.offers, store)
            if (o.provider, o.region, o.purchase) == ("aws", "us-east-1", "on_demand")
        }
        is_listed = listed is on_demand
        assert (
            name in {o.instance_type for o in store.offers("aws") if o.purchase == "on_demand"}
        ) == is_listed
        assert (name in offered) == is_listed
        assert ((name, "us-east-1", "on_demand") in store.gone("aws")) != is_listed
        assert outcome.gone >= (not is_listed)


def test_a_refused_answer_takes_nothing_away(tmp_path: Path) -> None:
    """Half of the rows are missing: the part is refused, and nothing is gone."""
    on_demand = packaged("aws", region="us-east-1", purchase="on_demand")
    store = PriceStore(tmp_path)
    with vendor(amazon(on_demand[: len(on_demand) // 2], [])) as server:
        run(store, server.url, "aws", regions=("us-east-1",))

    assert not [key for key in store.gone("aws") if key[2] == "on_demand"]


def test_a_newer_packaged_price_outlives_an_older_answer(tmp_path: Path) -> None:
    """A new version of gpuplan lists the machine again, at a later day than the refresh that missed it."""
    on_demand = packaged("aws", region="us-east-1", purchase="on_demand")
    store = PriceStore(tmp_path)
    with vendor(amazon(on_demand[1:], [])) as server:
        run(store, server.url, "aws", regions=("us-east-1",))

    assert on_demand[0] not in merge_refreshed(on_demand, store)
    later = replace(on_demand[0], price_as_of="2099-01-01")
    assert later in merge_refreshed([later], store)


def test_every_region_of_amazon_is_read_without_credentials(tmp_path: Path) -> None:
    """The offer file of each region of the catalog is asked for, and each has its own part."""
    regions = sorted({offer.region for offer in CATALOG.offers if offer.provider == "aws"})
    on_demand = [o for region in regions for o in packaged("aws", region=region, purchase="on_demand")]

    with vendor(amazon(on_demand, [])) as server:
        outcome = run(PriceStore(tmp_path), server.url, "aws")

    assert len(regions) > 20
    assert [label for label in outcome.accepted if "on demand" in label] == [
        f"aws {region} on demand" for region in regions
    ]
    assert sum(asked.path.endswith("/index.csv") for asked in server.asked) == len(regions)


def test_an_offer_file_is_never_held_as_a_whole() -> None:
    """35 MB of other machines go through less than 2 MB of memory: a file of 300 MB takes no more."""
    head, last = (
        aws.offer_file([]),
        aws.offer_file([aws.plain_line("p5.48xlarge")]).splitlines(keepends=True)[-1],
    )
    other = last.replace(b'"Linux"', b'"Windows"')

    def lines() -> Iterator[bytes]:
        yield from head.splitlines(keepends=True)
        yield from (other for _ in range(35_000_000 // len(other)))
        yield last

    tracemalloc.start()
    found = list(parse_offer_file(lines(), url="https://pricing.example"))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [row.instance_type for row in found] == ["p5.48xlarge"]
    assert peak_bytes < 2e6
