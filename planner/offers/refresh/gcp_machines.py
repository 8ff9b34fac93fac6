"""Google's machines put together from unit prices: cores, memory, GPUs, disks; TPU slices from chips or cores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice, product

from ..rows import CPU, Purchase
from .gcp_skus import CORE, RAM, SSD, UnitPrice
from .shapes import Shape
from .source import Listed, decimal_of

__all__ = ["assembled", "recipe"]

# Local SSD that comes with a machine and is billed with it [GiB a GPU]:
# https://cloud.google.com/compute/docs/gpus (a2-ultragpu: 375, a3-highgpu and a3-megagpu: 750 a GPU).
SSD_GIB_PER_GPU = {"a2-ultragpu": 375, "a3-highgpu": 750, "a3-megagpu": 750}
SERIES = {"a3-highgpu": "a3-high", "a3-megagpu": "a3-mega"}
CORES_OF_OLD_TPU_SKU = 8  # v2, v3 and v4 are priced by eight cores, v5 and v6e by the chip
SIX_PLACES = Decimal("0.000001")  # what a machine's price is rounded to, as Google's own pages do
Prices = Mapping[tuple[str, str, Purchase], Sequence[UnitPrice]]


def recipe(instance_type: str, shape: Shape) -> dict[str, Decimal] | None:
    """Return how much of which part a machine is; None when it is not known how it is priced.

    Example:
        >>> {k: str(v) for k, v in recipe("a2-highgpu-1g", Shape("A100-40GB", 1, 12, 85)).items()}
        {'a2 core': '12', 'a2 ram': '85', 'gpu A100-40GB': '1'}
        >>> {k: str(v) for k, v in recipe("tpu-v3-32", Shape("TPU-v3", 16, None, None)).items()}
        {'tpu v3 pod': '4'}
    """
    if instance_type.startswith("tpu-"):
        return _tpu_recipe(instance_type, shape)
    devices = _decimal(shape.devices)
    if instance_type.startswith("attach:"):
        return {f"gpu {shape.accelerator}": devices}
    if shape.vcpus is None or shape.memory_gib is None:
        return None
    machine = instance_type.partition("+")[0]
    kind = "-".join(machine.split("-")[:2])
    series = SERIES.get(kind, machine.partition("-")[0])
    parts = {f"{series} {CORE}": _decimal(shape.vcpus), f"{series} {RAM}": _decimal(shape.memory_gib)}
    if shape.accelerator != CPU:
        mega = " mega" if kind == "a3-megagpu" else ""
        parts[f"gpu {shape.accelerator}{mega}"] = devices
    if kind in SSD_GIB_PER_GPU:
        parts[SSD] = SSD_GIB_PER_GPU[kind] * devices
    return parts


def assembled(known: Mapping[str, Shape], prices: Prices, *, url: str) -> Iterator[Listed]:
    """Yield every known machine in every region where all of its parts have a price.

    A machine of which a part has several prices comes with several, which the guards find.
    """
    places = sorted({(region, purchase) for _, region, purchase in prices})
    for instance_type, shape in known.items():
        parts = recipe(instance_type, shape)
        if parts is None:
            continue
        for region, purchase in places:
            choices = [prices.get((part, region, purchase), ()) for part in parts]
            for choice in islice(product(*choices), 2):
                sum_of = list(zip(parts.values(), choice, strict=True))
                yield _listed((instance_type, region, purchase), sum_of, url)


def _listed(key: tuple[str, str, Purchase], sum_of: Sequence[tuple[Decimal, UnitPrice]], url: str) -> Listed:
    """Return a machine whose price is the sum of amounts times unit prices."""
    instance_type, region, purchase = key
    usd = sum((amount * price.usd_per_hour for amount, price in sum_of), Decimal(0))
    currencies = sorted({price.currency for _, price in sum_of})
    return Listed(
        instance_type=instance_type,
        region=region,
        purchase=purchase,
        usd_per_hour=decimal_of(usd.quantize(SIX_PLACES), what=instance_type),
        currency=" ".join(currencies),
        sku=" + ".join(f"{amount:f} x {price.sku_id}" for amount, price in sum_of),
        url=url,
    )


def _tpu_recipe(instance_type: str, shape: Shape) -> dict[str, Decimal] | None:
    """Return how a TPU slice is priced: v2 to v4 by eight cores (beyond, and on v4, as pods), else by chip."""
    name = re.fullmatch(r"tpu-(v\d\w*?)(litepod)?-(\d+)", instance_type)
    if name is None:
        return None
    version, size = name.group(1), int(name.group(3))
    if version in ("v2", "v3", "v4"):
        pod = " pod" if size > CORES_OF_OLD_TPU_SKU or version == "v4" else ""
        return {f"tpu {version}{pod}": Decimal(size) / CORES_OF_OLD_TPU_SKU}
    chip = "v5e" if name.group(2) else version
    return {f"tpu {chip}": _decimal(shape.devices)}


def _decimal(number: float) -> Decimal:
    """Return a number of parts exactly."""
    return Decimal(f"{number:g}")
