"""Intervals of modelled steps: a scale by features, quantiles of unseen groups, a physical bound."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.accelerator_limits import is_modern_data_center_gpu
from gpuplan.predict.coefficients import load_coefficients
from gpuplan.predict.intervals import FEATURES, WIDEST, IntervalModel, TimeBreakdown, compute_features
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.step_time import StepTime
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.model import Workload
from gpuplan.workload.options import WorkloadOptions

ACCELERATORS = load_catalog().accelerators
BLANK = dict.fromkeys(FEATURES, 0.0)
FLAT = IntervalModel(intercept=math.log(0.1), slopes=BLANK, low=-1.0, high=2.0)


def test_bounds_by_hand() -> None:
    """Scale 0.1, quantiles -1 and 2: exp(-0.1) and exp(0.2) around the time."""
    found = FLAT.compute_interval(10.0, BLANK)

    assert (found.low, found.high) == pytest.approx((10 * math.exp(-0.1), 10 * math.exp(0.2)))


def test_features_multiply_the_scale() -> None:
    """A slope of log 2 doubles the logarithmic width."""
    model = IntervalModel(
        intercept=math.log(0.1), slopes={**BLANK, "unmeasured chip": math.log(2)}, low=-1.0, high=1.0
    )
    known, unknown = (model.compute_scale({**BLANK, "unmeasured chip": flag}) for flag in (0.0, 1.0))

    assert unknown == pytest.approx(2 * known)


def test_an_interval_never_reaches_below_the_physical_bound_or_excludes_its_middle() -> None:
    """A bound between low and mid lifts low; one above mid, of a prediction that is too fast, only to mid."""
    assert FLAT.compute_interval(10.0, BLANK, bound_s=9.5).low == 9.5
    assert FLAT.compute_interval(10.0, BLANK, bound_s=12.0).low == 10.0


def test_a_widest_ratio_narrows_both_sides() -> None:
    """Width 0.3 in logs limited to log 1.2: both bounds shrink by the same factor."""
    found = FLAT.compute_interval(10.0, BLANK, widest=1.2)

    assert found.high / found.low == pytest.approx(1.2)
    assert math.log(found.high / 10) / math.log(10 / found.low) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("step_s", "chip_year", "size", "old"),
    [(0.1, 2016, -1.0, 0.0), (1e-5, 2015, -3.0, 1.0), (1e3, 2024, 0.0, 0.0)],
)
def test_features_tell_chips_before_pascal_and_the_size_within_that_of_published_steps(
    step_s: float, chip_year: int, size: float, old: float
) -> None:
    """A P100 is of 2016; sizes are logarithms of 1 ms to 1 s."""
    found = compute_features(
        TimeBreakdown(0.0, 0.0, 1.0, 0.0),
        on_tensor_units=False, mode="train", compiled=False, step_s=step_s, chip_year=chip_year,
        is_chip_measured=True,
    )  # fmt: skip
    assert (found["step size"], found["before Pascal"]) == (pytest.approx(size), old)


@pytest.mark.parametrize(("year", "age"), [(2025.5, 0.0), (2019.5, 1.0), (2016.0, 3.0)])
def test_software_ages_until_the_middle_of_2020(year: float, age: float) -> None:
    """By hand: 2020.5 less the year of the release, three years at most; a user's software is the newest."""
    facts: dict[str, Any] = {
        "on_tensor_units": False, "mode": "train", "compiled": False, "step_s": 1.0, "chip_year": 2017,
        "is_chip_measured": True,
    }  # fmt: skip
    found = compute_features(TimeBreakdown(0.0, 0.0, 1.0, 0.0), software_year=year, **facts)
    assert found["software age"] == age
    assert compute_features(TimeBreakdown(0.0, 0.0, 1.0, 0.0), **facts)["software age"] == 0.0


@pytest.fixture(scope="module")
def resnet50() -> Workload:
    """Return ResNet-50 at batch size 32."""
    return load_workload("ResNet50", options=WorkloadOptions(batch_size=32))


@pytest.mark.parametrize("precision", ["float32", "mixed_float16"])
def test_packaged_intervals_are_narrower_on_measured_chips_and_at_most_threefold(
    resnet50: Workload, precision: str
) -> None:
    """No data-centre GPU of NVIDIA since Volta has an interval of more than 3 (high over low)."""
    workload, predictor = replace(resnet50, precision=precision), Predictor.load()
    ratios = {}
    for name, accelerator in ACCELERATORS.items():
        step = predictor.step_time(workload, accelerator, look_up=False)
        if isinstance(step, StepTime) and is_modern_data_center_gpu(accelerator):
            ratios[name] = step.time_s.high / step.time_s.low
    assert len(ratios) > 15
    assert max(ratios.values()) <= WIDEST * (1 + 1e-9)
    assert max(ratios[name] for name in ("V100-16GB", "T4", "A100-40GB")) < min(ratios["B200"], ratios["B300"])


def test_the_unmeasured_chip_and_the_unmeasured_vendor_widen() -> None:
    """Packaged slopes: both are positive; a user's publisher is never known."""
    slopes = load_coefficients().intervals.slopes

    assert slopes["unmeasured chip"] > 0
    assert slopes["other vendor"] > 0
    assert slopes["known publisher"] == pytest.approx(0.0, abs=1e-6)
