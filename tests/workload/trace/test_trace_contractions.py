"""FLOPs and shapes of matrix products and convolutions, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gpuplan.workload.ops import OpKind
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Trace = Callable[..., Any]


def out_pixels(size: int, *, kernel: int, stride: int, dilation: int, padding: str) -> int:
    """Return the output size along one axis, as the convolution's definition gives it."""
    if padding == "same":
        return -(-size // stride)
    return (size - dilation * (kernel - 1) - 1) // stride + 1


def after_a_first_layer(make: Callable[[], Any], *, size: int = 13, channels: int = 8) -> Callable[[], Any]:
    """Return a model whose second layer is the one under test, so that its input needs a gradient."""

    def build() -> Any:
        import keras

        image = keras.Input((size, size, channels))
        hidden = keras.layers.Conv2D(channels, 1, name="first")(image)
        return keras.Model(image, keras.layers.GlobalAveragePooling2D()(make()(hidden)))

    return build


def test_dense_is_two_m_n_k_forward_and_for_both_gradients(trace: Trace) -> None:
    """2 x batch x inputs x outputs; the first layer has no gradient to its input."""

    def build() -> Any:
        import keras

        return keras.Sequential(
            [keras.Input((30,)), keras.layers.Dense(50, name="a"), keras.layers.Dense(7, name="b")]
        )

    traced = trace(build, batch_size=16)
    first, second = traced.contractions("a"), traced.contractions("b")
    assert {variant: op.flops for variant, op in first.items()} == {
        "fprop": 2 * 16 * 30 * 50,
        "wgrad": 2 * 16 * 30 * 50,
    }
    assert {variant: op.flops for variant, op in second.items()} == dict.fromkeys(
        ("fprop", "dgrad", "wgrad"), 2 * 16 * 50 * 7
    )
    forward = second["fprop"]
    assert (forward.m, forward.n, forward.k, forward.batch) == (16, 7, 50, 1)
    assert forward.bytes_read == 4 * (16 * 50 + 50 * 7)
    assert forward.bytes_written == 4 * 16 * 7


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize(
    "shape", [(3, 1, 1, 1), (3, 2, 1, 1), (1, 1, 1, 1), (1, 2, 1, 1), (3, 1, 2, 1), (5, 3, 1, 1), (3, 2, 1, 4)]
)
def test_convolution_counts_real_work(trace: Trace, shape: tuple[int, int, int, int], padding: str) -> None:
    """2 x batch x output pixels x kernel x channels in / groups x channels out, for all three variants."""
    kernel, stride, dilation, groups = shape

    def make() -> Any:
        import keras

        return keras.layers.Conv2D(
            12, kernel, strides=stride, dilation_rate=dilation, groups=groups, padding=padding, name="conv"
        )

    found = trace(after_a_first_layer(make), batch_size=4).contractions("conv")
    pixels = out_pixels(13, kernel=kernel, stride=stride, dilation=dilation, padding=padding) ** 2
    expected = 2 * 4 * pixels * kernel**2 * 8 // groups * 12
    assert {variant: op.flops for variant, op in found.items()} == dict.fromkeys(
        ("fprop", "dgrad", "wgrad"), expected
    )
    window = kernel**2
    shapes = {variant: (op.m, op.n, op.k, op.batch) for variant, op in found.items()}
    assert shapes == {
        "fprop": (4 * pixels, 12 // groups, window * 8 // groups, groups),
        "dgrad": (4 * 13 * 13, 8 // groups, window * 12 // groups, groups),
        "wgrad": (window * 8 // groups, 12 // groups, 4 * pixels, groups),
    }
    for op in found.values():
        assert op.kind is OpKind.CONV
        assert (op.kernel, op.stride, op.dilation) == ((kernel,) * 2, (stride,) * 2, (dilation,) * 2)
        assert (op.channels_in, op.channels_out, op.channels_last) == (8, 12, True)


def test_first_convolution_has_no_input_gradient(trace: Trace) -> None:
    """The gradient of the image is not needed."""

    def make() -> Any:
        import keras

        return keras.layers.Conv2D(4, 3)

    assert set(trace(after_a_first_layer(make)).contractions("first")) == {"fprop", "wgrad"}


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_counts_one_channel_a_group(trace: Trace, stride: int, multiplier: int) -> None:
    """2 x batch x output pixels x 9 x channels x multiplier, for all three variants."""

    def make() -> Any:
        import keras

        return keras.layers.DepthwiseConv2D(
            3, strides=stride, padding="same", depth_multiplier=multiplier, name="depthwise"
        )

    found = trace(after_a_first_layer(make, size=12), batch_size=4).contractions("depthwise")
    pixels = (12 // stride) ** 2
    for variant in ("fprop", "dgrad", "wgrad"):
        op = found[variant]
        assert op.kind is OpKind.DEPTHWISE
        assert op.flops == 2 * 4 * pixels * 9 * 8 * multiplier
        assert (op.kernel, op.stride, op.batch) == ((3, 3), (stride, stride), 8)
        assert (op.channels_in, op.channels_out) == (8, 8 * multiplier)


def test_separable_is_depthwise_then_pointwise(trace: Trace) -> None:
    """9 products a channel, then channels in x channels out a pixel."""

    def make() -> Any:
        import keras

        return keras.layers.SeparableConv2D(16, 3, padding="same", name="separable")

    traced = trace(after_a_first_layer(make, size=12), batch_size=4)
    pixels = 4 * 12 * 12
    for variant in ("fprop", "dgrad", "wgrad"):
        assert traced.flops(kind=OpKind.DEPTHWISE, variant=variant) == 2 * pixels * 9 * 8
        rows = [op for op in traced.rows(kind=OpKind.CONV, variant=variant) if op.layer != "first"]
        assert sum(op.flops for op in rows) == 2 * pixels * 8 * 16


@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 2), (3, 1), (4, 2)])
def test_transposed_convolution_is_an_input_gradient(trace: Trace, kernel: int, stride: int) -> None:
    """2 x batch x *input* pixels x kernel x channels in x channels out: each input pixel is spread once."""

    def make() -> Any:
        import keras

        return keras.layers.Conv2DTranspose(6, kernel, strides=stride, padding="same", name="up")

    traced = trace(after_a_first_layer(make, size=10), batch_size=4)
    found = traced.contractions("up")
    assert {variant: op.flops for variant, op in found.items()} == dict.fromkeys(
        ("fprop", "dgrad", "wgrad"), 2 * 4 * 10 * 10 * kernel**2 * 8 * 6
    )
    assert found["dgrad"].phase == "forward"
    assert {op.stride for op in found.values()} == {(stride, stride)}


@pytest.mark.parametrize(("rank", "pixels"), [(1, 9), (3, 9**3)])
def test_one_and_three_dimensional_convolutions(trace: Trace, rank: int, pixels: int) -> None:
    """The same closed form with any number of spatial axes."""

    def build() -> Any:
        import keras

        layer = getattr(keras.layers, f"Conv{rank}D")
        pool = getattr(keras.layers, f"GlobalAveragePooling{rank}D")
        return keras.Sequential(
            [keras.Input((9,) * rank + (2,)), layer(5, 3, padding="same", name="conv"), pool()]
        )

    found = trace(build, batch_size=2).contractions("conv")
    assert found["fprop"].flops == found["wgrad"].flops == 2 * 2 * pixels * 3**rank * 2 * 5
    assert found["wgrad"].kernel == (3,) * rank


def test_channels_first_is_seen(trace: Trace) -> None:
    """The layer's layout is known in all variants; the work does not depend on it."""

    def build() -> Any:
        import keras

        first = {"data_format": "channels_first"}
        return keras.Sequential(
            [
                keras.Input((4, 10, 10)),
                keras.layers.Conv2D(6, 1, **first),
                keras.layers.Conv2D(5, 3, strides=2, padding="same", name="conv", **first),
                keras.layers.GlobalAveragePooling2D(**first),
            ]
        )

    found = trace(build, batch_size=2).contractions("conv")
    assert {op.channels_last for op in found.values()} == {False}
    assert {op.flops for op in found.values()} == {2 * 2 * 25 * 9 * 6 * 5}


def test_lstm_multiplies_by_its_length(trace: Trace) -> None:
    """A step does 2 x batch x 4 units x (inputs + units); backward twice that, less the first input's."""

    def build() -> Any:
        import keras

        return keras.Sequential([keras.Input((20, 6)), keras.layers.LSTM(10)])

    traced = trace(build, batch_size=3)
    forward = 2 * 3 * 40 * (6 + 10) * 20
    assert traced.flops(kind=OpKind.DOT, phase="forward") == forward
    backward = traced.flops(kind=OpKind.DOT, phase="backward")
    assert backward == pytest.approx(2 * forward - 2 * 3 * 40 * 6 * 20, rel=0.02)
    assert {op.count for op in traced.rows(kind=OpKind.DOT)} == {20.0}


def test_attention_is_four_projections_and_two_products(trace: Trace) -> None:
    """Projections: 8 x B x T x D x HK; scores and their use: 4 x B x H x T x T x K; backward twice that."""

    def build() -> Any:
        import keras

        tokens = keras.Input((12, 16))
        hidden = keras.layers.Dense(16, name="first")(tokens)
        mixed = keras.layers.MultiHeadAttention(4, 8, name="attention")(hidden, hidden)
        return keras.Model(tokens, mixed)

    traced = trace(build, batch_size=3)
    forward = 8 * 3 * 12 * 16 * 32 + 4 * 3 * 4 * 12 * 12 * 8
    rows = [op for op in traced.rows(kind=OpKind.DOT) if op.layer.startswith("attention")]
    assert sum(op.flops for op in rows if op.phase == "forward") == forward
    assert sum(op.flops for op in rows if op.phase == "backward") == 2 * forward


def test_mixed_precision_contracts_in_half(trace: Trace) -> None:
    """The type of a contraction is that of its operands."""

    def build() -> Any:
        import keras

        return keras.Sequential(
            [
                keras.Input((8, 8, 4)),
                keras.layers.Conv2D(4, 3, dtype="mixed_float16", name="conv"),
                keras.layers.GlobalAveragePooling2D(),
            ]
        )

    assert {op.dtype for op in trace(build).contractions("conv").values()} == {"float16"}


def test_inference_is_the_forward_pass_alone(trace: Trace) -> None:
    """No gradients, no update; gradient and optimizer memory are zero."""

    def build() -> Any:
        import keras

        return keras.Sequential([keras.Input((30,)), keras.layers.Dense(50), keras.layers.Dense(7)])

    traced = trace(build, mode="infer", optimizer="adam")
    assert {op.phase for op in traced.step.ops} == {"forward"}
    assert traced.flops(kind=OpKind.DOT) == 2 * 8 * (30 * 50 + 50 * 7)
    assert (traced.step.memory.gradient_bytes, traced.step.memory.optimizer_bytes) == (0, 0)


@given(batch=st.integers(1, 40), factor=st.integers(2, 4))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_contraction_flops_are_linear_in_the_batch(trace: Trace, batch: int, factor: int) -> None:
    """Twice the samples, twice the work of every contraction."""

    def build() -> Any:
        import keras

        return keras.Sequential(
            [
                keras.Input((9, 9, 3)),
                keras.layers.Conv2D(4, 3, strides=2),
                keras.layers.Flatten(),
                keras.layers.Dense(5),
            ]
        )

    def contraction_flops(samples: int) -> float:
        traced = trace(build, batch_size=samples)
        return traced.flops(kind=OpKind.CONV) + traced.flops(kind=OpKind.DOT)

    assert contraction_flops(batch * factor) == factor * contraction_flops(batch)
