"""Steps and error models that the tests of errors between accelerators make up."""

from __future__ import annotations

from gpuplan.predict.from_profile.error_covariance import PARTS, ErrorCovariance, StepSummary
from gpuplan.predict.from_profile.error_model import ErrorModel, TrainingErrors

ENDS = {"few": (-1.3, 1.3), "many": (-1.2, 1.2)}


def step(
    accelerator: str = "T4",
    *,
    batch_size: int = 16,
    modelled_s: float = 0.1,
    parts: tuple[float, ...] = (0.7, 0.2, 0.05, 0.05),
    work: str = "net",
) -> StepSummary:
    """Return a step of some work on an accelerator."""
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
    """Return an error model of some covariance."""
    return ErrorModel(
        covariance_model=covariance_model, training_errors=training_errors or TrainingErrors(), ends=ENDS
    )
