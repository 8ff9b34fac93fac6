"""What vendors do wrong: throttling, half answers, wrong JSON, resets, stalls, wrong pages, a wrong clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from gpuplan.offers.refresh.errors import FetchError
from gpuplan.offers.refresh.http import HttpClient, RetryPolicy
from gpuplan.offers.refresh.jobs import build_jobs
from gpuplan.offers.refresh.run import refresh_provider
from gpuplan.offers.refreshed_prices import PriceStore
from offers.refresh.test_aws_and_azure import CATALOG, run
from vendors import aws, azure
from vendors.server import PASSING, Asked, http_date, impatient, vendor

READ_S = {"stall": 0.3}  # how long bytes are waited for, where waiting is the point


def amazon(asked: Asked) -> bytes | None:
    """Answer with the offer file; the feed of spot prices is not there."""
    return aws.OFFER_FILE.read_bytes() if asked.path.endswith("/us-east-1/index.csv") else None


@pytest.mark.parametrize("fault", PASSING)
def test_what_passes_is_waited_for(tmp_path: Path, fault: str) -> None:
    """Three times in a row on one page: the fourth attempt gets it, and nothing is missing."""
    store = PriceStore(tmp_path)

    with vendor(azure.answer, faults=[fault] * 3) as server:
        outcome = run(store, server.url, "azure", regions=("eastus",), read_s=READ_S.get(fault, 5.0))
        assert not server.faults
        assert len({(asked.path, str(asked.query)) for asked in server.asked[:4]}) == 1

    assert outcome.refused == []
    assert {(o.instance_type, o.purchase) for o in store.offers("azure")} == {
        (size, purchase)
        for size, prices in azure.LISTED_USD.items()
        for purchase, usd in zip(("on_demand", "spot"), prices, strict=True)
        if usd
    }


@pytest.mark.parametrize("fault", ["503", "half", "stall", "not json", "reset"])
def test_what_does_not_pass_leaves_the_old_prices(tmp_path: Path, fault: str) -> None:
    """Page three fails for good: the region is refused as a whole, one line says why, and the file is the
    same.
    """
    store = PriceStore(tmp_path)
    with vendor(azure.answer) as server:
        run(store, server.url, "azure", regions=("eastus",))
    before = store.path("prices", "azure").read_bytes()

    faults = ["none", "none", *[fault] * 4]
    with vendor(azure.answer, faults=faults) as server:
        outcome = run(store, server.url, "azure", regions=("eastus",), read_s=READ_S.get(fault, 5.0))

    assert outcome.refused == ["azure eastus"]
    (why,) = outcome.anomalies
    assert why.code == "failed"
    assert "127.0.0.1" in why.message
    assert "\n" not in str(why)
    assert store.path("prices", "azure").read_bytes() == before


@pytest.mark.parametrize("fault", ["half", "reset", "stall", "empty"])
def test_a_large_file_that_breaks_off_is_read_again(tmp_path: Path, fault: str) -> None:
    """Half an offer file is never a price list."""
    store = PriceStore(tmp_path)

    with vendor(amazon, faults=[fault]) as server:
        outcome = run(store, server.url, "aws", regions=("us-east-1",), read_s=READ_S.get(fault, 5.0))

    assert outcome.accepted == ["aws us-east-1 on demand"]
    assert {o.instance_type for o in store.offers("aws")} == set(aws.LISTED_USD)


def test_a_file_cut_at_a_line_without_a_length_is_refused(tmp_path: Path) -> None:
    """No header gives its length: the last line is incomplete."""
    whole = aws.OFFER_FILE.read_bytes()

    with vendor(lambda asked: whole[:-40] if "offers" in asked.path else None) as server:
        outcome = run(PriceStore(tmp_path), server.url, "aws", regions=("us-east-1",))

    assert "is incomplete" in outcome.anomalies[0].message or "cells" in outcome.anomalies[0].message


def disordered(page: dict[str, Any], asked: Asked, how: str) -> dict[str, Any]:
    """Return a page of Azure's as a confused server would send it."""
    second = asked.query.get("$skip") == "20"
    if how == "skips a page" and page["NextPageLink"]:
        page["NextPageLink"] = page["NextPageLink"].replace("$skip=40", "$skip=60")
    elif how == "goes back" and second:
        page["NextPageLink"] = page["NextPageLink"].replace("$skip=40", "$skip=0")
    elif how == "another region" and second:
        page["Items"][0] = {**page["Items"][0], "armRegionName": "westus"}
    elif how == "an item lost" and second:
        page["Items"] = page["Items"][:-1]
    elif how == "no items" and second:
        del page["Items"]
    elif how == "no price" and second:
        page["Items"] = [{**item, "retailPrice": None} for item in page["Items"]]
    elif how == "no date" and second:
        page["Items"] = [{**item, "effectiveStartDate": "soon"} for item in page["Items"]]
    return page


@pytest.mark.parametrize(
    "how", ["skips a page", "goes back", "another region", "an item lost", "no items", "no price", "no date"]
)
def test_pages_that_do_not_follow_one_another_are_refused(tmp_path: Path, how: str) -> None:
    """Truncated, reordered or doubled pages: nothing of the region is taken."""
    store = PriceStore(tmp_path)

    def answer(asked: Asked) -> dict[str, Any] | None:
        page = azure.answer(asked)
        return None if page is None else disordered(page, asked, how)

    with vendor(answer) as server:
        outcome = run(store, server.url, "azure", regions=("eastus",))

    assert outcome.refused == ["azure eastus"]
    assert store.offers("azure") == ()


def test_a_clock_that_is_off_is_told_and_the_vendor_s_date_is_used(tmp_path: Path) -> None:
    """Three days: the prices are dated by the vendor's clock."""
    store = PriceStore(tmp_path)
    theirs = datetime.now(UTC) + timedelta(days=3)

    with vendor(azure.answer) as server:
        server.date = http_date(theirs)
        outcome = run(store, server.url, "azure", regions=("eastus",))

    assert [str(s) for s in outcome.anomalies if s.code == "clock"] == [
        "the clock of this machine: is -72.0 h off the provider's; the provider's date is used"
    ]
    assert {offer.price_as_of for offer in store.offers("azure")} == {theirs.date().isoformat()}


def test_what_a_vendor_asks_to_wait_is_waited_and_no_more_than_a_minute() -> None:
    """Retry-After of a second is obeyed; of an hour is not waited for; otherwise the pauses grow."""
    pauses: list[float] = []
    http = HttpClient(RetryPolicy(attempts=4), sleep=pauses.append)
    with vendor(lambda _: {}, faults=["429", "500", "500"]) as server:
        http.json(server.url)

    assert pauses[0] == 1.0
    assert 0.5 <= pauses[1] <= 2.5
    assert pauses[2] > 1.0
    with vendor(lambda _: {}, faults=["429"]) as server, pytest.raises(FetchError, match="answered 429") as caught:
        HttpClient(RetryPolicy(longest_wait_s=0.5), sleep=pauses.append).json(server.url)
    assert caught.value.retry_after_s == 1.0
    assert len(pauses) == 3


def test_a_drip_that_never_ends_is_left() -> None:
    """Every byte is in time, the answer is not."""
    http = impatient(answer_s=-1.0, attempts=1)

    with vendor(lambda _: {"some": "answer"}) as server, pytest.raises(FetchError, match="too slowly"):
        http.json(server.url)


def test_an_unreachable_vendor_is_one_line_with_a_way_out(tmp_path: Path) -> None:
    """No server listens: two attempts, said in a line, for all fifty regions together; not five for each."""
    with vendor(lambda _: {}) as server:
        gone = server.url
    said: list[str] = []
    pauses: list[float] = []
    (job,) = build_jobs(CATALOG, providers=("azure",), environ={}, endpoints={"azure-retail": gone})

    outcome = refresh_provider(
        job, store=PriceStore(tmp_path), http=HttpClient(sleep=pauses.append, say=said.append)
    )

    (failed,) = outcome.anomalies
    assert "cannot be reached" in failed.message
    assert "HTTPS_PROXY" in failed.message
    assert len(said) == len(pauses) == 1
    assert "cannot be reached" in said[0]
    assert "trying again in" in said[0]
    assert sum(pauses) < 2
    assert len(outcome.refused) == len({o.region for o in CATALOG.offers if o.provider == "azure"})
