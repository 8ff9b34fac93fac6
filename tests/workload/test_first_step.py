"""What Keras hands to a step, builds before it, and what a script finds after predicting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
from gpuplan.workload.build.assemble import ModelAssembler, RunProperties
from gpuplan.workload.build.fit_inputs import build_predictions, pack_batch, read_fit_inputs
from gpuplan.workload.model import Workload
from gpuplan.workload.options import ArraySpec, WorkloadOptions
from keras import layers

X, Y, WEIGHT = np.zeros((64, 8), "float32"), np.zeros((64, 4), "float32"), np.zeros(64, "float32")
OF_X, OF_Y, OF_WEIGHT = ArraySpec((8,), "float32"), ArraySpec((4,), "float32"), ArraySpec((), "float32")


def assemble(model: Any, x: Any, y: Any = None) -> Workload:
    """Trace the step of a compiled model for arrays."""
    feed = read_fit_inputs({"x": x, "y": y, "batch_size": 32, "sample_weight": None})
    return ModelAssembler(model, run=RunProperties(text="model", feed=feed)).assemble(WorkloadOptions())


class Batches(keras.utils.PyDataset):
    """Batches of x alone."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return X[:32]


def yield_batch(*parts: Any) -> Iterator[Any]:
    """Yield one batch as a tuple."""
    yield parts


@pytest.mark.parametrize(
    ("x", "arguments", "handed"),
    [
        (X, {}, OF_X),
        ([X, X], {}, ([OF_X, OF_X],)),
        ({"a": X}, {}, {"a": OF_X}),
        (X, {"y": Y}, (OF_X, OF_Y)),
        (X, {"y": Y, "sample_weight": WEIGHT}, (OF_X, OF_Y, OF_WEIGHT)),
        (X, {"y": Y, "class_weight": {0: 1.0}}, (OF_X, OF_Y, OF_WEIGHT)),
        (Batches(), {}, (OF_X,)),
        (yield_batch(X), {}, (OF_X,)),
        (yield_batch(X, Y), {}, (OF_X, OF_Y)),
        (yield_batch(X, Y), {"class_weight": {0: 1.0}}, (OF_X, OF_Y, OF_WEIGHT)),
        (yield_batch(X, Y, WEIGHT), {}, (OF_X, OF_Y, OF_WEIGHT)),
        (iter([X]), {}, OF_X),
    ],
)
def test_a_step_gets_what_keras_hands_it(x: Any, arguments: dict[str, Any], handed: Any) -> None:
    """`pack_x_y_sample_weight` for arrays; what a pipeline yields, a PyDataset's array in a tuple (Keras 3.15)."""
    feed = read_fit_inputs({"x": x, "y": None, "batch_size": None, "sample_weight": None, **arguments})

    assert pack_batch(feed.x, feed.y, feed.sample_weight, parts=feed.parts) == handed


def build_two(loss: Any, **settings: Any) -> Any:
    """Return a compiled model with two outputs in a list."""
    x = keras.Input((8,))
    first, second = layers.Dense(1, name="a"), layers.Dense(4, activation="softmax", name="b")
    model = keras.Model(x, [first(x), second(x)])
    model.compile("adam", loss, **settings)
    return model


SPARSE = "sparse_categorical_crossentropy"
BY_NAME = {"a": "mse", "b": SPARSE}
ONE, CLASS = np.zeros((64, 1), "float32"), np.zeros(64, "int32")


@pytest.mark.parametrize(
    ("loss", "settings", "y"),
    [
        (BY_NAME, {}, {"a": ONE, "b": CLASS}),
        (BY_NAME, {}, [ONE, CLASS]),
        (["mse", SPARSE], {}, {"a": ONE, "b": CLASS}),
        (BY_NAME, {"loss_weights": {"a": 0.5, "b": 2.0}}, {"b": CLASS, "a": ONE}),
        (BY_NAME, {"loss_weights": [0.5, 2.0]}, {"a": ONE, "b": CLASS}),
        (BY_NAME, {"metrics": {"a": ["mae"], "b": "accuracy"}}, {"a": ONE, "b": CLASS}),
        (BY_NAME, {"metrics": [["mae"], ["accuracy"]]}, {"a": ONE, "b": CLASS}),
        (["mse", SPARSE], {"metrics": {"b": ["accuracy"]}, "weighted_metrics": {"a": ["mae"]}}, [ONE, CLASS]),
    ],
)
def test_targets_losses_and_metrics_by_name_or_in_order(loss: Any, settings: dict[str, Any], y: Any) -> None:
    """Two layers of 8 x 1 and 8 x 4, forward and for the gradient of their weights: 2 x 40 multiplications."""
    workload = assemble(build_two(loss, **settings), X, y)

    assert workload.product_flops == 2 * 32 * 2 * 40
    assert workload.parameters == 8 + 1 + 32 + 4


def test_targets_and_losses_nested_as_the_output() -> None:
    """A dict of outputs with a pair in it: 8 x 1, 8 x 2 and 8 x 3, forward and back."""
    x = keras.Input((8,))
    one, two, three = (layers.Dense(width)(x) for width in (1, 2, 3))
    model = keras.Model(x, {"a": one, "pair": (two, three)})
    model.compile("sgd", {"a": "mse", "pair": ("mse", "mae")})
    y = {"a": ONE, "pair": (np.zeros((64, 2), "float32"), np.zeros((64, 3), "float32"))}

    assert assemble(model, X, y).product_flops == 2 * 32 * 2 * 48


class Reconstructing(keras.Model):
    """An autoencoder whose loss compares its output with its input."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.outside = layers.Dense(2), layers.Dense(8)
        self.error = keras.metrics.Mean(name="error")

    def call(self, x: Any) -> Any:
        return self.outside(self.inside(x))

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None) -> Any:
        return keras.ops.mean((y_pred - x) ** 2)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        self.error.update_state(keras.ops.mean(keras.ops.abs(y_pred - x)))
        return {"error": self.error.result()}


def test_a_loss_and_metrics_of_the_model_without_targets() -> None:
    """8 x 2 forward and for its weights; 2 x 8 forward, for its weights and for its input."""
    model = Reconstructing()
    model.compile("sgd")

    workload = assemble(model, X)

    assert workload.product_flops == 2 * 32 * (2 * 16 + 3 * 16)
    assert workload.parameters == 8 * 2 + 2 + 2 * 8 + 8


def test_predictions_can_be_sampled_from() -> None:
    """Uniform where an activation or a layer is softmax, one half after sigmoid, else zeros; in their types."""
    x = keras.Input((8,))
    outputs = {
        "inside": layers.Dense(4, activation="softmax")(x),
        "layer": layers.Softmax()(layers.Dense(4)(x)),
        "operation": keras.ops.softmax(layers.Dense(5)(x)),
        "yes": layers.Dense(1, activation="sigmoid")(x),
        "value": layers.Dense(3, dtype="float16")(x),
    }

    found = build_predictions(keras.Model(x, outputs), outputs, samples=6)

    assert {name: (one.shape, float(one[0, 0]), str(one.dtype)) for name, one in found.items()} == {
        "inside": ((6, 4), 0.25, "float32"),
        "layer": ((6, 4), 0.25, "float32"),
        "operation": ((6, 5), pytest.approx(0.2), "float32"),
        "yes": ((6, 1), 0.5, "float32"),
        "value": ((6, 3), 0.0, "float16"),
    }
    assert np.random.default_rng(0).multinomial(1, found["inside"][0].astype("float64")).sum() == 1
