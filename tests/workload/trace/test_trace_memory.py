"""Memory of a step: exact where variables are counted, never below XLA's own count of the arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Trace = Callable[..., Any]


def image_model() -> Any:
    """Return a convolutional network with normalization and dropout."""
    import keras

    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Conv2D(8, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Dropout(0.3),
            layers.Flatten(),
            layers.Dense(4),
        ]
    )


def text_model() -> Any:
    """Return a recurrent network on token numbers."""
    import keras

    layers = keras.layers
    return keras.Sequential(
        [keras.Input((7,), dtype="int32"), layers.Embedding(50, 8), layers.GRU(6), layers.Dense(1)]
    )


def test_variables_are_counted_exactly(trace: Trace) -> None:
    """Dense 30 -> 50: 1550 parameters; Adam keeps two more of each, a counter and a learning rate."""

    def build() -> Any:
        import keras

        return keras.Sequential([keras.Input((30,)), keras.layers.Dense(50)])

    memory = trace(build, batch_size=16, optimizer="adam").step.memory
    assert memory.parameter_bytes == memory.gradient_bytes == 4 * 1550
    assert memory.optimizer_bytes == 4 * (2 * 1550 + 2)
    assert memory.state_bytes == 4 * 2  # the loss tracker's total and count
    assert memory.input_bytes == 4 * 16 * (30 + 50)


@pytest.mark.parametrize(("build", "x_dtype"), [(image_model, "float32"), (text_model, "int32")])
def test_arguments_are_never_below_xla(trace: Trace, build: Callable[[], Any], x_dtype: str) -> None:
    """`memory_analysis()` of the compiled step; the rest is within a factor 4 of its scratch memory."""
    import jax

    traced = trace(build, batch_size=4, optimizer="adam", x_dtype=x_dtype)
    step = jax.jit(traced.model.train_step, donate_argnums=0)
    xla = step.lower(traced.state(), traced.data()).compile().memory_analysis()

    memory = traced.step.memory
    resident = memory.parameter_bytes + memory.optimizer_bytes + memory.state_bytes + memory.input_bytes
    assert xla.argument_size_in_bytes <= resident
    assert resident <= 1.1 * xla.argument_size_in_bytes + 64
    ours = memory.activation_bytes + memory.gradient_bytes
    assert ours / 4 < xla.temp_size_in_bytes < 4 * ours


def test_activations_grow_with_the_batch(trace: Trace) -> None:
    """Eight times the samples: close to eight times the activations, the same variables."""
    small, large = (trace(image_model, batch_size=size).step.memory for size in (16, 128))
    assert large.compute_fixed_bytes(compiled=True) == small.compute_fixed_bytes(compiled=True)
    assert large.input_bytes == 8 * small.input_bytes
    assert large.activation_bytes == pytest.approx(8 * small.activation_bytes, rel=0.02)


def test_saved_activations_are_all_alive_at_the_turn(trace: Trace) -> None:
    """Ten tanh layers of 256: each output is needed by the backward pass, so ten of them live together."""

    def build() -> Any:
        import keras

        dense = [keras.layers.Dense(256, activation="tanh") for _ in range(10)]
        return keras.Sequential([keras.Input((256,)), *dense])

    memory = trace(build, batch_size=512).step.memory
    layer_bytes = 512 * 256 * 4
    assert 10 * layer_bytes <= memory.activation_bytes <= 13 * layer_bytes


def test_inference_frees_what_is_used(trace: Trace) -> None:
    """The same ten layers without a backward pass: input and output of one layer at a time."""

    def build() -> Any:
        import keras

        dense = [keras.layers.Dense(256, activation="tanh") for _ in range(10)]
        return keras.Sequential([keras.Input((256,)), *dense])

    memory = trace(build, batch_size=512, mode="infer").step.memory
    assert memory.activation_bytes <= 2 * 512 * 256 * 4


def test_kernel_by_kernel_dropout_keeps_a_byte_an_element(trace: Trace) -> None:
    """The mask, not the 32-bit random numbers that it is made of; its result takes the place of its operand."""

    def build(rate: float) -> Any:
        import keras

        layers = keras.layers
        dense = [layers.Dense(256) for _ in range(4)]
        return keras.Sequential(
            [keras.Input((256,)), dense[0], layers.Dropout(rate), dense[1], dense[2], dense[3]]
        )

    kept, without = (
        trace(lambda rate=rate: build(rate), batch_size=16).step.memory.eager_activation_bytes
        for rate in (0.5, 0.0)
    )
    assert kept - without == 16 * 256


@pytest.mark.parametrize(
    ("optimizer", "waits_for_all"),
    [
        ({}, False),
        ({"clipnorm": 1.0}, False),
        ({"global_clipnorm": 1.0}, True),
        ({"loss_scale_factor": None, "scaled": True}, True),
    ],
)
def test_gradients_wait_for_each_other_where_the_optimizer_needs_all(
    trace: Trace, optimizer: dict[str, Any], waits_for_all: bool
) -> None:
    """XLA updates a variable as soon as its gradient is known: the two largest of 64x32, 32x16 and 16x8 wait."""
    import keras

    def build() -> Any:
        return keras.Sequential(
            [keras.Input((64,)), *(keras.layers.Dense(n, use_bias=False) for n in (32, 16, 8))]
        )

    options = dict(optimizer)
    is_scaled = options.pop("scaled", False)
    chosen: Any = keras.optimizers.Adam(**options)
    if is_scaled:
        chosen = keras.optimizers.LossScaleOptimizer(chosen)
    memory = trace(build, batch_size=4, optimizer=chosen).step.memory
    sizes = [4 * n for n in (64 * 32, 32 * 16, 16 * 8)]

    assert memory.gradient_bytes == sum(sizes)
    assert memory.held_gradient_bytes(compiled=True) == (sum(sizes) if waits_for_all else sum(sizes[:2]))
    assert memory.held_gradient_bytes(compiled=False) == sum(sizes)


def test_on_a_tpu_a_product_computes_its_operands_itself(trace: Trace) -> None:
    """Of attention, the scores are kept, and not the probabilities that are made of them.

    Four blocks keep 4 instead of 4 + 2 bytes a score.
    """
    import keras

    def build() -> Any:
        x = inputs = keras.Input((128, 32))
        for _ in range(4):
            x = keras.layers.MultiHeadAttention(4, 8)(x, x)
        return keras.Model(inputs, keras.layers.Dense(32)(x))

    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        memory = trace(build, batch_size=8, optimizer="adam").step.memory
    finally:
        keras.config.set_dtype_policy(before)
    scores = 8 * 4 * 128 * 128
    saved = memory.compiled_activation_bytes - memory.tpu_activation_bytes
    assert memory.tpu_activation_bytes > 4 * 4 * scores
    assert saved == pytest.approx(4 * 2 * scores, rel=0.1)
