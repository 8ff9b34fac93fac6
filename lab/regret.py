"""Regret: money and hours lost by choosing a machine by predictions.

A workload counts when it was measured on at least three accelerators, so that there was something to choose.
Regret is what the choice costs over the best choice, both by the measured times.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from gpuplan.predict.measurements import Measurement
from gpuplan.predict.scores import ScoredRow, percentile

FEWEST = 3  # accelerators that a workload must have been measured on
CPU = "CPU"  # stands for many machines of unlike speed and price, so it is no choice

PriceOf = Callable[[str, int], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorOption:
    """One accelerator that a workload could run on.

    Args:
        accelerator: Catalog name.
        devices: GPUs or TPU chips [-].
        measured_s, predicted_s: Time of a step [s].
        usd_per_hour: What it costs; None when no price is known [USD/h].
    """

    accelerator: str
    devices: int = 1
    measured_s: float
    predicted_s: float
    usd_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Regret of choosing by prediction on one workload.

    Args:
        accelerators: Candidates [-].
        cheapest: Regret in dollars [-]; None when fewer than three candidates have a price.
        fastest: Regret in hours [-].
        rank_correlation: Spearman's, of predicted and measured times [-]; None if all are equal.
    """

    accelerators: int
    cheapest: float | None
    fastest: float
    rank_correlation: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceSummary:
    """Regrets of one kind over some workloads.

    Args:
        n: Workloads [-].
        mean_regret, median_regret, p90_regret: Loss over the best choice [-].
        top1: Share of workloads where the choice was the best one [-].
    """

    n: int
    mean_regret: float
    median_regret: float
    p90_regret: float
    top1: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSummary:
    """Losses over some workloads; None where there was nothing to choose."""

    cheapest: ChoiceSummary | None
    fastest: ChoiceSummary | None
    rank_correlation: float | None


def regret(*, chosen_by: Sequence[float], truth: Sequence[float]) -> float:
    """Return the regret truth[argmin(chosen_by)] / min(truth) - 1 [-].

    Example:
        >>> regret(chosen_by=[2.0, 1.0, 3.0], truth=[1.0, 1.5, 4.0])
        0.5
    """
    choice = min(range(len(truth)), key=lambda i: chosen_by[i])
    return truth[choice] / min(truth) - 1.0


def _ranks(values: Sequence[float]) -> list[float]:
    """Return ranks from 0, ties sharing the mean of theirs."""
    return [sum(v < value for v in values) + (sum(v == value for v in values) - 1) / 2 for value in values]


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; None when either has but one value.

    Pearson's correlation of the ranks, ties averaged (Spearman, 1904, "The Proof and Measurement of
    Association between Two Things", doi:10.2307/1412159).

    Example:
        >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
        0.5
    """
    middle = (len(first) - 1) / 2
    a, b = ([rank - middle for rank in _ranks(values)] for values in (first, second))
    spread = (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5
    return sum(x * y for x, y in zip(a, b, strict=True)) / spread if spread else None


def evaluate_choice(candidates: Sequence[AcceleratorOption]) -> Decision:
    """Return the regrets of choosing among options by prediction."""
    predicted = [c.predicted_s for c in candidates]
    measured = [c.measured_s for c in candidates]
    priced = [(c, c.usd_per_hour) for c in candidates if c.usd_per_hour is not None]
    return Decision(
        accelerators=len(candidates),
        cheapest=None
        if len(priced) < FEWEST
        else regret(
            chosen_by=[c.predicted_s * usd for c, usd in priced], truth=[c.measured_s * usd for c, usd in priced]
        ),
        fastest=regret(chosen_by=predicted, truth=measured),
        rank_correlation=rank_correlation(predicted, measured),
    )


def build_workload_key(m: Measurement) -> Hashable:
    """Return all but the accelerator: what has to agree for times to be compared.

    TF32 is what float32 becomes by default on chips that have it, so the two are one choice.
    """
    precision = "float32" if m.precision == "tf32" else m.precision
    return (
        m.base,
        m.model,
        m.batch_size,
        precision,
        m.mode,
        m.stack,
        m.compiled,
        m.framework,
        m.layout,
        m.work,
        m.feed,
        m.devices,
        m.hosts,
        m.distribution,
        m.accumulation,
        m.recompute,
        m.attention,
        m.collection,
    )


def build_options(rows: Iterable[ScoredRow], price_of: PriceOf) -> list[tuple[AcceleratorOption, ...]]:
    """Return the candidates of every workload that was measured on three accelerators or more.

    Repeats on one accelerator count as one candidate, with the medians of their times.

    Args:
        rows: Predicted rows.
        price_of: Dollars an hour of an accelerator and a number of devices; None when not known.
    """
    workloads: dict[Hashable, dict[str, list[ScoredRow]]] = {}
    for row in rows:
        if row.measurement.accelerator != CPU:
            chips = workloads.setdefault(build_workload_key(row.measurement), {})
            chips.setdefault(row.measurement.accelerator, []).append(row)
    return [
        tuple(_candidate(name, repeats, price_of) for name, repeats in chips.items())
        for chips in workloads.values()
        if len(chips) >= FEWEST
    ]


def _candidate(accelerator: str, repeats: Sequence[ScoredRow], price_of: PriceOf) -> AcceleratorOption:
    devices = repeats[0].measurement.devices
    return AcceleratorOption(
        accelerator=accelerator,
        devices=devices,
        measured_s=median(row.measurement.step_s for row in repeats),
        predicted_s=median(row.predicted_s.mid for row in repeats),
        usd_per_hour=price_of(accelerator, devices),
    )


def evaluate_choices(rows: Iterable[ScoredRow], price_of: PriceOf) -> list[Decision]:
    """Return a decision for every workload that was measured on three accelerators or more."""
    return [evaluate_choice(candidates) for candidates in build_options(rows, price_of)]


def _summary(regrets: Sequence[float]) -> ChoiceSummary | None:
    if not regrets:
        return None
    return ChoiceSummary(
        n=len(regrets),
        mean_regret=fmean(regrets),
        median_regret=median(regrets),
        p90_regret=percentile(regrets, 0.9),
        top1=sum(r == 0.0 for r in regrets) / len(regrets),
    )


def summarize_decisions(decisions: Sequence[Decision]) -> DecisionSummary:
    """Return the losses over all workloads, each counting once."""
    correlations = [d.rank_correlation for d in decisions if d.rank_correlation is not None]
    return DecisionSummary(
        cheapest=_summary([d.cheapest for d in decisions if d.cheapest is not None]),
        fastest=_summary([d.fastest for d in decisions]),
        rank_correlation=fmean(correlations) if correlations else None,
    )
