"""Defaults of Keras and its backends that decide how a step runs on an accelerator: fused attention, TF32."""

from __future__ import annotations

from typing import NamedTuple

from ..offers.rows import Accelerator
from ..workload.model import AttentionCall, Workload
from .accelerator_limits import runs_tf32_by_default
from .kernel_table import SIXTEEN_BIT, WIDE
from .library_kernels import AMPERE, HOPPER, find_keras_cudnn_layers, is_nvidia_since

# cuDNN's kernel takes heads of up to 128 features, from Hopper on up to 256, in multiples of 8, in 16 bits
# (JAX 0.10, jax/_src/cudnn/fused_attention_stablehlo.py, `check_layout` and `check_is_flash_attention`).
LARGEST_HEAD, LARGEST_HEAD_HOPPER, HEAD_MULTIPLE = 128, 256, 8
# Splash attention's default blocks (JAX 0.10, jax/experimental/pallas/ops/tpu/splash_attention).
SPLASH_BLOCK = 128
ALIGNED = 8  # elements of 16 bits in 16 bytes
FIRST_AHEAD = (3, 14)  # version of Keras: see `copies_ahead`


class AttentionChoice(NamedTuple):
    """Whether attention runs as one kernel, and a note for the user; empty if the model calls no attention."""

    fused: bool
    note: str


def choose_attention(workload: Workload, accelerator: Accelerator) -> AttentionChoice:
    """Return whether Keras takes a fused kernel for every attention call of a workload on an accelerator.

    The rules of `keras.ops.dot_product_attention` in Keras 3.15 (keras/src/backend/*/nn.py): on JAX cuDNN's kernel
    on NVIDIA GPUs since Ampere and splash attention on TPUs; on PyTorch `scaled_dot_product_attention`, which
    has a kernel for every call; on TensorFlow none. Other vendors' chips are assumed to have none.
    """
    known = workload.fused_attention
    if known is None:
        return AttentionChoice(fused=False, note="")
    if workload.backend == "torch" and accelerator.vendor == "NVIDIA":
        return AttentionChoice(fused=True, note="attention is fused (`scaled_dot_product_attention`)")
    reason = _refuse_target(workload, accelerator) or next(
        filter(None, (_refuse_call(call, accelerator) for call in known.calls)), ""
    )
    if reason:
        return AttentionChoice(fused=False, note=f"attention is not fused: {reason}")
    kernel = "splash attention" if accelerator.kind == "tpu" else "cuDNN flash attention"
    return AttentionChoice(fused=True, note=f"attention is fused ({kernel})")


def _refuse_target(workload: Workload, accelerator: Accelerator) -> str:
    """Return why no call can be fused on an accelerator; empty if some may."""
    if not workload.compiled:
        return "Keras has no fused kernel on TensorFlow, and none outside of XLA on JAX"
    if accelerator.kind == "tpu":
        return ""
    if accelerator.kind != "gpu" or accelerator.vendor != "NVIDIA":
        return f"JAX has no fused kernel for {accelerator.name}"
    if float(accelerator.compute_capability or 0.0) < AMPERE:
        return f"cuDNN's kernel needs compute capability 8.0, {accelerator.name} has less"
    return ""


def _refuse_call(call: AttentionCall, accelerator: Accelerator) -> str:
    """Return why a call is not fused; empty if it is."""
    if call.wanted is False:
        return "`flash_attention` is False"
    if accelerator.kind == "tpu":
        masked = call.mask or call.causal or call.bias
        blocks = call.queries % SPLASH_BLOCK == 0 and call.keys == call.queries
        rules = [
            (not masked, "in a compiled step, splash attention takes no mask (Keras 3.15)"),
            (blocks, f"splash attention needs sequences in multiples of {SPLASH_BLOCK}"),
        ]
        return next((reason for met, reason in rules if not met), "")
    hopper = float(accelerator.compute_capability or 0.0) >= HOPPER
    largest = LARGEST_HEAD_HOPPER if hopper else LARGEST_HEAD
    sized = call.head_size <= largest and call.head_size % HEAD_MULTIPLE == 0
    even = call.queries % 2 == 0 and call.keys % 2 == 0
    rules = [
        (call.dtype in SIXTEEN_BIT, f"cuDNN's kernel needs float16 or bfloat16, not {call.dtype}"),
        (sized, f"cuDNN's kernel needs heads of at most {largest} features in multiples of {HEAD_MULTIPLE}"),
        (even or not call.bias, "cuDNN's kernel with a bias needs even lengths"),
    ]
    return next((reason for met, reason in rules if not met), "")


def select_executed_workload(workload: Workload, accelerator: Accelerator) -> Workload:
    """Return the workload with the operations and the memory that it has on an accelerator."""
    executed = workload.with_fused_attention if choose_attention(workload, accelerator).fused else workload
    return executed.on_tpu if accelerator.kind == "tpu" else executed


def find_execution_precision(workload: Workload, accelerator: Accelerator) -> str:
    """Return the precision of a workload on an accelerator: float32 with the backend's use of TF32.

    On NVIDIA GPUs that have TF32, JAX and TensorFlow (since 2.4) use it for convolutions and matrix products by
    default, PyTorch (since 1.12) for convolutions only: `tf32_convolutions` (docs.jax.dev,
    `jax_default_matmul_precision`; tensorflow.org, `tf.config.experimental.enable_tensor_float_32_execution`;
    docs.pytorch.org, "CUDA semantics").
    """
    if workload.precision != "float32" or not runs_tf32_by_default(accelerator):
        return workload.precision
    return {"all": "tf32", "convolutions": "tf32_convolutions", "none": "float32"}[workload.tf32]


def describe_tf32(workload: Workload, accelerator: Accelerator) -> str:
    """Return a note on products of float32 that run in TF32; empty if none do, or the user asked for it."""
    precision = find_execution_precision(workload, accelerator)
    if precision == workload.precision:
        return ""
    what = "convolutions run" if precision == "tf32_convolutions" else "products run"
    return f"float32 {what} in TF32, the default here"


def list_torch_notes(workload: Workload) -> tuple[str, ...]:
    """Return notes on memory and host times of Keras on PyTorch without a compiler; none for other steps.

    The gradient of batch normalization, which Keras composes, keeps float32 arrays that one kernel would not
    (keras/src/backend/torch/nn.py, Keras 3.15). Of three such steps on an H200, predictions were 0.25 to 0.46 of
    the peak (profiles/measured/nvidia-h200-torch.json).
    """
    if workload.backend != "torch" or workload.compiled:
        return ()
    host = "host times of Keras on PyTorch are those of one machine (12 steps); `gpuplan profile` measures yours"
    if not any(op.composed == "torch" and op.phase == "backward" for op in workload.ops):
        return (host,)
    memory = "memory of Keras's batch normalization on PyTorch is counted too low"
    return f"{memory}: such steps needed two to four times as much", host


def describe_float8(workload: Workload) -> str:
    """Return a note on Keras's float8 layers; empty if there are none.

    Keras 3.15 rounds both operands to float8, converts them back and multiplies them in the compute type
    (keras/src/layers/core/dense.py, `_float8_call`). XLA may rewrite such products for chips with float8 units.
    """
    if workload.quantization != "float8":
        return ""
    return "float8 layers multiply in the compute type; what XLA may gain in float8 is not counted"


def describe_unaligned_products(workload: Workload, accelerator: Accelerator) -> str:
    """Return a note on wide products with rows of 16-bit numbers that do not fill 16 bytes; empty without one.

    Their times are predicted (`find_unaligned`); padding avoids them.
    """
    if not is_nvidia_since(accelerator, HOPPER):
        return ""
    wide = (n for dtype, n in workload.product_columns if n >= WIDE and dtype in SIXTEEN_BIT)
    columns = max((n for n in wide if n % ALIGNED), default=0)
    if not columns:
        return ""
    padded = -(-columns // ALIGNED) * ALIGNED
    return (
        f"products of {columns:,} columns (the vocabulary of a language model) take several times as long as those"
        f" of a multiple of {ALIGNED}; pad them to {padded:,}"
    )


def list_execution_notes(workload: Workload, accelerator: Accelerator) -> tuple[str, ...]:
    """Return notes on how Keras runs a workload on an accelerator; empty texts where there is nothing to say."""
    return (
        describe_tf32(workload, accelerator),
        describe_float8(workload),
        *list_torch_notes(workload),
        describe_unaligned_products(workload, accelerator),
        choose_attention(workload, accelerator).note,
    )


def copies_ahead(workload: Workload, accelerator: Accelerator) -> bool:
    """Return whether Keras copies a batch to the device while that computes with the one before.

    It does on JAX since Keras 3.14, on all but CPUs: each copy begins a step ahead
    (github.com/keras-team/keras/pull/22353), steps are dispatched without waiting for their results, and callbacks
    run in a thread (github.com/keras-team/keras/pull/20284). No step of it was measured; published steps of Keras
    are of TensorFlow and older, where the copy and the device's time add up. `predict()` keeps its results on the
    device until the end. `train_on_batch()` waits for its results, other loops of a script's own are taken to, and
    batches of a distribution are not copied ahead.
    """
    version = tuple(map(int, workload.versions["keras"].split(".")[:2]))
    on_jax = workload.backend == "jax" and accelerator.kind != "cpu" and version >= FIRST_AHEAD
    return on_jax and not workload.own_loop and not workload.distribution


def describe_failing_lstm(workload: Workload, accelerator: Accelerator) -> str:
    """Return a warning that a step fails on an accelerator because of a 16-bit LSTM; empty if it does not.

    Keras on JAX passes an LSTM that cuDNN supports to `jax.experimental.rnn.lstm` on GPUs, whatever its type
    (keras/src/backend/jax/rnn.py of Keras 3.14 and 3.15), and jaxlib refuses all types but float32 and float64
    ("Unknown output type", jaxlib/gpu_rnn.py of JAX 0.10 and 0.11). Seen on an H200 with Keras 3.15.1 and JAX
    0.11.2 (`profiles/measured/nvidia-h200-jax.json`).
    """
    keras = workload.versions["keras"]
    if not workload.compiled or workload.backend != "jax":
        return ""
    looped = find_keras_cudnn_layers(accelerator, keras=keras, compiled=True) & workload.looped_layers
    if "lstm" not in looped or not any(
        op.loop and op.loop.layer == "lstm" and op.dtype in SIXTEEN_BIT for op in workload.ops
    ):
        return ""
    return (
        f"fails as it is: on GPUs the LSTM of Keras {keras} on JAX takes float32 alone (jaxlib says"
        ' "Unknown output type"): give the layer dtype="float32", or use_cudnn=False'
    )
