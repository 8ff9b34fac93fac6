"""Everything that depends on the published rows, rebuilt together."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, cast

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.coefficients import load_coefficients
from gpuplan.predict.data_parallel import load_parallel_coefficients
from gpuplan.predict.from_profile.error_model import load_error_model
from gpuplan.predict.intervals import TimeBreakdown
from gpuplan.predict.measured_run import load_measured_workload
from gpuplan.predict.measurements import Measurement, load_published_measurements
from gpuplan.workload.model import Workload

from lab import dataset, recalibrate
from lab.calibrate import Calibration, build_measured_index, is_plain_fit
from lab.cross_validation import CrossValidation, LabelledSample, predict_sample_s
from lab.dataset import read_published_file
from lab.kernel_store import build_run_key, encode_store, load_store
from lab.multi_device.data import find_packaged_facts, scaling_facts_to_json
from lab.recalibrate import PARTS, rebuild_profiles, rebuild_traces, write_profiles

PROFILES = Path(str(resources.files("gpuplan.profiles")))


def few_rows() -> list[Measurement]:
    """Return two networks on two GPUs at two batch sizes, and a collection of steps on several GPUs."""
    chosen = [
        m
        for m in read_published_file("profet_keras_aws")
        if m.architecture in ("mnist_cnn", "lenet5")
        and m.accelerator in ("T4", "V100-16GB")
        and m.batch_size in (16, 256)
    ]
    return [*chosen, *read_published_file("tensorpack_benchmarks")]


def fake_calibration(samples: Sequence[LabelledSample], *_: object, **__: object) -> Calibration:
    """Return the packaged coefficients as if they had been fitted, with and without each architecture."""
    packaged = load_coefficients()
    groups = tuple(e.measurement.family for e in samples)
    models = CrossValidation(
        samples=tuple(samples),
        groups=groups,
        breakdowns=(TimeBreakdown(1.0, 0.0, 0.0, 0.0),) * len(samples),
        predicted_s=tuple(predict_sample_s(e.fit_sample, packaged) for e in samples),
        fits=cast("Any", dict.fromkeys(groups, packaged)),
    )
    return Calibration(
        coefficients=packaged, fitted=cast("Any", packaged), models=models, chips=models, sources=models
    )


def quiet(_: str) -> None:
    """Ignore progress."""


def test_the_packaged_index_is_of_the_packaged_rows() -> None:
    """The look-up table holds what ran as a user's own `fit` would, and is what `calibrate` makes today.

    It is not: a vendor's container, PyTorch, several devices, inference, a CPU.
    """
    corpus = load_published_measurements()
    index = build_measured_index(corpus, load_store())
    assert index == json.loads((PROFILES / "measured_steps.json").read_text())
    assert {m.collection for m in corpus if is_plain_fit(m)} == {"profet_keras_aws", "profet_mobilenet"}


def test_the_packaged_kernels_and_gradients_come_out_again() -> None:
    """Written from what was read, both are the same to the byte."""
    packed = (PROFILES / "published" / "kernels.json.gz").read_bytes()
    assert gzip.decompress(encode_store(load_store())) == gzip.decompress(packed)

    several = [m for m in load_published_measurements() if m.mode == "train" and m.devices > 1]
    gradients = json.loads((PROFILES / "gradients.json").read_text())
    assert scaling_facts_to_json(several, lambda m: pytest.fail(m.model), known=find_packaged_facts) == gradients


def test_only_runs_that_are_not_packaged_are_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row with a new batch size is traced and joined to the others; rows that are gone take theirs along."""
    kept, changed, *_ = (m for m in few_rows() if m.architecture == "mnist_cnn" and m.accelerator == "T4")
    new = replace(changed, batch_size=3)
    traced: list[Measurement] = []

    def load(m: Measurement) -> Workload:
        traced.append(m)
        return load_measured_workload(m)

    monkeypatch.setattr(dataset, "load_measured_workload", load)
    traces, gradients, files = rebuild_traces([kept, new], progress=quiet)

    assert traced == [new]
    assert set(traces) == {build_run_key(kept), build_run_key(new)}
    assert traces[build_run_key(kept)] == load_store()[build_run_key(kept)]
    assert gradients["facts"] == []
    assert list(files) == list(PARTS)[:2]
    assert set(json.loads(gzip.decompress(files["published/kernels.json.gz"]))["runs"]) == set(traces)


def test_one_command_makes_everything_that_belongs_together_with_a_fake_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small corpus gives all files, in order; each is read by what reads the packaged one.

    Only the fit of the coefficients, half a minute of compilation each, is a fake.
    """
    monkeypatch.setattr(recalibrate, "calibrate", fake_calibration)
    begun: list[str] = []
    files = rebuild_profiles(few_rows(), load_catalog().accelerators, progress=quiet, part=begun.append)
    assert begun == list(files) == list(PARTS)

    write_profiles(files, tmp_path)
    coefficients = load_coefficients(tmp_path / "efficiency.json")
    assert coefficients.shared == load_coefficients().shared
    assert load_error_model(tmp_path / "transfer.json").training_errors.steps
    assert load_parallel_coefficients(tmp_path / "parallel.json")["all_reduce"].fitted_on["rows"] > 0
    kernels = json.loads(gzip.decompress((tmp_path / "published" / "kernels.json.gz").read_bytes()))
    assert set(kernels["runs"]) < set(load_store())
    assert not list(tmp_path.rglob(".*"))
