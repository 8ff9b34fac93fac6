"""Contract: what becomes of AWS's prices after they are read: checks, machines that are gone, regions, memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.refresh.aws_sdk import parse_products
from gpuplan.offers.refresh.run import RefreshOutcome, build_jobs
from gpuplan.offers.refresh.source import InstanceSpec, LeftOut, build_instance_specs, parse_family
from gpuplan.offers.refreshed_prices import PriceStore, merge_refreshed
from gpuplan.offers.rows import Offer
from vendors import aws, aws_sdk
from vendors.aws_sdk import KEYS
from vendors.server import Asked, impatient, refresh_provider, vendor

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


pytestmark = pytest.mark.usefixtures("aws_keys")


def run(
    store: PriceStore,
    url: str,
    provider: str,
    *,
    regions: Sequence[str],
    accept_moves: bool = False,
    answer_s: float = 20.0,
    known: Sequence[Offer] = (),
) -> RefreshOutcome:
    """Return the result of a refresh of some regions with all sources at one address, of AWS with credentials.

    Args:
        store, url, provider, regions, accept_moves, answer_s: As the refresh has them.
        known: Packaged prices; none by default, as a document lists a part of the machines.
    """
    (job,) = build_jobs(
        CATALOG,
        providers=(provider,),
        environ=KEYS,
        endpoints=dict.fromkeys(("aws-query", "aws-spot-history", "azure-retail"), url),
        accept_moves=accept_moves,
        verify=provider == "aws",
    )
    request = replace(job.request, regions=tuple(regions))
    http = impatient(answer_s=answer_s)
    return refresh_provider(replace(job, packaged=known, request=request), store=store, http=http)


LISTED = [aws.plain_line(name) for name in aws.LISTED_USD]  # on demand in us-east-1


def amazon(lines: Sequence[dict[str, str]]) -> Callable[[Asked], Any]:
    """Return Amazon's replies: price lists of these lines, and no spot prices."""
    return lambda asked: aws_sdk.answer(asked, lines=lines) if "x-amz-target" in asked.headers else None


refresh_aws = partial(run, provider="aws", regions=("us-east-1",))


def test_a_new_size_of_a_known_family_is_taken_and_an_unknown_accelerator_is_not(tmp_path: Path) -> None:
    """The accelerator of a new g6e size is the family's; `p9` is told and left out."""
    sizes = {"Instance Type": "g6e.64xlarge", "GPU": "16", "vCPU": "256", "PricePerUnit": "60.5", "SKU": "ONE"}
    new = aws.plain_line("g6e.48xlarge", **sizes)
    another = {"Instance Type": "p9.48xlarge", "PricePerUnit": "99.0", "SKU": "TWO"}
    unknown = aws.plain_line("g6e.48xlarge", **another)
    store = PriceStore(tmp_path)

    with vendor(amazon([*LISTED, new, unknown])) as server:
        outcome = refresh_aws(store, server.url)

    found = {offer.instance_type: offer for offer in store.offers("aws")}
    assert (found["g6e.64xlarge"].accelerator, found["g6e.64xlarge"].devices) == ("L40S", 16)
    assert "p9.48xlarge" not in found
    assert outcome.names_left_out["unknown machine"] == ["p9.48xlarge"]


def test_a_new_size_of_a_family_of_shares_is_not_taken_for_whole_gpus() -> None:
    """A price list counts a share of a GPU as one: g6f.large has an eighth of an L4, g6f.4xlarge a half.

    https://docs.aws.amazon.com/sdk-for-python/v4/reference/clients/ec2/structures/GpuDeviceInfo: `count` beside
    `gpu_partition_size`.
    """
    whole = next(offer for offer in CATALOG.offers if offer.instance_type == "g6.xlarge")
    share = replace(whole, instance_type="g6f.large", devices=0.125)
    line = aws.plain_line("g6.xlarge", **{"Instance Type": "g6f.4xlarge", "PricePerUnit": "0.9662000000"})
    (text,) = aws_sdk.price_lists([line], {})
    (listed,) = parse_products(text, "https://pricing.example")
    assert listed.devices == 1

    for sizes in ([whole, share], [whole]):
        specs = build_instance_specs("aws", sizes, CATALOG.names)
        assert specs.find_instance_spec(listed) == LeftOut(reason="unknown machine", name="g6f.4xlarge")
        whole_gpu = specs.find_instance_spec(replace(listed, instance_type="g6.2xlarge"))
        assert whole_gpu == InstanceSpec("L4", 1, listed.vcpus, listed.memory_gib, status="active", complete=True)


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
    others = [line for line in LISTED if line["Instance Type"] != "g4dn.xlarge"]
    store = PriceStore(tmp_path)
    with vendor(amazon(LISTED)) as server:
        refresh_aws(store, server.url)

    with vendor(amazon([*others, aws.plain_line("g4dn.xlarge", **change)])) as server:
        outcome = refresh_aws(store, server.url)
        kept = {offer.instance_type: offer for offer in store.offers("aws")}["g4dn.xlarge"]
        looked_at = refresh_aws(store, server.url, accept_moves=True)

    doubted = [s for s in outcome.anomalies if s.what.startswith("g4dn.xlarge")]
    assert [s.code for s in doubted] == [code]
    assert doubted[0].sku
    assert kept.usd_per_hour == Decimal("0.526")
    assert kept.note == "", "it is still listed: only its price is not believed"
    assert outcome.same == len(others)
    assert looked_at.changed == (1 if code == "moved" else 0)


def test_an_answer_that_is_wrong_as_a_whole_is_refused(tmp_path: Path) -> None:
    """Far fewer rows; all prices times ten; another currency: all old prices stay, byte for byte."""
    store = PriceStore(tmp_path)
    with vendor(amazon(LISTED)) as server:
        refresh_aws(store, server.url)
    before = store.path("prices", "aws").read_bytes()
    tenfold = [{**line, "PricePerUnit": f"{float(line['PricePerUnit']) * 10:.10f}"} for line in LISTED]

    for lines, code in (
        (LISTED[: len(LISTED) // 2], "far fewer rows"),
        (tenfold, "most prices moved"),
        ([{**line, "Currency": "CNY"} for line in LISTED], "currency"),
    ):
        with vendor(amazon(lines)) as server:
            outcome = refresh_aws(store, server.url)

        assert code in [s.code for s in outcome.anomalies if s.refuses]
        assert store.path("prices", "aws").read_bytes() == before


def known_listed() -> list[Offer]:
    """Return the packaged prices of the machines that the document lists."""
    known = packaged("aws", region="us-east-1", purchase="on_demand")
    return [offer for offer in known if offer.instance_type in aws.LISTED_USD]


def test_a_machine_that_is_no_longer_listed_is_gone_packaged_rows_included(tmp_path: Path) -> None:
    """It leaves the store and the catalog with the accepted answer, and comes back when it is listed again."""
    known = known_listed()
    name = LISTED[0]["Instance Type"]
    store = PriceStore(tmp_path)
    for lines in (LISTED, LISTED[1:], LISTED):
        with vendor(amazon(lines)) as server:
            outcome = refresh_aws(store, server.url, known=known)
        offered = {o.instance_type for o in merge_refreshed(known, store)}
        is_listed = lines is LISTED
        assert (name in {o.instance_type for o in store.offers("aws") if o.purchase == "on_demand"}) == is_listed
        assert (name in offered) == is_listed
        assert ((name, "us-east-1", "on_demand") in store.gone("aws")) != is_listed
        assert outcome.gone == (not is_listed)


def test_a_refused_answer_takes_nothing_away(tmp_path: Path) -> None:
    """Half of the rows are missing: the part is refused, and nothing is gone."""
    store = PriceStore(tmp_path)
    with vendor(amazon(LISTED[: len(LISTED) // 2])) as server:
        outcome = refresh_aws(store, server.url, known=known_listed())

    assert "aws us-east-1 on demand" in outcome.refused
    assert not [key for key in store.gone("aws") if key[2] == "on_demand"]


def test_a_newer_packaged_price_outlives_an_older_answer(tmp_path: Path) -> None:
    """A new version of gpuplan lists the machine again, at a later day than the refresh that missed it."""
    (missed,) = [offer for offer in known_listed() if offer.instance_type == LISTED[0]["Instance Type"]]
    store = PriceStore(tmp_path)
    with vendor(amazon(LISTED[1:])) as server:
        refresh_aws(store, server.url, known=known_listed())

    assert missed not in merge_refreshed([missed], store)
    later = replace(missed, price_as_of="2099-01-01")
    assert later in merge_refreshed([later], store)


def test_regions_are_parts_of_their_own_in_order(tmp_path: Path) -> None:
    """Whichever is there first; what the list of one region has is not looked for in another's."""
    regions = ("eu-west-1", "us-east-1")
    lines = [{**line, "Region Code": region} for region in regions for line in LISTED[:1]]

    with vendor(amazon(lines)) as server:
        outcome = run(PriceStore(tmp_path), server.url, "aws", regions=regions)

    assert [label for label in outcome.accepted if "on demand" in label] == [
        f"aws {region} on demand" for region in regions
    ]


@pytest.mark.parametrize(
    ("name", "family"),
    [("g6e.xlarge", "g6e"), ("g6e.", ""), ("g6e", ""), ("1x RTX 4090 v1.0", ""), ("Standard_NC6s_v3", "")],
)
def test_the_family_is_what_stands_before_the_point_of_a_type_of_aws(name: str, family: str) -> None:
    """Without a size it is none, and names with blanks are other providers'."""
    assert parse_family(name) == family
