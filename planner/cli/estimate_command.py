"""`gpuplan estimate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .flags import (
    LimitFlags,
    ModelArgument,
    OfferFlags,
    OutputFlags,
    ScriptArguments,
    ScriptFlags,
    SpotFlags,
    WorkFlags,
    expand_flag_groups,
)
from .next_step import DRY_RUN, format_command, suggest_next

if TYPE_CHECKING:
    from ..plan.question import Question
    from ..plan.result.estimate import Estimate
    from ..workload.model import Workload

__all__ = ["register"]

EPILOG = """Examples:

  gpuplan estimate train.py --accelerator T4 --accelerator A100-80GB

  gpuplan estimate ResNet50 --samples 1281167 --epochs 90 --precision mixed_float16 --deadline 2d
"""


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command(epilog=EPILOG)(estimate)


@expand_flag_groups
def estimate(
    model: ModelArgument,
    script_arguments: ScriptArguments = None,
    *,
    work: WorkFlags,
    script: ScriptFlags,
    offers: OfferFlags,
    limits: LimitFlags,
    spot: SpotFlags,
    profile: Annotated[
        list[Path] | None,
        typer.Option(help="What `gpuplan profile` or StepTimer measured; repeat for more."),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Every offer, not the best per device.")] = False,
    breakdown: Annotated[
        bool, typer.Option("--breakdown", help="The bills line by line, and what each line rests on.")
    ] = False,
    best_batch: Annotated[
        bool, typer.Option("--best-batch", help="Also each offer at the largest batch that fits.")
    ] = False,
    compile: Annotated[
        bool,
        typer.Option("--compile", help="Let XLA compile the step for each --accelerator (takes minutes)."),
    ] = False,
    out: OutputFlags,
) -> None:
    """Estimate time, cost and memory of a training run on every accelerator that can be rented.

    Nothing is trained. On a terminal the best offer of each kind and number of devices is shown; a pipe gets
    every offer as TSV.
    """
    from ..plan.pipeline import estimate_model
    from .progress import build_step_compiler, show_estimate_progress

    options = work.options(script)
    out.require_writable()
    asked = offers.build_request(limits, spot).resolve()
    with show_estimate_progress(model) as tell:
        result = estimate_model(
            model,
            asked.question,
            options=options.with_callback(tell),
            script_arguments=script_arguments or (),
            catalog=asked.catalog,
            terms=asked.terms,
            profiles=profile or (),
            detailed=out.output is not None,
            best_batch=best_batch,
            compiling=build_step_compiler(tell) if compile else None,
        )
    _show(result, asked.question, out, show_all=show_all, breakdown=breakdown)


def _show(result: Estimate, question: Question, out: OutputFlags, *, show_all: bool, breakdown: bool) -> None:
    """Write the result and the file; NoAnswerError if no offer fits."""
    from ..plan.question import explain_no_answer
    from ..render.estimate.table import emit_estimate, format_estimate_json
    from ..render.output import write_text

    if out.output is not None:
        write_text(out.output, format_estimate_json(result))
    emit_estimate(result, as_json=out.json_, show_all=show_all, breakdown=breakdown)
    why = explain_no_answer(result, question)
    if why is not None:
        raise why
    if sys.stderr.isatty() and not out.json_:
        for line in notes(result, out.output):
            typer.echo(line, err=True)
    suggest_next(*next_steps(result, out.output), as_json=out.json_)


def notes(result: Estimate, output: Path | None) -> list[str]:
    """Return the assumptions and the path of the written file."""
    written = [] if output is None else [f"wrote {output}"]
    return [*(f"note: {note}" for note in result.workload.notes), *written]


def _missing(workload: Workload) -> str:
    """Return the flags that would set the length of the run."""
    if workload.mode == "infer":
        return "--samples N"
    return "--samples N --epochs N" if workload.samples is None else "--epochs N"


def next_steps(result: Estimate, output: Path | None) -> list[str]:
    """Return suggestions for the next command."""
    if result.workload.steps is None:
        return [f"add `{_missing(result.workload)}` to see the time and cost of a whole run"]
    if output is None:
        return ["add `-o plan.json` to keep this estimate with every offer"]
    return [format_command("report", str(output), "--open"), format_command("launch", str(output), DRY_RUN)]
