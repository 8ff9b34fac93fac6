"""A plan's offers and recommendations as text: table cells with sort values, and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...numbers import (
    format_count,
    format_device,
    format_duration,
    format_offer_name,
    format_range,
    format_short,
    format_usd,
)
from ...units import MS_PER_S
from ..estimate.phases import format_phases
from ..output import UNKNOWN

Offer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column: header, unit, and whether it is sorted numerically."""

    title: str
    unit: str = ""
    numeric: bool = False


COLUMNS = (
    ReportColumn("accelerator"), ReportColumn("provider and machine"), ReportColumn("run", numeric=True),
    ReportColumn("run costs", "$", numeric=True), ReportColumn("region"), ReportColumn("purchase"),
    ReportColumn("price", "$/h", numeric=True), ReportColumn("step", "ms", numeric=True),
    ReportColumn("memory", "%", numeric=True), ReportColumn("limit"), ReportColumn("basis"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCurrency:
    """Currency of the amounts shown.

    Args:
        code: ISO 4217 code.
        per_usd: Units of the currency per US dollar.
    """

    code: str = "USD"
    per_usd: float = 1.0

    @property
    def symbol(self) -> str:
        """Prefix of an amount: `$` or the currency code."""
        return "$" if self.code == "USD" else f"{self.code} "

    def text(self, usd: Any) -> str:
        """Format dollars in this currency."""
        return f"{self.symbol}{format_usd(float(usd) * self.per_usd)}"

    def estimate(self, cost: Mapping[str, Any]) -> str:
        """Format an amount in dollars with its range."""
        return f"{self.text(cost['mid'])} ({self.between(cost['low'], cost['high'])})"

    def between(self, low: Any, high: Any) -> str:
        """Format a range of dollars in this currency."""
        ends = sorted(float(end) * self.per_usd for end in (low, high))
        return f"{self.symbol}{format_range(*ends)}" if ends[1] > 0 else f"{self.symbol}0"


def select_shown_offers(plan: Mapping[str, Any]) -> list[int]:
    """Return the positions of the offers shown at first: the recommended ones, and the best per accelerator
    and number of devices, on demand, spot and free, in the plan's order.
    """
    seen: dict[tuple[Any, ...], int] = {}
    for index, one in enumerate(plan["offers"]):
        free = one["usd_per_hour"] is not None and float(one["usd_per_hour"]) == 0
        seen.setdefault((one["accelerator"], one["devices"], one["purchase"], free), index)
    chosen = plan["recommendation"]
    named = [one["offer"] for key, one in chosen.items() if key not in ("pareto", "sensitivity") and one]
    picks = [one["offer"] for key, one in plan["decision"].items() if key in _PICK_NAMES and one]
    return sorted({*seen.values(), *named, *picks, *(one["offer"] for one in chosen["pareto"])})


def build_offer_rows(offers: Iterable[tuple[int, Offer]], money: ReportCurrency) -> list[list[Any]]:
    """Build a row for each offer: its position, then text and sort value of every cell."""
    return [[index, *_build_cells(one, money)] for index, one in offers]


def _build_cells(one: Offer, money: ReportCurrency) -> list[list[Any]]:
    price, step, run, cost = one["usd_per_hour"], one["step_time_s"], one["run_time_s"], one["cost_usd"]
    purchase = "free" if price is not None and float(price) == 0 else one["purchase"].replace("_", " ")
    if (one.get("quota") or {}).get("state") == "too_small":
        purchase += ", no quota"
    return [
        [format_device(one["accelerator"], one["devices"])],
        [format_offer_name(one["provider"], one["instance_type"])],
        [_format_run(one), _find_mid(run)],
        [_format_cost(one, money), None if cost is None else float(cost["mid"])],
        [one["region"]],
        [purchase],
        [_format_price(one, money), None if price is None else float(price)],
        [_format_step(step), _find_mid(step)],
        [*_format_memory(one)],
        [one["limiter"] or UNKNOWN],
        [one["basis"] or UNKNOWN],
    ]


def _find_mid(interval: Mapping[str, float] | None) -> float | None:
    return None if interval is None else interval["mid"]


def _format_step(step: Mapping[str, float] | None) -> str:
    return UNKNOWN if step is None else format_range(step["low"] * MS_PER_S, step["high"] * MS_PER_S)


def _format_price(one: Offer, money: ReportCurrency) -> str:
    if one["usd_per_hour"] is None:
        return UNKNOWN
    return f"{'~' if one['estimated'] else ''}{money.text(one['usd_per_hour'])}"


def _format_run(one: Offer) -> str:
    run = one["run_time_s"]
    if one["memory_fits"] is False:
        return "does not fit"
    if run is None:
        return UNKNOWN
    low, mid, high = (format_duration(run[end]) for end in ("low", "mid", "high"))
    return f"{mid} ({low} – {high})"


def _format_cost(one: Offer, money: ReportCurrency) -> str:
    cost = one["cost_usd"]
    if one["memory_fits"] is False:
        largest = one["largest_batch_size"]
        return f"batch ≤ {largest}" if largest else "at no batch"
    if cost is None:
        return UNKNOWN
    return money.text(0) if float(cost["high"]) == 0 else money.estimate(cost)


def _format_memory(one: Offer) -> tuple[str, float | None]:
    needed, available = one["memory_bytes"], one["memory_available_bytes"]
    if needed is None or not available:
        return UNKNOWN, None
    share = 100 * needed / available
    return f"{format_short(share)} %", share


_PICK_NAMES = {
    "recommended": "Take",
    "free": "Free",
    "cheapest_paid": "Cheapest paid",
    "in_between": "In between",
    "fastest_paid": "Fastest paid",
}


def describe_workload(plan: Mapping[str, Any]) -> list[str]:
    """Describe the workload in short phrases."""
    work = plan["workload"]
    parts = [
        f"batch {work['batch_size']}",
        work["precision"],
        *([f"{work['quantization']} weights"] if work.get("quantization") else []),
        f"{format_count(work['parameters'])} parameters",
        f"{format_count(work['flops_per_step'], 'FLOP')} a step",
        "XLA" if work["compiled"] else "kernel by kernel",
    ]
    if phases := format_phases(plan.get("phases") or ()):
        return [*parts, phases]
    if work["samples"] is not None and work["epochs"] is not None:
        return [*parts, f"{work['samples']:,} samples × {work['epochs']:,} epochs"]
    return [*parts, "run length unknown" if work["steps"] is None else f"{work['steps']:,} steps"]


def build_recommendations(plan: Mapping[str, Any], money: ReportCurrency) -> list[dict[str, str]]:
    """Return all recommendations, merging those with the same offer."""
    titles: dict[int, list[str]] = {}
    for key, title in _PICK_NAMES.items():
        chosen = plan["decision"].get(key)
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
        return f"The run takes {time} and is free."
    return f"The run takes {time} and costs {money.estimate(cost)}."
