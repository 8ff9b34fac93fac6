"""`gpuplan breakeven`, `rig` and `sweep`: notebooks, the user's machine and the clouds compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from ..limits import MAX_BATCH_SIZE, require_count
from ..plan.estimate_request import EstimateRequest
from ..records import Flag
from .flags import OFFERS, RUN, VALUES, ModelArgument, OutputFlags, ScriptArguments
from .messages import changed_flags, format_command, show_estimate_progress, suggest_next
from .option_values import LONGEST_NUMBER

if TYPE_CHECKING:
    from ..workload.model import Workload


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
    from ..plan.fit_options import prepare_fit, require_fittable
    from ..plan.request import resolve_request
    from ..render.comparison import describe_breakeven
    from ..workload.capture.kept_models import keep_models_built

    out.require_writable()
    asked = resolve_request(request)
    if request.fit:
        require_fittable(asked.options)
    with show_estimate_progress(model) as tell, keep_models_built():
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


OWN = ("power_w", "idle_power_w", "value_lost_per_year")  # fields of `OwnedMachine` that --assume sets


def rig(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="Model to train. Default: compare hourly prices.")
    ] = None,
    *,
    accelerator: Annotated[str, Flag("Accelerator in the machine, as in `gpuplan accelerators`.")],
    price: Annotated[float, Flag("Price of the whole machine in dollars.")],
    devices: Annotated[float, Flag("Number of accelerators.")] = 1.0,
    electricity: Annotated[float, Flag("Price of electricity in dollars per kWh.")] = 0.17,
    hours_a_week: Annotated[float, Flag("Hours of training per week.")] = 20.0,
    assume: Annotated[
        Sequence[str],
        Flag(
            "Replace an assumption: power_w=450 (while training; default: limit of the boards plus 150), "
            "idle_power_w=0, value_lost_per_year=0.3."
        ),
    ] = (),
    request: Annotated[EstimateRequest, RUN],
    out: OutputFlags,
) -> None:
    """Compare buying a machine with renting: the month from which on buying pays off.

    Examples:
      gpuplan rig --accelerator RTX3090 --price 1400 --hours-a-week 30
      gpuplan rig train.py --accelerator RTX3090 --price 1400 --electricity 0.35
    """
    from ..offers.user_prices import require_power_w
    from ..plan.buy_or_rent import OwnedMachine, compare_by_price, compare_for_work
    from ..plan.context import build_context
    from ..plan.cost_terms import take_overrides
    from ..plan.request import resolve_request
    from ..render.comparison import describe_rig

    out.require_writable()
    own, other = take_overrides(assume, {name: name for name in OWN})
    asked = resolve_request(replace(request, assume=other))
    name = asked.catalog.names.resolve(accelerator)
    if "power_w" not in own:
        own["power_w"] = require_power_w(asked.catalog.accelerators[name], devices)
    owned = OwnedMachine(purchase_usd=price, electricity_usd_per_kwh=electricity, hours_a_week=hours_a_week, **own)
    if model is None:
        result = compare_by_price(
            owned, accelerator=name, devices=devices, catalog=asked.catalog, terms=asked.terms
        )
    else:
        with show_estimate_progress(model) as tell:
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
    from ..plan.request import resolve_request
    from ..plan.sweep import sweep
    from ..render.comparison import describe_sweep
    from ..workload.capture.kept_models import keep_models_built
    from ..workload.capture.load import load_workload

    sizes = None if batch_sizes is None else _parse_batch_sizes(batch_sizes)
    out.require_writable()
    asked = resolve_request(request)
    with show_estimate_progress(model) as tell, keep_models_built():
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
    work = {"batch_size": trial.batch_size, "precision": trial.precision, "o": "plan.json"}
    flags = {**found, **changed_flags(request, "samples", "epochs", "shard"), **work}
    name = result.context.workload.model
    suggest_next(format_command("estimate", name, **flags, arguments=script_arguments), as_json=out.json_)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _parse_batch_sizes(text: str) -> list[int]:
    """Parse batch sizes; UsageError for anything but integers of at least 1."""
    sizes = _split(text)
    if not sizes or not all(part.isascii() and part.isdecimal() and len(part) <= LONGEST_NUMBER for part in sizes):
        raise UsageError(
            f"`--batch-sizes {text}` is not a list of batch sizes", hint="give e.g. `--batch-sizes 32,64,128`"
        )
    for size in (found := [int(part) for part in sizes]):
        require_count(size, what="--batch-sizes", most=MAX_BATCH_SIZE, example="32,64,128")
    return found
