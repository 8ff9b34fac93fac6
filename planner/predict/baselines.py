"""Baselines: rules of thumb with one constant fitted on the same rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .measured_run import FitSample


def flops_s(sample: FitSample) -> float:
    """Return FLOPs over datasheet peak [s]."""
    return float((sample.table.flops * sample.table.count).sum()) / float(sample.chip.peak_flop_per_s.max())


def bandwidth_s(sample: FitSample) -> float:
    """Return bytes over datasheet bandwidth [s]."""
    moved_bytes = float((sample.table.bytes_moved * sample.table.count).sum())
    return moved_bytes / float(sample.chip.memory_bytes_per_s)


def roofline_s(sample: FitSample) -> float:
    """Return the larger of the two for the whole step [s]."""
    return max(flops_s(sample), bandwidth_s(sample))


Baseline = Callable[[FitSample], float]
BASELINES: dict[str, Baseline] = {
    "flops_ratio": flops_s,
    "bandwidth_ratio": bandwidth_s,
    "datasheet_roofline": roofline_s,
}


def predict_baseline_s(
    rule: Baseline, fit_on: Sequence[FitSample], predict: Sequence[FitSample]
) -> list[float]:
    """Return the rule's times for ``predict`` [s], scaled by the median ratio to the rows of ``fit_on``.

    The ratio is what such a rule calls utilization; the median makes it as good as one constant can be.
    """
    ratios = sorted(sample.step_s / rule(sample) for sample in fit_on)
    middle = math.sqrt(ratios[(len(ratios) - 1) // 2] * ratios[len(ratios) // 2])
    return [rule(sample) * middle for sample in predict]
