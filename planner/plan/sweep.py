"""What to take at each batch size and precision, and the Pareto-optimal points over all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from ..errors import GpuplanError, NoAnswerError
from ..records import to_plain
from ..units import Interval
from ..workload.resize import Resizer
from .device_estimate import add_intervals
from .estimate_workload import estimate_in_context
from .money import USD_OF_A_NANO
from .ranking import find_pareto

if TYPE_CHECKING:
    from ..workload.model import Workload
    from .cost_terms import CostTerms
    from .estimate import Estimate
    from .offer_estimate import OfferEstimate
    from .question import EstimateContext, Question


SCHEMA = "gpuplan.sweep/1"
NOWHERE = "fits on no offer with a known time and price"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One batch size and precision on one offer.

    Args:
        batch_size: Samples per device [-].
        precision: Keras dtype policy, or `tf32`.
        offer: Estimate on the offer.
        best: Whether the point is Pareto-optimal in time and cost.
    """

    batch_size: int
    precision: str
    offer: OfferEstimate
    best: bool = False

    @property
    def time_s(self) -> float:
        """Central estimate of the whole run [s]."""
        return self.offer.run_time_s.mid if self.offer.run_time_s else float("inf")

    @property
    def cost_usd(self) -> float:
        """Central estimate of the bill [USD]."""
        return self.offer.bill.mid_nano * USD_OF_A_NANO if self.offer.bill else float("inf")

    def to_json(self) -> dict[str, Any]:
        """Return one entry of `points[]`."""
        offer, run = self.offer.offer, self.offer.device_estimate.run
        return {
            "batch_size": self.batch_size,
            "global_batch_size": run.global_batch_size,
            "precision": self.precision,
            **offer.identity,
            "run_time_s": to_plain(self.offer.run_time_s),
            "cost_usd": self.offer.bill.total_json() if self.offer.bill else None,
            "memory_bytes": self.offer.device_estimate.memory.needed_bytes,
            "basis": getattr(self.offer.device_estimate.step_time, "basis", None),
            "limiter": getattr(self.offer.device_estimate.step_time, "limiter", None),
            "best": self.best,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTrial:
    """One batch size and precision with its estimate, of which an offer is taken."""

    batch_size: int
    precision: str
    estimate: Estimate
    taken: OfferEstimate


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """Result of a sweep.

    Args:
        model: MODEL reference as given by the user.
        trials: What is taken for each batch size and precision, the least total first.
        points: What is taken and shown, and the Pareto-optimal offers of each trial, fastest first.
        failed: Batch sizes and precisions for which nothing can be taken, with the reason.
        terms: Costs and assumptions.
    """

    model: str
    trials: tuple[SweepTrial, ...]
    points: tuple[SweepPoint, ...]
    failed: tuple[tuple[int, str, str], ...]
    terms: CostTerms

    @property
    def time_s(self) -> Interval:
        """Time of all trials, each on what is taken for it, one after the other [s]."""
        return add_intervals([one.taken.run_time_s for one in self.trials if one.taken.run_time_s is not None])

    @property
    def money_usd(self) -> Interval:
        """Amount paid for all trials [USD]."""
        nanos = [one.taken.bill.nano for one in self.trials if one.taken.bill is not None]
        low, mid, high = (sum(nano[end] for nano in nanos) * USD_OF_A_NANO for end in range(3))
        return Interval(low=low, mid=mid, high=high)

    def to_json(self) -> dict[str, Any]:
        """Return the object behind `--json`."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "trials": [
                {
                    "batch_size": one.batch_size,
                    "precision": one.precision,
                    "decision": one.estimate.decision_json(),
                }
                for one in self.trials
            ],
            "points": [point.to_json() for point in self.points],
            "failed": [
                {"batch_size": size, "precision": precision, "reason": reason}
                for size, precision, reason in self.failed
            ],
            "terms": self.terms.to_json(),
        }


def sweep(
    context: EstimateContext,
    *,
    question: Question,
    batch_sizes: Sequence[int],
    precisions: Sequence[str],
    trace: Callable[[int, str], Workload],
) -> SweepResult:
    """Estimate every batch size and precision on every offer.

    Args:
        context: Offers and terms, and the workload as stated by the user.
        question: Order and limits.
        batch_sizes: Samples per step [-].
        precisions: Keras dtype policies, or `tf32`.
        trace: Function that traces the workload at a batch size and precision.

    Raises:
        NoAnswerError: Nothing can be taken for any of them.
    """
    trials: list[SweepTrial] = []
    failed = []
    for batch_size, precision in product(batch_sizes, precisions):
        try:
            workload = trace(batch_size, precision)
        except GpuplanError as error:
            failed.append((batch_size, precision, str(error)))
            continue
        resized = Resizer(workload, partial(_trace_at, trace, precision))
        estimate = estimate_in_context(replace(context, workload=workload, resized=resized), question)
        row = estimate.decision.recommended
        if row is None or estimate.offers[row].timeline is None:
            failed.append((batch_size, precision, NOWHERE))
        else:
            trial = SweepTrial(
                batch_size=workload.batch_size,
                precision=workload.precision,
                estimate=estimate,
                taken=estimate.offers[row],
            )
            trials.append(trial)
    if not trials:
        raise NoAnswerError(
            "no batch size and precision fits on any offer with a known time and price",
            hint="try smaller `--batch-sizes`, or add `--samples N --epochs N`",
        )
    return SweepResult(
        model=context.workload.model,
        trials=tuple(sorted(trials, key=lambda one: one.taken.total_usd or 0.0)),
        points=_find_points(trials),
        failed=tuple(failed),
        terms=context.terms,
    )


def _trace_at(trace: Callable[[int, str], Workload], precision: str, batch_size: int) -> Workload:
    return trace(batch_size, precision)


def _find_points(trials: Sequence[SweepTrial]) -> tuple[SweepPoint, ...]:
    """Return the picks and the Pareto-optimal offers of each trial; those of all are marked."""
    import numpy as np

    points = []
    for trial in trials:
        estimate, free = trial.estimate, trial.estimate.recommendation.free
        rows = dict.fromkeys((*estimate.decision.roles(), *estimate.recommendation.pareto))
        if free is not None:
            rows[free] = None
        points += [
            SweepPoint(batch_size=trial.batch_size, precision=trial.precision, offer=estimate.offers[row])
            for row in rows
        ]
    points.sort(key=lambda point: point.time_s)
    time_s, cost_usd = (np.array([getattr(point, name) for point in points]) for name in ("time_s", "cost_usd"))
    front = set(find_pareto(np.arange(len(points)), time_s, cost_usd))
    return tuple(replace(point, best=index in front) for index, point in enumerate(points))
