"""Columns of offers: each value of an entry of `offers[]`, and how people read it.

A terminal, a notebook and the report show the columns that have a text; TSV and data frames have every value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from ..plan.cost_terms import Currency
from ..plan.decision import NAMED_BY, name_machine
from ..plan.offer_estimate import usd_per_million
from ..units import (
    GIB,
    MS_PER_S,
    Interval,
    format_device,
    format_duration_range,
    format_range,
    format_short,
    format_usd,
)
from .output import UNKNOWN

Offer = Mapping[str, Any]
BOUNDS = ("low", "mid", "high")


class OfferColumn(NamedTuple):
    """A column."""

    name: str  # name in TSV and data frames; a range has three columns, `_low`, `_mid` and `_high`
    header: str = ""  # header for people; empty where only programs read it
    # function from an entry of `offers[]` and a currency to what people read, None where nothing is known; without
    # it the value
    text: Callable[[Offer, Currency], str | None] | None = None
    # function from an entry to its value; by default the member of that name
    value: Callable[[Offer], Any] | None = None
    is_range: bool = False  # whether the value is an interval
    is_value: bool = True  # whether TSV and data frames have the column
    is_number: bool = False  # whether it is aligned to the right, and sorted by the value in the report

    def get_value(self, one: Offer) -> Any:
        """Return the value of an entry of `offers[]`."""
        return one[self.name] if self.value is None else self.value(one)

    def describe(self, one: Offer, currency: Currency) -> str:
        """Return what people read of an entry."""
        found = self.get_value(one) if self.text is None else self.text(one, currency)
        return UNKNOWN if found is None else found


def _per_second(one: Offer) -> dict[str, float] | None:
    """Return the throughput of all devices [1/s]."""
    step, size = one["step_time_s"], one["global_batch_size"]
    if step is None:
        return None
    return {"low": size / step["high"], "mid": size / step["mid"], "high": size / step["low"]}


def _usd_per_million(one: Offer) -> Decimal | None:
    """Return the cost of a million samples on a fully used machine [USD]."""
    rate, price = _per_second(one), one["usd_per_hour"]
    if rate is None or price is None:
        return None
    return usd_per_million(per_s=rate["mid"], usd_per_hour=Decimal(price))


def _rule_out(one: Offer) -> str | None:
    """Return why the work does not run on the devices; None if it may."""
    if one["memory_fits"] is False:
        return "does not fit"
    return "not on Keras 3" if one["runs"] is False else None


def _describe_time(one: Offer, currency: Currency) -> str | None:
    run = one["run_time_s"]
    return _rule_out(one) or (None if run is None else format_duration_range(Interval(**run)))


def _describe_cost(one: Offer, currency: Currency) -> str | None:
    cost, largest = one["cost_usd"], one["largest_batch_size"]
    if one["memory_fits"] is False:
        return f"batch ≤ {largest}" if largest else "any batch"
    return None if cost is None else currency.format_spread(*(float(cost[bound]) for bound in BOUNDS))


def _describe_price(one: Offer, currency: Currency) -> str | None:
    price = one["usd_per_hour"]
    if price is None:
        return None
    return f"{'~' if one['estimated'] else ''}{format_usd(float(currency.of_usd(Decimal(price))))}"


def _describe_ms(found: Mapping[str, float] | None) -> str | None:
    """Describe the ends of an interval of seconds in milliseconds; None for an unknown one."""
    return None if found is None else format_range(found["low"] * MS_PER_S, found["high"] * MS_PER_S)


def _describe_spread(found: Mapping[str, float] | None) -> str | None:
    """Describe an interval; None for an unknown one."""
    return None if found is None else f"{format_short(found['mid'])} ({format_range(found['low'], found['high'])})"


def _describe_rate(one: Offer, currency: Currency) -> str | None:
    return _rule_out(one) or _describe_spread(_per_second(one))


def _describe_million(one: Offer, currency: Currency) -> str | None:
    usd = _usd_per_million(one)
    return None if usd is None else currency.format_amount(float(usd))


def _latency(one: Offer) -> Any:
    return (one["serving"] or {}).get("latency_s")


def describe_memory(one: Offer, currency: Currency | None = None) -> str | None:
    """Describe the memory used by a step out of that available."""
    needed, available = one["memory_bytes"], one["memory_available_bytes"]
    if needed is None or not available:
        return None
    return f"{format_short(needed / GIB)} of {format_short(available / GIB)} GiB"


def _describe_layout(one: Offer, currency: Currency) -> str:
    """Describe how the devices run a step: what is sharded, in how many passes, with recomputed activations."""
    passes = one["batch_size_per_device"] // one["micro_batch_size"]
    parts = [
        "" if one["shard"] == "none" else f"{one['shard']} over {one['devices']:g}",
        "" if passes <= 1 else f"{passes} passes",
        "remat" if one["recomputed"] else "",
    ]
    return ", ".join(filter(None, parts)) or "none"


COLUMNS = (
    OfferColumn("mark", text=lambda one, _: one["mark"], is_value=False),
    OfferColumn("machine", "machine", lambda o, _: name_machine(**{k: o[k] for k in NAMED_BY}), is_value=False),
    OfferColumn("provider"),
    OfferColumn("instance_type", "instance"),
    OfferColumn("accelerator", "accelerator", lambda one, _: format_device(one["accelerator"], one["devices"])),
    OfferColumn("devices"),
    OfferColumn("region", "region"),
    OfferColumn("purchase", "purchase", lambda one, _: one["purchase"].replace("_", " ")),
    OfferColumn("layout", "layout", _describe_layout, is_value=False),
    OfferColumn("usd_per_hour", "$/h", _describe_price, is_number=True),
    OfferColumn("price_as_of"),
    OfferColumn("estimated"),
    OfferColumn("step_time_s", "step ms", lambda o, _: _describe_ms(o["step_time_s"]), None, True, is_number=True),
    OfferColumn("train_time_s", is_range=True),
    OfferColumn("run_time_s", "time", _describe_time, is_range=True, is_number=True),
    OfferColumn("cost_usd", "cost", _describe_cost, is_range=True, is_number=True),
    OfferColumn("usd_per_1000_steps"),
    OfferColumn("memory_bytes", "memory", describe_memory, is_number=True),
    OfferColumn("memory_fits"),
    OfferColumn("largest_batch_size"),
    OfferColumn("basis", "basis"),
    OfferColumn("limiter", "limit"),
    OfferColumn("status"),
    OfferColumn("memory_verdict"),
    OfferColumn("memory_remedies", value=lambda o: "; ".join(w["remedy"] for w in o["memory_remedies"]) or None),
    OfferColumn("samples_per_s", "samples/s", _describe_rate, _per_second, is_range=True, is_number=True),
    OfferColumn("usd_per_million_samples", "a million", _describe_million, _usd_per_million, is_number=True),
    OfferColumn("latency_s", "one, ms", lambda o, _: _describe_ms(_latency(o)), _latency, True, is_number=True),
    OfferColumn("shard"),
    OfferColumn("mfu", is_range=True),
    OfferColumn("tokens_per_s", is_range=True),
    OfferColumn("usd_per_million_tokens"),
    OfferColumn("gradient_accumulation_steps"),
    OfferColumn("recomputed"),
    OfferColumn("co2_kg", "kg CO2", lambda o, _: _describe_spread(o["co2_kg"]), is_value=False, is_number=True),
)  # fmt: skip
BY_NAME = {column.name: column for column in COLUMNS}
VALUES = tuple(column for column in COLUMNS if column.is_value)
VALUE_NAMES = tuple(
    name for one in VALUES for name in ([f"{one.name}_{end}" for end in BOUNDS] if one.is_range else [one.name])
)


def build_values(one: Offer) -> dict[str, Any]:
    """Return the values of an entry of `offers[]` at full precision, by column."""
    cells: list[Any] = []
    for column in VALUES:
        value = column.get_value(one)
        cells += [(value or {}).get(end) for end in BOUNDS] if column.is_range else [value]
    return dict(zip(VALUE_NAMES, cells, strict=True))
