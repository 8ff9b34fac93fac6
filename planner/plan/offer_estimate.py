"""Estimate on one offer: time, bill and memory of the run, and comparison with other offers."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..estimate_document import SharedFacts, leave_out_unsaid
from ..records import Frozen, round_floats, to_plain
from ..units import SECONDS_PER_HOUR, Interval
from .bill import Bill, UnpricedRun
from .money import compute_price_nano, compute_rental_nano, nano_text

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from .comparison import Market, ScalingEfficiency
    from .question import OfferContext


MILLION = 1_000_000
OFFER_KEYS = (
    "provider", "instance_type", "accelerator", "devices", "hosts", "vcpus", "memory_gib", "region", "purchase",
    "usd_per_hour", "price_as_of", "price_source", "estimated", "complete", "status",
)  # fmt: skip
_get_offer_values = attrgetter(*OFFER_KEYS)


class OfferEstimate(UnpricedRun):
    """Estimate on one offer."""

    offer: Offer  # row of the catalog
    selected: OfferContext  # the row with its device and session limit
    bill: Bill | None  # itemized bill; None if the price or the run's time is unknown
    market: Market  # comparisons with the other offers
    # What decides: money, the user's hours and the wait at their values; None if unknown [USD]
    total_usd: float | None = None
    serving: ServingEstimate | None = None  # serving estimate; None for training

    @property
    def unbilled(self) -> tuple[str, ...]:
        """Items of a real bill whose price is unknown."""
        return self.fees.unknown

    @property
    def usd_per_1000_steps(self) -> str | None:
        """Central cost of 1,000 steps, without minimum charges, as text; None if unknown [USD]."""
        step_time_s, price = self.device_estimate.step_time_s, self.offer.usd_per_hour
        if step_time_s is None or price is None:
            return None
        price_nano = compute_price_nano(price)
        return nano_text(compute_rental_nano(duration_s=1000 * step_time_s.mid, price_nano=price_nano))

    @property
    def samples_per_s(self) -> Interval | None:
        """Throughput of all devices; None if the step time is unknown [1/s]."""
        return self.device_estimate.samples_per_s

    @property
    def usd_per_million_samples(self) -> Decimal | None:
        """Central cost of a million samples on a fully used machine; None if unknown [USD]."""
        return self._usd_per_million(self.samples_per_s)

    @property
    def usd_per_million_tokens(self) -> Decimal | None:
        """Central cost of a million tokens on a fully used machine; None for other models, or if unknown [USD]."""
        return self._usd_per_million(self.device_estimate.tokens_per_s)

    def _usd_per_million(self, per_s: Interval | None) -> Decimal | None:
        price = self.offer.usd_per_hour
        return None if per_s is None or price is None else usd_per_million(per_s=per_s.mid, usd_per_hour=price)

    @property
    def run_time_s(self) -> Interval | None:
        """Time of the whole run, from the first billed second to the last, waits included; None if unknown [s]."""
        return None if self.timeline is None else self.timeline.wall_s

    @property
    def sessions(self) -> int | None:
        """Number of sessions that the run takes, by its central estimate; None if its time is unknown [-]."""
        return None if self.timeline is None else self.timeline.sessions

    @property
    def saves_share(self) -> float | None:
        """Share saved against the same machine and region on demand; None if unknown [-]."""
        return None if self.bill is None else self.market.saves_share(self.offer, self.bill)

    @property
    def scaling(self) -> ScalingEfficiency | None:
        """Speedup of several devices over one; None for one device, or if one is not offered."""
        return self.market.scaling(self.offer, self.device_estimate)

    @property
    def energy_kwh(self) -> Interval | None:
        """Energy of the run; None if unknown [kWh]."""
        return self.market.energy_kwh(self.selected, self.timeline)

    @property
    def co2_kg(self) -> Interval | None:
        """Carbon dioxide of the run; None if unknown [kg]."""
        return self.market.co2_kg(self.offer, self.energy_kwh)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on time and offer, as sentences."""
        return (*self.device_estimate.notes, *self._list_compared_notes(), *self._list_own_notes())

    def _list_compared_notes(self) -> list[str]:
        """Return the notes that compare: several devices with one, spot with on demand."""
        forecast, scaling = self.preemption_forecast, self.scaling
        spot = forecast and forecast.format_note(self.saves_share)
        return [note for note in (scaling and scaling.note, spot) if note]

    def _list_own_notes(self) -> list[str]:
        """Return the notes on the offer alone, without comparisons with other offers."""
        sessions, quota = self.sessions or 1, self.selected.quota
        own = (
            self.market.starved(self.selected, self.device_estimate),
            f"sessions are limited: this run takes {sessions}" if sessions > 1 else "",
            "" if quota is None or quota.state == "enough" else quota.why,
            self.offer.note,
        )
        return [note for note in own if note]

    def to_json(self, *, breakdown: bool = False) -> dict[str, Any]:
        """Return an entry of `offers[]` and its devices in full; a breakdown adds bill, spot and scaling."""
        shared = self.device_estimate.shared_json
        return {
            **self._offer_json(),
            **shared,
            **self._run_json(Interval.to_json),
            **(self._breakdown_json() if breakdown else {}),
            "usd_per_1000_steps": self.usd_per_1000_steps,
            "notes": list(self.notes) if breakdown else [*shared["notes"], *self._list_own_notes()],
        }

    def entry_json(self, facts: SharedFacts, *, breakdown: bool = False, spot: bool = False) -> dict[str, Any]:
        """Return the entry of `offers[]` in a document, whose facts get its devices and the source of its price.

        With a breakdown it has itemized bill, forecast of preemptions and comparison with one device.
        """
        offer, estimate = self.offer, self.device_estimate
        entry = {
            **round_floats(self._offer_json()),
            "price_source": facts.name_source(offer.price_source, provider=offer.provider),
            "device": facts.place_devices(
                estimate.entry_json, accelerator=offer.accelerator, devices=offer.devices
            ),
            **estimate.own_json,
            **self._run_json(facts.round),
            **(round_floats(self._breakdown_json()) if breakdown else {}),
            **({"spot": round_floats(self._spot_json())} if spot and self.preemption_forecast else {}),
            "notes": self._list_compared_notes() + self._list_own_notes() if breakdown else self._list_own_notes(),
        }
        return leave_out_unsaid(entry)

    def _offer_json(self) -> dict[str, Any]:
        price = self.offer.usd_per_hour
        return {
            **dict(zip(OFFER_KEYS, _get_offer_values(self.offer), strict=True)),
            "usd_per_hour": None if price is None else format(price, "f"),
            "quota": to_plain(self.selected.quota),
            "availability": self.selected.availability,
        }

    def _run_json(self, to_json: Callable[[Interval], dict[str, float]]) -> dict[str, Any]:
        bill, run_time_s, energy = self.bill, self.run_time_s, self.energy_kwh
        co2, per_million = self.market.co2_kg(self.offer, energy), self.usd_per_million_tokens
        return {
            "run_time_s": run_time_s and to_json(run_time_s),
            "cost_usd": bill.total_json() if bill else None,
            "total_usd": None if self.total_usd is None else f"{self.total_usd:.6f}",
            "unbilled": list(self.unbilled),
            "usd_per_million_tokens": None if per_million is None else format(per_million, "f"),
            "serving": self.serving and self.serving.to_json(to_json),
            "energy_kwh": energy and to_json(energy),
            "co2_kg": co2 and to_json(co2),
            "sessions": self.sessions,
        }

    def _breakdown_json(self) -> dict[str, Any]:
        return {
            "bill": [line.to_json() for line in self.bill.lines] if self.bill else [],
            "spot": self._spot_json(),
            "scaling": to_plain(self.scaling),
            "usd_per_1000_steps": self.usd_per_1000_steps,
        }

    def _spot_json(self) -> dict[str, Any] | None:
        price, forecast = self.offer.usd_per_hour, self.preemption_forecast
        if forecast is None:
            return None
        return forecast.to_json(None if price is None else float(price), saves_share=self.saves_share)


class ServingEstimate(Frozen):
    """Latency, throughput and cost of a fully used machine that serves predictions."""

    latency_s: Interval | None  # time of one prediction at batch size 1 on one device; None if unknown [s]
    per_s: Interval  # throughput of all devices at the workload's batch size [1/s]
    usd_per_million: Decimal | None  # cost of a million predictions at that rate; None without a price [USD]

    def to_json(self, to_json: Callable[[Interval], dict[str, float]]) -> dict[str, Any]:
        """Return the entry `offers[].serving`."""
        return {
            "latency_s": self.latency_s and to_json(self.latency_s),
            "predictions_per_s": to_json(self.per_s),
            "usd_per_million_predictions": to_plain(self.usd_per_million),
        }


def usd_per_million(*, per_s: float, usd_per_hour: Decimal) -> Decimal:
    """Return the cost of a million samples or tokens on a fully used machine: 1e6 / rate / 3600 x price [USD].

    Example:
        >>> usd_per_million(per_s=1000.0, usd_per_hour=Decimal("0.36"))
        Decimal('0.100000000')
    """
    usd = Decimal(MILLION / per_s / SECONDS_PER_HOUR) * usd_per_hour
    return usd.quantize(Decimal("1e-9"))
