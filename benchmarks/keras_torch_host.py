"""Host times of Keras on PyTorch, fitted on the steps that were timed on an H200 (`profiles/measured`).

    python benchmarks/keras_torch_host.py

Prints each step with its prediction by the other eleven, and the times fitted on all of them: the constants of
`planner/predict/keras_defaults.py`. Exit code 1 when those differ by more than 5 %. Tracing takes a minute.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.accuracy import predict_traced_row
from gpuplan.predict.coefficients import HostCoefficients, SharedCoefficients
from gpuplan.predict.keras_defaults import DISPATCH_S, STEP_S
from gpuplan.predict.measured_run import load_measured_workload
from gpuplan.predict.measurements import Measurement, read_measurements
from gpuplan.predict.modelled_step import model_step
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.roofline import compute_step_s, count_dispatches
from scipy.optimize import least_squares

from lab.campaign_rows import ROOT, read_profiles, write_csv

PROFILE = ROOT / "profiles" / "measured" / "nvidia-h200-torch.json"
START = (40e-6, 5e-3)  # of a dispatch and of a step [s]
ROBUST_LOG = 0.15  # scale of the soft L1 loss, as in the fit of the packaged coefficients
NEAR = 0.05


class HostStep(NamedTuple):
    """A measured step and its modelled time without the host.

    Args:
        name: Its model.
        measured_s: Measured time [s].
        device_s: Modelled time of its kernels [s].
        dispatches: Kernels that the host dispatches [-].
        shared: Fitted shared coefficients.
    """

    name: str
    measured_s: float
    device_s: float
    dispatches: float
    shared: SharedCoefficients

    def compute_log_error(self, logs: Sequence[float]) -> float:
        """Return log(predicted / measured) at the logarithms of both times [-]."""
        dispatch_s, rest_s = map(math.exp, logs)
        predicted_s = compute_step_s(
            device_s=self.device_s,
            launches=self.dispatches,
            input_bytes=0.0,
            pressure=0.0,
            host=HostCoefficients(fixed_s=rest_s, dispatch_s=dispatch_s, feed_bytes_per_s=math.inf),
            shared=self.shared,
            xp=np,
        )
        return math.log(predicted_s / self.measured_s)


def describe_step(m: Measurement, predictor: Predictor) -> HostStep:
    """Return a measured step with the modelled time of its kernels."""
    accelerator, coefficients = load_catalog().accelerators[m.accelerator], predictor.coefficients
    _, sample = predict_traced_row(m, load_measured_workload(m), accelerator, predictor)
    if sample is None:
        raise SystemExit(f"{m.model} has no prediction")
    return HostStep(
        name=f"{Path(m.model).name} {m.batch_size}",
        measured_s=m.step_s,
        device_s=float(model_step(sample, coefficients).kernels_s.sum()),
        dispatches=count_dispatches(sample.table, compiled=False),
        shared=coefficients.shared,
    )


def describe_steps(predictor: Predictor) -> list[HostStep]:
    """Return all measured steps; the models of a file of rows are found from its folder."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        write_csv(path, read_profiles([PROFILE]))
        return [describe_step(m, predictor) for m in read_measurements(path)]


def fit(steps: Sequence[HostStep]) -> Any:
    """Return the logarithms of the time of a dispatch and of the rest of a step, by a robust fit."""
    return least_squares(
        lambda logs: [step.compute_log_error(logs) for step in steps],
        [math.log(start_s) for start_s in START],
        loss="soft_l1",
        f_scale=ROBUST_LOG,
    ).x


def main() -> int:
    """Print errors with each step left out, and the times; return 1 when the packaged ones are others."""
    steps = describe_steps(Predictor.load())
    errors = []
    for step in steps:
        rest = [other for other in steps if other is not step]
        errors.append(math.expm1(step.compute_log_error(fit(rest))))
        print(f"{step.name}: {1e3 * step.measured_s:.1f} ms, predicted without it {errors[-1]:+.0%}")
    sizes = [abs(error) for error in errors]
    print(f"left out: median {statistics.median(sizes):.0%}, mean {statistics.mean(sizes):.0%}")
    found = [math.exp(log) for log in fit(steps)]
    print(f"fitted on all: {1e6 * found[0]:.1f} us a dispatch, {1e3 * found[1]:.2f} ms a step beside")
    return int(any(abs(a / b - 1.0) > NEAR for a, b in zip(found, (DISPATCH_S, STEP_S), strict=True)))


if __name__ == "__main__":
    sys.exit(main())
