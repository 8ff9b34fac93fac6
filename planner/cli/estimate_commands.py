"""`gpuplan estimate`, `breakeven`, `rig`, `sweep` and `report`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from ..limits import MAX_BATCH_SIZE, require_count
from ..offers.clouds import CLOUDS, COLAB
from ..plan.estimate_request import OUTPUT, EstimateRequest
from ..plan.request import resolve_request
from ..records import Flag
from ..render.output import emit_text, require_writable, write_text
from ..render.progress import say, status
from .flags import OFFERS, RUN, VALUES, ModelArgument, OutputFlags, ScriptArguments
from .messages import TRACING, build_step_compiler, changed_flags, format_command, get_callbacks, suggest_next
from .option_values import LONGEST_NUMBER

if TYPE_CHECKING:
    from ..plan.estimate import Estimate
    from ..workload.model import Workload


def estimate(
    model: ModelArgument,
    script_arguments: ScriptArguments = None,
    *,
    request: EstimateRequest,
    show_all: Annotated[bool, Flag("List every offer, not only the best per device.", OUTPUT, "all")] = False,
    explain: Annotated[bool, Flag("Add bottleneck, trade-offs and assumptions below the table.", OUTPUT)] = False,
    breakdown: Annotated[bool, Flag("Itemize the bills, each item with its basis.", OUTPUT)] = False,
    out: OutputFlags,
) -> None:
    """Estimate time, cost and memory of a training run on every accelerator that can be rented.

    Nothing is trained. On a terminal the first line says what to take; at most ten rows follow, the picked
    ones first. A pipe gets every offer as TSV.

    Examples:
      gpuplan estimate train.py --accelerator T4 --accelerator A100-80GB
      gpuplan estimate ResNet50 --samples 1281167 --epochs 90 --precision mixed_float16 --deadline 2d
    """
    from ..plan.estimate_model import estimate_model
    from ..settings import load_settings

    require_writable(out.output)
    is_measured = load_settings().measure if request.measure is None else request.measure
    asked = resolve_request(replace(request, measure=is_measured)).with_refresh(**get_callbacks())
    with status(TRACING.format(model)) as tell:
        result = estimate_model(
            model,
            asked.with_callback(tell),
            script_arguments=script_arguments or (),
            detailed=out.output is not None,
            shown=sys.stdout.isatty() and not out.json_,
            compiling=build_step_compiler(tell) if request.compile else None,
        )
    _show(result, out, show_all=show_all, explain=explain, breakdown=breakdown)
    line = format_command(
        "estimate", model, **changed_flags(request), output="plan.json", arguments=script_arguments
    )
    suggest_next(*next_steps(result, out.output, line, script_arguments or ()), as_json=out.json_)


def _show(result: Estimate, out: OutputFlags, *, show_all: bool, explain: bool, breakdown: bool) -> None:
    """Write the result and the file; NoAnswerError if no offer fits."""
    from ..plan.estimate import explain_no_answer
    from ..render.estimate_output import emit_estimate, format_estimate_json

    if out.output is not None:
        write_text(out.output, format_estimate_json(result))
    emit_estimate(result, as_json=out.json_, show_all=show_all, explain=explain, breakdown=breakdown)
    why = explain_no_answer(result)
    if why is not None and sys.stdout.isatty() and not out.json_:  # the first line of the screen says it
        if why.hint:
            say(f"hint: {why.hint}")
        raise typer.Exit(why.exit_code)
    if why is not None:
        raise why
    if sys.stderr.isatty() and not out.json_:
        for note in result.workload.notes:
            if not note.startswith(EXPECTED):
                say(f"note: {note}")
        if out.output is not None:
            say(f"wrote {out.output}")


# Beginnings of notes that say nothing which would surprise; `--explain` and JSON have them.
EXPECTED = ("traced with Keras on ", "the model is not compiled: ")


def next_steps(
    result: Estimate, output: Path | None, line: str, script_arguments: Sequence[str] = ()
) -> list[str]:
    """Return suggestions for the next command; `line` is the one that writes the estimate to `plan.json`."""
    from ..offers.catalog import find_image, load_chosen_catalog

    work = result.workload
    if work.steps is None:
        missing = ["--samples N"] if work.mode == "infer" or work.samples is None else []
        missing += [] if work.mode == "infer" else ["--epochs N"]
        return [f"add `{' '.join(missing)}` to see the time and cost of a whole run"]
    picked = result.decision.recommended
    plan = output or Path("plan.json")
    kept = [] if output is None else [format_command("report", str(output), "--open")]
    if picked is None:
        return kept
    offer = result.offers[picked].offer
    is_sent = bool(work.named_machines) and not result.options["accelerators"]  # by the script itself
    if offer.provider == "local" or (is_sent and offer.provider == "gcp"):
        is_script = work.model.endswith(".py")
        return [*kept, *([shlex.join(["python", work.model, *script_arguments])] if is_script else [])]
    keys = {"provider": offer.provider, "instance_type": offer.instance_type, "accelerator": offer.accelerator}
    if why := find_image(load_chosen_catalog(), **keys)[1]:
        return [*kept, f"no image of `gpuplan launch` serves the {offer.instance_type}: it {why}"]
    starting = _start_commands(plan, picked, offer.provider)
    return [*kept, *(starting if output else [f"{line} && {one}" for one in starting])]


def _start_commands(plan: Path, picked: int | None, provider: str | None) -> list[str]:
    """Return the command that starts the recommended offer; none where it is rented or opened in a browser."""
    cloud = next((one for one in CLOUDS if one.name == provider), None)
    if picked is None or cloud is None:
        return []
    if provider == COLAB:
        rank = picked + 1
        return [format_command("export", str(plan), to=COLAB, rank=rank, output="notebook.ipynb")]
    if cloud.adapter:
        return [format_command("launch", str(plan), "--dry-run")]
    return [format_command("export", str(plan), to="skypilot")] if cloud.is_rented else []


def report(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan from `gpuplan estimate -o plan.json`.")],
    output: Annotated[Path | None, Flag("Write the page here. Default: beside the plan, or to a pipe.")] = None,
    show: Annotated[bool, Flag("Open the page in the browser.", name="open")] = False,
) -> None:
    """Write a plan as one HTML page that opens offline: charts, tables, bills, assumptions, sources.

    The page holds everything that it needs, the plan itself included, and loads nothing from anywhere.

    Examples:
      gpuplan estimate train.py -o plan.json && gpuplan report plan.json -o report.html
      gpuplan report plan.json --open
    """
    import webbrowser

    from ..profile.end_to_end import read_plan
    from ..render.report.page import build_report_html

    target = output or (plan.with_suffix(".html") if show or sys.stdout.isatty() else None)
    require_writable(target)
    with status("writing the page"):
        planned = read_plan(plan)
        page = build_report_html(planned)
    if target is None:
        emit_text(page)
        return
    write_text(target, page)
    if show and not webbrowser.open(address := target.resolve().as_uri()):
        say(f"no browser could be opened; the page is {address}")
    if sys.stderr.isatty():
        say(f"wrote {target} ({len(page.encode()) / 1e6:.1f} MB)")
    best = planned["decision"]["recommended"]
    picked = None if best is None else int(best["offer"])
    provider = None if picked is None else planned["offers"][picked]["provider"]
    suggest_next(*_start_commands(plan, picked, provider))


def breakeven(
    model: ModelArgument,
    script_arguments: ScriptArguments = None,
    *,
    against: Annotated[
        str, Flag("Alternatives, comma-separated: colab-free,local,aws:g4dn.xlarge,cloud:spot. Default: six.")
    ] = "",
    runs: Annotated[int, Flag("Number of runs.")] = 1,
    request: Annotated[EstimateRequest, (*RUN, *OFFERS, *VALUES, "shard", "fit")],
    out: OutputFlags,
) -> None:
    """Compare free and paid notebooks, your machine and the clouds: money, time and break-even points.

    Examples:
      gpuplan breakeven train.py --hour-value 20 --runs 10
      gpuplan breakeven train.py --against colab-free,local,aws:g4dn.xlarge,cloud:spot --hour-value 20
    """
    from ..plan.breakeven import compare_alternatives
    from ..plan.context import build_context
    from ..plan.estimate_workload import prepare_fit, require_fittable
    from ..render.comparison import describe_breakeven
    from ..workload.capture.tracing_process import keep_models_built

    require_writable(out.output)
    asked = resolve_request(request).with_refresh(**get_callbacks())
    if request.fit:
        require_fittable(asked.options)
    with status(TRACING.format(model)) as tell, keep_models_built():
        context = build_context(model, asked.with_callback(tell), script_arguments=script_arguments or ())
        question, ways = asked.question, None
        prepare = partial(prepare_fit, context, model, question, script_arguments=script_arguments or ())
        if request.fit:
            question, ways = prepare()
        result = compare_alternatives(
            context,
            question=question,
            against=tuple(_split(against)),
            runs=runs,
            ways=ways,
            prepare=None if request.fit else prepare,
        )
    out.emit(describe_breakeven(result))
    best = result.best.offer.offer
    found = {"provider": best.provider, "accelerator": best.accelerator, "devices": best.devices}
    flags = {**found, **changed_flags(request, *RUN, "shard", "fit"), "o": "plan.json"}
    suggest_next(format_command("estimate", model, **flags, arguments=script_arguments), as_json=out.json_)


# Fields of `OwnedMachine` by what sets them in --assume.
OWN = {name: name for name in ("power_w", "idle_power_w", "value_lost_per_year")}
OWN["usd_per_kwh"] = "electricity_usd_per_kwh"


def rig(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="Model to train. Default: compare hourly prices.")
    ] = None,
    *,
    accelerator: Annotated[str, Flag("Accelerator in the machine, as in `gpuplan accelerators`.")],
    price: Annotated[float, Flag("Price of the whole machine in dollars.")],
    devices: Annotated[float, Flag("Number of accelerators.")] = 1.0,
    hours_a_week: Annotated[float, Flag("Hours of training per week.")] = 20.0,
    assume: Annotated[
        Sequence[str],
        Flag(
            "Replace an assumption: power_w=450 (while training; default: limit of the boards plus 150), "
            "idle_power_w=0, value_lost_per_year=0.3, usd_per_kwh=0.17 (electricity)."
        ),
    ] = (),
    request: Annotated[EstimateRequest, RUN],
    out: OutputFlags,
) -> None:
    """Compare buying a machine with renting: the month from which on buying pays off.

    Examples:
      gpuplan rig --accelerator RTX3090 --price 1400 --hours-a-week 30
      gpuplan rig train.py --accelerator RTX3090 --price 1400 --assume usd_per_kwh=0.35
    """
    from ..offers.user_prices import require_power_w
    from ..plan.buy_or_rent import OwnedMachine, compare_by_price, compare_for_work
    from ..plan.context import build_context
    from ..plan.cost_terms import take_overrides
    from ..render.comparison import describe_rig

    require_writable(out.output)
    own, other = take_overrides(assume, OWN)
    asked = resolve_request(replace(request, assume=other))
    name = asked.catalog.names.resolve(accelerator)
    if "power_w" not in own:
        own["power_w"] = require_power_w(asked.catalog.accelerators[name], devices)
    owned = OwnedMachine(purchase_usd=price, hours_a_week=hours_a_week, **own)
    if model is None:
        result = compare_by_price(
            owned, accelerator=name, devices=devices, catalog=asked.catalog, terms=asked.terms
        )
    else:
        with status(TRACING.format(model)) as tell:
            context = build_context(model, asked.with_callback(tell))
            result = compare_for_work(
                owned, accelerator=name, devices=devices, context=context, question=asked.question
            )
    out.emit(describe_rig(result))
    if model is None:
        step = format_command("rig", "MODEL", accelerator=name, price=price)
    else:
        step = format_command("breakeven", model, **changed_flags(request, *RUN))
    suggest_next(step, as_json=out.json_)


def sweep(
    model: ModelArgument,
    script_arguments: ScriptArguments = None,
    *,
    batch_sizes: Annotated[
        str | None, Flag("Batch sizes per device, comma-separated. Default: half, once and twice the model's.")
    ] = None,
    precisions: Annotated[str, Flag("Precisions, comma-separated.")] = "float32,mixed_float16",
    request: Annotated[EstimateRequest, ("samples", "epochs", *OFFERS, "shard", "assume")],
    out: OutputFlags,
) -> None:
    """Try batch sizes, precisions, numbers of devices and purchase options; show the best points only.

    Examples:
      gpuplan sweep train.py --batch-sizes 32,64,128
      gpuplan sweep ResNet50 --samples 1281167 --epochs 90 --precisions float32,mixed_float16
    """
    from ..plan.context import build_context
    from ..plan.sweep import sweep
    from ..render.comparison import describe_sweep
    from ..workload.capture.load import load_workload
    from ..workload.capture.tracing_process import keep_models_built

    named = [] if batch_sizes is None else _split(batch_sizes)
    is_list = all(part.isascii() and part.isdecimal() and len(part) <= LONGEST_NUMBER for part in named)
    if batch_sizes is not None and not (named and is_list):
        what = f"`--batch-sizes {batch_sizes}` is not a list of batch sizes"
        raise UsageError(what, hint="give e.g. `--batch-sizes 32,64,128`")
    for size in (sizes := list(map(int, named))):
        require_count(size, what="--batch-sizes", most=MAX_BATCH_SIZE, example="32,64,128")
    require_writable(out.output)
    asked = resolve_request(request)
    with status(TRACING.format(model)) as tell, keep_models_built():
        context = build_context(model, asked.with_callback(tell), script_arguments=script_arguments or ())
        own = context.workload
        usual = sorted({max(1, own.batch_size // 2), own.batch_size, 2 * own.batch_size})

        def trace(batch_size: int, precision: str) -> Workload:
            if (batch_size, precision) == (own.batch_size, own.precision):
                return own
            tell(f"batch size {batch_size}, {precision}")
            changed = replace(context.options, batch_size=batch_size, precision=precision)
            return load_workload(model, options=changed, argv=script_arguments or ())

        result = sweep(
            context,
            question=asked.question,
            batch_sizes=sizes or usual,
            precisions=_split(precisions),
            trace=trace,
        )
    out.emit(describe_sweep(result))
    trial = result.trials[0]
    found = {"accelerator": trial.taken.offer.accelerator, "devices": trial.taken.offer.devices}
    one, kept = trial.estimate.workload, changed_flags(request, "samples", "epochs", "shard")
    flags = {**found, **kept, "batch_size": one.batch_size, "precision": one.precision, "o": "plan.json"}
    name = result.context.workload.model
    suggest_next(format_command("estimate", name, **flags, arguments=script_arguments), as_json=out.json_)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
