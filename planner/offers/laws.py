"""The laws of the catalog: what must hold between the numbers of a row, and between rows.

A law is a pure function from located rows to findings; ``check`` runs all of them. Bounds are wide: they
catch a slipped decimal point or unit, not a surprising price.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal

from .files import Finding, Located
from .rows import Accelerator, Host, Offer, Provider

__all__ = [
    "accelerator_is_known", "bandwidth_and_memory_are_sane", "date_is_not_in_the_future", "is_future",
    "machine_size_is_sane", "names_are_unique", "no_duplicate_offers", "peaks_are_ordered",
    "peaks_are_sane", "price_is_positive", "price_is_sane", "region_has_the_providers_format",
    "rows_are_sorted", "source_is_present", "spot_is_not_above_on_demand", "tpu_slices_count_chips",
]  # fmt: skip

Findings = Iterator[Finding]
MARK_ABOVE = "above on demand"  # in the note of a spot price that really is
CORES_PER_CHIP = {"v2": 2, "v3": 2, "v4": 2, "v5p": 2, "v5litepod": 1, "v6e": 1}
MIN_USD_PER_DEVICE_HOUR, MAX_USD_PER_DEVICE_HOUR = Decimal("0.001"), Decimal(100)

BOUNDS: Mapping[str, tuple[float, float]] = {
    "memory_gib": (1, 1024),
    "memory_gb_per_s": (20, 40_000),
    "l2_mib": (0.25, 1024),
    "boost_mhz": (300, 5000),
    "tdp_w": (20, 4000),
    "link_gb_per_s_total": (10, 10_000),
    "pcie_gb_per_s_per_direction": (2, 300),
}
PEAK_BOUNDS_TERA = (0.01, 50_000.0)
ORDERED_PEAKS: Sequence[tuple[str, str]] = (  # (never above, this one)
    ("fp64_tflop_per_s", "fp32_tflop_per_s"),
    ("fp32_tflop_per_s", "fp16_tensor_tflop_per_s"),
    ("fp32_tflop_per_s", "bf16_tensor_tflop_per_s"),
    ("fp32_tflop_per_s", "tf32_tensor_tflop_per_s"),
    ("tf32_tensor_tflop_per_s", "fp16_tensor_tflop_per_s"),
    ("fp16_tflop_per_s", "fp16_tensor_tflop_per_s"),
    ("fp16_tensor_tflop_per_s", "fp8_tensor_tflop_per_s"),
    ("usable_gib", "memory_gib"),
)


def price_is_positive(offers: Iterable[Located[Offer]]) -> Findings:
    """A price file has no $0: only free notebook plans and this machine may cost nothing."""
    for offer in offers:
        if offer.row.usd_per_hour is not None and offer.row.usd_per_hour <= 0:
            yield offer.finding("usd_per_hour", "is not above 0; leave it empty when no price is published")


def price_is_sane(offers: Iterable[Located[Offer]]) -> Findings:
    """A device costs between a tenth of a cent and a hundred dollars an hour."""
    for offer in offers:
        if not offer.row.usd_per_hour:
            continue
        per_device = offer.row.usd_per_hour / Decimal(str(offer.row.devices))
        if not MIN_USD_PER_DEVICE_HOUR <= per_device <= MAX_USD_PER_DEVICE_HOUR:
            yield offer.finding("usd_per_hour", f"is {per_device:.4g} USD per device and hour: out of bounds")


def accelerator_is_known(offers: Iterable[Located[Offer]], known: set[str]) -> Findings:
    """Every offer has an accelerator of the catalog, by its canonical name."""
    for offer in offers:
        if offer.row.accelerator not in known:
            yield offer.finding("accelerator", f"`{offer.row.accelerator}` is not in accelerators.toml")


def no_duplicate_offers(offers: Iterable[Located[Offer]]) -> Findings:
    """An instance type has one price in a region at a purchase option."""
    seen: dict[tuple[str, str, str, str], Located[Offer]] = {}
    for offer in offers:
        row = offer.row
        first = seen.setdefault((row.provider, row.instance_type, row.region, row.purchase), offer)
        if first is not offer:
            yield offer.finding("instance_type", f"is the same offer as in line {first.line}")


def rows_are_sorted(offers: Iterable[Located[Offer]]) -> Findings:
    """Rows stand in order of instance type, region and purchase option, so that a diff shows what changed."""
    previous: tuple[str, tuple[str, str, str]] = ("", ("", "", ""))
    for offer in offers:
        key = (offer.row.instance_type, offer.row.region, offer.row.purchase)
        if previous[0] == offer.file and key < previous[1]:
            yield offer.finding("instance_type", f"stands after `{previous[1][0]}` out of order")
        previous = (offer.file, key)


def region_has_the_providers_format(
    offers: Iterable[Located[Offer]], providers: Mapping[str, Provider]
) -> Findings:
    """A region looks like one of its provider's."""
    for offer in offers:
        provider = providers.get(offer.row.provider)
        if provider is not None and not re.fullmatch(provider.region, offer.row.region):
            yield offer.finding("region", f"`{offer.row.region}` is not how {provider.title} names regions")


def machine_size_is_sane(offers: Iterable[Located[Offer]]) -> Findings:
    """Devices, vCPUs and memory of a machine are within what exists."""
    bounds = {"devices": (0.05, 16_384.0), "vcpus": (1.0, 2048.0), "memory_gib": (0.5, 65_536.0)}
    for offer in offers:
        for field, (low, high) in bounds.items():
            value = getattr(offer.row, field)
            if value is not None and not low <= value <= high:
                yield offer.finding(field, f"is {value:g}: outside {low:g} to {high:g}")


def tpu_slices_count_chips(offers: Iterable[Located[Offer]]) -> Findings:
    """``devices`` of a TPU slice counts chips; its name counts cores on v2, v3, v4 and v5p (v3-8 = 4)."""
    for offer in offers:
        name = re.match(r"tpu-(\w+?)-(\d+)(@|$)", offer.row.instance_type)
        if name and name.group(1) in CORES_PER_CHIP:
            chips = int(name.group(2)) / CORES_PER_CHIP[name.group(1)]
            if offer.row.devices != chips:
                yield offer.finding("devices", f"is {offer.row.devices:g}: this slice has {chips:g} chips")


def spot_is_not_above_on_demand(offers: Sequence[Located[Offer]]) -> Findings:
    """A spot price is at most the on-demand price of the same machine and region, unless its note says so."""
    listed = {
        (o.row.provider, o.row.instance_type, o.row.region): o.row.usd_per_hour
        for o in offers
        if o.row.purchase == "on_demand"
    }
    for offer in offers:
        if offer.row.purchase != "spot" or offer.row.usd_per_hour is None or MARK_ABOVE in offer.row.note:
            continue
        on_demand = listed.get((offer.row.provider, offer.row.instance_type, offer.row.region))
        if on_demand is not None and offer.row.usd_per_hour > on_demand:
            yield offer.finding("usd_per_hour", f"is above the on-demand price {on_demand}")


def source_is_present(offers: Iterable[Located[Offer]]) -> Findings:
    """Every price says where it was read, and when."""
    for offer in offers:
        if not offer.row.price_source:
            yield offer.finding("source", "is missing")
        if not offer.row.price_as_of:
            yield offer.finding("as_of", "is missing")


def date_is_not_in_the_future(offers: Iterable[Located[Offer]], today: date) -> Findings:
    """No price was read tomorrow."""
    for offer in offers:
        if offer.row.price_as_of and is_future(offer.row.price_as_of, today):
            yield offer.finding("as_of", f"{offer.row.price_as_of} is in the future")


def names_are_unique(rows: Iterable[Located[Accelerator]] | Iterable[Located[Host]]) -> Findings:
    """No two rows have one name, whatever their case."""
    seen: dict[str, int] = {}
    for located in rows:
        field = "name" if isinstance(located.row, Accelerator) else "family"
        name = str(getattr(located.row, field)).lower()
        if seen.setdefault(name, located.line) != located.line:
            yield located.finding(field, f"is the same as in line {seen[name]}")


def bandwidth_and_memory_are_sane(accelerators: Iterable[Located[Accelerator]]) -> Findings:
    """Memory, bandwidth, clock, links and power are within what was ever built."""
    for accelerator in accelerators:
        for field, (low, high) in BOUNDS.items():
            value = getattr(accelerator.row, field)
            if value is not None and not low <= value <= high:
                yield accelerator.finding(field, f"is {value:g}: outside {low:g} to {high:g}")


def peaks_are_sane(accelerators: Iterable[Located[Accelerator]]) -> Findings:
    """Peaks are given in tera-operations a second, and every accelerator has one for training."""
    low, high = PEAK_BOUNDS_TERA
    for accelerator in accelerators:
        peaks = {
            f: v for f, v in vars(accelerator.row).items() if f.endswith(("_tflop_per_s", "_top_per_s")) and v
        }
        for field, value in peaks.items():
            if not low <= value <= high:
                yield accelerator.finding(field, f"is {value:g}: outside {low:g} to {high:g}")
        if not {"fp32_tflop_per_s", "bf16_tensor_tflop_per_s", "fp16_tensor_tflop_per_s"} & peaks.keys():
            yield accelerator.finding("fp32_tflop_per_s", "is unknown, and so are fp16 and bf16")


def peaks_are_ordered(accelerators: Iterable[Located[Accelerator]]) -> Findings:
    """A narrower number format is never slower; usable memory is part of the memory."""
    for accelerator in accelerators:
        for smaller, larger in ORDERED_PEAKS:
            low, high = getattr(accelerator.row, smaller), getattr(accelerator.row, larger)
            if low is not None and high is not None and low > high:
                yield accelerator.finding(smaller, f"{low:g} is above `{larger}` {high:g}")


def is_future(partial: str, today: date) -> bool:
    """Return whether a year, month, day or span of years begins after today.

    Example:
        >>> is_future("2026-08", date(2026, 8, 1)), is_future("2019-2023", date(2026, 8, 1))
        (False, False)
    """
    if re.fullmatch(r"\d{4}-\d{4}", partial):
        partial = partial[:4]
    return partial > today.isoformat()[: len(partial)]
