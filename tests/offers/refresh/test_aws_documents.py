"""Contract: the documents that Amazon publishes, from servers on loopback.

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
from gpuplan.offers.refresh.run import RefreshOutcome, build_jobs
from gpuplan.offers.refreshed_prices import PriceStore
from vendors import aws, aws_sdk
from vendors.aws_sdk import KEYS
from vendors.server import Asked, impatient, refresh_provider, vendor

CATALOG = load_catalog()
LISTED = {name: Decimal(usd) for name, usd in aws.LISTED_USD.items()}


pytestmark = pytest.mark.usefixtures("aws_keys")


def run(
    store: PriceStore, answer: Callable[[Asked], Any], *, regions: Sequence[str] = ("us-east-1",)
) -> RefreshOutcome:
    """Return the result of a refresh without packaged prices: the documents list a part of the machines."""
    with vendor(answer) as server:
        endpoints = dict.fromkeys(("aws-query", "aws-spot-history"), server.url)
        (job,) = build_jobs(CATALOG, providers=("aws",), environ=KEYS, endpoints=endpoints, verify=True)
        job = replace(job, packaged=(), request=replace(job.request, regions=tuple(regions)))
        return refresh_provider(job, store=store, http=impatient())


def amazon(asked: Asked) -> Any:
    """Answer with the documents."""
    return aws_sdk.answer(asked, lines=aws.read_offer_lines()) if asked.method == "POST" else None


def prices(store: PriceStore, purchase: str) -> dict[tuple[str, str], Decimal | None]:
    """Return the stored prices of a purchase option by type and region."""
    return {(o.instance_type, o.region): o.usd_per_hour for o in store.offers("aws") if o.purchase == purchase}


def test_the_price_list_gives_the_price_of_the_plain_linux_machine(tmp_path: Path) -> None:
    """Pages of products, the first one empty: neither other tenancies, reservations, systems and terms, nor zones
    outside the region.
    """
    store = PriceStore(tmp_path)

    outcome = run(store, amazon)

    assert prices(store, "on_demand") == {(name, "us-east-1"): usd for name, usd in LISTED.items()}
    assert outcome.anomalies == []
    p4d = next(o for o in store.offers("aws") if o.instance_type == "p4d.24xlarge")
    assert (p4d.accelerator, p4d.devices, p4d.vcpus, p4d.memory_gib) == ("A100-40GB", 8, 96, 1152)
    assert p4d.sku == "H7NGEAC6UEHNTKSJ.JRTCKXETXF.6YS6EN2CT7"


def test_a_list_in_yuan_is_refused(tmp_path: Path) -> None:
    """The lists of the regions in China: the same form, in CNY."""
    lines = [{**line, "Currency": "CNY"} for line in aws.read_offer_lines()]

    outcome = run(PriceStore(tmp_path), lambda asked: aws_sdk.answer(asked, lines=lines))

    assert outcome.anomalies[0].code == "currency"
    assert "prices are in CNY" in outcome.anomalies[0].message
    assert outcome.refused[0] == "aws us-east-1 on demand"


def test_an_unknown_machine_learning_chip_is_told_by_the_query(tmp_path: Path) -> None:
    """Trainium and Inferentia have no attribute `gpu`: the instance family says that there is an accelerator."""
    new = aws.plain_line("trn1.32xlarge", **{"Instance Type": "trn9.48xlarge", "SKU": "NEW"})
    lines = [new, aws.plain_line("g5.xlarge")]

    outcome = run(PriceStore(tmp_path), lambda asked: aws_sdk.answer(asked, lines=lines))

    assert outcome.anomalies == []
    assert outcome.names_left_out == {"unknown machine": ["trn9.48xlarge"]}


def test_the_spot_history_gives_the_newest_price_of_the_regions_own_zones(tmp_path: Path) -> None:
    """Entries in no order of time; Local Zones and Wavelength Zones are cheaper here, and are not the region."""
    store = PriceStore(tmp_path)

    run(store, amazon, regions=("us-west-2",))

    found = {o.instance_type: (o.usd_per_hour, o.note) for o in store.offers("aws") if o.purchase == "spot"}
    assert found == {
        "p3.2xlarge": (Decimal("0.7754"), "zone us-west-2b (others: us-west-2a 0.8103, us-west-2c 0.9012)"),
        "g4dn.xlarge": (Decimal("0.1987"), "zone us-west-2d (others: us-west-2a 0.2114)"),
    }
