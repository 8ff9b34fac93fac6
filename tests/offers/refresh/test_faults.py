"""What vendors do wrong: throttling, half answers, wrong JSON, resets, stalls, wrong pages, a wrong clock."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gpuplan.offers.refresh.http import FetchError, HttpClient, RetryPolicy
from gpuplan.offers.refresh.run import PROVIDERS, build_jobs, refresh_providers
from gpuplan.offers.refreshed_prices import PriceStore
from gpuplan.render.catalog import format_outcome_lines
from offers.refresh.test_aws_and_azure import CATALOG, run
from vendors import azure, gpu_clouds, others
from vendors.server import LASTING, PASSING, Asked, http_date, impatient, refresh_provider, vendor

ANSWER_S = dict.fromkeys(LASTING, 0.4)  # how long an answer is waited for, where waiting is the point


@pytest.mark.parametrize("fault", PASSING)
def test_what_passes_is_waited_for(tmp_path: Path, fault: str) -> None:
    """Three times in a row on one page: the fourth attempt gets it, and nothing is missing."""
    store = PriceStore(tmp_path)

    with vendor(azure.answer, faults=[fault] * 3) as server:
        outcome = run(store, server.url, "azure", regions=("eastus",))
        assert not server.faults
        assert len({(asked.path, str(asked.query)) for asked in server.asked[:4]}) == 1

    assert outcome.refused == []
    assert {(o.instance_type, o.purchase) for o in store.offers("azure")} == {
        (size, purchase)
        for size, prices in azure.LISTED_USD.items()
        for purchase, usd in zip(("on_demand", "spot"), prices, strict=True)
        if usd
    }


@pytest.mark.parametrize("fault", ["503", "half", "not json", "reset", *LASTING])
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
        outcome = run(store, server.url, "azure", regions=("eastus",), answer_s=ANSWER_S.get(fault, 20.0))

    assert outcome.refused == ["azure eastus"]
    (why,) = outcome.anomalies
    assert why.code == "failed"
    assert "127.0.0.1" in why.message
    assert "\n" not in str(why)
    assert store.path("prices", "azure").read_bytes() == before


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


def test_what_a_vendor_asks_to_wait_is_waited_within_the_time_of_an_answer() -> None:
    """Retry-After of a second is obeyed, unless there is less time; otherwise the pauses grow."""
    pauses: list[float] = []
    http = HttpClient(sleep=pauses.append)
    with vendor(lambda _: {}, faults=["429", "500", "500"]) as server:
        http.json(server.url)

    assert pauses[0] == 1.0
    assert 0.5 <= pauses[1] <= 2.5
    assert pauses[2] > 1.0
    with vendor(lambda _: {}, faults=["429"]) as server, pytest.raises(FetchError, match="answered 429") as caught:
        HttpClient(RetryPolicy(answer_s=0.9), sleep=pauses.append).json(server.url)
    assert caught.value.retry_after_s == 1.0
    assert len(pauses) == 3


@pytest.mark.parametrize("fault", LASTING)
def test_an_answer_without_an_end_is_left_when_its_time_is_over(fault: str) -> None:
    """No byte; half of the answer; a byte at a time, each of them in time: the same, and once for each host."""
    http = impatient(answer_s=0.3)
    with vendor(lambda _: {"some": "answer" * 100}, faults=[fault]) as server:
        began_s = time.monotonic()
        for _ in range(2):
            with pytest.raises(FetchError, match=r"in (0.3 s|time)") as caught:
                http.json(server.url)
        took_s = time.monotonic() - began_s
        assert len(server.asked) == 1

    assert caught.value.kind == "slow"
    assert took_s < 1.5


def test_an_unreachable_vendor_is_one_finding_with_a_way_out(tmp_path: Path) -> None:
    """No server listens: one attempt for all fifty regions together."""
    with vendor(lambda _: {}) as server:
        gone = server.url
    (job,) = build_jobs(CATALOG, providers=("azure",), environ={}, endpoints={"azure-retail": gone})

    outcome = refresh_provider(job, store=PriceStore(tmp_path), http=HttpClient())

    (failed,) = outcome.anomalies
    assert (failed.code, failed.what) == ("unreachable", gone.removeprefix("http://"))
    assert "HTTPS_PROXY" in failed.message
    assert len(outcome.refused) == len({o.region for o in CATALOG.offers if o.provider == "azure"})
    assert format_outcome_lines([outcome, outcome]) == [f"unreachable: {failed} (azure, azure)"]


KEYLESS = ("skypilot-aws", "skypilot-gcp", "skypilot-lambda", "skypilot-nebius", "azure-retail", "runpod-api",
           "vast-api")  # fmt: skip


@pytest.mark.parametrize("fault", ["silent", "drip", "half", "503", "not json"])
def test_hosts_that_fail_together_take_no_longer_than_one(tmp_path: Path, fault: str) -> None:
    """Seven providers of two hosts, each of which is given 0.3 s; fifty regions one by one would take 15 s."""
    store = PriceStore(tmp_path)
    with vendor(lambda _: b"x" * 4000) as one, vendor(lambda _: b"x" * 4000) as two:
        for server in (one, two):
            server.faults.extend([fault] * 200)
        endpoints = {name: (one if name.startswith("skypilot") else two).url for name in KEYLESS}
        jobs = build_jobs(CATALOG, environ={}, endpoints=endpoints)
        began_s = time.monotonic()
        outcomes = refresh_providers(jobs, store=store, total_s=2.0, policy=RetryPolicy(answer_s=0.3))
        took_s = time.monotonic() - began_s

    assert [outcome.provider for outcome in outcomes] == list(PROVIDERS)
    assert all(outcome.refused and not outcome.accepted for outcome in outcomes)
    assert not (tmp_path / "prices").exists()
    assert took_s < 6.0
    assert not any(line.startswith("rejected") for line in format_outcome_lines(outcomes))


def test_a_refresh_ends_in_its_time_and_keeps_what_was_read_by_then(tmp_path: Path) -> None:
    """Vast is read at once, the first pages of Azure come too late: its prices stay, and it is said once."""

    def slow(asked: Asked) -> Any:
        time.sleep(0.15)
        return azure.answer(asked)

    with vendor(gpu_clouds.search()) as quick, vendor(slow) as other:
        endpoints = {"vast-api": quick.url, "azure-retail": other.url}
        jobs = build_jobs(CATALOG, providers=("azure", "vast"), environ={}, endpoints=endpoints)
        jobs = [replace(job, packaged=()) for job in jobs]
        outcomes = refresh_providers(jobs, store=PriceStore(tmp_path), total_s=0.5)

    late, read = outcomes
    assert read.accepted == ["vast"]
    assert PriceStore(tmp_path).offers("vast")
    assert late.refused
    assert len(late.anomalies) <= 2


HOSTED = others.SKYPILOT_CATALOG.read_bytes()


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (HOSTED.replace(b"SpotPrice", b"PriceOfSpot", 1), "failed", "has no column `SpotPrice`"),
        (HOSTED[:-20], "failed", "is incomplete"),
        (HOSTED[: len(HOSTED) // 2] + b"\n", "failed", "too few or too many cells"),
        (HOSTED.replace(b",0.19,0.04", b",0.019,0.04"), "moved", "moved from 0.19"),
        (b"404: Not Found", "failed", "not SkyPilot's format"),
        (b"", "failed", "not SkyPilot's format"),
    ],
    ids=["column", "line", "half", "tenth", "page", "empty"],
)
def test_a_hosted_catalog_that_is_wrong_leaves_the_old_prices(
    tmp_path: Path, text: bytes, code: str, said: str
) -> None:
    """A changed column, half a file, a price ten times too low, another document: nothing of it is taken."""
    store, price = PriceStore(tmp_path), ("n1-standard-4", "us-central1", "on_demand")
    outcomes = []
    for body in (HOSTED, text):
        with vendor(lambda _, body=body: body) as server:
            (job,) = build_jobs(CATALOG, providers=("gcp",), environ={}, endpoints={"skypilot-gcp": server.url})
            outcomes.append(refresh_provider(replace(job, packaged=()), store=store, http=impatient()))
        kept = {offer.key: offer.usd_per_hour for offer in store.offers("gcp")}
        assert kept[price] == Decimal("0.19")

    found = [one for one in outcomes[1].anomalies if one.code == code]
    assert found
    assert said in found[0].message
    assert bool(outcomes[1].refused) == (code == "failed")
