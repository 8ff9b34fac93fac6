"""Predict steps on an accelerator from a profile on another: Gaussian process regression of residuals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ...records import Frozen, from_plain
from ...units import MS_PER_S
from ..coefficients import read_fitted
from ..intervals import interval_around
from ..step_time import StepTime, find_limiter
from .error_covariance import (
    PARTS,
    ErrorCovariance,
    StepFeatures,
    StepSummary,
    build_features,
    compute_covariance,
    posterior,
    winsorize,
)

COLUMNS = ("work", "accelerator", "batch_size", "modelled_s", "parts_s", "input_bytes", "launches")  # of a row


def split_fixed_per_sample(batch_sizes: Sequence[int], steps_s: Sequence[float]) -> tuple[float, float] | None:
    """Return the fixed time of a step [s] and the time per sample [s].

    Non-negative least squares of the relative errors of ``fixed + per_sample * batch_size``; None for fewer than
    two batch sizes.
    """
    if len(set(batch_sizes)) < 2:
        return None
    import numpy as np
    from scipy.optimize import nnls

    steps = np.asarray(steps_s, float)
    (fixed_s, per_sample_s), _ = nnls(np.column_stack([1.0 / steps, batch_sizes / steps]), np.ones(len(steps)))
    return float(fixed_s), float(per_sample_s)


class BatchProfile(Frozen):
    """Measured steps of one workload on one accelerator."""

    accelerator: str
    steps: tuple[tuple[int, float], ...]  # batch size [-] and time of a step [s], at least one

    def step_s(self, batch_size: int) -> float:
        """Return the time of a step at a batch size: measured, else fixed + per_sample * batch_size [s].

        Proportional to the batch size if only one other batch size was measured.
        """
        if batch_size in dict(self.steps):
            return dict(self.steps)[batch_size]
        split = split_fixed_per_sample(*zip(*self.steps, strict=True))
        if split is None:
            return self.steps[0][1] / self.steps[0][0] * batch_size
        return split[0] + split[1] * batch_size

    def note(self) -> str:
        """Return one sentence on the measurements behind a prediction from this profile."""
        sizes = ", ".join(str(batch_size) for batch_size, _ in self.steps)
        split = split_fixed_per_sample(*zip(*self.steps, strict=True))
        fixed_ms, sample_ms = (MS_PER_S * part_s for part_s in split or (0.0, 0.0))
        parts = f" ({fixed_ms:.3g} ms a step and {sample_ms:.3g} ms a sample there)" if split else ""
        return f"scaled from {self.accelerator}, measured at batch size {sizes}{parts}"


class Correction(NamedTuple):
    """Posterior mean of log(measured / modelled), and its standard deviation [log units]."""

    log_ratio: float
    spread: float


class TrainingErrors(Frozen):
    """Measured steps of other workloads with their residuals log(measured / modelled); may be empty."""

    steps: tuple[StepSummary, ...] = ()
    log_ratios: tuple[float, ...] = ()


class ErrorModel(Frozen):
    """Gaussian process of the model's residuals, fitted on workloads measured on several accelerators."""

    covariance_model: ErrorCovariance
    training_errors: TrainingErrors
    # for profiles of one or two batch sizes (`few`) and of more (`many`): 10th and 90th percentile of (error -
    # expected error) / its spread, on architectures that were left out
    ends: dict[str, tuple[float, float]]

    @cached_property
    def _training_features(self) -> StepFeatures:
        return build_features(self.training_errors.steps)

    @cached_property
    def _precision(self) -> Any:
        """Inverse covariance of the training errors, array of [steps, steps]."""
        import numpy as np

        features = self._training_features
        return np.linalg.inv(
            compute_covariance(self.covariance_model, features, features)
            + self.covariance_model.noise**2 * np.eye(len(features.log_batch))
        )

    def prior(self, steps: Sequence[StepSummary]) -> tuple[Any, Any]:
        """Return mean and covariance of the residuals of some steps given the training errors alone."""
        import numpy as np

        features = build_features(steps)
        own = compute_covariance(self.covariance_model, features, features)
        if not self.training_errors.steps:
            return np.zeros(len(steps)), own
        gain = compute_covariance(self.covariance_model, features, self._training_features) @ self._precision
        mean = gain @ winsorize(self.training_errors.log_ratios)
        return mean, own - gain @ compute_covariance(self.covariance_model, self._training_features, features)

    def corrections(
        self, profiled: Sequence[StepSummary], measured_s: Sequence[float], targets: Sequence[StepSummary]
    ) -> list[Correction]:
        """Return the posterior residuals of steps of a workload measured on another accelerator.

        Args:
            targets: Modelled steps to correct, with the ``work`` of the profiled steps.
        """
        import numpy as np

        errors = np.log([m / step.modelled_s for m, step in zip(measured_s, profiled, strict=True)])
        mean, spread = self.prior([*profiled, *targets])
        mean, spread = posterior(mean, spread, range(len(profiled)), errors, noise=self.covariance_model.noise)
        variance = np.maximum(np.diag(spread), 0.0) + self.covariance_model.noise**2
        found = list(zip(mean, np.sqrt(variance), strict=True))[len(profiled) :]
        return [Correction(float(log), float(sd)) for log, sd in found]

    @staticmethod
    def from_json(data: dict[str, Any]) -> ErrorModel:
        """Read `transfer.json`; KeyError, TypeError or ValueError on anything else."""
        rows = data["library"]
        return ErrorModel(
            covariance_model=from_plain(ErrorCovariance, data["law"]),
            training_errors=TrainingErrors(
                steps=tuple(_step(row[:-1]) for row in rows), log_ratios=tuple(row[-1] for row in rows)
            ),
            ends={name: (low, high) for name, (low, high) in data["ends"].items()},
        )


def _step(row: Sequence[Any]) -> StepSummary:
    values = dict(zip(COLUMNS, row, strict=True))
    return StepSummary(**{**values, "parts_s": dict(zip(PARTS, values["parts_s"], strict=True))})


def predict_from_profile(
    profiled: Sequence[StepSummary],
    measured_s: Sequence[float],
    *,
    target: StepSummary,
    error_model: ErrorModel,
    note: str,
) -> StepTime:
    """Return the time of a step on an accelerator from measured steps of the workload on other accelerators."""
    correction = error_model.corrections(profiled, measured_s, [target])[0]
    scale = math.exp(correction.log_ratio)
    ends = error_model.ends["few" if len(profiled) <= 2 else "many"]
    low, high = (end * correction.spread for end in ends)
    parts_s = {name: part_s * scale for name, part_s in target.parts_s.items()}
    return StepTime(
        time_s=interval_around(target.modelled_s * scale, low, high),
        basis="modelled",
        limiter=find_limiter(parts_s),
        parts_s=parts_s,
        note=note,
    )


@cache
def load_error_model(path: Path | None = None) -> ErrorModel:
    """Read the packaged error model, or that of a file; see `read_fitted`."""
    return read_fitted("transfer.json", path, ErrorModel.from_json, what="transfer coefficients")
