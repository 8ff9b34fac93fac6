"""Break-even analysis between alternatives: free and paid notebooks, the user's own machine and the clouds.

The decision for one run, and the numbers of epochs and runs at which another alternative has the least total.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..limits import MAX_RUNS, require_count
from ..records import Frozen
from .alternatives import Alternative, Alternatives, has_epochs, select_best, select_named
from .estimate import Crossover, Estimate, explain_no_answer
from .estimate_workload import estimate_in_context, plan_what_fits
from .question import require_run_length, require_whole

if TYPE_CHECKING:
    from .estimate_device import FitWays
    from .question import EstimateContext, Question


SCHEMA = "gpuplan.breakeven/1"
TURNS_SHOWN, USUAL_RUNS = 2, 10
FARTHEST = 100_000  # largest number of epochs or runs in the search [-]
MOST_ROUNDS = 8  # of looking for what is better than the alternatives where one of them becomes the best


def find_crossovers(cheapest: Callable[[int], str], *, farthest: int = FARTHEST) -> tuple[Crossover, ...]:
    """Find the crossovers between 1 and a largest number.

    The search uses a grid of 12 % steps, then bisection: an alternative that is the cheapest only between two
    neighboring points of the grid is missed.

    Args:
        cheapest: Function that names the cheapest alternative at a number of epochs or runs.
        farthest: Largest number in the search [-].

    Example:
        >>> find_crossovers(lambda n: "free" if n < 38 else "rented")
        (Crossover(at=38, before='free', to='rented'),)
    """

    def differs(name: str, number: int) -> bool:
        return cheapest(number) != name

    found = []
    low, name = 1, cheapest(1)
    while low < farthest:
        high = min(farthest, max(low + 1, math.ceil(low * 1.12)))
        if not differs(name, high):
            low = high
            continue
        low = bisect_left(range(high), True, lo=low + 1, key=partial(differs, name))
        before, name = name, cheapest(low)
        found.append(Crossover(at=low, before=before, to=name))
    return tuple(found)


class Breakeven(Frozen):
    """The decision for one run, and what is best for more epochs or runs."""

    estimate: Estimate  # estimate of one run, with its decision
    question: Question  # question that it answers
    named: bool  # whether the alternatives were named, so that the decision is not theirs
    runs: int  # number of runs that is asked for [-]
    totals: dict[int, tuple[Alternative, ...]]  # by number of runs, all alternatives, the least total first
    # Crossovers at the requested number of runs; None if the run is not given in epochs
    by_epochs: tuple[Crossover, ...] | None
    by_runs: tuple[Crossover, ...]  # crossovers at the requested number of epochs

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """The alternatives at the requested number of runs, best first."""
        return self.totals[self.runs]

    @property
    def best(self) -> Alternative:
        """The first alternative."""
        return self.alternatives[0]

    def list_worthwhile(self, runs: int) -> list[Alternative]:
        """Return the alternatives at a number of runs that none beats in money, time and effort."""
        ways = self.totals[runs]
        points = [self._measure(one) for one in ways]

        def is_beaten(point: tuple[float, ...]) -> bool:
            return any(
                other != point and all(a <= b for a, b in zip(other, point, strict=True)) for other in points
            )

        return [one for one, point in zip(ways, points, strict=True) if self.named or not is_beaten(point)]

    def _measure(self, one: Alternative) -> tuple[float, ...]:
        """Return money with the allowance for an old price [USD], time [h] and effort [h]."""
        share = self.estimate.terms.compute_aged_share(one.offer.offer)
        return (1.0 + share) * one.money_usd.mid, one.calendar_h, one.offer.own_h

    @property
    def decision(self) -> dict[str, Any] | None:
        """The decision for one run as in `gpuplan estimate --json`; None for named alternatives."""
        return None if self.named else self.estimate.decision_json()

    def to_json(self) -> dict[str, Any]:
        """Return the object behind `--json`."""
        workload, question, terms = self.estimate.workload, self.question, self.estimate.terms
        ways = {runs: [one.to_json(question, terms) for one in found] for runs, found in self.totals.items()}
        return {
            "schema": SCHEMA,
            "workload": {
                "model": workload.model,
                "batch_size": workload.batch_size,
                "precision": workload.precision,
                "samples": workload.samples,
                "epochs": workload.total_epochs,
                "steps": workload.total_steps,
            },
            "runs": self.runs,
            "hour_value_usd": f"{question.hour_value_usd:.2f}",
            "wait_value_usd": f"{question.wait_value_usd:.2f}",
            "decision": self.decision,
            "cheapest": self.best.name,
            "ways": ways[self.runs],
            "totals": [{"runs": runs, "ways": found} for runs, found in ways.items()],
            "turns": {
                "epochs": None if self.by_epochs is None else [turn.to_json() for turn in self.by_epochs],
                "runs": [turn.to_json() for turn in self.by_runs],
            },
            "terms": terms.to_json(),
        }


def compare_alternatives(
    context: EstimateContext,
    *,
    question: Question,
    against: tuple[str, ...] = (),
    runs: int = 1,
    ways: FitWays | None = None,
    prepare: Callable[[], tuple[Question, FitWays]] | None = None,
) -> Breakeven:
    """Return the alternatives for a run, best first, and the points at which the best one changes.

    Args:
        against: Names of the alternatives; empty for the best and the usual ones.
        runs: Number of runs [-].
        ways: What may be changed of steps that do not fit; None for nothing.
        prepare: Function that returns the question and ways of `--fit`, for a training that fits nowhere.

    Raises:
        UsageError: The run's length is unknown, or a name matches no offer.
        NoAnswerError: No alternative can run the work, or none keeps the limits.
    """
    require_count(runs, what="--runs", example="10", most=MAX_RUNS)
    require_run_length(context.workload, "a comparison")
    estimate = estimate_in_context(context, question, ways=ways)
    if prepare is not None:
        estimate = plan_what_fits(estimate, context, prepare)
    if not against and (error := explain_no_answer(estimate)) is not None:
        raise error
    alternatives = select_alternatives(context, estimate, question=question, against=against, runs=runs)
    alternatives, by_runs, numbers = _follow_runs(alternatives, runs, () if against else estimate.decision.kept)
    return Breakeven(
        estimate=estimate,
        question=question,
        named=bool(against),
        runs=runs,
        totals={number: tuple(alternatives.at(None, number)) for number in numbers},
        by_epochs=find_crossovers(partial(alternatives.find_best, runs=runs))
        if has_epochs(context.workload)
        else None,
        by_runs=by_runs,
    )


def _follow_runs(
    alternatives: Alternatives, runs: int, kept: Sequence[int]
) -> tuple[Alternatives, tuple[Crossover, ...], list[int]]:
    """Return the crossovers by number of runs and the numbers to show, with what is best of all at those."""
    for _ in range(MOST_ROUNDS):
        by_runs = find_crossovers(partial(alternatives.find_best, None))
        turns = [turn.at for turn in by_runs[:TURNS_SHOWN]]
        numbers = sorted({1, runs, *(turns or [USUAL_RUNS])})
        if not kept:
            break
        more = alternatives.with_best(kept, [(None, number) for number in numbers])
        if more.rows == alternatives.rows:
            break
        alternatives = more
    return alternatives, by_runs, numbers


def select_alternatives(
    context: EstimateContext,
    estimate: Estimate,
    *,
    question: Question,
    against: tuple[str, ...] = (),
    runs: int = 1,
) -> Alternatives:
    """Return the named alternatives, or what may be best of the offers that keep the limits, for some runs.

    Raises:
        UsageError: A name matches no offer.
        NoAnswerError: No alternative can run the work.
    """
    require_whole(context.workload, question)
    every = Alternatives(estimate=estimate, context=context, question=question)
    return select_named(against, every, runs=runs) if against else select_best(every, runs=runs)
