"""The rules of thumb that the model has to beat, each with one constant fitted on the same rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .fit import Case

__all__ = ["RULES", "Rule", "predict_naively"]


def _peak_flop_per_s(case: Case) -> float:
    return float(case.chip.peak_flop_per_s.max())


def _bytes(case: Case) -> float:
    return float((case.table.bytes_moved * case.table.count).sum())


def _flops(case: Case) -> float:
    return float((case.table.flops * case.table.count).sum())


def flops_s(case: Case) -> float:
    """Return FLOPs over datasheet peak [s]."""
    return _flops(case) / _peak_flop_per_s(case)


def bandwidth_s(case: Case) -> float:
    """Return bytes over datasheet bandwidth [s]."""
    return _bytes(case) / float(case.chip.memory_bytes_per_s)


def roofline_s(case: Case) -> float:
    """Return the larger of the two for the whole step [s]."""
    return max(flops_s(case), bandwidth_s(case))


Rule = Callable[[Case], float]
RULES: dict[str, Rule] = {
    "flops_ratio": flops_s,
    "bandwidth_ratio": bandwidth_s,
    "datasheet_roofline": roofline_s,
}


def predict_naively(rule: Rule, fit_on: Sequence[Case], predict: Sequence[Case]) -> list[float]:
    """Return the rule's times for ``predict`` [s], scaled by the median ratio to the rows of ``fit_on``.

    The ratio is what such a rule calls utilization; the median makes it as good as one constant can be.
    """
    ratios = sorted(case.step_s / rule(case) for case in fit_on)
    middle = math.sqrt(ratios[(len(ratios) - 1) // 2] * ratios[len(ratios) // 2])
    return [rule(case) * middle for case in predict]
