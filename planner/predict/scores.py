"""Scores of predictions against measurements, and rules of thumb to compare them with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..records import Frozen, to_plain
from ..units import MS_PER_S, Interval
from .measured_run import FitSample
from .measurements import Measurement


class ScoredRow(Frozen):
    """A measurement with its prediction."""

    measurement: Measurement
    predicted_s: Interval
    basis: str

    @property
    def absolute_error(self) -> float:
        """Absolute error as a share of the measurement [-]."""
        return abs(self.predicted_s.mid - self.measurement.step_s) / self.measurement.step_s

    @property
    def covered(self) -> bool:
        """Whether the interval holds the measurement."""
        return self.predicted_s.low <= self.measurement.step_s <= self.predicted_s.high


class Summary(Frozen):
    """Scores of some rows."""

    n: int  # rows [-]
    # median_ape, mean_ape, p90_ape: absolute error as a share of the measurement [-]
    median_ape: float
    mean_ape: float
    p90_ape: float
    coverage_80: float  # share of measurements inside their 80 % interval [-]
    bias: float  # geometric mean of predicted / measured, minus 1 [-]
    # median_log_ratio, mean_log_ratio: of |log(predicted / measured)|, symmetric in factors of 1/2 and 2 [-]
    median_log_ratio: float
    mean_log_ratio: float


def percentile(values: Sequence[float], probability: float) -> float:
    """Return the percentile with linear interpolation between order statistics."""
    ordered = sorted(values)
    position = probability * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def summarize(rows: Sequence[ScoredRow]) -> Summary:
    """Return the scores of at least one row."""
    errors = [row.absolute_error for row in rows]
    logs = [math.log(row.predicted_s.mid / row.measurement.step_s) for row in rows]
    return Summary(
        n=len(rows),
        median_ape=percentile(errors, 0.5),
        mean_ape=sum(errors) / len(errors),
        p90_ape=percentile(errors, 0.9),
        coverage_80=sum(row.covered for row in rows) / len(rows),
        bias=math.expm1(sum(logs) / len(logs)),
        median_log_ratio=percentile([abs(log) for log in logs], 0.5),
        mean_log_ratio=sum(abs(log) for log in logs) / len(logs),
    )


def summarize_by(rows: Sequence[ScoredRow], key: Callable[[Measurement], str]) -> dict[str, Summary]:
    """Return a summary for each value of a key, sorted by it."""
    names = sorted({key(row.measurement) for row in rows})
    return {name: summarize([row for row in rows if key(row.measurement) == name]) for name in names}


def row_to_json(row: ScoredRow) -> dict[str, Any]:
    """Return one row under the keys of the JSON contract."""
    m = row.measurement
    names = ("model", "batch_size", "accelerator", "devices", "mode", "precision", "compiled", "stack")
    return {
        **{name: getattr(m, name) for name in names},
        "step_ms": m.step_s * MS_PER_S,
        "source": m.source,
        "predicted_ms": to_plain(row.predicted_s.scaled(MS_PER_S)),
        "ape": row.absolute_error,
        "basis": row.basis,
    }


def _flops_s(sample: FitSample) -> float:
    return float((sample.table.flops * sample.table.count).sum()) / float(sample.chip.peak_flop_per_s.max())


def _bandwidth_s(sample: FitSample) -> float:
    return float((sample.table.bytes_moved * sample.table.count).sum()) / float(sample.chip.memory_bytes_per_s)


Baseline = Callable[[FitSample], float]
BASELINES: dict[str, Baseline] = {  # times by the datasheet's numbers [s]
    "flops_ratio": _flops_s,
    "bandwidth_ratio": _bandwidth_s,
    "datasheet_roofline": lambda sample: max(_flops_s(sample), _bandwidth_s(sample)),
}


def predict_baseline_s(rule: Baseline, fit_on: Sequence[FitSample], predict: Sequence[FitSample]) -> list[float]:
    """Return the rule's times for ``predict`` [s], scaled by the median ratio to the rows of ``fit_on``.

    The ratio is what such a rule calls utilization; the median makes it as good as one constant can be.
    """
    ratios = sorted(sample.step_s / rule(sample) for sample in fit_on)
    middle = math.sqrt(ratios[(len(ratios) - 1) // 2] * ratios[len(ratios) // 2])
    return [rule(sample) * middle for sample in predict]
