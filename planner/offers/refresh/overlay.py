"""Merge of refreshed prices into the packaged ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..notebooks import NotebookTables
from ..rows import NotebookPlan, NotebookRuntime, Offer, UnitRate
from .sources.notebook_clients import READING_COLUMNS
from .store import PriceStore

Readings = Mapping[str, Mapping[str, str]]


def merge_readings(notebooks: NotebookTables, store: PriceStore) -> NotebookTables:
    """Return the rows with the account's weekly hours, remaining units and units per hour (the later date
    wins).
    """
    kaggle, colab = (
        {row["name"]: row for row in store.table("notebooks", provider, READING_COLUMNS)}
        for provider in ("kaggle", "colab")
    )
    return replace(
        notebooks,
        plans=tuple(_merge_units(plan, colab) for plan in notebooks.plans),
        runtimes=tuple(_merge_hours(runtime, kaggle) for runtime in notebooks.runtimes),
        rates=(*_read_rates(colab), *notebooks.rates),
    )


def _merge_hours(runtime: NotebookRuntime, kaggle: Readings) -> NotebookRuntime:
    """Return a Kaggle runtime with the account's weekly hours."""
    kind = "tpu" if runtime.accelerator.startswith("TPU") else "gpu"
    allowed, used = (kaggle.get(f"{kind}_hours_{name}") for name in ("allowed", "used"))
    if runtime.provider != "kaggle" or runtime.status != "active" or not (allowed and used):
        return runtime
    day = used["fetched_at"][:10]
    until = kaggle.get(f"{kind}_refresh_at")
    week = f", in the week ending {until['value'][:16]}" if until else ""
    return replace(
        runtime,
        weekly_quota_hours=float(allowed["value"]),
        note=f"{used['value']} of {allowed['value']} h used as of {day}{week}",
        source=f"{runtime.source}; weekly hours: {allowed['source']}, {day}",
        as_of=day,
    )


def _merge_units(plan: NotebookPlan, colab: Readings) -> NotebookPlan:
    """Return a paid Colab plan with the account's remaining units."""
    left = colab.get("units_left")
    if plan.provider != "colab" or plan.free or left is None:
        return plan
    note = f"{left['value']} compute units remaining on {left['fetched_at'][:10]}"
    return replace(plan, note="; ".join(filter(None, (note, plan.note))))


def _read_rates(colab: Readings) -> tuple[UnitRate, ...]:
    """Return the measured rates of runtimes."""
    return tuple(
        UnitRate.read(
            {
                "provider": "colab",
                "runtime": name.removeprefix("units_per_hour/"),
                "units_per_hour": row["value"],
                "source": row["source"],
                "as_of": row["fetched_at"][:10],
                "confidence": "high",
            }
        )
        for name, row in colab.items()
        if name.startswith("units_per_hour/")
    )


def merge_refreshed(packaged: Sequence[Offer], store: PriceStore) -> tuple[Offer, ...]:
    """Merge refreshed offers into packaged ones, replacing prices and adding new offers.

    The later date wins, so that a newer gpuplan brings newer prices; on equal dates, the refreshed price
    wins. An offer that its provider no longer lists is left out, unless the packaged price is of a later day.
    Rows of a provider are sorted by instance type, region and purchase option.
    """
    merged: dict[tuple[str, str, str, str], Offer] = {
        (o.provider, o.instance_type, o.region, o.purchase): o for o in packaged
    }
    before = list(merged)
    for provider in store.providers:
        for unlisted, day in store.gone(provider).items():
            packaged_offer = merged.get((provider, *unlisted))
            if packaged_offer is not None and (packaged_offer.price_as_of or "") <= day:
                del merged[provider, *unlisted]
        for offer in store.offers(provider):
            key = (provider, *offer.key)
            known = merged.get(key)
            if known is None or (offer.price_as_of or "") >= (known.price_as_of or ""):
                merged[key] = offer
    if list(merged) == before:
        return tuple(merged.values())
    return tuple(merged[key] for key in sorted(merged))
