"""Google Cloud SKUs as hourly unit prices of cores, memory, GPUs and TPU chips.

Google prices parts, not machines, and only the description of a SKU names the part. SKUs that do not belong
to a catalog machine (custom and sole-tenant machines, commitments, calendar mode) are skipped. Spot SKUs may
have the usage type OnDemand: the description decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal

from ...rows import Purchase
from ..source import parse_decimal

__all__ = ["CORE", "RAM", "SSD", "GoogleSku", "PartPrice", "compute_part_prices", "parse_part"]

HOURS_PER_MONTH = Decimal(730)  # Google's month: https://cloud.google.com/compute/all-pricing
CORE, RAM, SSD = "core", "ram", "ssd"
LEFT_OUT = re.compile(
    r"Custom|Premium|Reserved|Sole Tenancy|Commitment|Suspended|DWS|Calendar|Extended|Overcommit|"
    r"Capacity Optimized",
    re.IGNORECASE,
)
MACHINE = re.compile(r"^(?:Spot Preemptible )?(?P<family>.+?)(?: Instance)? (?P<part>Core|Ram) running in ")
GPU = re.compile(r"^Nvidia (?:Tesla )?(?P<gpu>.+?) GPU (?:attached to Spot Preemptible VMs )?running in ")
SLICE = re.compile(r"^(?:Spot Preemptible )?Nvidia (?P<gpu>\S+) \(1 gpu slice\)")
DISK = re.compile(r"^SSD backed Local Storage ")
OLD_TPU = re.compile(r"Tpu-v(?P<version>[234])\b")
NEW_TPU = re.compile(r"TpuV(?P<version>5e|5p|6e)\b")
# Machine series whose description differs from their name (unlike C3D, N4, E2).
FAMILIES = {
    "N1 Predefined": "n1", "Compute optimized": "c2", "A3": "a3-high", "A3Plus": "a3-mega", "T2D AMD": "t2d",
    "N2D AMD": "n2d",
}  # fmt: skip
GPUS = {
    "T4": "T4", "P4": "P4", "P100": "P100-PCIe", "V100": "V100-16GB", "A100": "A100-40GB",
    "A100 80GB": "A100-80GB", "L4": "L4", "H100 80GB": "H100-SXM",
    "H100 80GB Mega": "H100-SXM mega", "H100 Mega 80GB": "H100-SXM mega",
    "H100 80GB Plus": "H100-SXM mega", "H200 141GB": "H200", "RTX 6000 96GB": "RTXPRO6000", "K80": "K80",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleSku:
    """A Google SKU; ``usd`` is the price per unit of usage (an hour, a GiB for an hour, a GiB for a month)."""

    sku_id: str
    description: str
    usage_type: str
    regions: tuple[str, ...]
    unit: str
    usd: Decimal
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPrice:
    """Hourly price of a part of a machine, with the IDs of its SKUs."""

    usd_per_hour: Decimal
    sku_id: str
    currency: str


def parse_part(description: str) -> str | None:
    """Return the machine part priced by a SKU; None if the catalog does not use it.

    Example:
        >>> parse_part("A2 Instance Core running in Americas")
        'a2 core'
        >>> parse_part("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Iowa")
        'gpu T4'
        >>> parse_part("Preemptible Tpu-v3 Pod in Belgium"), parse_part("Custom Instance Core running in Iowa")
        ('tpu v3 pod', None)
    """
    if LEFT_OUT.search(description):
        return None
    for pattern, name in _KINDS:
        found = pattern.search(description)
        if found:
            return name(found)
    return None


def _format_machine_part(found: re.Match[str]) -> str:
    family = FAMILIES.get(found["family"], found["family"].lower().replace(" ", "-"))
    return f"{family} {CORE if found['part'] == 'Core' else RAM}"


def _format_gpu_part(found: re.Match[str]) -> str | None:
    gpu = GPUS.get(found["gpu"])
    return f"gpu {gpu}" if gpu else None


def _format_old_tpu_part(found: re.Match[str]) -> str:
    return f"tpu v{found['version']}{' pod' if 'Pod' in found.string else ''}"


_KINDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str | None]], ...] = (
    (GPU, _format_gpu_part),
    (SLICE, lambda found: f"gpu {found['gpu']}"),
    (MACHINE, _format_machine_part),
    (DISK, lambda _: SSD),
    (OLD_TPU, _format_old_tpu_part),
    (NEW_TPU, lambda found: f"tpu v{found['version']}"),
)


def compute_part_prices(skus: Iterable[GoogleSku]) -> dict[tuple[str, str, Purchase], list[PartPrice]]:
    """Return unit prices by part, region and purchase option; several if SKUs disagree."""
    found: dict[tuple[str, str, Purchase], list[PartPrice]] = {}
    for sku in skus:
        part = parse_part(sku.description)
        if part is None or sku.usage_type.startswith("Commit") or sku.usd == 0:
            continue
        purchase: Purchase = "spot" if _is_spot(sku) else "on_demand"
        price = PartPrice(usd_per_hour=_compute_usd_per_hour(sku), sku_id=sku.sku_id, currency=sku.currency)
        for region in sku.regions:
            known = found.setdefault((part, region, purchase), [])
            if all(other.usd_per_hour != price.usd_per_hour for other in known):
                known.append(price)
    return found


def _is_spot(sku: GoogleSku) -> bool:
    """Return whether a SKU is for preemptible machines."""
    return sku.usage_type == "Preemptible" or "Preemptible" in sku.description or "Spot" in sku.description


def _compute_usd_per_hour(sku: GoogleSku) -> Decimal:
    """Return a unit price per hour; local disks are priced per month."""
    if sku.unit.endswith(".mo"):
        return parse_decimal(sku.usd / HOURS_PER_MONTH, what=sku.sku_id)
    return sku.usd
