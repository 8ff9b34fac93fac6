"""Output of comparisons: break-even analysis, purchase of a machine versus rent, and sweeps."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..units import (
    SECONDS_PER_HOUR,
    format_device,
    format_duration,
    format_offer_name,
    format_range,
    format_short,
    format_usd,
)
from .estimate_notes import format_age_line
from .output import Column, emit_document, emit_rows, emit_text, emit_tsv, get_terminal_width

if TYPE_CHECKING:
    from ..plan.alternative_costs import AlternativeCost, Crossover
    from ..plan.breakeven import Breakeven
    from ..plan.buy_or_rent import BuyRentComparison
    from ..plan.cost_terms import Currency
    from ..plan.sweep import SweepPoint, SweepResult


_COLUMNS = [
    Column(key="name", header="alternative"),
    Column(key="offer", header="offer"),
    Column(key="device", header="accelerator", dispensable=2),
    Column(key="sessions", header="sessions", justify="right", dispensable=4),
    Column(key="machine", header="machine time", justify="right", dispensable=3),
    Column(key="calendar", header="calendar", justify="right"),
    Column(key="money", header="cost", justify="right"),
    Column(key="own", header="your time", justify="right", dispensable=1),
    Column(key="total", header="total", justify="right"),
]
_TSV = (
    "name", "provider", "instance_type", "accelerator", "devices", "region", "purchase", "usd_per_hour",
    "price_as_of", "sessions", "machine_h", "calendar_h", "own_h", "money_usd_low", "money_usd",
    "money_usd_high", "own_time_usd", "total_usd",
)  # fmt: skip


def emit_breakeven(result: Breakeven, *, as_json: bool) -> None:
    """Write a comparison to standard output: JSON, a table on a terminal, or TSV in a pipe."""
    if as_json:
        emit_document(build_breakeven_json(result))
    elif sys.stdout.isatty():
        _emit_table(result, width=get_terminal_width())
    else:
        emit_tsv(_TSV, [_build_tsv_row(cost) for cost in result.alternatives])


def build_breakeven_json(result: Breakeven) -> dict[str, Any]:
    """Return the JSON object: the recommendation, then the comparison."""
    return {"verdict": format_recommendation(result), **result.to_json()}


def format_recommendation(result: Breakeven) -> str:
    """Return the recommendation, its cost and the next best alternative in one sentence."""
    if result.decision is not None:
        return str(result.decision["sentence"])
    best, currency = result.best, result.terms.currency
    work = "this run" if result.runs == 1 else f"{result.runs} such runs"
    others = [cost for cost in result.alternatives[1:] if cost.alternative.name != best.alternative.name]
    cost = f"{_format_amount(best.money_usd.mid, currency)} and {_format_hours(best.own_h)} of your time"
    text = f"For {work}, take {_format_alternative(best)}: {cost}, done in {_format_hours(best.calendar_h)}"
    if others:
        second = others[0]
        paid = f"{_format_amount(second.money_usd.mid, currency)} and {_format_hours(second.own_h)}"
        done = _format_hours(second.calendar_h)
        text += f"; the next best, {_format_alternative(second)}, takes {paid}, done in {done}"
    return f"{text}."


def _emit_table(result: Breakeven, *, width: int) -> None:
    """Print recommendation, table, break-even points and assumptions."""
    currency = result.terms.currency
    emit_text("\n".join(textwrap.wrap(format_recommendation(result), width)) + "\n\n")
    emit_rows(_COLUMNS, [_build_row(cost, currency) for cost in result.alternatives])
    by_epochs = [] if result.by_epochs is None else format_crossovers(result.by_epochs, "epochs")
    lines = [*by_epochs, *format_crossovers(result.by_runs, "runs"), "", *_format_assumptions(result)]
    wrapped = [line for text in lines for line in (textwrap.wrap(text, width) or [""])]
    emit_text("\n" + "\n".join(wrapped) + "\n")


def _build_row(cost: AlternativeCost, currency: Currency) -> dict[str, Any]:
    """Format one alternative for the table."""
    offer = cost.alternative.offer.offer
    money, rate = cost.money_usd, float(currency.per_usd)
    low, mid, high = (float(usd) * rate for usd in (money.low, money.mid, money.high))
    return {
        "name": cost.alternative.name,
        "offer": format_offer_name(offer.provider, offer.instance_type),
        "device": format_device(offer.accelerator, offer.devices),
        "sessions": f"{cost.sessions:,}",
        "machine": _format_hours(cost.machine_h.mid),
        "calendar": _format_hours(cost.calendar_h),
        # With its range unless it is certain.
        "money": format_usd(mid) if low == high else f"{format_usd(mid)} ({format_range(low, high)})",
        "own": _format_hours(cost.own_h),
        "total": format_usd(cost.total_usd * rate),
    }


SHOWN_CROSSOVERS = 3


def format_crossovers(crossovers: Sequence[Crossover], what: str) -> list[str]:
    """Return one sentence for each of the first crossovers, and one for all others.

    Args:
        crossovers: By number of epochs or runs.
        what: `epochs` or `runs`.
    """
    if not crossovers:
        return [f"The cheapest alternative is the same for any number of {what} up to 100,000."]
    lines = [
        f"From {one.at:,} {what} on, take {one.to} instead of {one.before}."
        for one in crossovers[:SHOWN_CROSSOVERS]
    ]
    further = crossovers[SHOWN_CROSSOVERS:]
    if further:
        names = sorted({name for one in further for name in (one.before, one.to)})
        count = "One further change" if len(further) == 1 else f"{len(further)} further changes"
        lines.append(f"{count} between {', '.join(names)} up to {further[-1].at:,} {what}: --json lists them.")
    return lines


def _format_assumptions(result: Breakeven) -> list[str]:
    """Return the assumptions of the comparison."""
    time = (
        f"An hour of your time is valued at ${result.hour_value_usd:g} (--hour-value), one of waiting at "
        f"${result.wait_value_usd:g} (--wait-value)."
    )
    notebooks = [cost for cost in result.alternatives if cost.alternative.offer.selected.limits is not None]
    uncertain = [cost.alternative.name for cost in notebooks if cost.access.chance is None]
    chance = (
        f"The probability of getting the accelerator is not published ({', '.join(uncertain)}): assumed to be 1 "
        "(--assume chance=0.7)."
        if uncertain
        else ""
    )
    age = format_age_line(cost.alternative.offer.offer for cost in result.alternatives)
    return [line for line in (time, chance, age, "Runs are sequential; --json lists every assumption.") if line]


def _build_tsv_row(cost: AlternativeCost) -> dict[str, Any]:
    """Return one alternative at full precision."""
    row = cost.to_json()
    money = row.pop("money_usd")
    return {
        **row,
        "machine_h": cost.machine_h.mid,
        "money_usd_low": money["low"],
        "money_usd": money["mid"],
        "money_usd_high": money["high"],
    }


def _format_alternative(cost: AlternativeCost) -> str:
    """Format the name and device of an alternative."""
    offer = cost.alternative.offer.offer
    return f"{cost.alternative.name} ({format_device(offer.accelerator, offer.devices)})"


def _format_amount(usd: float, currency: Currency) -> str:
    return currency.format(format_usd(usd * float(currency.per_usd)))


def _format_hours(hours: float) -> str:
    return "0" if hours == 0 else format_duration(hours * SECONDS_PER_HOUR)


YEARS = (1, 2, 3)
_RIG_COLUMNS = [
    Column(key="rented", header="instead of renting"),
    Column(key="price", header="$/h", justify="right", dispensable=2),
    Column(key="speed", header="speed", justify="right", dispensable=1),
    Column(key="months", header="pays off", justify="right"),
    *(
        Column(key=f"year_{year}", header=f"{year} y: own | rent", justify="right", dispensable=5 - year)
        for year in YEARS
    ),
]
_RIG_TSV = (
    "provider", "instance_type", "region", "purchase", "usd_per_hour", "speed", "months_to_break_even",
)  # fmt: skip


_RIG_TERMS = (
    "value_lost_per_year", "power_w", "idle_power_w", "electricity_usd_per_kwh", "hours_a_week",
)  # fmt: skip


def format_rig_recommendation(verdicts: Sequence[BuyRentComparison]) -> str:
    """Return the recommendation against the strongest rental, in one sentence."""
    from ..plan.buy_or_rent import FARTHEST_MONTHS, USEFUL_MONTHS

    first = verdicts[0]
    rig, rented = first.rig, format_offer_name(first.rented["provider"], first.rented["instance_type"])
    use = f"At {rig.hours_a_week:g} h per week"
    if first.months is None or first.months > USEFUL_MONTHS:
        years = FARTHEST_MONTHS if first.months is None else USEFUL_MONTHS
        return f"{use}, do not buy: renting {rented} is cheaper for {years / 12:g} years."
    bought = f"a {first.accelerator} for ${rig.purchase_usd:,.0f}"
    return f"{use}, {bought} pays off {_format_payoff(first.months)} (compared with {rented})."


def build_rig_json(verdicts: Sequence[BuyRentComparison]) -> dict[str, Any]:
    """Return the JSON object."""
    from ..plan.buy_or_rent import SCHEMA

    rig = verdicts[0].rig
    return {
        "schema": SCHEMA,
        "verdict": format_rig_recommendation(verdicts),
        "rig": {
            "accelerator": verdicts[0].accelerator,
            "purchase_usd": f"{rig.purchase_usd:.2f}",
            **{name: getattr(rig, name) for name in _RIG_TERMS},
        },
        "rivals": [verdict.to_json() for verdict in verdicts],
    }


def emit_rig(verdicts: Sequence[BuyRentComparison], *, as_json: bool) -> None:
    """Write the comparison to standard output: JSON, a table on a terminal, or TSV in a pipe."""
    if as_json:
        emit_document(build_rig_json(verdicts))
    elif sys.stdout.isatty():
        emit_text(f"{format_rig_recommendation(verdicts)}\n\n")
        emit_rows(_RIG_COLUMNS, [_build_rig_row(verdict) for verdict in verdicts])
        rig = verdicts[0].rig
        emit_text(
            f"\nAssumed: {rig.value_lost_per_year:.0%} of the value lost per year, {rig.power_w:g} W in use, "
            f"${rig.electricity_usd_per_kwh:g} per kWh, ${verdicts[0].wait_value_usd:g} an hour of waiting; "
            "your time, repairs and cooling are not included.\n"
        )
    else:
        emit_tsv(_RIG_TSV, [verdict.to_json() for verdict in verdicts])


def _build_rig_row(verdict: BuyRentComparison) -> dict[str, Any]:
    """Format one rental for the table."""
    rented = verdict.rented
    name = format_offer_name(rented["provider"], rented["instance_type"])
    row = {
        "rented": f"{name}, {rented['region']}, {rented['purchase']}",
        "price": format_usd(verdict.usd_per_hour),
        "speed": f"{verdict.speed:.2g}x",
        "months": "never" if verdict.months is None else _format_payoff(verdict.months),
    }
    for year in YEARS:
        own, rent = verdict.cost_usd(12.0 * year)
        row[f"year_{year}"] = f"{format_usd(own)} | {format_usd(rent)}"
    return row


def _format_payoff(months: float) -> str:
    return f"after {format_short(months)} months" if months > 0 else "at once"


_SWEEP_COLUMNS = [
    Column(key="batch", header="batch", justify="right"),
    Column(key="precision", header="precision"),
    Column(key="device", header="accelerator"),
    Column(key="offer", header="offer"),
    Column(key="region", header="region", dispensable=1),
    Column(key="purchase", header="buy"),
    Column(key="time", header="run", justify="right"),
    Column(key="cost", header="cost", justify="right"),
]
_SWEEP_TSV = (
    "batch_size", "global_batch_size", "precision", "provider", "instance_type", "accelerator", "devices",
    "region", "purchase", "run_time_s", "cost_usd", "memory_bytes", "basis", "limiter", "best",
)  # fmt: skip


def emit_sweep(result: SweepResult, *, as_json: bool) -> None:
    """Write a sweep to standard output: JSON, the best points on a terminal, or every point as TSV."""
    if as_json:
        emit_document(result.to_json())
    elif sys.stdout.isatty():
        currency = result.terms.currency
        title = f"{result.model}: {len(result.best)} best of {len(result.points)} points, fastest first"
        emit_rows(_SWEEP_COLUMNS, [_build_sweep_row(point, currency) for point in result.best], title=title)
        lines = [f"omitted: batch {size}, {precision}: {reason}" for size, precision, reason in result.failed]
        age = format_age_line(point.offer.offer for point in result.best)
        more = "A larger global batch changes the optimization per epoch. A pipe and --json list every point."
        emit_text("\n" + "\n".join([*lines, more, *([age] if age else [])]) + "\n")
    else:
        emit_tsv(_SWEEP_TSV, [_build_sweep_tsv_row(point) for point in result.points])


def _build_sweep_row(point: SweepPoint, currency: Currency) -> dict[str, Any]:
    """Format a point for the table."""
    offer, bill = point.offer.offer, point.offer.bill
    ends = () if bill is None else (bill.total.low, bill.total.high)
    low, high = (float(currency.of_usd(usd)) for usd in ends) if ends else (0.0, 0.0)
    return {
        "batch": f"{point.batch_size:,}",
        "precision": point.precision,
        "device": format_device(offer.accelerator, offer.devices),
        "offer": format_offer_name(offer.provider, offer.instance_type),
        "region": offer.region,
        "purchase": offer.purchase.removeprefix("on_"),
        "time": format_duration(point.time_s),
        "cost": format_range(low, high) if high > 0 else format_usd(0.0),
    }


def _build_sweep_tsv_row(point: SweepPoint) -> dict[str, Any]:
    """Return a point at full precision, with central estimates of time and cost."""
    bill = point.offer.bill
    return {**point.to_json(), "run_time_s": point.time_s, "cost_usd": bill.total.mid if bill else None}
