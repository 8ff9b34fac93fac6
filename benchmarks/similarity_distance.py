"""How near two steps' makeups have to be for the errors on one to tell of the other: `likeness.DISTANCE`.

Every architecture is left out in its turn, and its intervals are made of the errors on the others at each
distance. The least interval score is the best (Gneiting and Raftery, 2007, JASA 102, section 6.2): the width, and
ten times by how much a step lies outside.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace

from gpuplan.lab.calibrate import cross_validate_architectures, is_training
from gpuplan.lab.cross_validation import CrossValidation
from gpuplan.lab.dataset import build_samples
from gpuplan.lab.evaluation import judged_rows
from gpuplan.lab.scores import ScoredRow
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.interval import similarity
from gpuplan.predict.interval.quantiles import LEVEL

DISTANCES = (0.15, 0.2, 0.25, 0.3, 0.35, 0.5, 1.0)


def score(row: ScoredRow) -> float:
    """Return the interval score of a row, in log units [-]."""
    low, high = math.log(row.predicted_s.low), math.log(row.predicted_s.high)
    measured = math.log(row.measurement.step_s)
    return high - low + 2.0 / (1.0 - LEVEL) * max(low - measured, measured - high, 0.0)


def line(name: str, rows: Sequence[ScoredRow], groups: Sequence[str]) -> str:
    """Return the share of rows held, the mean width and the mean over groups of the mean score."""
    scores: dict[str, list[float]] = {}
    for row, group in zip(rows, groups, strict=True):
        scores.setdefault(group, []).append(score(row))
    held = [row.predicted_s.low <= row.measurement.step_s <= row.predicted_s.high for row in rows]
    width = statistics.fmean(math.log(row.predicted_s.high / row.predicted_s.low) for row in rows)
    mean = statistics.fmean(statistics.fmean(each) for each in scores.values())
    return f"{name:>8} {statistics.fmean(held):8.1%} {width:8.3f} {mean:8.3f}"


def lines(validation: CrossValidation) -> list[str]:
    """Return one line for each distance, the last for intervals that look at no makeup."""
    found = []
    for distance in DISTANCES:
        similarity.DISTANCE = distance
        found.append(line(f"{distance:g}", validation.score(), validation.groups))
    return [*found, line("all", replace(validation, breakdowns=()).score(), validation.groups)]


def main() -> int:
    """Fit without each architecture (minutes), then print a line for each distance."""
    rows = build_samples(judged_rows(), load_catalog().accelerators, progress=lambda _: None)
    validation = cross_validate_architectures(rows, progress=lambda name: print(name, file=sys.stderr))
    print(f"{'distance':>8} {'held':>8} {'width':>8} {'score':>8}")
    print("\n".join(lines(validation.where(is_training))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
