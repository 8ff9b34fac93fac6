"""Published steps of language models on TPU slices: fit of what matrix units reach, with networks left out.

The constants that it prints are those of `gpuplan.predict.device.systolic_array.SHARES`. Tracing takes some
minutes on two cores, the first time.
"""

from __future__ import annotations

import sys

import numpy as np
from gpuplan.lab.dataset import trace_measured_rows
from gpuplan.lab.systolic_fit import (
    SystolicStep,
    build_systolic_steps,
    fit_systolic,
    predict_systolic_s,
    select_fitted_rows,
)
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.device.systolic_array import SHARES, SystolicShares
from gpuplan.predict.measurements import load_published_measurements
from gpuplan.predict.predictor import Predictor

DATASHEET = SystolicShares(products={"": 1.0}, attention=1.0)


def main() -> None:
    """Print the constants, and the error of each network."""
    rows = select_fitted_rows(load_published_measurements())
    trace = trace_measured_rows(rows, progress=lambda line: print(line, file=sys.stderr))
    steps = build_systolic_steps(rows, trace, load_catalog().accelerators, Predictor.load())
    print(f"fitted on {len(steps)} steps: {fit_systolic(steps)}")
    print("\n| steps | number | mean | bias |\n| --- | --: | --: | --: |")

    def show(name: str, found: np.ndarray) -> None:
        print(f"| {name} | {len(found)} | {np.abs(found).mean():.1%} | {found.mean():+.1%} |")

    def errors(some: list[SystolicStep], shares: SystolicShares) -> np.ndarray:
        return predict_systolic_s(some, shares) / [one.measurement.step_s for one in some] - 1.0

    show("at datasheet rates", errors(steps, DATASHEET))
    show("packaged constants", errors(steps, SHARES))
    found = {}
    for network in sorted({one.network for one in steps}):
        shares = fit_systolic([one for one in steps if one.network != network])
        found[network] = errors([one for one in steps if one.network == network], shares)
    show("network left out", np.concatenate(list(found.values())))
    for network, own in found.items():
        show(f"left out: {network}", own)


if __name__ == "__main__":
    main()
