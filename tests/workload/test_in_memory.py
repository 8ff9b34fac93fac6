"""Model objects of this process."""

from __future__ import annotations

from typing import Any

import keras
import pytest
from gpuplan.errors import GpuplanError, UsageError
from gpuplan.workload.capture.load import WorkloadOptions, trace_keras_model
from gpuplan.workload.options import ArraySpec


def dense(*, activation: str | None = None, units: int = 3) -> Any:
    """A small functional model, not compiled."""
    inputs = keras.Input((8,))
    return keras.Model(inputs, keras.layers.Dense(units, activation=activation)(inputs))


def test_the_model_stays_as_it_was() -> None:
    """Neither compiled nor changed: a copy is traced."""
    model = dense(activation="softmax")
    before = [weight.copy() for weight in model.get_weights()]
    workload = trace_keras_model(model, options=WorkloadOptions(batch_size=16))

    assert not model.compiled
    assert all((a == b).all() for a, b in zip(before, model.get_weights(), strict=True))
    assert workload.parameters == 8 * 3 + 3
    assert workload.batch_size == 16
    assert any("not compiled" in note for note in workload.notes)


def test_a_compiled_model_keeps_its_optimizer_unbuilt() -> None:
    """Slots of the user's optimizer are left for the user's own first step."""
    model = dense()
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    trace_keras_model(model, options=WorkloadOptions(batch_size=2))

    assert not model.optimizer.built


def test_precision_applies_to_the_copy_alone() -> None:
    """A bfloat16 estimate leaves the model and the global policy in float32."""
    model = dense()
    workload = trace_keras_model(model, options=WorkloadOptions(batch_size=2, precision="mixed_bfloat16"))

    assert workload.precision == "mixed_bfloat16"
    assert model.layers[-1].compute_dtype == "float32"
    assert keras.config.dtype_policy().name == "float32"


def test_a_model_without_configuration_is_traced_as_it_is() -> None:
    """A subclassed model that cannot be copied: it must be compiled, and say what it is fed."""

    class Plain(keras.Model):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(width)

        def call(self, x: Any) -> Any:
            return self.dense(x)

    model = Plain(4)
    spec = {"input_spec": ArraySpec((6,), "float32"), "target_spec": ArraySpec((4,), "float32")}
    with pytest.raises(UsageError, match="not compiled"):
        trace_keras_model(model, options=WorkloadOptions(batch_size=2), **spec)

    model.compile(loss="mse")
    workload = trace_keras_model(model, options=WorkloadOptions(batch_size=2), **spec)
    assert workload.parameters == 6 * 4 + 4


def test_what_is_no_model_is_refused() -> None:
    """A layer is not a model."""
    with pytest.raises(UsageError, match=r"Dense is not a keras\.Model"):
        trace_keras_model(keras.layers.Dense(1), options=WorkloadOptions())


@pytest.mark.parametrize(("name", "option"), [("adamm", "optimizer"), ("mean_square", "loss")])
def test_unknown_losses_and_optimizers_are_refused_with_near_names(name: str, option: str) -> None:
    """Keras's own message lists everything; ours what may have been meant."""
    with pytest.raises(UsageError, match=name) as caught:
        trace_keras_model(dense(), options=WorkloadOptions(batch_size=1, **{option: name}))

    assert "did you mean" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("activation", "units", "loss"),
    [("softmax", 5, "sparse_categorical_crossentropy"), ("sigmoid", 1, "binary_crossentropy"), (None, 2, "mse")],
)
def test_the_loss_fits_the_output(activation: str | None, units: int, loss: str) -> None:
    """An uncompiled model's step is that of the model compiled by hand with the fitting loss and Adam."""
    options = WorkloadOptions(batch_size=4)
    by_default = trace_keras_model(dense(activation=activation, units=units), options=options)
    compiled = dense(activation=activation, units=units)
    compiled.compile(optimizer="adam", loss=loss)
    by_hand = trace_keras_model(compiled, options=options)

    assert by_default.flops_per_step == by_hand.flops_per_step > 0
    assert by_default.memory == by_hand.memory


def test_variable_length_inputs_ask_for_a_length() -> None:
    """A shape with None cannot be traced, and is not guessed."""
    inputs = keras.Input((None, 4))
    model = keras.Model(inputs, keras.layers.LSTM(3)(inputs))

    with pytest.raises(GpuplanError, match="no fixed shape") as caught:
        trace_keras_model(model, options=WorkloadOptions(batch_size=1))

    assert caught.value.hint
