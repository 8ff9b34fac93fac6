"""`gpuplan breakeven`, `gpuplan rig` and `gpuplan sweep`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from ..limits import MAX_BATCH_SIZE, require_count
from .flag_groups import expand_flag_groups
from .flags import (
    FitFlag,
    LimitFlags,
    ModelArgument,
    OfferFlags,
    OutputFlags,
    ScriptArguments,
    ScriptFlags,
    SpotFlags,
    ValueFlags,
    WorkFlags,
)
from .messages import changed_flags, format_command, show_estimate_progress, suggest_next
from .option_values import LONGEST_NUMBER

if TYPE_CHECKING:
    from ..plan.compare.sweep import SweepResult
    from ..plan.question import EstimateContext
    from ..plan.request import ResolvedRequest
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions

__all__ = ["register"]

BREAKEVEN_EPILOG = """Examples:

  gpuplan breakeven train.py --hour-value 20 --runs 10

  gpuplan breakeven train.py --against colab-free,local,aws:g4dn.xlarge,cloud:spot --hour-value 20
"""
RIG_EPILOG = """Examples:

  gpuplan rig --accelerator RTX3090 --price 1400 --hours-a-week 30

  gpuplan rig train.py --accelerator RTX3090 --price 1400 --electricity 0.35
"""
SWEEP_EPILOG = """Examples:

  gpuplan sweep train.py --batch-sizes 32,64,128

  gpuplan sweep ResNet50 --samples 1281167 --epochs 90 --precisions float32,mixed_float16
"""
PRECISIONS = "float32,mixed_float16"
HOST_W = 150.0  # assumed for a desktop in training: processor, memory, fans, power supply losses


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command(epilog=BREAKEVEN_EPILOG)(breakeven)
    app.command(epilog=RIG_EPILOG)(rig)
    app.command("sweep", epilog=SWEEP_EPILOG)(sweep_command)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakevenFlags:
    """Alternatives to compare, and number of runs."""

    against: Annotated[
        str | None,
        typer.Option(
            help="Alternatives, comma-separated: colab-free,local,aws:g4dn.xlarge,cloud:spot. Default: six."
        ),
    ] = None
    runs: Annotated[int, typer.Option(help="Number of runs.")] = 1
    hours_a_day: Annotated[
        float, typer.Option(help="Hours per day at a notebook that must be kept open.")
    ] = 8.0


@expand_flag_groups
def breakeven(
    model: ModelArgument,
    script_arguments: ScriptArguments = None,
    *,
    rivals: BreakevenFlags,
    values: ValueFlags,
    work: WorkFlags,
    script: ScriptFlags,
    offers: OfferFlags,
    limits: LimitFlags,
    spot: SpotFlags,
    fit: FitFlag = False,
    out: OutputFlags,
) -> None:
    """Compare free and paid notebooks, your machine and the clouds: money, time and break-even points."""
    from ..plan.compare.breakeven import BreakevenQuery, compare_alternatives
    from ..plan.fit_ways import prepare_fit, require_fittable
    from ..render.comparison import build_breakeven_json, emit_breakeven
    from ..workload.capture.kept_models import keep_models_built

    query = BreakevenQuery(
        against=tuple(name.strip() for name in (rivals.against or "").split(",") if name.strip()),
        runs=rivals.runs,
        hour_value_usd=values.hour_value or 0.0,
        wait_value_usd=values.wait_value or 0.0,
        hours_a_day=rivals.hours_a_day,
    )
    options = work.options(script)
    if fit:
        require_fittable(options)
    out.require_writable()
    asked = offers.build_request(limits, spot, values).resolve()
    with show_estimate_progress(model) as tell, keep_models_built():
        context = _build_context(model, asked, options.with_callback(tell), script_arguments)
        question, ways = asked.question, None
        if fit:
            question, ways = prepare_fit(context, model, question, script_arguments=script_arguments or ())
        result = compare_alternatives(context, query, question=question, ways=ways)
    out.write(lambda: build_breakeven_json(result))
    emit_breakeven(result, as_json=out.json_)
    best = result.best.alternative.offer.offer
    suggest_next(
        format_command(
            "estimate",
            model,
            provider=best.provider,
            accelerator=best.accelerator,
            devices=best.devices,
            shard=changed_flags(offers).get("shard"),
            fit=fit,
            **changed_flags(work),
            **changed_flags(script),
            o="plan.json",
            arguments=script_arguments,
        ),
        as_json=out.json_,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RigFlags:
    """A machine to buy, and its use."""

    accelerator: Annotated[
        str, typer.Option(help="Accelerator in the machine, as in `gpuplan accelerators`.")
    ]
    price: Annotated[float, typer.Option(help="Price of the whole machine in dollars.")]
    devices: Annotated[float, typer.Option(help="Number of accelerators.")] = 1.0
    loses: Annotated[float, typer.Option(help="Share of its value that the machine loses per year.")] = 0.3
    power: Annotated[
        float | None, typer.Option(help="Power while training [W]. Default: limit of the boards plus 150.")
    ] = None
    idle_power: Annotated[
        float, typer.Option(help="Power during the rest of the week [W]; 0: switched off.")
    ] = 0.0
    electricity: Annotated[float, typer.Option(help="Price of electricity in dollars per kWh.")] = 0.17
    hours_a_week: Annotated[float, typer.Option(help="Hours of training per week.")] = 20.0


@expand_flag_groups
def rig(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="Model to train. Default: compare hourly prices.")
    ] = None,
    *,
    machine: RigFlags,
    work: WorkFlags,
    script: ScriptFlags,
    out: OutputFlags,
) -> None:
    """Compare buying a machine with renting: the month from which on buying pays off."""
    from ..plan.compare.buy_or_rent import OwnedMachine, compare_buy_rent
    from ..plan.compare.rental_comparison import find_rentals_by_price, find_rentals_for_work
    from ..plan.question import Question
    from ..plan.request import EstimateRequest
    from ..render.comparison import build_rig_json, emit_rig

    out.require_writable()
    asked = EstimateRequest().resolve()
    name = asked.catalog.names.resolve(machine.accelerator)
    board_w = asked.catalog.accelerators[name].tdp_w
    if machine.power is None and board_w is None:
        raise UsageError(f"the power of {name} is not known", hint="add `--power 450`")
    power_w = machine.power if machine.power is not None else machine.devices * (board_w or 0.0) + HOST_W
    owned = OwnedMachine(
        purchase_usd=machine.price,
        value_lost_per_year=machine.loses,
        power_w=power_w,
        idle_power_w=machine.idle_power,
        electricity_usd_per_kwh=machine.electricity,
        hours_a_week=machine.hours_a_week,
    )
    if model is None:
        rivals = find_rentals_by_price(asked.catalog, name, machine.devices)
    else:
        options = work.options(script)
        with show_estimate_progress(model) as tell:
            context = _build_context(model, asked, options.with_callback(tell))
            rivals = find_rentals_for_work(context, Question(), accelerator=name, devices=machine.devices)
    verdicts = compare_buy_rent(owned, accelerator=name, rivals=rivals)
    out.write(lambda: build_rig_json(verdicts))
    emit_rig(verdicts, as_json=out.json_)
    if model is None:
        step = format_command("rig", "MODEL", accelerator=name, price=machine.price)
    else:
        step = format_command("breakeven", model, **changed_flags(work), **changed_flags(script))
    suggest_next(step, as_json=out.json_)


@expand_flag_groups
def sweep_command(
    model: ModelArgument,
    script_arguments: ScriptArguments = None,
    *,
    batch_sizes: Annotated[
        str | None,
        typer.Option(
            help="Batch sizes per device, comma-separated. Default: half, once and twice the model's."
        ),
    ] = None,
    precisions: Annotated[str, typer.Option(help="Precisions, comma-separated.")] = PRECISIONS,
    work: WorkFlags,
    script: ScriptFlags,
    offers: OfferFlags,
    limits: LimitFlags,
    spot: SpotFlags,
    fit: Annotated[bool, typer.Option("--fit", hidden=True)] = False,
    out: OutputFlags,
) -> None:
    """Try batch sizes, precisions, numbers of devices and purchase options; show the best points only."""
    from ..plan.compare.sweep import sweep
    from ..render.sweep import emit_sweep
    from ..workload.capture.kept_models import keep_models_built
    from ..workload.load import load_workload

    if fit:
        raise UsageError(
            "`sweep` has no `--fit`: it tries batch sizes as they are, and lists those that fit nowhere",
            hint="`gpuplan estimate MODEL --fit` divides one batch into passes that fit; `--shard auto` and "
            "`--remat` belong to `sweep` too",
        )
    sizes = None if batch_sizes is None else _parse_batch_sizes(batch_sizes)
    out.require_writable()
    asked = offers.build_request(limits, spot).resolve()
    with show_estimate_progress(model) as tell, keep_models_built():
        context = _build_context(model, asked, work.options(script).with_callback(tell), script_arguments)
        own = context.workload

        def trace(batch_size: int, precision: str) -> Workload:
            if (batch_size, precision) == (own.batch_size, own.precision):
                return own
            tell(f"batch size {batch_size}, {precision}")
            changed = replace(context.options, batch_size=batch_size, precision=precision)
            return load_workload(model, options=changed, argv=script_arguments or ())

        result = sweep(
            context,
            question=asked.question,
            batch_sizes=sizes or _build_default_batch_sizes(context),
            precisions=[name.strip() for name in precisions.split(",") if name.strip()],
            trace=trace,
        )
    out.write(result.to_json)
    emit_sweep(result, as_json=out.json_)
    suggest_next(
        _format_estimate_command(
            result,
            {"shard": changed_flags(offers).get("shard"), **changed_flags(work), **changed_flags(script)},
            script_arguments,
        ),
        as_json=out.json_,
    )


def _build_context(
    model: str, asked: ResolvedRequest, options: WorkloadOptions, script_arguments: list[str] | None = None
) -> EstimateContext:
    """Load the workload of a model and combine it with the catalog and the terms of a request."""
    from ..plan.context import build_context

    return build_context(
        model,
        asked.question,
        options=options,
        script_arguments=script_arguments or (),
        catalog=asked.catalog,
        terms=asked.terms,
    )


def _format_estimate_command(
    result: SweepResult, flags: dict[str, Any], script_arguments: list[str] | None
) -> str:
    """Return the command that estimates the cheapest of the best points."""
    point = min(result.best, key=lambda point: point.cost_usd)
    offer = point.offer.offer
    return format_command(
        "estimate",
        result.model,
        accelerator=offer.accelerator,
        devices=offer.devices,
        **{**flags, "batch_size": point.batch_size, "precision": point.precision},
        o="plan.json",
        arguments=script_arguments,
    )


def _build_default_batch_sizes(context: EstimateContext) -> list[int]:
    """Return half, once and twice the model's own batch size."""
    own = context.workload.batch_size
    return sorted({max(1, own // 2), own, 2 * own})


def _parse_batch_sizes(text: str) -> list[int]:
    """Parse batch sizes; UsageError for anything but integers of at least 1."""
    sizes = [part.strip() for part in text.split(",") if part.strip()]
    if not sizes or not all(
        part.isascii() and part.isdecimal() and len(part) <= LONGEST_NUMBER for part in sizes
    ):
        raise UsageError(
            f"`--batch-sizes {text}` is not a list of batch sizes", hint="give e.g. `--batch-sizes 32,64,128`"
        )
    for size in (found := [int(part) for part in sizes]):
        require_count(size, what="--batch-sizes", most=MAX_BATCH_SIZE, example="32,64,128")
    return found
