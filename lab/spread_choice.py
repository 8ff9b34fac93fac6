"""Choice of prior spreads by cross-validation of the rows of one fit; what is left out of it is not looked at.

Each group of rows (a publisher, of our own steps a network) is left out in turn. A fit for every group and every
spread would take days, so the fit is linearized where it ended: without a group and with other spreads it moves by
one Gauss-Newton step (approximate cross-validation: Beirami et al., 2017, "On Optimal Generalizability in
Parametric Learning", NeurIPS).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .priors import ROBUST_LOG

FACTORS = (0.5, 2.0, 4.0)  # of a spread in `priors.py`; 1 is tried first
REWEIGHTED = 2  # Gauss-Newton steps, between which the robust weights of the priors are renewed


@dataclass(frozen=True, kw_only=True)
class LinearizedFit:
    """A fit near the point where its search ended.

    Args:
        residuals: log(predicted / measured), array of [rows].
        slopes: Of the residuals, array of [rows, columns].
        groups: Group of each row; all of it is left out together.
        point, start, low, high, spread, robust: End of the search, its start, bounds, prior spreads and scales of
            the robust loss, arrays of [columns].
        classes: Class of spreads of each column; "" for spreads that are not chosen.
    """

    residuals: Any
    slopes: Any
    groups: Sequence[str]
    point: Any
    start: Any
    low: Any
    high: Any
    spread: Any
    robust: Any
    classes: Sequence[str]

    @cached_property
    def _rows(self) -> dict[str, list[int]]:
        return {group: [i for i, own in enumerate(self.groups) if own == group] for group in set(self.groups)}

    @cached_property
    def _sums(self) -> dict[str, tuple[Any, Any]]:
        """Curvature and slope of the loss of each group's rows, each row weighted as the robust loss does."""
        import numpy as np

        weights = 1.0 / np.sqrt(1.0 + (self.residuals / ROBUST_LOG) ** 2) / ROBUST_LOG**2
        found = {}
        for group, rows in self._rows.items():
            weighted = self.slopes[rows] * weights[rows, None]
            found[group] = (weighted.T @ self.slopes[rows], weighted.T @ self.residuals[rows])
        return found

    def compute_errors(self, factors: Mapping[str, float]) -> Any:
        """Return the mean |log(predicted / measured)| of each left-out group times its weight, which add up.

        A group of n rows weighs sqrt(n).

        Args:
            factors: Of the prior spread, by class.
        """
        import numpy as np

        spread = self.spread * np.array([factors.get(name, 1.0) for name in self.classes])
        curvature, slope = (sum(each) for each in zip(*self._sums.values(), strict=True))
        errors, weights = [], []
        for group, (own_curvature, own_slope) in self._sums.items():
            step = self._find_step(curvature - own_curvature, slope - own_slope, spread)
            rows = self._rows[group]
            errors.append(np.abs(self.residuals[rows] + self.slopes[rows] @ step).mean())
            weights.append(len(rows) ** 0.5)
        return np.array(errors) * weights / np.sum(weights)

    def _find_step(self, curvature: Any, slope: Any, spread: Any) -> Any:
        """Return the Gauss-Newton step within the bounds, array of [columns]."""
        import numpy as np
        from scipy.linalg import solve

        step = np.zeros_like(self.point)
        for _ in range(REWEIGHTED):
            away = self.point + step - self.start
            pull = 1.0 / np.sqrt(1.0 + (away / spread / self.robust) ** 2) / spread**2
            matrix = curvature + np.diag(pull)
            step = solve(matrix, -slope - pull * (self.point - self.start), assume_a="pos", check_finite=False)
            step = np.clip(step, self.low - self.point, self.high - self.point)
        return step


def choose_factors(fit: LinearizedFit) -> dict[str, float]:
    """Return the factors of the prior spreads other than 1, by class; none where no groups can be left out.

    Classes are looked at one after another, in their order. Another spread has to be better by more than the
    standard error of the difference between groups, since some always seems better by chance (the rule of Breiman
    et al., 1984, "Classification and Regression Trees", section 3.4.3).
    """
    chosen: dict[str, float] = {}
    if len(set(fit.groups)) < 2:
        return chosen
    errors = fit.compute_errors(chosen)
    for name in filter(None, dict.fromkeys(fit.classes)):
        others = {factor: fit.compute_errors(chosen | {name: factor}) for factor in FACTORS}
        factor = min(others, key=lambda one: others[one].sum())
        gains = errors - others[factor]
        if gains.sum() > ((gains - gains.mean()) ** 2).sum() ** 0.5:
            chosen[name], errors = factor, others[factor]
    return chosen
