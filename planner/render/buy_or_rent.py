"""Comparison of buying and renting a machine: recommendation, and cost of both by year."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .numbers import format_short, format_usd
from .output import Column, emit_json, emit_rows

if TYPE_CHECKING:
    from ..plan.compare.buy_or_rent import BuyRentComparison

__all__ = ["build_rig_json", "emit_rig", "format_rig_recommendation"]

YEARS = (1, 2, 3)
_COLUMNS = [
    Column(key="rented", header="instead of renting"),
    Column(key="price", header="$/h", justify="right"),
    Column(key="speed", header="speed", justify="right"),
    Column(key="months", header="pays off after", justify="right"),
    *(Column(key=f"year_{year}", header=f"{year} y: own | rent", justify="right") for year in YEARS),
]
_TSV = [
    Column(key=key, header=key)
    for key in (
        "provider",
        "instance_type",
        "region",
        "purchase",
        "usd_per_hour",
        "speed",
        "months_to_break_even",
    )
]


def format_rig_recommendation(verdicts: Sequence[BuyRentComparison]) -> str:
    """Return the recommendation against the strongest rental, in one sentence."""
    first = verdicts[0]
    rig, rented = first.rig, f"{first.rented['provider']} {first.rented['instance_type']}"
    use = f"At {rig.hours_a_week:g} h per week"
    if first.months is None:
        return f"{use}, do not buy: renting {rented} is cheaper for 20 years."
    bought = f"a {first.accelerator} for ${rig.purchase_usd:,.0f}"
    return f"{use}, {bought} pays off after {_format_months(first.months)} (compared with {rented})."


def build_rig_json(verdicts: Sequence[BuyRentComparison]) -> dict[str, Any]:
    """Return the JSON object."""
    from ..plan.compare.buy_or_rent import SCHEMA

    rig = verdicts[0].rig
    return {
        "schema": SCHEMA,
        "verdict": format_rig_recommendation(verdicts),
        "rig": {
            "accelerator": verdicts[0].accelerator,
            "purchase_usd": f"{rig.purchase_usd:.2f}",
            "value_lost_per_year": rig.value_lost_per_year,
            "power_w": rig.power_w,
            "idle_power_w": rig.idle_power_w,
            "electricity_usd_per_kwh": rig.electricity_usd_per_kwh,
            "hours_a_week": rig.hours_a_week,
        },
        "rivals": [verdict.to_json() for verdict in verdicts],
    }


def emit_rig(verdicts: Sequence[BuyRentComparison], *, as_json: bool) -> None:
    """Write the comparison to standard output: JSON, a table on a terminal, or TSV in a pipe."""
    if as_json:
        document = build_rig_json(verdicts)
        emit_json(document.pop("schema"), document)
    elif sys.stdout.isatty():
        sys.stdout.write(f"{format_rig_recommendation(verdicts)}\n\n")
        emit_rows(_COLUMNS, [_build_row(verdict) for verdict in verdicts])
        rig = verdicts[0].rig
        sys.stdout.write(
            f"\nAssumed: {rig.value_lost_per_year:.0%} of the value lost per year, {rig.power_w:g} W in use, "
            f"${rig.electricity_usd_per_kwh:g} per kWh; your time, repairs and cooling are not included.\n"
        )
    else:
        emit_rows(_TSV, [verdict.to_json() for verdict in verdicts])


def _build_row(verdict: BuyRentComparison) -> dict[str, Any]:
    """Format one rental for the table."""
    rented = verdict.rented
    row = {
        "rented": f"{rented['provider']} {rented['instance_type']}, {rented['region']}, {rented['purchase']}",
        "price": format_usd(verdict.usd_per_hour),
        "speed": f"{verdict.speed:.2g}x",
        "months": "never" if verdict.months is None else _format_months(verdict.months),
    }
    for year in YEARS:
        own, rent = verdict.cost_usd(12.0 * year)
        row[f"year_{year}"] = f"{format_usd(own)} | {format_usd(rent)}"
    return row


def _format_months(months: float) -> str:
    return f"{format_short(months)} months"
