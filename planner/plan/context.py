"""Context of an estimate: catalog, traced model and predictor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from ..errors import NoAnswerError
from ..predict.sharding import find_tensor_ways
from ..records import parse_json
from .own_machine import add_measurements, load_own_step
from .question import EstimateContext
from .script_layout import select_mesh_offers, trace_as_distributed
from .select import select
from .stated_times import build_stated_rows, parse_step_times

if TYPE_CHECKING:
    from ..predict.from_profile.predictor import ProfileRow
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions
    from .compilation import StepCompiler
    from .request import ResolvedRequest


def build_context(
    model: Any,
    asked: ResolvedRequest,
    *,
    script_arguments: Sequence[str] = (),
    compiling: StepCompiler | None = None,
) -> EstimateContext:
    """Build the context of an estimate; the arguments are those of ``estimate_model``.

    Filters and catalog are checked before the model is traced, which takes longer.
    """
    from ..predict.predictor import Predictor

    question, catalog = asked.question, asked.catalog
    if compiling is not None:
        compiling.require_compilable(question, model)
    selection = select(question.filters, catalog=catalog).with_quotas(question.quotas)
    options = replace(asked.options, tensor=find_tensor_ways(question.shard or ()))
    measurements = _measurements(model, asked.request.profiles)
    stated = parse_step_times(asked.request.list_pairs("measured", unit="s"), catalog.names)
    packaged = Predictor.load(peers=selection.group_accelerators())
    with _importing("numpy"):  # tracing runs in a child process on another core
        workload = trace_workload(model, options=options, script_arguments=script_arguments)
    if asked.refresh is not None and (renewed := asked.refresh.renew(catalog)) is not catalog:
        with suppress(NoAnswerError):  # an offer that is gone since
            selection = select(question.filters, catalog=renewed).with_quotas(question.quotas)
            catalog, packaged = renewed, Predictor.load(peers=selection.group_accelerators())
    if workload.layout is not None:
        trace = partial(trace_workload, model, script_arguments=script_arguments)
        workload, options = trace_as_distributed(workload, question, options, trace)
    resize = None
    if not (isinstance(model, str) and model.endswith(".json")):  # saved at one batch size
        resize = build_resizer(workload, model, options=options, script_arguments=script_arguments)
    measurements += (*build_stated_rows(stated, workload, resize), *load_own_step(workload, selection))
    predictor = add_measurements(packaged, measurements, catalog, selection)
    feed = None
    if any(one.loading for one in measurements):
        from .input_pipeline import build_measured_pipeline

        feed = build_measured_pipeline(measurements, workload)
    context = EstimateContext(
        workload=workload,
        options=options,
        selection=select_mesh_offers(selection, question.filters, workload),
        predictor=predictor,
        catalog=catalog,
        terms=asked.terms,
        feed=feed,
        resized=resize,
    )
    if compiling is None:
        return context
    with_memory = compiling.wrap_predictor(
        predictor,
        workload,
        accelerators=context.selection.accelerators,
        model=model,
        options=options,
        argv=script_arguments,
    )
    return replace(context, predictor=with_memory)


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


def _measurements(model: Any, profiles: Sequence[Path | str]) -> tuple[ProfileRow, ...]:
    """Read the measurements of the files, of the model if it is a profile, and of the saved runs."""
    from ..profile.run_store import load_own_measurements, read_profile
    from ..settings import load_settings

    files = [Path(path) for path in profiles]
    if isinstance(model, str) and model.endswith(".json") and _is_profile(Path(model)):
        files.append(Path(model))
    named: list[ProfileRow] = []
    if files:  # an estimate without profiles does not load this
        from ..predict.from_profile.predictor import read_profile_rows

        for path in dict.fromkeys(files):
            named += read_profile_rows(read_profile(path), source=path.name)
    return (*named, *load_own_measurements(load_settings()))


def _is_profile(path: Path) -> bool:
    from ..profile_schema import PROFILE_SCHEMA

    try:
        text = path.read_bytes()
        return PROFILE_SCHEMA.encode() in text and bool(parse_json(text)["schema"] == PROFILE_SCHEMA)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def build_resizer(
    workload: Workload, model: Any, *, options: WorkloadOptions, script_arguments: Sequence[str]
) -> Callable[[int], Workload]:
    """Return a function that gives the workload at other batch sizes, tracing it again on its first call."""
    from ..workload.resize import Resizer

    trace = partial(trace_workload, model, script_arguments=script_arguments)
    return Resizer(workload, lambda size: trace(options=replace(options, batch_size=size)))


def trace_workload(model: Any, *, options: WorkloadOptions, script_arguments: Sequence[str]) -> Workload:
    """Trace the workload of a reference or a model."""
    if isinstance(model, str):
        from ..workload.capture.load import load_workload

        return load_workload(model, options=options, argv=script_arguments)
    from ..workload.capture.load import trace_keras_model

    return trace_keras_model(model, options=options)
