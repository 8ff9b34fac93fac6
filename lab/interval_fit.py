"""Fit of the scale of residuals, and its quantiles on unseen publishers (cross-conformal prediction)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpuplan.predict.intervals import FEATURES, IntervalModel

from .quantiles import compute_nested_log_bounds

RIDGE = 0.02  # weight of the squared slopes beside the mean loss of a residual: about one in fifty residuals
LEAST_LOG = 0.01  # smallest absolute residual that counts: the noise of repeated measurements is 1 %

# Widening for vendors without a published step in the fit, as a factor of the scale: an assumption, since no
# residual of such a chip exists. Published shares of the matrix peak of AMD's and NVIDIA's chips are 0.51 to 0.60
# and 0.73 to 0.87 (catalog/accelerators.toml, `matmul_share`), a factor of 1.5 apart.
OTHER_VENDOR_LOG = math.log(1.5)


class FeaturedResidual(NamedTuple):
    """Residual of a held-out step with the features of its scale.

    Args:
        log: log(measured / predicted) [-].
        group: Held-out group, a publisher or an architecture: all of it is unseen together.
        features: See `compute_features`.
    """

    log: float
    group: str
    features: Mapping[str, float]


def fit_interval_model(residuals: Sequence[FeaturedResidual]) -> IntervalModel:
    """Return the scale of residuals and the quantiles that cover 80 % of an unseen group.

    The scale minimizes the weighted negative log likelihood of a Laplace distribution, |r| / s + log s, with a
    ridge penalty on the slopes. A group with n residuals has the weight sqrt(n): between counting rows, where one
    publisher of Keras steps decides, and counting publishers, where single rows do.

    Args:
        residuals: At least one, of two or more groups for a width that holds for another one.
    """
    import numpy as np
    from scipy.optimize import minimize

    counts = Counter(one.group for one in residuals)
    weights = np.array([counts[one.group] ** -0.5 for one in residuals])
    weights /= weights.sum()
    design = np.array([[1.0, *(one.features[name] for name in FEATURES)] for one in residuals])
    sizes = np.maximum(np.abs([one.log for one in residuals]), LEAST_LOG)

    def loss(parameters: Any) -> tuple[float, Any]:
        logs = design @ parameters
        share = weights * sizes * np.exp(-logs)
        penalty = np.concatenate([[0.0], 2.0 * RIDGE * parameters[1:]])
        value = share.sum() + weights @ logs + RIDGE * (parameters[1:] ** 2).sum()
        return float(value), design.T @ (weights - share) + penalty

    start = np.zeros(design.shape[1])
    start[0] = np.log(weights @ sizes)
    found = minimize(loss, start, jac=True, method="L-BFGS-B").x
    slopes = dict(zip(FEATURES, map(float, found[1:]), strict=True)) | {"other vendor": OTHER_VENDOR_LOG}
    scaled = [one.log / scale for one, scale in zip(residuals, np.exp(design @ found), strict=True)]
    low, high = compute_nested_log_bounds(
        [float(one) for one in scaled],
        [one.group for one in residuals],
        similarity=[counts[one.group] ** 0.5 for one in residuals],
    )
    return IntervalModel(intercept=float(found[0]), slopes=slopes, low=low, high=high)
