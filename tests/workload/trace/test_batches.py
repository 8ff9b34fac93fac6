"""A step at another batch size, derived from a traced one, is the step that is traced at that size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gpuplan.workload.trace.division.batches import BatchSizes, OtherWorkError
from gpuplan.workload.trace.jax import step as step_module
from gpuplan.workload.trace.jax.step import TracedStep, trace_step

Trace = Callable[..., Any]
TRACED, WANTED = 16, 4


def convolutions() -> Any:
    """Return a network whose 16 channels are as many as the samples of the batch."""
    import keras

    layers = keras.layers
    blocks = [layers.Conv2D(16, 3), layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D()]
    head = [layers.Flatten(), layers.Dropout(0.5), layers.Dense(16, activation="softmax")]
    return keras.Sequential([keras.Input((16, 16, 3)), *blocks, *head])


def attention() -> Any:
    """Return a causal Transformer block over tokens, as many as the samples of the batch."""
    import keras

    layers = keras.layers
    tokens = keras.Input((16,), dtype="int32")
    x = layers.Dropout(0.1)(layers.Embedding(64, 32)(tokens))
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 8)(x, x, use_causal_mask=True))
    return keras.Model(tokens, layers.Dense(64)(x))


def recurrent() -> Any:
    """Return an LSTM, whose loop is traced again."""
    import keras

    return keras.Sequential([keras.Input((5, 3)), keras.layers.LSTM(8), keras.layers.Dense(16)])


def halves() -> Any:
    """Return a network that swaps the halves of a batch."""
    import keras

    def swap(x: Any) -> Any:
        half = x.shape[0] // 2
        return keras.ops.concatenate([x[half:], x[:half]])

    return keras.Sequential(
        [keras.Input((8,)), keras.layers.Lambda(swap, output_shape=(8,)), keras.layers.Dense(4)]
    )


def find_both(traced: Any, mode: str) -> tuple[TracedStep, TracedStep, int]:
    """Return the step derived from one at a larger batch, the traced one, and how often the former was traced."""
    data = (traced.x_spec, traced.y_spec) if mode == "train" else traced.x_spec
    known: dict[Any, Any] = {}
    calls: list[int] = []
    trace_function = step_module.trace_function

    def count(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return trace_function(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_module, "trace_function", count)
        trace_step(traced.model, data, batch_size=TRACED, mode=mode, known=known)
        derived = trace_step(traced.model, data, batch_size=WANTED, mode=mode, known=known, derives=True)
        number = len(calls)
        truth = trace_step(traced.model, data, batch_size=WANTED, mode=mode, known=known)
        assert len(calls) == number + 1
    return derived, truth, number


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize(
    ("build", "terms", "traces"),
    [
        (convolutions, {"loss": "categorical_crossentropy", "optimizer": "adam"}, 1),
        (convolutions, {"loss": "sparse_categorical_crossentropy", "y_shape": (), "y_dtype": "int32"}, 1),
        (recurrent, {}, 2),
    ],
    ids=["dense labels", "integer labels", "recurrent"],
)
def test_a_derived_step_is_the_traced_one(
    trace: Trace, build: Any, terms: dict[str, Any], traces: int, mode: str
) -> None:
    """Law: all rows and all bytes are equal, also where another dimension is as long as the batch."""
    derived, truth, number = find_both(trace(build, **terms), mode)

    assert derived == truth
    assert number == traces


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_attention_is_derived(trace: Trace, mode: str) -> None:
    """Law: the causal mask of 16 x 16 tokens does not change with a batch of 16 samples."""
    terms = {"x_dtype": "int32", "y_shape": (16, 64), "loss": "categorical_crossentropy"}
    derived, truth, _ = find_both(trace(attention, **terms), mode)

    assert derived == truth


def test_a_part_of_the_batch_is_refused(trace: Trace) -> None:
    """Halves are traced again: eight samples of sixteen, two of four."""
    derived, truth, number = find_both(trace(halves), "train")

    assert derived == truth
    assert number == 2


def test_joined_samples_are_derived_and_divided_ones_refused() -> None:
    """Sixteen samples of six are 96 in a row, four are 24; a row of 96 that is read as 3 x 32 has no batch."""
    import jax
    import jax.numpy as jnp

    def resize(function: Callable[[Any], Any]) -> tuple[int, ...]:
        jaxpr = jax.make_jaxpr(function)(jax.ShapeDtypeStruct((TRACED, 6), "float32")).jaxpr
        found = BatchSizes(TRACED, WANTED, frozenset()).change(jaxpr, [(WANTED, 6)])
        return tuple(found.outvars[0].aval.shape)

    assert resize(lambda x: x.reshape(-1)) == (24,)
    assert resize(lambda x: jnp.sin(x) @ jnp.ones((6, 5)) + jnp.arange(16.0)[:, None]) == (4, 5)
    with pytest.raises(OtherWorkError):
        resize(lambda x: x.reshape(3, 32))
    with pytest.raises(OtherWorkError):
        resize(lambda x: x[:8])
