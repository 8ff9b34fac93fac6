"""The format of SkyPilot's catalog."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from gpuplan.offers.rows import Offer

__all__ = ["skypilot_catalog"]

SKYPILOT_COLUMNS = (
    "InstanceType", "vCPUs", "MemoryGiB", "AcceleratorName", "AcceleratorCount", "GpuInfo", "Region",
    "AvailabilityZone", "Price", "SpotPrice",
)  # fmt: skip
SKYPILOT_NAMES = {"A100-40GB": "A100", "V100-16GB": "V100", "P100-PCIe": "P100", "H100-SXM": "H100"}


def skypilot_catalog(offers: Sequence[Offer]) -> str:
    """Return a catalog in SkyPilot's format: hosts, add-on accelerators and TPU slices apart, two zones each."""
    prices: dict[tuple[str, ...], dict[str, str]] = {}
    for offer in offers:
        for kind in _skypilot_kinds(offer):
            column = "SpotPrice" if offer.purchase == "spot" else "Price"
            *names, usd = kind
            prices.setdefault((*names, offer.region), {})[column] = usd
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, SKYPILOT_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for (instance_type, accelerator, count, region), found in prices.items():
        for zone, times in (("b", 2), ("a", 1)):
            dearer = {column: str(float(usd) * times) if times > 1 else usd for column, usd in found.items()}
            writer.writerow({
                "InstanceType": instance_type, "AcceleratorName": accelerator, "AcceleratorCount": count,
                "Region": region, "AvailabilityZone": f"{region}-{zone}", **dearer,
            })  # fmt: skip
    writer.writerow(
        {
            "InstanceType": "TPU-VM",
            "AcceleratorName": "tpu-v6e-8",
            "AcceleratorCount": "1",
            "Region": "us-central1",
            "AvailabilityZone": "us-central1-z",
            "Price": "700.0",
        }
    )
    return buffer.getvalue()


def _skypilot_kinds(offer: Offer) -> list[tuple[str, str, str, str]]:
    """Return the rows of an offer: instance type, accelerator, count, price."""
    usd = f"{offer.usd_per_hour}"
    if offer.instance_type.startswith("tpu-"):
        return [("TPU-VM", offer.instance_type, "1", usd)]
    name = SKYPILOT_NAMES.get(offer.accelerator, offer.accelerator)
    if offer.instance_type.startswith("attach:"):
        return [("", name, f"{count}", f"{count * (offer.usd_per_hour or 0)}") for count in (1, 2, 4, 8)]
    if offer.instance_type == "n1-standard-8":  # its larger and smaller sisters cost in proportion
        each = (offer.usd_per_hour or 0) / 8
        return [(f"n1-standard-{cores}", "", "", f"{cores * each}") for cores in (4, 8, 16, 32, 64)]
    return []
