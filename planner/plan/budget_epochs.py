"""Epochs that a budget buys on the best paid offer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from ..limits import MAX_EPOCHS
from ..units import ZERO, Interval
from ..workload.options import compute_run_steps
from .decision_words import name_offer
from .estimate import BudgetEpochs
from .estimate_workload import estimate_in_context
from .fitting import FitWays
from .run_length import with_total_epochs

if TYPE_CHECKING:
    from ..workload.model import Workload
    from .estimate import Estimate
    from .question import EstimateContext, Question

ROUNDS = 4  # of the secant method; the cost is nearly linear in the epochs
CHOICES = 2  # times that the offer is chosen again at the epochs found


def is_length_open(context: EstimateContext, question: Question) -> bool:
    """Return whether the epochs of a training are unknown, and a budget may set them."""
    one = context.workload
    is_open = one.total_epochs is None and one.total_steps is None
    return question.budget_usd is not None and is_open and one.mode == "train" and one.samples is not None


def estimate_for_budget(context: EstimateContext, question: Question, *, ways: FitWays | None) -> Estimate:
    """Return the estimate of as many epochs as a budget buys, on every offer, and of their number."""
    free = replace(question, budget_usd=None)
    epochs, answer = 1, None
    for _ in range(1 + CHOICES):
        run = replace(context, workload=_with_epochs(context.workload, epochs))
        answer = add_budget_epochs(estimate_in_context(run, free, ways=ways), run, question, ways=ways)
        bought = answer.budget_epochs
        if bought is None or epochs == (epochs := max(1, round(bought.epochs.mid))):
            break
    assert answer is not None
    return replace(answer, options={**answer.options, "budget_usd": str(question.budget_usd)})


def add_budget_epochs(
    answer: Estimate, context: EstimateContext, question: Question, *, ways: FitWays | None = None
) -> Estimate:
    """Add to an estimate how many epochs the budget buys; the same where that is unknown."""
    row, start = _find_paid(answer), context.workload.total_epochs
    if question.budget_usd is None or row is None or not start or context.workload.samples is None:
        return answer
    unlimited = replace(question, budget_usd=None, deadline_s=None)
    narrow = replace(context.selection, offers=(answer.offers[row].selected,))

    @cache
    def price(epochs: int) -> Interval:
        run = replace(context, selection=narrow, workload=_with_epochs(context.workload, epochs))
        bill = estimate_in_context(run, unlimited, ways=ways).offers[0].bill
        return ZERO if bill is None else bill.usd

    ends = (lambda n: price(n).high, lambda n: price(n).mid, lambda n: price(n).low)
    low, mid, high = (_solve(end, question.budget_usd, start) for end in ends)
    number = f"about {mid:,} epochs ({low:,}–{high:,})" if mid else "less than one epoch"
    sentence = f"${question.budget_usd:g} buys {number} on {name_offer(answer.offers[row].offer)}."
    epochs = Interval(low=low, mid=mid, high=high)
    return replace(answer, budget_epochs=BudgetEpochs(offer=row, epochs=epochs, sentence=sentence))


def _with_epochs(workload: Workload, epochs: int) -> Workload:
    """Return the workload with another number of epochs."""
    if workload.total_epochs is not None:
        return with_total_epochs(workload, epochs)
    steps = compute_run_steps(samples=workload.samples, batch_size=workload.batch_size, epochs=epochs)
    return replace(workload, epochs=epochs, steps=steps)


def _find_paid(answer: Estimate) -> int | None:
    """Return the offer of least total that costs money, of those that can be taken; None for none."""
    paid = [
        (one.total_usd, row)
        for row in answer.takable
        if (one := answer.offers[row]).bill is not None and one.bill.mid_nano > 0 and one.total_usd is not None
    ]
    return min(paid)[1] if paid else None


def _solve(price: Callable[[int], float], budget_usd: float, start: int) -> int:
    """Return the largest number of epochs within a budget, about: cost is nearly linear in them.

    Args:
        price: Cost of a number of epochs [USD].
        budget_usd: Highest cost [USD].
        start: First number of epochs to price.

    Example:
        >>> _solve(lambda epochs: 1.0 + 2.5 * epochs, 100.0, 10)
        39
    """
    first, second = start, 2 * start
    for _ in range(ROUNDS):
        slope = (price(second) - price(first)) / (second - first)
        if slope <= 0:
            return MAX_EPOCHS
        epochs = min(MAX_EPOCHS, max(0, int(first + (budget_usd - price(first)) / slope)))
        if epochs in (0, first, second):
            return epochs
        first, second = second, epochs
    return epochs
