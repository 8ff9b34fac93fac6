"""Keras's hooks really fire, in real runs of `fit()` and `predict()` on JAX; test_backends.py has the others."""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from typing import Any

import keras
import numpy as np
import pytest
from gpuplan.profile import recorder as recorder_module
from gpuplan.profile.child import MeasuredModel, measure_model
from gpuplan.profile.recorder import PredictRecorder, StepRecorder
from gpuplan.profile.windows import MeasurementRules, Meter

RULES = MeasurementRules(window_s=0.01, warm_up_s=0.1, least_s=0.05, most_s=0.2)
X = np.random.default_rng(0).random((320, 8), dtype=np.float32)
Y = X.sum(axis=1, keepdims=True)


def small_model(**compiled: Any) -> Any:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", **compiled)
    return model


def test_every_step_is_counted_in_every_epoch() -> None:
    """Ten batches in each of three epochs, validation apart, threads or not."""
    recorder = StepRecorder(Meter(RULES))
    small_model().fit(X, Y, batch_size=32, epochs=3, validation_data=(X, Y), verbose=0, callbacks=[recorder])

    assert [epoch.steps for epoch in recorder.epochs] == [10, 10, 10]
    assert all(epoch.validation_s > 0 for epoch in recorder.epochs)
    assert all(e.began_s < (e.first_s or 0) <= (e.last_s or 0) < (e.ended_s or 0) for e in recorder.epochs)
    assert recorder.train_ended_s is not None
    assert (recorder.first_step_s or 0) > 5 * (recorder.epochs[1].first_s or 0) - 5 * recorder.epochs[1].began_s


def test_callbacks_stay_asynchronous() -> None:
    """Keras dispatches callbacks in threads as long as all of them are `async_safe`: this one keeps it so."""
    callbacks = keras.callbacks.CallbackList([StepRecorder(Meter(RULES))], model=small_model())

    assert callbacks._async_train


def test_several_steps_an_execution_are_counted_as_steps() -> None:
    """`steps_per_execution=5`: two calls an epoch, ten steps."""
    recorder = StepRecorder(Meter(RULES))
    small_model(steps_per_execution=5).fit(X, Y, batch_size=32, epochs=2, verbose=0, callbacks=[recorder])

    assert [epoch.steps for epoch in recorder.epochs] == [10, 10]


def test_weights_are_what_they_are_without_it() -> None:
    """Taking the time changes nothing that is learnt."""
    weights = []
    for callbacks in ([], [StepRecorder(Meter(RULES))]):
        keras.utils.set_random_seed(0)
        model = small_model()
        model.fit(X, Y, batch_size=32, epochs=3, verbose=0, shuffle=False, callbacks=callbacks)
        weights.append([np.asarray(w) for w in model.get_weights()])

    for without, with_it in zip(*weights, strict=True):
        np.testing.assert_array_equal(without, with_it)


def test_a_meter_with_enough_ends_the_run() -> None:
    """`fit()` of a million epochs returns."""
    recorder = StepRecorder(Meter(RULES), stop=True)
    small_model().fit(X, Y, batch_size=32, epochs=10**6, verbose=0, callbacks=[recorder])

    assert recorder.meter.done


@pytest.mark.slow
def test_a_run_ended_early_starts_few_steps_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX would have started some thirty steps before the fourth has ended."""
    monkeypatch.setattr(recorder_module, "MAX_TIME_AHEAD_S", 0.0)
    wide = [keras.layers.Dense(2048) for _ in range(2)]
    model = keras.Sequential([keras.Input((8,)), *wide, keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    recorder = StepRecorder(Meter(RULES), most_steps=4)
    x = np.zeros((256 * 200, 8), np.float32)
    model.fit(x, x[:, :1], batch_size=256, verbose=0, callbacks=[recorder])

    assert 4 <= recorder.epochs[0].steps <= 4 + recorder_module.MAX_STEPS_AHEAD


def test_a_step_that_fails_ends_the_run() -> None:
    """Its result never comes; the loop does not wait for it for good."""

    class Failing(keras.callbacks.Callback):
        async_safe = True

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            raise RuntimeError("no result")

    recorder = StepRecorder(Meter(RULES), stop=True)
    with pytest.raises(RuntimeError, match="no result"):
        small_model().fit(X, Y, batch_size=8, verbose=0, callbacks=[Failing(), recorder])


def test_predictions_are_counted() -> None:
    """Ten batches."""
    recorder = PredictRecorder(Meter(MeasurementRules(window_s=1e-9, settle_windows=2, settle_within=1e9)))
    small_model().predict(X, batch_size=32, verbose=0, callbacks=[recorder])
    meter = recorder.meter

    assert len(meter.warm) + sum(meter.counts) == 9


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_a_model_is_measured_in_its_loop_and_alone(mode: Any) -> None:
    """The step alone is no slower than the loop around it, give or take a busy machine."""
    told: list[str] = []
    subject = MeasuredModel(model=small_model(), data=(X, Y, None), batch_size=32, backend="jax", mode=mode)
    row = measure_model(subject, rules=RULES, tell=lambda phase, meter: told.append(phase))

    assert set(told) == {"fit", "step"}
    assert 0 < row["step"]["median_s"] < 3 * row["fit"]["median_s"]
    assert row["prepare"]["compile_s"] > row["fit"]["median_s"]
    assert row["memory"]["host_peak_bytes"] > 50e6
    assert len(row["fit"]["windows_s"]) == row["fit"]["windows"]
