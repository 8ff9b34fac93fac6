"""Offers against the account's quotas: families by hand, answers over HTTP, and what is not asked twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import make_offer
from gpuplan.offers.refresh.quotas import AccountQuotas, Quota, read_account_quotas
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


def state(offer: Offer, *quotas: Quota) -> str | None:
    """Return the state of an offer under some quotas."""
    read = {(offer.provider, "r"): quotas} if quotas else {}
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
    return read_account_quotas(OFFERS, environ=ENVIRON, endpoints=endpoints, answer_s=answer_s)


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
    found = read_account_quotas(OFFERS[1:3], environ={}, endpoints={})
    checks = [found.check(one) for one in OFFERS[1:3]]

    assert [check and check.state for check in checks] == ["unknown", "unknown"]
    assert "GCP_ACCESS_TOKEN" in str(checks[0])
    assert not list(tmp_path.rglob("*.json"))


def test_a_cloud_that_does_not_answer_in_time_is_unknown(clouds: tuple[str, list[str]]) -> None:
    """The time is bounded, and an estimate goes on."""
    check = read(clouds[0], answer_s=0.0).check(OFFERS[0])

    assert check is not None
    assert check.state == "unknown"
