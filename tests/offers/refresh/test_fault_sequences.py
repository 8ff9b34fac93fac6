"""Laws that hold whatever the vendors do, and whenever the process dies: 200 random sequences of refreshes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from gpuplan.offers.refresh.run import build_jobs
from gpuplan.offers.refreshed_prices import PriceStore
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offers.refresh.test_aws_and_azure import CATALOG, packaged
from vendors import azure
from vendors.server import Asked, Vendor, impatient, refresh_provider, vendor

pytestmark = pytest.mark.slow

REGIONS = {"azure": ("eastus", "westus3")}
USD = {
    "azure": {name: Decimal(usd) for name, (usd, _) in list(azure.LISTED_USD.items())[:9]}
}  # of the vendors' documents; in both regions alike
KNOWN = [
    offer
    for provider, regions in REGIONS.items()
    for region in regions
    for offer in packaged(provider, region=region, purchase="on_demand")
    if offer.instance_type in USD[provider]
]  # what prices are compared with at first
FAULTS = ("none", "503", "429", "reset", "half", "not json", "500", "403", "empty", "404")
LIES = ("honest", "a zero", "tenfold", "half the rows", "euros")
FACTORS = {"honest": "1", "a zero": "1", "tenfold": "10", "half the rows": "1", "euros": "1"}


@dataclass(frozen=True)
class Round:
    """One refresh: which price list is in force, how the vendor lies, what the network does, when we die."""

    step: int
    lie: str
    faults: tuple[str, ...]
    dies_at: int | None


@dataclass
class World:
    """What the vendor says at the moment."""

    provider: str = "azure"
    step: int = 0
    lie: str = "honest"

    def listed(self) -> list[tuple[str, str, Decimal]]:
        """Return types, regions and prices as they are listed: a price list a step, each a cent dearer."""
        found = [
            (name, region, (usd + Decimal(self.step) / 100) * Decimal(FACTORS[self.lie]))
            for region in REGIONS[self.provider]
            for name, usd in USD[self.provider].items()
        ]
        return found[::3] if self.lie == "half the rows" else found

    def answer(self, asked: Asked) -> Any:
        """Answer as the provider of the moment."""
        currency = "EUR" if self.lie == "euros" else "USD"
        listed = [
            (name, region, Decimal(0) if self.lie == "a zero" and number % 9 == 0 else usd)
            for number, (name, region, usd) in enumerate(self.listed())
        ]
        items = [
            azure.plain_item(name, armRegionName=region, retailPrice=float(usd), currencyCode=currency)
            for name, region, usd in listed
        ]
        return azure.answer(asked, items, size=4)


class Died(BaseException):
    """The process is gone."""


@contextmanager
def dying(at: int | None) -> Iterator[None]:
    """Let the process die at the n-th file that is moved into its place."""
    moved = 0
    real = os.replace

    def replace(source: Any, target: Any) -> None:
        nonlocal moved
        if at is not None and moved == at:
            raise Died
        moved += 1
        real(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replace)
        yield


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[World, Vendor]]:
    """One server for all sequences."""
    world = World()
    with vendor(world.answer) as server:
        yield world, server


rounds = st.builds(
    Round,
    step=st.integers(0, 4),
    lie=st.sampled_from(("honest", *LIES)),
    faults=st.lists(st.sampled_from(FAULTS), max_size=8).map(tuple),
    dies_at=st.none() | st.integers(0, 3),
)


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(provider=st.sampled_from(sorted(REGIONS)), sequence=st.lists(rounds, min_size=1, max_size=4))
def test_nothing_is_lost_and_nothing_is_half_written(
    world: tuple[World, Vendor], provider: str, sequence: Sequence[Round]
) -> None:
    """After every refresh, however it went: whole files, true prices, all or nothing by region, no key lost."""
    vendor_world, server = world
    vendor_world.provider = provider
    (job,) = build_jobs(CATALOG, providers=(provider,), environ={}, endpoints={"azure-retail": server.url})
    request = replace(job.request, regions=REGIONS[provider])
    job = replace(job, packaged=[offer for offer in KNOWN if offer.provider == provider], request=request)
    with TemporaryDirectory() as folder:
        store = PriceStore(Path(folder))
        steps: set[int] = set()
        for one in sequence:
            before = {offer.key: offer.usd_per_hour for offer in store.offers(provider)}
            vendor_world.step, vendor_world.lie = one.step, one.lie
            steps.add(one.step)
            server.faults.clear()
            server.faults.extend(one.faults)
            try:
                with dying(one.dies_at):
                    refresh_provider(job, store=store, http=impatient(attempts=2))
            except Died:
                pass
            check(store, provider, before=before, steps=steps, one=one)


def check(store: PriceStore, provider: str, *, before: dict[Any, Any], steps: set[int], one: Round) -> None:
    """Hold the laws against a store."""
    after = {offer.key: offer for offer in store.offers(provider)}  # reads every cell: a damaged file is an error
    true = {
        (name, region): {usd + Decimal(step) / 100 for step in steps}
        for region in REGIONS[provider]
        for name, usd in USD[provider].items()
    }
    assert before.keys() <= after.keys(), "a price was lost"
    for key, offer in after.items():
        assert offer.usd_per_hour in true[key[0], key[1]], "a price that the vendor never listed"
        assert offer.sku
        assert offer.url
    for region in REGIONS[provider]:
        new = {key: offer.usd_per_hour for key, offer in after.items() if key[1] == region}
        old = {key: usd for key, usd in before.items() if key[1] == region}
        now = {(name, region, "on_demand"): usd + Decimal(one.step) / 100 for name, usd in USD[provider].items()}
        zeros = 1 if one.lie == "a zero" else 0
        assert new == old or sum(new.get(key) == usd for key, usd in now.items()) >= len(now) - zeros
    left = [path for path in store.folder.rglob("*.*") if path.name.startswith(".") and path.suffix != ".lock"]
    assert left == [], "a half-written file lies about"
