"""Number of epochs until a metric reaches a target, extrapolated from a short history.

Learning curves are fitted with a power law of three parameters, metric = limit + gain * epoch^-decay (J. Hestness
et al., Deep Learning Scaling is Predictable, Empirically, 2017, arXiv:1712.00409, eq. 1; T. Domhan et al., IJCAI
2015, call it pow3). It is valid for a constant learning rate and unchanged data: a drop of the learning rate or
overfitting ends its validity.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from ..records import parse_json

SCHEMA = "gpuplan.epochs/1"
FEWEST_EPOCHS = 5  # three parameters and two residual degrees of freedom [-]
FURTHEST = 20.0  # limit of the extrapolation as a multiple of the observed epochs [-]
DRAWS = 200
SHARES = ("accuracy", "auc", "precision", "recall", "f1", "iou")  # metrics with a maximum of 1
_DECAYS = tuple(0.05 * 1.15**n for n in range(33))  # 0.05 ... 4.4


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochForecast:
    """Number of epochs until a metric reaches a target.

    Args:
        metric: Name of the metric in the history.
        target: Target value.
        seen: Epochs in the history [-].
        epochs: Central estimate, counted from the first epoch; None if it cannot be determined [-].
        low, high: Bounds of the 80 % interval; `high` is None if the target may never be reached [-].
        limit: Limit of the fitted curve; None without a fit.
        reason: Basis of the estimate, or the reason why there is none.
    """

    metric: str
    target: float
    seen: int
    epochs: int | None
    low: int | None = None
    high: int | None = None
    limit: float | None = None
    reason: str


def read_history(path: Path) -> dict[str, list[float]]:
    """Read the metrics of a history by name: `History.history` as JSON, or a CSV file of `CSVLogger`.

    Raises:
        UsageError: The file cannot be read or has another format.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            data = parse_json(text)
            data = data.get("history", data) if isinstance(data, dict) else data
            history = {name: [float(value) for value in values] for name, values in data.items()}
        else:
            rows = list(csv.DictReader(text.splitlines()))
            history = {
                name: [float(row[name]) for row in rows] for name in (rows[:1] or [{}])[0] if name != "epoch"
            }
        if not history:
            raise ValueError("it has no metrics")
    except OSError as problem:
        raise UsageError(f"cannot read `{path}`: {problem.strerror}", hint="name another file") from problem
    except (ValueError, TypeError, AttributeError, KeyError) as problem:
        raise UsageError(
            f"`{path}` is not a training history: {problem}",
            hint="give `History.history` as JSON, or a file written by `CSVLogger`",
        ) from problem
    return history


def forecast_epochs(history: Mapping[str, Sequence[float]], *, metric: str, target: float) -> EpochForecast:
    """Forecast the number of epochs until a metric reaches a target.

    Raises:
        UsageError: An unknown metric, or values that are not finite.
    """
    if metric not in history:
        raise UsageError(
            f"no metric `{metric}` in the history", hint=f"its metrics are {', '.join(sorted(history))}"
        )
    values = list(history[metric])
    if not all(math.isfinite(value) for value in values):
        raise UsageError(f"`{metric}` has values that are not finite", hint="remove diverged epochs")
    falling = "loss" in metric or "error" in metric or (len(values) > 1 and values[-1] < values[0])
    reached = next((n for n, v in enumerate(values, 1) if (v <= target if falling else v >= target)), None)
    forecast = partial(EpochForecast, metric=metric, target=target, seen=len(values))
    if reached is not None:
        return forecast(epochs=reached, low=reached, high=reached, reason="reached in the history itself")
    if len(values) < FEWEST_EPOCHS:
        why = f"{len(values)} epochs are too few: {FEWEST_EPOCHS} are needed"
        return forecast(epochs=None, reason=f"unknown: {why}")
    return _extrapolate(values, metric, target, forecast, falling=falling)


def _extrapolate(
    values: list[float], metric: str, target: float, forecast: Callable[..., EpochForecast], *, falling: bool
) -> EpochForecast:
    sign, furthest = 1.0 if falling else -1.0, FURTHEST * len(values)
    seen = np.array(values) * sign  # decreasing for every metric
    is_share = any(name in metric.lower() for name in SHARES) and max(values) <= 1.0
    floor = -1.0 if is_share else -math.inf
    limit, gain, decay = _fit(seen, floor=floor)
    if gain <= 1e-6 * max(1.0, abs(limit)):
        return forecast(epochs=None, reason="unknown: the metric does not improve over the history")
    fitted = limit + gain * np.arange(1, len(values) + 1) ** -decay
    center = _reach(limit, gain, decay, sign * target)
    if center is None or center > furthest:
        level = f"the curve levels off at {sign * limit:.4g}"
        why = level if center is None else "the target lies too far beyond the history"
        return forecast(epochs=None, limit=sign * limit, reason=f"unknown: {why}")
    low, high = _interval(fitted, seen - fitted, sign * target, floor=floor, furthest=furthest)
    epochs = math.ceil(center)
    return forecast(
        epochs=epochs,
        low=min(math.ceil(low), epochs),
        limit=sign * limit,
        high=None if high is None else max(math.ceil(high), epochs),
        reason="power law fitted to the history; valid while learning rate and data stay the same",
    )


def _fit(falling: Any, *, floor: float) -> tuple[float, float, float]:
    """Fit limit (not below the floor), gain and decay of the power law, with weights that grow with the epoch."""
    coarse = _fit_at(falling, np.array(_DECAYS), floor)[2]
    return _fit_at(falling, coarse * 1.02 ** np.arange(-6, 7), floor)


def _fit_at(falling: Any, decays: Any, floor: float) -> tuple[float, float, float]:
    """Return limit, gain and decay of the best of some decays: linear least squares for each."""
    epochs = np.arange(1, len(falling) + 1)
    weights, powers = epochs / len(epochs), epochs ** -decays[:, None]
    mean, mean_power = np.average(falling, weights=weights), np.average(powers, axis=1, weights=weights)
    centered = powers - mean_power[:, None]
    gain = (centered * (falling - mean)) @ weights / (centered**2 @ weights)
    limit = mean - gain * mean_power
    at_floor = (powers * (falling - floor)) @ weights / (powers**2 @ weights) if math.isfinite(floor) else gain
    gain, limit = np.where(limit < floor, at_floor, gain), np.maximum(limit, floor)
    error = (limit[:, None] + gain[:, None] * powers - falling) ** 2 @ weights
    best = int(np.argmin(error))
    return float(limit[best]), float(gain[best]), float(decays[best])


def _reach(limit: float, gain: float, decay: float, target: float) -> float | None:
    """Return the epoch at which a decreasing power law reaches a target, (gain / (target - limit))^(1 / decay)."""
    if target <= limit or gain <= 0.0:
        return None
    return float((gain / (target - limit)) ** (1.0 / decay))


def _interval(
    fitted: Any, residuals: Any, target: float, *, floor: float, furthest: float
) -> tuple[float, float | None]:
    """Return the bounds of the 80 % interval by a bootstrap over the residuals."""
    generator = np.random.default_rng(0)
    count = len(fitted)
    spread = residuals * math.sqrt(count / max(1, count - 3))
    reached = []
    for _ in range(DRAWS):
        again = _reach(*_fit(fitted + generator.choice(spread, count), floor=floor), target)
        reached.append(math.inf if again is None or again > furthest else max(again, count + 1.0))
    low, high = (float(np.sort(reached)[int(share * (DRAWS - 1))]) for share in (0.1, 0.9))
    return min(low, furthest), None if math.isinf(high) else high
