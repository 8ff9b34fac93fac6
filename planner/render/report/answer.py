"""Recommendations of a plan as sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..numbers import format_count, format_device, format_duration, format_offer_name
from .rows import ReportCurrency

__all__ = ["build_recommendations", "describe_workload", "format_headline"]

_NAMES = {
    "cheapest": "Cheapest",
    "fastest": "Fastest",
    "within_deadline": "Cheapest in time",
    "within_budget": "Fastest within the budget",
    "free": "Free",
}


def describe_workload(plan: Mapping[str, Any]) -> list[str]:
    """Describe the workload in short phrases."""
    work = plan["workload"]
    parts = [
        f"batch {work['batch_size']}",
        work["precision"],
        f"{format_count(work['parameters'])} parameters",
        f"{format_count(work['flops_per_step'], 'FLOP')} a step",
        "XLA" if work["compiled"] else "kernel by kernel",
    ]
    if work["samples"] is not None and work["epochs"] is not None:
        return [*parts, f"{work['samples']:,} samples × {work['epochs']:,} epochs"]
    return [*parts, "run length unknown" if work["steps"] is None else f"{work['steps']:,} steps"]


def format_headline(plan: Mapping[str, Any], money: ReportCurrency) -> str:
    """Return the main recommendation as a sentence."""
    best = plan["recommendation"]["cheapest"]
    if best is None:
        return "No offer in this plan fits the model and has a known price and time."
    one = plan["offers"][best["offer"]]
    device = format_device(one["accelerator"], one["devices"])
    name = format_offer_name(one["provider"], one["instance_type"])
    where = "" if one["region"] in ("any", "local") else f" in {one['region']}"
    kind = one["purchase"].replace("_", " ")
    return f"Take {device}: {name}{where}, {kind}. {_format_time_and_cost(one, money)}"


def build_recommendations(plan: Mapping[str, Any], money: ReportCurrency) -> list[dict[str, str]]:
    """Return all recommendations, merging those with the same offer."""
    titles: dict[int, list[str]] = {}
    for key, title in _NAMES.items():
        chosen = plan["recommendation"].get(key)
        if chosen is not None:
            titles.setdefault(chosen["offer"], []).append(title)
    return [_build_recommendation(plan["offers"][index], names, money) for index, names in titles.items()]


def _build_recommendation(one: Mapping[str, Any], titles: list[str], money: ReportCurrency) -> dict[str, str]:
    return {
        "title": ", ".join([titles[0], *(title.lower() for title in titles[1:])]),
        "device": format_device(one["accelerator"], one["devices"]),
        "offer": format_offer_name(one["provider"], one["instance_type"]),
        "where": f"{one['region']}, {one['purchase'].replace('_', ' ')}",
        "takes": _format_time_and_cost(one, money),
        "why": one.get("limiter_why") or "",
    }


def _format_time_and_cost(one: Mapping[str, Any], money: ReportCurrency) -> str:
    """Format time and cost with their ranges."""
    run, cost = one["run_time_s"], one["cost_usd"]
    if run is None:
        step = one["step_time_s"]
        return "" if step is None else f"A step takes {format_duration(step['mid'])}."
    time = f"{format_duration(run['mid'])} ({format_duration(run['low'])} to {format_duration(run['high'])})"
    if cost is None:
        return f"The run takes {time}; its price is unknown."
    if float(cost["high"]) == 0:
        return f"The run takes {time} and costs nothing."
    price = f"{money.text(cost['mid'])} ({money.between(cost['low'], cost['high'])})"
    return f"The run takes {time} and costs {price}."
