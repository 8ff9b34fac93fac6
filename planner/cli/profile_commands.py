"""`gpuplan profile` and `reconcile`: measure a model's step time here, compare a run with its prediction."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..records import Frozen
from ..render.progress import say
from .flags import Backend, Device, ScriptArguments, build_options, expand_flag_groups
from .messages import format_command, suggest_next

if TYPE_CHECKING:
    from ..profile.request import ProfileRequest
    from ..profile.statistics import ProcessLimits
    from ..profile.windows import MeasurementRules
    from ..profile_schema import ProfileDocument
    from ..settings import Settings


class MeasuringFlags(Frozen):
    """Processes and time of each measurement."""

    processes: Annotated[
        int | None,
        typer.Option(help="Processes that measure each configuration. Default: up to 3, with --precise up to 6."),
    ] = None
    max_time: Annotated[
        float | None, typer.Option(help="Time limit of windows, twice per configuration [s]. Default: 6, or 20.")
    ] = None
    precise: Annotated[
        bool, typer.Option("--precise", help="Measure for minutes: 3 to 6 processes, until they agree to 2 %.")
    ] = False

    def process_limits(self) -> ProcessLimits:
        """Return the limits on the number of processes; UsageError for fewer than one."""
        from ..limits import MAX_PROCESSES, require_count
        from ..profile.statistics import ProcessLimits

        if self.processes is None:
            return ProcessLimits()
        require_count(self.processes, what="--processes", example="5", most=MAX_PROCESSES)
        return ProcessLimits(fewest=self.processes, most=self.processes)

    def rules(self) -> MeasurementRules:
        """Build the stop rules of each process; UsageError for a time limit of 0."""
        from ..limits import MAX_DURATION_S, require_positive
        from ..profile.request import PRECISE_WINDOWS_S, QUICK_WINDOWS_S
        from ..profile.windows import MeasurementRules

        if self.max_time is not None:
            require_positive(self.max_time, what="--max-time", example="20", most=MAX_DURATION_S)
        return MeasurementRules.for_each_process(
            processes=self.process_limits().fewest,
            together_s=self.max_time or (PRECISE_WINDOWS_S if self.precise else QUICK_WINDOWS_S),
        )

    def answer_s(self) -> float | None:
        """Return the time after which an answer is wanted; None where processes or time are given [s]."""
        from ..profile.request import QUICK_ANSWER_S

        given = self.precise or self.processes is not None or self.max_time is not None
        return None if given else QUICK_ANSWER_S


@expand_flag_groups
def profile(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Script, function, Keras application or .keras file.")
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
    measuring: MeasuringFlags,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also write the profile here.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
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
    from ..profile.request import ProfileRequest
    from ..profile.run import profile
    from ..render.output import require_writable
    from ..render.profile import emit_profile, show_progress

    if output is not None:
        require_writable(output, flag="-o")
    request = ProfileRequest(
        model=model,
        batch_sizes=tuple(batch_size or ()),
        precisions=tuple(precision or ()),
        backend=backend,
        device=device,
        data=data,
        options=build_options(mode=mode),
        argv=tuple(script_arguments or ()),
        several=measuring.process_limits(),
        rules=measuring.rules(),
        answer_s=measuring.answer_s(),
        typed=" ".join(sys.argv),
    )
    _require_sensible(request)
    with show_progress() as on_event:
        document = profile(request, on_event=on_event, keep=lambda doc: _write_profile(output, doc))
    _write_profile(output, document)
    emit_profile(document, as_json=json_)
    _print_findings(document, output)
    step = "add `-o profile.json` to keep it" if output is None else format_command("estimate", str(output))
    suggest_next(step, as_json=json_)


def _require_sensible(request: ProfileRequest) -> None:
    """Raise UsageError for an invalid batch size, precision or combination, before anything starts."""
    from ..errors import UsageError
    from ..workload.options import WorkloadOptions

    for batch_size in request.batch_sizes:
        WorkloadOptions(batch_size=batch_size)
    for precision in request.precisions:
        WorkloadOptions(precision=precision)
    if request.data == "script" and request.options.mode == "infer":
        raise UsageError(
            "--data script measures fit(), which --mode infer does not call", hint="leave out one of them"
        )
    if request.data == "script" and request.batch_sizes:
        raise UsageError("--data script has its own batches", hint="leave out `--batch-size`")


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
