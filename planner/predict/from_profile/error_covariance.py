"""Covariance of the model's residuals log(measured / modelled) between steps: a Gaussian process.

Rasmussen & Williams, 2006, "Gaussian Processes for Machine Learning", ISBN 026218253X, equations 2.23 and 2.24.
For steps i and j with shares s of compute, memory, launch and input time, batch size b and features f, the
covariance of the residuals is

    [same workload] (sum_p s_ip s_jp common_p^2 + [same chip] sum_p s_ip s_jp own_p^2 + level^2
                     + exp(-(ln b_i - ln b_j)^2 / (2 wiggle_length^2)) (wiggle_common^2 + [same chip]
                     wiggle_own^2))
    + exp(-|f_i - f_j|^2 / (2 alike_length^2)) (alike_common^2 + [same chip] alike_own^2)

where [x] is 1 if x holds, else 0. The first line is an error per kind of time, common to all accelerators or of
one accelerator, and an error of the workload as a whole; the second, a squared-exponential term in log batch size,
models changes of algorithms by libraries; the third couples similar steps of different workloads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...records import Frozen

PARTS = ("compute", "memory bandwidth", "launch", "input")

# Scales of the features: a factor e in time or batch size, a factor 4 in the size of a sample or in launches, a
# third of the time of the step.
LOG_STEP, LOG_BATCH, LOG_SAMPLE, LOG_LAUNCHES, SHARE = 1.0, 1.0, 1.4, 1.4, 0.33


class StepSummary(Frozen):
    """A modelled step with the properties that determine the covariance."""

    work: str  # name of the workload, independent of batch size and accelerator
    accelerator: str  # name of the chip
    batch_size: int  # samples per step [-]
    modelled_s: float  # modelled time [s]
    parts_s: dict[str, float]  # parts of the modelled time by the names in `PARTS` [s]
    input_bytes: float  # size of one batch [bytes]
    launches: float  # kernels in a step [-]


@dataclass(frozen=True, slots=True)
class StepFeatures:
    """Steps as arrays: `shares` [steps, 4], `features` [steps, features], the others [steps]."""

    work: Any
    accelerator: Any
    log_batch: Any
    shares: Any
    features: Any

    def __getitem__(self, rows: Any) -> StepFeatures:
        """Return the features of some steps, selected by an index array."""
        return StepFeatures(
            self.work[rows], self.accelerator[rows], self.log_batch[rows], self.shares[rows], self.features[rows]
        )


class ErrorCovariance(Frozen):
    """Standard deviations and length scales of the covariance function, in log units.

    The last three are not fitted: within 0.1 to 0.3, 0.1 to 0.3 and 1 to 2 the mean held-out error on PROFET's
    rows varies by less than half a point. The other defaults are the start of `fit_error_covariance`.
    """

    # error of each kind of time on all accelerators, in the order of `PARTS`
    common: tuple[float, float, float, float] = (0.3, 0.2, 0.3, 0.3)
    own: tuple[float, float, float, float] = (0.1, 0.1, 0.2, 0.2)  # error of each kind of time on one accelerator
    level: float = 0.1  # error of a workload as a whole on all accelerators
    # wiggle_common, wiggle_own: squared-exponential term in log batch size, on all and on one accelerator
    wiggle_common: float = 0.05
    wiggle_own: float = 0.05
    wiggle_length: float = 1.4  # length scale of that term
    noise: float = 0.04  # measurement noise
    # alike_common, alike_own: squared-exponential term in the features, on all and on one accelerator
    alike_common: float = 0.15
    alike_own: float = 0.1
    alike_length: float = 1.4  # length scale of that term, in units of the features


def build_features(steps: Sequence[StepSummary]) -> StepFeatures:
    """Return steps as NumPy arrays."""
    import numpy as np

    batch = np.array([step.batch_size for step in steps], float)
    sample_bytes = np.array([step.input_bytes for step in steps], float) / batch
    parts = np.array([[max(step.parts_s[name], 0.0) for name in PARTS] for step in steps]).reshape(-1, 4)
    shares = parts / parts.sum(axis=1, keepdims=True)
    columns = [
        np.log([step.modelled_s for step in steps]) / LOG_STEP,
        np.log(batch) / LOG_BATCH,
        np.log(np.maximum(sample_bytes, 1.0)) / LOG_SAMPLE,
        np.log(np.maximum([step.launches for step in steps], 1.0)) / LOG_LAUNCHES,
    ]
    return StepFeatures(
        work=np.array([step.work for step in steps]),
        accelerator=np.array([step.accelerator for step in steps]),
        log_batch=np.log(batch),
        shares=shares,
        features=np.column_stack([*columns, shares / SHARE]),
    )


def within_workload_covariance(
    covariance_model: ErrorCovariance, first: StepFeatures, second: StepFeatures
) -> Any:
    """Return the covariance within workloads, array of [..., first, second]; leading axes are workloads."""
    import numpy as np

    same_chip = first.accelerator[..., :, None] == second.accelerator[..., None, :]
    by_part = np.asarray(covariance_model.common) ** 2, np.asarray(covariance_model.own) ** 2
    mixed = [(first.shares * variance) @ np.swapaxes(second.shares, -1, -2) for variance in by_part]
    apart = (first.log_batch[..., :, None] - second.log_batch[..., None, :]) / covariance_model.wiggle_length
    wiggle = np.exp(-0.5 * apart**2) * (
        covariance_model.wiggle_common**2 + same_chip * covariance_model.wiggle_own**2
    )
    return mixed[0] + same_chip * mixed[1] + wiggle + covariance_model.level**2


def compute_covariance(covariance_model: ErrorCovariance, first: StepFeatures, second: StepFeatures) -> Any:
    """Return the noiseless covariance of the residuals of two lists of steps, array of [first, second]."""
    import numpy as np

    same_chip = first.accelerator[:, None] == second.accelerator[None, :]
    same_work = first.work[:, None] == second.work[None, :]
    a, b = first.features, second.features
    squared = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2.0 * a @ b.T
    alike = np.exp(-0.5 * np.maximum(squared, 0.0) / covariance_model.alike_length**2)
    return same_work * within_workload_covariance(covariance_model, first, second) + alike * (
        covariance_model.alike_common**2 + same_chip * covariance_model.alike_own**2
    )


def posterior(mean: Any, spread: Any, known: Sequence[int], values: Any, *, noise: float) -> tuple[Any, Any]:
    """Return the posterior mean and covariance given noisy observations.

    With prior mean m and covariance K, observations y at indices o, noise variance v and the gain
    G = K[:, o] (K[o, o] + v I)^-1: mean m + G (y - m[o]), covariance K - G K[o, :].

    Args:
        mean: m, array of [steps].
        spread: K, array of [steps, steps].
        known: o, indices of the observed steps.
        values: y, observed residuals, array of [known].
        noise: Standard deviation of a measurement, square root of v [log units].
    """
    import numpy as np

    rows = np.asarray(known, int)
    blurred = spread[np.ix_(rows, rows)] + noise**2 * np.eye(len(rows))
    gain = np.linalg.solve(blurred, spread[rows]).T
    return mean + gain @ (values - mean[rows]), spread - gain @ spread[rows]


WINSOR_LOG = 0.6  # bound of residuals, against outliers


def winsorize(log_ratios: Any) -> Any:
    """Return the residuals clipped to +- `WINSOR_LOG`."""
    import numpy as np

    return np.clip(np.asarray(log_ratios, float), -WINSOR_LOG, WINSOR_LOG)
