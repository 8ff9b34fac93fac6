"""Models built in a measuring process."""

from __future__ import annotations

import os

import pytest
from gpuplan.profile.child import draw_weights_quickly

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def test_weights_are_random_and_keras_is_left_as_it_was() -> None:
    """Variance one over the inputs: 64 inputs give a deviation of 1/8. Keras's own initializers come back."""
    import keras
    import numpy as np

    before = keras.initializers.VarianceScaling.__call__
    with draw_weights_quickly():
        layer = keras.layers.Dense(64)
        layer.build((None, 64))
    assert np.asarray(layer.kernel).std() == pytest.approx(1 / 8, rel=0.05)
    assert keras.initializers.VarianceScaling.__call__ is before
