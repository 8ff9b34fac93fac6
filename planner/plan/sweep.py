"""What to take at each batch size and precision, and the Pareto-optimal points over all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from ..errors import GpuplanError, NoAnswerError
from ..predict.resize import Resizer
from ..records import Frozen, to_plain
from ..units import ZERO, Interval
from .estimate_workload import estimate_in_context
from .question import require_whole
from .ranking import find_pareto

if TYPE_CHECKING:
    from ..workload.model import Workload
    from .estimate import Estimate
    from .offer_estimate import OfferEstimate
    from .question import EstimateContext, Question


SCHEMA = "gpuplan.sweep/1"
NOWHERE = "fits on no offer with a known time and price"


class SweepTrial(Frozen):
    """The estimate at one batch size and precision, and the offer that is taken."""

    estimate: Estimate
    taken: OfferEstimate

    def list_points(self) -> list[tuple[float, float, dict[str, Any]]]:
        """Return time [s], cost [USD] and entry of `points[]` of the picks and the Pareto-optimal offers."""
        estimate, found, workload = self.estimate, self.estimate.recommendation, self.estimate.workload
        rows = dict.fromkeys((*estimate.decision.roles(), *found.pareto, found.free))
        offers = [estimate.offers[row] for row in rows if row is not None]
        return [
            (
                one.run_time_s.mid,
                one.bill.usd.mid,
                {
                    "batch_size": workload.batch_size,
                    "global_batch_size": one.device_estimate.run.global_batch_size,
                    "precision": workload.precision,
                    **one.offer.identity,
                    "run_time_s": to_plain(one.run_time_s),
                    "cost_usd": one.bill.total_json(),
                    "memory_bytes": one.device_estimate.memory.needed_bytes,
                    "basis": getattr(one.device_estimate.step_time, "basis", None),
                    "limiter": getattr(one.device_estimate.step_time, "limiter", None),
                },
            )
            for one in offers
            if one.run_time_s is not None and one.bill is not None
        ]


class SweepResult(Frozen):
    """Result of a sweep."""

    context: EstimateContext  # workload as stated by the user, and terms
    trials: tuple[SweepTrial, ...]  # what is taken for each batch size and precision, the least total first
    failed: tuple[tuple[int, str, str], ...]  # batch sizes and precisions without an offer, with the reason

    @property
    def time_s(self) -> Interval:
        """Time of all trials, each on what is taken for it, one after the other [s]."""
        return sum((one.taken.run_time_s for one in self.trials if one.taken.run_time_s is not None), ZERO)

    @property
    def money_usd(self) -> Interval:
        """Amount paid for all trials [USD]."""
        return sum((one.taken.bill.usd for one in self.trials if one.taken.bill is not None), ZERO)

    def list_points(self) -> list[dict[str, Any]]:
        """Return `points[]`, fastest first; `best` are those that no other beats in time and cost at once."""
        import numpy as np

        points = [point for trial in self.trials for point in trial.list_points()]
        points.sort(key=lambda point: point[0])
        time_s, cost_usd = (np.array(column) for column in list(zip(*points, strict=True))[:2])
        front = set(find_pareto(np.arange(len(points)), time_s, cost_usd))
        return [{**point, "best": index in front} for index, (*_, point) in enumerate(points)]

    def to_json(self) -> dict[str, Any]:
        """Return the object behind `--json`."""
        return {
            "schema": SCHEMA,
            "model": self.context.workload.model,
            "trials": [
                {
                    **{key: getattr(one.estimate.workload, key) for key in ("batch_size", "precision")},
                    "decision": one.estimate.decision_json(),
                }
                for one in self.trials
            ],
            "points": self.list_points(),
            "failed": [dict(zip(("batch_size", "precision", "reason"), one, strict=True)) for one in self.failed],
            "terms": self.context.terms.to_json(),
        }


def sweep(
    context: EstimateContext,
    *,
    question: Question,
    batch_sizes: Sequence[int],
    precisions: Sequence[str],
    trace: Callable[[int, str], Workload],
) -> SweepResult:
    """Estimate every batch size and precision on every offer; `trace` traces the workload at each.

    Raises:
        NoAnswerError: Nothing can be taken for any of them.
    """
    require_whole(context.workload, question)
    trials, failed = [], []
    for batch_size, precision in product(batch_sizes, precisions):
        try:
            workload = trace(batch_size, precision)
        except GpuplanError as error:
            failed.append((batch_size, precision, str(error)))
            continue
        resized = Resizer(workload, lambda size, dtype=precision: trace(size, dtype))  # type: ignore[misc]
        estimate = estimate_in_context(replace(context, workload=workload, resized=resized), question)
        if (taken := estimate.taken) is None or taken.timeline is None:
            failed.append((batch_size, precision, NOWHERE))
            continue
        trials.append(SweepTrial(estimate=estimate, taken=taken))
    if not trials:
        raise NoAnswerError(
            "no batch size and precision fits on any offer with a known time and price",
            hint="try smaller `--batch-sizes`, or add `--samples N --epochs N`",
        )
    trials.sort(key=lambda one: one.taken.total_usd or 0.0)
    return SweepResult(context=context, trials=tuple(trials), failed=tuple(failed))
