"""A plan as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import UsageError
from .columns import columns_of
from .embed import asset, packed, script_hash
from .view import every_row, view_of

__all__ = ["report_html"]

LARGEST_BYTES = 1_500_000  # as much as goes through any mail
SCRIPTS = ("d3.min.js", "plot.umd.min.js", "report.js")


def report_html(plan: Mapping[str, Any]) -> str:
    """Return one HTML page that needs nothing else: the same plan gives the same page.

    Above 1.5 MB it holds the bills and notes of the offers that it shows alone, and says so.

    Args:
        plan: Of schema `gpuplan.estimate/1`.

    Raises:
        UsageError: Something is missing in it.
    """
    from jinja2 import Environment, StrictUndefined

    try:
        view = view_of(plan)
        view |= {
            "chart_packed": packed(view["chart"]),
            "rows_packed": packed(_table(every_row(plan, view["money"]))),
        }
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as problem:
        raise UsageError(
            f"the plan cannot be read: {type(problem).__name__} at {problem}",
            hint="write it anew: `gpuplan estimate MODEL -o plan.json`",
        ) from problem
    page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    template, given = page.from_string(asset("report.html.j2")), {**view, **_package()}
    text = template.render(**given, plan_packed=_packed_plan(plan), whole=True)
    if len(text.encode()) > LARGEST_BYTES:
        text = template.render(**given, plan_packed=_packed_plan(_slimmer(plan, view["rows"])), whole=False)
    return text


def _package() -> dict[str, Any]:
    """Return what comes with the package, put in as it is, and the policy that lets it alone run."""
    from markupsafe import Markup

    scripts = [asset(name) for name in SCRIPTS]
    return {
        "scripts": [Markup(script) for script in scripts],
        "policy": f"default-src 'none'; script-src {' '.join(map(script_hash, scripts))}; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'",
        "style": Markup(asset("report.css")),
        "licences": asset("LICENSES.txt"),
    }


def _packed_plan(plan: Mapping[str, Any]) -> str:
    """Return a plan as base64, its offers by columns: nothing of it can end a block."""
    return packed({"plan": {**plan, "offers": None}, "offers": columns_of(plan["offers"])})


def _slimmer(plan: Mapping[str, Any], rows: list[list[Any]]) -> dict[str, Any]:
    """Return a plan whose offers have their bills and notes only where the page shows them."""
    shown = {row[0] for row in rows}
    offers = [
        one if index in shown else {**one, "bill": [], "notes": []}
        for index, one in enumerate(plan["offers"])
    ]  # fmt: skip
    return {**plan, "offers": offers}


def _table(rows: list[list[Any]]) -> dict[str, Any]:
    """Return rows of cells, each a text and maybe a number, by columns."""
    cells = [[[*cell, None][:2] for cell in row[1:]] for row in rows]
    return {
        "offers": [row[0] for row in rows],
        "texts": [columns_of([text for text, _ in column]) for column in zip(*cells, strict=True)],
        "numbers": [columns_of([number for _, number in column]) for column in zip(*cells, strict=True)],
    }
