"""Widths of intervals, fitted on residuals."""

from __future__ import annotations

import random

import pytest
from gpuplan.predict.intervals import TimeBreakdown, compute_features

from lab.interval_fit import FeaturedResidual, fit_interval_model


def build_features(*, chip_year: int) -> dict[str, float]:
    """Features of a step of one second that memory limits, kernel by kernel, on a measured chip."""
    return compute_features(
        TimeBreakdown(0.0, 0.0, 1.0, 0.0),
        on_tensor_units=False,
        mode="train",
        compiled=False,
        step_s=1.0,
        chip_year=chip_year,
        is_chip_measured=True,
    )


def test_the_fit_finds_which_steps_are_harder() -> None:
    """Residuals three times as large on products of tensor units: the scale is, and four fifths are inside."""
    rng = random.Random(1)
    easy = build_features(chip_year=2017)
    hard = {**easy, "tensor products": 1.0}
    rows = [
        FeaturedResidual(rng.gauss(0.0, size), f"publisher {i % 8}", features)
        for i in range(800)
        for size, features in ((0.1, easy), (0.3, hard))
    ]
    model = fit_interval_model(rows)
    ratio = model.compute_scale(hard) / model.compute_scale(easy)
    inside = [model.low <= one.log / model.compute_scale(one.features) <= model.high for one in rows]

    assert ratio == pytest.approx(3.0, rel=0.35)
    assert sum(inside) / len(rows) == pytest.approx(0.8, abs=0.04)


def test_a_feature_that_does_not_help_on_unseen_groups_has_no_slope() -> None:
    """Steps before Pascal are harder in one publisher and easier in another: no rule for a third."""
    rng = random.Random(2)
    old = build_features(chip_year=2014)
    rows = [
        FeaturedResidual(rng.gauss(0.0, size), f"publisher {i % 4}", features)
        for i in range(200)
        for size, features in ((0.1, {**old, "before Pascal": 0.0}), (0.1 * 8.0 ** (i % 2 - 0.5), old))
    ]
    assert fit_interval_model(rows).slopes["before Pascal"] == 0.0
