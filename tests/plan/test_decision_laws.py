"""The laws of a decision over a hundred workloads, filters and values, on the packaged prices."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date
from functools import cache
from typing import Any

import numpy as np
import pytest
from factories import estimate_workload, make_workload
from gpuplan.errors import NoAnswerError
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.rows import Accelerator, Offer
from gpuplan.plan.breakeven import compare_alternatives, select_alternatives
from gpuplan.plan.context import uses_one_device
from gpuplan.plan.cost_terms import CostTerms
from gpuplan.plan.decision import SURE, decide
from gpuplan.plan.estimate import Estimate
from gpuplan.plan.offer_estimate import OfferEstimate
from gpuplan.plan.offer_table import OfferTable
from gpuplan.plan.question import EstimateContext, Filters, Question, Selection, select
from gpuplan.plan.ranking import rank_offers
from gpuplan.predict.step_time import NoPrediction, StepTime
from gpuplan.render.estimate_screen import select_shown_offers
from gpuplan.units import Interval, format_duration
from gpuplan.workload.model import Workload
from gpuplan.workload.options import WorkloadOptions

CATALOG = load_catalog()
TERMS = CostTerms(costs=CATALOG.costs, today=date(2026, 11, 28))
FILTERS: tuple[dict[str, Any], ...] = (
    {}, {"providers": ("aws",)}, {"providers": ("gcp", "kaggle", "colab")}, {"purchase": "on-demand"},
    {"purchase": "spot"}, {"accelerators": ("T4", "L4")}, {"residency": ("eu",)}, {"devices": (1.0,)},
)  # fmt: skip
VALUES = ((20.0, 1.0), (0.0, 0.0), (60.0, 10.0), (0.0, 5.0), (20.0, 0.1))


class FakePeaks:
    """A step takes a fixed part and one in proportion to samples and peak, from 70 % to 160 % of that."""

    def __init__(self, flops_per_sample: float, *, overhead_s: float) -> None:
        self.flops_per_sample, self.overhead_s = flops_per_sample, overhead_s

    def step_time(
        self, workload: Workload, accelerator: Accelerator, *, devices: float = 1, **_: object
    ) -> StepTime | NoPrediction:
        """Return the time of one step; several devices exchange gradients for a while."""
        peak = accelerator.fp32_tflop_per_s or accelerator.bf16_tensor_tflop_per_s
        if peak is None:
            return NoPrediction("no peak is known")
        computing_s = workload.batch_size * self.flops_per_sample / (peak * 1e12 * min(1.0, devices))
        mid = self.overhead_s + computing_s + (0.002 if devices > 1 else 0.0)
        return StepTime(
            time_s=Interval(low=0.7 * mid, mid=mid, high=1.6 * mid), basis="modelled", limiter="compute"
        )


@cache
def select_offers(number: int) -> Selection:
    """Return the offers of one of the filters, without this machine, whose speed differs."""
    return select(Filters(**FILTERS[number], include_local=False), catalog=CATALOG)


class Case:
    """A workload of seconds to weeks on a T4, with a filter and values of hours; priced once.

    Args:
        number: Seed of the case.
    """

    def __init__(self, number: int) -> None:
        self.chance = chance = random.Random(number)
        batch, epochs, samples = (
            2 ** chance.randint(3, 9),
            chance.randint(1, 100),
            round(10 ** chance.uniform(3, 6.5)),
        )
        steps = -(-samples // batch) * epochs
        model = chance.choice(("train.py", "ResNet50", "models.py:build", "model.keras"))
        self.workload = make_workload(model=model, batch_size=batch, samples=samples, epochs=epochs, steps=steps)
        self.predictor = FakePeaks(10 ** chance.uniform(6, 11), overhead_s=10 ** chance.uniform(-4, -2))
        place, (hour, wait) = chance.randrange(len(FILTERS)), chance.choice(VALUES)
        self.selection, self.named = select_offers(place), FILTERS[place]
        filters = Filters(**self.named, include_local=False)
        self.question = Question(filters=filters, hour_value_usd=hour, wait_value_usd=wait)
        self.answer = estimate_workload(
            self.workload, selection=self.selection, predictor=self.predictor, question=self.question, terms=TERMS
        )

    def ask(self, *, keep: Callable[[Offer], bool] = lambda _: True, **changes: Any) -> Estimate:
        """Return the answer with changes of the question, and with some of the offers."""
        table, question = self.answer.offers, replace(self.question, **changes)
        assert isinstance(table, OfferTable)
        rows = np.array([row for row, context in enumerate(table.contexts) if keep(context.offer)], dtype=np.intp)
        ranked = rank_offers(
            table.reorder(rows), question, one_device=uses_one_device(self.question, self.workload)
        )
        return replace(
            self.answer,
            offers=ranked,
            decision=decide(ranked, question, workload=self.workload, currency=TERMS.currency),
            takable=tuple(ranked.takable.nonzero()[0].tolist()),
        )


@pytest.fixture(scope="module", params=range(100))
def case(request: pytest.FixtureRequest) -> Case:
    """One of the cases."""
    return Case(request.param)


def take(answer: Estimate) -> OfferEstimate | None:
    """Return the offer that is taken."""
    row = answer.decision.recommended
    return None if row is None else answer.offers[row]


def list_takable(answer: Estimate) -> list[OfferEstimate]:
    """Return the offers that can be had and run the work."""
    return [answer.offers[row] for row in answer.takable]


def measure(one: OfferEstimate) -> tuple[float, float, float]:
    """Return money, time and effort of an offer; money as it counts, with the allowance for an old price."""
    assert one.bill is not None
    assert one.run_time_s is not None
    return one.bill.nano[1] * 1e-9 * (1 + TERMS.compute_aged_share(one.offer)), one.run_time_s.mid, one.own_h


def is_dominated(one: tuple[float, ...], others: Iterable[tuple[float, ...]]) -> bool:
    """Return whether another is at least as good in everything, and better in something."""
    pairs = ([(b - a) for a, b in zip(other, one, strict=True)] for other in others)
    return any(min(gains) >= 0 and max(gains) > 1e-9 for gains in pairs)


def test_the_taken_one_has_the_least_total_and_none_shown_is_dominated(case: Case) -> None:
    """Laws 1, 2 and 8."""
    answer, taken, had = case.answer, take(case.answer), list_takable(case.answer)
    assert (taken is None) == (not had)
    if taken is None:
        return
    assert taken.total_usd == min(one.total_usd for one in had if one.total_usd is not None)
    points = [measure(one) for one in had]
    shown = [*answer.decision.roles(), *(() if "accelerators" in case.named else select_shown_offers(answer))]
    assert shown
    for row in shown:
        assert not is_dominated(measure(answer.offers[row]), points)
    assert case.workload.model != "train.py" or taken.offer.devices <= 1


def test_numbers_of_the_sentence_are_those_of_rows(case: Case) -> None:
    """Law 4: time and cost of each role in the sentence are those of its row, as a table shows them."""
    for row in case.answer.decision.roles():
        one = case.answer.offers[row]
        assert one.run_time_s is not None
        assert format_duration(one.run_time_s.mid) in case.answer.decision.sentence


def test_more_value_more_time_and_more_money_never_hurt(case: Case) -> None:
    """Law 3: a higher value of waiting takes nothing slower; wider limits keep a yes, and raise no total."""
    wait = case.question.wait_value_usd
    taken = [take(case.ask(wait_value_usd=value)) for value in (wait, 2 * wait + 0.5, 20 * wait + 5)]
    times_s = [one.run_time_s.mid for one in taken if one is not None and one.run_time_s is not None]
    assert times_s == sorted(times_s, reverse=True)
    if taken[0] is None or taken[0].run_time_s is None or taken[0].bill is None:
        return
    late_s, dear_usd = taken[0].run_time_s.mid, max(0.01, taken[0].bill.nano[1] * 1e-9)
    for limit, known in (("deadline_s", late_s), ("budget_usd", dear_usd)):
        answers = [case.ask(**{limit: share * known}) for share in (0.3, 0.8, 1.2, 3.0, 30.0)]
        is_yes = [answer.decision.recommended is not None for answer in answers]
        assert is_yes == sorted(is_yes)
        sure = [answer for answer in answers if (answer.decision.probability or 0.0) >= SURE]
        totals = [one.total_usd for answer in sure if (one := take(answer)) is not None]
        assert totals == sorted(totals, reverse=True)
        assert sure


def test_what_was_not_taken_changes_nothing_and_a_filter_finds_the_best(case: Case) -> None:
    """Laws 5 and 7."""
    taken, had = take(case.answer), list_takable(case.answer)
    if taken is None:
        return
    gone = case.chance.choice([one.offer.provider for one in case.selection.offers])
    again = take(case.ask(keep=lambda offer: offer is taken.offer or offer.provider != gone))
    assert again is not None
    assert again.offer is taken.offer

    name = case.chance.choice(sorted({one.offer.accelerator for one in had}))
    best = min(one.total_usd for one in had if one.offer.accelerator == name and one.total_usd is not None)
    filters = Filters(**{**case.named, "accelerators": (name,)}, include_local=False)
    filtered = take(case.ask(keep=lambda offer: offer.accelerator == name, filters=filters))
    assert filtered is not None
    assert filtered.total_usd == best


@pytest.mark.parametrize("number", range(0, 100, 4))
def test_breakeven_and_json_agree(number: int) -> None:
    """Law 6 over workloads, filters, values and limits: one run of `breakeven` takes the same offer at the same
    total; at every number of runs, the first row has the least total of all offers that keep the limits.
    """
    case = Case(number)
    context = EstimateContext(
        workload=case.workload, options=WorkloadOptions(), selection=case.selection, predictor=case.predictor,
        catalog=CATALOG, terms=TERMS,
    )  # fmt: skip
    unlimited = take(case.answer)
    assert unlimited is not None
    assert unlimited.run_time_s is not None
    limits = ({}, {"deadline_s": 0.7 * unlimited.run_time_s.mid}, {"budget_usd": 5.0})[number % 3]
    question = replace(case.question, **limits)
    answer = estimate_workload(
        case.workload, selection=case.selection, predictor=case.predictor, question=question, terms=TERMS
    )
    taken = take(answer)
    if taken is None:
        with pytest.raises(NoAnswerError):
            compare_alternatives(context, question=question)
        return
    assert taken.bill is not None
    compared = compare_alternatives(context, question=question)
    assert compared.best.offer.offer is taken.offer
    assert compared.best.total_usd == pytest.approx(taken.total_usd)
    assert compared.best.money_usd.mid == pytest.approx(taken.bill.nano[1] * 1e-9)
    assert compared.decision == answer.decision_json()
    row = answer.to_json()["offers"][answer.decision.recommended or 0]
    assert answer.decision_json()["recommended"]["total_usd"] == row["total_usd"]

    assert {1, *(turn.at for turn in compared.by_runs[:2])} <= set(compared.totals)
    everything = select_alternatives(context, answer, question=question)
    for runs, ways in compared.totals.items():
        best = everything.with_best(answer.decision.kept, [(None, runs)]).at(None, runs)[0]
        assert ways[0].total_usd == pytest.approx(best.total_usd)
    for turn in compared.by_runs[:2]:
        assert compared.totals[turn.at][0].name == turn.to
