"""Covariance of errors, fitted on made-up residuals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from error_steps import error_model, step
from gpuplan.predict.from_profile.error_covariance import ErrorCovariance, build_features

from lab.covariance_fit import fit_error_covariance


def test_the_law_learns_what_carries_over() -> None:
    """Forty workloads whose error is made to be all common, or all of one accelerator: the fit tells which."""
    random = np.random.default_rng(7)
    compute = (0.97, 0.01, 0.01, 0.01)
    chips = ("T4", "V100", "K80")
    steps = [step(chip, work=str(work), parts=compute) for work in range(40) for chip in chips]
    common = np.repeat(random.normal(0.0, 0.25, 40), len(chips))
    own = random.normal(0.0, 0.25, 40 * len(chips))
    shared, apart = (
        fit_error_covariance(build_features(steps), list(common)),
        fit_error_covariance(build_features(steps), list(own)),
    )

    def predictions(covariance_model: ErrorCovariance) -> float:
        errors = error_model(covariance_model).corrections([steps[0]], [0.1 * math.exp(0.2)], [steps[1]])
        return errors[0].log_ratio / 0.2

    library_free = {"alike_common": 0.0, "alike_own": 0.0}
    assert predictions(replace(shared, **library_free)) > 0.9
    assert predictions(replace(apart, **library_free)) < 0.25
