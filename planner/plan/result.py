"""What an estimate says: one frozen object, and its JSON form (``gpuplan.estimate/1``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..frozen import Frozen
from ..units import SECONDS_PER_HOUR, Interval
from .bill import NOT_BILLED, Bill
from .carbon import co2_kg
from .memory_parts import memory_parts
from .nano import rental_nano, usd_of
from .pause import collector_paused
from .phases import Schedule
from .projection import Projection
from .recommendation import Recommendation
from .terms import Bounds, Terms

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from ..workload.model import Workload
    from .best_batch import BestBatch
    from .details import Details
    from .market import Market
    from .prediction import Serving
    from .scaling_note import Scaling
    from .select import Selected
    from .spot_outlook import SpotOutlook

__all__ = ["SCHEMA", "Estimate", "OfferEstimate", "Recommendation"]

SCHEMA = "gpuplan.estimate/1"


@dataclass(slots=True)
class OfferEstimate:
    """One offer with the run's time, bill and memory on it.

    Nobody changes one; it is not frozen because thousands are made at once, and freezing triples what each takes.

    Args:
        offer: The row of the catalog.
        selected: The same row with its device, and how long it can be held in one piece.
        projection: Shared by all offers of the same devices.
        schedule: The run part by part; None when the time of its steps is unknown.
        bill: None when the price or the run's time is unknown.
        unbilled: Items that a real bill has and whose price is unknown here.
        outlook: What interruptions do to the run; None on demand, or when the run's time is unknown.
        serving: What the machine does as a server of predictions; None when training was asked for.
        best_batch: The same run at the largest batch that fits; None: not asked for, or the user's own is best.
        market: The other offers of the answer, and what holds for all.
    """

    offer: Offer
    selected: Selected
    projection: Projection
    schedule: Schedule | None
    bill: Bill | None
    unbilled: tuple[str, ...]
    outlook: SpotOutlook | None
    market: Market = field(repr=False, compare=False)
    serving: Serving | None = None
    best_batch: BestBatch | None = None

    @property
    def usd_per_1000_steps(self) -> Decimal | None:
        """Central estimate, without minimum charges; None when unknown [USD]."""
        nano = self.nano_per_1000_steps
        return None if nano is None else usd_of(nano)

    @property
    def nano_per_1000_steps(self) -> int | None:
        """The same in whole nano-dollars [1e-9 USD]."""
        step_time_s, price = self.projection.step_time_s, self.offer.usd_per_hour
        if step_time_s is None or price is None:
            return None
        return rental_nano(duration_s=1000 * step_time_s.mid, usd_per_hour=price)

    @property
    def session_s(self) -> float | None:
        """Longest time the machine can be held in one piece; None when no limit is known [s]."""
        return self.selected.session_s

    @property
    def spot(self) -> SpotOutlook | None:
        """The outlook, compared with the same machine on demand; None on demand, or when the time is unknown."""
        return None if self.outlook is None else self.market.compared(self)

    @property
    def scaling(self) -> Scaling | None:
        """What several devices bring against one; None for one, and where one is not offered."""
        return self.market.scaling(self)

    @property
    def power_w(self) -> Bounds | None:
        """What the machine draws while it trains, its house's overhead included; None: unknown [W]."""
        return self.market.power_w(self)

    @property
    def energy_kwh(self) -> Interval | None:
        """Energy of the run; None when unknown [kWh]."""
        return self.market.energy_kwh(self)

    @property
    def co2_kg(self) -> Interval | None:
        """Carbon dioxide of that energy; None when unknown [kg]."""
        return self.co2_of(self.energy_kwh)

    def co2_of(self, energy: Interval | None) -> Interval | None:
        """Return the carbon dioxide of some energy where the offer is; None when unknown [kg]."""
        g_co2_per_kwh = None if energy is None else self.market.g_co2_per_kwh(self)
        if energy is None or g_co2_per_kwh is None:
            return None
        return co2_kg(energy, g_co2_per_kwh=g_co2_per_kwh)

    @property
    def run_time_s(self) -> Interval | None:
        """Time of the whole run, from the first charged second to the last, waits included; None: unknown [s]."""
        return None if self.schedule is None else self.schedule.wall_s

    @property
    def is_free(self) -> bool:
        """Whether it can be had for nothing: a free notebook, this machine."""
        return self.offer.usd_per_hour == 0

    @property
    def sessions(self) -> int | None:
        """How many sessions the run takes, by its central estimate; None when its time is unknown [-]."""
        return None if self.schedule is None else self.schedule.sessions

    @property
    def notes(self) -> tuple[str, ...]:
        """What there is to know of time and offer, in sentences."""
        spot = self.spot
        return self.notes_of(None if spot is None else spot.note, self.scaling)

    def notes_of(self, spot: str | None, scaling: Scaling | None) -> tuple[str, ...]:
        """Return the notes with what is to be said of interruptions and of several devices, once that is known."""
        return (*self.projection.notes, *self.own_notes(spot, scaling))

    def own_notes(self, spot: str | None, scaling: Scaling | None) -> list[str]:
        """Return the notes that are not those of all offers of its devices."""
        sessions, session_s = self.sessions, self.session_s
        interrupted = ""
        if session_s is not None and sessions is not None and sessions > 1:
            interrupted = (
                f"a session ends after {session_s / SECONDS_PER_HOUR:g} h: this run takes {sessions} sessions"
            )
        several = "" if scaling is None else scaling.note
        own = (several, self.market.starved(self), spot, interrupted, self.offer.note)
        return [note for note in own if note]

    def to_json(self, *, breakdown: bool = False) -> dict[str, Any]:
        """Return one entry of `offers[]`; its bill with ranges and reasons when a breakdown is wanted."""
        offer, bill, run_time_s = self.offer, self.bill, self.run_time_s
        energy, spot, scaling = self.energy_kwh, self.spot, self.scaling
        co2 = self.co2_of(energy)
        return {
            "provider": offer.provider,
            "instance_type": offer.instance_type,
            "accelerator": offer.accelerator,
            "devices": offer.devices,
            "hosts": offer.hosts,
            "vcpus": offer.vcpus,
            "memory_gib": offer.memory_gib,
            "region": offer.region,
            "purchase": offer.purchase,
            "usd_per_hour": None if offer.usd_per_hour is None else format(offer.usd_per_hour, "f"),
            "price_as_of": offer.price_as_of,
            "price_source": offer.price_source,
            "estimated": offer.estimated,
            "complete": offer.complete,
            "status": offer.status,
            **self.projection.shared_json,
            "run_time_s": run_time_s.to_json() if run_time_s else None,
            "cost_usd": bill.total_json() if bill else None,
            "bill": bill.lines_json(detailed=breakdown) if bill else [],
            "unbilled": list(self.unbilled),
            "usd_per_1000_steps": _money(self.usd_per_1000_steps),
            "scaling": scaling and scaling.to_json(),
            "serving": self.serving and self.serving.to_json(),
            "best_batch": self.best_batch and self.best_batch.to_json(),
            "energy_kwh": energy.to_json() if energy else None,
            "co2_kg": co2.to_json() if co2 else None,
            "sessions": self.sessions,
            "spot": spot and spot.to_json(_float(offer.usd_per_hour)),
            "notes": list(self.notes_of(None if spot is None else spot.note, scaling)),
        }


class Estimate(Frozen):
    """What a workload takes and costs on every offer that was asked for.

    Args:
        workload: What was traced.
        offers: Best first, by ``options["sort"]``; what does not fit or is not known comes last.
        recommendation: Positions in ``offers``.
        options: The question, echoed.
        terms: What was charged and assumed beside the training.
        catalog_as_of: Date of the newest price; None when unknown.
        version: Of gpuplan.
        details: What a report shows beside it; None when nobody asked.
    """

    workload: Workload
    offers: tuple[OfferEstimate, ...]
    recommendation: Recommendation
    options: Mapping[str, Any]
    terms: Terms
    catalog_as_of: str | None
    version: str
    details: Details | None = None

    def best_per_devices(self) -> tuple[int, ...]:
        """Return the position of the best offer of each kind and number of devices, best first.

        The user's own machine stands for itself, whatever it computes on.
        """
        first: dict[tuple[str, float, bool], int] = {}
        for index, one in enumerate(self.offers):
            offer = one.offer
            first.setdefault((offer.accelerator, offer.devices, offer.provider == "local"), index)
        return tuple(first.values())

    @collector_paused()
    def to_json(self, *, breakdown: bool = False) -> dict[str, Any]:
        """Return the object behind `--json` and `plan.json`, the bills in detail when a breakdown is wanted."""
        document = self.document(breakdown=breakdown)
        return {**document, "offers": list(document["offers"])}

    def document(self, *, breakdown: bool = False) -> dict[str, Any]:
        """Return the same with an iterator of offers, to be written one by one and never held all at once."""
        return {
            "schema": SCHEMA,
            "gpuplan_version": self.version,
            "catalog": {"as_of": self.catalog_as_of},
            "options": dict(self.options),
            "workload": _workload_json(self.workload),
            "offers": (offer.to_json(breakdown=breakdown) for offer in self.offers),
            "recommendation": self._recommendation_json(),
            "unmodelled": [asdict(unmodelled) for unmodelled in self.workload.unmodelled],
            "terms": self.terms.to_json(),
            "not_billed": list(NOT_BILLED),
            **({} if self.details is None else {"details": self.details.to_json(self)}),
        }

    def _recommendation_json(self) -> dict[str, Any]:
        """Return each recommended offer by position and by name."""
        chosen = self.recommendation
        single = ("cheapest", "fastest", "within_deadline", "within_budget", "free")
        answers: dict[str, Any] = {name: self._reference(getattr(chosen, name)) for name in single}
        margin = chosen.sensitivity
        sensitivity = None if margin is None else {
            "runner_up": self._reference(margin.runner_up), "price_percent": 100 * margin.price_share,
            "step_time_percent": 100 * margin.step_time_share, "certain": margin.certain,
        }  # fmt: skip
        pareto = [self._reference(index) for index in chosen.pareto]
        return {**answers, "pareto": pareto, "sensitivity": sensitivity}

    def _reference(self, index: int | None) -> dict[str, Any] | None:
        """Return where an offer is in `offers[]`, and enough to name it."""
        if index is None:
            return None
        offer = self.offers[index].offer
        return {
            "offer": index,
            "provider": offer.provider,
            "instance_type": offer.instance_type,
            "region": offer.region,
            "purchase": offer.purchase,
        }


def _float(usd: Decimal | None) -> float | None:
    """Return an amount for arithmetic that has no need of exactness."""
    return None if usd is None else float(usd)


def _money(usd: Decimal | None) -> str | None:
    """Return an amount as text."""
    return None if usd is None else format(usd, "f")


def _workload_json(workload: Workload) -> dict[str, Any]:
    """Return what the result says of the workload; the table of ops stays in the workload's own file."""
    return {
        "model": workload.model,
        "mode": workload.mode,
        "batch_size": workload.batch_size,
        "precision": workload.precision,
        "compiled": workload.compiled,
        "samples": workload.samples,
        "epochs": workload.epochs,
        "steps": workload.steps,
        "parameters": workload.parameters,
        "trainable_parameters": workload.trainable_parameters,
        "flops_per_step": workload.flops_per_step,
        "memory": {part: size for part, size in asdict(workload.memory).items() if size is not None},
        "memory_parts_bytes": memory_parts(workload),
        "notes": list(workload.notes),
        "versions": dict(workload.versions),
    }
