"""Predictions from a profile on another accelerator, of architectures that the fit has not seen. Slow."""

from __future__ import annotations

import pytest
from gpuplan.predict.scores import summarize

from lab.evaluation import Evaluator
from lab.evaluation_protocols import SETTINGS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("held out")]


def test_from_a_profile_on_t4_to_architectures_left_out(profet_bench: Evaluator) -> None:
    """PROFET's rows on K80, M60 and V100, beside 11.8 % mean that PROFET publishes for its own predictions."""
    predicted = SETTINGS["from-t4"].predict(profet_bench)
    scores = summarize(predicted.rows)
    assert scores.n == 632
    assert scores.mean_ape <= 0.088
    assert scores.median_ape <= 0.048
    assert 0.74 <= scores.coverage_80 <= 0.86
    for rows in predicted.baselines.values():
        assert summarize(rows).mean_ape > 2 * scores.mean_ape


def test_from_two_batch_sizes_on_any_other_gpu(profet_bench: Evaluator) -> None:
    """All twelve ordered pairs, beside 13.6 % mean for PROFET itself; no pair is hopeless."""
    rows = SETTINGS["from-each"].predict(profet_bench).rows
    scores = summarize(rows)
    assert scores.n == 3 * 849
    assert scores.mean_ape <= 0.084
    assert scores.median_ape <= 0.055
    assert 0.74 <= scores.coverage_80 <= 0.86
    pairs = {(row.basis, row.measurement.accelerator) for row in rows}
    assert len(pairs) == 12
    worst = max(
        summarize([r for r in rows if (r.basis, r.measurement.accelerator) == pair]).mean_ape for pair in pairs
    )
    assert worst <= 0.15
