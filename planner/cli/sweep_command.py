"""`gpuplan sweep`: batch sizes, precisions and devices tried on one model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from ..limits import MAX_BATCH_SIZE, require_count
from .flag_groups import expand_flag_groups
from .messages import format_command, show_estimate_progress, suggest_next
from .offer_flags import Assume, OfferFlags, Shard, build_request
from .option_values import LONGEST_NUMBER
from .output_flags import OutputFlags
from .work_flags import ModelArgument, ScriptArguments, build_options

if TYPE_CHECKING:
    from ..plan.compare.sweep import SweepResult
    from ..plan.question import EstimateContext
    from ..workload.model import Workload

SWEEP_EPILOG = """Examples:

  gpuplan sweep train.py --batch-sizes 32,64,128

  gpuplan sweep ResNet50 --samples 1281167 --epochs 90 --precisions float32,mixed_float16
"""
PRECISIONS = "float32,mixed_float16"


@expand_flag_groups
def sweep(
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
    samples: Annotated[int | None, typer.Option(help="Training samples per epoch.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Number of passes over the samples.")] = None,
    offers: OfferFlags,
    shard: Shard = None,
    assume: Assume = None,
    out: OutputFlags,
) -> None:
    """Try batch sizes, precisions, numbers of devices and purchase options; show the best points only."""
    from ..plan.compare.sweep import sweep
    from ..plan.context import build_context
    from ..render.sweep import emit_sweep
    from ..workload.capture.kept_models import keep_models_built
    from ..workload.load import load_workload

    options = build_options(samples=samples, epochs=epochs)
    sizes = None if batch_sizes is None else _parse_batch_sizes(batch_sizes)
    out.require_writable()
    asked = build_request(offers, shard=shard, assume=assume).resolve()
    with show_estimate_progress(model) as tell, keep_models_built():
        context = build_context(
            model,
            asked.question,
            options=options.with_callback(tell),
            script_arguments=script_arguments or (),
            catalog=asked.catalog,
            terms=asked.terms,
        )
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
            {"shard": shard, "samples": samples, "epochs": epochs},
            script_arguments,
        ),
        as_json=out.json_,
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
