"""Measured steps: of this machine, and those that the user knows: `T4=120ms`, as `gpuplan profile` prints."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..errors import UsageError
from ..limits import MAX_DURATION_S, require_positive
from ..offers.catalog import load_catalog
from ..offers.clouds import COLAB
from ..offers.local import PROVIDER
from ..predict.step_time import StepTime
from ..units import MS_PER_S, SECONDS_PER_HOUR
from ..workload.ops import OpKind
from ..workload.reference import SCRIPT_SUFFIXES
from .question import OfferContext

if TYPE_CHECKING:
    from ..offers.aliases import AcceleratorNames
    from ..offers.catalog import Catalog
    from ..predict.from_profile.predictor import ProfileRow
    from ..predict.step_time import StepPredictor
    from ..profile_schema import ProfileDocument
    from ..workload.model import Workload
    from .estimate import Estimate
    from .offer_estimate import OfferEstimate
    from .question import EstimateContext, Question, Selection


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
    """Return the context with a measured step of this machine; None where it is not asked about, or known."""
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
    return taken.offer.usd_per_hour != 0 and answer.decision.free is None


_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_FORM = re.compile(rf"([^=]+)={_NUMBER}(?:\+-{_NUMBER})?(ms|s)(?:@(\d+))?(?::([0-9a-f]{{6}}))?")
_SECONDS = {"ms": 1e-3, "s": 1.0}
STATED = 0.1  # half of the relative interval: what was timed, and with which software, is not known [-]


class StatedStep(NamedTuple):
    """A step time; `text` is as typed, batch size and digest are None where it does not state them [s]."""

    text: str
    accelerator: str
    step_s: float
    error_s: float
    batch_size: int | None = None
    work: str | None = None


def parse_step_times(texts: Iterable[str], names: AcceleratorNames) -> list[StatedStep]:
    """Return step times as the user states them; UsageError for another form, zero, or an unknown accelerator."""
    found = []
    for text in texts:
        parts = _FORM.fullmatch(text.strip())
        if parts is None:
            raise UsageError(f"`--measured {text}` is not a step time", hint="write e.g. `--measured T4=120ms`")
        name, time, error, unit, size, work = parts.groups()
        step_s = float(time) * _SECONDS[unit]
        require_positive(step_s, what="--measured", example="T4=120ms", most=MAX_DURATION_S)
        error_s = STATED * step_s if error is None else min(float(error) * _SECONDS[unit], step_s / 2)
        found.append(StatedStep(text, names.resolve(name), step_s, error_s, int(size) if size else None, work))
    return found


def build_stated_rows(
    stated: Iterable[StatedStep], workload: Workload, resize: Callable[[int], Workload] | None
) -> tuple[ProfileRow, ...]:
    """Return step times of a workload, at other sizes by `resize`, as measurements; UsageError for another."""
    rows = []
    for one in stated:
        from ..predict.from_profile.predictor import ProfileRow
        from ..predict.resize import Resizer

        if one.work not in (None, compute_work_digest(workload)):
            raise UsageError(
                f"`--measured {one.text}` is of another model, precision or mode than `{workload.model}`",
                hint=f"measure this one: `gpuplan profile {workload.model} --on colab`",
            )
        size = one.batch_size or workload.batch_size
        row = ProfileRow(
            workload=workload if size == workload.batch_size else (resize or Resizer(workload))(size),
            accelerator=one.accelerator,
            devices=1,
            step_s=one.step_s,
            low_s=one.step_s - one.error_s,
            high_s=one.step_s + one.error_s,
            source=f"your step time on {one.accelerator}",
        )
        rows.append(row)
    return tuple(rows)


def compute_work_digest(workload: Workload) -> str:
    """Return a digest of what makes two workloads the same work but for batch size and length."""
    facts = [
        workload.mode, workload.precision, workload.compiled, workload.parameters, workload.trainable_parameters,
        workload.memory.input_bytes // workload.batch_size,
    ]  # fmt: skip
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:6]


def format_step_time(document: ProfileDocument) -> str:
    """Return a profile's first step, without its wait, for `--measured`; empty for a CPU or several devices."""
    from ..workload.model import Workload

    accelerator = document["accelerator"]
    if accelerator in (None, "CPU") or document["devices"] != 1:
        return ""
    for row in document["rows"]:
        timing, index = (row.get("step") if row.get("limit") == "input" else None) or row["fit"], row["workload"]
        step_s = timing and timing["median_s"]
        if row["status"] != "measured" or timing is None or not step_s or index is None:
            continue
        error_s = ((timing.get("high_s") or step_s) - (timing.get("low_s") or step_s)) / 2
        work = compute_work_digest(Workload.from_json(document["workloads"][index]))
        step = f"{step_s * MS_PER_S:.4g}+-{error_s * MS_PER_S:.2g}ms@{row['batch_size']}"
        return f"{accelerator}={step}:{work}"
    return ""


# A measurement is worth it from a ratio of the ends on, up to one of their logarithms, and from a run on [s].
WIDE, NARROWED, WORTH_S = 1.5, 0.7, 600.0


def describe_measuring(answer: Estimate, context: EstimateContext) -> str:
    """Return what a measurement on Colab's free T4 would make of a CNN's step on the recommended GPU; else empty.

    How far errors carry over does not depend on the measured time: the T4 is assumed to be as modelled. It is
    known of CNNs and GPUs. A run of less than ten minutes is not worth it.
    """
    row, workload = answer.decision.recommended, context.workload
    if row is None or workload.mode != "train" or not workload.model.endswith(SCRIPT_SUFFIXES):
        return ""
    taken = answer.offers[row]
    convolved = sum(op.flops * op.count for op in workload.ops if op.kind in (OpKind.CONV, OpKind.DEPTHWISE))
    device, gpu, run_s = taken.device_estimate, taken.selected.accelerator, taken.run_time_s
    if 2 * convolved < workload.flops_per_step or run_s is None or run_s.mid < WORTH_S:
        return ""
    t4 = context.catalog.accelerators.get("T4")  # a catalog of the user's own may lack it
    if t4 is None or gpu is None or gpu.kind != "gpu" or taken.offer.devices > 1 or device.able_per_s is not None:
        return ""
    from .estimate_device import DeviceEstimator

    offer = next(one for one in load_catalog().offers if (one.provider, one.accelerator) == (COLAB, "T4"))
    there = DeviceEstimator(context.predictor).estimate(workload, OfferContext(offer, t4))
    if not there.memory.fits or there.step_time_s is None:
        return ""
    rows = build_stated_rows([StatedStep("", "T4", there.step_time_s.mid, 0.0)], workload, None)
    better = add_measurements(context.predictor, rows, context.catalog, context.selection)
    steps = [known.step_time(workload, gpu) for known in (context.predictor, better)]
    before, after = (one.time_s.high / one.time_s.low if isinstance(one, StepTime) else 1.0 for one in steps)
    if before < WIDE or math.log(after) > NARROWED * math.log(before):
        return ""
    now, then = (100 * (math.sqrt(ratio) - 1) for ratio in (before, after))
    return (
        f"A step is known within ±{now:.0f} %; two minutes on a free Colab T4 make it ±{then:.0f} %: "
        f"`gpuplan profile {workload.model} --on colab`."
    )
