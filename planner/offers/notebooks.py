"""Hosted notebooks (Google Colab, Kaggle) as offers, priced by compute units per hour times unit price."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from ..records import Frozen
from .rows import NotebookPlan, NotebookRuntime, Offer, PartialDate, UnitPrice, UnitRate

REGION = "any"
ZERO = Decimal(0)
Dated = TypeVar("Dated", UnitPrice, UnitRate)


@dataclass(frozen=True)
class NotebookTables:
    """Catalog rows on hosted notebooks."""

    plans: tuple[NotebookPlan, ...]
    runtimes: tuple[NotebookRuntime, ...]
    unit_prices: tuple[UnitPrice, ...]
    rates: tuple[UnitRate, ...]


class SessionLimits(Frozen):
    """Session limits of a notebook offer, and the least that one pays. None means unknown or unlimited."""

    session_hours_max: float | None  # maximum length of a session [h]
    idle_minutes_max: float | None  # idle timeout [min]
    weekly_quota_hours: float | None  # session hours allowed per week [h]
    background: bool | None  # whether it continues with the browser tab closed
    guaranteed: bool  # whether the accelerator is guaranteed
    plan: str  # provider and plan, as in the setting `notebook_plans`: `colab-payg`
    free: bool  # whether the plan is free
    # smallest pack of units that can be bought; None if the plan sells none, or by the month [USD]
    pack_usd: Decimal | None = None
    usd_per_month: Decimal | None = None  # subscription [USD]


def compute_notebook_usd_per_hour(*, units_per_hour: Decimal, usd: Decimal, units: Decimal) -> Decimal:
    """Return the hourly price of a notebook [USD/h]: units_per_hour × usd / units.

    Args:
        units_per_hour: Compute units used by the runtime [1/h].
        usd: Price of a bundle [USD].
        units: Compute units in the bundle [-].

    Example:
        >>> compute_notebook_usd_per_hour(units_per_hour=Decimal("1.07"), usd=Decimal("9.99"), units=Decimal(100))
        Decimal('0.106893')
    """
    return units_per_hour * usd / units


def build_notebook_offers(notebooks: NotebookTables) -> tuple[Offer, ...]:
    """Build one offer per plan and runtime it may use, named ``<provider>-<plan>-<runtime>``."""
    return tuple(
        _build_offer(notebooks, plan, runtime)
        for runtime in notebooks.runtimes
        for plan in notebooks.plans
        if plan.provider == runtime.provider and plan.plan in runtime.plans
    )


def find_session_limits(notebooks: NotebookTables, offer: Offer) -> SessionLimits | None:
    """Return the session limits of a notebook, a runtime's before its plan's; None for other offers."""
    for runtime in notebooks.runtimes:
        for plan in notebooks.plans:
            if plan.provider == runtime.provider and _format_name(plan, runtime) == offer.instance_type:
                sells_packs = not plan.free and plan.usd_per_month is None
                unit = _find_unit_price(notebooks, plan) if sells_packs else None
                return SessionLimits(
                    session_hours_max=runtime.session_hours_max or plan.session_hours_max,
                    idle_minutes_max=plan.idle_minutes_max,
                    weekly_quota_hours=runtime.weekly_quota_hours,
                    background=plan.background,
                    guaranteed=plan.guaranteed,
                    plan=f"{plan.provider}-{plan.plan}",
                    free=plan.free,
                    pack_usd=None if unit is None else unit.usd,
                    usd_per_month=plan.usd_per_month,
                )
    return None


def _find_unit_price(notebooks: NotebookTables, plan: NotebookPlan) -> UnitPrice | None:
    """Return the newest price of a plan's compute units; None if it sells none."""
    return _select_newest(u for u in notebooks.unit_prices if (u.provider, u.plan) == (plan.provider, plan.plan))


def _format_name(plan: NotebookPlan, runtime: NotebookRuntime) -> str:
    return f"{plan.provider}-{plan.plan}-{runtime.runtime}"


def _build_offer(notebooks: NotebookTables, plan: NotebookPlan, runtime: NotebookRuntime) -> Offer:
    """Build the offer of a runtime on a plan."""
    price, as_of, source = _compute_price(notebooks, plan, runtime)
    return Offer(
        provider=plan.provider,
        instance_type=_format_name(plan, runtime),
        accelerator=runtime.accelerator,
        devices=runtime.devices,
        vcpus=runtime.vcpus,
        memory_gib=runtime.memory_gib,
        region=REGION,
        purchase="on_demand",
        usd_per_hour=price,
        price_as_of=as_of,
        price_source=source,
        status=runtime.status,
        note="; ".join(_build_notes(plan, runtime, price)),
    )


def _compute_price(
    notebooks: NotebookTables, plan: NotebookPlan, runtime: NotebookRuntime
) -> tuple[Decimal | None, PartialDate, str]:
    """Return the price [USD/h] (None if unknown), its date and its source."""
    if plan.free:
        return ZERO, runtime.as_of, f"{plan.source}; {runtime.source}"
    rate = _select_newest(
        r for r in notebooks.rates if (r.provider, r.runtime) == (plan.provider, runtime.runtime)
    )
    unit = _find_unit_price(notebooks, plan)
    if rate is None or unit is None:
        return None, runtime.as_of, runtime.source
    price = compute_notebook_usd_per_hour(units_per_hour=rate.units_per_hour, usd=unit.usd, units=unit.units)
    source = (
        f"{rate.units_per_hour} units/h ({rate.source}, {rate.as_of})"
        f" x {unit.usd} USD per {unit.units} units ({unit.source})"
    )
    return price, rate.as_of, source


def _build_notes(plan: NotebookPlan, runtime: NotebookRuntime, price: Decimal | None) -> Sequence[str]:
    """Return notes on limits and availability."""
    hours, notes = runtime.session_hours_max or plan.session_hours_max, []
    if plan.free:
        notes.append("free: the accelerator may be unavailable")
    if price is None:
        notes.append("compute units per hour are not published")
    if hours:
        notes.append(f"sessions of at most {hours:g} h")
    if plan.idle_minutes_max:
        notes.append(f"ends after about {plan.idle_minutes_max:g} min idle")
    if runtime.weekly_quota_hours:
        notes.append(f"about {runtime.weekly_quota_hours:g} h per week")
    return [*notes, *(note for note in (runtime.note, plan.note) if note)]


def _select_newest(rows: Iterable[Dated]) -> Dated | None:
    """Return the row with the latest date; None if there is none."""
    return max(rows, key=lambda row: row.as_of, default=None)
