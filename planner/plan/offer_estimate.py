"""Estimate on one offer: time, bill and memory of the run, and comparison with other offers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..records import to_plain
from ..units import SECONDS_PER_HOUR, Interval
from .bill import Bill
from .comparison import co2_kg
from .device_estimate import DeviceEstimate
from .money import compute_price_nano, compute_rental_nano, nano_text
from .timeline import Timeline

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from ..workload.model import Workload
    from .comparison import Market, ScalingEfficiency
    from .preemption import PreemptionForecast
    from .select import OfferContext


MILLION = 1_000_000
OFFER_KEYS = (
    "provider", "instance_type", "accelerator", "devices", "hosts", "vcpus", "memory_gib", "region", "purchase",
    "usd_per_hour", "price_as_of", "price_source", "estimated", "complete", "status",
)  # fmt: skip
_get_offer_values = attrgetter(*OFFER_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferEstimate:
    """Estimate on one offer.

    Args:
        offer: Row of the catalog.
        selected: The row with its device and session limit.
        device_estimate: Estimate shared by all offers of the same devices.
        timeline: Timeline of the run; None if the step time is unknown.
        bill: Itemized bill; None if the price or the run's time is unknown.
        unbilled: Items of a real bill whose price is unknown.
        preemption_forecast: Forecast of preemptions; None on demand, or if the run's time is unknown.
        market: Comparisons with the other offers.
        own_h: The user's hours; 0 if the run's time is unknown [h].
        total_usd: What decides: money, the user's hours and the wait at their values; None if unknown [USD].
        serving: Serving estimate; None for training.
        best_batch: The run at the largest batch that fits; None if not requested, or if the user's own is best.
    """

    offer: Offer
    selected: OfferContext
    device_estimate: DeviceEstimate
    timeline: Timeline | None
    bill: Bill | None
    unbilled: tuple[str, ...]
    preemption_forecast: PreemptionForecast | None
    market: Market = field(repr=False, compare=False)
    own_h: float = 0.0
    total_usd: float | None = None
    serving: ServingEstimate | None = None
    best_batch: BestBatch | None = None

    @property
    def nano_per_1000_steps(self) -> int | None:
        """Central cost of 1,000 steps, without minimum charges; None if unknown [1e-9 USD]."""
        step_time_s, price = self.device_estimate.step_time_s, self.offer.usd_per_hour
        if step_time_s is None or price is None:
            return None
        return compute_rental_nano(duration_s=1000 * step_time_s.mid, price_nano=compute_price_nano(price))

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
    def is_free(self) -> bool:
        """Whether the offer is free: a free notebook, or this machine."""
        return self.offer.usd_per_hour == 0

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
        return self.co2_of(self.energy_kwh)

    def co2_of(self, energy: Interval | None) -> Interval | None:
        """Return the carbon dioxide of some energy in the offer's region; None if unknown [kg]."""
        if energy is None:
            return None
        g_co2_per_kwh = self.market.terms.g_co2_per_kwh(self.offer.provider, self.offer.region)
        return None if g_co2_per_kwh is None else co2_kg(energy, g_co2_per_kwh=g_co2_per_kwh)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on time and offer, as sentences."""
        forecast = self.preemption_forecast
        return self.notes_of(None if forecast is None else forecast.format_note(self.saves_share), self.scaling)

    def notes_of(self, spot: str | None, scaling: ScalingEfficiency | None) -> tuple[str, ...]:
        """Return the notes, including those on preemptions and on several devices."""
        sessions = self.sessions or 1
        interrupted = f"sessions are limited: this run takes {sessions}" if sessions > 1 else ""
        quota = self.selected.quota
        own = (
            "" if scaling is None else scaling.note,
            self.market.starved(self.selected, self.device_estimate),
            spot,
            interrupted,
            "" if quota is None or quota.state == "enough" else quota.why,
            self.offer.note,
        )
        return (*self.device_estimate.notes, *filter(None, own))

    def to_json(self, *, breakdown: bool = False) -> dict[str, Any]:
        """Return one entry of `offers[]`; on request, its bill has ranges and reasons."""
        first, shared, last = self.json_parts(breakdown=breakdown)
        return {**first, **shared, **last}

    def json_parts(self, *, breakdown: bool = False) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return the entry in three parts: the offer, its device estimate's part (one object), and the run."""
        return self._offer_json(), self.device_estimate.shared_json, self._run_json(breakdown=breakdown)

    def _offer_json(self) -> dict[str, Any]:
        price = self.offer.usd_per_hour
        return {
            **dict(zip(OFFER_KEYS, _get_offer_values(self.offer), strict=True)),
            "usd_per_hour": None if price is None else format(price, "f"),
            "quota": to_plain(self.selected.quota),
            "availability": self.selected.availability,
        }

    def _run_json(self, *, breakdown: bool) -> dict[str, Any]:
        bill, run_time_s, preemption_forecast = self.bill, self.run_time_s, self.preemption_forecast
        energy, scaling, usd_per_hour = self.energy_kwh, self.scaling, self.offer.usd_per_hour
        co2, per_1000 = self.co2_of(energy), self.nano_per_1000_steps
        per_million = self.usd_per_million_tokens
        saves_share = None if preemption_forecast is None else self.saves_share
        price = None if usd_per_hour is None else float(usd_per_hour)
        note = None if preemption_forecast is None else preemption_forecast.format_note(saves_share)
        return {
            "run_time_s": run_time_s.to_json() if run_time_s else None,
            "cost_usd": bill.total_json() if bill else None,
            "total_usd": None if self.total_usd is None else f"{self.total_usd:.6f}",
            "bill": bill.lines_json(detailed=breakdown) if bill else [],
            "unbilled": list(self.unbilled),
            "usd_per_1000_steps": None if per_1000 is None else nano_text(per_1000),
            "usd_per_million_tokens": None if per_million is None else format(per_million, "f"),
            "scaling": to_plain(scaling),
            "serving": self.serving and self.serving.to_json(),
            "best_batch": to_plain(self.best_batch),
            "energy_kwh": energy.to_json() if energy else None,
            "co2_kg": co2.to_json() if co2 else None,
            "sessions": self.sessions,
            "spot": None
            if preemption_forecast is None
            else preemption_forecast.to_json(price, saves_share=saves_share),
            "notes": list(self.notes_of(note, scaling)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingEstimate:
    """Latency, throughput and cost of a fully used machine that serves predictions.

    Args:
        latency_s: Time of one prediction at batch size 1 on one device; None if unknown [s].
        per_s: Throughput of all devices at the workload's batch size [1/s].
        usd_per_million: Cost of a million predictions at that rate; None without a price [USD].
    """

    latency_s: Interval | None
    per_s: Interval
    usd_per_million: Decimal | None

    def to_json(self) -> dict[str, Any]:
        """Return the entry `offers[].serving`."""
        return {
            "latency_s": to_plain(self.latency_s),
            "predictions_per_s": to_plain(self.per_s),
            "usd_per_million_predictions": to_plain(self.usd_per_million),
        }


def usd_per_million(*, per_s: float, usd_per_hour: Decimal) -> Decimal:
    """Return the cost of a million samples or tokens on a fully used machine: 1e6 / rate / 3600 x price [USD].

    Args:
        per_s: Throughput in training or inference [1/s].
        usd_per_hour: Price of the machine [USD/h].

    Example:
        >>> usd_per_million(per_s=1000.0, usd_per_hour=Decimal("0.36"))
        Decimal('0.100000000')
    """
    usd = Decimal(MILLION / per_s / SECONDS_PER_HOUR) * usd_per_hour
    return usd.quantize(Decimal("1e-9"))


MOST_LARGER, MOST_SMALLER = 5, 3  # batch sizes to trace; each takes seconds [-]


@dataclass(frozen=True, slots=True, kw_only=True)
class BestBatch:
    """A run at another batch size with the same samples and epochs, an entry `offers[].best_batch`.

    Convergence may differ.

    Args:
        batch_size: Samples per device [-].
        step_time_s: Time of one step [s].
        run_time_s: Time of the whole run; None if its length is unknown [s].
        cost_usd: Low, mid and high as text; None without a price [USD].
        speedup: Throughput relative to the user's batch size; None if that does not fit [-].
    """

    batch_size: int
    step_time_s: Interval
    run_time_s: Interval | None
    cost_usd: dict[str, str] | None
    speedup: float | None


def choose_batch_sizes(largest: Iterable[int | None], *, own: int) -> list[int]:
    """Return the doublings and halvings of a batch size to try.

    Args:
        largest: Largest batch size that fits on each kind of device; None if unknown [-].
        own: The user's batch size [-].

    Example:
        >>> choose_batch_sizes([150, 20, None], own=32)
        [4, 8, 16, 64, 128]
    """
    known = [size for size in largest if size]
    most, least = max(known, default=own), min(known, default=own)
    larger = [own * 2**n for n in range(1, MOST_LARGER + 1) if own * 2**n <= most]
    smaller = [own // 2**n for n in range(1, MOST_SMALLER + 1) if least < own and own >= 2**n]
    return sorted({*smaller, *larger})


def with_run_length_of(workload: Workload, own: Workload) -> Workload:
    """Give a workload at another batch size the same number of samples to process as the user's own."""
    if own.further and len(own.further) == len(workload.further):
        pairs = zip(workload.further, own.further, strict=True)
        workload = replace(workload, further=tuple(with_run_length_of(a, b) for a, b in pairs))
    if own.steps is None or (own.samples is not None and own.epochs is not None):
        return replace(workload, steps=None, samples=own.samples, epochs=own.epochs)
    return replace(workload, steps=math.ceil(own.steps * own.batch_size / workload.batch_size))
