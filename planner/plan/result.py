"""What an estimate says: one frozen object, and its JSON form (``gpuplan.estimate/1``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..predict.steptime import StepTime, Unpredicted
from ..units import SECONDS_PER_HOUR, Interval
from .bill import NOT_BILLED, Bill
from .carbon import co2_kg, energy_kwh
from .limiter import limit_of
from .memory import MemoryVerdict
from .memory_parts import Remedy, memory_note, memory_parts
from .phases import Schedule
from .recommendation import Recommendation
from .run import RunLength
from .terms import Bounds, Terms

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from ..workload.model import Workload
    from .prediction import Serving
    from .scaling_note import Scaling
    from .spot_outlook import SpotOutlook

__all__ = ["SCHEMA", "Estimate", "OfferEstimate", "Projection", "Recommendation"]

SCHEMA = "gpuplan.estimate/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The workload on a kind and number of devices, whoever rents them out.

    Args:
        run: Steps and global batch size.
        step_time: Of one step, or why no time can be given.
        train_time_s: Of all steps; None when the step time or the run's length is unknown [s].
        memory: Whether it fits.
        remedies: What would make it fit where it does not, or hardly does.
        compatibility: What must be known to run it there at all; empty when all is as usual.
    """

    run: RunLength
    step_time: StepTime | Unpredicted
    train_time_s: Interval | None
    memory: MemoryVerdict
    remedies: tuple[Remedy, ...] = ()
    compatibility: str = ""

    @property
    def step_time_s(self) -> Interval | None:
        """Time of one step, None when unknown [s]."""
        return self.step_time.time_s if isinstance(self.step_time, StepTime) else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed or why there is no time, in sentences."""
        about = self.step_time.note if isinstance(self.step_time, StepTime) else self.step_time.reason
        return tuple(
            note
            for note in (about, self.run.note, memory_note(self.memory, self.remedies), self.compatibility)
            if note
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferEstimate:
    """One offer with the run's time, bill and memory on it.

    Args:
        offer: The row of the catalog.
        projection: Shared by all offers of the same devices.
        schedule: The run part by part; None when the time of its steps is unknown.
        bill: None when the price or the run's time is unknown.
        usd_per_1000_steps: Central estimate, without minimum charges; None when unknown [USD].
        session_s: Longest time the machine can be held in one piece; None when no limit is known [s].
        spot: What interruptions do to the run; None on demand, or when the run's time is unknown.
        unbilled: Items that a real bill has and whose price is unknown here.
        power_w: What the machine draws while it trains, its house's overhead included; None: unknown [W].
        g_co2_per_kwh: Of the region's grid; None: unknown [g/kWh].
        scaling: What several devices bring against one; None for one, and where one is not offered.
        serving: What the machine does as a server of predictions; None when training was asked for.
    """

    offer: Offer
    projection: Projection
    schedule: Schedule | None
    bill: Bill | None
    usd_per_1000_steps: Decimal | None
    session_s: float | None = None
    spot: SpotOutlook | None = None
    unbilled: tuple[str, ...] = ()
    power_w: Bounds | None = None
    g_co2_per_kwh: float | None = None
    scaling: Scaling | None = None
    serving: Serving | None = None

    @property
    def energy_kwh(self) -> Interval | None:
        """Energy of the run; None when unknown [kWh]."""
        if self.schedule is None or self.power_w is None:
            return None
        return energy_kwh(self.schedule.total_s, self.power_w)

    @property
    def co2_kg(self) -> Interval | None:
        """Carbon dioxide of that energy; None when unknown [kg]."""
        energy = self.energy_kwh
        if energy is None or self.g_co2_per_kwh is None:
            return None
        return co2_kg(energy, g_co2_per_kwh=self.g_co2_per_kwh)

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
        sessions, session_s = self.sessions, self.session_s
        interrupted = ""
        if session_s is not None and sessions is not None and sessions > 1:
            interrupted = (
                f"a session ends after {session_s / SECONDS_PER_HOUR:g} h: this run takes {sessions} sessions"
            )
        taken_back = "" if self.spot is None else self.spot.note
        several = "" if self.scaling is None else self.scaling.note
        own = (several, taken_back, interrupted, self.offer.note)
        return tuple(note for note in (*self.projection.notes, *own) if note)

    def to_json(self, *, breakdown: bool = False) -> dict[str, Any]:
        """Return one entry of `offers[]`; its bill with ranges and reasons when a breakdown is wanted."""
        offer, projection = self.offer, self.projection
        step = projection.step_time if isinstance(projection.step_time, StepTime) else None
        limit, energy, co2 = limit_of(projection), self.energy_kwh, self.co2_kg
        return {
            "provider": offer.provider,
            "instance_type": offer.instance_type,
            "accelerator": offer.accelerator,
            "devices": offer.devices,
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
            "step_time_s": step.time_s.to_json() if step else None,
            "steps": projection.run.steps,
            "global_batch_size": projection.run.global_batch_size,
            "batch_size_per_device": -(-projection.run.global_batch_size // projection.run.replicas),
            "train_time_s": projection.train_time_s.to_json() if projection.train_time_s else None,
            "run_time_s": self.run_time_s.to_json() if self.run_time_s else None,
            "cost_usd": self.bill.total.to_json() if self.bill else None,
            "bill": [line.to_json(detailed=breakdown) for line in self.bill.lines] if self.bill else [],
            "unbilled": list(self.unbilled),
            "usd_per_1000_steps": _money(self.usd_per_1000_steps),
            "memory_bytes": projection.memory.needed_bytes,
            "memory_available_bytes": projection.memory.available_bytes,
            "memory_fits": projection.memory.fits,
            "memory_verdict": projection.memory.verdict,
            "compatibility": projection.compatibility,
            "scaling": self.scaling and self.scaling.to_json(),
            "serving": self.serving and self.serving.to_json(),
            "memory_remedies": [remedy.to_json() for remedy in projection.remedies],
            "largest_batch_size": projection.memory.largest_batch_size,
            "basis": step.basis if step else None,
            "limiter": limit.name if limit else None,
            "limiter_share": limit.share if limit else None,
            "limiter_why": limit.why if limit else None,
            "energy_kwh": energy.to_json() if energy else None,
            "co2_kg": co2.to_json() if co2 else None,
            "sessions": self.sessions,
            "spot": self.spot and self.spot.to_json(_float(offer.usd_per_hour)),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a workload takes and costs on every offer that was asked for.

    Args:
        workload: What was traced.
        offers: Best first, by ``options["sort"]``; what does not fit or is not known comes last.
        recommendation: Positions in ``offers``.
        options: The question, echoed.
        terms: What was charged and assumed beside the training.
        catalog_as_of: Date of the newest price; None when unknown.
        version: Of gpuplan.
    """

    workload: Workload
    offers: tuple[OfferEstimate, ...]
    recommendation: Recommendation
    options: Mapping[str, Any]
    terms: Terms
    catalog_as_of: str | None
    version: str

    def best_per_devices(self) -> tuple[int, ...]:
        """Return the position of the best offer of each kind and number of devices, best first.

        The user's own machine stands for itself, whatever it computes on.
        """
        first: dict[tuple[str, float, bool], int] = {}
        for index, one in enumerate(self.offers):
            offer = one.offer
            first.setdefault((offer.accelerator, offer.devices, offer.provider == "local"), index)
        return tuple(first.values())

    def to_json(self, *, breakdown: bool = False) -> dict[str, Any]:
        """Return the object behind `--json` and `plan.json`, the bills in detail when a breakdown is wanted."""
        return {
            "schema": SCHEMA,
            "gpuplan_version": self.version,
            "catalog": {"as_of": self.catalog_as_of},
            "options": dict(self.options),
            "workload": _workload_json(self.workload),
            "offers": [offer.to_json(breakdown=breakdown) for offer in self.offers],
            "recommendation": self._recommendation_json(),
            "unmodelled": [asdict(unmodelled) for unmodelled in self.workload.unmodelled],
            "terms": self.terms.to_json(),
            "not_billed": list(NOT_BILLED),
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
