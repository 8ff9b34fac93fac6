"""What a report shows beside the offers: the step taken apart, the bills in detail, cost against epochs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import GpuplanError
from ..predict.anatomy import Anatomy, anatomy_of
from ..predict.coefficients import load_coefficients
from ..predict.steptime import StepTime
from .breakeven import Rivalry, Turn, turns, ways_of

if TYPE_CHECKING:
    from .ask import Prepared
    from .estimate import Question
    from .result import Estimate
    from .ways import Ways

__all__ = ["Curve", "Details", "details_of"]

ACCELERATORS_SHOWN = 6
EPOCHS_SHOWN = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)
MOST_EPOCHS_TIMES = 10  # of those that were asked for: as far as the curves go


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What one way costs at numbers of epochs.

    Args:
        name: As `gpuplan breakeven` calls it.
        instance_type: Its offer.
        points: Epochs, then dollars at the low end, centre and high end.
    """

    name: str
    instance_type: str
    points: tuple[tuple[int, float, float, float], ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        keys = ("epochs", "usd_low", "usd", "usd_high")
        points = [dict(zip(keys, point, strict=True)) for point in self.points]
        return {"name": self.name, "instance_type": self.instance_type, "points": points}


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The details of an estimate.

    Args:
        steps: One device of each of a few accelerators, taken apart.
        bills: Positions of the offers whose bills are told line by line.
        curves: Cost against epochs; empty when the run is not told in epochs.
        turns: Where another way becomes the cheapest.
    """

    steps: tuple[Anatomy, ...]
    bills: tuple[int, ...]
    curves: tuple[Curve, ...]
    turns: tuple[Turn, ...]

    def to_json(self, estimate: Estimate) -> dict[str, Any]:
        """Return the member `details` of a plan."""
        billed = ((index, estimate.offers[index].bill) for index in self.bills)
        return {
            "steps": [step.to_json() for step in self.steps],
            "bills": [
                {"offer": index, "lines": bill.lines_json(detailed=True)}
                for index, bill in billed if bill is not None
            ],
            "epochs": [curve.to_json() for curve in self.curves],
            "turns": [turn.to_json() for turn in self.turns],
        }  # fmt: skip


def details_of(ready: Prepared, estimate: Estimate, question: Question) -> Details:
    """Return the details of an estimate.

    Args:
        ready: What it was worked out from.
        estimate: The answer.
        question: What was asked.
    """
    chosen = estimate.recommendation
    named = (chosen.cheapest, chosen.fastest, chosen.within_deadline, chosen.within_budget, chosen.free)
    recommended = tuple(dict.fromkeys(index for index in named if index is not None))
    curves, where = _curves(ready, estimate, question)
    shown = (*recommended, *chosen.pareto, *estimate.best_per_devices())
    return Details(steps=_steps(ready, estimate, shown), bills=recommended, curves=curves, turns=where)


def _steps(ready: Prepared, estimate: Estimate, shown: Sequence[int]) -> tuple[Anatomy, ...]:
    """Return the first accelerators of some offers taken apart, each once, one device of it."""
    wanted = [estimate.offers[index].selected.accelerator for index in shown]
    found: dict[str, Anatomy] = {}
    for accelerator in sorted((one for one in wanted if one is not None), key=lambda one: one.kind == "cpu"):
        if accelerator.name in found:
            continue
        step = ready.predictor.step_time(ready.workload, accelerator, devices=1)
        if isinstance(step, StepTime):
            taken = anatomy_of(ready.workload, accelerator, step, load_coefficients())
            found |= {} if taken is None else {accelerator.name: taken}
        if len(found) == ACCELERATORS_SHOWN:
            break
    return tuple(found.values())


def _curves(
    ready: Prepared, estimate: Estimate, question: Question
) -> tuple[tuple[Curve, ...], tuple[Turn, ...]]:
    """Return cost against epochs of the usual ways, and where the cheapest changes; nothing where none can."""
    workload = ready.workload
    if workload.epochs is None or workload.samples is None:
        return (), ()
    try:
        ways = ways_of(ready, Rivalry(), estimate.offers, question=question)
    except GpuplanError:  # no notebook, cloud or machine of one's own is among the offers that were asked for
        return (), ()
    ways = ways.narrowed(epochs=workload.epochs, runs=1)
    farthest = MOST_EPOCHS_TIMES * max(workload.epochs, 10)
    epochs = sorted({n for n in EPOCHS_SHOWN if n <= farthest} | {workload.epochs, farthest})
    where = turns(lambda n: ways.at(epochs=n, runs=1)[0].contender.name, farthest=farthest)
    return tuple(_curves_of(ways, epochs)), where


def _curves_of(ways: Ways, epochs: Sequence[int]) -> Iterator[Curve]:
    """Yield what each way costs at some numbers of epochs."""
    points: dict[str, list[tuple[int, float, float, float]]] = {}
    for n in epochs:
        for way in ways.at(epochs=n, runs=1):
            usd = way.money_usd
            points.setdefault(way.contender.name, []).append((n, usd.low, usd.mid, usd.high))
    for contender in ways.contenders:
        offer = contender.offer.offer
        yield Curve(
            name=contender.name, instance_type=offer.instance_type, points=tuple(points[contender.name])
        )
