"""What the clients of Colab and Kaggle said, in its place among the rows of hosted notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..notebooks import Notebooks
from ..rows import NotebookPlan, NotebookRuntime, UnitRate
from .notebook_clients import READING_COLUMNS
from .store import Store

__all__ = ["with_readings"]

Readings = Mapping[str, Mapping[str, str]]


def with_readings(notebooks: Notebooks, store: Store) -> Notebooks:
    """Return the rows with the account's weekly hours, units left, and units an hour (the later date wins)."""
    kaggle, colab = (
        {row["name"]: row for row in store.table("notebooks", provider, READING_COLUMNS)}
        for provider in ("kaggle", "colab")
    )
    return replace(
        notebooks,
        plans=tuple(_with_units(plan, colab) for plan in notebooks.plans),
        runtimes=tuple(_with_hours(runtime, kaggle) for runtime in notebooks.runtimes),
        rates=(*_rates(colab), *notebooks.rates),
    )


def _with_hours(runtime: NotebookRuntime, kaggle: Readings) -> NotebookRuntime:
    """Return a runtime of Kaggle with the hours that the account has."""
    kind = "tpu" if runtime.accelerator.startswith("TPU") else "gpu"
    allowed, used = (kaggle.get(f"{kind}_hours_{name}") for name in ("allowed", "used"))
    if runtime.provider != "kaggle" or runtime.status != "active" or not (allowed and used):
        return runtime
    day = used["fetched_at"][:10]
    until = kaggle.get(f"{kind}_refresh_at")
    week = f", in the week that ends {until['value'][:16]}" if until else ""
    return replace(
        runtime,
        weekly_quota_hours=float(allowed["value"]),
        note=f"{used['value']} of {allowed['value']} h were used when asked on {day}{week}",
        source=f"{runtime.source}; weekly hours: {allowed['source']}, {day}",
        as_of=day,
    )


def _with_units(plan: NotebookPlan, colab: Readings) -> NotebookPlan:
    """Return a paid plan of Colab with the units that the account has left."""
    left = colab.get("units_left")
    if plan.provider != "colab" or plan.free or left is None:
        return plan
    said = f"{left['value']} compute units were left on {left['fetched_at'][:10]}"
    return replace(plan, note="; ".join(filter(None, (said, plan.note))))


def _rates(colab: Readings) -> tuple[UnitRate, ...]:
    """Return what runtimes burned while they were up."""
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
