"""The formats of Lambda, RunPod, Vast and SkyPilot's catalog."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from gpuplan.offers.rows import Offer

__all__ = ["bundles", "gpu_types", "instance_types", "skypilot_catalog"]

SKYPILOT_COLUMNS = (
    "InstanceType", "vCPUs", "MemoryGiB", "AcceleratorName", "AcceleratorCount", "GpuInfo", "Region",
    "AvailabilityZone", "Price", "SpotPrice",
)  # fmt: skip
SKYPILOT_NAMES = {"A100-40GB": "A100", "V100-16GB": "V100", "P100-PCIe": "P100", "H100-SXM": "H100"}


def instance_types(offers: Sequence[Offer]) -> dict[str, Any]:
    """Return Lambda's answer: https://docs.lambda.ai/api/cloud, `GET /api/v1/instance-types`."""
    return {"data": {offer.instance_type: _instance_type(offer) for offer in offers}}


def _instance_type(offer: Offer) -> dict[str, Any]:
    return {
        "instance_type": {
            "name": offer.instance_type,
            "description": f"{offer.devices:g}x {offer.accelerator}",
            "gpu_description": offer.accelerator,
            "price_cents_per_hour": round((offer.usd_per_hour or 0) * 100),
            "specs": {"vcpus": 30, "memory_gib": 200, "storage_gib": 512, "gpus": int(offer.devices)},
        },
        "regions_with_capacity_available": [{"name": "us-west-1", "description": "California, USA"}],
    }


def gpu_types(offers: Sequence[Offer]) -> dict[str, Any]:
    """Return RunPod's answer to the question for GPU types."""
    known = [
        {
            "id": f"NVIDIA {offer.accelerator}", "displayName": offer.accelerator, "memoryInGb": 24,
            "securePrice": float(offer.usd_per_hour or 0) + 0.2, "communityPrice": float(offer.usd_per_hour or 0),
            "secureSpotPrice": None, "communitySpotPrice": float(offer.usd_per_hour or 0) / 2,
        }
        for offer in offers
    ]  # fmt: skip
    unknown = {**known[0], "id": "NVIDIA X9", "displayName": "X9", "securePrice": 0, "communityPrice": 9.0}
    return {"data": {"gpuTypes": [*known, unknown]}}


def bundles(offers: Sequence[Offer]) -> dict[str, Any]:
    """Return Vast's answer to a search: several machines of each kind, the cheapest in the middle."""
    found = []
    for number, offer in enumerate(offers):
        for times in (1.5, 1.0, 3.0):
            found.append({
                "id": 1000 + 10 * number + len(found) % 3, "gpu_name": offer.accelerator, "num_gpus": 1,
                "gpu_ram": 24564, "dph_base": float(offer.usd_per_hour or 0) * times,
                "min_bid": float(offer.usd_per_hour or 0) * times / 2, "rentable": True,
            })  # fmt: skip
    return {"offers": found}


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
