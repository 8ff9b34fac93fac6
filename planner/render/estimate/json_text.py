"""Offers as JSON text, with text shared by many offers formatted once.

An answer has thousands of offers on about a hundred machines; serializing the objects would take longer than
computing them. The text equals that of `to_json` (tested for all offers).
"""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from ...plan.pricing.money import NANO, nano_text
from ..output import format_compact_json

if TYPE_CHECKING:
    from ...offers.rows import Offer
    from ...plan.pricing.bill import Bill, CostBasis
    from ...plan.result.device_estimate import DeviceEstimate
    from ...plan.result.offer_estimate import OfferEstimate
    from ...plan.result.scaling_efficiency import ScalingEfficiency
    from ...plan.spot.preemption import PreemptionForecast
    from ...units import Interval

__all__ = ["OfferJsonWriter"]

PLACEHOLDER = "\0"  # placeholder of an amount; does not occur in JSON text
WORDS = {None: "null", False: "false", True: "true"}


class _StringCache(dict[str | None, str]):
    """Cache of strings as JSON."""

    def __missing__(self, text: str | None) -> str:
        written = self[text] = "null" if text is None else encode_basestring(text)
        return written


class _NumberCache(dict[float | None, str]):
    """Cache of floats as JSON; integers are excluded, since 1 and 1.0 are the same key."""

    def __missing__(self, value: float | None) -> str:
        written = self[value] = "null" if value is None else repr(value)
        return written


class OfferJsonWriter:
    """JSON writer for the offers of one answer."""

    def __init__(self) -> None:
        # by id; the object is kept, so that its id is not reused
        self._of_object: dict[int, tuple[object, str]] = {}
        self._strings, self._numbers = _StringCache(), _NumberCache()
        self._templates: dict[tuple[int, int], tuple[CostBasis, DeviceEstimate, str]] = {}

    def of(self, one: OfferEstimate) -> str:
        """Return the entry of an offer in `offers[]`."""
        offer, energy = one.offer, one.energy_kwh
        scaling, outlook = one.scaling, one.outlook
        saves = None if outlook is None else one.saves_share
        loses = None if outlook is None else (outlook.loses if saves is None else saves <= 0.0)
        co2 = one.co2_of(energy)
        interrupted = None if outlook is None else outlook.note_at(saves, loses=loses)
        return (
            f'{{{self._offer(offer)}, {self._run(one)}, "scaling": {_format_scaling(scaling)}, '
            f'"serving": {_format_optional(one.serving)}, "best_batch": {_format_optional(one.best_batch)}, '
            f'"energy_kwh": {self._interval(energy)}, "co2_kg": {_format_bounds(co2)}, '
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
            f'"usd_per_hour": {_format_decimal(offer.usd_per_hour)}, "price_as_of": {string[offer.price_as_of]}, '
            f'"price_source": {string[offer.price_source]}, "estimated": {WORDS[offer.estimated]}, '
            f'"complete": {WORDS[offer.complete]}, "status": {string[offer.status]}'
        )

    def _run(self, one: OfferEstimate) -> str:
        """Return the fields of time and cost; only amounts differ between equal rentals."""
        bill, per_1000 = one.bill, one.nano_per_1000_steps
        if bill is not None and per_1000 is not None and bill.rental.is_plain:
            amounts = [*bill.nano, *bill.mid_phases_nano(), per_1000]
            if min(amounts) >= 0:
                places = tuple([part for amount in amounts for part in divmod(amount, NANO)])
                return self._template(one, bill.rental) % places
        return self._run_text(one, _format_cost(bill), _format_lines(bill), _format_money(per_1000))

    def _template(self, one: OfferEstimate, rental: CostBasis) -> str:
        """Return the text of a run with placeholders for the amounts of cost, bill and 1000 steps."""
        key = (id(rental), id(one.projection))
        known = self._templates.get(key)
        if known is None:
            known = self._templates[key] = (rental, one.projection, self._new_template(one, rental))
        return known[-1]

    def _new_template(self, one: OfferEstimate, rental: CostBasis) -> str:
        cost = f'{{"low": "{PLACEHOLDER}", "mid": "{PLACEHOLDER}", "high": "{PLACEHOLDER}"}}'
        phases = [
            f'{{"item": {encode_basestring(item)}, "usd": "{PLACEHOLDER}"}}' for item in rental.mid_times[0]
        ]
        lines = ", ".join([*phases, *map(format_compact_json, rental.fixed_json)])
        text = self._run_text(one, cost, f"[{lines}]", f'"{PLACEHOLDER}"')
        return text.replace("%", "%%").replace(PLACEHOLDER, "%d.%09d")

    def _run_text(self, one: OfferEstimate, cost: str, lines: str, per_1000: str) -> str:
        return (
            f'{self._shared(one.projection.shared_json)[1:-1]}, "run_time_s": {self._interval(one.run_time_s)}, '
            f'"cost_usd": {cost}, "bill": {lines}, "unbilled": {self._shared(one.unbilled)}, '
            f'"usd_per_1000_steps": {per_1000}'
        )

    def _notes(self, one: OfferEstimate, own: list[str]) -> str:
        """Return the notes shared by an offer's devices, then its own."""
        common = self._shared(one.projection.notes)
        if not own:
            return common
        texts = ", ".join([encode_basestring(note) for note in own])
        return f"{common[:-1]}, {texts}]" if one.projection.notes else f"[{texts}]"

    def _spot(
        self, outlook: PreemptionForecast, offer: Offer, saves: float | None, loses: bool | None
    ) -> str:
        price = None if offer.usd_per_hour is None else float(offer.usd_per_hour)
        cost = outlook.cost_usd(price)
        usd = "null" if cost is None else f'{{"expected": "{cost["expected"]}", "p90": "{cost["p90"]}"}}'
        return (
            f'{self._shared(outlook.price_free_json)[:-1]}, "cost_usd": {usd}, '
            f'"loses_to_on_demand": {WORDS[loses]}, "saves_share": {"null" if saves is None else repr(saves)}}}'
        )

    def _interval(self, interval: Interval | None) -> str:
        """Return an interval that offers share, cached."""
        if interval is None:
            return "null"
        known = self._of_object.get(id(interval))
        if known is None:
            known = self._of_object[id(interval)] = (interval, format_compact_json(interval.to_json()))
        return known[1]

    def _shared(self, value: object) -> str:
        """Return the text of an object that offers share, cached."""
        known = self._of_object.get(id(value))
        if known is None:
            known = self._of_object[id(value)] = (value, format_compact_json(value))
        return known[1]


def _format_decimal(value: object) -> str:
    return "null" if value is None else f'"{value:f}"'


def _format_bounds(interval: Interval | None) -> str:
    if interval is None:
        return "null"
    return f'{{"low": {interval.low!r}, "mid": {interval.mid!r}, "high": {interval.high!r}}}'


def _format_money(nano: int | None) -> str:
    return "null" if nano is None else f'"{nano_text(nano)}"'


def _format_cost(bill: Bill | None) -> str:
    return "null" if bill is None else format_compact_json(bill.total_json())


def _format_lines(bill: Bill | None) -> str:
    return "[]" if bill is None else format_compact_json(bill.lines_json())


def _format_scaling(scaling: ScalingEfficiency | None) -> str:
    if scaling is None:
        return "null"
    ratio = "null" if scaling.cost_ratio is None else repr(scaling.cost_ratio)
    return (
        f'{{"devices": {scaling.devices!r}, "speedup": {scaling.speedup!r}, '
        f'"efficiency": {scaling.efficiency!r}, "cost_ratio": {ratio}}}'
    )


def _format_optional(value: Any) -> str:
    """Return the text of an object that belongs to one offer, or null."""
    return "null" if value is None else format_compact_json(value.to_json())
