"""`gpuplan profile` and `reconcile`: measure a model's step time here, compare a run with its prediction."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..profile.effort import MeasuringEffort
from ..render.progress import say
from .flags import AsJson, Backend, Device, OutputFlags, ScriptArguments, expand_flag_groups
from .messages import format_command, suggest_next

if TYPE_CHECKING:
    from ..profile_schema import ProfileDocument
    from ..settings import Settings


@expand_flag_groups
def profile(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Script, notebook, function, Keras application or .keras file.")
    ],
    script_arguments: ScriptArguments = None,
    *,
    batch_size: Annotated[
        list[int] | None,
        typer.Option(help="Samples per step; repeatable. Default: the model's own and a quarter."),
    ] = None,
    backend: Backend = None,
    device: Device = None,
    precision: Annotated[
        list[str] | None, typer.Option(help="float32, tf32, mixed_float16, ...; repeatable.")
    ] = None,
    mode: Annotated[Literal["train", "infer"], typer.Option(help="Training or inference.")] = "train",
    data: Annotated[
        Literal["synthetic", "script"],
        typer.Option(help="Random data of the same shapes, or the data that the script feeds to fit()."),
    ] = "synthetic",
    measuring: MeasuringEffort,
    out: OutputFlags,
) -> None:
    """Measure the step time of a model on this machine, as fit() runs it and alone.

    Each configuration runs in its own processes, which time windows of many steps after compilation and
    warm-up. It ends after about a minute; --precise adds processes until the 95 % interval of the
    median is 2 % wide. Ctrl-C keeps what was measured.

    Examples:

      gpuplan profile train.py -o profile.json

      gpuplan profile ResNet50 --batch-size 8 --batch-size 32 --backend torch

      gpuplan profile train.py --data script -- --images photos/
    """
    from ..plan.estimate_request import EstimateRequest
    from ..plan.request import build_workload_options
    from ..profile.request import ProfileRequest
    from ..profile.run import profile
    from ..render.profile import emit_profile, show_progress

    out.require_writable()
    request = ProfileRequest(
        model=model,
        batch_sizes=tuple(batch_size or ()),
        precisions=tuple(precision or ()),
        backend=backend,
        device=device,
        data=data,
        options=build_workload_options(EstimateRequest(mode=mode)),
        argv=tuple(script_arguments or ()),
        several=measuring.process_limits(),
        rules=measuring.rules(),
        answer_s=measuring.answer_s(),
        typed=" ".join(sys.argv),
    )
    with show_progress() as on_event:
        document = profile(request, on_event=on_event, keep=lambda doc: _write_profile(out.output, doc))
    _write_profile(out.output, document)
    emit_profile(document, as_json=out.json_)
    _print_findings(document, out.output)
    step = (
        "add `-o profile.json` to keep it" if out.output is None else format_command("estimate", str(out.output))
    )
    suggest_next(step, as_json=out.json_)


def _write_profile(output: Path | None, document: ProfileDocument) -> None:
    from ..render.output import write_text
    from ..render.profile import format_profile_json

    if output is not None:
        write_text(output, format_profile_json(document))


def _print_findings(document: ProfileDocument, output: Path | None) -> None:
    """Print findings on standard error; GpuplanError if nothing was measured."""
    from ..errors import GpuplanError
    from ..render.profile import iter_summary_sentences

    for sentence in iter_summary_sentences(document):
        say(sentence)
    if output is not None:
        say(f"wrote {output}")
    if not any(row["status"] == "measured" for row in document["rows"]):
        last = document["rows"][-1] if document["rows"] else {"message": "nothing was run"}
        raise GpuplanError(f"nothing was measured: {last['message']}", hint="see above")


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
    json_: AsJson = False,
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
        say(f"deleted {delete_runs(settings)} runs ({get_runs_folder(settings)})")
        suggest_next(format_command("estimate", "MODEL"))
        return
    if plan is None or profile is None:
        raise UsageError("a plan and a profile are needed", hint="`gpuplan reconcile plan.json profile.json`")
    planned = read_plan(plan)
    with status(f"reading {profile}") as tell:
        document = _load_profile(profile, model=planned["workload"]["model"], settings=settings, tell=tell)
    result = compare(planned, document)
    if settings.keep_runs:
        say(f"kept for later estimates: {save_run(document, settings)}")
    emit_reconciled(result, as_json=json_)
    for finding in result["findings"]:
        say(finding)
    suggest_next(format_command("estimate", planned["workload"]["model"]), as_json=json_)


def _load_profile(name: str, *, model: str, settings: Settings, tell: Callable[[str], None]) -> ProfileDocument:
    """Load a profile from its file, or from a run of the ledger."""
    from ..profile.run_store import read_profile

    if name.endswith(".json") or Path(name).exists():
        return read_profile(Path(name))
    from ..launch.build_plan import create_launcher
    from ..plan.request import build_script_terms
    from ..run_profile import profile_of_run

    return profile_of_run(
        create_launcher(settings, notify=lambda event: None),
        name,
        model=model,
        terms=replace(build_script_terms(settings), tell=tell),
    )
