"""What the report's template and script are given: a plan's numbers as texts and as points of charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...units import GIB, MS_PER_S
from ..numbers import count_text, device_text, duration_text, offer_text, short_text
from ..output import UNKNOWN
from .answer import answers, headline, question
from .embed import visible
from .fitting import memory_ways
from .links import links_of
from .rows import COLUMNS, Money, offer_rows, shown_offers

__all__ = ["every_row", "view_of"]

NOTHING: Mapping[str, Any] = {"steps": [], "bills": [], "epochs": [], "turns": [], "colab": []}


def view_of(exact: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that a page shows of a plan, invisible characters made visible."""
    plan = visible(dict(exact))
    currency = plan["terms"]["currency"]
    money = Money(code=currency["code"], per_usd=float(currency["per_usd"]))
    shown = shown_offers(plan)
    details = {**NOTHING, **plan.get("details", {})}
    return {
        "plan": plan,
        "details": details,
        "money": money,
        "question": question(plan),
        "headline": headline(plan, money),
        "answers": answers(plan, money),
        "columns": COLUMNS,
        "rows": offer_rows(((index, plan["offers"][index]) for index in shown), money),
        "offers": len(plan["offers"]),
        "steps": [_step(step) for step in details["steps"]],
        "memory": {**_memory(plan), "ways": memory_ways(plan["offers"])},
        "bills": [_bill(plan, bill, money) for bill in details["bills"]],
        "turns": [_turn(turn) for turn in details["turns"]],
        "colab": [_turn(turn) for turn in details["colab"]],
        "assumptions": plan["terms"]["assumptions"],
        "given": plan["terms"]["given"],
        "notes": _notes(plan),
        "sources": [*_price_sources(plan["offers"]), *_chip_sources(details["steps"])],
        "links_of": links_of,
        "chart": _chart(plan, shown, details, money),
    }


def every_row(exact: Mapping[str, Any], money: Money) -> list[list[Any]]:
    """Return the table's rows for all offers of a plan."""
    return offer_rows(enumerate(visible(list(exact["offers"]))), money)


def _chart(
    plan: Mapping[str, Any], shown: Iterable[int], details: Mapping[str, Any], money: Money
) -> dict[str, Any]:
    """Return what the script draws."""
    front = [one["offer"] for one in plan["recommendation"]["pareto"]]
    return {
        "currency": money.code,
        "perUsd": money.per_usd,
        "points": [_point(plan["offers"][i], i, front) for i in shown if _plottable(plan["offers"][i])],
        "steps": details["steps"],
        "memory": _memory(plan)["parts"],
        "capacity": _capacities(plan),
        "epochs": details["epochs"],
        "turns": [*details["turns"], *details["colab"]],
        "asked": plan["workload"]["epochs"],
    }


def _plottable(one: Mapping[str, Any]) -> bool:
    return one["run_time_s"] is not None and one["cost_usd"] is not None and one["memory_fits"] is not False


def _point(one: Mapping[str, Any], index: int, front: list[int]) -> dict[str, Any]:
    """Return an offer as a point with its ranges: time [s], cost [USD]."""
    run, cost = one["run_time_s"], one["cost_usd"]
    return {
        "offer": index,
        "device": device_text(one["accelerator"], one["devices"]),
        "name": offer_text(one["provider"], one["instance_type"]),
        "provider": one["provider"],
        "region": one["region"],
        "purchase": "free" if float(cost["high"]) == 0 else one["purchase"].replace("_", " "),
        "time": [run["low"], run["mid"], run["high"]],
        "cost": [float(cost["low"]), float(cost["mid"]), float(cost["high"])],
        "best": index in front,
        "limit": one["limiter"] or UNKNOWN,
    }


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step taken apart, as the texts of its tables."""
    whole = step["step_s"]
    return {
        "name": step["accelerator"],
        "step": f"{short_text(whole * MS_PER_S)} ms",
        "peak": count_text(step["peak_flop_per_s"], "FLOP/s"),
        "bandwidth": count_text(step["memory_bytes_per_s"], "B/s"),
        "dtype": step["dtype"],
        "kinds": [_part(part, whole) for part in step["kinds"]],
        "layers": [_part(part, whole) for part in step["layers"]],
    }


def _part(part: Mapping[str, Any], whole_s: float) -> dict[str, str]:
    flops, moved = part["flops"], part["bytes_moved"]
    return {
        "name": part["name"],
        "time": f"{part['time_s'] * MS_PER_S:.3g} ms",
        "share": f"{100 * part['time_s'] / whole_s:.1f} %" if whole_s else UNKNOWN,
        "flops": count_text(flops, "FLOP") if flops else UNKNOWN,
        "bytes": count_text(moved, "B") if moved else UNKNOWN,
        "intensity": short_text(flops / moved) if flops and moved else UNKNOWN,
    }


def _memory(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a step's memory, largest first."""
    parts = plan["workload"].get("memory_parts_bytes") or plan["workload"]["memory"]
    rows = [{"name": name, "gib": size / GIB} for name, size in parts.items() if size]
    rows.sort(key=lambda row: -row["gib"])
    return {"parts": rows, "total": sum(row["gib"] for row in rows)}


def _capacities(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the memory of each accelerator that one device of is offered, smallest first [GiB]."""
    found: dict[str, float] = {}
    for one in plan["offers"]:
        if one["devices"] >= 1 and one["memory_available_bytes"] and one["accelerator"] != "CPU":
            found.setdefault(one["accelerator"], one["memory_available_bytes"] / GIB)
    return [{"name": name, "gib": gib} for name, gib in sorted(found.items(), key=lambda row: row[1])]


def _bill(plan: Mapping[str, Any], bill: Mapping[str, Any], money: Money) -> dict[str, Any]:
    """Return a bill as lines of texts."""
    one = plan["offers"][bill["offer"]]
    return {
        "name": offer_text(one["provider"], one["instance_type"]),
        "device": device_text(one["accelerator"], one["devices"]),
        "where": f"{one['region']}, {one['purchase'].replace('_', ' ')}",
        "lines": [_line(line, money) for line in bill["lines"]],
        "total": "" if one["cost_usd"] is None else money.text(one["cost_usd"]["mid"]),
        "range": ""
        if one["cost_usd"] is None
        else money.between(one["cost_usd"]["low"], one["cost_usd"]["high"]),
        "time": "" if one["run_time_s"] is None else duration_text(one["run_time_s"]["mid"]),
        "unbilled": one.get("unbilled", []),
    }


def _line(line: Mapping[str, Any], money: Money) -> dict[str, str]:
    usd = float(line["usd"]) * money.per_usd
    sign = "−" if usd < 0 else ""
    return {
        "item": line["item"],
        "time": "" if line["time_s"] is None else duration_text(line["time_s"]["mid"]),
        "usd": f"{sign}{money.symbol}{short_text(abs(usd))}",
        "range": money.between(line["usd_low"], line["usd_high"]) if usd >= 0 else "",
        "because": line["because"],
    }


def _turn(turn: Mapping[str, Any]) -> str:
    return f"From {turn['from']:,} epochs on, {turn['cheapest']} is cheaper than {turn['instead_of']}."


def _notes(plan: Mapping[str, Any]) -> list[str]:
    """Return what was assumed of the workload, what was not understood, and what the bill leaves out."""
    unknown = [
        f"Not modelled: {one['name']}, {100 * one['bytes_share']:.2g} % of the bytes of a step."
        for one in plan["unmodelled"]
    ]
    left_out = [f"Not in the bill: {item}." for item in plan["not_billed"]]
    return [*plan["workload"]["notes"], *unknown, *left_out]


def _price_sources(offers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the sources of prices, each with its dates and how many offers rest on it."""
    found: dict[str, list[str]] = {}
    for one in offers:
        if one["price_source"]:
            found.setdefault(one["price_source"], []).append(one["price_as_of"] or UNKNOWN)
    return [
        {"source": source, "of": f"{len(dates):,} prices", "first": min(dates), "last": max(dates)}
        for source, dates in sorted(found.items(), key=lambda row: -len(row[1]))
    ]


def _chip_sources(steps: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the sources of peaks and bandwidths."""
    return [
        {
            "source": s["source"],
            "of": f"peaks of {s['accelerator']}",
            "first": s["read_on"],
            "last": s["read_on"],
        }
        for s in steps
    ]
