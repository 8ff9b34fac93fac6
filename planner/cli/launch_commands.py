"""`gpuplan launch`, `ps`, `stop`, `reap` and `export`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..errors import GpuplanError, NoAnswerError, UsageError, escape_controls
from ..launch.arguments import LaunchArgs
from ..records import Flag, to_plain
from ..render.launch import COMPARISON_COLUMNS, MACHINE_COLUMNS, event_line, format_export, plan_text
from ..render.output import emit_json, emit_rows, emit_text, require_writable, write_document, write_text
from ..render.progress import say, status
from ..settings import load_settings
from .flags import LAUNCH, AsJson, ScriptArguments
from .messages import WITHOUT_DRY_RUN, format_command, suggest_next

if TYPE_CHECKING:
    from ..launch.core.cloud_adapter import RunOutcome
    from ..launch.core.launch_plan import LaunchPlan
    from ..launch.service import Launcher


def plan_launch(
    asked: LaunchArgs, launcher: Launcher, *, dry_run: bool, output: Path | None, as_json: bool
) -> LaunchPlan:
    """Build a launch plan, write it to the output file, and print it; a dry run reads no current prices."""
    from ..launch.build_plan import build_launch_plan
    from ..launch.core.upload import describe_secrets
    from ..offers.catalog import load_user_catalog

    with status("planning the launch"):
        made = build_launch_plan(asked, launcher, catalog=load_user_catalog(load_settings()), look=not dry_run)
    document = made.to_json()
    write_document(output, document)
    if dry_run:
        emit_json(document["schema"], document) if as_json else emit_text(plan_text(document))
        step = WITHOUT_DRY_RUN if output is None else format_command("launch", str(output))
        suggest_next(step, as_json=as_json)
    elif not as_json:
        say(plan_text(document, calls=False).rstrip())
    if left := describe_secrets(made.request.spec.source, remote=launcher.adapter(made.request.provider).remote):
        say(left)
    return made


def _warn_of_early_end(plan: LaunchPlan, launcher: Launcher, *, yes: bool) -> None:
    """Say that the last machine of a run ended before it trained; NoAnswerError if nobody reads it."""
    from ..launch.build_plan import find_early_end

    if (reason := find_early_end(plan, launcher)) is None:
        return
    message = f"the last machine of this run ended before training: {reason}"
    if yes:
        hint = "correct the cause, then launch without `--yes`, or as a new run: `--name again`"
        raise NoAnswerError(message, hint=hint)
    say(message)


def apply_plan(plan: LaunchPlan, launcher: Launcher, *, wait: bool, as_json: bool) -> None:
    """Apply a plan, and wait for its end if requested; an interrupt prints how to see and stop the run."""
    from ..launch.outcome import wait_for_end

    try:
        with status(f"starting run {plan.run}", wanted=not as_json):
            launcher.launch(plan)
        if not wait:
            commands = " or ".join(f"`{command}`" for command in plan.stop)
            say(f"to end it: {commands}")
            suggest_next(format_command("ps"), as_json=as_json)
            return
        live = sys.stderr.isatty() and not as_json
        with status(f"run {plan.run} (Ctrl-C leaves it running)", wanted=live) as show:
            outcome = wait_for_end(launcher, plan.run, show=show if live else None)
    except KeyboardInterrupt:
        say(f"run {plan.run} keeps running: `gpuplan ps` shows it, `gpuplan stop {plan.run}` ends it")
        raise
    _show_end(launcher, plan.run, outcome, as_json=as_json)
    suggest_next(format_command("reconcile", "PLAN", plan.run), as_json=as_json)


def _show_end(launcher: Launcher, run: str, outcome: RunOutcome, *, as_json: bool) -> None:
    """Print the result of a run compared with its plan; GpuplanError unless the run is done."""
    from ..launch.outcome import compare_with_plan
    from ..launch.reports import describe_end

    rows = compare_with_plan(launcher.ledger.peek(run), outcome)
    if as_json:
        emit_json("gpuplan.launch-end/1", {"run": run, "outcome": outcome.model_dump(mode="json"), "lines": rows})
    elif not outcome.failed:
        emit_rows(COMPARISON_COLUMNS, rows)
    if outcome.status != "done":
        for line in () if as_json else outcome.log.splitlines():
            say(f"  | {line}")
        problem, way = describe_end(run, outcome)
        raise GpuplanError(problem, hint=way)


Yes = Annotated[bool, Flag("Do not ask; required without a terminal.")]
Provider = Annotated[Sequence[str], Flag("Only this provider.")]


def launch(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="Plan from `estimate -o` or `launch --dry-run -o`.")
    ],
    script_arguments: ScriptArguments = None,
    *,
    request: Annotated[LaunchArgs, (*LAUNCH, "name")],
    option: Annotated[Sequence[str], Flag("Provider option NAME=VALUE.")] = (),
    dry_run: Annotated[bool, Flag("Print the exact calls, without credentials.")] = False,
    wait: Annotated[bool, Flag("Wait until the run has ended; Ctrl-C leaves it running.")] = False,
    via: Annotated[Literal["skypilot"] | None, Flag("Start it with an installed engine: `sky`.")] = None,
    yes: Yes = False,
    output: Annotated[Path | None, Flag("Write the launch plan here.")] = None,
    json_: Annotated[bool, Flag("Print the plan as one object, and events one per line.", name="json")] = False,
) -> None:
    """Start the machine that a plan chose, run the script on it, and make sure that it stops.

    Launching the same plan again continues the same run; nothing is started twice.

    Example: gpuplan launch plan.json --dry-run
    Example: gpuplan launch plan.json --max-usd 5 --yes
    """
    require_writable(output)
    arguments, options = tuple(script_arguments or ()), {}
    for one in option:
        name, equals, options[name] = one.partition("=")
        if not (name and equals and options[name]):
            what = f"`--option {one}` is not NAME=VALUE"
            raise UsageError(what, hint="write `-O zone=us-east-1a`")
    asked = replace(request, path=plan, arguments=arguments, options=options, settings=load_settings())
    if via is not None:
        hand_over_to_sky(asked, dry_run=dry_run, output=output, yes=yes)
        return
    launcher = _launcher(as_json=json_)
    made = plan_launch(asked, launcher, dry_run=dry_run, output=output, as_json=json_)
    if not dry_run:
        _warn_of_early_end(made, launcher, yes=yes)
        limit = "if its own timer works, and without a limit outside it"
        if made.is_bounded or not launcher.adapter(made.request.provider).remote:
            limit = "at most"
        _confirm(f"start it, for ${made.worst_case_usd:.2f} {limit}?", yes=yes)
        apply_plan(made, launcher, wait=wait, as_json=json_)


def ps(
    cloud: Annotated[bool, Flag("Also query the clouds for machines with gpuplan's tags.")] = False,
    provider: Provider = (),
    json_: AsJson = False,
) -> None:
    """List the machines that may cost money: those of the ledger and, with --cloud, those with gpuplan's tags.

    Example: gpuplan ps --cloud --provider aws
    Example: gpuplan ps --json
    """
    from ..launch.core.error_messages import Failures
    from ..launch.listing import listed

    launcher, failures = _launcher(as_json=json_), Failures()
    providers = launcher.providers_to_ask(provider, cloud=cloud)
    asked = [name for name, why in providers.items() if not why]
    with status(f"querying {', '.join(asked) or 'the ledger'}"):
        runs = launcher.ledger.histories(failures)
        adapters = {name: launcher.adapter(name) for name in asked}
        found = listed(runs, adapters, regions=None, now=datetime.now(tz=UTC), failures=failures)
        ended = launcher.find_failed_runs(runs, asked, failures)
    for line in ended:
        say(line)
    rows = to_plain(found)
    not_asked = {name: why for name, why in providers.items() if why}
    if json_:
        emit_json("gpuplan.ps/1", {"asked": asked, "not_asked": not_asked, **failures.to_json(), "machines": rows})
    else:
        emit_rows(MACHINE_COLUMNS, rows)
        for name, why in not_asked.items():
            say(f"not asked: {name}: {why}")
        for row in rows:
            if what := ", ".join(row["changed_tags"]):
                say(f"the tags of {row['id']} differ from its record, which counts: {what}")
    failures.raise_any()
    otherwise = ("launch", "PLAN", "--dry-run") if cloud else ("ps", "--cloud")
    suggest_next(format_command(*(("stop", rows[0]["id"]) if rows else otherwise)), as_json=json_)


def stop(  # noqa: PLR0917 - one argument a flag
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="IDs of runs or machines.")] = None,
    everything: Annotated[bool, Flag("All machines in the ledger and with gpuplan's tags.", name="all")] = False,
    provider: Provider = (),
    owner: Annotated[
        str | None, Flag("End another installation's machines, by its id (`gpuplan ps --cloud`).", metavar="ID")
    ] = None,
    yes: Yes = False,
    json_: AsJson = False,
) -> None:
    """End runs or machines for good, wait until they are gone, and remove what belonged to them.

    Example: gpuplan stop --all --yes
    Example: gpuplan stop --all
    """
    from ..launch.core.error_messages import Failures

    if bool(ids) == everything:
        raise UsageError("`gpuplan stop` takes IDs, or `--all`", hint="`gpuplan ps` lists the IDs")
    launcher = _launcher(as_json=json_, owner=owner)
    failures = Failures()
    with status("looking for machines"):
        wanted = launcher.to_stop(ids or [], providers=provider, regions=None, failures=failures)
    if not wanted:
        failures.raise_any()
        say("nothing to stop")
        return
    _confirm(f"end {', '.join(wanted)}?", yes=yes)
    with status("ending them, and waiting until they are gone", wanted=not json_):
        for name, machine in wanted.items():
            with failures.collect(name):
                launcher.stop(name, machine)
    failures.raise_any()
    suggest_next(format_command("ps", "--cloud"), as_json=json_)


def reap(provider: Provider = (), json_: AsJson = False) -> None:
    """End machines that are past their cap, and clean up after runs whose machines are gone.

    Safe to run from a timer, as often as you like.

    Example: gpuplan reap --provider aws
    Example: gpuplan reap --json
    """
    launcher = _launcher(as_json=json_)
    with status("looking for machines that are past their cap", wanted=not json_):
        asked = launcher.providers_to_ask(provider, cloud=True)
        ended = launcher.reap([name for name, why in asked.items() if not why], regions=None)
    if not json_:
        say(f"{len(ended)} machines were past their cap")
    suggest_next(format_command("ps", "--cloud"), as_json=json_)


def _launcher(*, as_json: bool, owner: str | None = None) -> Launcher:
    """Build the launcher of this installation, which prints its events."""
    from ..launch.build_plan import create_launcher
    from ..launch.core.launch_plan import LaunchEvent
    from ..owner import require_owner

    def tell(event: LaunchEvent) -> None:
        line = event_line(event.model_dump(mode="json"), as_json=as_json)
        emit_text(f"{line}\n") if as_json else say(line)

    return create_launcher(load_settings(), notify=tell, owner=None if owner is None else require_owner(owner))


def _confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation on a terminal; UsageError without a terminal unless `--yes` is given."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("confirmation is not possible without a terminal", hint="add `--yes` to confirm")
    if not typer.confirm(escape_controls(question), err=True):
        raise NoAnswerError("nothing was done")


def export(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan from `gpuplan estimate -o`.")],
    script_arguments: ScriptArguments = None,
    *,
    to: Annotated[
        Literal["kinetic", "skypilot", "dstack", "kubernetes", "ray", "colab"], Flag("Target launcher.")
    ],
    request: Annotated[LaunchArgs, LAUNCH],
    output: Annotated[Path | None, Flag("Write the file here.")] = None,
    json_: Annotated[bool, Flag("Print JSON instead of YAML.", name="json")] = False,
) -> None:
    """Write the offer chosen in a plan as a file for another launcher.

    Kinetic (Keras on GKE), SkyPilot, dstack, Kubernetes (JobSet), Ray or Colab. Each file carries the engine's own
    automatic stop and deadline, and a comment at its top says what they do not cover.

    Example: gpuplan export plan.json --to skypilot -o task.yaml
    Example: gpuplan export plan.json --to kinetic -o on_kinetic.py
    Example: gpuplan export plan.json --to kubernetes --source git:https://host/me/repo@main
    """
    from ..launch.export import export_offer

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


def hand_over_to_sky(asked: LaunchArgs, *, dry_run: bool, output: Path | None, yes: bool) -> None:
    """Write the plan's offer as a SkyPilot task and start it with `sky`; a dry run prints the task."""
    from ..launch.export import export_offer
    from ..launch.export.engines import launch_with_sky, require_sky

    file = output or Path("gpuplan-task.yaml")
    task = export_offer(asked, engine="skypilot", file=str(file))
    if dry_run:
        emit_text(format_export(task))
        suggest_next(WITHOUT_DRY_RUN)
        return
    require_sky()
    say(format_export(task).rstrip())
    _confirm(f"start it with `sky`, for ${task['worst_case_usd']:.2f} plus what SkyPilot adds?", yes=yes)
    write_text(file, format_export(task))
    launch_with_sky(task, file)
    say(f"handed over to SkyPilot: `sky status` shows it, `{task['stop']}` ends it")
