"""Models are built without weights, and Keras is left as it was."""

from __future__ import annotations

import numpy as np
import pytest
from gpuplan.workload.capture.materialize import abstract_variables


@pytest.mark.parametrize(
    ("model", "published_millions"), [("ResNet50", 25.6), ("MobileNetV2", 3.5), ("EfficientNetV2S", 21.6)]
)
def test_parameter_counts_match_the_keras_applications_table(model: str, published_millions: float) -> None:
    """keras.io/api/applications, column "Parameters", printed to 0.1 M. Nothing is allocated for it."""
    import keras

    with abstract_variables() as works:
        built = getattr(keras.applications, model)(weights=None)

    assert works
    assert built.count_params() / 1e6 == pytest.approx(published_millions, abs=0.06)
    assert all(variable._value is None for variable in built.variables)


def test_optimizer_slots_stay_abstract_and_counters_do_not() -> None:
    """Adam keeps two numbers a weight: their shapes are known and no value is held; its step counter is 0."""
    import keras

    with abstract_variables():
        model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(5)])
        model.compile(optimizer="adam", loss="mse")
        model.optimizer.build(model.trainable_variables)

    slots = [v for v in model.optimizer.variables if v.shape]
    assert sum(np.prod(v.shape) for v in slots) == 2 * (10 * 5 + 5)
    assert all(v._value is None for v in slots)
    assert int(model.optimizer.iterations) == 0


def test_a_value_that_is_read_is_drawn_from_the_initializer() -> None:
    """Code that looks at weights keeps working, and sees the same numbers each time."""
    import keras

    with abstract_variables():
        layer = keras.layers.Dense(4, kernel_initializer="glorot_uniform", bias_initializer="ones")
        layer.build((None, 3))

    kernel, bias = layer.get_weights()
    assert kernel.shape == (3, 4)
    assert np.array_equal(kernel, layer.get_weights()[0])
    assert np.array_equal(bias, np.ones(4))


def test_weights_can_still_be_assigned() -> None:
    """`set_weights` inside the block gives a variable its value."""
    import keras

    with abstract_variables():
        layer = keras.layers.Dense(1)
        layer.build((None, 1))
        layer.set_weights([np.full((1, 1), 3.0), np.zeros(1)])

    assert float(layer.get_weights()[0][0, 0]) == 3.0


def test_keras_is_as_before_after_the_block_even_when_it_raises() -> None:
    """Models that are built later have their weights."""
    import keras

    with pytest.raises(ZeroDivisionError), abstract_variables():
        _ = 1 / 0

    layer = keras.layers.Dense(1)
    layer.build((None, 1))
    assert all(variable._value is not None for variable in layer.variables)
