"""Table of an estimate: its offers, columns, cells and phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from ..plan.cost_terms import USD
from ..units import (
    GIB,
    MS_PER_S,
    format_count,
    format_device,
    format_duration,
    format_duration_range,
    format_offer_name,
    format_range,
    format_short,
    format_usd,
)
from .estimate_notes import format_usd_per_million
from .output import Column, clip

if TYPE_CHECKING:
    from ..plan.bill import Bill
    from ..plan.cost_terms import Currency
    from ..plan.device_estimate import DeviceEstimate
    from ..plan.estimate import Estimate
    from ..plan.offer_estimate import BestBatch, OfferEstimate
    from ..units import Interval


PHASES_SHOWN = 4


def format_phases(phases: Sequence[Mapping[str, Any]]) -> str:
    """Describe the phases of a run; empty for a single call of `fit()` and nothing else.

    Args:
        phases: Entries of `phases[]`.

    Example:
        >>> format_phases([{"epochs": 50, "steps": 10, "times": 10, "parameters": 8, "trainable_parameters": 8}])
        '10 times 50 epochs'
    """
    if len(phases) < 2:
        return "; ".join(
            "".join([_format_length(one) if one["times"] > 1 else "one fit()", _format_passes(one)])
            for one in phases
            if one["times"] > 1 or one.get("passes")
        )
    texts = [
        f"phase {number}: {_format_length(one)}, {_format_trained(one)}{_format_passes(one)}"
        for number, one in enumerate(phases[:PHASES_SHOWN], start=1)
    ]
    more = len(phases) - PHASES_SHOWN
    return "; ".join([*texts, *([f"and {more} more"] if more > 0 else [])])


def _format_length(phase: Mapping[str, Any]) -> str:
    epochs, times = phase["epochs"], phase["times"]
    length = "unknown length" if epochs is None else f"{epochs:,} epoch{'' if epochs == 1 else 's'}"
    return f"{times:,} times {length}" if times > 1 else length


def _format_passes(phase: Mapping[str, Any]) -> str:
    return "".join(
        f", then {one['kind']}() of {one['samples']:,} samples"
        + (f" {one['calls']:,} times" if one["calls"] > 1 else "")
        for one in phase.get("passes") or ()
    )


def _format_trained(phase: Mapping[str, Any]) -> str:
    trained, whole = phase["trainable_parameters"], phase["parameters"]
    if trained == whole:
        return "all parameters trained"
    return f"{format_count(trained)} of {format_count(whole)} parameters trained"


ROWS_SHOWN = 12
REGION_COLUMN_FROM_WIDTH = 100
TIME_RANGE_FROM_WIDTH = 120
ALL_COLUMNS_FROM_WIDTH = 150
MARKS = {"recommended": "take", "free": "free", "cheaper": "cheaper", "faster": "faster"}


def select_shown_offers(estimate: Estimate, *, show_all: bool) -> tuple[list[OfferEstimate], str]:
    """Return the offers for a table, and a sentence on the omitted ones.

    The picked offers come first, then the best of each kind and number of devices in the estimate's order, twelve
    together; every accelerator that was asked for has a row.
    """
    count = len(estimate.offers)
    picked = list(estimate.decision.roles())
    if show_all:
        rest = [index for index in range(count) if index not in picked]
        left_out = f"Shown: all {count} offers{_format_unmatched(estimate)}."
        return [estimate.offers[index] for index in (*picked, *rest)], left_out
    best = estimate.best_per_devices()
    offers = {index: estimate.offers[index] for index in (*picked, *best)}
    usable = [
        index
        for index in best
        if not offers[index].device_estimate.is_ruled_out and offers[index].device_estimate.step_time_s
    ]
    asked = _find_asked(estimate, picked, best)
    room = max(0, ROWS_SHOWN - len(picked) - len(asked))
    others = [index for index in usable or best if index not in picked and index not in asked][:room]
    shown = [*picked, *sorted([*asked, *others])]
    return [offers[index] for index in shown], _format_left_out(estimate, shown, best)


def _find_asked(estimate: Estimate, picked: Sequence[int], best: Sequence[int]) -> list[int]:
    """Return the best offer of each accelerator that was asked for and is not among the picked."""
    if not estimate.options["accelerators"]:
        return []
    seen = {estimate.offers[index].offer.accelerator for index in picked}
    found: dict[str, int] = {}
    for index in best:
        found.setdefault(estimate.offers[index].offer.accelerator, index)
    return [index for name, index in found.items() if name not in seen]


def _format_left_out(estimate: Estimate, shown: Sequence[int], best: Sequence[int]) -> str:
    """Return how many kinds of machines are not shown, and why."""
    devices = [estimate.offers[index].device_estimate for index in best]
    reasons = {
        "too small for this batch size": sum(one.memory.fits is False for one in devices),
        "without a known time": sum(one.step_time_s is None for one in devices),
        "not supported by Keras 3": sum(one.runs is False for one in devices),
    }
    why = "".join(f"; {number} {reason}" for reason, number in reasons.items() if number)
    why += _format_unmatched(estimate)
    return f"Shown: {len(shown)} of {len(estimate.offers)} offers, {len(best)} kinds{why}; more: --all, --explain."


def _format_unmatched(estimate: Estimate) -> str:
    """Return a clause with the requested accelerators that have no offer; empty if there are none."""
    if not estimate.unmatched:
        return ""
    return f"; no offer of {', '.join(estimate.unmatched)}"


def build_table_columns(estimate: Estimate, width: int) -> list[Column]:
    """Return the columns that fit a terminal of a given width [characters].

    Time and cost of the run if its length is known; otherwise, and for inference, samples per second and cost
    per million samples.
    """
    money = "$" if estimate.terms.currency.code == USD.code else estimate.terms.currency.code
    is_known, is_served = estimate.workload.steps is not None, estimate.has_serving
    is_wide = width >= ALL_COLUMNS_FROM_WIDTH
    has_rate, has_run = is_served or not is_known, is_known and (is_wide or not is_served)
    time = "time_range" if width >= TIME_RANGE_FROM_WIDTH else "time"
    has_layout = estimate.options.get("shard", "none") != "none"
    if estimate.options.get("fit"):
        has_layout = any(_format_layout(one.device_estimate, 1.0) != "none" for one in estimate.offers)
    candidates = (
        (True, Column(key="mark", header="")),
        (True, Column(key="device", header="accelerator", format=partial(clip, width=13 if width < 90 else 18))),
        (has_layout, Column(key="shard", header="layout" if estimate.options.get("fit") else "shard")),
        (True, Column(key="offer", header="offer", format=partial(clip, width=_max_offer_length(width)))),
        (True, Column(key="region", header="region", format=partial(clip, width=15), dispensable=2)),
        (True, Column(key="price", header="$/h", justify="right", dispensable=1)),
        (is_wide and not is_served, Column(key="step", header="step ms", justify="right")),
        (is_served and width >= REGION_COLUMN_FROM_WIDTH, Column(key="latency", header="one ms", justify="right")),
        (has_rate, Column(key="rate", header="per s", justify="right")),
        (has_rate, Column(key="per_million", header=f"{money} a million", justify="right")),
        (has_run, Column(key=time, header="run", justify="right")),
        (has_run, Column(key="cost", header=f"run {money}", justify="right")),
        (is_wide, Column(key="limiter", header="limit")),
        (is_wide, Column(key="basis", header="basis")),
    )
    return [column for is_shown, column in candidates if is_shown]


def add_best_batch_column(columns: list[Column], width: int) -> list[Column]:
    """Add the column of the best batch size, replacing dispensable columns on a narrow terminal."""
    spared = {"limiter", "basis", "step"} if width >= ALL_COLUMNS_FROM_WIDTH else {"region", "price"}
    kept = [column for column in columns if column.key not in spared]
    return [*kept, Column(key="best_batch", header="best batch", justify="right")]


def _format_best_batch(best: BestBatch | None, currency: Currency) -> str | None:
    """Format the best batch size that fits, with time and cost of the run."""
    if best is None:
        return None
    run = f": {format_duration(best.run_time_s.mid)}" if best.run_time_s else ""
    usd = None if best.cost_usd is None else float(currency.of_usd(Decimal(best.cost_usd["mid"])))
    return f"{best.batch_size}{run}{'' if usd is None else f', {format_usd(usd)}'}"


def _max_offer_length(width: int) -> int:
    """Return the maximum length of an offer's name for a terminal width [characters]."""
    if width < REGION_COLUMN_FROM_WIDTH:
        return 19
    return 25 if width < ALL_COLUMNS_FROM_WIDTH else 34


def build_table_rows(estimate: Estimate, shown: Sequence[OfferEstimate]) -> list[dict[str, str | None]]:
    """Format the cells of offers, with the marks of the picked ones and of those that were passed over."""
    picked, currency = _build_pick_marks(estimate), estimate.terms.currency
    return [
        {**_build_row(one, currency), "mark": picked.get(id(one.offer)) or _format_passed_over(one)}
        for one in shown
    ]


def _build_pick_marks(estimate: Estimate) -> dict[int, str]:
    """Return the marks of the decision's offers by the id of the offer."""
    roles = estimate.decision.roles().items()
    return {id(estimate.offers[index].offer): MARKS[names[0]] for index, names in roles}


def _format_passed_over(one: OfferEstimate) -> str:
    """Return as a mark that the account's quota does not allow an offer."""
    return "no quota" if one.selected.is_refused else ""


def _build_row(one: OfferEstimate, currency: Currency) -> dict[str, str | None]:
    """Format an offer's cells; None for unknown values."""
    offer, device_estimate = one.offer, one.device_estimate
    run_time_s = one.run_time_s
    cells: dict[str, str | None] = {
        "device": format_device(offer.accelerator, offer.devices),
        "shard": _format_layout(device_estimate, offer.devices),
        "offer": format_offer_name(offer.provider, offer.instance_type, hosts=offer.hosts),
        "region": offer.region,
        "price": _format_price(one),
        "step": _format_interval(device_estimate.step_time_s, MS_PER_S),
        "time": format_duration(run_time_s.mid) if run_time_s else None,
        "time_range": None if run_time_s is None else format_duration_range(run_time_s),
        "cost": _format_cost(one.bill, currency),
        "latency": None if one.serving is None else _format_interval(one.serving.latency_s, MS_PER_S),
        "rate": _format_interval(one.samples_per_s),
        "per_million": format_usd_per_million(one, currency),
        "limiter": getattr(device_estimate.step_time, "limiter", None),
        "basis": getattr(device_estimate.step_time, "basis", None),
        "best_batch": _format_best_batch(one.best_batch, currency),
    }
    if device_estimate.runs is False:
        cells |= dict.fromkeys(("time", "time_range", "rate"), "no Keras 3")
    if device_estimate.memory.fits is False:
        largest = device_estimate.memory.largest_batch_size
        cells |= dict.fromkeys(("time", "time_range", "rate"), "too big")
        cells |= dict.fromkeys(("cost", "per_million"), f"batch ≤ {largest}" if largest else "any batch")
    return cells


def _format_layout(device_estimate: DeviceEstimate, devices: float) -> str:
    """Describe how the devices run a step: what is sharded, in how many passes, with recomputed activations."""
    sharding, passes = device_estimate.sharding, device_estimate.passes
    parts = [
        "" if sharding.kind == "none" else f"{sharding} over {devices:g}",
        "" if passes == 1 else f"{passes} passes",
        "remat" if device_estimate.recomputed else "",
    ]
    return ", ".join(filter(None, parts)) or "none"


def _format_interval(interval: Interval | None, factor: float = 1.0) -> str | None:
    """Format the ends of an interval times a factor."""
    return None if interval is None else format_range(interval.low * factor, interval.high * factor)


def _format_cost(bill: Bill | None, currency: Currency) -> str | None:
    """Format a bill's total with its range in the user's currency."""
    if bill is None:
        return None
    ends = (bill.total.low, bill.total.mid, bill.total.high)
    low, mid, high = (float(currency.of_usd(usd)) for usd in ends)
    return f"{format_usd(mid)} ({format_range(low, high)})" if high > 0 else format_usd(0.0)


def format_memory(one: OfferEstimate) -> str | None:
    """Format the memory used by a step out of that available."""
    memory = one.device_estimate.memory
    if memory.needed_bytes is None or not memory.available_bytes:
        return None
    return f"{format_short(memory.needed_bytes / GIB)} of {format_short(memory.available_bytes / GIB)} GiB"


def _format_price(one: OfferEstimate) -> str | None:
    """Format the hourly price; `s` marks spot, `~` an estimated price."""
    if one.offer.usd_per_hour is None:
        return None
    derived = "~" if one.offer.estimated else ""
    spot = "s" if one.offer.purchase == "spot" else ""
    return f"{derived}{format_usd(float(one.offer.usd_per_hour))}{spot}"


def format_title(estimate: Estimate) -> str:
    """Describe the workload in one line."""
    workload = estimate.workload
    parts = [
        workload.model,
        f"batch {workload.batch_size}",
        workload.precision,
        *([f"{workload.quantization} weights"] if workload.quantization else []),
        f"{format_count(workload.parameters)} parameters",
        f"{format_count(workload.flops_per_step, 'FLOP')} a step",
    ]
    if phases := format_phases(estimate.phases_json()):
        parts.append(phases)
    elif workload.steps is None:
        parts.append("run length unknown")
    elif workload.samples is None or workload.epochs is None:
        parts.append(f"{workload.steps:,} steps")
    elif workload.mode == "infer" and workload.epochs == 1:
        parts.append(f"{workload.samples:,} predictions")
    else:
        parts.append(f"{workload.samples:,} samples × {workload.epochs} epochs")
    if workload.tokens_per_sample is not None:
        parts.append(f"{workload.tokens_per_sample:,} tokens a sample")
    return " · ".join(parts)
