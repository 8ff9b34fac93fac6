"""Rows outside the fit: inference, several devices from a modelled step, TPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.coefficients import Coefficients, load_coefficients
from gpuplan.predict.intervals import TimeBreakdown
from gpuplan.predict.measurements import Measurement, load_published_measurements

from lab.cross_validation import CrossValidation, predict_sample_s
from lab.dataset import build_samples, read_published_file
from lab.extrapolation import (
    model_pairs,
    predict_inference,
    predict_new_accelerators,
    select_inference_rows,
    select_multi_gpu_rows,
    select_tpu_rows,
)
from lab.multi_device.data import pair_measurements

ACCELERATORS = load_catalog().accelerators
SLOWER = 2.0


def quiet(_: str) -> None:
    """Ignore progress."""


def slower(coefficients: Coefficients) -> Coefficients:
    """Return coefficients by which every host takes twice as long for everything."""
    hosts = {
        name: replace(
            host,
            fixed_s=host.fixed_s * SLOWER,
            dispatch_s=host.dispatch_s * SLOWER,
            feed_bytes_per_s=host.feed_bytes_per_s / SLOWER,
        )
        for name, host in coefficients.hosts.items()
    }
    return replace(coefficients, hosts=hosts)


def held_out_by(name_of: Callable[[Measurement], str], marked: str) -> CrossValidation:
    """Return fits of Torch7's rows in which the one without a name can be told from the others."""
    rows = [m for m in read_published_file("cnn_benchmarks_cloud") if m.mode == "train"]
    samples = tuple(build_samples(rows, ACCELERATORS, progress=quiet))
    groups = tuple(name_of(m) for m in rows)
    packaged = load_coefficients()
    fits = {group: slower(packaged) if group == marked else packaged for group in {"", *groups}}
    return CrossValidation(
        samples=samples,
        groups=groups,
        predicted_s=tuple(e.fit_sample.step_s for e in samples),
        breakdowns=(TimeBreakdown(1.0, 0.0, 0.0, 0.0),) * len(samples),
        fits=cast("dict[str, Any]", fits),
    )


@pytest.fixture(scope="module")
def without_resnet50() -> CrossValidation:
    """Fits of which the one without ResNet-50 believes in hosts that are half as fast."""
    return held_out_by(lambda m: m.family, "resnet50")


def test_each_architecture_is_inferred_by_the_fit_without_it(without_resnet50: CrossValidation) -> None:
    """ResNet-50 by the marked fit, the others by theirs, one that was never fitted by the fit of everything."""
    rows = [
        m for m in select_inference_rows(load_published_measurements()) if m.collection == "cnn_benchmarks_cloud"
    ]
    other = next(m for m in select_inference_rows(load_published_measurements()) if m.family == "inception_bn")
    found = predict_inference(without_resnet50, [*rows, other], ACCELERATORS, progress=quiet)

    packaged = load_coefficients()
    for sample, predicted_s in zip(found.samples, found.predicted_s, strict=True):
        fit = slower(packaged) if sample.measurement.family == "resnet50" else packaged
        assert predicted_s == pytest.approx(predict_sample_s(sample.fit_sample, fit))
    assert {m.family for m in rows} > {"resnet50"}
    assert set(found.baseline_s) == {"flops_ratio", "bandwidth_ratio", "datasheet_roofline"}


def test_inference_of_a_network_it_knows_is_a_third_of_training_or_less(without_resnet50: CrossValidation) -> None:
    """No backward pass and no optimizer are in the forward pass: it moves half the bytes at most."""
    known = {(e.measurement.model, e.measurement.accelerator): e for e in without_resnet50.samples}
    rows = [m for m in read_published_file("cnn_benchmarks_cloud") if m.mode == "infer"]
    assert rows
    for sample in build_samples(rows, ACCELERATORS, progress=quiet):
        training = known[sample.measurement.model, sample.measurement.accelerator].fit_sample.table
        table = sample.fit_sample.table
        assert (table.flops * table.count).sum() < 0.4 * (training.flops * training.count).sum()
        assert (table.bytes_moved * table.count).sum() < 0.5 * (training.bytes_moved * training.count).sum()


def test_several_devices_begin_at_the_modelled_step_without_their_source() -> None:
    """Every pair's step on one device is what the fit without its publisher says, not what was published."""
    rows = [
        m for m in select_multi_gpu_rows(load_published_measurements()) if m.collection == "tensorpack_benchmarks"
    ]
    validation = held_out_by(lambda m: "tensorpack_benchmarks", "tensorpack_benchmarks")
    pairs = model_pairs(validation, rows, ACCELERATORS, name_of=lambda m: m.origin, progress=quiet)
    samples = {id(e.measurement): e for e in build_samples(rows, ACCELERATORS, progress=quiet)}

    assert len(pairs) > 10
    for pair in pairs:
        modelled_s = predict_sample_s(samples[id(pair.measurement)].fit_sample, load_coefficients())
        assert pair.single_s == pytest.approx(modelled_s)


def test_tpus_are_predicted_from_their_datasheets(without_resnet50: CrossValidation) -> None:
    """All four rows, by the interval of datasheets; the batch of a chip, on four chips."""
    corpus = load_published_measurements()
    small = [pair for pair in pair_measurements(corpus, ACCELERATORS)[0] if pair.measurement.origin == "dlperf"]
    intervals = load_coefficients().intervals
    found = predict_new_accelerators(
        without_resnet50, select_tpu_rows(corpus), ACCELERATORS, scaling=small, intervals=intervals, progress=quiet
    )

    rows = [replace(m, waits=False) for m in select_tpu_rows(corpus)]
    awake = predict_new_accelerators(
        without_resnet50, rows, ACCELERATORS, scaling=small, intervals=intervals, progress=quiet
    )

    assert {row.measurement.accelerator for row in found} == {"TPU-v2", "TPU-v3"}
    assert len(found) == 4
    for row, other in zip(found, awake, strict=True):
        waits = 1.4 if row.measurement.family == "bert" else 1.0
        assert row.predicted_s.mid == pytest.approx(waits * other.predicted_s.mid)
    for row in found:
        assert row.basis == "datasheet"
        assert row.predicted_s.low < row.predicted_s.mid < row.predicted_s.high
