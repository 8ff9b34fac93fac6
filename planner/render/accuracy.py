"""The scoreboard as rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .output import Column

if TYPE_CHECKING:
    from ..predict.accuracy import Scoreboard
    from ..predict.score import Summary

__all__ = ["scoreboard_columns", "scoreboard_rows"]


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _signed_percent(value: float) -> str:
    return f"{100 * value:+.1f} %"


def scoreboard_columns() -> tuple[Column, ...]:
    """Return the columns of the scoreboard."""
    return (
        Column(key="scope", header="SCOPE"),
        Column(key="name", header="NAME"),
        Column(key="n", header="ROWS", justify="right"),
        Column(key="median_ape", header="MEDIAN", justify="right", format=_percent),
        Column(key="mean_ape", header="MEAN", justify="right", format=_percent),
        Column(key="p90_ape", header="P90", justify="right", format=_percent),
        Column(key="bias", header="BIAS", justify="right", format=_signed_percent),
        Column(key="coverage_80", header="IN 80 %", justify="right", format=_percent),
    )


def _row(scope: str, name: str, summary: Summary) -> dict[str, Any]:
    return {"scope": scope, "name": name, **summary.to_json()}


def scoreboard_rows(board: Scoreboard) -> list[dict[str, Any]]:
    """Return the scores: everything, each accelerator, each model, each rule of thumb."""
    scores = board.to_json()
    rows = [{"scope": "all", "name": "gpuplan", **scores["summary"]}] if scores["summary"] else []
    rows += [_row("accelerator", name, summary) for name, summary in board.by_accelerator().items()]
    rows += [_row("model", name, summary) for name, summary in board.by_model().items()]
    return rows + [_row("rule of thumb", name, summary) for name, summary in board.rules.items()]
