"""Invariants of the catalog: conditions within a row and between rows.

An invariant is a pure function from located rows to findings; ``check`` runs all of them. Bounds are wide:
they catch a misplaced decimal point or a wrong unit, not a surprising price.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal

from .catalog_files import Finding, Located
from .rows import Accelerator, CpuFamily, MachineLinks, Offer, Provider

Findings = Iterator[Finding]
MARK_ABOVE = "above on demand"  # note of a spot price that truly exceeds on demand
ADDRESS_OR_PAGE = re.compile(r"https?://\S+|.*\bpages? \d+")
BARE_COMMIT = re.compile(r"(?<![\w/.-])[\w-]+/[\w.-]+@[0-9a-f]{7,40}\b")
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


def check_price_is_positive(offers: Iterable[Located[Offer]]) -> Findings:
    """Check that prices are above $0; only free notebook plans and this machine may cost nothing."""
    for offer in offers:
        if offer.row.usd_per_hour is not None and offer.row.usd_per_hour <= 0:
            yield offer.finding("usd_per_hour", "is not above 0; leave it empty when no price is published")


def check_price_bounds(offers: Iterable[Located[Offer]]) -> Findings:
    """Check that a device costs between $0.001 and $100 per hour."""
    for offer in offers:
        if not offer.row.usd_per_hour:
            continue
        per_device = offer.row.usd_per_hour / Decimal(str(offer.row.devices))
        if not MIN_USD_PER_DEVICE_HOUR <= per_device <= MAX_USD_PER_DEVICE_HOUR:
            yield offer.finding("usd_per_hour", f"is {per_device:.4g} USD per device and hour: out of bounds")


def check_accelerator_is_known(offers: Iterable[Located[Offer]], known: set[str]) -> Findings:
    """Check that every offer names an accelerator of the catalog by its canonical name."""
    for offer in offers:
        if offer.row.accelerator not in known:
            yield offer.finding("accelerator", f"`{offer.row.accelerator}` is not in accelerators.toml")


def check_no_duplicate_offers(offers: Iterable[Located[Offer]]) -> Findings:
    """Check that an instance type has one price per region and purchase option."""
    seen: dict[tuple[str, str, str, str], Located[Offer]] = {}
    for offer in offers:
        row = offer.row
        first = seen.setdefault((row.provider, row.instance_type, row.region, row.purchase), offer)
        if first is not offer:
            yield offer.finding("instance_type", f"is the same offer as in line {first.line}")


def check_rows_are_sorted(offers: Iterable[Located[Offer]]) -> Findings:
    """Check that rows are sorted by instance type, region and purchase option, for readable diffs."""
    previous: tuple[str, tuple[str, str, str]] = ("", ("", "", ""))
    for offer in offers:
        key = (offer.row.instance_type, offer.row.region, offer.row.purchase)
        if previous[0] == offer.file and key < previous[1]:
            yield offer.finding("instance_type", f"stands after `{previous[1][0]}` out of order")
        previous = (offer.file, key)


def check_region_format(offers: Iterable[Located[Offer]], providers: Mapping[str, Provider]) -> Findings:
    """Check that region names match the provider's pattern."""
    for offer in offers:
        provider = providers.get(offer.row.provider)
        if provider is not None and not re.fullmatch(provider.region, offer.row.region):
            yield offer.finding(
                "region", f"`{offer.row.region}` does not match the region pattern of {provider.title}"
            )


def check_machine_size(offers: Iterable[Located[Offer]]) -> Findings:
    """Check that devices, vCPUs and memory of a machine are plausible."""
    bounds = {"devices": (0.05, 16_384.0), "vcpus": (1.0, 2048.0), "memory_gib": (0.5, 65_536.0)}
    for offer in offers:
        for field, (low, high) in bounds.items():
            value = getattr(offer.row, field)
            if value is not None and not low <= value <= high:
                yield offer.finding(field, f"is {value:g}: outside {low:g} to {high:g}")


def check_tpu_slices_count_chips(offers: Iterable[Located[Offer]]) -> Findings:
    """Check that ``devices`` of a TPU slice counts chips; names on v2, v3, v4 and v5p count cores (v3-8 = 4
    chips).
    """
    for offer in offers:
        name = re.match(r"tpu-(\w+?)-(\d+)(@|$)", offer.row.instance_type)
        if name and name.group(1) in CORES_PER_CHIP:
            chips = int(name.group(2)) / CORES_PER_CHIP[name.group(1)]
            if offer.row.devices != chips:
                yield offer.finding("devices", f"is {offer.row.devices:g}: this slice has {chips:g} chips")


def check_spot_not_above_on_demand(offers: Sequence[Located[Offer]]) -> Findings:
    """Check that a spot price does not exceed the on-demand price of the same machine and region, unless
    noted.
    """
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


def check_source_is_present(offers: Iterable[Located[Offer]]) -> Findings:
    """Check that every price has a source and a date."""
    for offer in offers:
        if not offer.row.price_source:
            yield offer.finding("source", "is missing")
        if not offer.row.price_as_of:
            yield offer.finding("as_of", "is missing")


def check_source_is_an_address(accelerators: Iterable[Located[Accelerator]]) -> Findings:
    """Check that the source of an accelerator begins with an address or names a page of a document."""
    for accelerator in accelerators:
        if not ADDRESS_OR_PAGE.match(accelerator.row.source):
            yield accelerator.finding("source", "does not begin with an address, and names no page")


def check_source_names_no_bare_commit(
    rows: Iterable[Located[Accelerator]] | Iterable[Located[CpuFamily]] | Iterable[Located[MachineLinks]],
) -> Findings:
    """Check that a file of a repository is named by an address, which can be opened, not `owner/repo@commit`."""
    for located in rows:
        if found := BARE_COMMIT.search(located.row.source):
            yield located.finding("source", f"`{found[0]}` is not an address")


def check_date_not_in_future(offers: Iterable[Located[Offer]], today: date) -> Findings:
    """Check that no price is dated in the future."""
    for offer in offers:
        if offer.row.price_as_of and is_future(offer.row.price_as_of, today):
            yield offer.finding("as_of", f"{offer.row.price_as_of} is in the future")


def check_names_are_unique(rows: Iterable[Located[Accelerator]] | Iterable[Located[CpuFamily]]) -> Findings:
    """Check that names are unique, ignoring case."""
    seen: dict[str, int] = {}
    for located in rows:
        field = "name" if isinstance(located.row, Accelerator) else "family"
        name = str(getattr(located.row, field)).lower()
        if seen.setdefault(name, located.line) != located.line:
            yield located.finding(field, f"is the same as in line {seen[name]}")


def check_bandwidth_and_memory(accelerators: Iterable[Located[Accelerator]]) -> Findings:
    """Check that memory, bandwidth, clock, links and power are within the range of real hardware."""
    for accelerator in accelerators:
        for field, (low, high) in BOUNDS.items():
            value = getattr(accelerator.row, field)
            if value is not None and not low <= value <= high:
                yield accelerator.finding(field, f"is {value:g}: outside {low:g} to {high:g}")


def check_peak_bounds(accelerators: Iterable[Located[Accelerator]]) -> Findings:
    """Check that peak rates are plausible in TFLOP/s and that every accelerator has one for training."""
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


def check_peaks_are_ordered(accelerators: Iterable[Located[Accelerator]]) -> Findings:
    """Check that narrower number formats are not slower and that usable memory does not exceed the total."""
    for accelerator in accelerators:
        for smaller, larger in ORDERED_PEAKS:
            low, high = getattr(accelerator.row, smaller), getattr(accelerator.row, larger)
            if low is not None and high is not None and low > high:
                yield accelerator.finding(smaller, f"{low:g} is above `{larger}` {high:g}")


def is_future(partial: str, today: date) -> bool:
    """Return whether a year, month, day or range of years begins after today.

    Example:
        >>> is_future("2026-08", date(2026, 8, 1)), is_future("2019-2023", date(2026, 8, 1))
        (False, False)
    """
    if re.fullmatch(r"\d{4}-\d{4}", partial):
        partial = partial[:4]
    return partial > today.isoformat()[: len(partial)]
