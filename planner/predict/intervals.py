"""Prediction intervals from calibration residuals: quantiles, and scales that follow the kind of step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..records import Frozen
from ..units import Interval
from .kernel_table import CONTRACTIONS, DEPTHWISE, find_products
from .measurements import NEWEST_SOFTWARE, SCALAR_EPOCH, SCALAR_PLATEAU


class TimeBreakdown(NamedTuple):
    """Shares of the time of a modelled step, with sum 1 [-]."""

    convolutions: float  # convolutions
    products: float  # matrix products and fused attention
    traffic: float  # other kernels, bound by memory
    waiting: float  # remainder: host, dispatch and input
    depthwise: float = 0.0  # the part of convolutions that is depthwise, or grouped and computed alike


def compute_time_breakdowns(category: Any, kernels_s: Any, steps_s: Any) -> list[TimeBreakdown]:
    """Return the time breakdowns of steps with the same kernels.

    Args:
        category: Category of each kernel as index into `CATEGORIES`, array of [kernels].
        kernels_s: Total time of all launches of each kernel, array of [steps, kernels] [s].
        steps_s: Time of each step, array of [steps] [s].
    """
    import numpy as np

    is_rest = category >= len(CONTRACTIONS)
    is_product = find_products(category)
    kinds = np.array([~is_product & ~is_rest, is_product, is_rest, category == DEPTHWISE], float)
    parts_s = kinds @ kernels_s.T
    device_s = parts_s[:3].sum(axis=0)
    all_s = np.maximum(steps_s, device_s)
    convolutions, products, traffic, depthwise = parts_s / all_s
    columns = (convolutions, products, traffic, 1.0 - device_s / all_s, depthwise)
    return [TimeBreakdown(*shares) for shares in np.stack(columns, axis=1).tolist()]


# Features of the logarithm of the scale. Shares of the step's time by kind of work and unit, and what the step is.
FEATURES = (
    "tensor convolutions",
    "tensor products",
    "scalar convolutions",
    "scalar products",
    "depthwise",
    "waiting",
    "inference",
    "compiled",
    "compiled inference",
    "unmeasured chip",
    "unmeasured stack",
    "before Pascal",
    "software age",
    "step size",
    "known publisher",
    "other vendor",
)
# First year of Pascal (P100). Most published steps on older chips are of software that no longer supports them.
PASCAL_YEAR = 2016
# Range of the size of a step whose logarithm is a feature: nine tenths of the published steps lie in it [s].
SIZES_S = (1e-3, 1.0)
# Widest interval of a data-centre GPU of NVIDIA since Volta, high over low [-].
WIDEST = 3.0


def interval_around(mid_s: float, log_low: float, log_high: float) -> Interval:
    """Return the interval [mid * exp(min(log_low, 0)), mid * exp(max(log_high, 0))], which contains mid [s]."""
    return Interval(low=mid_s * math.exp(min(log_low, 0.0)), mid=mid_s, high=mid_s * math.exp(max(log_high, 0.0)))


def compute_features(
    breakdown: TimeBreakdown,
    *,
    on_tensor_units: bool,
    mode: str,
    compiled: bool,
    step_s: float,
    chip_year: int,
    is_chip_measured: bool,
    is_stack_measured: bool = True,
    software_year: float = NEWEST_SOFTWARE,
    is_publisher_known: bool = False,
    is_vendor_measured: bool = True,
) -> dict[str, float]:
    """Return the features of a modelled step, by name [-].

    Args:
        compiled: Whether it is one program.
        chip_year, software_year: When the chip came out, and when the framework was released [years].
        is_chip_measured, is_stack_measured, is_publisher_known, is_vendor_measured: Whether the fit knows steps of
            the same one; the publisher never for a user's own.
    """
    unit = "tensor" if on_tensor_units else "scalar"
    found = dict.fromkeys(FEATURES, 0.0)
    found[f"{unit} convolutions"] = breakdown.convolutions
    found[f"{unit} products"] = breakdown.products
    found["depthwise"] = breakdown.depthwise
    found["waiting"] = breakdown.waiting
    found["inference"] = float(mode == "infer")
    found["compiled"] = float(compiled)
    found["compiled inference"] = found["inference"] * found["compiled"]
    found["unmeasured chip"] = float(not is_chip_measured)
    found["unmeasured stack"] = float(not is_stack_measured)
    found["before Pascal"] = float(chip_year < PASCAL_YEAR)
    found["software age"] = SCALAR_PLATEAU - min(max(software_year, SCALAR_EPOCH), SCALAR_PLATEAU)
    found["step size"] = math.log10(min(max(step_s, SIZES_S[0]), SIZES_S[1]))
    found["known publisher"] = float(is_publisher_known)
    found["other vendor"] = float(not is_vendor_measured)
    return found


class IntervalModel(Frozen):
    """Fitted scale of residuals, and quantiles of residuals over their scale."""

    intercept: float  # logarithm of the scale of a step without features [-]
    slopes: Mapping[str, float]  # slope of the logarithm by feature [-]
    # low, high: 10th and 90th percentile of residuals over their scale on unseen publishers [-]
    low: float
    high: float

    def compute_scale(self, features: Mapping[str, float]) -> float:
        """Return the scale exp(intercept + sum of slope * feature) [-]."""
        return math.exp(self.intercept + sum(self.slopes[name] * value for name, value in features.items()))

    def compute_interval(
        self, mid_s: float, features: Mapping[str, float], *, bound_s: float = 0.0, widest: float = math.inf
    ) -> Interval:
        """Return the 80 % interval around a predicted time.

        Args:
            bound_s: Physical bound of the time, below which the interval does not reach [s].
            widest: Largest ratio of high to low [-].
        """
        scale = self.compute_scale(features)
        narrowed = min(1.0, math.log(widest) / ((self.high - self.low) * scale))
        found = interval_around(mid_s, self.low * scale * narrowed, self.high * scale * narrowed)
        low = min(max(found.low, bound_s), mid_s)
        return Interval(low=low, mid=mid_s, high=found.high)
