"""Laws of the packaged catalog: within a row, and between two prices of one machine, chip or vendor.

A law is a pure function from located rows to findings. Bounds are wider than what was read (docs/catalog.md), so
that a finding is a number to look at: a misplaced decimal point, a wrong unit, a placeholder. Laws between prices
compare offers that can be rented (`active` or `legacy`, complete, with a price). What every catalog needs is
in `gpuplan.offers.check`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from importlib.resources.abc import Traversable
from statistics import median

from gpuplan.offers.aliases import get_chip_name
from gpuplan.offers.catalog import find_price_files
from gpuplan.offers.catalog_files import (
    Finding,
    Located,
    Table,
    read_prices,
    read_rows,
    read_table,
    read_text_table,
)
from gpuplan.offers.refresh.run import MARK_ABOVE
from gpuplan.offers.refresh.sanity_checks import is_exact_tenth
from gpuplan.offers.rows import CPU, Accelerator, CpuFamily, MachineLinks, Offer, Provider

Findings = Iterator[Finding]
ADDRESS_OR_PAGE = re.compile(r"https?://\S+|.*\bpages? \d+")
BARE_COMMIT = re.compile(r"(?<![\w/.-])[\w-]+/[\w.-]+@[0-9a-f]{7,40}\b")

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

LIVE = ("active", "legacy")
MIN_SPOT_SHARE = Decimal("0.08")  # of the on-demand price; the lowest that was read is 0.09
MAX_REGION_RATIO = Decimal("2.5")  # to the median of a machine's regions; read: 0.75 to 1.8
MIN_SPOT_REGION_RATIO = Decimal("0.25")  # of the median of a machine's regions; read: 0.27 and more
MIN_REGIONS = 3
MAX_VENDOR_RATIO = 8  # a vendor's cheapest machine with a chip, to the median of all vendors
MIN_VENDOR_RATIO = Decimal(1) / 25  # marketplaces sell old chips at a twentieth of the list price
MIN_STEP_RATIO = Decimal("0.5")  # a later chip to an earlier one, each vendor's cheapest
# Chips of one line in the order in which they were sold: a later one is not cheaper by half.
LINES: Sequence[Sequence[str]] = (
    ("K80", "P100", "V100", "A100", "H100", "H200", "B200", "B300"),
    ("P4", "T4", "L4", "L40S"),
    ("TPU-v2", "TPU-v3", "TPU-v4", "TPU-v5p"),
)


def find_broken_laws(folder: Traversable) -> list[Finding]:
    """Return the findings of all laws in a catalog folder whose rows can be read."""
    table = read_table(folder, "sources.toml")
    sources = read_text_table(table, "sources")
    offers = [
        offer
        for file in find_price_files(folder)
        for offer in read_prices(file, file.name.removesuffix(".csv"), sources)[0]
    ]
    providers = {
        one.row.name: one.row for one in read_rows(read_table(folder, "providers.toml"), "provider", Provider)[0]
    }
    accelerators = read_rows(read_table(folder, "accelerators.toml"), "accelerator", Accelerator)[0]
    hosts = read_rows(read_table(folder, "hosts.toml"), "host", CpuFamily)[0]
    links = read_rows(read_table(folder, "links.toml"), "links", MachineLinks)[0]
    found = [finding for law in OFFER_LAWS for finding in law(offers)]
    found += [finding for law in ACCELERATOR_LAWS for finding in law(accelerators)]
    found += [*check_names_are_the_vendors(offers, providers)]
    found += [*check_sources_are_addresses(table, sources), *check_turbo_clock(hosts)]
    found += [*check_source_names_no_bare_commit(hosts), *check_source_names_no_bare_commit(links)]
    return sorted(set(found), key=lambda finding: (finding.file, finding.line, finding.field))


def check_sources_are_addresses(table: Table, sources: Mapping[str, str]) -> Findings:
    """Check that every source of a price begins with an address."""
    for key, source in sources.items():
        if not re.match(r"https?://\S+", source):
            yield Finding(table.file, table.line_of_key(key), key, "does not begin with an address")


def check_turbo_clock(hosts: Iterable[Located[CpuFamily]]) -> Findings:
    """Check that the clock of CPU families is plausible."""
    for host in hosts:
        if not 0.5 <= host.row.all_core_turbo_ghz <= 7:
            yield host.finding("all_core_turbo_ghz", f"is {host.row.all_core_turbo_ghz:g}: outside 0.5 to 7")


def check_rows_are_sorted(offers: Iterable[Located[Offer]]) -> Findings:
    """Check that rows are sorted by instance type, region and purchase option, for readable diffs."""
    previous: tuple[str, tuple[str, str, str]] = ("", ("", "", ""))
    for offer in offers:
        key = (offer.row.instance_type, offer.row.region, offer.row.purchase)
        if previous[0] == offer.file and key < previous[1]:
            yield offer.finding("instance_type", f"stands after `{previous[1][0]}` out of order")
        previous = (offer.file, key)


def check_machine_size(offers: Iterable[Located[Offer]]) -> Findings:
    """Check that devices, vCPUs and memory of a machine are plausible."""
    bounds = {"devices": (0.05, 16_384.0), "vcpus": (1.0, 2048.0), "memory_gib": (0.5, 65_536.0)}
    for offer in offers:
        for field, (low, high) in bounds.items():
            value = getattr(offer.row, field)
            if value is not None and not low <= value <= high:
                yield offer.finding(field, f"is {value:g}: outside {low:g} to {high:g}")


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


def check_spot_share(offers: Sequence[Located[Offer]]) -> Findings:
    """Check that no spot price is a smaller share of the on-demand price than vendors give."""
    for spot, on_demand in _pair_purchases(offers):
        share = _price(spot) / _price(on_demand)
        if share < MIN_SPOT_SHARE:
            yield spot.finding("usd_per_hour", f"is {share:.1%} of the on-demand price {_price(on_demand)}")


def check_no_exact_tenths(offers: Sequence[Located[Offer]]) -> Findings:
    """Check that no spot price is exactly a tenth of the on-demand price, which is a placeholder."""
    for spot, on_demand in _pair_purchases(offers):
        if is_exact_tenth(_price(spot), _price(on_demand)):
            message = f"is exactly a tenth of the on-demand price {_price(on_demand)}: a placeholder"
            yield spot.finding("usd_per_hour", message)


def check_active_dates_have_a_day(offers: Iterable[Located[Offer]]) -> Findings:
    """Check that the price of an offer that can be rented is dated to the day."""
    for offer in offers:
        as_of = offer.row.price_as_of or ""
        if offer.row.status in LIVE and as_of and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", as_of):
            yield offer.finding("as_of", f"`{as_of}` has no day; an offer that can be rented needs one")


def check_names_are_the_vendors(offers: Iterable[Located[Offer]], providers: Mapping[str, Provider]) -> Findings:
    """Check that instance types have the form of the vendor's own names."""
    for offer in offers:
        provider = providers.get(offer.row.provider)
        if (
            provider is not None
            and provider.instance_type
            and not re.fullmatch(provider.instance_type, offer.row.instance_type)
        ):
            message = f"`{offer.row.instance_type}` is not a name of {provider.title}"
            yield offer.finding("instance_type", message)


def check_chip_price_across_regions(offers: Iterable[Located[Offer]]) -> Findings:
    """Check that an instance type costs about the same on demand in all regions."""
    for offer, ratio, middle in _compare_regions(offers, "on_demand"):
        if not 1 / MAX_REGION_RATIO <= ratio <= MAX_REGION_RATIO:
            yield offer.finding("usd_per_hour", f"is {ratio:.2g} times the median of its regions, {middle}")


def check_spot_price_across_regions(offers: Iterable[Located[Offer]]) -> Findings:
    """Check that no spot price is far below what the same machine costs in other regions.

    Spot prices differ by region, upwards to the price on demand. A low one is the one that would be chosen.
    """
    for offer, ratio, middle in _compare_regions(offers, "spot"):
        if ratio < MIN_SPOT_REGION_RATIO:
            yield offer.finding("usd_per_hour", f"is {ratio:.2g} times the median of its regions, {middle}")


def check_chip_price_across_vendors(offers: Iterable[Located[Offer]]) -> Findings:
    """Check that the cheapest machine of each vendor with a chip costs about what other vendors take."""
    vendors: dict[str, dict[str, Located[Offer]]] = defaultdict(dict)
    for (provider, accelerator), offer in _find_cheapest(_select_live(offers, "on_demand")).items():
        vendors[accelerator][provider] = offer
    for cheapest in vendors.values():
        if len(cheapest) < 2:
            continue
        middle = median(map(_price_per_device, cheapest.values()))
        for offer in cheapest.values():
            ratio = _price_per_device(offer) / middle
            if not MIN_VENDOR_RATIO <= ratio <= MAX_VENDOR_RATIO:
                message = f"is {ratio:.2g} times what vendors charge for a {offer.row.accelerator}, {middle:.3g}"
                yield offer.finding("usd_per_hour", message)


def check_chips_are_ordered_by_price(offers: Sequence[Located[Offer]]) -> Findings:
    """Check that no vendor sells a later chip of a line for less than half of an earlier one."""
    for purchase in ("on_demand", "spot"):
        by_chip: dict[tuple[str, str], Located[Offer]] = {}
        for (provider, accelerator), offer in _find_cheapest(_select_live(offers, purchase)).items():
            key = (provider, get_chip_name(accelerator))
            if key not in by_chip or _price_per_device(offer) < _price_per_device(by_chip[key]):
                by_chip[key] = offer
        for line in LINES:
            for provider in sorted({provider for provider, _ in by_chip}):
                sold = [by_chip[provider, chip] for chip in line if (provider, chip) in by_chip]
                yield from _find_steps_down(sold)


def _compare_regions(
    offers: Iterable[Located[Offer]], purchase: str
) -> Iterator[tuple[Located[Offer], Decimal, Decimal]]:
    """Yield the offers of instance types in several regions, the ratio of each to their median, and the median."""
    regions: dict[tuple[str, str], list[Located[Offer]]] = defaultdict(list)
    for offer in _select_live(offers, purchase):
        regions[offer.row.provider, offer.row.instance_type].append(offer)
    for rows in regions.values():
        if len(rows) >= MIN_REGIONS:
            middle = median(map(_price, rows))
            yield from ((row, _price(row) / middle, middle) for row in rows)


def _find_steps_down(sold: Sequence[Located[Offer]]) -> Findings:
    """Yield chips of a line that are cheaper by half than one before them."""
    for position, later in enumerate(sold[1:], 1):
        for earlier in sold[:position]:
            if _price_per_device(later) < MIN_STEP_RATIO * _price_per_device(earlier):
                message = (
                    f"makes a {later.row.accelerator} cheaper than half of an older {earlier.row.accelerator} "
                    f"({earlier.row.instance_type}, line {earlier.line})"
                )
                yield later.finding("usd_per_hour", message)
                break


def _pair_purchases(offers: Sequence[Located[Offer]]) -> Iterator[tuple[Located[Offer], Located[Offer]]]:
    """Yield each spot price with the on-demand price of the same machine and region."""
    on_demand = {
        (o.row.provider, o.row.instance_type, o.row.region): o
        for o in offers
        if o.row.purchase == "on_demand" and o.row.usd_per_hour
    }
    for offer in offers:
        key = (offer.row.provider, offer.row.instance_type, offer.row.region)
        if offer.row.purchase == "spot" and offer.row.usd_per_hour and key in on_demand:
            yield offer, on_demand[key]


def _select_live(offers: Iterable[Located[Offer]], purchase: str) -> Iterator[Located[Offer]]:
    """Yield the complete machines with whole accelerators and a price that can be rented."""
    for offer in offers:
        row = offer.row
        if (
            row.status in LIVE
            and row.complete
            and row.purchase == purchase
            and row.usd_per_hour
            and row.accelerator != CPU
            and row.devices >= 1
        ):
            yield offer


def _find_cheapest(offers: Iterable[Located[Offer]]) -> dict[tuple[str, str], Located[Offer]]:
    """Return the cheapest offer per device of each provider and accelerator."""
    cheapest: dict[tuple[str, str], Located[Offer]] = {}
    for offer in offers:
        key = (offer.row.provider, offer.row.accelerator)
        if key not in cheapest or _price_per_device(offer) < _price_per_device(cheapest[key]):
            cheapest[key] = offer
    return cheapest


def _price(offer: Located[Offer]) -> Decimal:
    return offer.row.usd_per_hour or Decimal(0)


def _price_per_device(offer: Located[Offer]) -> Decimal:
    return _price(offer) / Decimal(str(offer.row.devices))


OFFER_LAWS = (
    check_rows_are_sorted,
    check_machine_size,
    check_spot_not_above_on_demand,
    check_spot_share,
    check_no_exact_tenths,
    check_active_dates_have_a_day,
    check_chip_price_across_regions,
    check_spot_price_across_regions,
    check_chip_price_across_vendors,
    check_chips_are_ordered_by_price,
)
ACCELERATOR_LAWS = (
    check_bandwidth_and_memory,
    check_peak_bounds,
    check_peaks_are_ordered,
    check_source_is_an_address,
    check_source_names_no_bare_commit,
)
