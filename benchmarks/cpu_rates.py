"""Rates of convolutions on this machine's CPU by backend, relative to a large matrix product of the same backend.

    python benchmarks/cpu_rates.py jax            # or torch, tensorflow: one backend a process

Prints a line for each convolution and pass, and their geometric means by kind: `CPU_RATES` of
`planner/predict/library_kernels.py`. Half a minute each.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# Batch, side of the map, channels in and out, side of the filter: of ResNet-50, VGG-16 and MobileNetV2.
DENSE = ((8, 56, 64, 64, 3), (8, 28, 128, 128, 3), (8, 14, 256, 256, 3), (8, 28, 128, 512, 1), (8, 14, 384, 96, 1))
DEPTHWISE = ((8, 48, 96, 3), (8, 24, 144, 3), (8, 12, 384, 3), (8, 6, 960, 3))
PRODUCT = 512  # side of the matrices
PASSES = ("fprop", "dgrad", "wgrad")
CALLS, LONGEST_S = 200, 1.0
Run = Callable[[], object]


def measure_s(run: Run) -> float:
    """Return the shortest time of some calls, which others on the machine disturb least [s]."""
    run()
    found, ends = [], time.perf_counter() + LONGEST_S
    while len(found) < CALLS and (not found or time.perf_counter() < ends):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return min(found)


def build_jax(x: Any, w: Any, y: Any, groups: int) -> list[Run]:
    """Return the three passes of a convolution by XLA."""
    import jax
    from jax import lax

    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
        )

    calls = (
        jax.jit(convolve),
        jax.jit(lambda x, w, y: jax.vjp(lambda x: convolve(x, w), x)[1](y)[0]),
        jax.jit(lambda x, w, y: jax.vjp(lambda w: convolve(x, w), w)[1](y)[0]),
    )
    x, w, y = map(jax.device_put, (x, w, y))
    runs = ((x, w), (x, w, y), (x, w, y))
    return [
        lambda call=call, given=given: call(*given).block_until_ready()
        for call, given in zip(calls, runs, strict=True)
    ]


def build_torch(x: Any, w: Any, y: Any, groups: int) -> list[Run]:
    """Return the three passes of a convolution by PyTorch, channels last in memory."""
    import torch

    last = torch.channels_last
    x, y = (torch.from_numpy(a).permute(0, 3, 1, 2).to(memory_format=last) for a in (x, y))
    w = torch.from_numpy(w).permute(3, 2, 0, 1).contiguous(memory_format=last)
    pad = w.shape[-1] // 2

    def backward(mask: list[bool]) -> Run:
        return lambda: torch.ops.aten.convolution_backward(
            y, x, w, None, [1, 1], [pad, pad], [1, 1], False, [0, 0], groups, mask
        )

    forward = lambda: torch.nn.functional.conv2d(x, w, padding=pad, groups=groups)  # noqa: E731
    return [forward, backward([True, False, False]), backward([False, True, False])]


def build_tensorflow(x: Any, w: Any, y: Any, groups: int) -> list[Run]:
    """Return the three passes of a convolution by TensorFlow, without XLA."""
    import tensorflow as tf

    if groups > 1:
        w = np.moveaxis(w, 3, 2)
        nn = tf.nn
        forward, by_input, by_filter = (
            nn.depthwise_conv2d, nn.depthwise_conv2d_backprop_input, nn.depthwise_conv2d_backprop_filter,
        )  # fmt: skip
    else:
        forward, by_input, by_filter = (
            tf.nn.conv2d,
            lambda shape, w, y, **more: tf.raw_ops.Conv2DBackpropInput(
                input_sizes=shape, filter=w, out_backprop=y, **more
            ),
            lambda x, shape, y, **more: tf.raw_ops.Conv2DBackpropFilter(
                input=x, filter_sizes=shape, out_backprop=y, **more
            ),
        )
    how = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    x, w, y = map(tf.constant, (x, w, y))
    calls = (
        tf.function(lambda: forward(x, w, **how)),
        tf.function(lambda: by_input(x.shape, w, y, **how)),
        tf.function(lambda: by_filter(x, w.shape, y, **how)),
    )
    return [lambda call=call: call().numpy() for call in calls]


def build_product(backend: str) -> Run:
    """Return a large matrix product."""
    a = np.random.default_rng(0).normal(size=(PRODUCT, PRODUCT)).astype(np.float32)
    if backend == "jax":
        import jax

        b, call = jax.device_put(a), jax.jit(lambda b: b @ b)
        return lambda: call(b).block_until_ready()
    if backend == "torch":
        import torch

        c = torch.from_numpy(a)
        return lambda: c @ c
    import tensorflow as tf

    d = tf.constant(a)
    product = tf.function(lambda: d @ d)
    return lambda: product().numpy()


def main(backend: str) -> None:
    """Print the rates."""
    build = {"jax": build_jax, "torch": build_torch, "tensorflow": build_tensorflow}[backend]
    random = np.random.default_rng(0)
    peak = 2.0 * PRODUCT**3 / measure_s(build_product(backend))
    print(f"{backend}: matrix product {peak / 1e9:.1f} GFLOP/s")
    cases = [("dense", *shape) for shape in DENSE]
    cases += [("depthwise", batch, side, width, width, kernel) for batch, side, width, kernel in DEPTHWISE]
    shares: dict[tuple[str, str], list[float]] = {}
    for kind, batch, side, ours, theirs, kernel in cases:
        groups = ours if kind == "depthwise" else 1
        shapes = ((batch, side, side, ours), (kernel, kernel, ours // groups, theirs), (batch, side, side, theirs))
        arrays = [random.normal(size=shape).astype(np.float32) for shape in shapes]
        flops = 2.0 * batch * side**2 * theirs * kernel**2 * ours / groups
        for name, run in zip(PASSES, build(*arrays, groups), strict=True):
            share = flops / measure_s(run) / peak
            shares.setdefault((kind, name), []).append(share)
            print(f"  {kind} {name} {side}x{side}x{ours} to {theirs}, {kernel}x{kernel}: {share:.4f}")
    for (kind, name), found in shares.items():
        print(f"{backend} {kind} {name}: {math.exp(statistics.fmean(map(math.log, found))):.4f}")


if __name__ == "__main__":
    main(sys.argv[1])
