"""Applying a launch plan, waiting for its end, and what is said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ..errors import GpuplanError
from .next_step import format_command, suggest_next

if TYPE_CHECKING:
    from ..launch.core.cloud_adapter import RunOutcome
    from ..launch.core.launch_plan import LaunchPlan
    from ..launch.core.service import Launcher

__all__ = ["apply_plan"]

_GO_ON = "the same command again goes on from its last checkpoint"


def apply_plan(plan: LaunchPlan, launcher: Launcher, *, wait: bool, as_json: bool) -> None:
    """Apply a plan, and wait for its end if asked; an interrupt says what was left."""
    from ..launch.core.wait import wait_for_end
    from ..render.progress import status

    try:
        with status(f"starting run {plan.run}", wanted=not as_json):
            launcher.launch(plan)
        if not wait:
            ways = " or ".join(f"`{way}`" for way in plan.stop)
            typer.echo(f"to end it: {ways}", err=True)
            suggest_next(format_command("ps"), as_json=as_json)
            return
        with status(f"waiting for run {plan.run} to end (Ctrl-C leaves it running)", wanted=not as_json):
            outcome = wait_for_end(launcher, plan.run)
    except KeyboardInterrupt:
        typer.echo(
            f"run {plan.run} stays as it is: `gpuplan ps` shows it, `gpuplan stop {plan.run}` ends it",
            err=True,
        )
        raise
    _show_end(launcher, plan.run, outcome, as_json=as_json)
    suggest_next(format_command("reconcile", "PLAN", plan.run), as_json=as_json)


def _show_end(launcher: Launcher, run: str, outcome: RunOutcome, *, as_json: bool) -> None:
    """Print how a run ended, beside what was planned; one that was not done is an error."""
    from ..launch.core.wait import compare_with_plan
    from ..render.launch import COMPARISON_COLUMNS
    from ..render.output import emit_json, emit_rows

    rows = [line.to_json() for line in compare_with_plan(launcher.ledger.peek(run), outcome)]
    if as_json:
        emit_json(
            "gpuplan.launch-end/1", {"run": run, "outcome": outcome.model_dump(mode="json"), "lines": rows}
        )
    else:
        emit_rows(COMPARISON_COLUMNS, rows)
    if outcome.status != "done":
        raise GpuplanError(
            f"run `{run}` ended as `{outcome.status}` (exit code {outcome.exit_code})",
            hint="the same command again starts anew" if outcome.status == "failed" else _GO_ON,
        )
