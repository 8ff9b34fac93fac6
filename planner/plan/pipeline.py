"""Pipeline from a model reference to an estimate: read the catalog, trace the model, predict, price, rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..plain import parse_json
from ..predict.multi_device.sharding import EVERY_SHARDING, find_tensor_ways
from .cost_terms import CostTerms
from .estimate_workload import estimate_workload
from .question import EstimateContext, Question
from .result.estimate import Estimate
from .result.offer_estimate import OfferEstimate
from .script_layout import plan_copies, select_mesh_offers, shard_to_fit, trace_as_distributed
from .select import Selection, select

if TYPE_CHECKING:
    from ..offers.catalog import Catalog
    from ..predict.from_profile.predictor import ProfileRow
    from ..predict.predictor import Predictor
    from ..predict.step_time import StepPredictor
    from ..settings import Settings
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions
    from .compilation import ProgramSource, StepCompiler
    from .execution.fitting import FitWays
    from .execution.input_pipeline import InputPipeline

__all__ = ["build_context", "estimate_model"]


def estimate_model(
    model: Any,
    question: Question,
    *,
    options: WorkloadOptions,
    script_arguments: Sequence[str] = (),
    catalog: Catalog | None = None,
    terms: CostTerms | None = None,
    profiles: Sequence[Path] = (),
    detailed: bool = False,
    best_batch: bool = False,
    fit: bool = False,
    compiling: StepCompiler | None = None,
) -> Estimate:
    """Estimate a model on all offers that a question selects.

    Args:
        model: MODEL reference, or a Keras model.
        question: Filters, order and limits.
        options: Tracing options of the run.
        script_arguments: Arguments of a training script (`sys.argv`).
        catalog: Catalog (``load_user_catalog(settings)``); None for the packaged one.
        terms: Costs and assumptions besides the training; None for those of the catalog.
        profiles: Files of `gpuplan profile` or `StepTimer`; saved runs are always used.
        detailed: Whether to add the details of a report.
        best_batch: Whether to estimate each offer also at the largest batch that fits, which traces the model
            at more batch sizes.
        fit: Whether to plan steps that do not fit in smaller passes or with recomputed activations, and sharded
            unless the question or the script says how; traces the model up to three more times.
        compiling: Compiler of the step for every named accelerator; None for no compilation.

    Raises:
        GpuplanError: Any error that the user can fix.
    """
    if fit:
        _require_fittable(options, compiling)
    if compiling is not None:
        question = plan_copies(question)
    context = build_context(
        model,
        question,
        options=options,
        script_arguments=script_arguments,
        catalog=catalog,
        terms=terms,
        profiles=profiles,
        compiling=compiling,
    )
    ways = None
    if fit:
        question = shard_to_fit(question, context.workload)
        ways = _build_fit_ways(context, model, question, script_arguments=script_arguments)
    answer = _estimate(context, context.workload, question, ways)
    if best_batch:
        answer = _at_best_batch(answer, context, question)
    if detailed:
        from .details import build_report_details

        answer = replace(answer, details=build_report_details(context, answer, question))
    return answer if context.workload.mode == "train" else _served(answer, context, model, options)


def _require_fittable(options: WorkloadOptions, compiling: StepCompiler | None) -> None:
    """Raise UsageError for `--fit` beside a flag that fixes the step, or has no gradients to accumulate."""
    other = ""
    if compiling is not None:
        other = "`--compile`, which compiles the step as it is"
    elif options.mode == "infer":
        other = "`--mode infer`, which has no gradients"
    if other:
        raise UsageError(f"`--fit` cannot be combined with {other}", hint="leave out one of them")


def _estimate(
    context: EstimateContext, workload: Workload, question: Question, ways: FitWays | None = None
) -> Estimate:
    return estimate_workload(
        workload,
        selection=context.selection,
        predictor=context.predictor,
        question=question,
        terms=context.terms,
        resized=context.resized,
        feed=context.feed,
        ways=ways,
    )


def _build_fit_ways(
    context: EstimateContext, model: Any, question: Question, *, script_arguments: Sequence[str]
) -> FitWays:
    """Return the ways to make the step of the model fit, traced on first use."""
    from .execution.fitting import DividedModel, FitWays

    def trace(options: WorkloadOptions) -> tuple[Workload, Callable[[int], Workload]]:
        workload = _workload(model, options=options, script_arguments=script_arguments)
        return workload, _resizer(workload, model, options=options, script_arguments=script_arguments)

    def build(resized: Callable[[int], Workload], options: WorkloadOptions, **others: Any) -> FitWays:
        trace_recomputed = cache(lambda: trace(replace(options, remat=True))[1])

        def recomputed(batch_size: int) -> Workload:
            return trace_recomputed()(batch_size)

        return FitWays(resized=resized, recomputed=None if options.remat else recomputed, **others)

    @cache
    def divide(devices: int) -> DividedModel:
        options = replace(context.options, tensor=devices)
        workload, resized = trace(options)
        return DividedModel(workload, resized, build(resized, options))

    if context.resized is None:
        raise _needs_sizes("--fit", context.workload)
    open_choice = question.shard == EVERY_SHARDING
    return build(context.resized, context.options, divided=divide if open_choice else None)


def _at_best_batch(answer: Estimate, context: EstimateContext, question: Question) -> Estimate:
    """Add to each offer an estimate at the largest batch that fits."""
    from .execution.best_batch_search import add_best_batch, choose_workloads_to_compile
    from .result.best_batch import choose_batch_sizes, with_run_length_of

    own, resized = context.workload, context.resized
    if resized is None:
        raise _needs_sizes("--best-batch", own)

    def at(size: int) -> Sequence[OfferEstimate]:
        return _estimate(context, with_run_length_of(resized(size), own), question).offers

    largest = {one.device_estimate.memory.largest_batch_size for one in answer.offers}
    sizes = choose_batch_sizes(largest, own=own.batch_size)
    if context.compile_more is not None:
        context.compile_more(choose_workloads_to_compile(answer.offers, sizes, resized, own=own.batch_size))
    offers = add_best_batch(answer.offers, sizes, at)
    return replace(answer, offers=tuple(offers))


def _needs_sizes(flag: str, workload: Workload) -> UsageError:
    return UsageError(
        f"`{flag}` needs `{workload.model}` at other batch sizes",
        hint="name the model itself instead of a saved workload",
    )


def _served(answer: Estimate, context: EstimateContext, model: Any, options: WorkloadOptions) -> Estimate:
    """Add latency, throughput and cost of serving predictions to each offer."""
    from .execution.serving import add_serving

    one = context.workload if context.workload.batch_size == 1 else None
    if one is None and isinstance(model, str) and not model.endswith(".json"):
        one = _workload(model, options=replace(options, batch_size=1), script_arguments=())
    offers = add_serving(answer.offers, one, context.selection.offers, context.predictor)
    return replace(answer, offers=tuple(offers))


def build_context(
    model: Any,
    question: Question,
    *,
    options: WorkloadOptions,
    script_arguments: Sequence[str] = (),
    catalog: Catalog | None = None,
    terms: CostTerms | None = None,
    profiles: Sequence[Path] = (),
    compiling: StepCompiler | None = None,
) -> EstimateContext:
    """Build the context of an estimate; the arguments are those of ``estimate_model``.

    Filters and catalog are checked before the model is traced, which takes longer.
    """
    from ..offers.catalog import load_catalog
    from ..predict.predictor import Predictor
    from ..settings import load_settings

    catalog = catalog or load_catalog()
    if compiling is not None:
        compiling.require_named(question.filters.accelerators, model)
        compiling.require_copies(question.shard)
    selection = select(question.filters, catalog=catalog).with_quotas(question.quotas)
    options = replace(options, tensor=find_tensor_ways(question.shard or ()))
    settings = load_settings()
    measurements = _measurements(model, profiles, settings)
    packaged = Predictor.load(settings, accelerators=selection.accelerators)
    predictor: StepPredictor = _add_measurements(packaged, measurements, catalog, selection)
    if compiling is not None:
        from .compilation import count_visible_devices

        options = replace(options, devices=count_visible_devices(selection, question.filters.devices))
    with _importing("numpy"):  # tracing runs in a child process on another core
        workload = _workload(model, options=options, script_arguments=script_arguments)
    if compiling is None and workload.layout is not None:
        trace = partial(_workload, model, script_arguments=script_arguments)
        workload, options = trace_as_distributed(workload, question, options, trace)
    context = EstimateContext(
        workload=workload,
        options=options,
        selection=select_mesh_offers(selection, question.filters, workload),
        predictor=predictor,
        catalog=catalog,
        terms=terms or CostTerms(costs=catalog.costs),
        feed=_feed(measurements, workload),
        resized=_resizer(workload, model, options=options, script_arguments=script_arguments),
    )
    if compiling is None:
        return context
    from .compilation import build_program_source

    program = build_program_source(model, options, script_arguments, question, workload)
    return _add_compiler(context, compiling, program)


def _add_compiler(
    context: EstimateContext, compiling: StepCompiler, program: ProgramSource
) -> EstimateContext:
    """Compile the step of a context, and let its predictor use the results."""
    predictor = compiling.wrap_predictor(
        context.predictor, context.workload, accelerators=context.selection.accelerators, program=program
    )
    compile_more = partial(compiling.compile_more, predictor, program=program)
    return replace(context, predictor=predictor, compile_more=compile_more)


@contextmanager
def _importing(module: str) -> Iterator[None]:
    """Import a module in a thread, which is joined on exit; one that is missing is found so where it is needed."""

    def load() -> None:
        with suppress(ModuleNotFoundError):
            import_module(module)

    thread = Thread(target=load, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _feed(measurements: Sequence[ProfileRow], workload: Workload) -> InputPipeline | None:
    if not any(m.loading for m in measurements):
        return None
    from .execution.input_pipeline import build_measured_pipeline

    return build_measured_pipeline(measurements, workload)


def _measurements(model: Any, profiles: Sequence[Path], settings: Settings) -> tuple[ProfileRow, ...]:
    """Read the measurements of the files, of the model if it is a profile, and of the saved runs."""
    from ..profile.run_store import load_own_measurements

    files = [Path(path) for path in profiles]
    if isinstance(model, str) and model.endswith(".json") and _is_profile(Path(model)):
        files.append(Path(model))
    named = [m for path in dict.fromkeys(files) for m in _measured_in(path)]
    return (*named, *load_own_measurements(settings))


def _measured_in(path: Path) -> Sequence[ProfileRow]:
    from ..predict.from_profile.predictor import read_profile_rows
    from ..profile.run_store import read_profile

    return read_profile_rows(read_profile(path), source=path.name)


def _is_profile(path: Path) -> bool:
    from ..profile_schema import PROFILE_SCHEMA

    try:
        text = path.read_bytes()
        return PROFILE_SCHEMA.encode() in text and bool(parse_json(text)["schema"] == PROFILE_SCHEMA)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _add_measurements(
    predictor: Predictor, measurements: Sequence[ProfileRow], catalog: Catalog, selection: Selection
) -> StepPredictor:
    """Return a predictor that uses measurements; without any, the given one."""
    if not measurements:
        return predictor
    from ..offers.local import PROVIDER
    from ..predict.from_profile.predictor import ProfiledPredictor

    own = next((s.accelerator for s in selection.offers if s.offer.provider == PROVIDER), None)
    cpu = own if own is not None and own.kind == "cpu" else None
    return ProfiledPredictor(predictor, measurements, own_cpu=cpu, accelerators=catalog.accelerators)


def _resizer(
    workload: Workload, model: Any, *, options: WorkloadOptions, script_arguments: Sequence[str]
) -> Callable[[int], Workload]:
    """Return a function that gives the workload at other batch sizes, tracing it again on its first call."""
    from ..workload.resize import Resizer

    def trace(batch_size: int) -> Workload:
        return _workload(
            model, options=replace(options, batch_size=batch_size), script_arguments=script_arguments
        )

    return Resizer(workload, trace)


def _workload(model: Any, *, options: WorkloadOptions, script_arguments: Sequence[str]) -> Workload:
    """Trace the workload of a reference or a model."""
    if isinstance(model, str):
        from ..workload.load import load_workload

        return load_workload(model, options=options, argv=script_arguments)
    from ..workload.load import trace_keras_model

    return trace_keras_model(model, options=options)
