"""`gpuplan profile`, `benchmark`, `reconcile` and `accuracy`: measurements here, and errors of predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..errors import GpuplanError, UsageError
from ..limits import MAX_MINUTES, require_positive
from ..profile.effort import MeasuringEffort
from ..records import Flag
from ..render.output import emit_result, emit_text, require_writable, write_document, write_text
from ..render.progress import bar, say, status
from ..settings import Settings, load_settings
from .flags import AsJson, Backend, Device, OutputFlags, ScriptArguments
from .messages import format_command, suggest_next

if TYPE_CHECKING:
    from ..profile.benchmark import BenchmarkDocument
    from ..profile_schema import ProfileDocument

COLAB = "https://colab.research.google.com/#create=true"


def profile(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Script, notebook, function, Keras application or .keras file.")
    ],
    script_arguments: ScriptArguments = None,
    *,
    batch_size: Annotated[
        list[int] | None, Flag("Samples per step; repeatable. Default: the model's own and a quarter.")
    ] = None,
    backend: Backend = None,
    device: Annotated[
        Literal["cpu", "gpu", "tpu", "colab"] | None,
        Flag("Device to compute on; colab prints a cell that measures the model there."),
    ] = None,
    precision: Annotated[list[str] | None, Flag("float32, tf32, mixed_float16, ...; repeatable.")] = None,
    mode: Annotated[Literal["train", "infer"], Flag("Training or inference.")] = "train",
    data: Annotated[
        Literal["synthetic", "script"],
        Flag("Random data of the same shapes, or the data that the script feeds to fit()."),
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
      gpuplan profile train.py --on colab
    """
    if device == "colab":
        flags = {"batch_size": batch_size, "precision": precision, "mode": mode if mode != "train" else None}
        _print_colab_cell(model, backend, script_arguments, flags)
        return
    from ..plan.estimate_request import EstimateRequest
    from ..plan.measured_steps import format_step_time
    from ..plan.request import build_workload_options
    from ..profile.run import ProfileRequest, profile
    from ..render.profile import emit_profile, iter_summary_sentences, show_progress

    require_writable(out.output)
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
    )
    with show_progress() as on_event:
        document = profile(request, on_event=on_event, keep=partial(write_document, out.output))
    write_document(out.output, document)
    emit_profile(document, as_json=out.json_)
    for sentence in iter_summary_sentences(document):
        say(sentence)
    if step_time := format_step_time(document):
        say(format_command("estimate", model, measured=step_time, arguments=script_arguments))
    step = "add `-o profile.json` to keep it"
    if out.output is not None:
        say(f"wrote {out.output}")
        step = format_command("estimate", str(out.output))
    if not any(row["status"] == "measured" for row in document["rows"]):
        last = document["rows"][-1] if document["rows"] else {"message": "nothing was run"}
        raise GpuplanError(f"nothing was measured: {last['message']}", hint="see above")
    suggest_next(step, as_json=out.json_)


def _print_colab_cell(
    model: str, backend: str | None, arguments: Sequence[str] | None, flags: Mapping[str, object]
) -> None:
    """Print a cell that measures a model on Colab, with its file."""
    from ..profile.run import select_backend
    from ..render.profile import format_colab_cell
    from ..workload.reference import parse_reference

    known = parse_reference(model, base=Path.cwd())
    if known.kind in ("saved_model", "json") or (known.kind == "function" and known.path is None):
        raise UsageError(f"`{model}` does not fit in a cell", hint="give a script, or a function of a file")
    files = {} if known.path is None else {known.path.name: known.path.read_text(encoding="utf-8")}
    name = model if known.path is None else known.path.name + model.partition(known.path.name)[2]
    chosen = select_backend(backend, of_script=known.kind == "script")
    command = format_command("profile", name, backend=chosen, device="gpu", **flags, arguments=arguments)
    emit_text(format_colab_cell(command, files))
    say(f"paste it into a cell of {COLAB}, with Runtime > Change runtime type > T4 GPU")


def reconcile(
    plan: Annotated[Path | None, typer.Argument(help="Plan from `gpuplan estimate -o`.")] = None,
    profile: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROFILE|RUN]",
            help="Profile from `gpuplan profile` or StepTimer, or a run of `gpuplan launch`.",
        ),
    ] = None,
    forget: Annotated[bool, Flag("Delete all kept runs, and exit.")] = False,
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
    from ..profile.end_to_end import read_plan
    from ..profile.end_to_end import reconcile as compare
    from ..profile.run_store import delete_runs, get_runs_folder, save_run
    from ..render.profile import emit_reconciled

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


def benchmark(
    *,
    output: Annotated[Path | None, Flag("Also write the rows here, as CSV.")] = None,
    minutes: Annotated[float, Flag("Time limit for all workloads together [min].")] = 10.0,
    only: Annotated[Sequence[str], Flag("Workload to measure.")] = (),
    backend: Backend = None,
    device: Device = None,
    json_: AsJson = False,
) -> None:
    """Measure canonical Keras workloads on this device, as rows of measurements.

    Each workload runs in its own process. Its time is the median of windows of steps of fit() or predict(), after
    compilation and warm-up. On a CPU the workloads are smaller. What does not fit in the memory or in the time is
    named and left out. Ctrl-C keeps what was measured. The rows have the form of a contribution to
    profiles/published/.

    Workloads: mlp, resnet50-mixed, bert-128, resnet50-float32, lstm-text, gpt-512, mobilenet-v2, unet,
    resnet50-infer, bert-512, resnet50-mixed-small, vgg16-small-images, bert-128-infer, efficientnet-b0,
    resnet50-float32-small.

    Examples:
      gpuplan benchmark -o rows.csv
      gpuplan benchmark --only mlp --only lstm-text --minutes 2 --backend torch
    """
    from ..profile.benchmark import format_csv, run_benchmark, select_workloads
    from ..profile.run import select_backend

    require_positive(minutes, what="--minutes", example="10", most=MAX_MINUTES)
    require_writable(output)
    workloads, keras_backend = select_workloads(only), select_backend(backend)
    found = None
    try:
        with bar("measuring") as tell:
            for found in run_benchmark(workloads, keras_backend, device, minutes=minutes, tell=tell):
                if output is not None and found["rows"]:
                    write_text(output, format_csv(found["rows"]))
    finally:  # also of what an interrupt left
        if found is not None:
            _report(found, output, as_json=json_)
    step = "add `-o rows.csv` to keep the rows" if output is None else format_command("accuracy", str(output))
    suggest_next(step, as_json=json_)


def _report(found: BenchmarkDocument, output: Path | None, *, as_json: bool) -> None:
    """Print the rows, and on standard error what was skipped and written; GpuplanError without any row."""
    from ..render.profile import emit_benchmark

    emit_benchmark(found, as_json=as_json)
    for one in found["skipped"]:
        say(f"skipped {one['workload']}: {one['reason']}")
    if found["accelerator"] is None:
        say(
            f"`{found['device']['name']}` is not in the catalog: the rows have that name. Add it with its"
            " datasheet to a catalog of your own (docs/catalog.md), or to catalog/accelerators.toml and send both"
        )
    if found["rows"] and output is not None:
        say(f"wrote {output} ({len(found['rows'])} rows)")
    if not found["rows"] and found["status"] == "complete":
        raise GpuplanError("nothing was measured", hint="see above; `--only mlp` is the smallest workload")


def accuracy(
    file: Annotated[
        Path | None, typer.Argument(help="CSV of your own measurements; without it, the packaged record.")
    ] = None,
    *,
    setting: Annotated[Sequence[str], Flag("One setting (architecture, profet, source, accelerator ...).")] = (),
    json_: AsJson = False,
) -> None:
    """Print prediction errors on held-out data.

    Without FILE, the recorded errors on published measurements: each setting predicts them with coefficients
    fitted without one architecture, source or accelerator, beside three rules of thumb. With FILE your
    measurements are predicted with the packaged coefficients.

    Examples:
      gpuplan accuracy
      gpuplan accuracy --setting source --setting accelerator
      gpuplan accuracy my_runs.csv --json
    """
    from ..plan.accuracy import load_recorded_board
    from ..render.accuracy import SETTING_COLUMNS, build_setting_rows

    if file is None:
        board = load_recorded_board(setting)
        rows = build_setting_rows(board["settings"])
        emit_result("gpuplan.accuracy/1", board, SETTING_COLUMNS, rows, as_json=json_)
        suggest_next(format_command("profile", "MODEL", o="profile.json"), as_json=json_)
        return
    if setting:
        raise UsageError(
            f"`--setting` applies to the published measurements, not to `{file}`",
            hint="leave out `--setting`, or the file",
        )
    _emit_own(file, as_json=json_)
    suggest_next(format_command("accuracy"), as_json=json_)


def _emit_own(file: Path, *, as_json: bool) -> None:
    from ..offers.catalog import load_catalog, resolve_accelerator
    from ..plan.accuracy import score_measurements
    from ..predict.measurements import read_measurements
    from ..predict.predictor import Predictor
    from ..render.accuracy import SCOREBOARD_COLUMNS, build_scoreboard_rows

    resolve, measured = partial(resolve_accelerator, load_catalog()), read_measurements(file)
    with status("predicting") as progress:
        board = score_measurements(measured, resolve, Predictor.load(), progress=progress)
    rows, title = build_scoreboard_rows(board), board.protocol
    emit_result("gpuplan.accuracy/1", board.to_json(), SCOREBOARD_COLUMNS, rows, as_json=as_json, title=title)
    for measurement, reason in board.unpredicted:
        say(f"not predicted: {measurement.model} on {measurement.accelerator}: {reason}")
