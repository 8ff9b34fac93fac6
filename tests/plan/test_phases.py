"""A run of several phases is the sum of its phases, each with its own step."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from factories import (
    FakePredictor,
    estimate_workload,
    find_phase_s,
    make_accelerator,
    make_offer,
    make_selection,
    make_workload,
)
from gpuplan.estimate_document import read_offers
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.cost_terms import CostTerms
from gpuplan.plan.estimate import Estimate
from gpuplan.plan.question import Question
from gpuplan.plan.timeline import TRAINING
from gpuplan.render.estimate_screen import format_phases
from gpuplan.units import GIB
from gpuplan.workload.model import ForwardPasses, Workload
from gpuplan.workload.ops import Op, OpKind

SELECTION = make_selection((make_offer("T4", usd_per_hour=Decimal("0.5")), make_accelerator("T4")))
LONG = make_workload(fit_call=1)
SHORT = make_workload(epochs=4, steps=400, trainable_parameters=10, validation_samples=64, fit_call=0)


def estimate(workload: Workload, terms: CostTerms | None = None) -> Estimate:
    """Return the estimate on one T4, 1 s a step."""
    return estimate_workload(
        workload,
        selection=SELECTION,
        predictor=FakePredictor(),
        question=Question(),
        **({} if terms is None else {"terms": terms}),
    )


def test_time_steps_and_cost_are_the_sum_of_the_phases() -> None:
    """Closed form: 400 and 3,600 steps of 1 s at $0.50 an hour, and 2 validation steps of a third, 4 times."""
    one = estimate(replace(LONG, further=(SHORT,))).offers[0]

    assert one.device_estimate.run.steps == 4000
    assert one.device_estimate.train_time_s is not None
    assert one.device_estimate.train_time_s.mid == 4000.0
    assert one.timeline is not None
    assert find_phase_s(one.timeline, TRAINING).mid == 4000.0
    assert find_phase_s(one.timeline, "validation").mid == pytest.approx(2 * 4 / 3)
    assert one.bill is not None
    assert float(one.bill.total.mid) == pytest.approx((4000 + 8 / 3) / 3600 * 0.5, rel=1e-6)


def test_memory_is_that_of_the_largest_phase() -> None:
    """A short phase with larger activations decides whether the run fits."""
    large = replace(SHORT, memory=replace(SHORT.memory, activation_bytes=100 * GIB))
    one = estimate(replace(LONG, further=(large,))).offers[0]

    assert one.device_estimate.memory.fits is False
    assert estimate(LONG).offers[0].device_estimate.memory.fits is True


def test_each_program_is_compiled() -> None:
    """Ten models of equal calls are compiled ten times; the base is paid once."""
    terms = CostTerms(costs=load_catalog().costs)
    product = Op(
        kind=OpKind.DOT, name="dot_general", phase="forward", layer="dense", dtype="float32", m=9, n=9, k=9
    )
    times = [
        find_phase_s(timeline, "compile").mid
        for workload in (replace(LONG, ops=(product,), programs=count) for count in (1, 10, 19))
        if (timeline := estimate(workload, terms).offers[0].timeline) is not None
    ]

    assert times[1] > times[0]
    assert times[2] - times[1] == pytest.approx(times[1] - times[0])


def test_phases_in_json_and_in_words() -> None:
    """In the order of the script, with the length of one call; `workload` has the length of all."""
    document = estimate(replace(LONG, calls=9, further=(SHORT,))).to_json()

    assert [(one["epochs"], one["steps"], one["times"]) for one in document["phases"]] == [
        (4, 400, 1),
        (4, 400, 9),
    ]
    assert (document["workload"]["epochs"], document["workload"]["steps"]) == (40, 4000)
    assert [one["steps"] for one in read_offers(document)[0]["phases"]] == [400, 3600]
    assert format_phases(document["phases"]) == (
        "phase 1: 4 epochs, 10 of 67.1 M parameters trained; phase 2: 9 times 4 epochs, all parameters trained"
    )


def test_a_single_call_has_one_phase_and_no_words() -> None:
    """The head of the answer and its offers stay as they were."""
    document = estimate(LONG).to_json()

    assert [one["steps"] for one in document["phases"]] == [3600]
    assert "phases" not in read_offers(document)[0]
    assert format_phases(document["phases"]) == ""


def test_two_equal_calls_are_said_to_be_two() -> None:
    """A single phase that the script runs twice."""
    document = estimate(replace(LONG, calls=2)).to_json()

    assert format_phases(document["phases"]).startswith("2 times ")


def test_calls_of_evaluate_and_predict_are_forward_passes() -> None:
    """Closed form: a third of a step of 1 s; 2 steps (64 of 32) three times, and 1 step once."""
    passes = (
        ForwardPasses(kind="evaluate", samples=64, steps=2, calls=3),
        ForwardPasses(kind="predict", samples=10, steps=1),
    )
    plain, answer = estimate(LONG), estimate(replace(LONG, passes=passes))
    one, document = answer.offers[0], answer.to_json()

    assert one.timeline is not None
    assert plain.offers[0].timeline is not None
    assert find_phase_s(one.timeline, "evaluation").mid == pytest.approx(7 / 3)
    assert [phase.because for phase in one.timeline.phases if phase.item == "evaluation"] == [
        "evaluate() of 64 samples 3 times, 33% of a training step; predict() of 10 samples, 33% of a training step"
    ]
    assert one.timeline.total_s.mid - plain.offers[0].timeline.total_s.mid == pytest.approx(7 / 3)
    assert document["phases"][0]["passes"][0] == {"kind": "evaluate", "samples": 64, "steps": 2, "calls": 3}
    assert format_phases(document["phases"]) == (
        "one fit(), then evaluate() of 64 samples 3 times, then predict() of 10 samples"
    )
