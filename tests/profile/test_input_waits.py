"""Throughput of the input of `fit()`, from the time of its batches by a clock that counts readings."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from factories import make_workload
from gpuplan.predict.from_profile.predictor import read_profile_rows
from gpuplan.profile.document import complete_profile, create_profile, create_row
from gpuplan.profile.input_pipeline import InputWaits
from keras.src.trainers.epoch_iterator import EpochIterator

BATCH_S = 0.05  # between two readings of the counted clock [s]


class Batches(keras.utils.PyDataset):
    """Twenty batches of 8 samples."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return np.ones((8, 2), "float32"), np.ones((8, 1), "float32")


def create_counted_clock() -> Callable[[], float]:
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += BATCH_S
        return now_s

    return clock


def watch(data: Any, **fit: Any) -> InputWaits:
    """Return the waits of an epoch of real batches, each of which takes `BATCH_S` by the clock."""
    waits = InputWaits(create_counted_clock())
    iterator = EpochIterator(data, **fit)
    waits.watch(iterator, "jax")
    assert sum(1 for _ in iterator) == 20
    return waits


def generate() -> Any:
    return (Batches()[0] for _ in itertools.count())


@pytest.mark.parametrize(("data", "workers"), [(Batches(), 1), (generate(), None)])
def test_preparation_in_the_loop_is_the_rate(data: Any, workers: int | None) -> None:
    """However long the step takes: the loop prepares one batch at a time."""
    found = watch(data, steps_per_epoch=20).build_record(batch_size=8, step_s=10.0)
    assert found is not None
    assert found["samples_per_s"] == pytest.approx(8 / BATCH_S)
    assert found["workers"] == workers


def test_workers_are_known_only_where_the_step_waits_for_them() -> None:
    """Their rate is that of the steps; a step that hardly waits says only that they are faster."""
    waits = watch(Batches(workers=2))
    starved = waits.build_record(batch_size=8, step_s=0.08)
    assert starved is not None
    assert (starved["samples_per_s"], starved["workers"]) == (pytest.approx(8 / 0.08), 2)
    assert waits.build_record(batch_size=8, step_s=0.2) is None


def test_arrays_and_tensorflow_are_not_watched() -> None:
    """Arrays need no preparation; TensorFlow takes batches inside its loop."""
    arrays = watch(np.ones((160, 2), "float32"), batch_size=8)
    assert arrays.build_record(batch_size=8, step_s=0.05) is None
    other, iterator = InputWaits(), EpochIterator(Batches())
    other.watch(iterator, "tensorflow")
    assert sum(1 for _ in iterator) == 20
    assert other.build_record(batch_size=8, step_s=0.05) is None


def test_a_starved_run_corrects_no_other_machine() -> None:
    """Its step is mostly waiting: only its rate counts elsewhere."""
    document = create_profile(model="m", mode="train", backend="jax", data="script", rules={}, source="step_timer")
    record = watch(Batches()).build_record(batch_size=8, step_s=0.06)
    assert record is not None
    row = create_row(status="measured", batch_size=8)
    row |= {"precision": "float32", "fit": {"median_s": 0.06}, "pipeline": [record], "workload": 0}
    document |= {"rows": [row], "accelerator": "T4", "devices": 1}
    completed = complete_profile(document)
    assert completed["rows"][0]["limit"] == "input"
    assert "160 samples/s" in completed["rows"][0]["findings"][0]
    completed["workloads"] = [make_workload().to_json()]
    (read,) = read_profile_rows(completed, source="timer.json")
    assert read.starved
    assert read.loading is not None
    assert read.loading.samples_per_s == pytest.approx(160)
