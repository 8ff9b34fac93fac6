"""Data of the report's template and script: a plan's numbers as text and chart points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...units import GIB, MS_PER_S, format_count, format_device, format_duration, format_offer_name, format_short
from ..output import UNKNOWN
from .text import (
    COLUMNS,
    ReportCurrency,
    build_offer_rows,
    build_recommendations,
    describe_workload,
    escape_invisible,
    find_links_in_source,
    select_shown_offers,
)

SHOWN = 6


def format_memory_lines(offers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each accelerator that is too small, or that a larger batch would use better.

    Args:
        offers: Offers of a plan, best first; the first per accelerator and number of devices is used.
    """
    first: dict[tuple[str, float], Mapping[str, Any]] = {}
    for one in offers:
        first.setdefault((one["accelerator"], one["devices"]), one)
    lines = [line for one in first.values() for line in _format_lines(one)]
    return lines[:SHOWN]


def _format_lines(one: Mapping[str, Any]) -> list[str]:
    name = format_device(one["accelerator"], one["devices"])
    remedies, best = one.get("memory_remedies") or [], one.get("best_batch")
    lines = []
    if remedies:
        verdict = one["memory_verdict"]
        ways = "; ".join(w["remedy"] + ("" if w["fits"] else ", not enough by itself") for w in remedies)
        lines.append(f"{name}: {verdict}. Possible remedies: {ways}.")
    if best is not None:
        faster = "" if best["speedup"] is None else f", {best['speedup']:.2g} times the samples per second"
        run = "" if best["run_time_s"] is None else f": {format_duration(best['run_time_s']['mid'])}"
        lines.append(f"{name} at its best batch, {best['batch_size']}{run}{faster}.")
    return lines


NOTHING: Mapping[str, Any] = {"steps": [], "bills": [], "epochs": [], "turns": [], "colab": []}


def build_view(exact: Mapping[str, Any]) -> dict[str, Any]:
    """Build the page's data from a plan, with invisible characters made visible."""
    plan = escape_invisible(dict(exact))
    currency = plan["terms"]["currency"]
    money = ReportCurrency(code=currency["code"], per_usd=float(currency["per_usd"]))
    shown = select_shown_offers(plan)
    details = {**NOTHING, **plan.get("details", {})}
    return {
        "plan": plan,
        "details": details,
        "money": money,
        "question": describe_workload(plan),
        "headline": str(plan["decision"]["sentence"]),
        "answers": build_recommendations(plan, money),
        "columns": COLUMNS,
        "rows": build_offer_rows(((index, plan["offers"][index]) for index in shown), money),
        "offers": len(plan["offers"]),
        "steps": [_build_step(step) for step in details["steps"]],
        "memory": {**_build_memory(plan), "ways": format_memory_lines(plan["offers"])},
        "bills": [_build_bill(plan, bill, money) for bill in details["bills"]],
        "turns": [_format_crossover(turn) for turn in details["turns"]],
        "colab": [_format_crossover(turn) for turn in details["colab"]],
        "assumptions": plan["terms"]["assumptions"],
        "given": plan["terms"]["given"],
        "notes": _build_notes(plan),
        "sources": [*_collect_price_sources(plan["offers"]), *_collect_chip_sources(details["steps"])],
        "links_of": find_links_in_source,
        "chart": _build_chart(plan, shown, details, money),
    }


def build_all_rows(exact: Mapping[str, Any], money: ReportCurrency) -> list[list[Any]]:
    """Build the table rows for all offers of a plan."""
    return build_offer_rows(enumerate(escape_invisible(list(exact["offers"]))), money)


def _build_chart(
    plan: Mapping[str, Any], shown: Iterable[int], details: Mapping[str, Any], money: ReportCurrency
) -> dict[str, Any]:
    """Build the chart data."""
    front = [one["offer"] for one in plan["recommendation"]["pareto"]]
    offers = ((index, plan["offers"][index]) for index in shown)
    return {
        "currency": money.code,
        "perUsd": money.per_usd,
        "points": [_build_point(one, index, front) for index, one in offers if _is_plottable(one)],
        "steps": details["steps"],
        "memory": _build_memory(plan)["parts"],
        "capacity": _build_capacities(plan),
        "epochs": details["epochs"],
        "turns": [*details["turns"], *details["colab"]],
        "asked": plan["workload"]["epochs"],
    }


def _is_plottable(one: Mapping[str, Any]) -> bool:
    return one["run_time_s"] is not None and one["cost_usd"] is not None and one["memory_fits"] is not False


def _build_point(one: Mapping[str, Any], index: int, front: list[int]) -> dict[str, Any]:
    """Build the chart point of an offer with its ranges: time [s], cost [USD]."""
    run, cost = one["run_time_s"], one["cost_usd"]
    return {
        "offer": index,
        "device": format_device(one["accelerator"], one["devices"]),
        "name": format_offer_name(one["provider"], one["instance_type"]),
        "provider": one["provider"],
        "region": one["region"],
        "purchase": "free" if float(cost["high"]) == 0 else one["purchase"].replace("_", " "),
        "time": [run["low"], run["mid"], run["high"]],
        "cost": [float(cost["low"]), float(cost["mid"]), float(cost["high"])],
        "best": index in front,
        "limit": one["limiter"] or UNKNOWN,
    }


def _build_step(step: Mapping[str, Any]) -> dict[str, Any]:
    """Build the tables of a step breakdown."""
    whole = step["step_s"]
    return {
        "name": step["accelerator"],
        "step": f"{format_short(whole * MS_PER_S)} ms",
        "peak": format_count(step["peak_flop_per_s"], "FLOP/s"),
        "bandwidth": format_count(step["memory_bytes_per_s"], "B/s"),
        "dtype": step["dtype"],
        "kinds": [_build_part(part, whole) for part in step["kinds"]],
        "layers": [_build_part(part, whole) for part in step["layers"]],
    }


def _build_part(part: Mapping[str, Any], whole_s: float) -> dict[str, str]:
    flops, moved = part["flops"], part["bytes_moved"]
    return {
        "name": part["name"],
        "time": f"{part['time_s'] * MS_PER_S:.3g} ms",
        "share": f"{100 * part['time_s'] / whole_s:.1f} %" if whole_s else UNKNOWN,
        "flops": format_count(flops, "FLOP") if flops else UNKNOWN,
        "bytes": format_count(moved, "B") if moved else UNKNOWN,
        "intensity": format_short(flops / moved) if flops and moved else UNKNOWN,
    }


def _build_memory(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a step's memory, largest first: of the best sharded offer, else of the whole model."""
    sharded = _find_sharded(plan)
    whole = plan["workload"].get("memory_parts_bytes") or plan["workload"]["memory"]
    parts = whole if sharded is None else sharded["memory_parts_bytes"]
    rows = [{"name": name, "gib": size / GIB} for name, size in parts.items() if size]
    rows.sort(key=lambda row: -row["gib"])
    return {"parts": rows, "total": sum(row["gib"] for row in rows)}


def _find_sharded(plan: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the best offer whose devices hold parts of the model; None without any."""
    return next((one for one in plan["offers"] if one.get("memory_parts_bytes")), None)


def _build_capacities(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the memory of each offered accelerator, smallest first [GiB]."""
    found: dict[str, float] = {}
    for one in plan["offers"]:
        if one["devices"] >= 1 and one["memory_available_bytes"] and one["accelerator"] != "CPU":
            found.setdefault(one["accelerator"], one["memory_available_bytes"] / GIB)
    return [{"name": name, "gib": gib} for name, gib in sorted(found.items(), key=lambda row: row[1])]


def _build_bill(plan: Mapping[str, Any], bill: Mapping[str, Any], money: ReportCurrency) -> dict[str, Any]:
    """Format the items of a bill."""
    one = plan["offers"][bill["offer"]]
    cost = one["cost_usd"]
    return {
        "name": format_offer_name(one["provider"], one["instance_type"]),
        "device": format_device(one["accelerator"], one["devices"]),
        "where": f"{one['region']}, {one['purchase'].replace('_', ' ')}",
        "lines": [_build_line(line, money) for line in bill["lines"]],
        "total": "" if cost is None else money.text(cost["mid"]),
        "range": "" if cost is None else money.between(cost["low"], cost["high"]),
        "time": "" if one["run_time_s"] is None else format_duration(one["run_time_s"]["mid"]),
        "unbilled": one.get("unbilled", []),
    }


def _build_line(line: Mapping[str, Any], money: ReportCurrency) -> dict[str, str]:
    usd = float(line["usd"]) * money.per_usd
    sign = "−" if usd < 0 else ""
    return {
        "item": line["item"],
        "time": "" if line["time_s"] is None else format_duration(line["time_s"]["mid"]),
        "usd": f"{sign}{money.symbol}{format_short(abs(usd))}",
        "range": money.between(line["usd_low"], line["usd_high"]) if usd >= 0 else "",
        "because": line["because"],
    }


def _format_crossover(turn: Mapping[str, Any]) -> str:
    return f"From {turn['from']:,} epochs on, take {turn['cheapest']} instead of {turn['instead_of']}."


def _build_notes(plan: Mapping[str, Any]) -> list[str]:
    """Return the assumptions on the workload, unmodelled operations, and items not in the bill."""
    unknown = [
        f"Not modelled: {one['name']}, {100 * one['bytes_share']:.2g} % of the bytes of a step."
        for one in plan["unmodelled"]
    ]
    left_out = [f"Not in the bill: {item}." for item in plan["not_billed"]]
    return [*plan["workload"]["notes"], *_format_sharding(plan), *unknown, *left_out]


def _format_sharding(plan: Mapping[str, Any]) -> list[str]:
    """Return whose memory is shown by part, if it is that of a sharded device, and what that offer exchanges."""
    one = _find_sharded(plan)
    if one is None:
        return []
    name = format_device(one["accelerator"], one["devices"])
    said = [part for note in one["notes"] for part in note.split("; ")]
    sent = [part for part in said if part.startswith(f"{one['shard']} over")]
    return [". ".join([f"Memory by part is that of one of {name} under {one['shard']}", *sent])]


def _collect_price_sources(offers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the sources of prices with their dates and numbers of offers."""
    found: dict[str, list[str]] = {}
    for one in offers:
        if one["price_source"]:
            found.setdefault(one["price_source"], []).append(one["price_as_of"] or UNKNOWN)
    return [
        {"source": source, "of": f"{len(dates):,} prices", "first": min(dates), "last": max(dates)}
        for source, dates in sorted(found.items(), key=lambda row: -len(row[1]))
    ]


def _collect_chip_sources(steps: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the sources of peaks and bandwidths."""
    rows = ((one["source"], f"peaks of {one['accelerator']}", one["read_on"]) for one in steps)
    return [{"source": source, "of": of, "first": day, "last": day} for source, of, day in rows]
