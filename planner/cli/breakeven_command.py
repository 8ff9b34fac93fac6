"""`gpuplan breakeven`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

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
from .next_step import changed_flags, format_command, suggest_next

__all__ = ["register"]

EPILOG = """Examples:

  gpuplan breakeven train.py --hour-value 20 --runs 10

  gpuplan breakeven train.py --against colab-free,local,aws:g4dn.xlarge,cloud:spot --hour-value 20
"""


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command(epilog=EPILOG)(breakeven)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakevenFlags:
    """Alternatives to compare, number of runs, and value of the user's time."""

    against: Annotated[
        str | None,
        typer.Option(
            help="Ways, with commas: colab-free,local,aws:g4dn.xlarge,cloud:spot. Else the usual six."
        ),
    ] = None
    hour_value: Annotated[float, typer.Option(help="What an hour of your own time is worth, in dollars.")] = (
        0.0
    )
    runs: Annotated[int, typer.Option(help="How often the work is done.")] = 1
    hours_a_day: Annotated[
        float, typer.Option(help="That you sit at a notebook that has to be kept open.")
    ] = 8.0


@expand_flag_groups
def breakeven(
    model: ModelArgument,
    script_arguments: ScriptArguments = None,
    *,
    rivals: BreakevenFlags,
    work: WorkFlags,
    script: ScriptFlags,
    offers: OfferFlags,
    limits: LimitFlags,
    spot: SpotFlags,
    out: OutputFlags,
) -> None:
    """Compare free and paid notebooks, your machine and the clouds: money, time and break-even points."""
    from ..plan.compare.breakeven import BreakevenQuery, compare_alternatives
    from ..plan.pipeline import build_context
    from ..render.breakeven import emit_breakeven, format_recommendation
    from ..render.output import format_json, write_text
    from .progress import show_estimate_progress

    names = tuple(name.strip() for name in (rivals.against or "").split(",") if name.strip())
    query = BreakevenQuery(
        against=names, runs=rivals.runs, hour_value_usd=rivals.hour_value, hours_a_day=rivals.hours_a_day
    )
    options = work.options(script)
    out.require_writable()
    asked = offers.build_request(limits, spot).resolve()
    with show_estimate_progress(model) as tell:
        context = build_context(
            model,
            asked.question,
            options=options.with_callback(tell),
            script_arguments=script_arguments or (),
            catalog=asked.catalog,
            terms=asked.terms,
        )
        result = compare_alternatives(context, query, question=asked.question)
    if out.output is not None:
        document = result.to_json()
        write_text(
            out.output,
            format_json(document.pop("schema"), {"verdict": format_recommendation(result), **document}),
        )
    emit_breakeven(result, as_json=out.json_)
    best = result.best.alternative.offer.offer
    suggest_next(
        format_command(
            "estimate",
            model,
            provider=best.provider,
            accelerator=best.accelerator,
            devices=best.devices,
            **changed_flags(work),
            **changed_flags(script),
            o="plan.json",
            arguments=script_arguments,
        ),
        as_json=out.json_,
    )
