"""Laws of the surface of predictions, checked, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuplan.render.accuracy import format_percent
from gpuplan.render.output import Column

from .laws.laws import LawReport, Violation


def build_law_columns() -> tuple[Column, ...]:
    """Return the columns of the table of laws."""
    return (
        Column(key="law", header="LAW"),
        Column(key="cases", header="CASES", justify="right", format=_format_count),
        Column(key="violations", header="VIOLATIONS", justify="right", format=_format_count),
        Column(key="definition", header="DEFINITION"),
    )


def build_law_rows(reports: Sequence[LawReport]) -> list[dict[str, Any]]:
    """Return a row for each law."""
    return [
        {
            "law": report.law.name,
            "cases": report.cases,
            "violations": len(report.violations),
            "definition": report.law.definition,
        }
        for report in reports
    ]


def build_violation_columns() -> tuple[Column, ...]:
    """Return the columns of the table of the worst violations."""
    return (
        Column(key="law", header="LAW"),
        Column(key="model", header="MODEL"),
        Column(key="accelerator", header="ACCELERATOR"),
        Column(key="other", header="BESIDE"),
        Column(key="batch_size", header="BATCH", justify="right"),
        Column(key="precision", header="PRECISION"),
        Column(key="compiled", header="COMPILED", format=lambda value: "yes" if value else "no"),
        Column(key="mode", header="MODE"),
        Column(key="value_s", header="SECONDS", justify="right", format=_format_seconds),
        Column(key="limit_s", header="AT MOST", justify="right", format=_format_seconds),
        Column(key="excess", header="EXCESS", justify="right", format=format_percent),
    )


def build_violation_rows(reports: Sequence[LawReport]) -> list[dict[str, Any]]:
    """Return a row for each of the worst violations of each law."""
    return [_build_violation(one) for report in reports for one in report.worst()]


def _build_violation(one: Violation) -> dict[str, Any]:
    return {**one._asdict(), "excess": one.excess}


def _format_count(value: int) -> str:
    return f"{value:,}"


def _format_seconds(value: float) -> str:
    return f"{value:.4g}"
