"""A plan as an HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import UsageError
from .text import compute_script_hash, pack_json, read_asset
from .view import build_all_rows, build_view

MAX_DISTINCT_SHARE = 0.6  # share of distinct values up to which a column is dictionary-encoded


def encode_columns(values: Sequence[Any]) -> dict[str, Any]:
    """Encode JSON values by column; decoded by `rowsOf` in report.js.

    Example:
        >>> encode_columns([{"a": 1, "b": "x"}, {"a": 2, "b": "x"}])
        {'keys': ['a', 'b'], 'columns': [{'all': [1, 2]}, {'few': ['x'], 'at': [0, 0]}]}
    """
    if values and all(isinstance(value, dict) for value in values):
        keys = list(values[0])
        if keys and all(list(value) == keys for value in values):
            return {"keys": keys, "columns": [encode_columns([value[key] for value in values]) for key in keys]}
    if any(values) and all(isinstance(value, list) for value in values):
        items = [item for value in values for item in value]
        return {"lengths": encode_columns([len(value) for value in values]), "items": encode_columns(items)}
    if any(value is None for value in values) and any(isinstance(value, (dict, list)) for value in values):
        known = encode_columns([int(value is not None) for value in values])
        return {"known": known, "values": encode_columns([value for value in values if value is not None])}
    return _encode_column(values)


def _encode_column(values: Sequence[Any]) -> dict[str, Any]:
    """Encode a column by its distinct values if they are few."""
    places: dict[str, int] = {}
    at = [places.setdefault(json.dumps(value), len(places)) for value in values]
    if len(places) <= MAX_DISTINCT_SHARE * len(values):
        return {"few": [json.loads(text) for text in places], "at": at}
    return {"all": list(values)}


MAX_BYTES = 1_500_000  # small enough for any mail server
SCRIPTS = ("d3.min.js", "plot.umd.min.js", "report.js")


def build_report_html(plan: Mapping[str, Any]) -> str:
    """Build a self-contained HTML page of a plan, deterministically.

    Above 1.5 MB, bills and notes are included only for the offers shown, and the page states this.

    Args:
        plan: Document of schema `gpuplan.estimate/1`.

    Raises:
        UsageError: The plan is incomplete.
    """
    from jinja2 import Environment, StrictUndefined

    try:
        view = build_view(plan)
        view |= {
            "chart_packed": pack_json(view["chart"]),
            "rows_packed": pack_json(_encode_table(build_all_rows(plan, view["money"]))),
        }
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as problem:
        raise UsageError(
            f"the plan cannot be read: {type(problem).__name__} at {problem}",
            hint="create it again: `gpuplan estimate MODEL -o plan.json`",
        ) from problem
    page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    template, given = page.from_string(read_asset("report.html.j2")), {**view, **_build_package()}
    text = template.render(**given, plan_packed=_pack_plan(plan), whole=True)
    if len(text.encode()) > MAX_BYTES:
        text = template.render(**given, plan_packed=_pack_plan(_slim_plan(plan, view["rows"])), whole=False)
    return text


def _build_package() -> dict[str, Any]:
    """Return the page's assets, and the content security policy that allows only them."""
    from markupsafe import Markup

    scripts = [read_asset(name) for name in SCRIPTS]
    return {
        "scripts": [Markup(script) for script in scripts],
        "policy": f"default-src 'none'; script-src {' '.join(map(compute_script_hash, scripts))}; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'",
        "style": Markup(read_asset("report.css")),
        "licences": read_asset("LICENSES.txt"),
    }


def _pack_plan(plan: Mapping[str, Any]) -> str:
    """Encode a plan as base64, its offers by column, so that its text cannot end a block."""
    return pack_json({"plan": {**plan, "offers": None}, "offers": encode_columns(plan["offers"])})


def _slim_plan(plan: Mapping[str, Any], rows: list[list[Any]]) -> dict[str, Any]:
    """Return a plan that keeps bills and notes only for the offers shown."""
    shown = {row[0] for row in rows}
    offers = [
        one if index in shown else {**one, "bill": [], "notes": []} for index, one in enumerate(plan["offers"])
    ]
    return {**plan, "offers": offers}


def _encode_table(rows: list[list[Any]]) -> dict[str, Any]:
    """Encode rows of cells, each a text and an optional number, by column."""
    cells = [[[*cell, None][:2] for cell in row[1:]] for row in rows]
    return {
        "offers": [row[0] for row in rows],
        "texts": [encode_columns([text for text, _ in column]) for column in zip(*cells, strict=True)],
        "numbers": [encode_columns([number for _, number in column]) for column in zip(*cells, strict=True)],
    }
