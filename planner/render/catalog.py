"""Offers, accelerators, quotas, and price refreshes and changes as rows and Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..offers.rows import CPU
from ..plan.decision_words import name_offer
from ..units import format_usd
from .output import UNKNOWN, Column

if TYPE_CHECKING:
    from ..offers.price_history import Change
    from ..offers.refresh.run import RefreshOutcome
    from ..offers.refresh.source import LeftOutReason
    from ..offers.rows import Accelerator, Offer


def _to_number(value: float | None) -> float | int | None:
    """Convert an integral value to int: 8 vCPUs, not 8.0."""
    return int(value) if value is not None and float(value).is_integer() else value


def _tsv_columns(*keys: str) -> Iterator[Column]:
    """Yield columns for TSV only."""
    return (Column(key=key, header=key, terminal=False) for key in keys)


def _format_purchase(purchase: str) -> str:
    return purchase.removeprefix("on_")


def _format_usd(value: Any) -> str:
    return "free" if value == 0 else f"{value:.4f}"


PROVIDER = Column(key="provider", header="Provider")
INSTANCE_TYPE = Column(key="instance_type", header="Instance type")
REGION = Column(key="region", header="Region")
PURCHASE = Column(key="purchase", header="Buy", format=_format_purchase)


OFFER_COLUMNS = (
    PROVIDER,
    INSTANCE_TYPE,
    Column(key="accelerator", header="Accelerator"),
    Column(key="devices", header="×", justify="right", format=lambda devices: f"{devices:g}"),
    *_tsv_columns("vcpus", "memory_gib"),
    REGION,
    PURCHASE,
    Column(key="usd_per_hour", header="USD/h", justify="right", format=_format_usd),
    Column(key="price_as_of", header="As of", dispensable=3),
    *_tsv_columns("price_source"),
    Column(key="status", header="", format=lambda status: "" if status == "active" else status, dispensable=2),
    *_tsv_columns("estimated", "complete", "note"),
    Column(key="usd_per_device_hour", header="each", justify="right", format=_format_usd),
)

ACCELERATOR_COLUMNS = (
    Column(key="name", header="Accelerator"),
    Column(key="vendor", header="Vendor", terminal=False),
    Column(key="architecture", header="Architecture", dispensable=1),
    Column(key="year", header="Year", justify="right", dispensable=2),
    Column(key="memory_gib", header="GiB", justify="right", format=lambda gib: f"{gib:g}"),
    Column(key="memory_gb_per_s", header="GB/s", justify="right", format=lambda rate: f"{rate:g}"),
    *(
        Column(key=f"{name}_tflop_per_s", header=name[:4], justify="right", format=lambda peak: f"{peak:g}")
        for name in ("fp32", "tf32_tensor", "fp16_tensor", "bf16_tensor")
    ),
    *_tsv_columns(
        "kind",
        "compute_capability",
        "usable_gib",
        "link_gb_per_s_total",
        "ici_gbit_per_s_per_direction",
        "tdp_w",
        "confidence",
        "read_on",
        "source",
        "note",
    ),
)


def build_offer_row(offer: Offer) -> dict[str, Any]:
    """Return an offer under the keys of the JSON contract, in their order."""
    values = dict(vars(offer))
    usd = offer.usd_per_hour
    values["usd_per_device_hour"] = None if usd is None else round(usd / Decimal(str(offer.devices)), 6)
    for key in ("devices", "vcpus", "memory_gib"):
        values[key] = _to_number(values[key])
    return {column.key: values[column.key] for column in OFFER_COLUMNS}


def select_current_offers(found: Sequence[Offer]) -> list[Offer]:
    """Return the first offer of each accelerator, provider and purchase option that can be rented today.

    CPUs are left out where there is anything else.
    """
    first: dict[tuple[str, str, str, bool], Offer] = {}
    for offer in found:
        if offer.complete and offer.status in ("active", "legacy") and offer.usd_per_hour is not None:
            kind = (offer.provider, offer.accelerator, offer.purchase, offer.usd_per_hour == 0)
            first.setdefault(kind, offer)
    current = list(first.values())
    return [offer for offer in current if offer.accelerator != CPU] or current


def describe_cheapest(current: Sequence[Offer]) -> str:
    """Return what is free and what is cheapest, of offers with the cheapest per device first."""
    free = [name_offer(offer) for offer in current if offer.usd_per_hour == 0]
    paid = next((offer for offer in current if offer.usd_per_hour), None)
    parts = [f"Free: {', '.join(free)}."] if free else []
    if paid is not None:
        price = format_usd(float(paid.usd_per_hour or 0))
        parts.append(f"Cheapest a device: {name_offer(paid)}, ${price} an hour.")
    return " ".join(parts)


def build_accelerator_row(accelerator: Accelerator) -> dict[str, Any]:
    """Return all fields of an accelerator; unknown values are None."""
    values = vars(accelerator).items()
    return {key: _to_number(value) if isinstance(value, float) else value for key, value in values}


MAX_FINDINGS = 8  # shown per kind and provider on a terminal; all are in the report and in --json
# What was left out, and how to add it, by reason.
LEFT_OUT_WORDS: Mapping[LeftOutReason, tuple[str, str]] = {
    "unknown accelerator": ("unknown accelerators", "; to add: accelerators.toml (docs/catalog.md)"),
    "unknown machine": ("unknown machines", "; to add: {file} (docs/catalog.md)"),
    "no accelerator": ("machines without an accelerator", "; to add: {file} (docs/catalog.md)"),
    "not for sale": ("accelerators that are not in stock", ""),
}
MAX_MARKDOWN_ROWS = 200  # maximum rows of a Markdown table, to keep a pull request readable


OUTCOME_COLUMNS = (
    PROVIDER,
    Column(key="sources", header="Read from"),
    Column(key="accepted", header="Parts", justify="right"),
    Column(key="new", header="New", justify="right"),
    Column(key="changed", header="Changed", justify="right"),
    Column(key="same", header="Same", justify="right"),
    Column(key="quarantined", header="Quarantined", justify="right"),
    Column(key="refused", header="Rejected", justify="right"),
    Column(key="gone", header="Gone", justify="right"),
)

CHANGE_COLUMNS = (
    Column(key="kind", header=""),
    PROVIDER,
    INSTANCE_TYPE,
    REGION,
    PURCHASE,
    Column(key="old_usd_per_hour", header="Old USD/h", justify="right", format=_format_usd),
    Column(key="new_usd_per_hour", header="New USD/h", justify="right", format=_format_usd),
    Column(key="percent", header="%", justify="right", format=lambda percent: f"{percent:+.1f}"),
    Column(key="old_as_of", header="Old date"),
    Column(key="new_as_of", header="New date", terminal=False),
)

AGE_COLUMNS = (
    PROVIDER,
    PURCHASE,
    Column(key="prices", header="Prices", justify="right"),
    Column(key="newest", header="Newest"),
    Column(key="oldest", header="Oldest"),
    Column(key="over_30_days", header="> 30 days", justify="right"),
    Column(key="over_90_days", header="> 90 days", justify="right"),
)

HISTORY_COLUMNS = (
    Column(key="as_of", header="As of"),
    PROVIDER,
    Column(key="instance_type", header="Instance type", terminal=False),
    REGION,
    PURCHASE,
    Column(key="usd_per_hour", header="USD/h", justify="right", format=_format_usd),
    Column(key="estimated", header="", format=lambda estimated: "estimated" if estimated else ""),
    Column(key="source", header="Source"),
)


QUOTA_COLUMNS = (
    PROVIDER,
    REGION,
    Column(key="what", header="What"),
    PURCHASE,
    Column(key="unit", header="Unit"),
    Column(key="limit", header="Limit", justify="right"),
    Column(key="used", header="Used", justify="right"),
    Column(key="link", header="Request an increase", terminal=False),
)


def build_outcome_row(outcome: RefreshOutcome) -> dict[str, Any]:
    """Return the result of a provider's refresh in numbers."""
    return {
        **{key: getattr(outcome, key) for key in ("provider", "new", "changed", "same", "quarantined", "gone")},
        "sources": " ".join(outcome.sources),
        "accepted": len(outcome.accepted),
        "refused": len(outcome.refused),
    }


def format_outcome_lines(outcomes: Sequence[RefreshOutcome], *, asked_regions: bool) -> list[str]:
    """Return one line per anomaly, failure and unmet requirement."""
    lines: list[str] = []
    for outcome in outcomes:
        seen: Counter[str] = Counter()
        for found in outcome.anomalies:
            seen[found.code] += 1
            if found.rejects_part or seen[found.code] <= MAX_FINDINGS:
                verdict = "rejected" if found.rejects_part else "quarantined"
                lines.append(f"{verdict}: {outcome.provider}: {found}")
        for code, count in seen.items():
            hidden = count - MAX_FINDINGS
            if hidden > 0:
                lines.append(f"quarantined: {outcome.provider}: {hidden} more ({code})")
        lines += _format_left_out(outcome)
        lines += [f"more: {outcome.provider}: {need}" for need in outcome.needs]
        if "aws-bulk" in outcome.sources and not asked_regions:
            lines.append(
                "more: aws: each region's offer file has hundreds of MB: --region REGION reads only that one"
            )
    return lines


def _format_left_out(outcome: RefreshOutcome) -> list[str]:
    """Return one line per reason for which machines or accelerators were left out, with their first names."""
    lines = []
    for reason, names in outcome.names_left_out.items():
        shown = ", ".join(names[:MAX_FINDINGS])
        more = f" and {len(names) - MAX_FINDINGS} more" if len(names) > MAX_FINDINGS else ""
        found, way_out = LEFT_OUT_WORDS[reason]
        way_out = way_out.format(file=f"prices/{outcome.provider}.csv")
        lines.append(f"left out: {outcome.provider}: {found} ({len(names)}): {shown}{more}{way_out}")
    return lines


def format_changes_markdown(changes: Sequence[Change]) -> str:
    """Format changes as Markdown for a pull request: counts, and a table of the largest."""
    kinds = Counter(change.kind for change in changes)
    numbers = ", ".join(f"{kinds[kind]} {kind}" for kind in ("changed", "added", "removed"))
    lines = [f"**Prices**: {numbers}.", ""]
    if changes:
        lines += ["| | provider | instance type | region | buy | old USD/h | new USD/h | % |"]
        lines += ["| --- | --- | --- | --- | --- | ---: | ---: | ---: |"]
        lines += [_format_markdown_row(change) for change in changes[:MAX_MARKDOWN_ROWS]]
    if len(changes) > MAX_MARKDOWN_ROWS:
        lines += ["", f"… and {len(changes) - MAX_MARKDOWN_ROWS} more: `gpuplan catalog diff`."]
    return "\n".join(lines) + "\n"


def _format_markdown_row(change: Change) -> str:
    """Format a change as a row of a Markdown table."""
    prices = (change.old_usd_per_hour, change.new_usd_per_hour)
    old, new = (UNKNOWN if usd is None else format(usd, "f") for usd in prices)
    percent = UNKNOWN if change.percent is None else f"{change.percent:+.1f}"
    names = f"{change.kind} | {change.provider} | {change.instance_type} | {change.region}"
    return f"| {names} | {change.purchase.replace('_', ' ')} | {old} | {new} | {percent} |"
