"""Hosted notebooks (Google Colab, Kaggle) as offers: compute units an hour times the price of a unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from ..frozen import Frozen
from .files import Table, valid_rows
from .rows import NotebookPlan, NotebookRuntime, Offer, PartialDate, UnitPrice, UnitRate

__all__ = [
    "REGION", "Notebooks", "SessionLimits", "bundle_usd", "notebook_offers", "notebook_usd_per_hour", "plan_of",
    "read_notebooks", "session_limits",
]  # fmt: skip

REGION = "any"
ZERO = Decimal(0)
Dated = TypeVar("Dated", UnitPrice, UnitRate)


@dataclass(frozen=True)
class Notebooks:
    """All rows about hosted notebooks."""

    plans: tuple[NotebookPlan, ...]
    runtimes: tuple[NotebookRuntime, ...]
    unit_prices: tuple[UnitPrice, ...]
    rates: tuple[UnitRate, ...]


def read_notebooks(table: Table) -> Notebooks:
    """Return the rows of `notebooks.toml`; CatalogError when one is broken."""
    return Notebooks(
        plans=valid_rows(table, "plan", NotebookPlan),
        runtimes=valid_rows(table, "runtime", NotebookRuntime),
        unit_prices=valid_rows(table, "unit_price", UnitPrice),
        rates=valid_rows(table, "rate", UnitRate),
    )


class SessionLimits(Frozen):
    """How long a notebook session of an offer lasts. None means unknown, or no limit known.

    Args:
        session_hours_max: Wall time of one session [h].
        idle_minutes_max: How long a session without interaction lives [min].
        weekly_quota_hours: Sum of the sessions of a week [h].
        background: Whether it runs on with the tab closed.
        guaranteed: Whether the accelerator is given for sure.
    """

    session_hours_max: float | None
    idle_minutes_max: float | None
    weekly_quota_hours: float | None
    background: bool | None
    guaranteed: bool


def notebook_usd_per_hour(*, units_per_hour: Decimal, usd: Decimal, units: Decimal) -> Decimal:
    """Return what an hour of a notebook costs [USD/h]: the rate times the price of one unit.

    Args:
        units_per_hour: Compute units that the runtime burns [1/h].
        usd: Price of a bundle [USD].
        units: Compute units in the bundle [-].

    Example:
        >>> notebook_usd_per_hour(units_per_hour=Decimal("1.07"), usd=Decimal("9.99"), units=Decimal(100))
        Decimal('0.106893')
    """
    return units_per_hour * usd / units


def notebook_offers(notebooks: Notebooks) -> tuple[Offer, ...]:
    """Return one offer for every plan that may ask for a runtime, named ``<provider>-<plan>-<runtime>``."""
    return tuple(
        _offer(notebooks, plan, runtime)
        for runtime in notebooks.runtimes
        for plan in notebooks.plans
        if plan.provider == runtime.provider and plan.plan in runtime.plans
    )


def session_limits(notebooks: Notebooks, offer: Offer) -> SessionLimits | None:
    """Return the limits of a notebook's session; None for an offer that is no notebook."""
    found = _plan_and_runtime(notebooks, offer)
    return None if found is None else _limits(*found)


def plan_of(notebooks: Notebooks, offer: Offer) -> NotebookPlan | None:
    """Return what one subscribes to for an offer; None for an offer that is no notebook."""
    found = _plan_and_runtime(notebooks, offer)
    return None if found is None else found[0]


def bundle_usd(notebooks: Notebooks, plan: NotebookPlan) -> Decimal | None:
    """Return the smallest amount that can be paid on a plan [USD]; None when nothing is sold there."""
    unit = _newest(u for u in notebooks.unit_prices if (u.provider, u.plan) == (plan.provider, plan.plan))
    return None if unit is None else unit.usd


def _plan_and_runtime(notebooks: Notebooks, offer: Offer) -> tuple[NotebookPlan, NotebookRuntime] | None:
    """Return the rows that an offer was made of."""
    for runtime in notebooks.runtimes:
        for plan in notebooks.plans:
            if plan.provider == runtime.provider and _name(plan, runtime) == offer.instance_type:
                return plan, runtime
    return None


def _limits(plan: NotebookPlan, runtime: NotebookRuntime) -> SessionLimits:
    """Return the limits of a plan on a runtime; the runtime's own come first."""
    return SessionLimits(
        session_hours_max=runtime.session_hours_max or plan.session_hours_max,
        idle_minutes_max=plan.idle_minutes_max,
        weekly_quota_hours=runtime.weekly_quota_hours,
        background=plan.background,
        guaranteed=plan.guaranteed,
    )


def _name(plan: NotebookPlan, runtime: NotebookRuntime) -> str:
    return f"{plan.provider}-{plan.plan}-{runtime.runtime}"


def _offer(notebooks: Notebooks, plan: NotebookPlan, runtime: NotebookRuntime) -> Offer:
    """Return the offer of a runtime on a plan."""
    price, as_of, source = _price(notebooks, plan, runtime)
    return Offer(
        provider=plan.provider,
        instance_type=_name(plan, runtime),
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
        note="; ".join(_notes(plan, runtime, price)),
    )


def _price(
    notebooks: Notebooks, plan: NotebookPlan, runtime: NotebookRuntime
) -> tuple[Decimal | None, PartialDate, str]:
    """Return price [USD/h] (None when unknown), its date and its source."""
    if plan.free:
        return ZERO, runtime.as_of, f"{plan.source}; {runtime.source}"
    rate = _newest(r for r in notebooks.rates if (r.provider, r.runtime) == (plan.provider, runtime.runtime))
    unit = _newest(u for u in notebooks.unit_prices if (u.provider, u.plan) == (plan.provider, plan.plan))
    if rate is None or unit is None:
        return None, runtime.as_of, runtime.source
    price = notebook_usd_per_hour(units_per_hour=rate.units_per_hour, usd=unit.usd, units=unit.units)
    source = (
        f"{rate.units_per_hour} units/h ({rate.source}, {rate.as_of})"
        f" x {unit.usd} USD per {unit.units} units ({unit.source})"
    )
    return price, rate.as_of, source


def _notes(plan: NotebookPlan, runtime: NotebookRuntime, price: Decimal | None) -> Sequence[str]:
    """Return what one has to know beside the price: limits and chance."""
    limits = _limits(plan, runtime)
    notes = []
    if plan.free:
        notes.append("free: the accelerator may be refused")
    if price is None:
        notes.append("compute units an hour are not published")
    if limits.session_hours_max:
        notes.append(f"sessions of at most {limits.session_hours_max:g} h")
    if limits.idle_minutes_max:
        notes.append(f"ends after about {limits.idle_minutes_max:g} min idle")
    if limits.weekly_quota_hours:
        notes.append(f"about {limits.weekly_quota_hours:g} h a week")
    return [*notes, *(note for note in (runtime.note, plan.note) if note)]


def _newest(rows: Iterable[Dated]) -> Dated | None:
    """Return the row with the latest date; None when there is none."""
    return max(rows, key=lambda row: row.as_of, default=None)
