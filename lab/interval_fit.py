"""Fit of the scale of residuals, and its quantiles on unseen publishers (cross-conformal prediction)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpuplan.predict.intervals import FEATURES, IntervalModel

from .quantiles import compute_nested_log_bounds

RIDGES = (0.02, 0.005, 0.08)  # weights of the squared slopes beside the mean loss of a residual, to choose from
# features to choose from
OPTIONAL = ("depthwise", "compiled inference", "before Pascal", "software age", "step size", "unmeasured stack")
NEWTON_STEPS, NEWTON_END = 30, 1e-6
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
    publisher of Keras steps decides, and counting publishers, where single rows do. The penalty and the features
    among `OPTIONAL` are those with the highest likelihood of groups left out in turn among these residuals.

    Args:
        residuals: At least one, of two or more groups for a width that holds for another one.
    """
    import numpy as np

    scale = _Scale(residuals)
    found = scale.fit(scale.choose(), scale.weights)
    slopes = dict(zip(FEATURES, map(float, found[1:]), strict=True)) | {"other vendor": OTHER_VENDOR_LOG}
    scaled = [one.log / size for one, size in zip(residuals, np.exp(scale.design @ found), strict=True)]
    counts = Counter(one.group for one in residuals)
    low, high = compute_nested_log_bounds(
        [float(one) for one in scaled],
        [one.group for one in residuals],
        similarity=[counts[one.group] ** 0.5 for one in residuals],
    )
    return IntervalModel(intercept=float(found[0]), slopes=slopes, low=low, high=high)


class _Form(NamedTuple):
    """Chosen form of a scale: the ridge penalty, and the features without a slope."""

    ridge: float
    left_out: frozenset[str] = frozenset()


class _Scale:
    """Logarithm of the scale as a linear function of the features, and the data that it is fitted to."""

    def __init__(self, residuals: Sequence[FeaturedResidual]) -> None:
        import numpy as np

        counts = Counter(one.group for one in residuals)
        self.groups = np.array([one.group for one in residuals])
        self.design = np.array([[1.0, *(one.features[name] for name in FEATURES)] for one in residuals])
        self.weights = np.array([counts[one.group] ** -0.5 for one in residuals])
        self._sizes = np.maximum(np.abs([one.log for one in residuals]), LEAST_LOG)

    def choose(self) -> _Form:
        """Return the form under which groups left out in turn are likeliest, one choice after another."""
        chosen = _Form(RIDGES[0])
        if not self.design[:, 1:].any() or len(set(self.groups)) < 2:
            return chosen
        least = self._compute_unseen_loss(chosen)
        for ridge in RIDGES[1:]:
            chosen, least = self._keep_better(chosen, least, chosen._replace(ridge=ridge))
        for name in OPTIONAL:
            chosen, least = self._keep_better(chosen, least, chosen._replace(left_out=chosen.left_out | {name}))
        return chosen

    def _keep_better(self, chosen: _Form, least: float, other: _Form) -> tuple[_Form, float]:
        loss = self._compute_unseen_loss(other)
        return (other, loss) if loss < least else (chosen, least)

    def _compute_unseen_loss(self, form: _Form) -> float:
        """Return the weighted negative log likelihood of each group by the scale of all others."""
        import numpy as np

        total = 0.0
        for group in sorted(set(self.groups)):
            own = self.groups == group
            logs = self.design[own] @ self.fit(form, np.where(own, 0.0, self.weights))
            total += float(self.weights[own] @ (self._sizes[own] * np.exp(-logs) + logs))
        return total

    def fit(self, form: _Form, weights: Any) -> Any:
        """Return intercept and slopes for some weights of the residuals, by Newton's method with halved steps."""
        import numpy as np

        used = np.array([True, *(name not in form.left_out for name in FEATURES)])
        design, weights = self.design[:, used], weights / weights.sum()
        penalty = np.full(design.shape[1], 2.0 * form.ridge)
        penalty[0] = 0.0

        def loss(parameters: Any) -> float:
            logs = design @ parameters
            return float(weights @ (self._sizes * np.exp(-logs) + logs) + 0.5 * penalty @ parameters**2)

        found = np.zeros(design.shape[1])
        found[0] = np.log(weights @ self._sizes)
        for _ in range(NEWTON_STEPS):
            share = weights * self._sizes * np.exp(-(design @ found))
            slope = design.T @ (weights - share) + penalty * found
            step = -np.linalg.solve((design * share[:, None]).T @ design + np.diag(penalty), slope)
            before = loss(found)
            while loss(found + step) > before and np.abs(step).max() > NEWTON_END:
                step = 0.5 * step
            found = found + step
            if np.abs(step).max() < NEWTON_END:
                break
        parameters = np.zeros(len(used))
        parameters[used] = found
        return parameters
