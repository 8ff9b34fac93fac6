"""Pareto-optimal points over batch size, precision, number of devices and purchase option."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import GpuplanError, NoAnswerError
from ..records import to_plain
from ..workload.resize import Resizer
from .estimate_workload import estimate_in_context
from .money import USD_OF_A_NANO
from .ranking import find_pareto

if TYPE_CHECKING:
    from ..workload.model import Workload
    from .cost_terms import CostTerms
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


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """Result of a sweep.

    Args:
        model: MODEL reference as given by the user.
        points: Cheapest and fastest offer per batch size, precision, number of devices and purchase option.
        failed: Batch sizes and precisions without a point, with the reason.
        terms: Costs and assumptions.
    """

    model: str
    points: tuple[SweepPoint, ...]
    failed: tuple[tuple[int, str, str], ...]
    terms: CostTerms

    @property
    def best(self) -> tuple[SweepPoint, ...]:
        """Pareto-optimal points, fastest first; free and paid offers have separate fronts."""
        return tuple(sorted((point for point in self.points if point.best), key=lambda point: point.time_s))

    def to_json(self) -> dict[str, Any]:
        """Return the object behind `--json`."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "points": [point.to_json() for point in sorted(self.points, key=lambda point: point.time_s)],
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
        batch_sizes: Samples per device [-].
        precisions: Keras dtype policies, or `tf32`.
        trace: Function that traces the workload at a batch size and precision.

    Raises:
        NoAnswerError: No combination fits on an offer with a known time and price.
    """
    points: list[SweepPoint] = []
    failed = []
    for batch_size in batch_sizes:
        for precision in precisions:
            try:
                workload = trace(batch_size, precision)
            except GpuplanError as error:
                failed.append((batch_size, precision, str(error)))
                continue
            found = _points(replace(context, workload=workload), question, precision, trace)
            points += found
            if not found:
                failed.append((batch_size, precision, NOWHERE))
    if not points:
        raise NoAnswerError(
            "no batch size and precision fits on any offer with a known time and price",
            hint="try smaller `--batch-sizes`, or add `--samples N --epochs N`",
        )
    return SweepResult(
        model=context.workload.model, points=_marked(points), failed=tuple(failed), terms=context.terms
    )


def _points(
    context: EstimateContext, question: Question, precision: str, trace: Callable[[int, str], Workload]
) -> list[SweepPoint]:
    """Return the cheapest and fastest offer per number of devices and purchase option, free offers separately."""
    workload = context.workload
    context = replace(context, resized=Resizer(workload, lambda size: trace(size, precision)))
    groups: dict[tuple[float, str, bool], list[SweepPoint]] = {}
    for one in filter(_can_be_taken, estimate_in_context(context, question).offers):
        point = SweepPoint(batch_size=workload.batch_size, precision=workload.precision, offer=one)
        groups.setdefault((one.offer.devices, one.offer.purchase, one.is_free), []).append(point)
    kept = {}
    for group in groups.values():
        for best in (min(group, key=lambda p: (p.cost_usd, p.time_s)), min(group, key=lambda p: p.time_s)):
            kept[id(best)] = best
    return list(kept.values())


def _can_be_taken(one: OfferEstimate) -> bool:
    """Return whether an offer is a whole machine that runs the work in one session, with known time and price."""
    known = one.run_time_s is not None and one.bill is not None and not one.device_estimate.is_ruled_out
    return known and one.offer.complete and one.device_estimate.memory.fits is True and one.sessions == 1


def _marked(points: Iterable[SweepPoint]) -> tuple[SweepPoint, ...]:
    """Mark the Pareto-optimal points, with separate fronts for paid and free offers."""
    import numpy as np

    kept = list(points)
    time_s, cost_usd = (np.array([getattr(point, name) for point in kept]) for name in ("time_s", "cost_usd"))
    front: set[int] = set()
    for free in (False, True):
        rows = np.array([index for index, point in enumerate(kept) if point.offer.is_free is free], dtype=np.intp)
        front |= set(find_pareto(rows, time_s, cost_usd))
    return tuple(replace(point, best=index in front) for index, point in enumerate(kept))
