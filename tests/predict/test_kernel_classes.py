"""Kernels that libraries run worse than others of their kind: unaligned, unsplit, converted, by a middle axis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.accelerator_limits import compute_limits
from gpuplan.predict.coefficients import load_coefficients
from gpuplan.predict.contractions import UNALIGNED_SHARE
from gpuplan.predict.executed_ops import Execution, find_keras_execution
from gpuplan.predict.kernel_table import Kernel, build_kernel_table, find_unaligned
from gpuplan.predict.kernel_times import LIBRARY_LAUNCH, compute_kernel_parts_s, compute_launch_s
from gpuplan.predict.launches import LONGEST_COLUMN, Launching, iter_token_softmax
from gpuplan.predict.step_time import NoPrediction
from gpuplan.workload.capture.load import trace_keras_model
from gpuplan.workload.ops import Op, OpKind
from gpuplan.workload.options import WorkloadOptions

LOGITS = Kernel("dot", "bfloat16", 2.0 * 8192 * 512 * 50257, 1e9, m=8192, n=50257, k=512)
GRADIENT = Op(
    kind=OpKind.CONV, name="conv_general_dilated", phase="backward", layer="up", dtype="bfloat16", flops=1e9,
    bytes_read=6e6, bytes_written=2e6, variant="wgrad", m=256, n=64, k=1000, kernel=(2, 2), stride=(2, 2),
    dilation=(1, 1),
)  # fmt: skip
FORWARD = replace(GRADIENT, phase="forward", variant="dgrad")
XLA = Launching(compiled=True, xla_samples=8)


@pytest.mark.parametrize(
    ("columns", "dtype", "unaligned"),
    [
        (50257, "bfloat16", True), (50304, "bfloat16", False), (50258, "float32", True), (50260, "float32", False),
        (50260, "bfloat16", True), (1023, "bfloat16", False), (50257, "float64", False),
    ],
)  # fmt: skip
def test_rows_of_16_bytes(columns: int, dtype: str, unaligned: bool) -> None:
    """8 numbers of 16 bits, 4 of 32; narrow products do not count, and both gradients do as the product does."""
    product = LOGITS._replace(n=columns, dtype=dtype)
    by_input, by_filter = product._replace(n=512, k=columns), product._replace(m=512, k=8192)
    other = product._replace(n=1024)

    assert find_unaligned([product, by_input, by_filter, other]) == [unaligned] * 3 + [False]


def kernels_s(kernels: list[Kernel], *, name: str = "H200") -> list[float]:
    """Return the arithmetic of each kernel in bfloat16 [s]."""
    table, found = build_kernel_table(kernels), load_coefficients()
    chip = compute_limits(load_catalog().accelerators[name], table=table, precision="mixed_bfloat16")
    assert not isinstance(chip, NoPrediction)
    stack, generation = found.stacks["tensorflow2 keras"], found.generations["Hopper"]
    return [float(t) for t in compute_kernel_parts_s(table, chip, generation, stack, found.shared, xp=np)[1]]


def test_an_unaligned_product_has_a_share_of_the_rate() -> None:
    """A large one, whose arithmetic is all: 50,264 columns take that share of the time of 50,257."""
    (odd_s,), (even_s,) = kernels_s([LOGITS]), kernels_s([LOGITS._replace(n=50264)])
    assert even_s / odd_s == pytest.approx(UNALIGNED_SHARE, rel=0.02)
    (old_s,), (older_s,) = (kernels_s([one], name="A100-40GB") for one in (LOGITS, LOGITS._replace(n=50264)))
    assert old_s == pytest.approx(older_s, rel=0.02)


def test_an_unsplit_sum_is_waited_for_step_by_step() -> None:
    """One tile over a million elements in steps of 32: at least that many latencies; split, a fraction of them."""
    one = Kernel("conv_fprop", "bfloat16", 2.0 * 32 * 32 * 2**20, 1e6, m=32, n=32, k=2**20)
    split_s, whole_s = kernels_s([one, one._replace(serial=True)])
    found = load_coefficients()
    least_s = 2**20 / 32 * found.generations["Hopper"].step_latency_s * found.shared.serial

    assert least_s < whole_s < 2 * least_s
    assert split_s < 0.1 * whole_s


def test_xla_does_not_split_the_filters_gradient_of_a_transposed_convolution() -> None:
    """With strides of 2 x 2, three of four positions are zeros: four times as many are summed."""
    forward, gradient = XLA.build_kernels([FORWARD, GRADIENT])
    assert (forward.serial, gradient.serial) == (False, True)
    assert (forward.k, gradient.k) == (1000, 4000)
    plain = XLA.build_kernels([replace(FORWARD, variant="fprop"), GRADIENT])
    assert [(one.serial, one.k) for one in plain] == [(False, 1000)] * 2
    for other in (Launching(compiled=True), Launching(compiled=True, xla_samples=64)):
        assert [(one.serial, one.k) for one in other.build_kernels([FORWARD, GRADIENT])] == [(False, 1000)] * 2


def test_xla_does_not_split_the_filters_gradient_of_a_dilated_convolution() -> None:
    """Nothing is inserted between the positions that are summed."""
    (dilated,) = XLA.build_kernels([replace(GRADIENT, stride=(1, 1), dilation=(4, 4))])
    assert (dilated.serial, dilated.k) == (True, 1000)


def test_xla_converts_the_arrays_of_three_dimensional_convolutions() -> None:
    """By hand: 8 MB are read and written once more."""
    volume = replace(FORWARD, variant="fprop", kernel=(3, 3, 3), stride=(1, 1, 1), dilation=(1, 1, 1))
    convolution, conversion = XLA.build_kernels([volume])
    assert (convolution.category, conversion.category) == ("conv_fprop", "stream")
    assert conversion.bytes_moved == 16e6


def test_xla_copies_each_array_of_a_filter_that_it_updates() -> None:
    """By hand: 256 x 64 numbers of 4 bytes are read and written, for the filter and Adam's two."""
    gradient, copies = replace(XLA, filter_arrays=3.0).build_kernels([replace(GRADIENT, stride=(1, 1))])
    assert (gradient.category, copies.category, copies.count) == ("conv_wgrad", "stream", 3.0)
    assert copies.bytes_moved == 2 * 4 * 256 * 64


@pytest.mark.parametrize(("optimizer", "arrays"), [("sgd", 1.0), ("adam", 3.0)])
def test_what_an_update_writes_is_the_variable_and_the_optimizers_arrays(optimizer: str, arrays: float) -> None:
    """Adam keeps two arrays of a variable, SGD none. Inference updates nothing; uncompiled, none is transposed."""
    import keras

    model = keras.Sequential([keras.Input((8, 8, 4)), keras.layers.Conv2D(16, 3)])
    model.compile(optimizer=optimizer, loss="mse")
    h200 = load_catalog().accelerators["H200"]

    def updated(**options: Any) -> float:
        workload = trace_keras_model(model, options=WorkloadOptions(batch_size=4, **options))
        return find_keras_execution(workload, h200).filter_arrays

    assert (updated(), updated(mode="infer"), updated(compiled=False)) == (arrays, 0.0, 0.0)


def test_xla_reduces_long_columns_in_two_kernels() -> None:
    """A second, short kernel for each such sum, on JAX alone."""
    sums = replace(FORWARD, kind=OpKind.REDUCE, variant="", fused_group=1, fused_bytes_read=8e6, column_sums=2)
    sums = replace(sums, column_rows=4097.0)
    first, second = XLA.build_kernels([sums])
    assert (first.bytes_moved, second.bytes_moved, second.count) == (8e6, 0.0, 2.0)
    assert len(Launching(compiled=True).build_kernels([sums])) == 1
    assert len(XLA.build_kernels([replace(sums, column_rows=4096.0)])) == 1


@pytest.mark.parametrize(("samples", "norms"), [(8, 0), (256, 5)])
def test_columns_are_long_by_samples_and_pixels(samples: int, norms: int) -> None:
    """By hand: 64 pixels of 8 samples are 512 rows, of 256 samples 16,384. In steps that XLA compiled for an H200,
    mean and variance take two kernels each, and so do the three sums of the backward pass."""
    import keras

    inputs = keras.Input((8, 8, 16))
    model = keras.Model(inputs, keras.layers.BatchNormalization()(keras.layers.ReLU()(inputs)))
    model.compile(optimizer="sgd", loss="mse")
    ops = trace_keras_model(model, options=WorkloadOptions(batch_size=samples)).ops
    assert sum(op.column_sums for op in ops if op.column_rows > LONGEST_COLUMN) == norms


def test_a_library_in_a_program_launches_its_kernels_itself() -> None:
    """Kernels of cuDNN's LSTM have the gaps of a host, others of the program; uncompiled, all the stack's."""
    kernels = [Kernel("stream", "float32", 0.0, 0.0, streamed=streamed) for streamed in (False, True)]
    found = load_coefficients()
    stack, generation = found.stacks["xla"], found.generations["Hopper"]
    for compiled, factors in ((True, [stack.launch, LIBRARY_LAUNCH]), (False, [stack.launch] * 2)):
        table = Execution(compiled=compiled).build_table(kernels)
        gaps_s = compute_launch_s(table, generation, stack, xp=np)
        assert gaps_s == pytest.approx([generation.launch_s * factor for factor in factors])


@pytest.mark.parametrize(
    ("positions", "classes", "steps"),
    [
        (512, 50257, [3 * 50257, 2 * 50257]),  # a thread for each position, as a block has no room for two
        (35, 10_000, [3 * 625, 2 * 625]),  # 16 threads share the classes of 35 positions: 560 of 1,024 threads
        (1, 1000, []),  # one label a sample: the classes are the last axis
    ],
)
def test_the_softmax_of_tokens_on_pytorch_reads_classes_one_by_one(
    positions: int, classes: int, steps: list[int]
) -> None:
    """Three passes forward and two backward, each read one and a half latencies of a k loop of eight elements."""
    loss = replace(FORWARD, kind=OpKind.ELEMENTWISE, variant="", layer="compile_loss/x", layer_bytes_max=1e6)
    logits = replace(FORWARD, kind=OpKind.DOT, variant="", m=16 * positions, n=classes, k=64)
    found = list(iter_token_softmax(loss, logits, samples=16, trains=True))

    assert [kernel.k for kernel in found] == [12 * count for count in steps]
    assert all(kernel.serial for kernel in found)
    step = Launching(compiled=False, torch_samples=16).build_kernels(
        [logits, loss, replace(loss, phase="backward")]
    )
    assert [kernel for kernel in step if kernel.serial] == found
    other = Launching(compiled=False).build_kernels([logits, loss])
    assert not any(kernel.serial for kernel in other)


def test_convolutions_on_a_cpu_have_rates_by_backend() -> None:
    """Depthwise ones take longer than the FLOPs say, most of all by XLA; products are the measure."""
    depthwise = Kernel("depthwise", "float32", 1e9, 1e3, m=9216, n=1, k=9, batch=96)
    shares = {
        backend: float(Execution(compiled=True, cpu_backend=backend).build_table([depthwise]).of_product[0])
        for backend in ("jax", "torch", "")
    }
    assert 0.0 == shares[""] < shares["jax"] < shares["torch"] < 1.0


@pytest.mark.parametrize(
    ("pixels", "stride", "dtype", "variant", "adds"),
    [
        (33 * 33, 1, "float32", "wgrad", True), (32 * 32, 1, "float32", "wgrad", False),
        (16 * 16, 2, "float32", "wgrad", True), (33 * 33, 1, "float16", "wgrad", False),
        (33 * 33, 1, "float32", "fprop", False),
    ],
)  # fmt: skip
def test_tensorflow_adds_to_a_depthwise_filter_in_memory(
    pixels: int, stride: int, dtype: str, variant: str, adds: bool
) -> None:
    """Maps of more than 32 x 32 pixels and strides above 1, in float32 alone; other frameworks never."""
    op = replace(
        GRADIENT, kind=OpKind.DEPTHWISE, dtype=dtype, variant=variant, m=9, n=1, k=8 * pixels, batch=64,
        kernel=(3, 3), stride=(stride, stride),
    )  # fmt: skip
    (kernel,) = Launching(compiled=False, tensorflow_samples=8).build_kernels([op])
    (other,) = Launching(compiled=False).build_kernels([op])

    assert kernel.serial is adds
    assert not other.serial


def test_each_term_of_a_depthwise_filter_is_an_atomic_addition() -> None:
    """Half of the FLOPs are additions; a V100 runs at up to 1.53 GHz (NVIDIA's datasheet)."""
    gradient = Kernel("depthwise", "float32", 2.0 * 9 * 2**20, 1e6, m=9, n=1, k=2**14, batch=64, serial=True)
    (adding_s,) = kernels_s([gradient], name="V100-16GB")

    additions_per_s = load_coefficients().generations["Hopper"].atomics * 1.53e9
    assert adding_s == pytest.approx(9 * 2**20 / additions_per_s, rel=0.05)
