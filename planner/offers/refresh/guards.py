"""What keeps a bad answer from replacing good prices. Pure: rows in, rows and findings out.

A finding about a row quarantines the row: it is told, and the old price stays. A finding about a part refuses the
part: all of its old prices stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from ..laws import MAX_USD_PER_DEVICE_HOUR, MIN_USD_PER_DEVICE_HOUR
from ..rows import Offer
from .shapes import Shape, Shapes
from .source import Listed, Part

__all__ = ["Guarded", "Suspicion", "guard"]

LARGEST_MOVE = 3  # times up or down; more is a slipped unit far more often than news
FEWEST_SHARE = 0.6  # of the rows that the part had before
FEW_ROWS = 5  # below so many, a share says nothing
MOST_MOVED_SHARE = 0.2  # of the rows of a part; more is a mistake in all of them
Key = tuple[str, str, str]
Code = Literal[
    "not above 0", "moved", "unknown accelerator", "out of bounds", "two prices", "currency", "far fewer rows",
    "most prices moved", "failed", "clock",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """Something that was not believed.

    Args:
        code: Which guard.
        what: The offer or the part.
        message: One line.
        refuses: Whether the whole part was refused; else one row was quarantined.
        sku, url: Where it was read.
    """

    code: Code
    what: str
    message: str
    refuses: bool = False
    sku: str = ""
    url: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """What is left of a part. ``accepted`` is empty when it was refused."""

    accepted: tuple[tuple[Listed, Shape], ...] = ()
    suspicions: tuple[Suspicion, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether the old rows of the part stay, all of them."""
        return any(suspicion.refuses for suspicion in self.suspicions)


def guard(
    part: Part,
    listed: Sequence[Listed],
    *,
    old: Mapping[Key, Offer],
    shapes: Shapes,
    accept_moves: bool = False,
) -> Guarded:
    """Return the rows of a part that may replace what was known, and what is wrong with the others.

    Args:
        part: What was read.
        listed: Its rows, as the vendor lists them.
        old: Prices until now, by instance type, region and purchase option.
        shapes: What the provider's machines are made of.
        accept_moves: Take prices that moved a lot: somebody has looked at them.
    """
    foreign = Counter(row.currency for row in listed if row.currency != "USD")
    if foreign:
        message = f"{foreign.total()} prices are in {', '.join(sorted(foreign))}, not in USD"
        return Guarded(suspicions=(_refusal(part, "currency", message),))
    suspicions: list[Suspicion] = []
    fitting: list[tuple[Listed, Shape]] = []
    for row in _without_contradictions(filter(shapes.is_of_interest, listed), suspicions):
        shape = shapes.shape_of(row)
        why = _why_not(row, shape)
        if why is not None:
            suspicions.append(why)
        elif shape is not None:
            fitting.append((row, shape))
    moved = [] if accept_moves else [why for row, _ in fitting if (why := _moved(row, old.get(row.key)))]
    refusal = _refused_as_a_whole(part, fitting, moved, old)
    if refusal is not None:
        return Guarded(suspicions=(refusal, *suspicions, *moved))
    doubtful = {why.what for why in moved}
    accepted = tuple((row, shape) for row, shape in fitting if _name(row.key) not in doubtful)
    return Guarded(accepted=accepted, suspicions=(*suspicions, *moved))


def _refused_as_a_whole(
    part: Part,
    fitting: Sequence[tuple[Listed, Shape]],
    moved: Sequence[Suspicion],
    old: Mapping[Key, Offer],
) -> Suspicion | None:
    """Return why a part cannot be right as a whole; None when it can."""
    before = [
        key for key, offer in old.items()
        if part.covers(key[1], key[2]) and offer.status in ("active", "legacy")
        and offer.usd_per_hour and not offer.estimated
    ]  # fmt: skip
    known = sum(1 for row, _ in fitting if row.key in old and old[row.key].usd_per_hour)
    if len(before) >= FEW_ROWS and len(fitting) < FEWEST_SHARE * len(before):
        message = f"{len(fitting)} prices where there were {len(before)}: the answer is not whole"
        return _refusal(part, "far fewer rows", message)
    if len(moved) >= FEW_ROWS and len(moved) > MOST_MOVED_SHARE * known:
        message = (
            f"{len(moved)} of {known} prices moved more than {LARGEST_MOVE}x: a unit or currency is wrong"
        )
        return _refusal(part, "most prices moved", message)
    return None


def _without_contradictions(listed: Iterable[Listed], suspicions: list[Suspicion]) -> list[Listed]:
    """Return one row a key; a key with two prices is left out and told."""
    by_key: dict[Key, list[Listed]] = {}
    for row in listed:
        by_key.setdefault(row.key, []).append(row)
    kept = []
    for rows in by_key.values():
        prices = sorted({row.usd_per_hour for row in rows})
        if len(prices) == 1:
            kept.append(rows[0])
        else:
            told = " and ".join(f"{price} USD/h" for price in prices[:3])
            suspicions.append(_suspicion(rows[0], "two prices", f"is listed at {told}"))
    return kept


def _why_not(row: Listed, shape: Shape | None) -> Suspicion | None:
    """Return what is wrong with a row by itself; None when nothing is."""
    if row.usd_per_hour <= 0:
        return _suspicion(row, "not above 0", f"costs {row.usd_per_hour} USD/h")
    if shape is None:
        named = f" `{row.accelerator}`" if row.accelerator else ""
        return _suspicion(
            row, "unknown accelerator", f"has an accelerator{named} that the catalog does not know"
        )
    per_device = row.usd_per_hour / Decimal(str(shape.devices))
    if not MIN_USD_PER_DEVICE_HOUR <= per_device <= MAX_USD_PER_DEVICE_HOUR:
        return _suspicion(row, "out of bounds", f"costs {per_device:.4g} USD per device and hour")
    return None


def _moved(row: Listed, old: Offer | None) -> Suspicion | None:
    """Return that a price moved too far to be believed; None when it did not, or there was none."""
    if old is None or not old.usd_per_hour or old.estimated:
        return None
    if old.usd_per_hour / LARGEST_MOVE <= row.usd_per_hour <= old.usd_per_hour * LARGEST_MOVE:
        return None
    message = f"moved from {old.usd_per_hour} ({old.price_as_of}) to {row.usd_per_hour} USD/h"
    return _suspicion(row, "moved", message)


def _suspicion(row: Listed, code: Code, message: str) -> Suspicion:
    return Suspicion(code=code, what=_name(row.key), message=message, sku=row.sku, url=row.url)


def _refusal(part: Part, code: Code, message: str) -> Suspicion:
    return Suspicion(code=code, what=part.label, message=message, refuses=True)


def _name(key: Key) -> str:
    """Return what a person calls an offer."""
    instance_type, region, purchase = key
    return f"{instance_type} {region} {purchase.replace('_', ' ')}"
