"""Published steps of language models on TPU slices: fit of what matrix units reach, with networks left out.

The constants that it prints are those of `gpuplan.predict.systolic_array`, and `matmul_share` of TPU v6e in the
catalog. Tracing takes some minutes on two cores, the first time.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.measurements import load_published_measurements
from gpuplan.predict.predictor import Predictor

sys.path.append(str(Path(__file__).parents[1]))  # where lab/ is
from lab.dataset import trace_measured_rows
from lab.systolic_fit import (
    SystolicShares,
    build_systolic_steps,
    fit_systolic,
    load_shares,
    predict_left_out_s,
    predict_systolic_s,
    select_fitted_rows,
)

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

    networks = np.array([one.network for one in steps])
    measured_s = np.array([one.measurement.step_s for one in steps])
    show("at datasheet rates", predict_systolic_s(steps, DATASHEET) / measured_s - 1.0)
    show("packaged constants", predict_systolic_s(steps, load_shares()) / measured_s - 1.0)
    left_out = predict_left_out_s(steps) / measured_s - 1.0
    show("network left out", left_out)
    for network in sorted(set(networks)):
        show(f"left out: {network}", left_out[networks == network])


if __name__ == "__main__":
    main()
