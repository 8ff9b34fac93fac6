"""The interval of inference calls is made of the errors on inference calls."""

from __future__ import annotations

import math
from collections import Counter

from gpuplan.lab.cross_validation import predict_sample_s
from gpuplan.lab.dataset import build_samples
from gpuplan.lab.extrapolation import select_inference_rows
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.coefficients import load_coefficients
from gpuplan.predict.interval.inference import inference_log_bounds, load_inference_intervals
from gpuplan.predict.measurements import load_published_measurements


def test_the_interval_holds_four_fifths_of_what_was_published() -> None:
    """627 calls on K80 to A100, each architecture weighing the same: the packaged fit has seen most of them.

    The interval is of errors on publishers that were left out, which are larger: 80 % lie inside at least.
    """
    rows = select_inference_rows(load_published_measurements())
    coefficients, (low, high) = load_coefficients(), load_inference_intervals()["keras"]
    samples = build_samples(rows, load_catalog().accelerators, progress=lambda _: None)
    counts = Counter(row.family for row in rows)
    logs = [math.log(e.fit_sample.step_s / predict_sample_s(e.fit_sample, coefficients)) for e in samples]
    inside = sum(
        1.0 / counts[row.family] for row, log in zip(rows, logs, strict=True) if low <= log <= high
    ) / len(counts)

    assert len(rows) >= 600
    assert inside >= 0.8


def test_a_time_from_a_datasheet_may_be_off_by_both() -> None:
    """Modelled: what inference was off; from a datasheet: the outer end of that and of training on such chips."""
    low, high = load_inference_intervals()["keras"]

    assert inference_log_bounds((-0.1, 0.1), "modelled", "keras") == (low, high)
    assert inference_log_bounds((-2.0, 2.0), "datasheet", "keras") == (-2.0, 2.0)
    assert inference_log_bounds((-0.1, 0.1), "datasheet", "keras") == (min(low, -0.1), max(high, 0.1))
