"""Offers as JSON text: what `to_json` of each says, with what many of them share written once.

An answer has thousands of offers of some hundred machines; as objects they take longer to write than to work out.
The text of every offer is that of its `to_json` (a test compares them all).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..plan.bill import nano_text
from .output import compact_json

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from ..plan.bill import Bill, Rental
    from ..plan.result import OfferEstimate
    from ..plan.spot_outlook import SpotOutlook
    from ..units import Interval

__all__ = ["OfferTexts"]

NANO = 10**9


class OfferTexts:
    """Writes the offers of one answer."""

    def __init__(self) -> None:
        # by id, with what has it, so that the id stays its own
        self._of_object: dict[int, tuple[object, str]] = {}
        self._of_text: dict[str | None, str] = {}
        self._heads: dict[int, tuple[Rental, list[str], str]] = {}

    def of(self, one: OfferEstimate) -> str:
        """Return `offers[]`'s entry of an offer."""
        offer, bill, run_time_s, energy = one.offer, one.bill, one.run_time_s, one.energy_kwh
        scaling, outlook = one.scaling, one.outlook
        saves = None if outlook is None else one.market.saves_share(one)
        loses = None if outlook is None else (outlook.loses if saves is None else saves <= 0.0)
        co2 = one.co2_of(energy)
        notes = one.notes_of(None if outlook is None else outlook.note_at(saves, loses=loses), scaling)
        return (
            f"{{{self._offer(offer)}, {self._shared(one.projection.shared_json)[1:-1]}, "
            f'"run_time_s": {self._interval(run_time_s)}, '
            f'"cost_usd": {_cost(bill)}, "bill": {self._bill(bill)}, '
            f'"unbilled": {self._shared(one.unbilled)}, "usd_per_1000_steps": {_decimal(one.usd_per_1000_steps)}, '
            f'"scaling": {_fresh(scaling)}, "serving": {_fresh(one.serving)}, '
            f'"best_batch": {_fresh(one.best_batch)}, "energy_kwh": {self._interval(energy)}, '
            f'"co2_kg": {_bounds(co2)}, "sessions": {_plain(one.sessions)}, '
            f'"spot": {self._spot(outlook, offer, saves, loses)}, '
            f'"notes": [{", ".join([self._string(note) for note in notes])}]}}'
        )

    def _offer(self, offer: Offer) -> str:
        string = self._string
        return (
            f'"provider": {string(offer.provider)}, "instance_type": {string(offer.instance_type)}, '
            f'"accelerator": {string(offer.accelerator)}, "devices": {_plain(offer.devices)}, '
            f'"hosts": {offer.hosts}, "vcpus": {_plain(offer.vcpus)}, "memory_gib": {_plain(offer.memory_gib)}, '
            f'"region": {string(offer.region)}, "purchase": {string(offer.purchase)}, '
            f'"usd_per_hour": {_decimal(offer.usd_per_hour)}, "price_as_of": {string(offer.price_as_of)}, '
            f'"price_source": {string(offer.price_source)}, "estimated": {_plain(offer.estimated)}, '
            f'"complete": {_plain(offer.complete)}, "status": {string(offer.status)}'
        )

    def _bill(self, bill: Bill | None) -> str:
        """Return the lines of a bill: what stands before each amount is the same for all of its rental."""
        if bill is None:
            return "[]"
        rental = bill.rental
        if not rental.is_plain:
            return compact_json(bill.lines_json())
        known = self._heads.get(id(rental))
        if known is None:
            heads = [
                f'{{"item": {json.dumps(item, ensure_ascii=False)}, "usd": "' for item in rental.mid_times[0]
            ]
            fixed = "".join(f", {compact_json(line)}" for line in rental.fixed_json)
            known = self._heads[id(rental)] = (rental, heads, fixed)
        _, heads, fixed = known
        lines = [
            f'{head}{nano // NANO}.{nano % NANO:09d}"}}' if nano >= 0 else f'{head}{nano_text(nano)}"}}'
            for head, nano in zip(heads, bill.mid_phases_nano(), strict=True)
        ]
        return f"[{', '.join(lines)}{fixed}]"

    def _spot(
        self, outlook: SpotOutlook | None, offer: Offer, saves: float | None, loses: bool | None
    ) -> str:
        if outlook is None:
            return "null"
        price = None if offer.usd_per_hour is None else float(offer.usd_per_hour)
        cost = outlook.cost_usd(price)
        usd = "null" if cost is None else f'{{"expected": "{cost["expected"]}", "p90": "{cost["p90"]}"}}'
        return (
            f'{self._shared(outlook.price_free_json)[:-1]}, "cost_usd": {usd}, '
            f'"loses_to_on_demand": {_plain(loses)}, "saves_share": {_plain(saves)}}}'
        )

    def _interval(self, interval: Interval | None) -> str:
        """Return an interval that offers share."""
        if interval is None:
            return "null"
        known = self._of_object.get(id(interval))
        if known is None:
            known = self._of_object[id(interval)] = (interval, compact_json(interval.to_json()))
        return known[1]

    def _shared(self, value: object) -> str:
        """Return something that offers share."""
        known = self._of_object.get(id(value))
        if known is None:
            known = self._of_object[id(value)] = (value, compact_json(value))
        return known[1]

    def _string(self, text: str | None) -> str:
        known = self._of_text.get(text)
        if known is None:
            known = self._of_text[text] = json.dumps(text, ensure_ascii=False)
        return known


def _plain(value: float | bool | None) -> str:
    """Return a number, yes or no, or unknown."""
    if value is None:
        return "null"
    return ("false", "true")[value] if isinstance(value, bool) else repr(value)


def _decimal(value: object) -> str:
    return "null" if value is None else f'"{value:f}"'


def _bounds(interval: Interval | None) -> str:
    if interval is None:
        return "null"
    return f'{{"low": {interval.low!r}, "mid": {interval.mid!r}, "high": {interval.high!r}}}'


def _cost(bill: Bill | None) -> str:
    if bill is None:
        return "null"
    low, mid, high = bill.nano
    return f'{{"low": "{nano_text(low)}", "mid": "{nano_text(mid)}", "high": "{nano_text(high)}"}}'


def _fresh(value: Any) -> str:
    """Return what an offer has for itself, or null."""
    return "null" if value is None else compact_json(value.to_json())
