"""Offers as JSON text: what `to_json` of each says, with what many of them share written once.

An answer has thousands of offers of some hundred machines; as objects they take longer to write than to work out.
The text of every offer is that of its `to_json` (a test compares them all).
"""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from ..plan.nano import NANO, nano_text
from .output import compact_json

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from ..plan.bill import Bill, Rental
    from ..plan.offer_estimate import OfferEstimate
    from ..plan.projection import Projection
    from ..plan.scaling_note import Scaling
    from ..plan.spot_outlook import SpotOutlook
    from ..units import Interval

__all__ = ["OfferTexts"]

AMOUNT = "\0"  # where an amount is to be written: no JSON has it in its text
WORDS = {None: "null", False: "false", True: "true"}


class _Strings(dict[str | None, str]):
    """Texts as JSON, each worked out once."""

    def __missing__(self, text: str | None) -> str:
        written = self[text] = "null" if text is None else encode_basestring(text)
        return written


class _Numbers(dict[float | None, str]):
    """Numbers as JSON, likewise; all of them with a point, since 1 and 1.0 are the same key."""

    def __missing__(self, value: float | None) -> str:
        written = self[value] = "null" if value is None else repr(value)
        return written


class OfferTexts:
    """Writes the offers of one answer."""

    def __init__(self) -> None:
        # by id, with what has it, so that the id stays its own
        self._of_object: dict[int, tuple[object, str]] = {}
        self._strings, self._numbers = _Strings(), _Numbers()
        self._templates: dict[tuple[int, int], tuple[Rental, Projection, str]] = {}

    def of(self, one: OfferEstimate) -> str:
        """Return `offers[]`'s entry of an offer."""
        offer, energy = one.offer, one.energy_kwh
        scaling, outlook = one.scaling, one.outlook
        saves = None if outlook is None else one.market.saves_share(one)
        loses = None if outlook is None else (outlook.loses if saves is None else saves <= 0.0)
        co2 = one.co2_of(energy)
        interrupted = None if outlook is None else outlook.note_at(saves, loses=loses)
        return (
            f'{{{self._offer(offer)}, {self._run(one)}, "scaling": {_scaling(scaling)}, '
            f'"serving": {_own(one.serving)}, "best_batch": {_own(one.best_batch)}, '
            f'"energy_kwh": {self._interval(energy)}, "co2_kg": {_bounds(co2)}, '
            f'"sessions": {"null" if one.sessions is None else one.sessions}, '
            f'"spot": {"null" if outlook is None else self._spot(outlook, offer, saves, loses)}, '
            f'"notes": {self._notes(one, one.own_notes(interrupted, scaling))}}}'
        )

    def _offer(self, offer: Offer) -> str:
        string, number = self._strings, self._numbers
        return (
            f'"provider": {string[offer.provider]}, "instance_type": {string[offer.instance_type]}, '
            f'"accelerator": {string[offer.accelerator]}, "devices": {offer.devices!r}, "hosts": {offer.hosts}, '
            f'"vcpus": {number[offer.vcpus]}, "memory_gib": {number[offer.memory_gib]}, '
            f'"region": {string[offer.region]}, "purchase": {string[offer.purchase]}, '
            f'"usd_per_hour": {_decimal(offer.usd_per_hour)}, "price_as_of": {string[offer.price_as_of]}, '
            f'"price_source": {string[offer.price_source]}, "estimated": {WORDS[offer.estimated]}, '
            f'"complete": {WORDS[offer.complete]}, "status": {string[offer.status]}'
        )

    def _run(self, one: OfferEstimate) -> str:
        """Return what a run takes and costs: all but the amounts is the same wherever it is rented so."""
        bill, per_1000 = one.bill, one.nano_per_1000_steps
        if bill is not None and per_1000 is not None and bill.rental.is_plain:
            amounts = [*bill.nano, *bill.mid_phases_nano(), per_1000]
            if min(amounts) >= 0:
                places = tuple([part for amount in amounts for part in divmod(amount, NANO)])
                return self._template(one, bill.rental) % places
        return self._run_text(one, _cost(bill), _lines(bill), _money(per_1000))

    def _template(self, one: OfferEstimate, rental: Rental) -> str:
        """Return the text of a run with places for dollars and nano-dollars: of its cost, bill and 1000 steps."""
        key = (id(rental), id(one.projection))
        known = self._templates.get(key)
        if known is None:
            known = self._templates[key] = (rental, one.projection, self._new_template(one, rental))
        return known[-1]

    def _new_template(self, one: OfferEstimate, rental: Rental) -> str:
        cost = f'{{"low": "{AMOUNT}", "mid": "{AMOUNT}", "high": "{AMOUNT}"}}'
        phases = [f'{{"item": {encode_basestring(item)}, "usd": "{AMOUNT}"}}' for item in rental.mid_times[0]]
        lines = ", ".join([*phases, *map(compact_json, rental.fixed_json)])
        text = self._run_text(one, cost, f"[{lines}]", f'"{AMOUNT}"')
        return text.replace("%", "%%").replace(AMOUNT, "%d.%09d")

    def _run_text(self, one: OfferEstimate, cost: str, lines: str, per_1000: str) -> str:
        return (
            f'{self._shared(one.projection.shared_json)[1:-1]}, "run_time_s": {self._interval(one.run_time_s)}, '
            f'"cost_usd": {cost}, "bill": {lines}, "unbilled": {self._shared(one.unbilled)}, '
            f'"usd_per_1000_steps": {per_1000}'
        )

    def _notes(self, one: OfferEstimate, own: list[str]) -> str:
        """Return the notes of an offer's devices, and its own after them."""
        common = self._shared(one.projection.notes)
        if not own:
            return common
        texts = ", ".join([encode_basestring(note) for note in own])
        return f"{common[:-1]}, {texts}]" if one.projection.notes else f"[{texts}]"

    def _spot(self, outlook: SpotOutlook, offer: Offer, saves: float | None, loses: bool | None) -> str:
        price = None if offer.usd_per_hour is None else float(offer.usd_per_hour)
        cost = outlook.cost_usd(price)
        usd = "null" if cost is None else f'{{"expected": "{cost["expected"]}", "p90": "{cost["p90"]}"}}'
        return (
            f'{self._shared(outlook.price_free_json)[:-1]}, "cost_usd": {usd}, '
            f'"loses_to_on_demand": {WORDS[loses]}, "saves_share": {"null" if saves is None else repr(saves)}}}'
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


def _decimal(value: object) -> str:
    return "null" if value is None else f'"{value:f}"'


def _bounds(interval: Interval | None) -> str:
    if interval is None:
        return "null"
    return f'{{"low": {interval.low!r}, "mid": {interval.mid!r}, "high": {interval.high!r}}}'


def _money(nano: int | None) -> str:
    return "null" if nano is None else f'"{nano_text(nano)}"'


def _cost(bill: Bill | None) -> str:
    return "null" if bill is None else compact_json(bill.total_json())


def _lines(bill: Bill | None) -> str:
    return "[]" if bill is None else compact_json(bill.lines_json())


def _scaling(scaling: Scaling | None) -> str:
    if scaling is None:
        return "null"
    ratio = "null" if scaling.cost_ratio is None else repr(scaling.cost_ratio)
    return (
        f'{{"devices": {scaling.devices!r}, "speedup": {scaling.speedup!r}, '
        f'"efficiency": {scaling.efficiency!r}, "cost_ratio": {ratio}}}'
    )


def _own(value: Any) -> str:
    """Return what an offer has for itself, or null."""
    return "null" if value is None else compact_json(value.to_json())
