"""Covariance of the model's errors between accelerators, fitted on residuals of published workloads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from gpuplan.predict.from_profile.error_covariance import (
    ErrorCovariance,
    StepFeatures,
    winsorize,
    within_workload_covariance,
)

LEARNT = ("level", "wiggle_common", "wiggle_own", "wiggle_length", "noise")
PRIOR_LOG = 1.0  # prior spread of each standard deviation around its start, in log units
FLOOR = 1e-9  # keeps a covariance invertible [log units squared]


def fit_error_covariance(features: StepFeatures, log_ratios: Sequence[float]) -> ErrorCovariance:
    """Fit the covariance within workloads by maximum a posteriori; the term between workloads is not fitted.

    Workloads are treated as independent, as a new workload is: residuals are not explained by similar workloads,
    so that more weight is left to the profile of the new workload.

    Args:
        features: Steps of workloads, most of them measured on several accelerators.
        log_ratios: log(measured / modelled) of each.
    """
    import numpy as np
    from scipy.optimize import minimize

    stacks = _by_size(features, winsorize(log_ratios))
    start = _pack(ErrorCovariance())

    def loss(logs: Any) -> float:
        covariance_model = _unpack(logs)
        prior = 0.5 * float((((logs - start) / PRIOR_LOG) ** 2).sum())
        return prior + sum(_negative_log_likelihood(covariance_model, *stack) for stack in stacks)

    found = minimize(
        loss, start, method="L-BFGS-B", bounds=[(s - 3.0, s + 3.0) for s in start], options={"maxiter": 25}
    )
    return _rounded(_unpack(np.asarray(found.x)))


def _by_size(features: StepFeatures, errors: Any) -> list[tuple[StepFeatures, Any]]:
    """Return the workloads stacked by their number of steps: arrays of [workloads, steps, ...]."""
    import numpy as np

    groups: dict[int, list[Any]] = {}
    for work in np.unique(features.work):
        rows = np.flatnonzero(features.work == work)
        groups.setdefault(len(rows), []).append(rows)
    stacks = [np.array(rows) for rows in groups.values()]
    return [(features[rows], errors[rows]) for rows in stacks]


def _negative_log_likelihood(covariance_model: ErrorCovariance, features: StepFeatures, errors: Any) -> float:
    """Return the negative log likelihood of independent workloads (Rasmussen & Williams 2006, equation 2.30)."""
    import numpy as np

    size = errors.shape[-1]
    spread = within_workload_covariance(covariance_model, features, features) + (
        covariance_model.noise**2 + FLOOR
    ) * np.eye(size)
    root = np.linalg.cholesky(spread)
    scaled = np.linalg.solve(root, errors[..., None])
    return float(0.5 * (scaled**2).sum() + np.log(np.diagonal(root, axis1=-2, axis2=-1)).sum())


def _pack(covariance_model: ErrorCovariance) -> Any:
    import numpy as np

    return np.log(
        [*covariance_model.common, *covariance_model.own, *(getattr(covariance_model, name) for name in LEARNT)]
    )


def _unpack(logs: Any) -> ErrorCovariance:
    values = [math.exp(value) for value in logs]
    a, b, c, d, e, f, g, h, *rest = values
    return replace(
        ErrorCovariance(), common=(a, b, c, d), own=(e, f, g, h), **dict(zip(LEARNT, rest, strict=True))
    )


def _rounded(covariance_model: ErrorCovariance) -> ErrorCovariance:
    def short(value: Any) -> Any:
        return tuple(map(short, value)) if isinstance(value, list | tuple) else float(f"{value:.4g}")

    return ErrorCovariance(**{name: short(value) for name, value in asdict(covariance_model).items()})
