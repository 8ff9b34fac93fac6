"""Today's price, put together from the SKUs that Google publishes in the Cloud Billing Catalog; or none."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gpuplan.launch.clouds.google.adapter import GoogleAdapter
from gpuplan.launch.core.api_call import CloudError, ErrorKind
from launch.bench_on_sockets import candidate, without_proxies
from launch.fake_cloud import FakeClock
from vendors import google
from vendors.server import Vendor, vendor


@pytest.fixture
def held() -> dict[str, list[dict[str, Any]]]:
    """SKUs of the server: those that Google published; a test may add others."""
    return google.read_skus()


@pytest.fixture
def billing(
    held: dict[str, list[dict[str, Any]]], key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Vendor]:
    """A server of these SKUs."""
    without_proxies(monkeypatch)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    monkeypatch.setenv("GCP_API_KEY", "of-price-refreshes")
    with vendor(lambda asked: google.page_of(held, asked)) as server:
        monkeypatch.setenv("GPUPLAN_ENDPOINT_GCP_BILLING", server.url)
        yield server


@pytest.fixture
def adapter(tmp_path: Path) -> GoogleAdapter:
    return GoogleAdapter(state_dir=tmp_path, clock=FakeClock())


@pytest.mark.parametrize(
    ("instance_type", "purchase", "usd"),
    [
        ("n1-standard-4+1xT4", "on_demand", "0.539999"),  # 4 x 0.031611 + 15 x 0.004237 + 0.35
        ("n1-standard-4+1xT4", "spot", "0.249"),
        ("a2-highgpu-1g", "on_demand", "3.673385"),
        ("a2-ultragpu-1g", "on_demand", "5.068718"),  # with 375 GiB of disk at 0.08 USD a month
        ("g2-standard-4", "spot", "0.281816"),
        ("tpu-v5litepod-8", "on_demand", "9.6"),
        ("tpu-v5litepod-8", "spot", "2.737744"),
    ],
)
def test_the_price_is_the_sum_of_todays_skus(
    billing: Vendor, adapter: GoogleAdapter, instance_type: str, purchase: str, usd: str
) -> None:
    """Cores, memory, GPUs and local disk, or chips, at the rates of the SKUs."""
    price = adapter.live_price(candidate(instance_type, "us-central1", purchase=purchase), {})
    assert price.usd_per_hour == Decimal(usd)
    assert price.source == f"{billing.url}/v1/services/6F81-5844-456A/skus"
    assert price.read_at == FakeClock().now()


def test_it_is_asked_with_the_credentials_that_launch_and_once(billing: Vendor, adapter: GoogleAdapter) -> None:
    """The bearer of the service account, not the API key of price refreshes; the next candidate asks no more."""
    adapter.live_price(candidate("g2-standard-4", "us-central1"), {})
    asked = list(billing.asked)
    adapter.live_price(candidate("g2-standard-4", "us-east1"), {})
    assert len(billing.asked) == len(asked) > 1
    assert all(one.headers["authorization"].startswith("Bearer ") for one in asked)
    assert all("x-goog-api-key" not in one.headers for one in asked)


def test_a_price_that_cannot_be_put_together_is_none(
    billing: Vendor, held: dict[str, list[dict[str, Any]]], adapter: GoogleAdapter
) -> None:
    """Two prices of a core, a part without one, a machine that is not known: no guess."""
    held[google.COMPUTE_SERVICE].append(google.sku("A2 Instance Core running in Iowa", ["us-central1"], 0.5))
    with pytest.raises(CloudError, match="several prices"):
        adapter.live_price(candidate("a2-highgpu-1g", "us-central1"), {})
    with pytest.raises(CloudError, match="no price"):
        adapter.live_price(candidate("a2-highgpu-1g", "mars-north1"), {})
    with pytest.raises(CloudError, match="no price"):
        adapter.live_price(candidate("n1-standard-8+9xT4", "us-central1"), {})


@pytest.mark.parametrize(("fault", "kind"), [("403", ErrorKind.CREDENTIALS), ("503", ErrorKind.TRANSIENT)])
def test_a_catalog_that_does_not_answer_is_a_fault(
    billing: Vendor, adapter: GoogleAdapter, fault: str, kind: ErrorKind
) -> None:
    billing.faults += [fault] * 9
    with pytest.raises(CloudError) as caught:
        adapter.live_price(candidate("g2-standard-4", "us-central1"), {})
    assert caught.value.kind is kind
