"""`keras.RematScope` around layers that take a `training` flag, which Keras on JAX cannot run."""

from __future__ import annotations

import keras
import pytest
from gpuplan.workload.capture.load import trace_keras_model
from gpuplan.workload.options import WorkloadOptions

FLAG = "covers layers with a `training` flag"


def network(mode: str | None) -> keras.Model:
    with keras.RematScope(mode=mode):
        inputs = keras.Input((16, 16, 3))
        x = keras.layers.Conv2D(8, 3)(inputs)
        x = keras.layers.BatchNormalization()(x)
        x = keras.layers.Dropout(0.3)(x)
        outputs = keras.layers.Dense(2)(keras.layers.Flatten()(x))
    return keras.Model(inputs, outputs)


@pytest.mark.parametrize(("mode", "recomputes"), [(None, False), ("full", True)])
def test_flags_stay_flags(mode: str | None, recomputes: bool) -> None:
    """A convolution runs three times in a step (forward, two gradients but for the first layer's input): once
    more when its output is recomputed; the note says that Keras itself cannot do that here."""
    work = trace_keras_model(network(mode), options=WorkloadOptions(batch_size=4))
    convolutions = [op for op in work.ops if op.kind.value == "conv"]
    dropped = [op for op in work.ops if "random" in op.name or "threefry" in op.name]

    assert any(FLAG in note for note in work.notes) is recomputes
    assert len(convolutions) >= 2
    assert dropped, "dropout is traced as in training"


def test_the_scope_is_gone_after_the_trace() -> None:
    from keras.src.backend.jax import core

    usual = core.remat
    trace_keras_model(network("full"), options=WorkloadOptions(batch_size=4))

    assert core.remat is usual
