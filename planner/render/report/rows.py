"""Offers of a plan as rows of the report's table: what stands in a cell, and what it is sorted by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...units import MS_PER_S
from ..numbers import device_text, duration_text, offer_text, range_text, short_text, usd_text
from ..output import UNKNOWN

__all__ = ["COLUMNS", "Column", "Money", "offer_rows", "shown_offers"]

Offer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: heading, unit, and whether it is sorted by number."""

    title: str
    unit: str = ""
    numeric: bool = False


COLUMNS = (
    Column("accelerator"), Column("provider and machine"), Column("run", numeric=True),
    Column("run costs", "$", numeric=True), Column("region"), Column("purchase"),
    Column("price", "$/h", numeric=True), Column("step", "ms", numeric=True),
    Column("memory", "%", numeric=True), Column("limit"), Column("basis"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """What amounts are shown in.

    Args:
        code: Three letters.
        per_usd: How much of it a dollar buys.
    """

    code: str = "USD"
    per_usd: float = 1.0

    @property
    def symbol(self) -> str:
        """What stands before an amount, or the code."""
        return "$" if self.code == "USD" else f"{self.code} "

    def text(self, usd: Any) -> str:
        """Return an amount of dollars in this currency."""
        return f"{self.symbol}{usd_text(float(usd) * self.per_usd)}"

    def between(self, low: Any, high: Any) -> str:
        """Return a range of dollars in this currency."""
        ends = sorted(float(end) * self.per_usd for end in (low, high))
        return f"{self.symbol}{range_text(*ends)}" if ends[1] > 0 else f"{self.symbol}0"


def shown_offers(plan: Mapping[str, Any]) -> list[int]:
    """Return positions of the offers that the page shows at once: the recommended, and the best of each kind and
    number of devices, on demand, spot and free, in the plan's order.
    """
    seen: dict[tuple[Any, ...], int] = {}
    for index, one in enumerate(plan["offers"]):
        free = one["usd_per_hour"] is not None and float(one["usd_per_hour"]) == 0
        seen.setdefault((one["accelerator"], one["devices"], one["purchase"], free), index)
    chosen = plan["recommendation"]
    named = [one["offer"] for key, one in chosen.items() if key not in ("pareto", "sensitivity") and one]
    return sorted({*seen.values(), *named, *(one["offer"] for one in chosen["pareto"])})


def offer_rows(offers: Iterable[tuple[int, Offer]], money: Money) -> list[list[Any]]:
    """Return a row for each offer: its position, then text and sort value of every cell."""
    return [[index, *_cells(one, money)] for index, one in offers]


def _cells(one: Offer, money: Money) -> list[list[Any]]:
    price, step, run, cost = one["usd_per_hour"], one["step_time_s"], one["run_time_s"], one["cost_usd"]
    purchase = "free" if price is not None and float(price) == 0 else one["purchase"].replace("_", " ")
    return [
        [device_text(one["accelerator"], one["devices"])],
        [offer_text(one["provider"], one["instance_type"])],
        [_run(one), _mid(run)],
        [_cost(one, money), None if cost is None else float(cost["mid"])],
        [one["region"]],
        [purchase],
        [_price(one, money), None if price is None else float(price)],
        [
            UNKNOWN if step is None else range_text(step["low"] * MS_PER_S, step["high"] * MS_PER_S),
            _mid(step),
        ],
        [*_memory(one)],
        [one["limiter"] or UNKNOWN],
        [one["basis"] or UNKNOWN],
    ]


def _mid(interval: Mapping[str, float] | None) -> float | None:
    return None if interval is None else interval["mid"]


def _price(one: Offer, money: Money) -> str:
    if one["usd_per_hour"] is None:
        return UNKNOWN
    return f"{'~' if one['estimated'] else ''}{money.text(one['usd_per_hour'])}"


def _run(one: Offer) -> str:
    run = one["run_time_s"]
    if one["memory_fits"] is False:
        return "does not fit"
    if run is None:
        return UNKNOWN
    low, mid, high = (duration_text(run[end]) for end in ("low", "mid", "high"))
    return f"{mid} ({low} – {high})"


def _cost(one: Offer, money: Money) -> str:
    cost = one["cost_usd"]
    if one["memory_fits"] is False:
        largest = one["largest_batch_size"]
        return f"batch ≤ {largest}" if largest else "at no batch"
    if cost is None:
        return UNKNOWN
    if float(cost["high"]) == 0:
        return money.text(0)
    return f"{money.text(cost['mid'])} ({money.between(cost['low'], cost['high'])})"


def _memory(one: Offer) -> tuple[str, float | None]:
    needed, available = one["memory_bytes"], one["memory_available_bytes"]
    if needed is None or not available:
        return UNKNOWN, None
    share = 100 * needed / available
    return f"{short_text(share)} %", share
