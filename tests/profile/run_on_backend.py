"""Run by test_backends.py in a process of its own: real runs on the backend of `KERAS_BACKEND`; prints JSON.

python run_on_backend.py FOLDER
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import gpuplan
import keras
import numpy as np
from gpuplan.profile.child import MeasuredModel, measure_model
from gpuplan.profile.machine import describe_environment
from gpuplan.profile.windows import MeasurementRules

RULES = MeasurementRules(window_s=0.01, warm_up_s=0.1, least_s=0.05, most_s=0.2)
X = np.random.default_rng(0).random((320, 8), dtype=np.float32)
Y = X.sum(axis=1, keepdims=True)


LOADING_S = 0.05


class SlowLoader(keras.utils.PyDataset):
    """Batches that take `LOADING_S` each to prepare."""

    def __len__(self) -> int:
        return 14

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        time.sleep(LOADING_S)
        return X[:32], Y[:32]


def model(**compiled: Any) -> Any:
    inputs = keras.Input((8,))
    built = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(4)(inputs)), name="tiny")
    built.compile(optimizer="sgd", loss="mse", **compiled)
    return built


def timed(folder: Path, built: Any, **fit: Any) -> dict[str, Any]:
    """Return the profile that StepTimer writes of a run."""
    timer = gpuplan.StepTimer(folder / "timer.json", predict=False)
    fed = {"x": X, "y": Y, "batch_size": 32} | fit.pop("fed", {})
    built.fit(**fed, verbose=0, callbacks=[timer, *fit.pop("more", ())], **fit)
    found: dict[str, Any] = json.loads((folder / "timer.json").read_text())
    return found


def weights_after(folder: Path, *, with_timer: bool) -> list[Any]:
    keras.utils.set_random_seed(0)
    built = model()
    callbacks = [gpuplan.StepTimer(None, predict=False, verbose=False)] if with_timer else []
    built.fit(X, Y, batch_size=32, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
    return [weight.tolist() for weight in built.get_weights()]


def main(folder: Path) -> dict[str, Any]:
    backend = keras.backend.backend()
    told: list[str] = []
    answer: dict[str, Any] = {"backend": backend, "environment": describe_environment(backend)}
    for mode in ("train", "infer"):
        subject = MeasuredModel(model=model(), data=(X, Y, None), batch_size=32, backend=backend, mode=mode)
        answer[mode] = measure_model(subject, rules=RULES, tell=lambda phase, meter: told.append(phase))
    answer["told"] = sorted(set(told))
    answer["validated"] = timed(folder, model(), epochs=3, validation_data=(X, Y))
    stop = keras.callbacks.EarlyStopping(monitor="loss", min_delta=1e9, patience=1)
    answer["stopped_early"] = timed(folder, model(), epochs=50, more=[stop])
    if backend != "torch":  # Keras refuses it there
        answer["several_steps"] = timed(folder, model(steps_per_execution=5), epochs=2)
    answer["loaded"] = timed(folder, model(), epochs=2, fed={"x": SlowLoader(), "y": None, "batch_size": None})
    answer["same_weights"] = weights_after(folder, with_timer=True) == weights_after(folder, with_timer=False)
    return answer


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
