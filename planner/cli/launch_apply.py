"""Building and applying a launch plan, with its output, and waiting for the end of the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import GpuplanError
from .messages import WITHOUT_DRY_RUN, format_command, suggest_next

if TYPE_CHECKING:
    from ..launch.core.cloud_adapter import RunOutcome
    from ..launch.core.launch_plan import LaunchPlan
    from ..launch.core.service import Launcher
    from ..launch.prepare.arguments import LaunchArgs

_GO_ON = "repeat the command to continue from the last checkpoint"


def plan_launch(
    asked: LaunchArgs, launcher: Launcher, *, dry_run: bool, output: Path | None, as_json: bool
) -> LaunchPlan:
    """Build a launch plan, write it to the output file, and print it; a dry run reads no current prices."""
    from ..launch.prepare.build_plan import build_launch_plan
    from ..offers.catalog import load_user_catalog
    from ..render.launch import plan_text
    from ..render.output import emit_json, emit_text, format_json, write_text
    from ..render.progress import status
    from ..settings import load_settings

    with status("planning the launch"):
        made = build_launch_plan(
            asked, launcher, catalog=load_user_catalog(load_settings()), look=not dry_run
        )
    payload = made.to_json()
    schema = payload.pop("schema")
    if output is not None:
        write_text(output, format_json(schema, payload))
    if dry_run:
        emit_json(schema, payload) if as_json else emit_text(plan_text(made.to_json()))
        step = WITHOUT_DRY_RUN if output is None else format_command("launch", str(output))
        suggest_next(step, as_json=as_json)
    elif not as_json:
        typer.echo(plan_text(made.to_json(), calls=False), err=True, nl=False)
    return made


def format_cost_limit(plan: LaunchPlan, launcher: Launcher) -> str:
    """Format the highest cost of a plan, and whether a limit outside the machine enforces it."""
    if launcher.adapter(plan.request.provider).remote and not plan.is_bounded:
        return f"${plan.worst_case_usd:.2f} if its own timer works, and without a limit outside it"
    return f"${plan.worst_case_usd:.2f} at most"


def apply_plan(plan: LaunchPlan, launcher: Launcher, *, wait: bool, as_json: bool) -> None:
    """Apply a plan, and wait for its end if requested; an interrupt prints how to see and stop the run."""
    from ..launch.outcome import wait_for_end
    from ..render.progress import status

    try:
        with status(f"starting run {plan.run}", wanted=not as_json):
            launcher.launch(plan)
        if not wait:
            commands = " or ".join(f"`{command}`" for command in plan.stop)
            typer.echo(f"to end it: {commands}", err=True)
            suggest_next(format_command("ps"), as_json=as_json)
            return
        with status(f"waiting for run {plan.run} to end (Ctrl-C leaves it running)", wanted=not as_json):
            outcome = wait_for_end(launcher, plan.run)
    except KeyboardInterrupt:
        typer.echo(
            f"run {plan.run} keeps running: `gpuplan ps` shows it, `gpuplan stop {plan.run}` ends it",
            err=True,
        )
        raise
    _show_end(launcher, plan.run, outcome, as_json=as_json)
    suggest_next(format_command("reconcile", "PLAN", plan.run), as_json=as_json)


def _show_end(launcher: Launcher, run: str, outcome: RunOutcome, *, as_json: bool) -> None:
    """Print the result of a run compared with its plan; GpuplanError unless the run is done."""
    from ..launch.outcome import compare_with_plan
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
            hint="repeat the command to start it again" if outcome.status == "failed" else _GO_ON,
        )
