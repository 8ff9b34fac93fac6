"""Offers against the account's quotas: families by hand, answers over HTTP, and what is not asked twice."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from factories import make_offer
from gpuplan.offers.refresh import quotas
from gpuplan.offers.refresh.quotas import AccountQuotas, Quota, read_account_quotas
from gpuplan.offers.refresh.source import RefreshRequest
from gpuplan.offers.rows import Offer
from vendors.quotas import ENVIRON, answer
from vendors.server import Asked, vendor


def quota(provider: str, what: str, limit: float, **changes: Any) -> Quota:
    """Return a quota of region `r`."""
    unit = "device" if provider == "gcp" else "vCPU"
    values = {"provider": provider, "region": "r", "what": what, "purchase": "on_demand", "unit": unit}
    return Quota(**{**values, "limit": limit, "used": None, "link": "https://form", **changes})


def machine(provider: str, instance_type: str, accelerator: str = "T4", **changes: Any) -> Offer:
    """Return an offer in region `r`."""
    changes = {"vcpus": 8.0, **changes}
    return make_offer(accelerator, provider=provider, instance_type=instance_type, region="r", **changes)


def state(offer: Offer, *known: Quota) -> str | None:
    """Return the state of an offer under some quotas."""
    read = {(offer.provider, "r"): known} if known else {}
    check = AccountQuotas(quotas=read, problems={}).check(offer)
    return None if check is None else check.state


@pytest.mark.parametrize(
    ("offer", "what", "limit", "expected"),
    [
        (machine("aws", "g4dn.2xlarge"), "G and VT instances", 8.0, "enough"),
        (machine("aws", "g4dn.2xlarge"), "G and VT instances", 4.0, "too_small"),
        (machine("aws", "g4dn.2xlarge"), "P instances", 0.0, "unknown"),
        (machine("aws", "gr6.4xlarge"), "G and VT instances", 0.0, "too_small"),
        (machine("aws", "p5.48xlarge"), "P instances", 0.0, "too_small"),
        (machine("aws", "p5.48xlarge", purchase="spot"), "P instances", 0.0, "unknown"),
        (machine("aws", "g5.xlarge", vcpus=None), "G and VT instances", 4.0, "unknown"),
        (machine("aws", "g5.xlarge", vcpus=None), "G and VT instances", 0.0, "too_small"),
        (machine("gcp", "n1-standard-4"), "NVIDIA_T4_GPUS", 1.0, "enough"),
        (machine("gcp", "n1-standard-4", devices=2.0), "NVIDIA_T4_GPUS", 1.0, "too_small"),
        (machine("gcp", "n1-standard-4", purchase="spot"), "NVIDIA_T4_GPUS", 1.0, "enough"),
        (machine("gcp", "a3-highgpu-8g", "H100-SXM"), "NVIDIA_T4_GPUS", 0.0, "unknown"),
        (machine("azure", "Standard_NC4as_T4_v3"), "Standard NCASv3_T4 Family", 0.0, "too_small"),
        (machine("azure", "Standard_NC24ads_A100_v4"), "Standard NCADSA100v4 Family vCPUs", 8.0, "enough"),
        (machine("azure", "Standard_NC24ads_A100_v4"), "Standard NCASv3_T4 Family", 0.0, "unknown"),
        (machine("lambda", "gpu_1x_t4"), "T4", 0.0, None),
    ],
)
def test_an_offer_meets_the_quota_of_its_family(
    offer: Offer, what: str, limit: float, expected: str | None
) -> None:
    assert state(offer, quota(offer.provider, what, limit)) == expected


def test_what_is_in_use_counts_and_is_said() -> None:
    """By hand: 24 - 20 leaves 4, fewer than 8."""
    full = quota("aws", "G and VT instances", 24.0, used=20.0)
    check = AccountQuotas(quotas={("aws", "r"): [full]}, problems={}).check(machine("aws", "g4dn.2xlarge"))

    assert check is not None
    assert (check.state, check.link) == ("too_small", "https://form")
    assert check.why == (
        "it takes 8 vCPUs, and your quota is 24 vCPUs for G and VT instances (on demand) in aws r, "
        "20 of them in use: https://form"
    )


def test_a_place_that_was_not_read_is_unknown() -> None:
    assert state(machine("aws", "g4dn.2xlarge")) == "unknown"


OFFERS = [
    make_offer("T4", provider="aws", instance_type="g4dn.xlarge", region="us-east-1", vcpus=4.0),
    make_offer("T4", provider="gcp", instance_type="n1-standard-4", region="us-central1", vcpus=4.0),
    make_offer(
        "A100-80GB", provider="azure", instance_type="Standard_NC24ads_A100_v4", region="eastus", vcpus=24.0
    ),
    make_offer("T4", provider="kaggle", instance_type="t4x2", region="any"),
]  # fmt: skip


@pytest.fixture
def clouds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """Address of a server that answers as all three, and the paths that it was asked for."""
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path))
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    asked: list[str] = []

    def noted(one: Asked) -> Any:
        asked.append(one.path)
        return answer(one)

    with vendor(noted) as server:
        yield server.url, asked


def read(url: str, *, answer_s: float = 60.0) -> AccountQuotas:
    """Read the quotas of all offers from a server."""
    endpoints = {f"{name}-quotas": url for name in ("aws", "gcp", "azure")}
    return read_account_quotas(OFFERS, RefreshRequest(environ=ENVIRON, endpoints=endpoints), answer_s=answer_s)


def test_three_clouds_are_asked_at_once_and_remembered(clouds: tuple[str, list[str]]) -> None:
    """By hand: no vCPU for G instances; 3 of 4 T4 are left; 12 of 24 vCPUs are too few for 24."""
    url, asked = clouds
    for _ in range(2):
        found = read(url)
        assert [check and check.state for check in map(found.check, OFFERS)] == [
            "too_small", "enough", "too_small", None,
        ]  # fmt: skip
    assert len(asked) == 5 + 1 + 1


def test_without_credentials_nothing_is_asked_and_the_way_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path))
    found = read_account_quotas(OFFERS[1:3], RefreshRequest(environ={}, endpoints={}))
    checks = [found.check(one) for one in OFFERS[1:3]]

    assert [check and check.state for check in checks] == ["unknown", "unknown"]
    assert "GCP_ACCESS_TOKEN" in str(checks[0])
    assert not list(tmp_path.rglob("*.json"))


def test_a_cloud_that_does_not_answer_in_time_is_unknown(clouds: tuple[str, list[str]]) -> None:
    """The time is bounded, and an estimate goes on."""
    check = read(clouds[0], answer_s=0.0).check(OFFERS[0])

    assert check is not None
    assert check.state == "unknown"


@pytest.fixture
def read_places(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bool]]:
    """Places that are read, each by a thread that is a daemon or not."""
    places: list[tuple[str, str, bool]] = []

    def fake_read(place: tuple[str, str], *_: Any) -> list[Quota]:
        places.append((*place, threading.current_thread().daemon))
        return []

    monkeypatch.setattr(quotas, "_read", fake_read)
    return places


def test_the_eight_cheapest_regions_are_asked_by_threads_that_keep_no_command_from_ending(
    read_places: list[tuple[str, str, bool]],
) -> None:
    """By hand: ten regions at 1 to 10 dollars; r10 has 20 devices for 20 dollars too, and so is as cheap as r1."""
    offers = [
        make_offer("T4", provider="aws", region=f"r{usd}", instance_type="g4dn.xlarge", usd_per_hour=Decimal(usd))
        for usd in range(1, 11)
    ]
    many = replace(offers[-1], devices=20.0, usd_per_hour=Decimal(20))
    unpriced = replace(offers[0], region="r0", usd_per_hour=None)
    for order in ([*offers, many], [many, *offers]):
        read_places.clear()
        read_account_quotas([*order, unpriced], RefreshRequest(environ={}, endpoints={}))
        assert sorted(read_places) == sorted(("aws", f"r{number}", True) for number in (1, 2, 3, 4, 5, 6, 7, 10))


@pytest.mark.parametrize(("age_s", "asked_again"), [(590.0, False), (610.0, True), (-60.0, True)])
def test_quotas_are_remembered_for_ten_minutes(
    clouds: tuple[str, list[str]], tmp_path: Path, age_s: float, asked_again: bool
) -> None:
    """A file from the future is of another clock."""
    url, asked = clouds
    only_google = read_account_quotas(OFFERS[1:2], RefreshRequest(environ=ENVIRON, endpoints={"gcp-quotas": url}))
    (kept,) = (path for path in tmp_path.rglob("*.json") if path.is_file())
    os.utime(kept, (time.time() - age_s,) * 2)

    assert (
        read_account_quotas(OFFERS[1:2], RefreshRequest(environ=ENVIRON, endpoints={"gcp-quotas": url}))
        == only_google
    )
    assert len(asked) == 1 + asked_again


def test_no_question_takes_longer_than_the_documented_time() -> None:
    """docs/catalog.md; one attempt to connect and to read, or a slow answer, ends within it."""
    page = Path(__file__).parents[2] / "docs" / "catalog.md"
    (stated,) = re.findall(r"all at once, for at most (\d+) s", page.read_text(encoding="utf-8"))
    policy = quotas._POLICY

    assert float(stated) == quotas.ANSWER_S
    assert policy.answer_s <= quotas.ANSWER_S


@pytest.mark.parametrize(
    ("instance_type", "purchase", "what"),
    [
        *((f"{family}.8xlarge", "spot", "P4, P3 and P2") for family in ("p2", "p3", "p3dn", "p4d", "p4de")),
        ("p3.8xlarge", "on_demand", "P instances"), ("trn1.32xlarge", "on_demand", "Trn instances"),
    ],
)  # fmt: skip
def test_families_of_aws_by_purchase(instance_type: str, purchase: str, what: str) -> None:
    """The spot quota of older P instances is one of their own."""
    families = ("P4, P3 and P2", "P instances", "Trn instances", "G and VT instances")
    found = [
        name for name in families
        if state(machine("aws", instance_type, purchase=purchase), quota("aws", name, 8.0, purchase=purchase))
        == "enough"
    ]  # fmt: skip

    assert found == [what]


def test_the_larger_of_two_quotas_counts() -> None:
    """A spot machine of Google may use both; by hand, 4 - 4 and 2 - 1 leave 1."""
    spot = machine("gcp", "n1-standard-4", purchase="spot")
    both = [
        quota("gcp", "NVIDIA_T4_GPUS", 4.0, used=4.0),
        quota("gcp", "NVIDIA_T4_GPUS", 2.0, used=1.0, purchase="spot"),
    ]

    assert [state(spot, *order) for order in (both, both[::-1], both[:1])] == ["enough", "enough", "too_small"]
