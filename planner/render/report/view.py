"""Data of the report's template and script: a plan's numbers as text and chart points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from ...estimate_document import read_offers
from ...plan.cost_terms import Currency
from ...plan.estimate import DECISION_ROLES
from ...plan.improvements import Improvement
from ...units import GIB, format_count, format_device, format_duration
from ..estimate_notes import describe_remedy
from ..estimate_screen import MARKS, format_phases
from ..offer_columns import BOUNDS, BY_NAME, Offer
from ..output import UNKNOWN
from .text import escape_invisible, find_links_in_source

COLUMNS = tuple(
    BY_NAME[name]
    for name in (
        "mark", "machine", "run_time_s", "cost_usd", "usd_per_hour", "instance_type", "region", "purchase",
        "step_time_s", "memory_bytes", "limiter", "basis",
    )
)  # fmt: skip
ROWS_SHOWN = 10
NOTHING: Mapping[str, Any] = {"steps": [], "bills": [], "epochs": [], "turns": [], "colab": []}


def build_view(exact: Mapping[str, Any]) -> dict[str, Any]:
    """Build the page's data from a plan, with invisible characters made visible."""
    plan = escape_invisible({**exact, "offers": read_offers(exact)})
    offers, details = plan["offers"], {**NOTHING, **plan.get("details", {})}
    told = plan["terms"]["currency"]
    currency = Currency(code=told["code"], per_usd=Decimal(told["per_usd"]))
    picks = _find_picks(plan)
    rows = [_build_row(one, picks.get(index, ""), currency) for index, one in enumerate(offers)]
    first = _select_first(offers, picks)
    chosen = [offers[index] for index in picks]
    sharded = next((one for one in chosen if one.get("memory_parts_bytes")), None)
    memory = _build_memory(plan, sharded)
    return {
        "plan": plan,
        "currency": currency,
        "details": details,
        "question": _describe_workload(plan),
        "headline": str(plan["decision"]["sentence"]),
        "helps": [Improvement(**one).describe() for one in plan["decision"]["improvements"]],
        "cards": [_build_card(offers[index], mark, currency) for index, mark in picks.items()],
        "columns": COLUMNS,
        "top": [rows[index] for index in first[:ROWS_SHOWN]],
        "rows": rows,
        "steps": details["steps"],
        "memory": {**memory, "ways": _describe_memory_ways(chosen)},
        "bills": [
            {**_build_card(one := offers[bill["offer"]], "", currency), **bill, "unbilled": one["unbilled"]}
            for bill in details["bills"]
            if bill["offer"] in picks  # plans of earlier versions have others too
        ],
        "notes": _list_notes(plan, sharded),
        "sources": _collect_sources(offers, details["steps"]),
        "links_of": find_links_in_source,
        "chart": {**_build_chart(plan, first, picks, currency), "memory": memory["parts"]},
    }


def _find_picks(plan: Mapping[str, Any]) -> dict[int, str]:
    """Return the marks of the decision's offers by position, the recommended one first."""
    picks: dict[int, str] = {}
    for role in DECISION_ROLES:
        if plan["decision"].get(role) is not None:
            picks.setdefault(plan["decision"][role]["offer"], MARKS[role])
    return picks


def _select_first(offers: Sequence[Offer], picks: Iterable[int]) -> list[int]:
    """Return the positions of the picks, then of the best offer of each kind and number of devices, by total."""
    first: dict[object, int] = {}
    for index, one in enumerate(offers):
        first.setdefault((one["accelerator"], one["devices"], one["provider"] == "local"), index)
    totals = {index: float(offers[index].get("total_usd") or "inf") for index in first.values()}
    return list(dict.fromkeys([*picks, *sorted(totals, key=lambda index: totals[index])]))


def _build_row(one: Offer, mark: str, currency: Currency) -> list[list[Any]]:
    """Return text and number of each cell."""
    if not mark and (one.get("quota") or {}).get("state") == "too_small":
        mark = "no quota"
    entry = {**one, "mark": mark}
    cells = []
    for column in COLUMNS:  # a number to sort by is the value, or the middle of a range
        value = column.get_value(entry) if column.is_number else None
        value = value["mid"] if isinstance(value, Mapping) else value
        cells.append([column.describe(entry, currency), None if value is None else float(value)])
    return cells


def _describe_workload(plan: Mapping[str, Any]) -> list[str]:
    """Describe the workload in short phrases, without its name."""
    work = plan["workload"]
    parts = [
        f"{format_count(work['parameters'])} parameters",
        f"batch {work['batch_size']}",
        work["precision"],
        *([f"{work['quantization']} weights"] if work.get("quantization") else []),
    ]
    if phases := format_phases(plan.get("phases") or ()):
        return [*parts, phases]
    if work["samples"] is not None and work["epochs"] is not None:
        return [*parts, f"{work['epochs']:,} epochs of {work['samples']:,} samples"]
    return [*parts, "run length unknown" if work["steps"] is None else f"{work['steps']:,} steps"]


def _build_card(one: Offer, mark: str, currency: Currency) -> dict[str, str]:
    """Describe one offer of the decision."""
    return {
        "mark": mark,
        "machine": BY_NAME["machine"].describe(one, currency),
        "where": f"{one['instance_type']}, {one['region']}, {one['purchase'].replace('_', ' ')}",
        "time": BY_NAME["run_time_s"].describe(one, currency),
        "cost": BY_NAME["cost_usd"].describe(one, currency),
        "why": one.get("limiter_why") or "",
    }


def _build_chart(
    plan: Mapping[str, Any], first: Iterable[int], picks: Mapping[int, str], currency: Currency
) -> dict[str, Any]:
    """Build the data of the charts of money, time, memory and epochs."""
    offers, details = plan["offers"], {**NOTHING, **plan.get("details", {})}
    return {
        "currency": currency.code,
        "perUsd": float(currency.per_usd),
        "first": first,
        "points": [
            _build_point(one, index, picks.get(index, ""), currency)
            for index in first
            if (one := offers[index])["run_time_s"] and one["cost_usd"] and one["memory_fits"] is not False
        ],
        "capacity": _build_capacities(offers),
        "steps": details["steps"],
        "epochs": details["epochs"],
        "turns": [*details["turns"], *details["colab"]],
        "asked": plan["workload"]["epochs"],
    }


def _build_point(one: Offer, index: int, mark: str, currency: Currency) -> dict[str, Any]:
    """Build the chart point of an offer with its ranges: time [s], cost [USD]."""
    card = _build_card(one, mark, currency)
    run, cost = one["run_time_s"], one["cost_usd"]
    return {
        "offer": index,
        "mark": mark,
        "machine": card["machine"],
        "short": f"{format_duration(run['mid'])}, {currency.format_amount(float(cost['mid']))}",
        "text": f"{card['machine']}\n{card['where']}\n{card['time']}, {card['cost']}",
        "time": [run[bound] for bound in BOUNDS],
        "cost": [float(cost[bound]) for bound in BOUNDS],
    }


def _build_memory(plan: Mapping[str, Any], sharded: Offer | None) -> dict[str, Any]:
    """Return the parts of a step's memory, largest first: of a sharded offer, else of the whole model."""
    whole = plan["workload"].get("memory_parts_bytes") or plan["workload"]["memory"]
    parts = whole if sharded is None else sharded["memory_parts_bytes"]
    rows = [{"name": name, "gib": size / GIB} for name, size in parts.items() if size]
    rows.sort(key=lambda row: -row["gib"])
    return {"parts": rows, "total": sum(row["gib"] for row in rows)}


def _build_capacities(offers: Iterable[Offer]) -> list[dict[str, Any]]:
    """Return the memory of each offered accelerator, smallest first [GiB]."""
    found: dict[str, float] = {}
    for one in offers:
        if one["devices"] >= 1 and one["memory_available_bytes"] and one["accelerator"] != "CPU":
            found.setdefault(one["accelerator"], one["memory_available_bytes"] / GIB)
    return [{"name": name, "gib": gib} for name, gib in sorted(found.items(), key=lambda row: row[1])]


def _describe_memory_ways(chosen: Iterable[Offer]) -> list[str]:
    """Return what would make the step fit on the decision's offers."""
    lines = []
    for one in chosen:
        name = format_device(one["accelerator"], one["devices"])
        if one["memory_remedies"]:
            ways = "; ".join(
                describe_remedy(way["remedy"], is_enough=way["fits"]) for way in one["memory_remedies"]
            )
            lines.append(f"{name}: {one['memory_verdict']}. Possible remedies: {ways}.")
    return lines


def format_amount(line: Mapping[str, Any], currency: Currency) -> str:
    """Format the amount of an item; a discount has a minus sign."""
    low, mid, high = (float(line[key]) for key in ("usd_low", "usd", "usd_high"))
    return currency.format_spread(low, mid, high) if mid >= 0 else f"−{currency.format_amount(-mid)}"


def _list_notes(plan: Mapping[str, Any], sharded: Offer | None) -> list[str]:
    """Return the assumptions on the workload, unmodelled operations, and items not in the bill."""
    return [
        *plan["workload"]["notes"],
        *([] if sharded is None else [_describe_sharding(sharded)]),
        *(
            f"Not modelled: {one['name']}, {100 * one['bytes_share']:.2g} % of the bytes of a step."
            for one in plan["unmodelled"]
        ),
        *(f"Not in the bill: {item}." for item in plan["not_billed"]),
    ]


def _describe_sharding(one: Offer) -> str:
    """Return whose memory is shown by part, and what that offer exchanges."""
    said = [part for note in one["notes"] for part in note.split("; ")]
    sent = [part for part in said if part.startswith(f"{one['shard']} over")]
    name = format_device(one["accelerator"], one["devices"])
    return ". ".join([f"Memory by part is that of one of {name} under {one['shard']}", *sent])


def _collect_sources(offers: Iterable[Offer], steps: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the sources of prices, and of peaks and bandwidths, with their dates."""
    found: dict[str, list[str]] = {}
    for one in offers:
        if one["price_source"]:
            found.setdefault(one["price_source"], []).append(one["price_as_of"] or UNKNOWN)
    rows = [
        (source, f"{len(dates):,} prices", min(dates), max(dates))
        for source, dates in sorted(found.items(), key=lambda row: -len(row[1]))
    ]
    rows += [(one["source"], f"peaks of {one['accelerator']}", one["read_on"], one["read_on"]) for one in steps]
    return [dict(zip(("source", "of", "first", "last"), row, strict=True)) for row in rows]
