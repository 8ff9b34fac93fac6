"""80 % prediction intervals from held-out residuals log(measured / predicted)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

LEVEL = 0.8
TAIL = (1.0 - LEVEL) / 2.0
TAILS = tuple(TAIL * step / 20.0 for step in range(20, -1, -1))
NEAR = 0.01


def weighted_quantile(values: Sequence[float], weights: Sequence[float], probability: float) -> float:
    """Return the weighted quantile: the smallest v with sum(w_i : x_i <= v) >= p * sum(w_i).

    There is no interpolation: the outer value is taken, as in split conformal prediction (Lei et al., 2018,
    "Distribution-Free Predictive Inference for Regression", JASA 113, doi:10.1080/01621459.2017.1307116).

    Args:
        values: x, at least one value, in any order.
        weights: w, positive, one per value, of any scale.
        probability: p, 0..1 [-].

    Example:
        >>> weighted_quantile([1.0, 2.0, 3.0], [1.0, 1.0, 2.0], 0.5)
        2.0
    """
    ordered = sorted(zip(values, weights, strict=True))
    target = probability * sum(weights)
    reached = 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= target - 1e-12:
            return value
    return ordered[-1][0]


def equal_weights(groups: Iterable[str]) -> list[float]:
    """Return weights that sum to 1 over each group: 1 / (rows of the group) [-]."""
    names = list(groups)
    sizes = Counter(names)
    return [1.0 / sizes[name] for name in names]


def union(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Return the bounds of the smallest interval that contains both intervals.

    Example:
        >>> union((-0.1, 0.3), (-0.2, 0.1))
        (-0.2, 0.3)
    """
    return min(one[0], other[0]), max(one[1], other[1])


def compute_log_bounds(
    log_ratios: Sequence[float], groups: Sequence[str], *, tail: float = TAIL, similarity: Sequence[float] = ()
) -> tuple[float, float]:
    """Return the 10th and 90th percentile of residuals with equal total weight of every group.

    Args:
        log_ratios: Residuals log(measured / predicted) [-].
        groups: Group of each residual.
        tail: Share outside the interval on either side [-].
        similarity: Positive weight of each residual within its group (localized conformal prediction: Guan, 2023,
            Biometrika 110, doi:10.1093/biomet/asac040); empty: equal weights [-].
    """
    weights = equal_weights(groups)
    if similarity:
        weights = [weight * factor for weight, factor in zip(weights, similarity, strict=True)]
    low = -weighted_quantile([-log for log in log_ratios], weights, 1.0 - tail)
    return low, weighted_quantile(log_ratios, weights, 1.0 - tail)


def _ends(
    logs: Sequence[float], groups: Sequence[str], tail: float, similarity: Sequence[float]
) -> tuple[float, float]:
    return union((0.0, 0.0), compute_log_bounds(logs, groups, tail=tail, similarity=similarity))


def _coverages(logs: Sequence[float], groups: Sequence[str], similarity: Sequence[float]) -> list[float]:
    """Return for each of `TAILS` the mean coverage of a group by the interval from all other groups [-]."""
    import numpy as np

    log, group = np.array(logs), np.array(groups)
    count = np.array(similarity) if similarity else np.ones(len(logs))
    weight = np.array(equal_weights(groups)) * count
    shares, of_groups = [], []
    for held in sorted(set(groups)):
        own = group == held
        highs = np.maximum(_quantiles(log[~own], weight[~own]), 0.0)
        lows = np.minimum(-_quantiles(-log[~own], weight[~own]), 0.0)
        inside = (lows[:, None] <= log[own]) & (log[own] <= highs[:, None])
        shares.append(inside @ count[own] / count[own].sum())
        of_groups.append(count[own].mean())
    return [float(share) for share in np.average(shares, axis=0, weights=of_groups)]


def _quantiles(values: Any, weights: Any) -> Any:
    """Return `weighted_quantile` at 1 - each of `TAILS`, array of [tails]."""
    import numpy as np

    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    targets = (1.0 - np.array(TAILS)) * reached[-1] - 1e-12
    return values[order][np.minimum(np.searchsorted(reached, targets), len(order) - 1)]


def compute_nested_log_bounds(
    log_ratios: Sequence[float], groups: Sequence[str], *, similarity: Sequence[float] = ()
) -> tuple[float, float]:
    """Return the bounds of residuals that cover 80 % of an unseen group, by nested cross-validation.

    Percentiles of few groups are too narrow for another group. Each group in turn is left out, and the narrowest
    percentiles are taken that cover the left-out groups 80 % of the time on average (the idea of cross-conformal
    prediction: Vovk, 2015, "Cross-conformal predictors", Ann. Math. Artif. Intell. 74,
    doi:10.1007/s10472-013-9368-4). For a single group the result is its own percentiles.

    Args:
        log_ratios: Residuals log(measured / predicted) [-].
        groups: Group of each residual; all groups have equal total weight.
        similarity: See `compute_log_bounds`. A left-out group is weighted by the mean of its rows. Rows with a
            weight below `NEAR` are ignored (if there are no others, all rows have equal weight), because the
            bounds of a few groups are extremes, where a row counts in full however small its weight [-].
    """
    near = (
        [row for row in zip(log_ratios, groups, similarity, strict=True) if row[2] >= NEAR] if similarity else []
    )
    if near:
        log_ratios, groups, similarity = zip(*near, strict=True)
    else:
        similarity = ()
    if len(set(groups)) == 1:
        return _ends(log_ratios, groups, TAIL, similarity)
    held = zip(TAILS, _coverages(log_ratios, groups, similarity), strict=True)
    return _ends(log_ratios, groups, next((tail for tail, share in held if share >= LEVEL), 0.0), similarity)
