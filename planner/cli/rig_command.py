"""`gpuplan rig`: a machine to buy compared with renting."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import UsageError
from .flag_groups import expand_flag_groups
from .messages import changed_flags, format_command, show_estimate_progress, suggest_next
from .output_flags import OutputFlags
from .work_flags import RunFlags, build_options

RIG_EPILOG = """Examples:

  gpuplan rig --accelerator RTX3090 --price 1400 --hours-a-week 30

  gpuplan rig train.py --accelerator RTX3090 --price 1400 --electricity 0.35
"""
OWN = ("power_w", "idle_power_w", "value_lost_per_year")  # fields of `OwnedMachine` that --assume sets
HOST_W = 150.0  # assumed for a desktop in training: processor, memory, fans, power supply losses


@expand_flag_groups
def rig(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="Model to train. Default: compare hourly prices.")
    ] = None,
    *,
    accelerator: Annotated[
        str, typer.Option(help="Accelerator in the machine, as in `gpuplan accelerators`.")
    ],
    price: Annotated[float, typer.Option(help="Price of the whole machine in dollars.")],
    devices: Annotated[float, typer.Option(help="Number of accelerators.")] = 1.0,
    electricity: Annotated[float, typer.Option(help="Price of electricity in dollars per kWh.")] = 0.17,
    hours_a_week: Annotated[float, typer.Option(help="Hours of training per week.")] = 20.0,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            help="Replace an assumption: power_w=450 (while training; default: limit of the boards plus 150), "
            "idle_power_w=0, value_lost_per_year=0.3; repeatable."
        ),
    ] = None,
    work: RunFlags,
    out: OutputFlags,
) -> None:
    """Compare buying a machine with renting: the month from which on buying pays off."""
    from ..plan.compare.buy_or_rent import OwnedMachine, compare_buy_rent
    from ..plan.compare.rental_comparison import find_rentals_by_price, find_rentals_for_work
    from ..plan.context import build_context
    from ..plan.cost_terms import take_overrides
    from ..plan.question import Question
    from ..plan.request import EstimateRequest
    from ..render.comparison import build_rig_json, emit_rig

    out.require_writable()
    own, other = take_overrides(assume or (), {name: name for name in OWN})
    asked = EstimateRequest(assume=other).resolve()
    name = asked.catalog.names.resolve(accelerator)
    board_w = asked.catalog.accelerators[name].tdp_w
    if board_w is not None:
        own.setdefault("power_w", devices * board_w + HOST_W)
    elif "power_w" not in own:
        raise UsageError(f"the power of {name} is not known", hint="add `--assume power_w=450`")
    owned = OwnedMachine(
        purchase_usd=price,
        electricity_usd_per_kwh=electricity,
        hours_a_week=hours_a_week,
        **own,
    )
    if model is None:
        rivals = find_rentals_by_price(asked.catalog, name, devices)
    else:
        options = build_options(work)
        with show_estimate_progress(model) as tell:
            context = build_context(
                model,
                asked.question,
                options=options.with_callback(tell),
                catalog=asked.catalog,
                terms=asked.terms,
            )
            rivals = find_rentals_for_work(context, Question(), accelerator=name, devices=devices)
    verdicts = compare_buy_rent(owned, accelerator=name, rivals=rivals)
    out.write(lambda: build_rig_json(verdicts))
    emit_rig(verdicts, as_json=out.json_)
    if model is None:
        step = format_command("rig", "MODEL", accelerator=name, price=price)
    else:
        step = format_command("breakeven", model, **changed_flags(work))
    suggest_next(step, as_json=out.json_)
