"""Laws between prices: what two prices of one machine, one chip or one vendor say about each other.

A law is a pure function from located offers to findings, as in ``invariants``. Only offers that can be rented
(`active` or `legacy`, complete, with a price) are compared. The bounds are wider than any true price that was
read (docs/catalog.md), so that a finding is a price to look at.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from statistics import median

from .aliases import get_chip_name
from .catalog_files import Finding, Located
from .rows import CPU, Offer, Provider

Findings = Iterator[Finding]
LIVE = ("active", "legacy")
MIN_SPOT_SHARE = Decimal("0.08")  # of the on-demand price; the lowest that was read is 0.09
MAX_REGION_RATIO = Decimal("2.5")  # to the median of a machine's regions; read: 0.75 to 1.8
MIN_SPOT_REGION_RATIO = Decimal("0.25")  # of the median of a machine's regions; read: 0.27 and more
MIN_REGIONS = 3
MAX_VENDOR_RATIO = 5  # a vendor's cheapest machine with a chip, to the median of all vendors
MIN_VENDOR_RATIO = Decimal(1) / 25  # marketplaces sell old chips at a twentieth of the list price
MIN_STEP_RATIO = Decimal("0.5")  # a later chip to an earlier one, each vendor's cheapest
# Chips of one line in the order in which they were sold: a later one is not cheaper by half.
LINES: Sequence[Sequence[str]] = (
    ("K80", "P100", "V100", "A100", "H100", "H200", "B200", "B300"),
    ("P4", "T4", "L4", "L40S"),
    ("TPU-v2", "TPU-v3", "TPU-v4", "TPU-v5p"),
)


def is_exact_tenth(spot: Decimal, on_demand: Decimal) -> bool:
    """Return whether a spot price is a tenth of the on-demand price to its last digit.

    Feeds fill in a tenth, the lowest price that their vendor allows, where nothing is for sale.

    Example:
        >>> is_exact_tenth(Decimal("0.5733"), Decimal("5.73277")), is_exact_tenth(Decimal("0.61"), Decimal("6"))
        (True, False)
    """
    return (on_demand / 10).quantize(spot) == spot


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


def check_names_are_the_vendors(
    offers: Iterable[Located[Offer]], providers: Mapping[str, Provider]
) -> Findings:
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
                message = (
                    f"is {ratio:.2g} times what vendors charge for a {offer.row.accelerator}, {middle:.3g}"
                )
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
