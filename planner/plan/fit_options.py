"""Ways in which `--fit` may change a model's step, traced on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..predict.sharding import EVERY_SHARDING
from ..workload.capture.tracing_process import keep_models_built
from .context import build_resizer, trace_workload
from .decision_words import describe_misfit
from .estimate_workload import estimate_in_context
from .fitting import FitWays, Resize

if TYPE_CHECKING:
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions
    from .compilation import StepCompiler
    from .estimate import Estimate
    from .question import EstimateContext, Question


def prepare_fit(
    context: EstimateContext, model: Any, question: Question, *, script_arguments: Sequence[str] = ()
) -> tuple[Question, FitWays]:
    """Return the question with every sharding to try unless one is stated, and the ways to make a step fit.

    The model is traced for each on first use.

    Raises:
        UsageError: The workload is not available at other batch sizes.
    """
    if context.resized is None:
        raise build_sizes_error("--fit", context.workload)
    if question.shard is None and context.workload.layout is None:
        question = replace(question, shard=EVERY_SHARDING)

    def trace(options: WorkloadOptions) -> tuple[Workload, Resize]:
        workload = trace_workload(model, options=options, script_arguments=script_arguments)
        return workload, build_resizer(workload, model, options=options, script_arguments=script_arguments)

    def build(resized: Resize, options: WorkloadOptions, **others: Any) -> FitWays:
        trace_recomputed = cache(lambda: trace(replace(options, remat=True))[1])

        def recomputed(batch_size: int) -> Workload:
            return trace_recomputed()(batch_size)

        return FitWays(resized=resized, recomputed=None if options.remat else recomputed, **others)

    @cache
    def divide(devices: int) -> tuple[Workload, FitWays]:
        options = replace(context.options, tensor=devices)
        workload, resized = trace(options)
        return workload, build(resized, options)

    open_choice = question.shard == EVERY_SHARDING
    return question, build(context.resized, context.options, divided=divide if open_choice else None)


def plan_what_fits(
    answer: Estimate, context: EstimateContext, prepare: Callable[[], tuple[Question, FitWays]]
) -> Estimate:
    """Return the estimate with `--fit`, which says so first, of a training that fits nowhere as it is.

    The answer itself where something fits, or nothing can be made to.
    """
    misfit = describe_misfit(answer)
    if not misfit or context.resized is None:
        return answer
    with keep_models_built():
        question, ways = prepare()
        fitted = estimate_in_context(context, question, ways=ways)
    if fitted.taken is None:
        return answer
    return replace(fitted, decision=replace(fitted.decision, misfit=misfit))


def require_fittable(options: WorkloadOptions, compiling: StepCompiler | None = None) -> None:
    """Raise UsageError for `--fit` together with a flag that fixes the step or computes no gradients."""
    if compiling is not None or options.mode == "infer":
        compiles = "`--compile`, which compiles the step as it is"
        other = "`--mode infer`, which has no gradients" if compiling is None else compiles
        raise UsageError(f"`--fit` cannot be combined with {other}", hint="leave out one of them")


def build_sizes_error(flag: str, workload: Workload) -> UsageError:
    """Return the error of a flag that needs a workload at other batch sizes, which a saved one is not."""
    return UsageError(
        f"`{flag}` needs `{workload.model}` at other batch sizes",
        hint="name the model itself instead of a saved workload",
    )
