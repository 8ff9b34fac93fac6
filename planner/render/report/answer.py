"""The answer of a plan in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..numbers import count_text, device_text, duration_text, offer_text
from .rows import Money

__all__ = ["answers", "headline", "question"]

_NAMES = {
    "cheapest": "Cheapest",
    "fastest": "Fastest",
    "within_deadline": "Cheapest in time",
    "within_budget": "Fastest within the budget",
    "free": "Free",
}


def question(plan: Mapping[str, Any]) -> list[str]:
    """Return the workload in a few words each."""
    work = plan["workload"]
    parts = [
        f"batch {work['batch_size']}", work["precision"], f"{count_text(work['parameters'])} parameters",
        f"{count_text(work['flops_per_step'], 'FLOP')} a step",
        "XLA" if work["compiled"] else "kernel by kernel",
    ]  # fmt: skip
    if work["samples"] is not None and work["epochs"] is not None:
        return [*parts, f"{work['samples']:,} samples × {work['epochs']:,} epochs"]
    return [*parts, "length of the run unknown" if work["steps"] is None else f"{work['steps']:,} steps"]


def headline(plan: Mapping[str, Any], money: Money) -> str:
    """Return what to take, as a sentence; or that nothing can be taken."""
    best = plan["recommendation"]["cheapest"]
    if best is None:
        return "No offer in this plan is known to fit the model and to have a price and a time."
    one = plan["offers"][best["offer"]]
    device = device_text(one["accelerator"], one["devices"])
    name = offer_text(one["provider"], one["instance_type"])
    where = "" if one["region"] in ("any", "local") else f" in {one['region']}"
    kind = one["purchase"].replace("_", " ")
    return f"Take {device}: {name}{where}, {kind}. {_takes(one, money)}"


def answers(plan: Mapping[str, Any], money: Money) -> list[dict[str, str]]:
    """Return every recommendation, offers that answer several questions once."""
    titles: dict[int, list[str]] = {}
    for key, title in _NAMES.items():
        chosen = plan["recommendation"].get(key)
        if chosen is not None:
            titles.setdefault(chosen["offer"], []).append(title)
    return [_answer(plan["offers"][index], names, money) for index, names in titles.items()]


def _answer(one: Mapping[str, Any], titles: list[str], money: Money) -> dict[str, str]:
    return {
        "title": ", ".join([titles[0], *(title.lower() for title in titles[1:])]),
        "device": device_text(one["accelerator"], one["devices"]),
        "offer": offer_text(one["provider"], one["instance_type"]),
        "where": f"{one['region']}, {one['purchase'].replace('_', ' ')}",
        "takes": _takes(one, money),
        "why": one.get("limiter_why") or "",
    }


def _takes(one: Mapping[str, Any], money: Money) -> str:
    """Return time and cost with their ranges."""
    run, cost = one["run_time_s"], one["cost_usd"]
    if run is None:
        step = one["step_time_s"]
        return "" if step is None else f"A step takes {duration_text(step['mid'])}."
    time = f"{duration_text(run['mid'])} ({duration_text(run['low'])} to {duration_text(run['high'])})"
    if cost is None:
        return f"The run takes {time}; its price is not known."
    if float(cost["high"]) == 0:
        return f"The run takes {time} and costs nothing."
    price = f"{money.text(cost['mid'])} ({money.between(cost['low'], cost['high'])})"
    return f"The run takes {time} and costs {price}."
