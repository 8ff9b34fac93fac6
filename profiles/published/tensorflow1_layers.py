"""Transformers as scripts for TensorFlow 1 ran them: a layer is a kernel, mixed precision is put in by a rewrite.

`auto_mixed_precision` takes a graph that was written in float32. Products go to float16. A mean, a power and a
softmax stay in float32, and so does all from there to the next product, and from the product before up to there:
biases, sums, dropout, GELU, normalization, scores (NVIDIA/tensorflow@0936b2e, auto_mixed_precision.cc and
auto_mixed_precision_lists.h in tensorflow/core/grappler/optimizers: "black" and "gray"). Without mixed precision
every layer here is in float32, and none converts anything.

Softmax and dropout are the kernels that TensorFlow launches without XLA: softmax_op_gpu.cu.cc reduces each row
twice before it writes; `tf.nn.dropout` draws, compares, converts and multiplies twice. XLA fuses them as it fuses
Keras's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import layers, ops
from language_layers import Bias

__all__ = [
    "by_kernel", "dense", "dropped", "for_products", "in_float32", "normalized_sum", "products",
    "rewritten_block", "softmax",
]  # fmt: skip

Tensor = Any


def in_float32(x: Tensor) -> Tensor:
    """Convert what a product gave, where it is not in float32 yet."""
    return layers.Identity(dtype="float32")(x)


def for_products(x: Tensor) -> Tensor:
    """Convert to the type that products take, once for all of them."""
    return layers.Identity()(x)


class Kernel(layers.Layer):
    """Runs a function of `keras.ops` on its inputs, in one kernel.

    Args:
        function: Takes arrays, and returns one.
    """

    def __init__(self, function: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.function = function

    def call(self, *inputs: Tensor) -> Tensor:
        """Return what the function returns."""
        return self.function(*inputs)


def by_kernel(function: Callable[..., Tensor], *inputs: Tensor, dtype: str | None = "float32") -> Tensor:
    """Return what a function makes of some arrays, in float32 or in the type of products (None)."""
    return Kernel(function, dtype=dtype)(*inputs)


def products(equation: str, one: Tensor, other: Tensor) -> Tensor:
    """Return the matrix products of an equation as `ops.einsum` takes it."""
    return by_kernel(lambda one, other: ops.einsum(equation, one, other), one, other, dtype=None)


def dense(x: Tensor, width: int) -> Tensor:
    """A dense layer whose bias is added in float32."""
    return Bias(dtype="float32")(in_float32(layers.Dense(width, use_bias=False)(x)))


def softmax(x: Tensor, *, log: bool = False) -> Tensor:
    """Softmax over the last axis in float32, or its logarithm: each row's maximum, its sum, and the result."""
    top = by_kernel(lambda x: ops.stop_gradient(ops.max(x, axis=-1, keepdims=True)), x)
    total = by_kernel(lambda x, top: ops.sum(ops.exp(x - top), axis=-1, keepdims=True), x, top)
    if log:
        return by_kernel(lambda x, top, total: x - top - ops.log(total), x, top, total)
    return by_kernel(lambda x, top, total: ops.exp(x - top) / total, x, top, total)


class Draw(layers.Layer):
    """Uniform random numbers, as many as the input has."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seeds = keras.random.SeedGenerator(0)

    def call(self, inputs: Tensor) -> Tensor:
        """Return them, 0..1."""
        return keras.random.uniform(ops.shape(inputs), dtype="float32", seed=self.seeds)


def dropped(x: Tensor, rate: float, *, dtype: str | None = "float32") -> Tensor:
    """Dropout, as `tf.nn.dropout` composes it; in float32, or in the type of products (None)."""
    if not rate:
        return x
    kept = by_kernel(lambda drawn: drawn >= rate, Draw(dtype="float32")(x))
    factors = by_kernel(lambda kept: ops.cast(kept, "float32"), kept)
    return layers.Multiply(dtype=dtype)([layers.Rescaling(1.0 / (1.0 - rate), dtype=dtype)(x), factors])


def normalized_sum(x: Tensor, added: Tensor, rate: float) -> Tensor:
    """Dropout, the sum with what was there before, and its normalization."""
    total = layers.Add(dtype="float32")([x, dropped(added, rate)])
    return layers.LayerNormalization(epsilon=1e-12, dtype="float32")(total)


def _gelu(x: Tensor) -> Tensor:
    return keras.activations.gelu(x, approximate=True)


def rewritten_block(x: Tensor, mask: Tensor, *, heads: int, inner: int, dropout: float) -> Tensor:
    """`language_layers.encoder_block` as BERT's authors wrote it (modeling.py of google-research/bert).

    GELU by the hyperbolic tangent, padding by a large negative sum; arguments as there.
    """
    length, width = x.shape[1:]
    by_head = layers.Reshape((length, heads, width // heads))
    shared = for_products(x)
    queries, keys, values = (by_head(layers.Dense(width)(shared)) for _ in range(3))
    scores = in_float32(products("bihd,bjhd->bhij", queries, keys))
    scores = layers.Rescaling((width // heads) ** -0.5, dtype="float32")(scores)
    padding = by_kernel(lambda m: (1.0 - ops.cast(ops.expand_dims(m, 1), "float32")) * -10000.0, mask)
    scores = layers.Add(dtype="float32")([scores, padding])
    weights = for_products(dropped(softmax(scores), dropout))
    attended = layers.Reshape((length, width))(products("bhij,bjhd->bihd", weights, values))
    x = normalized_sum(x, dense(attended, width), dropout)
    hidden = layers.Activation(_gelu, dtype="float32")(dense(for_products(x), inner))
    return normalized_sum(x, dense(for_products(hidden), width), dropout)
