"""SkyPilot's catalogs with gpuplan's machines and prices, so that both choose among the same offers.

Its format is that of github.com/skypilot-org/skypilot-catalog, `catalogs/v8`, as SkyPilot 0.14 reads it; it keeps
a catalog that was changed by hand. `test_engine_names.py` tests that the names in an export are SkyPilot's own.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path

from gpuplan.errors import NoAnswerError
from gpuplan.launch.clouds.google.options import list_zones, machine_type
from gpuplan.launch.export.names import find_skypilot_name
from gpuplan.offers.rows import Offer

__all__ = ["aws_zone_id", "write_catalogs"]

Row = dict[str, object]
Usd = dict[tuple[str, str, str], Decimal]  # by name, region and purchase option

COLUMNS = (
    "InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "GpuInfo", "Price", "SpotPrice",
    "Region", "AvailabilityZone", "Arch", "Generation",
)  # fmt: skip
IMAGE_COLUMNS = ("Tag", "Region", "OS", "OSVersion", "ImageId", "CreationDate", "BaseImageId")
IMAGES = {
    "aws": ("skypilot:custom-gpu-ubuntu-cuda13", "skypilot:custom-gpu-ubuntu", "skypilot:custom-cpu-ubuntu"),
    "gcp": (
        "skypilot:custom-cpu-ubuntu-2204",
        "skypilot:custom-gpu-ubuntu-2204-cuda13",
        "skypilot:custom-gpu-ubuntu-2204",
    ),
    "azure": ("skypilot:custom-gpu-ubuntu-v2", "skypilot:custom-gpu-ubuntu-v1", "skypilot:custom-cpu-ubuntu-v2"),
}
IMAGE_IDS = {
    "aws": "ami-12c6146b",  # one that moto has
    "gcp": "projects/images/one",
    "azure": "publisher:offer:sku:version",
}
ZONED = {"aws", "gcp", "runpod"}  # catalogs of other clouds have no such column
QUOTAS = {"aws": "instance_quota_mapping", "gcp": "accelerator_quota_mapping"}
_WORDS = re.compile("north|south|east|west|central|gov")


def write_catalogs(home: Path, offers: Iterable[Offer]) -> None:
    """Write the catalogs of all clouds that offers are of into a home folder."""
    by_cloud: dict[str, dict[tuple[object, ...], Row]] = {}
    for cloud, row in _rows([one for one in offers if one.complete and one.status != "historical"]):
        key = tuple(row[name] for name in ("InstanceType", "AcceleratorName", "AcceleratorCount", "Region"))
        kept = by_cloud.setdefault(cloud, {}).setdefault(key, row)
        kept |= {name: row[name] for name in ("Price", "SpotPrice") if row[name] != ""}
    root = home / ".sky" / "catalogs" / "v8"
    for cloud, found in by_cloud.items():
        columns = [name for name in COLUMNS if name != "AvailabilityZone" or cloud in ZONED]
        _write(root / cloud / "vms.csv", columns, found.values())
        regions = sorted({str(row["Region"]) for row in found.values()}) if cloud == "aws" else [""]
        _write(root / cloud / "images.csv", IMAGE_COLUMNS, _images(cloud, regions))
    for cloud, name in QUOTAS.items():
        columns = ("InstanceType" if cloud == "aws" else "Accelerator", "OnDemandInstanceCode", "SpotInstanceCode")
        _write(root / cloud / f"{name}.csv", columns, [])
    names = {str(row["AcceleratorName"]) for rows in by_cloud.values() for row in rows.values()} - {""}
    common = [{"AcceleratorName": name, "Clouds": str([*by_cloud])} for name in sorted(names)]
    _write(root / "common" / "accelerators.csv", ("AcceleratorName", "Clouds"), common)


def aws_zone_id(region: str) -> str:
    """Return the name that a region's first zone has in every account; SkyPilot asks AWS what it is in the user's.

    Example:
        >>> aws_zone_id("us-east-1"), aws_zone_id("ap-northeast-2"), aws_zone_id("us-gov-west-1")
        ('use1-az1', 'apne2-az1', 'usgw1-az1')
    """
    geography, *middle, number = region.split("-")
    return geography + "".join(word[0] for word in _WORDS.findall("-".join(middle))) + f"{number}-az1"


def _rows(offers: Sequence[Offer]) -> Iterable[tuple[str, Row]]:
    """Yield all rows with their cloud: a machine each; at Google, its host and its devices apart."""
    usd: Usd = {
        (one.instance_type, one.region, one.purchase): one.usd_per_hour for one in offers if one.usd_per_hour
    }
    least = _least_usd(offers)
    for one in offers:
        name = _accelerator_name(one)
        if one.usd_per_hour is None or name is None or one.instance_type.startswith("attach:"):
            continue
        if one.provider == "runpod":  # only its Secure Cloud
            if one.instance_type.endswith(" [secure]"):
                yield "runpod", _row(one, f"{one.devices:g}x_{name}_SECURE", name, one.usd_per_hour)
        elif one.provider != "gcp":
            yield one.provider, _row(one, one.instance_type, name, one.usd_per_hour)
        elif name.startswith("tpu-"):
            yield "gcp", _row(one, "TPU-VM", name, one.usd_per_hour)
        elif not name:
            yield "gcp", _row(one, one.instance_type, "", one.usd_per_hour)
        else:
            base, attached = machine_type(one.instance_type)
            devices_usd = least[name, one.devices, one.region, one.purchase]
            if attached:
                alone = usd.get((f"attach:{one.instance_type.rpartition('x')[2]}", one.region, one.purchase))
                devices_usd = one.usd_per_hour if alone is None else alone * attached[1]
            yield "gcp", _row(one, "", name, devices_usd)
            yield "gcp", _row(one, base, "", one.usd_per_hour - devices_usd)


def _least_usd(offers: Iterable[Offer]) -> dict[tuple[str, float, str, str], Decimal]:
    """Return what devices cost at Google with their smallest host; what larger ones cost more is the host's."""
    found: dict[tuple[str, float, str, str], Decimal] = {}
    for one in offers:
        name = _accelerator_name(one) if one.provider == "gcp" else None
        if name and one.usd_per_hour is not None and not one.instance_type.startswith("attach:"):
            key = (name, one.devices, one.region, one.purchase)
            found[key] = min(one.usd_per_hour, found.get(key, one.usd_per_hour))
    return found


def _accelerator_name(offer: Offer) -> str | None:
    """Return what SkyPilot calls an offer's devices, empty for none; None for what it has no name for."""
    if offer.accelerator == "CPU":
        return ""
    if offer.accelerator.startswith("TPU"):
        return offer.instance_type
    try:
        if offer.devices < 1:
            return None
        return find_skypilot_name(offer.provider, offer.instance_type, offer.accelerator)
    except NoAnswerError:
        return None


def _row(offer: Offer, instance_type: str, accelerator: str, usd_per_hour: Decimal) -> Row:
    """Return a row: one zone a region is enough."""
    spot, region = offer.purchase == "spot", "us-east-1" if offer.region == "any" else offer.region
    zone = {"aws": aws_zone_id, "gcp": lambda name: list_zones(name)[0]}.get(offer.provider, str)(region)
    count = 1 if accelerator.startswith("tpu-") else offer.devices
    machine = bool(instance_type) and instance_type != "TPU-VM"
    return {
        "InstanceType": instance_type,
        "AcceleratorName": accelerator,
        "AcceleratorCount": count if accelerator else "",
        "vCPUs": (offer.vcpus if machine else "") or "",
        "MemoryGiB": (offer.memory_gib if machine else "") or "",
        "GpuInfo": accelerator,
        "Price": "" if spot else usd_per_hour,
        "SpotPrice": usd_per_hour if spot else "",
        "Region": region,
        "AvailabilityZone": zone,
        "Arch": "x86_64",
        "Generation": "V2",
    }


def _images(cloud: str, regions: Iterable[str]) -> Iterable[Row]:
    """Yield the images that SkyPilot asks for; their names stand for none that is."""
    for tag in IMAGES.get(cloud, ()):
        for region in regions:
            yield {
                "Tag": tag, "Region": region, "OS": "ubuntu", "OSVersion": "22.04", "CreationDate": "20260101",
                "ImageId": IMAGE_IDS[cloud], "BaseImageId": "",
            }  # fmt: skip


def _write(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Write a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
