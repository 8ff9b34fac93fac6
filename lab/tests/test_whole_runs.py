"""Whole runs of MLPerf v0.5 ResNet-50: the published ones are all there, and the arithmetic from step to bill."""

from __future__ import annotations

import math

import pytest
from gpuplan.offers.catalog import load_catalog

from lab.end_to_end import SAMPLES, PredictedRun, load_published_runs, predict_runs

# MLPerf training v0.5, closed division, ResNet-50: seconds from start to target, median of five runs.
PUBLISHED_S = {
    "TPU-v2": 18_091.0, "TPU-v3": 11_005.1, "GCE 8xV100": 8_272.0, "DGX-1": 8_082.2, "DGX-2": 4_435.6,
    "DGX-2H": 4_201.8, "CPU": 626_817.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def judged() -> list[PredictedRun]:
    """The runs on GPUs that are for rent or were, from the kernels that ship with the program."""
    return predict_runs(
        [run for run in load_published_runs() if run.step.accelerator.startswith("V100")], load_catalog()
    )


def test_every_published_run_is_looked_at() -> None:
    """None is left out, however wrong it is predicted; epochs are what fits in the time at the published epoch."""
    runs = load_published_runs()
    assert sorted(run.run_s for run in runs) == sorted(PUBLISHED_S.values())
    for run in runs:
        if run.step.accelerator != "CPU":
            steps = math.ceil(SAMPLES / (run.step.batch_size * run.step.devices))
            assert 0.97 < run.step.step_s * steps * run.epochs / run.run_s <= 1.0


def test_gpu_runs_are_as_far_off_as_the_docs_say(judged: list[PredictedRun]) -> None:
    """MXNet on DGX-1, DGX-2, DGX-2H a twentieth to a sixth; TensorFlow on Google's 8 V100 a half."""
    errors = {one.run.step.host: one.error for one in judged}
    assert set(errors) == {"DGX-1", "GCE 8xV100", "DGX-2", "DGX-2H"}
    assert all(abs(errors[host]) <= 0.18 for host in ("DGX-1", "DGX-2", "DGX-2H"))
    assert abs(errors["DGX-2"]) <= 0.07
    assert abs(errors["GCE 8xV100"]) <= 0.52


def test_the_bill_follows_from_the_step(judged: list[PredictedRun]) -> None:
    """By hand: steps x step time, evaluation, the price of an hour; what surrounds it adds, and all adds up."""
    dgx = next(one for one in judged if one.run.step.host == "DGX-1")
    steps = math.ceil(SAMPLES / (208 * 8)) * 64
    assert dgx.predicted_s == pytest.approx(dgx.step_s * steps * (1 + 12_500 / SAMPLES / 3))
    one = dgx.billed
    assert one is not None
    assert one.bill is not None
    assert one.device_estimate.run.steps == steps
    training = next(line for line in one.bill.lines if line.item == "training")
    assert float(training.usd.mid) == pytest.approx(dgx.step_s * steps / 3600 * float(one.offer.usd_per_hour or 0))
    assert sum(float(line.usd.mid) for line in one.bill.lines) == pytest.approx(
        float(one.bill.total.mid), abs=1e-6
    )
