"""Contract: the documents that Amazon publishes, read with and without credentials, from servers on loopback.

The expected prices are those of the documents in `vendors/documents`; no row of the catalog is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.refresh.aws_public import parse_offer_file
from gpuplan.offers.refresh.jobs import build_jobs
from gpuplan.offers.refresh.run import RefreshOutcome, refresh_provider
from gpuplan.offers.refreshed_prices import PriceStore
from vendors import aws, aws_sdk
from vendors.server import Asked, impatient, vendor

CATALOG = load_catalog()
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret"}
ENDPOINTS = ("aws-bulk", "aws-spot-feed", "aws-query", "aws-spot-history")
LISTED = {name: Decimal(usd) for name, usd in aws.LISTED_USD.items()}


def run(
    store: PriceStore,
    answer: Callable[[Asked], Any],
    *,
    regions: Sequence[str] = ("us-east-1",),
    environ: dict[str, str] | None = None,
) -> RefreshOutcome:
    """Return the result of a refresh without packaged prices: the documents list a part of the machines."""
    with vendor(answer) as server:
        (job,) = build_jobs(
            CATALOG,
            providers=("aws",),
            regions=regions,
            environ=environ or {},
            endpoints=dict.fromkeys(ENDPOINTS, server.url),
        )
        return refresh_provider(replace(job, packaged=()), store=store, http=impatient())


def amazon(asked: Asked) -> Any:
    """Answer with the documents."""
    if asked.path == "/spot.json":
        return aws.SPOT_FEED
    if asked.path == "/offers/v1.0/aws/AmazonEC2/current/us-east-1/index.csv":
        return aws.OFFER_FILE.read_bytes()
    return aws_sdk.answer(asked, lines=aws.read_offer_lines()) if asked.method == "POST" else None


def prices(store: PriceStore, purchase: str) -> dict[tuple[str, str], Decimal | None]:
    """Return the stored prices of a purchase option by type and region."""
    return {(o.instance_type, o.region): o.usd_per_hour for o in store.offers("aws") if o.purchase == purchase}


def test_the_offer_file_gives_the_price_of_the_plain_linux_machine(tmp_path: Path) -> None:
    """Out of 95 lines: neither other tenancies, reservations, systems and terms, nor zones outside the region."""
    store = PriceStore(tmp_path)

    outcome = run(store, amazon)

    assert prices(store, "on_demand") == {(name, "us-east-1"): usd for name, usd in LISTED.items()}
    assert outcome.anomalies == []
    p4d = next(o for o in store.offers("aws") if o.instance_type == "p4d.24xlarge")
    assert (p4d.accelerator, p4d.devices, p4d.vcpus, p4d.memory_gib) == ("A100-40GB", 8, 96, 1152)
    assert p4d.sku == "H7NGEAC6UEHNTKSJ.JRTCKXETXF.6YS6EN2CT7"


@pytest.mark.parametrize("place", ["AWS Local Zone", "AWS Wavelength Zone", "AWS Outposts"])
def test_a_place_outside_the_region_is_no_price_of_the_region(place: str) -> None:
    """With the region's code, and with a code of its own."""
    own = {"SKU": "OTHER", "RateCode": "OTHER.JRTCKXETXF.6YS6EN2CT7", "PricePerUnit": "0.9000000000"}
    elsewhere = [
        aws.plain_line("g5.xlarge", **{"Location Type": place, "Region Code": code}, **own)
        for code in ("us-east-1", "us-east-1-bos-1")
    ]
    lines = aws.offer_file([*elsewhere, aws.plain_line("g5.xlarge")]).splitlines(keepends=True)

    found = list(parse_offer_file(lines, url="https://pricing.example"))

    assert [(row.region, row.usd_per_hour) for row in found] == [("us-east-1", Decimal("1.006"))]


def test_a_list_in_yuan_is_refused(tmp_path: Path) -> None:
    """The lists of the regions in China: the same form, in CNY."""
    lines = [{**line, "Currency": "CNY"} for line in aws.read_offer_lines()]

    outcome = run(PriceStore(tmp_path), lambda asked: aws.offer_file(lines) if "/offers/" in asked.path else None)

    assert outcome.anomalies[0].code == "currency"
    assert f"{len(LISTED) + 2} prices are in CNY" in outcome.anomalies[0].message
    assert outcome.refused[0] == "aws us-east-1 on demand"


def test_the_feed_gives_the_spot_price_of_each_region(tmp_path: Path) -> None:
    """Old names of regions; a size listed twice; `N/A*`; groups without sizes; `inf1` is told."""
    store = PriceStore(tmp_path)

    outcome = run(store, amazon, regions=())

    assert prices(store, "spot") == {
        ("g4dn.12xlarge", "af-south-1"): Decimal("0.9625"),
        ("g4dn.16xlarge", "af-south-1"): Decimal("1.5179"),
        ("g4dn.2xlarge", "af-south-1"): Decimal("0.2708"),
        ("g4dn.4xlarge", "af-south-1"): Decimal("0.4347"),
        ("g4dn.8xlarge", "af-south-1"): Decimal("0.38"),
        ("g4dn.metal", "af-south-1"): Decimal("10.381"),
        ("g4dn.xlarge", "af-south-1"): Decimal("0.2452"),
        ("m5.xlarge", "af-south-1"): Decimal("0.059"),
        ("p3.2xlarge", "us-east-1"): Decimal("0.5509"),
        ("p3.2xlarge", "us-west-2"): Decimal("0.7754"),
    }
    assert {a.code for a in outcome.anomalies} == {"failed"}
    assert outcome.names_left_out["unknown machine"] == ["inf1.24xlarge"]


@pytest.fixture
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invented keys; no pauses between boto3's own attempts."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)


@pytest.mark.usefixtures("_keys")
def test_the_price_list_query_gives_the_prices_of_the_offer_file(tmp_path: Path) -> None:
    """Pages of products, the first one empty; the same prices and rate codes as without credentials."""
    store, keyless = PriceStore(tmp_path / "query"), PriceStore(tmp_path / "bulk")
    run(keyless, amazon)

    outcome = run(store, amazon, environ=KEYS)

    assert outcome.sources[0] == "aws-query"
    assert outcome.anomalies == []
    assert prices(store, "on_demand") == {(name, "us-east-1"): usd for name, usd in LISTED.items()}
    assert {o.key: o.sku for o in store.offers("aws") if o.purchase == "on_demand"} == {
        o.key: o.sku for o in keyless.offers("aws") if o.purchase == "on_demand"
    }


@pytest.mark.usefixtures("_keys")
def test_an_unknown_machine_learning_chip_is_told_by_the_query(tmp_path: Path) -> None:
    """Trainium and Inferentia have no attribute `gpu`: the instance family says that there is an accelerator."""
    new = aws.plain_line("trn1.32xlarge", **{"Instance Type": "trn9.48xlarge", "SKU": "NEW"})
    lines = [new, aws.plain_line("g5.xlarge")]

    outcome = run(PriceStore(tmp_path), lambda asked: aws_sdk.answer(asked, lines=lines), environ=KEYS)

    assert outcome.anomalies == []
    assert outcome.names_left_out == {"unknown machine": ["trn9.48xlarge"]}


@pytest.mark.usefixtures("_keys")
def test_the_spot_history_gives_the_newest_price_of_the_regions_own_zones(tmp_path: Path) -> None:
    """Entries in no order of time; Local Zones and Wavelength Zones are cheaper here, and are not the region."""
    store = PriceStore(tmp_path)

    run(store, amazon, regions=("us-west-2",), environ=KEYS)

    found = {o.instance_type: (o.usd_per_hour, o.note) for o in store.offers("aws") if o.purchase == "spot"}
    assert found == {
        "p3.2xlarge": (Decimal("0.7754"), "zone us-west-2b (others: us-west-2a 0.8103, us-west-2c 0.9012)"),
        "g4dn.xlarge": (Decimal("0.1987"), "zone us-west-2d (others: us-west-2a 0.2114)"),
    }
