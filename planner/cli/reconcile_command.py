"""`gpuplan reconcile`: what was predicted against what a run took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .messages import format_command, suggest_next

if TYPE_CHECKING:
    from ..profile_schema import ProfileDocument
    from ..settings import Settings


def reconcile(
    plan: Annotated[Path | None, typer.Argument(help="Plan from `gpuplan estimate -o`.")] = None,
    profile: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROFILE|RUN]",
            help="Profile from `gpuplan profile` or StepTimer, or a run of `gpuplan launch`.",
        ),
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Delete all kept runs, and exit.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Compare what was predicted with what a run took, part by part, and keep the run.

    Later estimates of the same work use the runs that were kept: the accelerator's row is measured, and the
    others are corrected.

    Examples:

      gpuplan reconcile plan.json profile.json

      gpuplan reconcile plan.json r64879f7d-1

      gpuplan reconcile --forget
    """
    from ..errors import UsageError
    from ..profile.end_to_end import read_plan
    from ..profile.end_to_end import reconcile as compare
    from ..profile.run_store import delete_runs, get_runs_folder, save_run
    from ..render.profile import emit_reconciled
    from ..render.progress import status
    from ..settings import load_settings

    settings = load_settings()
    if forget:
        if plan is not None:
            raise UsageError("--forget takes no files", hint="leave out the files, or `--forget`")
        typer.echo(f"deleted {delete_runs(settings)} runs ({get_runs_folder(settings)})", err=True)
        suggest_next(format_command("estimate", "MODEL"))
        return
    if plan is None or profile is None:
        raise UsageError("a plan and a profile are needed", hint="`gpuplan reconcile plan.json profile.json`")
    planned = read_plan(plan)
    with status(f"reading {profile}") as tell:
        document = _load_profile(profile, model=planned["workload"]["model"], settings=settings, tell=tell)
    result = compare(planned, document)
    if settings.keep_runs:
        typer.echo(f"kept for later estimates: {save_run(document, settings)}", err=True)
    emit_reconciled(result, as_json=json_)
    for finding in result["findings"]:
        typer.echo(finding, err=True)
    suggest_next(format_command("estimate", planned["workload"]["model"]), as_json=json_)


def _load_profile(
    name: str, *, model: str, settings: Settings, tell: Callable[[str], None]
) -> ProfileDocument:
    """Load a profile from its file, or from a run of the ledger."""
    from ..profile.run_store import read_profile

    if name.endswith(".json") or Path(name).exists():
        return read_profile(Path(name))
    from ..launch.outcome import profile_of_run
    from ..launch.prepare.build_plan import create_launcher
    from ..plan.request import build_script_terms

    return profile_of_run(
        create_launcher(settings, notify=lambda event: None),
        name,
        model=model,
        terms=replace(build_script_terms(settings), tell=tell),
    )
