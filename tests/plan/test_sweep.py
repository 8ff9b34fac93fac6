"""A sweep's best points, by hand."""

from __future__ import annotations

from decimal import Decimal

import pytest
from factories import FakePredictor, make_accelerator, make_offer, make_selection, make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.cost_terms import NO_TERMS
from gpuplan.plan.question import EstimateContext, Question
from gpuplan.plan.sweep import sweep
from gpuplan.workload.options import WorkloadOptions


def test_two_trials_by_hand() -> None:
    """Closed form: 3,600 s on 1 TFLOP/s at $1, and 1,800 s on 2 TFLOP/s at $3: $1 and $1.50. With an hour of
    waiting at $10 the fast one is taken, for $1.50. A trial of half the steps takes half of all, and comes first.
    """
    slow, fast = (make_accelerator(name, tflop_per_s=t) for name, t in (("T4", 1.0), ("L4", 2.0)))
    workload, half = make_workload(), make_workload(batch_size=64, steps=1800)
    context = EstimateContext(
        workload=workload,
        options=WorkloadOptions(),
        selection=make_selection(
            (make_offer("T4", usd_per_hour=Decimal(1)), slow),
            (make_offer("T4", usd_per_hour=Decimal(2), region="us-west-1"), slow),
            (make_offer("L4", usd_per_hour=Decimal(3)), fast),
        ),
        predictor=FakePredictor(),
        catalog=load_catalog(),
        terms=NO_TERMS,
    )
    found = sweep(
        context,
        question=Question(wait_value_usd=10.0),
        batch_sizes=[32, 64],
        precisions=["float32"],
        trace=lambda size, _: workload if size == 32 else half,
    )

    assert [(one.estimate.workload.batch_size, one.taken.offer.accelerator) for one in found.trials] == [
        (64, "L4"),
        (32, "L4"),
    ]
    assert found.time_s.mid == 900.0 + 1800.0
    assert found.money_usd.mid == pytest.approx(0.75 + 1.5)
    best = [
        (one["accelerator"], one["run_time_s"]["mid"], float(one["cost_usd"]["mid"]))
        for one in found.list_points()
        if one["best"]
    ]
    assert best == [("L4", 900.0, 0.75), ("T4", 1800.0, 0.5)]
    assert len(found.list_points()) == 4


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

    assert (found.time_s.mid, found.money_usd.mid) == (4000.0, 2.0)
