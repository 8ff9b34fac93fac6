"""`gpuplan estimate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from ..plan.estimate import Question
    from ..plan.result import Estimate

__all__ = ["register"]

EPILOG = """Examples:

  gpuplan estimate train.py --accelerator T4 --accelerator A100-80GB

  gpuplan estimate ResNet50 --samples 1281167 --epochs 90 --precision mixed_float16 --deadline 2d
"""


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command(epilog=EPILOG)(estimate)


def estimate(  # noqa: PLR0917 - one argument a flag
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="Script, function, Keras application, .keras or .json file."),
    ],
    script_arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]", help="What a script finds in sys.argv.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples per device and step.")] = None,
    samples: Annotated[int | None, typer.Option(help="Training samples of an epoch.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the samples.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Optimizer steps on one device, instead of epochs.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="float32, tf32, mixed_float16, mixed_bfloat16, float16 or bfloat16.")
    ] = None,
    mode: Annotated[
        Literal["train", "infer"], typer.Option(help="Training steps, or predictions.")
    ] = "train",
    loss: Annotated[str | None, typer.Option(help="Of a model that is not compiled: a Keras loss.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="Likewise: a Keras optimizer.")] = None,
    accelerator: Annotated[list[str] | None, typer.Option(help="Only this one; repeat for more.")] = None,
    provider: Annotated[list[str] | None, typer.Option(help="Only theirs; repeat for more.")] = None,
    region: Annotated[list[str] | None, typer.Option(help="Only there; repeat for more.")] = None,
    purchase: Annotated[Literal["on-demand", "spot", "any"], typer.Option(help="How to rent.")] = "any",
    devices: Annotated[
        list[float] | None, typer.Option(help="Only with so many devices; repeatable.")
    ] = None,
    deadline: Annotated[str | None, typer.Option(help="Longest time of the run: 90s, 15m, 12h, 2d.")] = None,
    budget: Annotated[float | None, typer.Option(help="Highest cost of the run in dollars.")] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            help="What you know better, as boot_s=90 or dataset_gb=150; repeatable (see --breakdown)."
        ),
    ] = None,
    breakdown: Annotated[
        bool, typer.Option("--breakdown", help="The bills line by line, and what each line rests on.")
    ] = False,
    sort: Annotated[Literal["cost", "time"], typer.Option(help="What comes first.")] = "cost",
    show_all: Annotated[bool, typer.Option("--all", help="Every offer, not the best per device.")] = False,
    retired: Annotated[bool, typer.Option("--retired", help="Also what can no longer be rented.")] = False,
    catalog: Annotated[Path | None, typer.Option(help="A folder with your own catalog.")] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Trace anew, and keep nothing.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also write the JSON here.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Estimate time, cost and memory of a training run on every accelerator that can be rented.

    Nothing is trained. On a terminal the best offer of each kind and number of devices is shown; a pipe gets
    every offer as TSV.
    """
    from ..errors import UsageError
    from ..offers.load import catalog_of
    from ..plan.ask import ask
    from ..plan.estimate import Question
    from ..plan.limits import duration_s_of
    from ..plan.select import Filters
    from ..plan.terms import terms_of
    from ..render.files import require_writable
    from ..settings import apply_cache_dir, load_settings
    from ..workload.options import WorkloadOptions
    from .progress import tracing

    if epochs is not None and steps is not None:
        raise UsageError("`--epochs` and `--steps` both say how long the run is", hint="give one of them")
    if output is not None:
        require_writable(output, flag="-o")
    settings = load_settings(
        flags={"catalog_dir": catalog, "providers": tuple(provider or ()), "regions": tuple(region or ())}
    )
    apply_cache_dir(settings)
    question = Question(
        filters=Filters(
            accelerators=tuple(accelerator or ()),
            providers=settings.providers,
            regions=settings.regions,
            purchase=purchase,
            devices=tuple(devices or ()),
            include_retired=retired,
        ),
        sort=sort,
        deadline_s=None if deadline is None else duration_s_of(deadline),
        budget_usd=budget,
    )
    options = WorkloadOptions(
        batch_size=batch_size, samples=samples, epochs=epochs, steps=steps, precision=precision, mode=mode,
        loss=loss, optimizer=optimizer, use_cache=not no_cache,
    )  # fmt: skip
    rented = catalog_of(settings)
    result = ask(
        model, question, options=options, script_arguments=script_arguments or (), catalog=rented,
        terms=terms_of(settings, rented.costs, assume=assume or ()), around_trace=tracing(model),
    )  # fmt: skip
    _show(result, question, output=output, as_json=json_, show_all=show_all, breakdown=breakdown)


def _show(
    result: Estimate,
    question: Question,
    *,
    output: Path | None,
    as_json: bool,
    show_all: bool,
    breakdown: bool,
) -> None:
    """Emit the result, write the file, and raise when the answer is no."""
    from ..plan.answer import why_no_answer
    from ..render.estimate import emit_estimate, estimate_json
    from ..render.files import write_text

    if output is not None:
        write_text(output, estimate_json(result))
    emit_estimate(result, as_json=as_json, show_all=show_all, breakdown=breakdown)
    why = why_no_answer(result, question)
    if why is not None:
        raise why
    if sys.stderr.isatty() and not as_json:
        for line in advice(result, output):
            typer.echo(line, err=True)


def advice(result: Estimate, output: Path | None) -> list[str]:
    """Return what was assumed, and what to do next."""
    notes = [f"note: {note}" for note in result.workload.notes]
    if result.workload.steps is None and result.workload.samples is None:
        return [*notes, "next: add `--samples N --epochs N` to see the time and cost of a whole run"]
    if output is None:
        return [*notes, "next: add `-o plan.json` to keep this estimate with every offer"]
    return [*notes, f"wrote {output}"]
