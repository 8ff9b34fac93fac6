"""`gpuplan report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from .next_step import DRY_RUN, format_command, suggest_next

__all__ = ["register"]

EPILOG = """Examples:

  gpuplan estimate train.py -o plan.json && gpuplan report plan.json -o report.html

  gpuplan report plan.json --open
"""


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command(epilog=EPILOG)(report)


def report(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="What `gpuplan estimate -o plan.json` wrote.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the page here; in a pipe it may be left out.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write a plan as one HTML page that opens offline: charts, tables, bills, assumptions, sources.

    The page holds everything that it needs, the plan itself included, and loads nothing from anywhere.
    """
    from ..profile.end_to_end import read_plan
    from ..render.output import emit_text, require_writable, write_text
    from ..render.progress import status
    from ..render.report.page import build_report_html

    target = output or (plan.with_suffix(".html") if show else None)
    if target is None and sys.stdout.isatty():
        raise UsageError(
            "a page of HTML is not for a terminal", hint="name a file: `-o report.html`, or `--open`"
        )
    if target is not None:
        require_writable(target, flag="-o")
    with status("writing the page"):
        page = build_report_html(read_plan(plan))
    if target is None:
        emit_text(page)
        return
    write_text(target, page)
    if show:
        _open(target)
    if sys.stderr.isatty():
        typer.echo(f"wrote {target} ({len(page.encode()) / 1e6:.1f} MB)", err=True)
    suggest_next(format_command("launch", str(plan), DRY_RUN))


def _open(page: Path) -> None:
    """Open a page in the browser; print its address if there is none."""
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        typer.echo(f"no browser could be opened; the page is {page.resolve().as_uri()}", err=True)
