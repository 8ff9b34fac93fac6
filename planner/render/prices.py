"""Refreshes, changes, ages and histories of prices as rows of a table, and as Markdown. Never computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .output import UNKNOWN, Column

if TYPE_CHECKING:
    from ..offers.changes import Change
    from ..offers.refresh.run import Outcome

__all__ = [
    "AGE_COLUMNS", "CHANGE_COLUMNS", "HISTORY_COLUMNS", "OUTCOME_COLUMNS", "QUOTA_COLUMNS", "changes_markdown",
    "outcome_lines", "outcome_row",
]  # fmt: skip

MOST_FINDINGS = 8  # of one kind and provider, on a terminal; all are in the report and in --json
MOST_ROWS = 200  # of a Markdown table: a pull request has to be readable


def _usd(value: Any) -> str:
    return f"{value:.4f}"


OUTCOME_COLUMNS = (
    Column(key="provider", header="Provider"),
    Column(key="sources", header="Read from"),
    Column(key="accepted", header="Parts", justify="right"),
    Column(key="new", header="New", justify="right"),
    Column(key="changed", header="Changed", justify="right"),
    Column(key="same", header="Same", justify="right"),
    Column(key="quarantined", header="Not believed", justify="right"),
    Column(key="refused", header="Refused", justify="right"),
)

CHANGE_COLUMNS = (
    Column(key="kind", header=""),
    Column(key="provider", header="Provider"),
    Column(key="instance_type", header="Instance type"),
    Column(key="region", header="Region"),
    Column(key="purchase", header="Buy", format=lambda purchase: purchase.removeprefix("on_")),
    Column(key="old_usd_per_hour", header="Old USD/h", justify="right", format=_usd),
    Column(key="new_usd_per_hour", header="New USD/h", justify="right", format=_usd),
    Column(key="percent", header="%", justify="right", format=lambda percent: f"{percent:+.1f}"),
    Column(key="old_as_of", header="Old date"),
    Column(key="new_as_of", header="New date", terminal=False),
)

AGE_COLUMNS = (
    Column(key="provider", header="Provider"),
    Column(key="purchase", header="Buy", format=lambda purchase: purchase.removeprefix("on_")),
    Column(key="prices", header="Prices", justify="right"),
    Column(key="newest", header="Newest"),
    Column(key="oldest", header="Oldest"),
    Column(key="over_30_days", header="> 30 days", justify="right"),
    Column(key="over_90_days", header="> 90 days", justify="right"),
)

HISTORY_COLUMNS = (
    Column(key="as_of", header="As of"),
    Column(key="provider", header="Provider"),
    Column(key="instance_type", header="Instance type", terminal=False),
    Column(key="region", header="Region"),
    Column(key="purchase", header="Buy", format=lambda purchase: purchase.removeprefix("on_")),
    Column(key="usd_per_hour", header="USD/h", justify="right", format=_usd),
    Column(key="estimated", header="", format=lambda estimated: "estimated" if estimated else ""),
    Column(key="source", header="Source"),
)


QUOTA_COLUMNS = (
    Column(key="provider", header="Provider"),
    Column(key="region", header="Region"),
    Column(key="what", header="What"),
    Column(key="purchase", header="Buy", format=lambda purchase: purchase.removeprefix("on_")),
    Column(key="unit", header="Unit"),
    Column(key="limit", header="Limit", justify="right"),
    Column(key="used", header="Used", justify="right"),
    Column(key="link", header="Ask for more", terminal=False),
)


def outcome_row(outcome: Outcome) -> dict[str, Any]:
    """Return how the refresh of a provider went, in numbers."""
    return {
        **{key: getattr(outcome, key) for key in ("provider", "new", "changed", "same", "quarantined")},
        "sources": " ".join(outcome.sources),
        "accepted": len(outcome.accepted),
        "refused": len(outcome.refused),
    }


def outcome_lines(outcomes: Sequence[Outcome], *, asked_regions: bool) -> list[str]:
    """Return what was not believed, what failed, and what the rest takes, one line each."""
    lines: list[str] = []
    for outcome in outcomes:
        seen: Counter[str] = Counter()
        for found in outcome.suspicions:
            seen[found.code] += 1
            if found.refuses or seen[found.code] <= MOST_FINDINGS:
                lines.append(f"{'refused' if found.refuses else 'not believed'}: {outcome.provider}: {found}")
        for code, count in seen.items():
            hidden = count - MOST_FINDINGS
            if hidden > 0:
                lines.append(f"not believed: {outcome.provider}: {hidden} more ({code})")
        lines += [f"more: {outcome.provider}: {need}" for need in outcome.needs]
        if "aws-bulk" in outcome.sources and not asked_regions:
            lines.append(
                "more: aws: on demand outside us-east-1: --region REGION, or all (each hundreds of MB)"
            )
    return lines


def changes_markdown(changes: Sequence[Change]) -> str:
    """Return changes as Markdown for a pull request: a line of numbers, and a table of the largest."""
    kinds = Counter(change.kind for change in changes)
    numbers = ", ".join(f"{kinds[kind]} {kind}" for kind in ("changed", "added", "removed"))
    lines = [f"**Prices**: {numbers}.", ""]
    if changes:
        lines += ["| | provider | instance type | region | buy | old USD/h | new USD/h | % |"]
        lines += ["| --- | --- | --- | --- | --- | ---: | ---: | ---: |"]
        lines += [_markdown_row(change) for change in changes[:MOST_ROWS]]
    if len(changes) > MOST_ROWS:
        lines += ["", f"… and {len(changes) - MOST_ROWS} more: `gpuplan catalog diff`."]
    return "\n".join(lines) + "\n"


def _markdown_row(change: Change) -> str:
    """Return a change as a line of a Markdown table."""
    prices = (change.old_usd_per_hour, change.new_usd_per_hour)
    old, new = (UNKNOWN if usd is None else format(usd, "f") for usd in prices)
    percent = UNKNOWN if change.percent is None else f"{change.percent:+.1f}"
    names = f"{change.kind} | {change.provider} | {change.instance_type} | {change.region}"
    return f"| {names} | {change.purchase.replace('_', ' ')} | {old} | {new} | {percent} |"
