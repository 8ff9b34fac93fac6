"""Fees of a provider besides the machine price: minimum charge, disk, egress, discount and tax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from ...frozen import Frozen
from ...units import GB
from ..cost_terms import OWNED, Bounds, CostTerms
from ..execution.workload_sizes import dataset_gb

if TYPE_CHECKING:
    from ...offers.rows import Offer
    from ...settings_entries import Discount
    from ...workload.model import Workload

PERCENT = Decimal(100)


class Fees(Frozen):
    """Fees besides the machine price, each at the low, central and high end of the run's time.

    Args:
        minimum_billed_s: Minimum billed time [s].
        disk_usd_per_hour, egress_usd: Price of the disks, and of the final download; None if unknown.
        discount, tax: Discount on the machine price, and tax on the total, as shares [-].
        reasons: Basis of each fee, by item.
        unknown: Items of unknown price.
    """

    minimum_billed_s: float = 0.0
    disk_usd_per_hour: tuple[float, float, float] | None = None
    egress_usd: tuple[float, float, float] | None = None
    discount: Decimal = Decimal(0)
    tax: Decimal = Decimal(0)
    reasons: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


NO_FEES = Fees()


def disk_gb(workload: Workload, terms: CostTerms) -> Bounds | None:
    """Return the disk size of a run: system image plus one copy of the data; None if that is unknown [GB]."""
    given = terms.given("disk_gb")
    if given is not None:
        return (given, given, given)
    image, data = terms.bounds("image_gb", "any"), dataset_gb(workload, terms) or (0.0, 0.0, 0.0)
    return None if image is None else (image[0] + data[0], image[1] + data[1], image[2] + data[2])


class FeeCalculator:
    """Calculator of the fees of a workload on any offer; fees that depend only on the provider are cached.

    Args:
        workload: Workload of the run.
        terms: Assumptions, discounts and tax.
    """

    def __init__(self, workload: Workload, terms: CostTerms) -> None:
        self.workload = workload
        self.terms = terms
        self._by_provider: dict[tuple[str, int], Fees] = {}
        self._discounted: dict[tuple[str, int, Decimal, str], Fees] = {}

    def compute(self, offer: Offer) -> Fees:
        """Compute the fees on an offer."""
        if self.terms.costs is None:
            return NO_FEES
        key = (offer.provider, offer.hosts)
        fees = self._by_provider.get(key)
        if fees is None:
            fees = self._by_provider[key] = self._of_provider(*key)
        discount = self.terms.find_discount(offer) if self.terms.discounts else None
        if discount is None:
            return fees
        discounted = (*key, discount.percent, discount.note)
        if discounted not in self._discounted:
            self._discounted[discounted] = _discounted(fees, discount)
        return self._discounted[discounted]

    def _of_provider(self, provider: str, hosts: int) -> Fees:
        """Return a provider's fees for a number of machines, and the user's tax on them."""
        cost = self.terms.provider_cost(provider)
        reasons: dict[str, str] = {}
        disk = egress = None
        unknown = []
        if provider not in OWNED:
            disk, egress = self._disk(provider, hosts, reasons), self._egress(provider, reasons)
            unknown = [item for item, known in (("disk", disk), ("egress", egress)) if known is None]
        tax = self.terms.tax
        if tax is not None:
            reasons["tax"] = f"{tax.name}, {tax.percent:f} % of everything above"
        minimum_s = cost.minimum_billed_s if cost is not None and cost.minimum_billed_s else 0.0
        if minimum_s and cost is not None:
            reasons[f"minimum billing of {minimum_s:g} s"] = cost.minimum_source
        return Fees(
            minimum_billed_s=minimum_s,
            disk_usd_per_hour=disk,
            egress_usd=egress,
            tax=Decimal(0) if tax is None or provider in OWNED else tax.percent / PERCENT,
            reasons=reasons,
            unknown=tuple(unknown),
        )

    def _disk(self, provider: str, hosts: int, reasons: dict[str, str]) -> Bounds | None:
        """Return the hourly cost of the disks of all machines; None if unknown [USD/h]."""
        cost, size = self.terms.provider_cost(provider), disk_gb(self.workload, self.terms)
        if cost is None or cost.disk_usd_per_gb_month is None or size is None:
            return None
        rate = hosts * float(cost.disk_usd_per_gb_month) / HOURS_PER_MONTH
        machines = f"{hosts} machines with " if hosts > 1 else ""
        reasons["disk"] = (
            f"{machines}{size[1]:.3g} GB at ${cost.disk_usd_per_gb_month:f} a GB and month; {cost.disk_source}"
        )
        return (size[0] * rate, size[1] * rate, size[2] * rate)

    def _egress(self, provider: str, reasons: dict[str, str]) -> Bounds | None:
        """Return the cost of the final download, one copy of the weights; None if unknown [USD]."""
        cost = self.terms.provider_cost(provider)
        if cost is None or cost.egress_usd_per_gb is None:
            return None
        given = self.terms.given("egress_gb")
        size = self.workload.memory.parameter_bytes / GB if given is None else given
        usd = size * float(cost.egress_usd_per_gb)
        reasons["egress"] = (
            f"{size:.2g} GB of weights at ${cost.egress_usd_per_gb:f} a GB; {cost.egress_source}"
        )
        return (usd, usd, usd)


def _discounted(fees: Fees, discount: Discount) -> Fees:
    """Return the fees with a discount on the machine's price."""
    note = f" ({discount.note})" if discount.note else ""
    reasons = {**fees.reasons, "discount": f"{discount.percent:f} % off the machine's price{note}"}
    return replace(fees, discount=discount.percent / PERCENT, reasons=reasons)


HOURS_PER_MONTH = 730.0  # what the clouds divide a month's price of storage by
