"""Sanity checks that keep erroneous responses from replacing good prices.

Pure functions: rows in, rows and findings out. A finding on a row quarantines the row: it is reported, and
the old price stays. A finding on a part rejects the part: all of its old prices stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from ..check import MAX_USD_PER_DEVICE_HOUR, MIN_USD_PER_DEVICE_HOUR
from ..rows import Offer, OfferKey
from .source import InstanceSpec, InstanceSpecs, LeftOut, ListedPrice, PricePart

MAX_PRICE_RATIO = 3  # factor up or down; larger changes usually mean a wrong unit
MIN_ROW_SHARE = 0.6  # minimum share of the part's previous rows
MIN_ROWS_FOR_SHARES = 5  # below this number, shares are not checked
MAX_JUMP_SHARE = 0.2  # maximum share of a part's rows with large changes; above, all rows are suspect
Code = Literal[
    "not above 0", "moved", "out of bounds", "two prices", "placeholder", "currency", "far fewer rows",
    "most prices moved", "failed", "unreachable", "clock",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """An implausible price or part, or a failure."""

    code: Code  # failed check
    what: str  # offer or part concerned
    message: str  # one-line description
    refuses: bool = False  # whether the whole part was rejected; otherwise one row was quarantined
    # sku, url: SKU and source of the price; None for a part
    sku: str | None = None
    url: str | None = None

    def __str__(self) -> str:
        return f"{self.what}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPart:
    """Result of the checks on a part."""

    # prices that may replace known ones; empty if the part was rejected
    accepted: tuple[tuple[ListedPrice, InstanceSpec], ...] = ()
    anomalies: tuple[Anomaly, ...] = ()  # findings on prices, or on the part
    left_out: frozenset[LeftOut] = frozenset()  # machines that the catalog lacks

    @property
    def refused(self) -> bool:
        """Whether the part was rejected, so that all of its old rows stay."""
        return any(anomaly.refuses for anomaly in self.anomalies)


def check_part(
    part: PricePart,
    listed: Sequence[ListedPrice],
    *,
    old: Mapping[OfferKey, Offer],
    specs: InstanceSpecs,
    accept_moves: bool = False,
    is_complete: bool = True,
) -> CheckedPart:
    """Check the rows of a part: return those that may replace known prices, and the findings on the others.

    Args:
        part, listed: Part that was read, and its rows.
        old: Previous prices by instance type, region and purchase option.
        specs: Instance types of the provider.
        accept_moves: Accept large price changes, after manual review.
        is_complete: Whether the provider's other regions should be listed too.
    """
    foreign = Counter(row.currency for row in listed if row.currency != "USD")
    if foreign:
        message = f"{foreign.total()} prices are in {', '.join(sorted(foreign))}, not in USD"
        return CheckedPart(anomalies=(_build_part_anomaly(part, "currency", message),))
    anomalies: list[Anomaly] = []
    fitting: list[tuple[ListedPrice, InstanceSpec]] = []
    found = {row: specs.find_instance_spec(row) for row in listed}
    left_out = frozenset(one for one in found.values() if isinstance(one, LeftOut))
    known = {row: one for row, one in found.items() if not isinstance(one, LeftOut)}
    rows = _drop_contradictions(known, anomalies)
    on_demand = {key[:2]: offer.usd_per_hour for key, offer in old.items() if key[2] == "on_demand"}
    on_demand |= {row.key[:2]: row.usd_per_hour for row in rows if row.purchase == "on_demand"}
    for row in rows:
        shape = known[row]
        why = _find_row_anomaly(row, shape, on_demand.get((row.instance_type, row.region)))
        if why is not None:
            anomalies.append(why)
        else:
            fitting.append((row, shape))
    jumps = (_find_price_jump(row, old.get(row.key)) for row, _ in fitting)
    moved = [] if accept_moves else [why for why in jumps if why]
    if listed and not is_complete:
        places = {row.region for row in listed}
        old = {key: offer for key, offer in old.items() if key[1] in places}
    refusal = _find_part_anomaly(part, fitting, moved, old)
    if refusal is not None:
        return CheckedPart(anomalies=(refusal, *anomalies, *moved), left_out=left_out)
    doubtful = {why.what for why in moved}
    accepted = tuple((row, shape) for row, shape in fitting if format_key(row.key) not in doubtful)
    return CheckedPart(accepted=accepted, anomalies=(*anomalies, *moved), left_out=left_out)


def _find_part_anomaly(
    part: PricePart,
    fitting: Sequence[tuple[ListedPrice, InstanceSpec]],
    moved: Sequence[Anomaly],
    old: Mapping[OfferKey, Offer],
) -> Anomaly | None:
    """Return the reason to reject a whole part; None if it is plausible."""
    before = [key for key, offer in find_on_sale(part, old) if not offer.estimated]
    known = sum(1 for row, _ in fitting if row.key in old and old[row.key].usd_per_hour)
    if len(before) >= MIN_ROWS_FOR_SHARES and len(fitting) < MIN_ROW_SHARE * len(before):
        message = f"{len(fitting)} prices instead of {len(before)}: the response is incomplete"
        return _build_part_anomaly(part, "far fewer rows", message)
    if len(moved) >= MIN_ROWS_FOR_SHARES and len(moved) > MAX_JUMP_SHARE * known:
        count = f"{len(moved)} of {known} prices"
        message = f"{count} moved more than {MAX_PRICE_RATIO}x: a unit or currency is wrong"
        return _build_part_anomaly(part, "most prices moved", message)
    return None


def find_on_sale(part: PricePart, offers: Mapping[OfferKey, Offer]) -> list[tuple[OfferKey, Offer]]:
    """Return the offers of a part that are on sale at a known price."""
    return [
        (key, offer)
        for key, offer in offers.items()
        if part.covers(key[1], key[2]) and offer.status in ("active", "legacy") and offer.usd_per_hour
    ]


def _drop_contradictions(listed: Iterable[ListedPrice], anomalies: list[Anomaly]) -> list[ListedPrice]:
    """Return one row per key; keys with different prices are dropped and reported."""
    by_key: dict[OfferKey, list[ListedPrice]] = {}
    for row in listed:
        by_key.setdefault(row.key, []).append(row)
    kept = []
    for rows in by_key.values():
        prices = sorted({row.usd_per_hour for row in rows})
        if len(prices) == 1:
            kept.append(rows[0])
        else:
            both = " and ".join(f"{price} USD/h" for price in prices[:3])
            anomalies.append(_build_row_anomaly(rows[0], "two prices", f"is listed at {both}"))
    return kept


def _find_row_anomaly(row: ListedPrice, shape: InstanceSpec, on_demand_usd: Decimal | None) -> Anomaly | None:
    """Return the finding on a single row; None if it is plausible."""
    if row.usd_per_hour <= 0:
        return _build_row_anomaly(row, "not above 0", f"costs {row.usd_per_hour} USD/h")
    per_device = row.usd_per_hour / Decimal(str(shape.devices))
    if not MIN_USD_PER_DEVICE_HOUR <= per_device <= MAX_USD_PER_DEVICE_HOUR:
        return _build_row_anomaly(row, "out of bounds", f"costs {per_device:.4g} USD per device and hour")
    if row.purchase == "spot" and on_demand_usd and is_exact_tenth(row.usd_per_hour, on_demand_usd):
        message = f"costs {row.usd_per_hour} USD/h, exactly a tenth of on demand: nothing is for sale"
        return _build_row_anomaly(row, "placeholder", message)
    return None


def is_exact_tenth(spot: Decimal, on_demand: Decimal) -> bool:
    """Return whether a spot price is a tenth of the on-demand price to its last digit.

    Feeds fill in a tenth, the lowest price that their vendor allows, where nothing is for sale.

    Example:
        >>> is_exact_tenth(Decimal("0.5733"), Decimal("5.73277")), is_exact_tenth(Decimal("0.61"), Decimal("6"))
        (True, False)
    """
    return (on_demand / 10).quantize(spot) == spot


def _find_price_jump(row: ListedPrice, old: Offer | None) -> Anomaly | None:
    """Return a finding if a price changed implausibly; None if it did not, or had no previous price."""
    if old is None or not old.usd_per_hour or old.estimated:
        return None
    if old.usd_per_hour / MAX_PRICE_RATIO <= row.usd_per_hour <= old.usd_per_hour * MAX_PRICE_RATIO:
        return None
    message = f"moved from {old.usd_per_hour} ({old.price_as_of}) to {row.usd_per_hour} USD/h"
    return _build_row_anomaly(row, "moved", message)


def _build_row_anomaly(row: ListedPrice, code: Code, message: str) -> Anomaly:
    return Anomaly(code=code, what=format_key(row.key), message=message, sku=row.sku or None, url=row.url)


def _build_part_anomaly(part: PricePart, code: Code, message: str) -> Anomaly:
    return Anomaly(code=code, what=part.label, message=message, refuses=True)


def format_key(key: OfferKey) -> str:
    """Format an offer's key for messages."""
    instance_type, region, purchase = key
    return f"{instance_type} {region} {purchase.replace('_', ' ')}"
