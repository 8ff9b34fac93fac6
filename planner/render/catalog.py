"""Offers, accelerators, quotas, and price refreshes and changes as rows and Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..offers.rows import CPU
from ..plan.decision import name_offer
from ..units import format_usd
from .output import UNKNOWN, make_columns, make_numbers

if TYPE_CHECKING:
    from ..offers.refresh.run import RefreshOutcome
    from ..offers.refresh.source import LeftOutReason
    from ..offers.rows import Accelerator, Offer


def _to_number(value: float | None) -> float | int | None:
    """Convert an integral value to int: 8 vCPUs, not 8.0."""
    return int(value) if value is not None and float(value).is_integer() else value


def _format_usd(value: Any) -> str:
    return "free" if value == 0 else f"{value:.4f}"


PROVIDER, INSTANCE_TYPE, REGION = make_columns(provider="Provider", instance_type="Instance type", region="Region")
(PURCHASE,) = make_columns(purchase="Buy", format=lambda purchase: purchase.removeprefix("on_"))
(PRICE,) = make_numbers(usd_per_hour="USD/h", format=_format_usd)

OFFER_COLUMNS = (
    PROVIDER,
    INSTANCE_TYPE,
    *make_columns(accelerator="Accelerator"),
    *make_numbers("vcpus", "memory_gib", devices="×", format="{:g}".format),
    REGION,
    PURCHASE,
    PRICE,
    *make_columns("price_source", price_as_of="As of", dispensable=3),
    *make_columns(status="", format=lambda status: "" if status == "active" else status, dispensable=2),
    *make_columns("estimated", "complete", "note"),
    *make_numbers(usd_per_device_hour="each", format=_format_usd),
)

ACCELERATOR_COLUMNS = (
    *make_columns("vendor", name="Accelerator"),
    *make_columns(architecture="Architecture", dispensable=1),
    *make_numbers(year="Year", dispensable=2),
    *make_numbers(
        "kind", "compute_capability", "usable_gib", "link_gb_per_s_total", "ici_gbit_per_s_per_direction",
        "tdp_w", "confidence", "read_on", "source", "note",
        memory_gib="GiB", memory_gb_per_s="GB/s", fp32_tflop_per_s="fp32", tf32_tensor_tflop_per_s="tf32",
        fp16_tensor_tflop_per_s="fp16", bf16_tensor_tflop_per_s="bf16", format="{:g}".format,
    ),
)  # fmt: skip


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
    *make_columns(sources="Read from"),
    *make_numbers(accepted="Parts", new="New", changed="Changed", same="Same"),
    *make_numbers(quarantined="Quarantined", refused="Rejected", gone="Gone"),
)

CHANGE_COLUMNS = (
    *make_columns(kind=""),
    PROVIDER,
    INSTANCE_TYPE,
    REGION,
    PURCHASE,
    *make_numbers(old_usd_per_hour="Old USD/h", new_usd_per_hour="New USD/h", format=_format_usd),
    *make_numbers(percent="%", format="{:+.1f}".format),
    *make_columns("new_as_of", old_as_of="Old date"),
)

AGE_COLUMNS = (
    PROVIDER,
    PURCHASE,
    *make_numbers(prices="Prices"),
    *make_columns(newest="Newest", oldest="Oldest"),
    *make_numbers(over_30_days="> 30 days", over_90_days="> 90 days"),
)

QUOTA_COLUMNS = (
    PROVIDER,
    REGION,
    *make_columns(what="What"),
    PURCHASE,
    *make_columns(unit="Unit"),
    *make_numbers("link", limit="Limit", used="Used"),
)


def build_outcome_row(outcome: RefreshOutcome) -> dict[str, Any]:
    """Return the result of a provider's refresh in numbers."""
    return {
        **{key: getattr(outcome, key) for key in ("provider", "new", "changed", "same", "quarantined", "gone")},
        "sources": " ".join(outcome.sources),
        "accepted": len(outcome.accepted),
        "refused": len(outcome.refused),
    }


def format_outcome_lines(outcomes: Sequence[RefreshOutcome]) -> list[str]:
    """Return one line per anomaly, failure and unmet requirement, and one per host that cannot be reached."""
    lines: list[str] = []
    away: dict[str, list[str]] = {}
    for outcome in outcomes:
        own, seen = outcome.provider, Counter[str]()
        for found in outcome.anomalies:
            seen[found.code] += 1
            if found.code == "unreachable":
                away.setdefault(str(found), []).append(own)
            elif found.refuses or seen[found.code] <= MAX_FINDINGS:
                verdict = "failed" if found.code == "failed" else "rejected" if found.refuses else "quarantined"
                is_named = str(found).startswith((f"{own} ", f"{own}:"))
                lines.append(f"{verdict}: {found}" if is_named else f"{verdict}: {own}: {found}")
        hidden = {code: count - MAX_FINDINGS for code, count in seen.items() if count > MAX_FINDINGS}
        lines += [f"quarantined: {own}: {count} more ({code})" for code, count in hidden.items()]
        for reason, names in outcome.names_left_out.items():
            more = f" and {len(names) - MAX_FINDINGS} more" if len(names) > MAX_FINDINGS else ""
            what, way_out = LEFT_OUT_WORDS[reason]
            shown, way_out = ", ".join(names[:MAX_FINDINGS]), way_out.format(file=f"prices/{own}.csv")
            lines.append(f"left out: {own}: {what} ({len(names)}): {shown}{more}{way_out}")
        lines += [f"more: {own}: {need}" for need in outcome.needs]
    return [*(f"unreachable: {why} ({', '.join(names)})" for why, names in away.items()), *lines]


def format_changes_markdown(changes: Sequence[Mapping[str, Any]]) -> str:
    """Format changes as Markdown for a pull request: counts, and a table of the largest."""
    kinds = Counter(change["kind"] for change in changes)
    numbers = ", ".join(f"{kinds[kind]} {kind}" for kind in ("changed", "added", "removed"))
    lines = [f"**Prices**: {numbers}.", ""]
    if changes:
        lines += ["| | provider | instance type | region | buy | old USD/h | new USD/h | % |"]
        lines += ["| --- | --- | --- | --- | --- | ---: | ---: | ---: |"]
    for change in changes[:MAX_MARKDOWN_ROWS]:
        prices = (change["old_usd_per_hour"], change["new_usd_per_hour"])
        cells = (
            *(change[name] for name in ("kind", "provider", "instance_type", "region")),
            change["purchase"].replace("_", " "),
            *(UNKNOWN if usd is None else format(usd, "f") for usd in prices),
            UNKNOWN if change["percent"] is None else f"{change['percent']:+.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    if len(changes) > MAX_MARKDOWN_ROWS:
        lines += ["", f"… and {len(changes) - MAX_MARKDOWN_ROWS} more: `gpuplan catalog diff`."]
    return "\n".join(lines) + "\n"
