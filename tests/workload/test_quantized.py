"""Quantized models, and LoRA on them: built without weights, and the same as Keras builds them with weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import pytest
from gpuplan.errors import UsageError
from gpuplan.workload.build.assemble import ModelAssembler, RunProperties
from gpuplan.workload.build.from_reference import replace_dtype_policy
from gpuplan.workload.capture.load import WorkloadOptions, trace_keras_model
from gpuplan.workload.capture.materialize import abstract_variables

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:keras"),  # of layers that have nothing to quantize
    pytest.mark.xdist_group("quantized"),  # one worker: JAX compiles the operations of all these models once
]
Step = Callable[[Any], None]


def build() -> Any:
    """A language model of all layers that Keras quantizes, with odd sizes: int4 packs two of them in a byte."""
    inputs = keras.Input((6,), dtype="int32")
    table = keras.layers.ReversibleEmbedding(33, 14, tie_weights=False, name="table")
    x = table(inputs)
    x = keras.layers.MultiHeadAttention(2, 7, name="attention")(x, x, use_causal_mask=True)
    x = x + keras.layers.Embedding(6, 14, name="positions")(keras.ops.arange(6))
    x = keras.layers.Dense(15, name="up")(keras.layers.LayerNormalization(name="norm")(x))
    return keras.Model(inputs, table(keras.layers.Dense(14, name="down")(x), reverse=True))


def enable_lora(model: Any) -> None:
    """Adapt every product of the model; freeze the rest."""
    for layer in model._flatten_layers(include_self=False):
        layer.trainable = False
    for layer in model._flatten_layers(include_self=False):
        if isinstance(layer, keras.layers.Dense | keras.layers.EinsumDense | keras.layers.Embedding):
            layer.trainable = True
            layer.enable_lora(3)


def quantize(mode: str) -> Step:
    return lambda model: model.quantize(mode)


def quantize_by_channel(model: Any) -> None:
    model.quantize(config=keras.quantizers.Int4QuantizationConfig(block_size=None))


def build_changed(steps: Sequence[Step]) -> Any:
    """Build the model under the same names each time, and change it."""
    keras.backend.clear_session()
    model = build()
    for step in steps:
        step(model)
    return model


def describe_variables(model: Any) -> list[tuple[Any, ...]]:
    return [(v.path, tuple(v.shape), v.dtype, v.trainable) for v in model.variables]


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (enable_lora, quantize("int4")),
        pytest.param((quantize("int8"), enable_lora), marks=pytest.mark.slow),
        pytest.param((quantize("float8"),), marks=pytest.mark.slow),
        pytest.param((enable_lora,), marks=pytest.mark.slow),
        pytest.param((quantize("int8"),), marks=pytest.mark.slow),
        pytest.param((enable_lora, quantize("int8")), marks=pytest.mark.slow),
        pytest.param((quantize("int4"),), marks=pytest.mark.slow),
        pytest.param((quantize("int4"), enable_lora), marks=pytest.mark.slow),
        pytest.param((quantize_by_channel, enable_lora), marks=pytest.mark.slow),
    ],
)
def test_the_model_is_as_keras_builds_it_with_weights(steps: Sequence[Step]) -> None:
    """Every variable by path, shape, type and whether it is trained, and every operation of the traced step."""
    options = WorkloadOptions(batch_size=2, loss="sparse_categorical_crossentropy")
    real = build_changed(steps)
    expected = describe_variables(real)
    traced_real = ModelAssembler(real, run=RunProperties(text="model")).assemble(options)
    with abstract_variables():
        model = build_changed(steps)
        found = describe_variables(model)
        assert all(variable._value is None for variable in model.variables)
        traced = ModelAssembler(model, run=RunProperties(text="model")).assemble(options)

    assert found == expected
    assert traced.flops_per_step == traced_real.flops_per_step
    assert traced.to_json() == traced_real.to_json()


def test_lora_alone_is_trained_on_a_quantized_base() -> None:
    """3 x (14 + 15) numbers of `up`: its kernel holds int8, one byte each, and one scale a column."""
    with abstract_variables():
        model = keras.Sequential([keras.Input((14,)), keras.layers.Dense(15, use_bias=False, name="up")])
        model.quantize("int8")
        enable_lora(model)
        options = WorkloadOptions(batch_size=2, optimizer="sgd")
        workload = ModelAssembler(model, run=RunProperties(text="model")).assemble(options)

    assert workload.trainable_parameters == 3 * (14 + 15)
    assert workload.memory.parameter_bytes == 4 * 3 * (14 + 15)
    assert workload.layer_sizes is not None
    assert workload.layer_sizes.frozen_bytes == 14 * 15 + 4 * 15
    assert (workload.precision, workload.quantization) == ("float32", "int8")


@pytest.mark.parametrize(
    ("mode", "weights", "scales"),
    [("int8", 2**40, 2**20), ("int4", 2**39, 2 * 2**20 * 2**13)],  # int4: scale and zero point a block of 128
)
def test_weights_beyond_any_memory_are_quantized(mode: str, weights: int, scales: int) -> None:
    """A kernel of 2^40 numbers: 4 TiB before, 1 TiB in int8, half a TiB in int4, packed two in a byte."""
    with abstract_variables():
        model = keras.Sequential([keras.Input((2**20,)), keras.layers.Dense(2**20, use_bias=False)])
        model.quantize(mode)
        enable_lora(model)
        sizes = {v.path.rpartition("/")[2]: int(np.prod(v.shape)) for v in model.non_trainable_variables}

    assert sizes.pop("kernel") == weights
    assert sizes.pop("g_idx", 2**20) == 2**20
    assert sum(sizes.values()) == scales


def test_a_quantizer_that_needs_numbers_gets_them() -> None:
    """A quantizer of the user's own, in NumPy."""

    class Rounded(keras.quantizers.Quantizer):
        def __call__(self, x: Any, axis: Any = None, to_numpy: bool = False) -> Any:
            kernel = np.asarray(x)
            return kernel.round().astype("int8"), np.ones((1, kernel.shape[1]), "float32")

    with abstract_variables():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.quantize(config=keras.quantizers.Int8QuantizationConfig(weight_quantizer=Rounded()))

    assert model.layers[0]._kernel.dtype == "int8"


@pytest.mark.parametrize("policy", ["gptq/4/128_from_float32", "awq/4/128_from_float32"])
def test_weights_that_are_calibrated_on_data_are_refused(policy: str) -> None:
    """By `quantize()`, and by a dtype policy as in a saved model: one line, and what to plan instead."""
    mode = policy.partition("/")[0]
    config = {"gptq": keras.quantizers.GPTQConfig, "awq": keras.quantizers.AWQConfig}[mode]
    with abstract_variables():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        with pytest.raises(UsageError, match=f"{mode.upper()} is not planned") as caught:
            model.quantize(config=config(dataset=["text"], tokenizer=str.split))
        with pytest.raises(UsageError, match=f"{mode.upper()} is not planned"):
            keras.layers.Dense(3, dtype=policy).build((None, 4))

    assert 'quantize("int4")' in (caught.value.hint or "")


def test_layers_are_quantized_with_their_values_after_the_block() -> None:
    """Keras is as before: -127 is the largest of a column, whatever its scale, and 63.5 is rounded down."""
    with abstract_variables():
        keras.layers.Dense(3).build((None, 4))

    layer = keras.layers.Dense(1, use_bias=False)
    layer.build((None, 2))
    layer.set_weights([np.array([[0.5], [-1.0]])])
    layer.quantize("int8")
    assert [int(number) for number in layer.get_weights()[0][:, 0]] == [63, -127]


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_another_precision_keeps_the_quantization(mode: str) -> None:
    """`--precision mixed_bfloat16` of a saved model in int8: still int8, of what was float32 bfloat16."""
    keras.backend.clear_session()
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.quantize(mode)
    config = keras.saving.serialize_keras_object(model)
    changed = keras.saving.deserialize_keras_object(replace_dtype_policy(config, "mixed_bfloat16"))
    workload = trace_keras_model(model, options=WorkloadOptions(batch_size=2, precision="mixed_bfloat16"))

    assert changed.layers[0].quantization_mode == mode
    assert changed.layers[0].compute_dtype == "bfloat16"
    assert (workload.precision, workload.quantization) == ("mixed_bfloat16", mode)


def test_a_step_that_trains_nothing_says_so() -> None:
    """Quantized without biases and without LoRA, or frozen; not where only predictions are asked for."""
    note = "no variable is trainable: the step only computes the loss"
    keras.backend.clear_session()
    quantized = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, use_bias=False)])
    quantized.quantize("int8")
    frozen = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    frozen.trainable = False
    trained = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])

    def notes(model: Any, **options: Any) -> tuple[str, ...]:
        return trace_keras_model(model, options=WorkloadOptions(batch_size=2, **options)).notes

    assert note in notes(quantized)
    assert note in notes(frozen)
    assert note not in notes(trained)
    assert note not in notes(frozen, mode="infer")


@pytest.mark.parametrize(("mode", "lost"), [("int8", True), ("int4", False)])
def test_a_gradient_that_keras_loses_is_named(mode: str, lost: bool) -> None:
    """The derivative of int8 logits is that of their scale: of one input in sixteen, the largest of its row."""
    import jax

    keras.backend.clear_session()
    table = keras.layers.ReversibleEmbedding(64, 16, name="table")
    tokens = keras.Input((3,), dtype="int32")
    hidden = keras.layers.Dense(16, name="hidden")(table(tokens))
    model = keras.Model(tokens, table(hidden, reverse=True))
    model.quantize(mode)
    inputs = np.random.default_rng(0).normal(size=(2, 16)).astype("float32")
    gradient = np.asarray(jax.grad(lambda x: (table(x, reverse=True) ** 2).sum())(inputs))

    def notes(mode: Any) -> str:
        return " ".join(trace_keras_model(model, options=WorkloadOptions(batch_size=2, mode=mode)).notes)

    assert (np.count_nonzero(gradient) <= 2) == lost
    assert ("int8 logits of `table`" in notes("train")) == lost
    assert "logits" not in notes("infer")
