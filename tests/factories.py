"""Factories of small workloads, devices and offers, and a fake predictor whose times are computed by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any

from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.notebooks import SessionLimits
from gpuplan.offers.rows import Accelerator, Offer
from gpuplan.plan.cost_terms import NO_TERMS, CostTerms
from gpuplan.plan.estimate import Estimate
from gpuplan.plan.estimate_device import FitWays
from gpuplan.plan.estimate_workload import estimate_in_context
from gpuplan.plan.question import EstimateContext, OfferContext, Question, Selection
from gpuplan.plan.timeline import Timeline
from gpuplan.predict.step_time import NoPrediction, StepPredictor, StepTime
from gpuplan.units import GIB, Interval
from gpuplan.workload.model import Memory, Workload
from gpuplan.workload.ops import Op, OpKind
from gpuplan.workload.options import WorkloadOptions


@dataclass
class FakePredictor:
    """Takes one second a step on an accelerator of 1 TFLOP/s, from 80 % to 150 % of that; counts calls."""

    unknown: tuple[str, ...] = ()
    calls: list[tuple[str, float]] = field(default_factory=list)

    def step_time(
        self, workload: Workload, accelerator: Accelerator, *, devices: float = 1, **_: object
    ) -> StepTime | NoPrediction:
        """Return the time of one step, whatever the workload."""
        self.calls.append((accelerator.name, devices))
        if accelerator.name in self.unknown or accelerator.fp32_tflop_per_s is None:
            return NoPrediction(f"no peak of {accelerator.name} is known")
        mid = 1.0 / accelerator.fp32_tflop_per_s
        interval = Interval(low=0.8 * mid, mid=mid, high=1.5 * mid)
        return StepTime(time_s=interval, basis="modelled", limiter="compute")


def make_accelerator(
    name: str, *, tflop_per_s: float | None = 1.0, memory_gib: float | None = 16.0
) -> Accelerator:
    """Return an accelerator of some speed and (wholly usable) memory."""
    return Accelerator(
        name=name,
        vendor="NVIDIA",
        kind="gpu",
        architecture="Test",
        fp32_tflop_per_s=tflop_per_s,
        memory_gib=memory_gib,
        usable_gib=memory_gib,
        source="made up",
        read_on=date(2026, 1, 1),
        confidence="high",
    )


def make_offer(accelerator: str = "T4", **changes: Any) -> Offer:
    """Return an on-demand offer at a dollar an hour, with changes."""
    values = {
        "provider": "lambda", "instance_type": f"one_{accelerator}", "accelerator": accelerator,
        "devices": 1.0, "vcpus": 4.0, "memory_gib": 16.0, "region": "us-east-1", "purchase": "on_demand",
        "usd_per_hour": Decimal("1.0"), "price_as_of": "2026-01-21", "price_source": "made up",
        "status": "active",
    }  # fmt: skip
    return Offer(**{**values, **changes})


def make_workload(**changes: Any) -> Workload:
    """Return a workload of 1 GiB beside 1 GiB a batch of 32, in 36 epochs of 100 steps."""
    memory = Memory(
        parameter_bytes=GIB // 4,
        gradient_bytes=GIB // 4,
        optimizer_bytes=GIB // 2,
        state_bytes=0,
        input_bytes=GIB // 8,
        activation_bytes=GIB - GIB // 8,
    )
    values = {
        "model": "made-up.json", "batch_size": 32, "samples": 3200, "epochs": 36, "steps": 3600,
        "parameters": 67_108_864, "trainable_parameters": 67_108_864, "memory": memory, "ops": (),
        "versions": {"keras": "3.15.0"},
    }  # fmt: skip
    return Workload(**{**values, **changes})


def resize(batch_size: int) -> Workload:
    """Return the made-up workload at another batch size, with batch and activations in proportion."""
    whole = make_workload()
    share = batch_size / whole.batch_size
    memory = replace(
        whole.memory,
        input_bytes=round(share * whole.memory.input_bytes),
        activation_bytes=round(share * whole.memory.activation_bytes),
    )
    return replace(whole, batch_size=batch_size, memory=memory)


def make_product(**changes: Any) -> Op:
    """Return the product of two 1024 x 1024 matrices in float32."""
    values = {
        "kind": OpKind.DOT, "name": "dot_general", "phase": "forward", "layer": "", "dtype": "float32",
        "flops": 2.0 * 1024**3, "bytes_read": 2.0 * 2**22, "bytes_written": 2.0**22,
        "m": 1024, "n": 1024, "k": 1024, "batch": 1,
    }  # fmt: skip
    return Op(**{**values, **changes})


def make_limits(**changes: Any) -> SessionLimits:
    """Return the limits of a free notebook that runs day and night in the background, with changes."""
    values = {
        "session_hours_max": 12.0, "idle_minutes_max": None, "weekly_quota_hours": None, "background": True,
        "guaranteed": True, "plan": "colab-free", "free": True,
    }  # fmt: skip
    return SessionLimits(**{**values, **changes})


def make_selection(*pairs: tuple[Offer, Accelerator | None]) -> Selection:
    """Return a selection of offers with their devices."""
    return Selection(offers=tuple(OfferContext(*pair) for pair in pairs), catalog_as_of="2026-01-21")


def estimate_workload(
    workload: Workload,
    *,
    selection: Selection,
    predictor: StepPredictor,
    question: Question,
    terms: CostTerms = NO_TERMS,
    ways: FitWays | None = None,
    **others: Any,
) -> Estimate:
    """Return the estimate of a workload on a selection; `others` are of its context."""
    options, catalog = WorkloadOptions(), load_catalog()
    given = {"selection": selection, "predictor": predictor, "terms": terms, **others}
    context = EstimateContext(workload=workload, options=options, catalog=catalog, **given)
    return estimate_in_context(context, question, ways=ways)


def find_phase_s(timeline: Timeline | None, item: str) -> Interval:
    """Return the duration of a phase of a timeline that has it [s]."""
    assert timeline is not None
    return next(phase.time_s for phase in timeline.phases if phase.item == item)


def ask_about(
    *pairs: tuple[Offer, Accelerator | None], work: dict[str, Any] | None = None, **asked: Any
) -> Estimate:
    """Return the estimate of the made-up workload on some offers, with changes of the work and of the question."""
    return estimate_workload(
        make_workload(**work or {}),
        selection=make_selection(*pairs),
        predictor=FakePredictor(),
        question=Question(**asked),
    )


def ask(*accelerators: Accelerator, work: dict[str, Any] | None = None, **asked: Any) -> Estimate:
    """Return the estimate on one offer of each accelerator, the first at $1 an hour, each next at one more."""
    pairs = [
        (make_offer(one.name, usd_per_hour=Decimal(usd), instance_type=one.name), one)
        for usd, one in enumerate(accelerators, start=1)
    ]
    return ask_about(*pairs, work=work, **asked)


TWENTY = [make_accelerator(f"GPU{number:02}") for number in range(20)]
