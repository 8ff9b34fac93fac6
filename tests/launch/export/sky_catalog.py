"""SkyPilot's catalogs written from ours: it keeps one that was changed by hand."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpuplan.errors import NoAnswerError
from gpuplan.launch.export.names import SKYPILOT, engine_name
from gpuplan.launch.google.places import machine_type
from gpuplan.offers.rows import Offer

__all__ = ["write_catalogs"]

COLUMNS = (
    "InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "GpuInfo", "Price", "SpotPrice",
    "Region", "AvailabilityZone", "Arch", "Generation",
)  # fmt: skip
IMAGES = ("skypilot:custom-gpu-ubuntu-cuda13", "skypilot:custom-cpu-ubuntu", "skypilot:gpu-ubuntu-2204")


def write_catalogs(home: Path, offers: Iterable[Offer]) -> None:
    """Write the catalogs of all clouds that offers are of into a home folder."""
    by_cloud: dict[str, dict[tuple[str, str], dict[str, object]]] = {}
    for offer in offers:
        row = _row(offer)
        if row is not None:
            rows = by_cloud.setdefault(offer.provider, {})
            kept = rows.setdefault((str(row["InstanceType"] or row["AcceleratorName"]), offer.region), row)
            kept |= {name: row[name] for name in ("Price", "SpotPrice") if row[name] != ""}
    root = home / ".sky" / "catalogs" / "v8"
    for cloud, found in by_cloud.items():
        _write(root / cloud / "vms.csv", COLUMNS, found.values())
    regions = sorted({str(row["Region"]) for row in by_cloud.get("aws", {}).values()})
    images = [
        {"Tag": tag, "Region": region, "OS": "ubuntu", "OSVersion": "22.04", "ImageId": "ami-0123456789abcdef0",
         "CreationDate": "20260101", "BaseImageId": "ami-0123456789abcdef0"}
        for tag in IMAGES for region in regions
    ]  # fmt: skip
    _write(root / "aws" / "images.csv", tuple(images[0]) if images else ("Tag",), images)
    quota = ("InstanceType", "OnDemandInstanceCode", "SpotInstanceCode")
    _write(root / "aws" / "instance_quota_mapping.csv", quota, [])
    names = {str(row["AcceleratorName"]) for rows in by_cloud.values() for row in rows.values()} - {""}
    common = [{"AcceleratorName": name, "Clouds": str([*by_cloud])} for name in sorted(names)]
    _write(root / "common" / "accelerators.csv", ("AcceleratorName", "Clouds"), common)


def _row(offer: Offer) -> dict[str, object] | None:
    """Return an offer as a row; None for what SkyPilot has no name for."""
    if offer.usd_per_hour is None or not offer.complete or offer.status == "historical":
        return None
    try:
        name = (
            "" if offer.accelerator == "CPU" else engine_name(offer.accelerator, SKYPILOT, engine="SkyPilot")
        )
    except NoAnswerError:
        return None
    kind = machine_type(offer.instance_type)[0] if offer.provider == "gcp" else offer.instance_type
    spot, region = offer.purchase == "spot", "us-east-1" if offer.region == "any" else offer.region
    return {
        "InstanceType": kind, "AcceleratorName": name, "AcceleratorCount": offer.devices if name else "",
        "vCPUs": offer.vcpus or "", "MemoryGiB": offer.memory_gib or "", "GpuInfo": name,
        "Price": "" if spot else offer.usd_per_hour, "SpotPrice": offer.usd_per_hour if spot else "",
        "Region": region, "AvailabilityZone": f"{region}-az1", "Arch": "x86_64", "Generation": "V2",
    }  # fmt: skip


def _write(path: Path, columns: Sequence[str], rows: Iterable[dict[str, object]]) -> None:
    """Write a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
