"""`gpuplan export`: an offer of a plan as a file for another launcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from ..launch.arguments import LaunchArgs
from ..records import Flag
from ..render.output import emit_json, emit_text, require_writable, write_text
from ..render.progress import say
from ..settings import load_settings
from .flags import LAUNCH, ScriptArguments
from .messages import WITHOUT_DRY_RUN, suggest_next


def export(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan from `gpuplan estimate -o`.")],
    script_arguments: ScriptArguments = None,
    *,
    to: Annotated[Literal["skypilot", "dstack", "kubernetes", "ray", "colab"], Flag("Target launcher.")],
    request: Annotated[LaunchArgs, LAUNCH],
    output: Annotated[Path | None, Flag("Write the file here.")] = None,
    json_: Annotated[bool, Flag("Print JSON instead of YAML.", name="json")] = False,
) -> None:
    """Write the offer chosen in a plan as a file for another launcher.

    SkyPilot, dstack, Kubernetes (JobSet), Ray or Colab. Each file carries the engine's own
    automatic stop and deadline, and a comment at its top says what they do not cover.

    Example: gpuplan export plan.json --to skypilot -o task.yaml
    Example: gpuplan export plan.json --to kubernetes --source git:https://host/me/repo@main
    """
    from ..launch.export import export_offer
    from ..render.launch import format_export

    require_writable(output)
    asked = replace(request, path=plan, arguments=tuple(script_arguments or ()), settings=load_settings())
    payload = export_offer(asked, engine=to, file=str(output or "FILE"))
    if payload["instead_of"]:
        say(f"note: {payload['provider']} {payload['offer']['instance_type']} {payload['instead_of']}")
    if json_:
        emit_json("gpuplan.export/1", payload)
    if output is not None:
        write_text(output, format_export(payload))
        say(f"wrote {output}; start it with `{payload['apply']}`")
        suggest_next(payload["apply"], as_json=json_)
    elif not json_:
        emit_text(format_export(payload))
        suggest_next(f"add `-o FILE`, then {payload['apply']}")


def hand_over_to_sky(
    asked: LaunchArgs, *, dry_run: bool, output: Path | None, confirm: Callable[[str], None]
) -> None:
    """Write the plan's offer as a SkyPilot task and start it with `sky`; a dry run prints the task."""
    from ..launch.export import export_offer
    from ..launch.export.engines import launch_with_sky, require_sky
    from ..render.launch import format_export

    file = output or Path("gpuplan-task.yaml")
    task = export_offer(asked, engine="skypilot", file=str(file))
    if dry_run:
        emit_text(format_export(task))
        suggest_next(WITHOUT_DRY_RUN)
        return
    require_sky()
    say(format_export(task).rstrip())
    confirm(f"start it with `sky`, for ${task['worst_case_usd']:.2f} plus what SkyPilot adds?")
    write_text(file, format_export(task))
    launch_with_sky(task, file)
    say(f"handed over to SkyPilot: `sky status` shows it, `{task['stop']}` ends it")
