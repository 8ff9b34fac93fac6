"""`gpuplan breakeven`: notebooks, the user's machine and the clouds compared."""

from __future__ import annotations

from typing import Annotated

import typer

from .flag_groups import expand_flag_groups
from .messages import changed_flags, format_command, show_estimate_progress, suggest_next
from .offer_flags import LimitFlags, OfferFlags, Shard, build_request
from .output_flags import OutputFlags
from .work_flags import FitFlag, ModelArgument, RunFlags, ScriptArguments, build_options

BREAKEVEN_EPILOG = """Examples:

  gpuplan breakeven train.py --hour-value 20 --runs 10

  gpuplan breakeven train.py --against colab-free,local,aws:g4dn.xlarge,cloud:spot --hour-value 20
"""


@expand_flag_groups
def breakeven(
    model: ModelArgument,
    script_arguments: ScriptArguments = None,
    *,
    against: Annotated[
        str | None,
        typer.Option(
            help="Alternatives, comma-separated: colab-free,local,aws:g4dn.xlarge,cloud:spot. Default: six."
        ),
    ] = None,
    runs: Annotated[int, typer.Option(help="Number of runs.")] = 1,
    work: RunFlags,
    offers: OfferFlags,
    shard: Shard = None,
    limits: LimitFlags,
    fit: FitFlag = False,
    out: OutputFlags,
) -> None:
    """Compare free and paid notebooks, your machine and the clouds: money, time and break-even points."""
    from ..plan.compare.breakeven import BreakevenQuery, compare_alternatives
    from ..plan.context import build_context
    from ..plan.cost_terms import take_overrides
    from ..plan.fit_ways import prepare_fit, require_fittable
    from ..render.comparison import build_breakeven_json, emit_breakeven
    from ..workload.capture.kept_models import keep_models_built

    hours, assume = take_overrides(limits.assume or (), {"notebook_hours_a_day": "hours_a_day"})
    query = BreakevenQuery(
        against=tuple(name.strip() for name in (against or "").split(",") if name.strip()),
        runs=runs,
        hour_value_usd=limits.hour_value or 0.0,
        wait_value_usd=limits.wait_value or 0.0,
        **hours,
    )
    options = build_options(work)
    if fit:
        require_fittable(options)
    out.require_writable()
    asked = build_request(offers, limits, shard=shard, assume=assume).resolve()
    with show_estimate_progress(model) as tell, keep_models_built():
        context = build_context(
            model,
            asked.question,
            options=options.with_callback(tell),
            script_arguments=script_arguments or (),
            catalog=asked.catalog,
            terms=asked.terms,
        )
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
            shard=shard,
            fit=fit,
            **changed_flags(work),
            o="plan.json",
            arguments=script_arguments,
        ),
        as_json=out.json_,
    )
