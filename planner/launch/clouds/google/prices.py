"""Current price of a machine or slice from the Cloud Billing Catalog, read with the launch credentials.

Google prices parts (cores, memory, GPUs, chips); `offers.refresh` computes machines from them. A machine with a
part without exactly one price has no live price.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

from ...core.clock import Clock
from ...core.cloud_adapter import LivePrice
from ...core.request import LaunchCandidate
from ..base import find_exact_price, read_price_list

if TYPE_CHECKING:
    from ....offers.refresh.source import ListedPrice
    from ....offers.refresh.sources.gcp import GcpBilling

__all__ = ["LivePrices"]


class LivePrices:
    """Prices of the billing catalog.

    Args:
        clock: Clock of price readings.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def price(self, candidate: LaunchCandidate) -> LivePrice:
        """Return the price of an offer; raise CloudError when it cannot be computed exactly."""
        rows = self._rows(candidate.region)
        return find_exact_price(candidate, rows, name="the Cloud Billing Catalog", read_at=self._clock.now())

    @cached_property
    def _catalog(self) -> GcpBilling:
        """Price source with the parts of all machines of the packaged catalog."""
        from ....offers.catalog import load_catalog
        from ....offers.refresh.instance_types import build_instance_specs
        from ....offers.refresh.sources.gcp import GcpBilling

        catalog = load_catalog()
        return GcpBilling(build_instance_specs("gcp", catalog.offers, catalog.names))

    def _rows(self, region: str) -> list[ListedPrice]:
        """Return the prices of a region, without the API keys of price refreshes."""
        from ....offers.refresh.source import PricePart, RefreshRequest
        from ....offers.refresh.sources.gcp import KEY_VARIABLES

        part = PricePart(region=region, purchases=("on_demand", "spot"), label=f"gcp {region}")
        environ = {name: text for name, text in os.environ.items() if name not in KEY_VARIABLES}
        return read_price_list(
            lambda http: self._catalog.read(part, RefreshRequest(environ=environ), http),
            name="CloudBillingCatalog",
        )
