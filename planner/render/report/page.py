"""A plan as an HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import UsageError
from ...units import format_count, format_duration, format_short
from .text import compute_script_hash, pack_json, read_asset
from .view import build_view, format_amount

SCRIPTS = ("d3.min.js", "plot.umd.min.js", "report.js")


def build_report_html(plan: Mapping[str, Any]) -> str:
    """Build a self-contained HTML page of a document of schema `gpuplan.estimate/1`, deterministically.

    Raises:
        UsageError: The plan is incomplete.
    """
    from jinja2 import Environment, StrictUndefined, UndefinedError
    from markupsafe import Markup

    try:
        view = build_view(plan)
        packed = {"chart": view.pop("chart"), "rows": view.pop("rows"), "plan": plan}
        scripts = [read_asset(name) for name in SCRIPTS]
        page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
        page.globals |= {"amount": format_amount, "count": format_count}
        page.globals |= {"duration": format_duration, "short": format_short}
        return page.from_string(read_asset("report.html.j2")).render(
            **view,
            packed={name: pack_json(data) for name, data in packed.items()},
            scripts=list(map(Markup, scripts)),
            policy=f"default-src 'none'; script-src {' '.join(map(compute_script_hash, scripts))}; "
            "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'",  # only these assets
            style=Markup(read_asset("report.css")),
            licences=read_asset("LICENSES.txt"),
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, UndefinedError) as problem:
        raise UsageError(
            f"the plan cannot be read: {type(problem).__name__} at {problem}",
            hint="create it again: `gpuplan estimate MODEL -o plan.json`",
        ) from problem
