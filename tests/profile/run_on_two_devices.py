"""Run by test_two_devices.py in a process of its own: a real run on two CPU devices of JAX; prints the profile.

python run_on_two_devices.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gpuplan
import jax
import keras
import numpy as np

X = np.random.default_rng(0).random((320, 8), dtype=np.float32)
Y = X.sum(axis=1, keepdims=True)


def main(path: Path) -> None:
    assert len(jax.devices()) == 2, "a run on one device would prove nothing"
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)], name="tiny")
    model.compile(optimizer="sgd", loss="mse", steps_per_execution=5)
    stop = keras.callbacks.EarlyStopping(monitor="val_loss", min_delta=1e9, patience=2)
    timer = gpuplan.StepTimer(path)
    model.fit(X, Y, batch_size=32, epochs=50, validation_data=(X, Y), verbose=0, callbacks=[timer, stop])
    sharded = [len(variable.value.sharding.device_set) for variable in model.trainable_variables]
    print(json.dumps({"profile": json.loads(path.read_text()), "devices_of_weights": sharded}))


if __name__ == "__main__":
    main(Path(sys.argv[1], "timer.json"))
