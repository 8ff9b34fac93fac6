"""`gpuplan estimate`, `gpuplan report` and `gpuplan epochs`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..offers.clouds import CLOUDS, COLAB
from ..plan.estimate_request import OUTPUT, EstimateRequest
from ..records import to_plain
from ..render.progress import say
from .flags import AsJson, ModelArgument, OutputFlags, ScriptArguments, expand_flag_groups
from .messages import DRY_RUN, changed_flags, format_command, suggest_next

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from ..plan.estimate import Estimate
    from ..plan.question import Question
    from ..workload.model import Workload

OutputOption = partial(typer.Option, rich_help_panel=OUTPUT)

ESTIMATE_EPILOG = """Examples:

  gpuplan estimate train.py --accelerator T4 --accelerator A100-80GB

  gpuplan estimate ResNet50 --samples 1281167 --epochs 90 --precision mixed_float16 --deadline 2d
"""


@expand_flag_groups
def estimate(
    model: ModelArgument,
    script_arguments: ScriptArguments = None,
    *,
    request: EstimateRequest,
    show_all: Annotated[
        bool, OutputOption("--all", help="List every offer, not only the best per device.")
    ] = False,
    explain: Annotated[
        bool, OutputOption("--explain", help="Add bottleneck, margins and assumptions below the table.")
    ] = False,
    breakdown: Annotated[
        bool, OutputOption("--breakdown", help="Itemize the bills, each item with its basis.")
    ] = False,
    out: OutputFlags,
) -> None:
    """Estimate time, cost and memory of a training run on every accelerator that can be rented.

    Nothing is trained. On a terminal the first line says what to take; at most ten rows follow, the picked
    ones first. A pipe gets every offer as TSV.
    """
    from ..plan.estimate_model import estimate_model
    from ..plan.request import resolve_request
    from ..settings import load_settings
    from .messages import build_step_compiler, show_estimate_progress

    out.require_writable()
    is_measured = load_settings().measure if request.measure is None else request.measure
    asked = resolve_request(replace(request, measure=is_measured))
    with show_estimate_progress(model) as tell:
        result = estimate_model(
            model,
            asked.with_callback(tell),
            script_arguments=script_arguments or (),
            detailed=out.output is not None,
            compiling=build_step_compiler(tell) if request.compile else None,
        )
    _show(result, asked.question, out, show_all=show_all, explain=explain, breakdown=breakdown)
    line = format_command(
        "estimate", model, **changed_flags(request), output="plan.json", arguments=script_arguments
    )
    suggest_next(*next_steps(result, out.output, line, script_arguments or ()), as_json=out.json_)


def _show(
    result: Estimate, question: Question, out: OutputFlags, *, show_all: bool, explain: bool, breakdown: bool
) -> None:
    """Write the result and the file; NoAnswerError if no offer fits."""
    from ..plan.question import explain_no_answer
    from ..render.estimate_output import emit_estimate, format_estimate_json
    from ..render.output import write_text

    if out.output is not None:
        write_text(out.output, format_estimate_json(result))
    emit_estimate(result, as_json=out.json_, show_all=show_all, explain=explain, breakdown=breakdown)
    why = explain_no_answer(result, question)
    if why is not None and sys.stdout.isatty() and not out.json_:  # the first line of the screen says it
        if why.hint:
            say(f"hint: {why.hint}")
        raise typer.Exit(why.exit_code)
    if why is not None:
        raise why
    if sys.stderr.isatty() and not out.json_:
        for line in notes(result, out.output):
            say(line)


# Beginnings of notes that say nothing which would surprise; `--explain` and JSON have them.
EXPECTED = ("traced with Keras on ", "the model is not compiled: ")


def notes(result: Estimate, output: Path | None) -> list[str]:
    """Return what of the workload may be otherwise than expected, and the path of the written file."""
    written = [] if output is None else [f"wrote {output}"]
    told = [note for note in result.workload.notes if not note.startswith(EXPECTED)]
    return [*(f"note: {note}" for note in told), *written]


def _missing(workload: Workload) -> str:
    """Return the flags that would set the length of the run."""
    if workload.mode == "infer":
        return "--samples N"
    return "--samples N --epochs N" if workload.samples is None else "--epochs N"


def next_steps(
    result: Estimate, output: Path | None, line: str, script_arguments: Sequence[str] = ()
) -> list[str]:
    """Return suggestions for the next command.

    Args:
        result: Estimate.
        output: File that it was written to; None for none.
        line: Command that writes it to `plan.json`.
        script_arguments: Arguments of a training script.
    """
    if result.workload.steps is None:
        return [f"add `{_missing(result.workload)}` to see the time and cost of a whole run"]
    picked = result.decision.recommended
    plan = output or Path("plan.json")
    kept = [] if output is None else [format_command("report", str(output), "--open")]
    if picked is None:
        return kept
    offer = result.offers[picked].offer
    if offer.provider == "local":
        model = result.workload.model
        return [*kept, *([shlex.join(["python", model, *script_arguments])] if model.endswith(".py") else [])]
    if why := _find_image_problem(offer):
        return [*kept, f"no image of `gpuplan launch` serves the {offer.instance_type}: it {why}"]
    starting = _start_commands(plan, picked, offer.provider)
    return [*kept, *(starting if output else [f"{line} && {one}" for one in starting])]


def _find_image_problem(offer: Offer) -> str:
    """Return why no image that `launch` knows serves a machine; empty for the others."""
    from ..offers.catalog import find_image, load_catalog

    keys = {"provider": offer.provider, "instance_type": offer.instance_type, "accelerator": offer.accelerator}
    return find_image(load_catalog(), **keys)[1]


def _start_commands(plan: Path, picked: int | None, provider: str | None) -> list[str]:
    """Return the command that starts the recommended offer; none where it is rented or opened in a browser."""
    cloud = next((one for one in CLOUDS if one.name == provider), None)
    if picked is None or cloud is None:
        return []
    if provider == COLAB:
        rank = picked + 1
        return [format_command("export", str(plan), to=COLAB, rank=rank, output="notebook.ipynb")]
    if cloud.adapter:
        return [format_command("launch", str(plan), DRY_RUN)]
    return [format_command("export", str(plan), to="skypilot")] if cloud.is_rented else []


REPORT_EPILOG = """Examples:

  gpuplan estimate train.py -o plan.json && gpuplan report plan.json -o report.html

  gpuplan report plan.json --open
"""


def report(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan from `gpuplan estimate -o plan.json`.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the page here. Default: beside the plan, or to a pipe."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Write a plan as one HTML page that opens offline: charts, tables, bills, assumptions, sources.

    The page holds everything that it needs, the plan itself included, and loads nothing from anywhere.
    """
    from ..profile.end_to_end import read_plan
    from ..render.output import emit_text, require_writable, write_text
    from ..render.progress import status
    from ..render.report.page import build_report_html

    target = output or (plan.with_suffix(".html") if show or sys.stdout.isatty() else None)
    if target is not None:
        require_writable(target, flag="-o")
    with status("writing the page"):
        planned = read_plan(plan)
        page = build_report_html(planned)
    if target is None:
        emit_text(page)
        return
    write_text(target, page)
    if show:
        _open(target)
    if sys.stderr.isatty():
        say(f"wrote {target} ({len(page.encode()) / 1e6:.1f} MB)")
    best = planned["decision"]["recommended"]
    picked = None if best is None else int(best["offer"])
    provider = None if picked is None else planned["offers"][picked]["provider"]
    suggest_next(*_start_commands(plan, picked, provider))


def _open(page: Path) -> None:
    """Open a page in the browser; print its address if there is none."""
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        say(f"no browser could be opened; the page is {page.resolve().as_uri()}")


EPOCHS_EPILOG = """Examples:

  gpuplan epochs history.json --metric val_accuracy --target 0.93

  gpuplan epochs training.csv --metric val_loss --target 0.25 --json
"""


def epochs(
    history: Annotated[Path, typer.Argument(help="`History.history` as JSON, or a file from CSVLogger.")],
    target: Annotated[float, typer.Option(help="Target value of the metric.")],
    metric: Annotated[str, typer.Option(help="Name of the metric.")] = "val_accuracy",
    json_: AsJson = False,
) -> None:
    """Extrapolate how many epochs a metric needs to reach a target, or say that it cannot be known."""
    from ..errors import NoAnswerError
    from ..plan.learning_curve import SCHEMA, forecast_epochs, read_history
    from ..render.output import Column, emit_result
    from ..render.progress import status

    with status(f"extrapolating {metric}"):
        found = forecast_epochs(read_history(history), metric=metric, target=target)
    row = to_plain(found)
    emit_result(SCHEMA, row, [Column(key=key, header=key) for key in row], [row], as_json=json_)
    if found.epochs is None:
        raise NoAnswerError(
            f"{metric} {target:g}: {found.reason}", hint="train a few more epochs, or choose an easier target"
        )
    suggest_next(format_command("estimate", "MODEL", epochs=found.epochs), as_json=json_)
