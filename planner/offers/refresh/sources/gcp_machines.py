"""Google Cloud machine prices from unit prices of cores, memory, GPUs and disks; TPU slices from chips or
cores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice, product

from ...rows import CPU, Purchase
from ..instance_types import InstanceSpec
from ..source import ListedPrice, parse_decimal
from .gcp_skus import CORE, RAM, SSD, PartPrice

__all__ = ["assemble_machines", "find_priced_parts"]

# Local SSD included in and billed with a machine [GiB/GPU]:
# https://cloud.google.com/compute/docs/gpus (a2-ultragpu: 375, a3-highgpu and a3-megagpu: 750 per GPU).
SSD_GIB_PER_GPU = {"a2-ultragpu": 375, "a3-highgpu": 750, "a3-megagpu": 750}
SERIES = {"a3-highgpu": "a3-high", "a3-megagpu": "a3-mega"}
CORES_OF_OLD_TPU_SKU = 8  # v2, v3 and v4 are priced per eight cores, v5 and v6e per chip
SIX_PLACES = Decimal("0.000001")  # rounding of machine prices, as on Google's pages
Prices = Mapping[tuple[str, str, Purchase], Sequence[PartPrice]]


def find_priced_parts(instance_type: str, shape: InstanceSpec) -> dict[str, Decimal] | None:
    """Return the quantity of each priced part of a machine; None if its pricing is unknown.

    Example:
        >>> a2 = InstanceSpec("A100-40GB", 1, 12, 85)
        >>> {k: str(v) for k, v in find_priced_parts("a2-highgpu-1g", a2).items()}
        {'a2 core': '12', 'a2 ram': '85', 'gpu A100-40GB': '1'}
        >>> {k: str(v) for k, v in find_priced_parts("tpu-v3-32", InstanceSpec("TPU-v3", 16, None, None)).items()}
        {'tpu v3 pod': '4'}
    """
    if instance_type.startswith("tpu-"):
        return _find_tpu_parts(instance_type, shape)
    devices = _to_decimal(shape.devices)
    if instance_type.startswith("attach:"):
        return {f"gpu {shape.accelerator}": devices}
    if shape.vcpus is None or shape.memory_gib is None:
        return None
    machine = instance_type.partition("+")[0]
    kind = "-".join(machine.split("-")[:2])
    series = SERIES.get(kind, machine.partition("-")[0])
    parts = {f"{series} {CORE}": _to_decimal(shape.vcpus), f"{series} {RAM}": _to_decimal(shape.memory_gib)}
    if shape.accelerator != CPU:
        mega = " mega" if kind == "a3-megagpu" else ""
        parts[f"gpu {shape.accelerator}{mega}"] = devices
    if kind in SSD_GIB_PER_GPU:
        parts[SSD] = SSD_GIB_PER_GPU[kind] * devices
    return parts


def assemble_machines(
    known: Mapping[str, InstanceSpec], prices: Prices, *, url: str
) -> Iterator[ListedPrice]:
    """Yield every known machine in every region where all of its parts have a price.

    If a part has several prices, so has the machine; the sanity checks report it.
    """
    places = sorted({(region, purchase) for _, region, purchase in prices})
    for instance_type, shape in known.items():
        parts = find_priced_parts(instance_type, shape)
        if parts is None:
            continue
        for region, purchase in places:
            choices = [prices.get((part, region, purchase), ()) for part in parts]
            for choice in islice(product(*choices), 2):
                sum_of = list(zip(parts.values(), choice, strict=True))
                yield _build_price((instance_type, region, purchase), sum_of, url)


def _build_price(
    key: tuple[str, str, Purchase], sum_of: Sequence[tuple[Decimal, PartPrice]], url: str
) -> ListedPrice:
    """Build a machine's price: Σ quantity × unit price."""
    instance_type, region, purchase = key
    usd = sum((amount * price.usd_per_hour for amount, price in sum_of), Decimal(0))
    currencies = sorted({price.currency for _, price in sum_of})
    return ListedPrice(
        instance_type=instance_type,
        region=region,
        purchase=purchase,
        usd_per_hour=parse_decimal(usd.quantize(SIX_PLACES), what=instance_type),
        currency=" ".join(currencies),
        sku=" + ".join(f"{amount:f} x {price.sku_id}" for amount, price in sum_of),
        url=url,
    )


def _find_tpu_parts(instance_type: str, shape: InstanceSpec) -> dict[str, Decimal] | None:
    """Return the priced parts of a TPU slice: v2 to v4 per eight cores (as pods beyond, and on v4), else per
    chip.
    """
    name = re.fullmatch(r"tpu-(v\d\w*?)(litepod)?-(\d+)", instance_type)
    if name is None:
        return None
    version, size = name.group(1), int(name.group(3))
    if version in ("v2", "v3", "v4"):
        pod = " pod" if size > CORES_OF_OLD_TPU_SKU or version == "v4" else ""
        return {f"tpu {version}{pod}": Decimal(size) / CORES_OF_OLD_TPU_SKU}
    chip = "v5e" if name.group(2) else version
    return {f"tpu {chip}": _to_decimal(shape.devices)}


def _to_decimal(number: float) -> Decimal:
    """Return a quantity as an exact Decimal."""
    return Decimal(f"{number:g}")
