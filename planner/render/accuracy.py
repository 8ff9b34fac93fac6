"""Accuracy scores as table rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .output import Column

if TYPE_CHECKING:
    from ..plan.accuracy import Scoreboard

Scores = Mapping[str, Any]
GROUPS = ("source", "accelerator", "precision", "stack", "network", "model")


def format_percent(value: float) -> str:
    """Format a ratio in percent."""
    return f"{100 * value:.1f} %"


def format_signed_percent(value: float) -> str:
    """Format a possibly negative ratio in percent."""
    return f"{100 * value:+.1f} %"


def build_scoreboard_columns() -> tuple[Column, ...]:
    """Return the columns of a scoreboard."""
    return (
        Column(key="scope", header="SCOPE", dispensable=7),
        Column(key="name", header="NAME"),
        Column(key="n", header="ROWS", justify="right"),
        Column(key="median_ape", header="MEDIAN", justify="right", format=format_percent),
        Column(key="mean_ape", header="MEAN", justify="right", format=format_percent),
        Column(key="p90_ape", header="P90", justify="right", dispensable=3, format=format_percent),
        Column(key="bias", header="BIAS", justify="right", dispensable=2, format=format_signed_percent),
        Column(key="coverage_80", header="IN 80 %", justify="right", format=format_percent),
        Column(key="median_log_ratio", header="MEDIAN |LOG|", justify="right", terminal=False),
        Column(key="mean_log_ratio", header="MEAN |LOG|", justify="right", terminal=False),
    )


def build_setting_columns() -> tuple[Column, ...]:
    """Return the columns of the settings table: those of a scoreboard, plus the regret of choosing by
    prediction.
    """
    setting = Column(key="setting", header="SETTING")
    return (setting, *build_scoreboard_columns(), *_build_decision_columns())


def _build_decision_columns() -> tuple[Column, ...]:
    return (
        Column(key="mean_over_sources", header="BY SOURCE", justify="right", dispensable=6, format=format_percent),
        Column(key="cheapest_regret", header="LOST $", justify="right", dispensable=4, format=format_percent),
        Column(key="fastest_regret", header="LOST TIME", justify="right", dispensable=5, format=format_percent),
        Column(key="cheapest_n", header="WORKLOADS PRICED", terminal=False),
        Column(key="cheapest_top1", header="CHEAPEST RIGHT", terminal=False),
        Column(key="fastest_n", header="WORKLOADS", terminal=False),
        Column(key="fastest_top1", header="FASTEST RIGHT", terminal=False),
        Column(key="rank_correlation", header="RANK CORRELATION", terminal=False),
    )


def build_scoreboard_rows(board: Scoreboard) -> list[dict[str, Any]]:
    """Build the rows of one setting: overall, by accelerator, by model, and by baseline."""
    scores = board.to_json()
    rows = [{"scope": "all", "name": "gpuplan", **scores["summary"]}] if scores["summary"] else []
    groups = {"accelerator": "by_accelerator", "model": "by_model", "rule of thumb": "rules_of_thumb"}
    for scope, key in groups.items():
        rows += [{"scope": scope, "name": name, **summary} for name, summary in scores[key].items()]
    return rows


def build_setting_rows(settings: Mapping[str, Scores]) -> list[dict[str, Any]]:
    """Build a row for each setting and its baselines; for a single setting also its groups."""
    rows = []
    for setting, scores in settings.items():
        own = {**scores["summary"], "mean_over_sources": scores["over_sources"]["mean_ape"]}
        every = {"setting": setting, "scope": "all", "name": "gpuplan"}
        rows.append({**every, **own, **_build_decision_row(scores["decision"])})
        for scope in GROUPS if len(settings) == 1 else ():
            groups = scores[f"by_{scope}"].items()
            rows += [{"setting": setting, "scope": scope, "name": name, **s} for name, s in groups]
        for rule, summary in scores["rules_of_thumb"].items():
            named = {"setting": setting, "scope": "rule of thumb", "name": rule}
            rows.append({**named, **summary, **_build_decision_row(scores["rules_decision"][rule])})
    return rows


def _build_decision_row(decision: Scores) -> dict[str, Any]:
    row = {"rank_correlation": decision["rank_correlation"]}
    for choice in ("cheapest", "fastest"):
        summary = decision[choice] or {}
        row[f"{choice}_n"] = summary.get("n")
        row[f"{choice}_regret"] = summary.get("mean_regret")
        row[f"{choice}_top1"] = summary.get("top1")
    return row
