"""A comparison of ways to do some work: the verdict in one sentence, the table, and where it turns."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from ..units import SECONDS_PER_HOUR
from .age import age_line
from .numbers import device_text, duration_text, offer_text, range_text, usd_text
from .output import Column, emit_json, emit_rows

if TYPE_CHECKING:
    from ..plan.breakeven import Breakeven, Turn
    from ..plan.terms import Currency
    from ..plan.ways import Outcome

__all__ = ["emit_breakeven", "verdict_text"]

FALLBACK_SIZE = (80, 24)
_COLUMNS = [
    Column(key="name", header="way"),
    Column(key="offer", header="offer"),
    Column(key="device", header="accelerator"),
    Column(key="sessions", header="sessions", justify="right"),
    Column(key="machine", header="on it", justify="right"),
    Column(key="calendar", header="calendar", justify="right"),
    Column(key="money", header="money", justify="right"),
    Column(key="own", header="your time", justify="right"),
    Column(key="total", header="together", justify="right"),
]
_TSV = [
    Column(key=key, header=key)
    for key in (
        "name", "provider", "instance_type", "accelerator", "devices", "region", "purchase", "usd_per_hour",
        "price_as_of", "sessions", "machine_h", "calendar_h", "own_h", "money_usd_low", "money_usd",
        "money_usd_high", "own_time_usd", "total_usd",
    )
]  # fmt: skip


def emit_breakeven(result: Breakeven, *, as_json: bool) -> None:
    """Write a comparison to standard output: JSON, a table on a terminal, or TSV in a pipe."""
    if as_json:
        document = result.to_json()
        emit_json(document.pop("schema"), {"verdict": verdict_text(result), **document})
    elif sys.stdout.isatty():
        _emit_table(result, width=shutil.get_terminal_size(FALLBACK_SIZE).columns)
    else:
        emit_rows(_TSV, [_tsv_row(way) for way in result.ways])


def verdict_text(result: Breakeven) -> str:
    """Return what to do, in one sentence, and where that stops being right."""
    best, currency = result.best, result.terms.currency
    work = "this run" if result.runs == 1 else f"{result.runs} such runs"
    others = [way for way in result.ways[1:] if way.contender.name != best.contender.name]
    cost = f"{_amount(best.money_usd.mid, currency)} and {_hours(best.own_h)} of your time"
    text = f"For {work}, take {_way(best)}: {cost}, done in {_hours(best.calendar_h)}"
    if others:
        second = others[0]
        paid = f"{_amount(second.money_usd.mid, currency)} and {_hours(second.own_h)}"
        text += f"; the next best, {_way(second)}, takes {paid}, done in {_hours(second.calendar_h)}"
    return f"{text}."


def _emit_table(result: Breakeven, *, width: int) -> None:
    """Print verdict, table, turning points and what it all rests on."""
    currency = result.terms.currency
    sys.stdout.write("\n".join(textwrap.wrap(verdict_text(result), width)) + "\n\n")
    emit_rows(_COLUMNS, [_row(way, currency) for way in result.ways])
    lines = [*_turn_lines(result), "", *_trust_lines(result)]
    wrapped = [line for text in lines for line in (textwrap.wrap(text, width) or [""])]
    sys.stdout.write("\n" + "\n".join(wrapped) + "\n")


def _row(way: Outcome, currency: Currency) -> dict[str, Any]:
    """Return one way's cells: text for people."""
    offer = way.contender.offer.offer
    low, high = (float(way.money_usd.low), float(way.money_usd.high))
    rate = float(currency.per_usd)
    return {
        "name": way.contender.name,
        "offer": offer_text(offer.provider, offer.instance_type),
        "device": device_text(offer.accelerator, offer.devices),
        "sessions": f"{way.sessions:,}",
        "machine": _hours(way.machine_h.mid),
        "calendar": _hours(way.calendar_h),
        "money": range_text(low * rate, high * rate) if high else "0",
        "own": _hours(way.own_h),
        "total": usd_text(way.total_usd * rate),
    }


def _turn_lines(result: Breakeven) -> list[str]:
    """Return where another way becomes the cheapest, a sentence each."""
    lines = []
    for turns, what in ((result.by_epochs, "epochs"), (result.by_runs, "runs")):
        if turns is None:
            continue
        if not turns:
            lines.append(f"The cheapest stays the same whatever the number of {what} (up to 100,000).")
        lines += [_turn_text(turn, what) for turn in turns]
    return lines


def _turn_text(turn: Turn, what: str) -> str:
    return f"From {turn.at:,} {what} on, {turn.to} is cheaper than {turn.before}."


def _trust_lines(result: Breakeven) -> list[str]:
    """Return what the comparison rests on."""
    value = result.hour_value_usd
    time = (
        f"An hour of your time counts ${value:g}." if value else "Your time counts nothing (--hour-value 20)."
    )
    notebooks = [way for way in result.ways if way.contender.plan is not None]
    uncertain = [way.contender.name for way in notebooks if way.contender.availability.chance is None]
    chance = (
        f"The chance of getting the accelerator is not published ({', '.join(uncertain)}): taken as certain "
        "(--assume chance=0.7)."
        if uncertain
        else ""
    )
    age = age_line(way.contender.offer.offer for way in result.ways)
    return [
        line
        for line in (time, chance, age, "Runs follow one another; --json names every assumption.")
        if line
    ]


def _tsv_row(way: Outcome) -> dict[str, Any]:
    """Return one way at full precision."""
    row = way.to_json()
    money = row.pop("money_usd")
    return {
        **row,
        "machine_h": way.machine_h.mid,
        "money_usd_low": money["low"], "money_usd": money["mid"], "money_usd_high": money["high"],
    }  # fmt: skip


def _way(way: Outcome) -> str:
    """Return a way by its name and what it runs on."""
    offer = way.contender.offer.offer
    return f"{way.contender.name} ({device_text(offer.accelerator, offer.devices)})"


def _amount(usd: float, currency: Currency) -> str:
    text = usd_text(usd * float(currency.per_usd))
    return f"${text}" if currency.code == "USD" else f"{text} {currency.code}"


def _hours(hours: float) -> str:
    return "0" if hours == 0 else duration_text(hours * SECONDS_PER_HOUR)
