"""Bytes moved in the three ways of running, by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from gpuplan.workload.ops import Op, OpKind
from gpuplan.workload.trace.graph.layers import LayerKernel

Trace = Callable[..., Any]


def moved(rows: list[Op], way: str = "") -> float:
    """Return the bytes that rows read and write in one way of running [bytes]."""
    return sum((getattr(op, f"{way}bytes_read") + getattr(op, f"{way}bytes_written")) * op.count for op in rows)


def test_embedding_moves_only_the_rows_it_looks_up(trace: Trace) -> None:
    """Batch x tokens rows are read, as many written; the table of 1000 rows is not touched otherwise."""

    def build() -> Any:
        import keras

        return keras.Sequential(
            [
                keras.Input((5,), dtype="int32"),
                keras.layers.Embedding(1000, 16),
                keras.layers.GlobalAveragePooling1D(),
            ]
        )

    traced = trace(build, batch_size=4, x_dtype="int32")
    rows_bytes, indices_bytes = 4 * 5 * 16 * 4, 4 * 5 * 4
    (look_up,) = traced.rows(kind=OpKind.GATHER)
    assert (look_up.bytes_read, look_up.bytes_written) == (rows_bytes + indices_bytes, rows_bytes)
    (gradient,) = traced.rows(kind=OpKind.SCATTER)
    assert (gradient.bytes_read, gradient.bytes_written) == (2 * rows_bytes + indices_bytes, rows_bytes)
    assert gradient.phase == "backward"


def test_batch_normalization_as_one_kernel_reads_twice(trace: Trace) -> None:
    """Forward: x twice (statistics, then use), y once. Backward: x and dy twice, dx once."""

    def build() -> Any:
        import keras

        image = keras.Input((16, 16, 8))
        hidden = keras.layers.Conv2D(8, 1, use_bias=False)(image)
        hidden = keras.layers.BatchNormalization(name="norm")(hidden)
        hidden = keras.layers.Conv2D(8, 1, use_bias=False)(hidden)
        return keras.Model(image, keras.layers.GlobalAveragePooling2D()(hidden))

    traced = trace(build, batch_size=32)
    tensor_bytes = 32 * 16 * 16 * 8 * 4
    assert moved(traced.rows(layer="norm", phase="forward"), "layer_") == pytest.approx(3 * tensor_bytes, rel=0.01)
    assert moved(traced.rows(layer="norm", phase="backward"), "layer_") == pytest.approx(
        5 * tensor_bytes, rel=0.01
    )
    reread = {
        phase: sum(op.layer_bytes_reread for op in traced.rows(layer="norm", phase=phase))
        for phase in ("forward", "backward")
    }
    assert reread == {
        "forward": pytest.approx(tensor_bytes, rel=0.01),
        "backward": pytest.approx(2 * tensor_bytes, rel=0.01),
    }


def test_a_layer_that_normalizes_adds_and_activates_is_one_kernel(trace: Trace) -> None:
    """Forward: x twice, what is added once, y once. Backward: x, dy and what was added twice, dx and its own once.

    What was added tells where the layer was active.
    """

    def build() -> Any:
        import keras

        class Activated(keras.layers.BatchNormalization):
            def call(self, inputs: Any, shortcut: Any, training: bool | None = None) -> Any:
                return keras.ops.relu(super().call(inputs, training=training) + shortcut)

        image = keras.Input((16, 16, 8))
        conv = partial(keras.layers.Conv2D, 8, 1, use_bias=False, dtype="mixed_float16")
        one, other = conv()(image), conv()(image)
        hidden = conv()(Activated(name="norm", dtype="mixed_float16")(one, other))
        return keras.Model(image, keras.layers.GlobalAveragePooling2D()(hidden))

    traced = trace(build, batch_size=32)
    tensor_bytes = 32 * 16 * 16 * 8 * 2
    for phase, arrays in (("forward", 4), ("backward", 8)):
        rows = [op for op in traced.rows(layer="norm", phase=phase) if moved([op], "layer_") > tensor_bytes]
        assert len({op.layer_group for op in rows}) == 1
        assert moved(rows, "layer_") == pytest.approx(arrays * tensor_bytes, rel=0.01)


def test_activation_after_a_convolution_is_fused(trace: Trace) -> None:
    """Bias and ReLU: two kernels of a read and a write by layer, one when fused."""

    def build() -> Any:
        import keras

        image = keras.Input((16, 16, 8))
        hidden = keras.layers.Conv2D(8, 1, name="conv")(image)
        hidden = keras.layers.ReLU(name="relu")(hidden)
        hidden = keras.layers.Conv2D(8, 1, use_bias=False)(hidden)
        return keras.Model(image, keras.layers.GlobalAveragePooling2D()(hidden))

    traced = trace(build, batch_size=32, mode="infer")
    tensor_bytes = 32 * 16 * 16 * 8 * 4
    rows = [op for op in traced.step.ops if op.kind is OpKind.ELEMENTWISE and op.layer in ("conv", "relu")]
    assert moved(rows, "layer_") == pytest.approx(4 * tensor_bytes, rel=0.01)
    assert moved(rows, "fused_") == pytest.approx(2 * tensor_bytes, rel=0.01)
    assert len({op.fused_group for op in rows}) == 1


def test_between_two_products_of_a_layer_each_call_is_a_kernel(trace: Trace) -> None:
    """Scale and mask read and write the scores; softmax reads them twice (maximum, then use) and writes them.

    Their gradients: softmax's reads two arrays twice and writes one; mask and scale read one and write one.
    """

    def build() -> Any:
        import keras
        from keras import ops

        class Attention(keras.layers.Layer):
            def call(self, x: Any) -> Any:
                scores = ops.einsum("bid,bjd->bij", x, x) * 0.125
                scores = ops.where(ops.triu(ops.ones((64, 64), dtype="bool"), k=1), -1e9, scores)
                return ops.einsum("bij,bjd->bid", ops.softmax(scores), x)

        tokens = keras.Input((64, 16))
        hidden = keras.layers.Dense(16)(tokens)
        return keras.Model(tokens, Attention(name="attention")(hidden))

    traced = trace(build, batch_size=32)
    scores_bytes = 32 * 64 * 64 * 4
    for phase, arrays in (("forward", 2 + 2 + 3), ("backward", 5 + 2 + 2)):
        rows = [op for op in traced.rows(layer="attention", phase=phase) if op.kind is not OpKind.DOT]
        large = [op for op in rows if op.layer_bytes_written >= scores_bytes]
        assert len({op.layer_group for op in large}) == 3
        assert moved(large, "layer_") == pytest.approx(arrays * scores_bytes, rel=0.1)


def test_queries_keys_and_values_are_copied_head_by_head_once(trace: Trace) -> None:
    """(batch, length, heads, size) is no batch of matrices at one stride: three copies, and one of the result.

    The backward pass reads the same copies; it copies the gradient of the result, and gives three back. Fused, the
    sum with a bias writes each copy as it goes.
    """

    def build() -> Any:
        import keras

        tokens = keras.Input((16, 32))
        mixed = keras.layers.MultiHeadAttention(4, 8, name="attention")(tokens, tokens)
        return keras.Model(tokens, keras.layers.GlobalAveragePooling1D()(mixed))

    traced = trace(build, batch_size=8)
    array_bytes = 8 * 16 * 32 * 4
    for phase in ("forward", "backward"):
        copies = [op for op in traced.rows(phase=phase) if "->" in op.layer and op.kind is OpKind.MOVE]
        inside = [op for op in copies if "BTNH" in op.layer or "BNTS" in op.layer]
        assert moved(inside) == moved(inside, "layer_") == 4 * 2 * array_bytes
    biased = [op for op in traced.rows(phase="forward") if op.layer.endswith(("/query", "/key", "/value"))]
    assert moved([op for op in biased if op.kind is not OpKind.DOT], "fused_") == 0


@pytest.mark.parametrize(("steps", "kernels"), [(12, 1 + 11 + 1), (2, 1 + 3 + 1)])
def test_between_the_steps_of_a_written_out_loop_is_one_kernel(trace: Trace, steps: int, kernels: int) -> None:
    """Activation, its double and an addition between products with one weight; two products are no loop."""

    def build() -> Any:
        import keras
        from keras import ops

        class Loop(keras.layers.Layer):
            def build(self, shape: Any) -> None:
                self.weight = self.add_weight(shape=(64, 64), initializer="orthogonal")

            def call(self, x: Any) -> Any:
                state = ops.zeros_like(x[:, 0])
                for step in range(steps):
                    state = ops.tanh(ops.matmul(state + x[:, step], self.weight)) * 2.0
                return state

        tokens = keras.Input((steps, 64))
        return keras.Model(tokens, Loop(name="loop")(tokens))

    rows = trace(build, batch_size=32).rows(layer="loop", phase="forward", kind=OpKind.ELEMENTWISE)
    assert len({op.layer_group for op in rows}) == kernels


@pytest.mark.parametrize(("optimizer", "tensors"), [("adam", 7), ("sgd", 3)])
def test_update_of_a_variable_is_one_kernel(trace: Trace, optimizer: str, tensors: int) -> None:
    """Adam reads gradient, weight and both moments and writes three; SGD reads two and writes one."""

    def build() -> Any:
        import keras

        return keras.Sequential([keras.Input((300,)), keras.layers.Dense(400, use_bias=False)])

    traced = trace(build, optimizer=optimizer)
    rows = [op for op in traced.rows(phase="update") if op.layer_bytes_written > 1000]
    assert len({op.layer_group for op in rows}) == 1
    assert moved(rows, "layer_") == pytest.approx(tensors * 300 * 400 * 4, rel=0.001)
    assert moved(rows, "fused_") == pytest.approx(tensors * 300 * 400 * 4, rel=0.001)


def test_each_variable_is_updated_on_its_own(trace: Trace) -> None:
    """Four variables, four update kernels when every layer call is one kernel."""

    def build() -> Any:
        import keras

        return keras.Sequential([keras.Input((30,)), keras.layers.Dense(40), keras.layers.Dense(50)])

    updates = trace(build, optimizer="adam").rows(phase="update")
    assert len({op.layer_group for op in updates if op.layer.startswith("adam")}) == 4


def test_dropout_draws_its_random_numbers_in_the_open(trace: Trace) -> None:
    """One row of random numbers, as many as there are activations."""

    def build() -> Any:
        import keras

        return keras.Sequential([keras.Input((300,)), keras.layers.Dense(64), keras.layers.Dropout(0.5)])

    drawn = max(trace(build, batch_size=32).rows(kind=OpKind.RANDOM), key=lambda op: op.bytes_written)
    assert drawn.bytes_written == 32 * 64 * 4


@pytest.mark.parametrize("width", [64, 1024])
def test_fusing_never_moves_more(trace: Trace, width: int) -> None:
    """Primitive by primitive moves most, layer by layer less, fused across layers least."""

    def build() -> Any:
        import keras

        layers = keras.layers
        tokens = keras.Input((16, width))
        hidden = layers.LayerNormalization()(tokens)
        hidden = layers.Dense(2 * width, activation="gelu")(hidden)
        hidden = layers.Add()([tokens, layers.Dense(width)(hidden)])
        return keras.Model(tokens, layers.Dense(4, activation="softmax")(hidden))

    ops = trace(build, optimizer="adam").step.ops
    assert moved(ops) > moved(ops, "layer_") > moved(ops, "fused_") > 0


def test_rows_without_work_of_their_own_are_left_out(trace: Trace) -> None:
    """Reshapes cost nothing: a model with many of them has the rows of one without."""

    def build(reshapes: int) -> Any:
        import keras

        steps = [keras.layers.Reshape((4, 8) if i % 2 == 0 else (32,)) for i in range(reshapes)]
        return keras.Sequential([keras.Input((10,)), keras.layers.Dense(32), *steps, keras.layers.Flatten()])

    few, many = (trace(lambda n=n: build(n), y_shape=(32,)).step for n in (0, 6))
    assert len(few.ops) == len(many.ops)


def test_operands_of_a_reduction_and_of_its_result_are_read_twice() -> None:
    """Values of 8, 4 and 2 bytes, read before its reductions (1), after (2) and both times (3): 14 + 2 bytes."""
    kernel = LayerKernel(first=0, reads={7: 8, 8: 4, 9: 2}, stages={7: 1, 8: 2, 9: 1 | 2})

    assert (kernel.bytes_read, kernel.bytes_reread, kernel.bytes_written) == (16, 2, 0)


@pytest.mark.parametrize(("activation", "is_softmax"), [("softmax", True), ("relu", False)])
def test_a_softmax_finds_the_largest_values_first(trace: Trace, activation: str, is_softmax: bool) -> None:
    """They are of the operand that it reads twice."""

    def build() -> Any:
        import keras

        return keras.Sequential([keras.Input((64,)), keras.layers.Activation(activation)])

    found = [op for op in trace(build, mode="infer").step.ops if op.layer_bytes_max > 0]
    assert bool(found) == is_softmax
    assert all(op.layer_bytes_max == op.layer_bytes_reread for op in found)
