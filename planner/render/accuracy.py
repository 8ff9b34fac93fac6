"""Accuracy scores as table rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .output import make_columns, make_numbers

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


SCOREBOARD_COLUMNS = (
    *make_columns(scope="SCOPE", dispensable=7),
    *make_columns(name="NAME"),
    *make_numbers(n="ROWS"),
    *make_numbers(median_ape="MEDIAN", mean_ape="MEAN", format=format_percent),
    *make_numbers(p90_ape="P90", dispensable=3, format=format_percent),
    *make_numbers(bias="BIAS", dispensable=2, format=format_signed_percent),
    *make_numbers("median_log_ratio", "mean_log_ratio", coverage_80="IN 80 %", format=format_percent),
)
SETTING_COLUMNS = (  # with the regret of choosing by prediction
    *make_columns(setting="SETTING"),
    *SCOREBOARD_COLUMNS,
    *make_numbers(mean_over_sources="BY SOURCE", dispensable=6, format=format_percent),
    *make_numbers(cheapest_regret="LOST $", dispensable=4, format=format_percent),
    *make_numbers(fastest_regret="LOST TIME", dispensable=5, format=format_percent),
    *make_columns("cheapest_n", "cheapest_top1", "fastest_n", "fastest_top1", "rank_correlation"),
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
        for key, name in (("n", "n"), ("regret", "mean_regret"), ("top1", "top1")):
            row[f"{choice}_{key}"] = (decision[choice] or {}).get(name)
    return row
