"""Epochs that a budget buys; worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from factories import FakePredictor, make_accelerator, make_offer, make_selection, make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.cost_terms import NO_TERMS
from gpuplan.plan.estimate_model import add_budget_epochs, estimate_for_budget, is_length_open
from gpuplan.plan.estimate_workload import estimate_in_context
from gpuplan.plan.question import EstimateContext, Question
from gpuplan.workload.options import WorkloadOptions

CHIP = make_accelerator("U", tflop_per_s=1)


def build_context(epochs: int | None, *usd: str) -> EstimateContext:
    """Return a run whose epochs of 360 steps take six minutes, on offers at some prices an hour."""
    offers = [make_offer("U", instance_type=f"U-{one}", usd_per_hour=Decimal(one)) for one in usd]
    workload = make_workload()
    samples = 360 * workload.batch_size
    steps = None if epochs is None else 360 * epochs
    return EstimateContext(
        workload=replace(workload, samples=samples, epochs=epochs, steps=steps),
        options=WorkloadOptions(),
        selection=make_selection(*((one, CHIP) for one in offers)),
        predictor=FakePredictor(),
        catalog=load_catalog(),
        terms=NO_TERMS,
    )


def test_a_budget_buys_epochs() -> None:
    """An epoch of a tenth of an hour at $2: $0.20; $7 buys 35, and the run asked for stays."""
    context, question = build_context(10, "2"), Question(budget_usd=7)
    answer = add_budget_epochs(estimate_in_context(context, question), context, question)
    bought = answer.budget_epochs

    assert bought is not None
    assert bought.epochs.mid == 35
    assert bought.epochs.low <= 35 <= bought.epochs.high
    assert answer.workload.epochs == 10
    assert bought.sentence.startswith("$7 buys about 35 epochs (")


def test_an_open_length_is_what_the_budget_buys() -> None:
    """$7 at $2 an hour are 35 epochs; the estimate is of these, and a free machine is no use of the money."""
    context, question = build_context(None, "2", "0"), Question(budget_usd=7)
    answer = estimate_for_budget(context, question, ways=None)

    assert is_length_open(context, question)
    assert answer.workload.epochs == 35
    assert answer.budget_epochs is not None
    assert answer.offers[answer.budget_epochs.offer].offer.usd_per_hour == 2
    assert float(answer.options["budget_usd"]) == 7


def test_a_budget_below_one_epoch() -> None:
    """Ten cents at $0.20 an epoch."""
    context, question = build_context(10, "2"), Question(budget_usd=0.1)
    answer = add_budget_epochs(estimate_in_context(context, question), context, question)

    assert answer.budget_epochs is not None
    assert answer.budget_epochs.sentence.startswith("$0.1 buys less than one epoch on ")


@pytest.mark.parametrize(("epochs", "budget"), [(10, None), (10, 7.0), (None, None)])
def test_a_length_is_not_open(epochs: int | None, budget: float | None) -> None:
    """With epochs, or without a budget."""
    assert not is_length_open(build_context(epochs, "2"), Question(budget_usd=budget))
