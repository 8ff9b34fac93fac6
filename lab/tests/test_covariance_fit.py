"""Covariance of errors, fitted on made-up residuals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from gpuplan.predict.from_profile.error_covariance import PARTS, ErrorCovariance, StepSummary, build_features
from gpuplan.predict.from_profile.error_model import ErrorModel, TrainingErrors

from lab.covariance_fit import fit_error_covariance

ENDS = {"few": (-1.3, 1.3), "many": (-1.2, 1.2)}


def step(
    accelerator: str = "T4",
    *,
    batch_size: int = 16,
    modelled_s: float = 0.1,
    parts: tuple[float, ...] = (0.7, 0.2, 0.05, 0.05),
    work: str = "net",
) -> StepSummary:
    return StepSummary(
        work=work,
        accelerator=accelerator,
        batch_size=batch_size,
        modelled_s=modelled_s,
        parts_s={name: modelled_s * share for name, share in zip(PARTS, parts, strict=True)},
        input_bytes=1e6,
        launches=100.0,
    )


def error_model(covariance_model: ErrorCovariance, training_errors: TrainingErrors | None = None) -> ErrorModel:
    return ErrorModel(
        covariance_model=covariance_model, training_errors=training_errors or TrainingErrors(), ends=ENDS
    )


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
