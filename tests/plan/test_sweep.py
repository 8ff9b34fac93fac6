"""A sweep's best points, by hand."""

from __future__ import annotations

from decimal import Decimal

from factories import FakePredictor, make_accelerator, make_offer, make_selection, make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.cost_terms import NO_TERMS
from gpuplan.plan.question import EstimateContext, Question
from gpuplan.plan.sweep import sweep
from gpuplan.workload.options import WorkloadOptions


def test_what_is_free_hides_nothing_that_is_paid_for() -> None:
    """Closed form: 3,600 s of 1 TFLOP/s. A free 4 TFLOP/s beats all in time and cost, but is not guaranteed: of
    the paid ones, 2 TFLOP/s at $3 and 1 TFLOP/s at $1 stay; 1 TFLOP/s at $2 is beaten.
    """
    slow, fast, gift = (
        make_accelerator(name, tflop_per_s=t) for name, t in (("T4", 1.0), ("L4", 2.0), ("A10", 4.0))
    )
    workload = make_workload()
    context = EstimateContext(
        workload=workload,
        options=WorkloadOptions(),
        selection=make_selection(
            (make_offer("T4", usd_per_hour=Decimal(1)), slow),
            (make_offer("T4", usd_per_hour=Decimal(2), region="us-west-1"), slow),
            (make_offer("L4", usd_per_hour=Decimal(3)), fast),
            (make_offer("A10", usd_per_hour=Decimal(0), provider="kaggle"), gift),
        ),
        predictor=FakePredictor(),
        catalog=load_catalog(),
        terms=NO_TERMS,
    )
    found = sweep(
        context, question=Question(), batch_sizes=[32], precisions=["float32"], trace=lambda *_: workload
    )

    best = [(one.offer.offer.accelerator, one.time_s, one.cost_usd) for one in found.best]
    assert best == [("A10", 900.0, 0.0), ("L4", 1800.0, 1.5), ("T4", 3600.0, 1.0)]


def test_a_script_of_several_phases_is_swept_whole() -> None:
    """Closed form: 3,600 and 400 steps of 1 s at $1.80 an hour are $2."""
    workload = make_workload(fit_call=1, further=(make_workload(epochs=4, steps=400, fit_call=0),))
    context = EstimateContext(
        workload=workload,
        options=WorkloadOptions(),
        selection=make_selection((make_offer("T4", usd_per_hour=Decimal("1.8")), make_accelerator("T4"))),
        predictor=FakePredictor(),
        catalog=load_catalog(),
        terms=NO_TERMS,
    )
    found = sweep(
        context, question=Question(), batch_sizes=[32], precisions=["float32"], trace=lambda *_: workload
    )

    assert [(one.time_s, one.cost_usd) for one in found.best] == [(4000.0, 2.0)]
