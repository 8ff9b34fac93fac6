"""Context of an estimate: catalog, traced model and predictor, and the distribution in the user's script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NoAnswerError
from ..offers.aliases import parse_kinetic_name
from ..predict.resize import Resizer
from ..predict.sharding import Sharding, find_tensor_ways, format_sharding
from ..profile_schema import PROFILE_SCHEMA
from ..records import parse_json
from ..workload.reference import SCRIPT_SUFFIXES
from .input_pipeline import build_measured_pipeline
from .measured_steps import add_measurements, build_stated_rows, load_own_step, parse_step_times
from .memory import UNSHARDED
from .question import EstimateContext, select

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from ..predict.from_profile.predictor import ProfileRow
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions
    from .compilation import StepCompiler
    from .question import Filters, OfferContext, Question, Selection
    from .request import ResolvedRequest


AS_LAID_OUT = (Sharding.SCRIPT,)


def follow_script(question: Question, workload: Workload) -> Question:
    """Return a question with the script's distribution where the user stated none.

    Keras divides the batch of `fit()` over all devices, so that training stays the same, unless the script
    multiplies it with their number. Predictions do not depend on their batch: each device keeps it.
    """
    layout = workload.layout
    keeps = layout.keeps_batch if layout is not None else workload.mode == "infer"
    as_script = UNSHARDED if layout is None or layout.is_data_parallel else AS_LAID_OUT
    return replace(
        question,
        scaling=question.scaling or ("weak" if keeps else "strong"),
        shard=as_script if question.shard is None else question.shard,
    )


def uses_one_device(question: Question, workload: Workload) -> bool:
    """Return whether the work uses one device: a script that distributes nothing, nor is asked how it would be."""
    is_script = workload.model.partition("?")[0].endswith(SCRIPT_SUFFIXES)
    is_asked = question.scaling is not None or question.shard is not None
    return is_script and workload.layout is None and not workload.distribution and not is_asked


def limit_to_one_device(selected: OfferContext) -> OfferContext:
    """Return one device of an offer's machine, with its whole host."""
    if selected.offer.devices <= 1:
        return selected
    return selected._replace(offer=replace(selected.offer, devices=1.0, hosts=1), links=None)


def trace_as_distributed(
    workload: Workload, question: Question, options: WorkloadOptions, trace: Callable[..., Workload]
) -> tuple[Workload, WorkloadOptions]:
    """Return a script that distributes its model as traced on the wanted devices, and the options for it.

    A layout that takes all devices divides variables by their number, which `--devices` states.
    """
    layout = workload.layout
    counts = [int(count) for count in question.filters.devices if count == int(count) and count > 1]
    takes_all = layout is not None and layout.takes_all and not layout.is_data_parallel
    if takes_all and counts and layout is not None and layout.devices not in counts:
        workload = trace(options=replace(options, devices=max(counts)))
    note, known = _describe_distribution(question, workload), workload.layout
    options = replace(options, devices=None if known is None else known.devices)
    return replace(workload, notes=(note, *workload.notes)), options


def select_mesh_offers(selection: Selection, filters: Filters, workload: Workload) -> Selection:
    """Return the offers with as many devices as the script's mesh, unless the user chose their number.

    Raises:
        NoAnswerError: No selected offer has so many.
    """
    layout = workload.layout
    if layout is None or filters.devices or (layout.takes_all and layout.is_data_parallel):
        return selection
    left = tuple(one for one in selection.offers if one.mesh_devices == layout.devices)
    if not left:
        raise NoAnswerError(
            f"`{workload.model}` distributes its model over {layout.devices} devices, which none of the selected "
            "offers has",
            hint="select other offers, or add `--devices N` for the number to plan with",
        )
    return replace(selection, offers=left)


def select_named_machines(context: EstimateContext, filters: Filters) -> EstimateContext:
    """Return a context with Google's machines that `@kinetic.run` names alone, unless the user chose offers."""
    workload, selection = context.workload, context.selection
    named = {name: machine for name in workload.named_machines if (machine := parse_kinetic_name(name))}
    if not named or filters.accelerators or filters.providers or filters.devices:
        return context
    wanted = {(*machine, "spot" if name.endswith(":spot") else "on_demand") for name, machine in named.items()}

    def is_named(offer: Offer) -> bool:
        kinds = (offer.purchase,) if filters.purchase == "any" else ("on_demand", "spot")
        return offer.provider == "gcp" and any(
            (offer.accelerator, offer.devices, kind) in wanted for kind in kinds
        )

    left = tuple(one for one in selection.offers if is_named(one.offer))
    names = ", ".join(f"`{name}`" for name in named)
    note = (
        f"planned for what `@kinetic.run` names, {names} at Google Cloud; for other machines: `--accelerator NAME`"
    )
    if not left:
        left, note = selection.offers, f"no selected offer is what `@kinetic.run` names, {names}"
    workload = replace(workload, notes=(*workload.notes, note))
    return replace(context, workload=workload, selection=replace(selection, offers=left))


def _describe_distribution(question: Question, workload: Workload) -> str:
    """Return a sentence on what of the script's distribution is followed; empty if it has none."""
    layout = workload.layout
    if layout is None:
        return ""
    followed = follow_script(question, workload)
    over = f"{layout.devices} devices"
    if layout.takes_all:
        planned = f"all devices, planned for {layout.devices},"
        over = "all devices of each offer" if layout.is_data_parallel else planned
    name = f"the script's {workload.distribution} over {over}"
    if question.shard is not None and not layout.is_data_parallel:
        return f"{name} is not followed: `--shard {format_sharding(question.shard)}` is"
    counts = question.filters.devices
    on_others = bool(counts) and layout.devices not in counts and not layout.takes_all
    kept = f"{'they share' if followed.scaling == 'strong' else 'each keeps'} a batch of {workload.batch_size}"
    if layout.is_data_parallel:
        where = "is planned on the numbers of `--devices`" if on_others else "is followed"
        return f"{name} {where}: each holds the whole model, and {kept}"
    if on_others:
        return f"{name} is not known on the numbers of `--devices`"
    held, whole = layout.each.parameters, layout.whole.parameters
    return (
        f"{name} is followed: each holds {held / max(1, whole):.1%} of the trained weights and of their "
        f"gradients; replicas of the model: {layout.replicas}, and {kept}"
    )


def build_context(
    model: Any,
    asked: ResolvedRequest,
    *,
    script_arguments: Sequence[str] = (),
    compiling: StepCompiler | None = None,
) -> EstimateContext:
    """Build the context of an estimate: filters and catalog first, then the trace, which takes longer."""
    from ..predict.predictor import Predictor

    question, catalog = asked.question, asked.catalog
    if compiling is not None:
        compiling.require_compilable(question, model)
    selection = select(question.filters, catalog=catalog).with_quotas(question.quotas)
    options = replace(asked.options, tensor=find_tensor_ways(question.shard or ()))
    measurements = _measurements(model, asked.request.profiles)
    stated = parse_step_times(asked.request.list_pairs("measured", unit="s"), catalog.names)
    trace = partial(trace_workload, model, script_arguments=script_arguments)
    workload = trace(options=options)
    if asked.refresh is not None:
        with suppress(NoAnswerError):  # an offer that is gone since
            if (renewed := asked.refresh.renew(catalog)) is not catalog:
                selection = select(question.filters, catalog=renewed).with_quotas(question.quotas)
                catalog = renewed
    if workload.layout is not None:
        workload, options = trace_as_distributed(workload, question, options, trace)
    is_saved = isinstance(model, str) and model.endswith(".json")  # at one batch size
    resize = None if is_saved else build_resizer(workload, trace, options)
    measurements += (*build_stated_rows(stated, workload, resize), *load_own_step(workload, selection))
    packaged = Predictor.load(peers=selection.group_accelerators())
    context = EstimateContext(
        workload=workload,
        options=options,
        selection=select_mesh_offers(selection, question.filters, workload),
        predictor=add_measurements(packaged, measurements, catalog, selection),
        catalog=catalog,
        terms=asked.terms,
        feed=build_measured_pipeline(measurements, workload),
        resized=resize,
    )
    return context if compiling is None else compiling.add_memory(context, model, argv=script_arguments)


def _measurements(model: Any, profiles: Sequence[Path | str]) -> tuple[ProfileRow, ...]:
    """Read the measurements of the files, of the model if it is a profile, and of the saved runs."""
    from ..profile.run_store import load_own_measurements, read_profile
    from ..settings import load_settings

    files = [Path(path) for path in profiles]
    if isinstance(model, str) and model.endswith(".json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            text = Path(model).read_bytes()
            if PROFILE_SCHEMA.encode() in text and parse_json(text)["schema"] == PROFILE_SCHEMA:
                files.append(Path(model))
    named: list[ProfileRow] = []
    if files:  # an estimate without profiles does not load this
        from ..predict.from_profile.predictor import read_profile_rows

        for path in dict.fromkeys(files):
            named += read_profile_rows(read_profile(path), source=path.name)
    return (*named, *load_own_measurements(load_settings()))


def build_resizer(workload: Workload, trace: Callable[..., Workload], options: WorkloadOptions) -> Resizer:
    """Return a function that gives the workload at shares of its batch, tracing it again on its first call."""
    return Resizer(workload, lambda size: trace(options=replace(options, batch_size=size, derives=True)))


def trace_workload(model: Any, *, options: WorkloadOptions, script_arguments: Sequence[str]) -> Workload:
    """Trace the workload of a reference or a model."""
    if isinstance(model, str):
        from ..workload.capture.load import load_workload

        return load_workload(model, options=options, argv=script_arguments)
    from ..workload.capture.load import trace_keras_model

    return trace_keras_model(model, options=options)
