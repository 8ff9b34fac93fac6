"""Process of a campaign that measures kernels: builds and compiles all, waits for the device, then times each.

    python -m lab.campaign_process FOLDER

Every operation is Keras's own (`keras.ops`, layers, optimizers), so that XLA on JAX, and cuDNN and cuBLAS by
PyTorch, get what they get in Keras's steps. A gradient is timed without its forward pass, whose residuals are
arguments.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from gpuplan.child_process import Parent
from gpuplan.profile.child import get_torch_synchronize, is_out_of_memory, set_products, wait_for_device
from gpuplan.profile.machine import describe_environment
from gpuplan.profile.windows import MeasurementRules, Meter, time_windows

from .campaign_kernels import BYTES, Kernel
from .kernel_times import trace_kernels

Step = Callable[[], Any]
# From the number of sets of arguments, or the sets: what starts the kernel once, and what waits for it.
Bind = Callable[[int], tuple[Step, Step]]
BindDrawn = Callable[[list[tuple[list[Any], Any]]], tuple[Step, Step]]
ROTATED_BYTES = 512 * 2**20  # of different arguments in turn, several times the largest cache [bytes]
MOST_SETS = 16
BLOCK = 1_000_003  # values that are drawn and repeated; a prime, so that rows differ
TYPES = {"tf32": "float32"}


def main(folder: str) -> None:
    """Measure the kernels of a request; one `row` for each."""
    parent = Parent(folder)
    parent.end_with()
    request = parent.request
    backend, kernels = request["backend"], [_read_kernel(fields) for fields in request["kernels"]]
    parent.send("ready", batch_size=None, environment=describe_environment(backend), facts={})
    prepared: list[tuple[Bind | dict[str, Any], float]] = []
    for place, kernel in enumerate(kernels):
        parent.send("kernel", place=place)
        started_s = time.perf_counter()
        prepared.append((_prepare(kernel, backend), time.perf_counter() - started_s))
    wait_for_device(parent)
    for place, (kernel, (bind, compile_s)) in enumerate(zip(kernels, prepared, strict=True)):
        parent.send("kernel", place=place)
        on_warm = partial(parent.send, "timing")
        row = bind if isinstance(bind, dict) else _measure(kernel, bind, backend, request, on_warm=on_warm)
        parent.send("row", place=place, row={**row, "compile_s": compile_s})
    parent.finish("done", row={})


def _prepare(kernel: Kernel, backend: str) -> Bind | dict[str, Any]:
    """Compile a kernel, and run it once; the row of one that fails."""
    try:
        _set_precision(backend, kernel.precision)
        bind = build_program(kernel, backend)
        step, synchronize = bind(1)
        step()
        synchronize()
    except Exception as error:
        return _describe(error)
    return bind


def _read_kernel(fields: dict[str, Any]) -> Kernel:
    shapes = tuple(tuple(shape) for shape in fields["shapes"])
    return Kernel(**{**fields, "shapes": shapes, "out": tuple(fields["out"])})


def _describe(error: Exception) -> dict[str, Any]:
    status = "out_of_memory" if is_out_of_memory(error) else "failed"
    lines = str(error).strip().splitlines() or [""]
    return {"status": status, "message": f"{type(error).__name__}: {lines[0]}"[:400]}


def _set_precision(backend: str, precision: str) -> dict[str, Any]:
    """Say how float32 is multiplied; of 16-bit arguments nothing is left to say."""
    if backend == "jax" and precision not in ("float32", "tf32"):
        import jax

        jax.config.update("jax_default_matmul_precision", None)
    return set_products(backend, precision)


def _measure(
    kernel: Kernel, bind: Bind, backend: str, request: dict[str, Any], *, on_warm: Step
) -> dict[str, Any]:
    """Return the timing of a kernel, and what was launched; `on_warm` is called after the first counted window."""
    meter = Meter(MeasurementRules(**request["rules"]))
    try:
        told = _set_precision(backend, kernel.precision)
        size = sum(math.prod(shape) for shape in (*kernel.shapes, kernel.out)) * BYTES[kernel.precision]
        sets = min(max(1, math.ceil(request["rotated_bytes"] / size)), MOST_SETS)
        step, synchronize = bind(sets)
        time_windows(
            step, synchronize, meter=meter, clock=time.perf_counter,
            on_window=lambda meter: on_warm() if len(meter.steps_s) == 1 else None,
        )  # fmt: skip
        row = {"status": "measured", "timing": meter.to_json(), "argument_sets": sets, **told}
        if request["trace"]:
            row["kernels"] = trace_kernels(backend, step, synchronize)
    except Exception as error:
        return _describe(error)
    return row


# --- programs ----------------------------------------------------------------------------------------------


def build_program(kernel: Kernel, backend: str) -> Bind:
    """Return a function that binds a kernel, compiled at its first call, to some sets of arguments."""
    if kernel.op == "optimizer":
        return _build_optimizer(kernel, backend)
    function = OPERATIONS[kernel.op](kernel)
    bind = _build_jax(kernel, function) if backend == "jax" else _build_torch(kernel, function)
    return lambda sets: bind([draw_arguments(kernel, seed) for seed in range(sets)])


def _draw(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Return a tensor on the device: random values repeated, never zeros, which some chips multiply faster."""
    import keras
    import numpy as np

    # PyTorch takes no bfloat16 from NumPy, and converts quickly itself.
    block = _draw_block(dtype if keras.backend.backend() == "jax" else "float32")
    return keras.ops.convert_to_tensor(np.resize(np.roll(block, seed), shape), dtype=dtype)


@cache
def _draw_block(dtype: str) -> Any:
    import ml_dtypes
    import numpy as np

    block = 0.1 * np.random.default_rng(0).standard_normal(BLOCK, dtype=np.float32)
    return block.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def draw_arguments(kernel: Kernel, seed: int) -> tuple[list[Any], Any]:
    """Return arguments, and a gradient of the result."""
    dtype = TYPES.get(kernel.precision, kernel.precision)
    first = seed * (len(kernel.shapes) + 1)
    arguments = [_draw(shape, dtype, first + place) for place, shape in enumerate(kernel.shapes, start=1)]
    return arguments, _draw(kernel.out, dtype, first)


def _build_jax(kernel: Kernel, function: Callable[..., Any]) -> BindDrawn:
    """Jit the forward function, or the function that takes residuals and the gradient of the result."""
    import jax

    is_forward = kernel.direction == "forward"
    run = jax.jit(function if is_forward else lambda pull, gradient: pull(gradient))
    linearize = jax.jit(partial(_linearize, function, kernel.argument))

    def bind(drawn: list[tuple[list[Any], Any]]) -> tuple[Step, Step]:
        kept: list[Any] = [None]
        turns = itertools.cycle(
            [arguments if is_forward else linearize(arguments, gradient) for arguments, gradient in drawn]
        )

        def step() -> Any:
            kept[0] = run(*next(turns))
            return kept[0]

        return step, lambda: jax.block_until_ready(kept)

    return bind


def _linearize(function: Callable[..., Any], one: int | None, arguments: list[Any], gradient: Any) -> Any:
    """Return the residuals for one argument, or for all, and a gradient of the result's type."""
    import jax

    if one is None:
        result, pull = jax.vjp(function, *arguments)
    else:
        before, after = arguments[:one], arguments[one + 1 :]
        result, pull = jax.vjp(lambda value: function(*before, value, *after), arguments[one])
    return pull, gradient.astype(result.dtype)


def _build_torch(kernel: Kernel, function: Callable[..., Any]) -> BindDrawn:
    """Run kernel by kernel, as Keras does; a gradient through the graph of one forward pass, which is kept."""
    import torch

    def forward(arguments: list[Any], gradient: Any) -> Step:
        def step() -> Any:
            with torch.no_grad():
                return function(*arguments)

        return step

    def backward(arguments: list[Any], gradient: Any) -> Step:
        wanted = arguments if kernel.argument is None else [arguments[kernel.argument]]
        for argument in wanted:
            argument.requires_grad_()
        result = function(*arguments)
        return lambda: torch.autograd.grad(result, wanted, gradient.to(result.dtype), retain_graph=True)

    def bind(drawn: list[tuple[list[Any], Any]]) -> tuple[Step, Step]:
        build = forward if kernel.direction == "forward" else backward
        turns = itertools.cycle([build(arguments, gradient) for arguments, gradient in drawn])

        def step() -> Any:
            return next(turns)()

        return step, get_torch_synchronize()

    return bind


def _build_optimizer(kernel: Kernel, backend: str) -> Bind:
    """Update variables again and again: on JAX one program whose state is donated, as in Keras's trainer."""
    import keras

    optimizer = OPTIMIZERS[kernel.settings["kind"]]()
    variables = [keras.Variable(_draw(shape, "float32", 0)) for shape in kernel.shapes]
    gradients = [_draw(shape, "float32", 1) for shape in kernel.shapes]
    optimizer.build(variables)
    if backend == "torch":
        import torch

        def update() -> None:
            with torch.no_grad():
                optimizer.apply(gradients, variables)

        return lambda sets: (update, get_torch_synchronize())
    import jax

    def apply(state: Any, gradients: Any) -> Any:
        return optimizer.stateless_apply(state[0], gradients, state[1])[::-1]

    run = jax.jit(apply, donate_argnums=0)

    def bind(sets: int) -> tuple[Step, Step]:
        # Copies: the program destroys its state, and a value of two variables could not be donated twice.
        kept = [tuple([jax.numpy.array(v.value) for v in group] for group in (optimizer.variables, variables))]

        def step() -> None:
            kept[0] = run(kept[0], gradients)

        return step, lambda: jax.block_until_ready(kept)

    return bind


def _make_optimizer(name: str, **settings: Any) -> Callable[[], Any]:
    def make() -> Any:
        import keras

        return getattr(keras.optimizers, name)(learning_rate=1e-5, **settings)

    return make


OPTIMIZERS = {
    "adam": _make_optimizer("Adam"), "adamw": _make_optimizer("AdamW"), "sgd": _make_optimizer("SGD"),
    "momentum": _make_optimizer("SGD", momentum=0.9), "rmsprop": _make_optimizer("RMSprop"),
    "lion": _make_optimizer("Lion"), "adafactor": _make_optimizer("Adafactor"),
}  # fmt: skip


# --- operations: each returns the function of a kernel's floating-point arguments -----------------------------


def _use(name: str, **always: Any) -> Callable[[Kernel], Callable[..., Any]]:
    """Use a function of `keras.ops` with the kernel's settings."""

    def build(kernel: Kernel) -> Callable[..., Any]:
        import keras

        function, settings = getattr(keras.ops, name), {**always, **kernel.settings}
        return lambda *arguments: function(*arguments, **settings)

    return build


def _build_pool(name: str) -> Callable[[Kernel], Callable[..., Any]]:
    def build(kernel: Kernel) -> Callable[..., Any]:
        import keras

        function, size, strides = (getattr(keras.ops, name), kernel.settings["size"], kernel.settings["strides"])
        return lambda x: function(x, size, strides=strides, padding="same", data_format="channels_last")

    return build


def _draw_integers(count: int, below: int) -> Any:
    import keras
    import numpy as np

    return keras.ops.convert_to_tensor(np.random.default_rng(0).integers(0, below, count, dtype=np.int32))


def _build_embedding(kernel: Kernel) -> Callable[..., Any]:
    import keras

    ids = _draw_integers(kernel.settings["tokens"], kernel.shapes[0][0])
    return lambda table: keras.ops.take(table, ids, axis=0)


def _build_cross_entropy(kernel: Kernel) -> Callable[..., Any]:
    import keras

    rows, classes = kernel.shapes[0]
    labels = _draw_integers(rows, classes)
    return lambda logits: keras.ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def _build_batch_norm(kernel: Kernel) -> Callable[..., Any]:
    """Normalize by the moments of the batch, as Keras's layer does in training."""
    import keras

    axes = tuple(range(len(kernel.shapes[0]) - 1))

    def normalize(x: Any, scale: Any, offset: Any) -> Any:
        mean, variance = keras.ops.moments(x, axes=axes)
        return keras.ops.batch_normalization(x, mean, variance, axis=-1, offset=offset, scale=scale, epsilon=1e-3)

    return normalize


def _build_recurrence(kind: str) -> Callable[[Kernel], Callable[..., Any]]:
    def build(kernel: Kernel) -> Callable[..., Any]:
        import keras

        dtype = TYPES.get(kernel.precision, kernel.precision)
        layer = getattr(keras.layers, kind)(
            kernel.settings["units"], return_sequences=True, dtype=dtype,
            recurrent_initializer="zeros",  # its own needs a decomposition, which 16 bits do not have
        )  # fmt: skip
        layer.build(kernel.shapes[0])
        rest = [variable.value for variable in layer.non_trainable_variables]
        return lambda x, *weights: layer.stateless_call(list(weights), rest, x)[0]

    return build


def _build_attention(kernel: Kernel) -> Callable[..., Any]:
    import keras
    import numpy as np

    batch, length = kernel.shapes[0][:2]
    settings: dict[str, Any] = {"is_causal": kernel.settings["mask"] == "causal"}
    if kernel.settings["mask"] == "padding":
        lengths = np.random.default_rng(0).integers(length // 2, length + 1, batch)
        mask = np.arange(length)[None, None, None, :] < lengths[:, None, None, None]
        settings["mask"] = keras.ops.convert_to_tensor(np.broadcast_to(mask, (batch, 1, length, length)).copy())
    return lambda q, k, v: keras.ops.dot_product_attention(q, k, v, **settings)


OPERATIONS: dict[str, Callable[[Kernel], Callable[..., Any]]] = {
    "conv": _use("conv", padding="same", data_format="channels_last"),
    "depthwise_conv": _use("depthwise_conv", padding="same", data_format="channels_last"),
    "conv_transpose": _use("conv_transpose", padding="same", data_format="channels_last"),
    "matmul": _use("matmul"), "softmax": _use("softmax", axis=-1),
    "embedding": _build_embedding, "cross_entropy": _build_cross_entropy,
    "layer_norm": _use("layer_normalization", axis=-1), "rms_norm": _use("rms_normalization", axis=-1),
    "batch_norm": _build_batch_norm, "max_pool": _build_pool("max_pool"),
    "average_pool": _build_pool("average_pool"), "lstm": _build_recurrence("LSTM"),
    "gru": _build_recurrence("GRU"), "attention": _build_attention,
}  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1])
