"""Throughput of pipelines that take a known time a batch, pulled without training."""

from __future__ import annotations

import os
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from gpuplan.workload.capture import feeding
from gpuplan.workload.capture.feeding import InputMeter, find_kind
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.model import InputRate
from gpuplan.workload.options import WorkloadOptions

BATCH_S, BATCH = 0.02, 8


@dataclass
class FakeClock:
    """Time that passes only where it is told to."""

    now_s: float = 0.0

    def __call__(self) -> float:
        """Return the time [s]."""
        return self.now_s


class SlowData(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of eight, each of which takes 20 ms of a clock."""

    def __init__(self, clock: FakeClock, *, batches: int = 100) -> None:
        super().__init__(workers=1)
        self.clock, self.batches, self.asked = clock, batches, 0

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        self.clock.now_s += BATCH_S
        return np.zeros((BATCH, 4), "float32"), np.zeros((BATCH, 1), "float32")


def test_the_rate_of_a_dataset_is_that_of_its_batches() -> None:
    """8 samples in 20 ms are 400 a second; one batch and twenty more, once for all calls with the same data."""
    clock = FakeClock()
    data, meter = SlowData(clock), InputMeter(clock)
    found = meter.measure({"x": data})

    assert found is not None
    assert (found.kind, found.workers, found.batches) == ("PyDataset", 1, 20)
    assert found.samples_per_s == pytest.approx(BATCH / BATCH_S)
    assert found.host_cores is not None
    assert data.asked == 21
    assert meter.measure({"x": data}) is found
    assert data.asked == 21


def test_a_short_dataset_is_read_again() -> None:
    """Three batches an epoch: the rate is the same."""
    clock = FakeClock()
    found = InputMeter(clock).measure({"x": SlowData(clock, batches=3)})

    assert found is not None
    assert found.samples_per_s == pytest.approx(BATCH / BATCH_S)
    assert found.batches == 20


def test_a_generator_is_read_no_farther_than_its_run() -> None:
    """Of five steps the last three are timed: Keras reads two of a generator to see what they are."""
    clock, taken = FakeClock(), []

    def batches() -> Iterator[Any]:
        while True:
            taken.append(clock.now_s)
            clock.now_s += BATCH_S
            yield np.zeros((BATCH, 4), "float32"), np.zeros((BATCH, 1), "float32")

    found = InputMeter(clock).measure({"x": batches(), "steps_per_epoch": 5}, steps=5)

    assert found is not None
    assert (found.kind, found.workers) == ("generator", None)
    assert found.samples_per_s == pytest.approx(BATCH / BATCH_S)
    assert (found.batches, len(taken)) == (3, 5)


def test_a_pipeline_that_blocks_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second batch comes in time: its rate is unknown, and the script goes on."""
    monkeypatch.setattr(feeding, "MOST_S", 0.2)
    wait = threading.Event()

    def batches() -> Iterator[Any]:
        yield np.zeros((BATCH, 4)), np.zeros((BATCH, 1))
        wait.wait(60)

    found = InputMeter().measure({"x": batches()})
    wait.set()

    assert found is not None
    assert (found.kind, found.samples_per_s, found.batches) == ("generator", None, 0)


def test_a_pipeline_that_fails_and_a_script_out_of_time_have_no_rate() -> None:
    """An error of the user's code is none of the plan; after 5 s of a script no other pipeline is measured."""

    def broken() -> Iterator[Any]:
        yield np.zeros((BATCH, 4)), np.zeros((BATCH, 1))
        raise ValueError("no more")

    clock = FakeClock()
    meter = InputMeter(clock)
    failed = meter.measure({"x": broken()})
    clock.now_s = 10.0
    meter._left_s = 0.0
    late = SlowData(clock)

    assert failed is not None
    assert failed.samples_per_s is None
    assert meter.measure({"x": late}) == InputRate(kind="PyDataset", workers=1, host_cores=failed.host_cores)
    assert late.asked == 0


def test_arrays_and_stand_ins_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays need no preparation; stand-ins are no pipeline of the user's."""
    clock = FakeClock()
    monkeypatch.setattr(feeding, "data_is_replaced", threading.Event())

    assert InputMeter().measure({"x": np.zeros((8, 4))}) == InputRate(kind="arrays")
    assert [find_kind(data) for data in ({"a": np.zeros(3)}, [np.zeros(3)], iter([]))] == [
        "arrays",
        "arrays",
        "generator",
    ]
    feeding.data_is_replaced.set()
    assert InputMeter(clock).measure({"x": SlowData(clock)}) is None


SCRIPT = """
import time
import keras, numpy as np
class Data(keras.utils.PyDataset):
    def __len__(self):
        return 50
    def __getitem__(self, index):
        time.sleep(0.05)
        return np.zeros((8, 4), "float32"), np.zeros((8, 1), "float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(Data(), epochs=2)
model.fit(np.zeros((16, 4)), np.zeros((16, 1)), epochs=3)
"""


@pytest.mark.parametrize("measured", [True, False])
def test_the_input_of_each_phase_of_a_script(tmp_path: Path, *, measured: bool) -> None:
    """At most 8 / 0.05 s = 160 samples a second, and then arrays; `--feed` measures nothing."""
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    options = WorkloadOptions(use_cache=False, measures_input=measured)
    first, second = (one.input for one in load_workload("train.py", options=options, base=tmp_path).phases)

    if not measured:
        assert (first, second) == (None, None)
        return
    assert first is not None
    assert first.samples_per_s is not None
    assert 20 < first.samples_per_s <= 160
    assert second == InputRate(kind="arrays")
