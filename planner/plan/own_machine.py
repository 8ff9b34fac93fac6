"""This machine among the offers: whether it could be the answer, and its step as measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..offers.local import PROVIDER
from ..predict.step_time import StepTime
from ..units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from ..offers.catalog import Catalog
    from ..predict.from_profile.predictor import ProfileRow
    from ..predict.step_time import StepPredictor
    from ..workload.model import Workload
    from .estimate import Estimate
    from .offer_estimate import OfferEstimate
    from .question import EstimateContext, Question
    from .select import Selection


def load_own_step(workload: Workload, selection: Selection) -> tuple[ProfileRow, ...]:
    """Return the measured step of a workload on this machine, if that is among the offers and was measured."""
    accelerator = next((one.accelerator for one in selection.offers if one.offer.provider == PROVIDER), None)
    if accelerator is None:
        return ()
    from ..profile.this_machine import build_row, load_step

    row = build_row(load_step(workload, accelerator), workload, accelerator)
    return () if row is None else (row,)


def add_measurements(
    predictor: StepPredictor,
    measurements: Sequence[ProfileRow],
    catalog: Catalog,
    selection: Selection,
    *,
    instead: ProfileRow | None = None,
) -> StepPredictor:
    """Return a predictor that uses measurements, besides those that it has; without any, the given one.

    `instead` is one that it has, which they replace.
    """
    if not measurements:
        return predictor
    from ..predict.from_profile.predictor import ProfiledPredictor
    from ..predict.predictor import Predictor

    plain, known = predictor, tuple(measurements)
    if isinstance(predictor, ProfiledPredictor):
        left = (one for one in predictor.measurements if instead is None or one.source != instead.source)
        plain, known = predictor.predictor, (*left, *measurements)
    if not isinstance(plain, Predictor):
        return predictor

    own = next((s.accelerator for s in selection.offers if s.offer.provider == PROVIDER), None)
    cpu = own if own is not None and own.kind == "cpu" else None
    return ProfiledPredictor(plain, known, own_cpu=cpu, accelerators=catalog.accelerators)


def measure_own_machine(
    context: EstimateContext, answer: Estimate, question: Question, *, model: str, argv: Sequence[str]
) -> EstimateContext | None:
    """Return the context with a measured step of this machine; None where it is not asked about, or known.

    Args:
        context: Context of the estimate.
        answer: What is taken without a measurement.
        question: The question.
        model: MODEL reference.
        argv: Arguments of a script.
    """
    place = next((row for row, one in enumerate(answer.contexts) if one.offer.provider == PROVIDER), None)
    own = None if place is None else answer.offers[place]
    if own is None or own.selected.accelerator is None:
        return None
    from ..profile.this_machine import build_row, load_step, measure_step

    workload, accelerator = context.workload, own.selected.accelerator
    known = load_step(workload, accelerator)
    before = build_row(known, workload, accelerator)
    if not _could_be_taken(own, answer, question, is_measured=before is not None):
        return None
    if known is not None and not known.is_due:
        return None
    tell = context.options.script.tell
    step = measure_step(model, workload, accelerator, options=context.options, argv=argv, tell=tell)
    row = build_row(step, workload, accelerator)
    if row is None:
        return None
    predictor = add_measurements(context.predictor, (row,), context.catalog, context.selection, instead=before)
    return replace(context, predictor=predictor)


def _could_be_taken(own: OfferEstimate, answer: Estimate, question: Question, *, is_measured: bool) -> bool:
    """Return whether this machine is asked about, or may have the least total, or be the free alternative.

    Not where the user has measured it (`is_measured`: gpuplan has).
    """
    step, run_s = own.device_estimate.step_time, own.run_time_s
    is_told = isinstance(step, StepTime) and step.basis == "measured" and not is_measured
    if not isinstance(step, StepTime) or is_told or own.device_estimate.is_ruled_out:
        return False
    if PROVIDER in question.filters.providers or own.offer.accelerator in question.filters.accelerators:
        return True
    if run_s is not None and question.deadline_s is not None and run_s.low > question.deadline_s:
        return False
    taken = answer.taken
    if taken is None or run_s is None:
        return True
    least_usd = own.own_h * question.hour_value_usd + run_s.low / SECONDS_PER_HOUR * question.wait_value_usd
    if taken.total_usd is None or least_usd <= taken.total_usd:
        return True
    return not taken.is_free and answer.decision.free is None
