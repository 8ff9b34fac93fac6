"""Kernels that frameworks and their libraries choose: recurrent layers, layouts, groups, composed operations."""

from __future__ import annotations

import re

from ..offers.rows import Accelerator
from .accelerator_limits import tensor_dtypes
from .kernel_table import CONVOLUTIONS, FastGroups, FusedKernel
from .launches import UnfusedPart
from .measurements import Measurement
from .run_config import KERAS_3_YEAR, TENSORFLOW, find_software_year

CHANNELS_FIRST = ("nchw", "ncw", "ncdhw")
VOLTA, AMPERE, HOPPER = 7.0, 8.0, 9.0  # compute capability
CUDNN_8_9_YEAR = 2023.25  # release of cuDNN 8.9.0, April 2023
# Rates of convolutions on a CPU relative to a matrix product of the same backend, by pass (`name_rate`), on two
# quiet cores of an AMD EPYC with AVX-512 (`benchmarks/cpu_rates.py`; JAX 0.10, PyTorch 2.13, TensorFlow 2.21). XLA
# has no kernel for depthwise convolutions.
CPU_RATES: dict[str, dict[str, float]] = {
    backend: dict(zip((*CONVOLUTIONS, "depthwise", "depthwise_wgrad"), rates, strict=True))
    for backend, rates in {
        "jax": (0.57, 0.56, 0.41, 0.0031, 0.0022),
        "tensorflow": (0.96, 0.98, 0.91, 0.11, 0.12),
        "torch": (1.1, 1.1, 1.0, 0.39, 0.28),
    }.items()
}
CUDNN = frozenset({"lstm", "gru"})
PERSISTENT_NORMS = ("pytorch", "mxnet", "paddlepaddle")  # frameworks: `has_persistent_norms`
CUDNN_LAYER = "CuDNNLSTM"  # of Keras 2, which a script has to ask for
GRAPH_BACKENDS = ("tensorflow1", "mxnet", "cntk")  # of Keras 2: each runs a graph, operation by operation
# Family, framework, optimizer: `find_unfused_parts`.
PYTHON_UPDATES = (("bert", "tensorflow1", "adamw"), ("bert", "tensorflow1", "lamb"))
FIRST_WITH_LSTM_ON_JAX = (3, 14)  # keras/src/backend/jax/rnn.py: `lstm` is a stub in 3.13, cuDNN in 3.14


def find_attention_kernel(m: Measurement) -> FusedKernel:
    """Return the kernel of fused attention in a measurement, if it was fused."""
    if m.attention == "triton":
        return "triton"
    return "warpgroup" if m.framework == "jax" else "warp"


def find_cudnn_layers(m: Measurement) -> frozenset[str]:
    """Return the recurrent layers that cuDNN executed in a measurement.

    PyTorch's LSTM and GRU are cuDNN's on every GPU, and so are those of Keras in TensorFlow 2 unless XLA compiles
    them. Keras on TensorFlow 1, MXNet and CNTK looped, but for scripts that ask for `CuDNNLSTM`: their rows say so
    beside the versions. On JAX it depends on the version of Keras.
    """
    if m.framework == "jax" and m.compiled and m.is_on_gpu:
        keras = re.search(r"Keras (\d+)\.(\d+)", m.software)
        return _list_jax_cudnn_layers(tuple(map(int, keras.groups())) if keras else (0, 0))
    if CUDNN_LAYER in m.software:
        return CUDNN
    looped = m.compiled or m.framework not in ("pytorch", "tensorflow2")
    return frozenset() if looped else CUDNN


def find_keras_cudnn_layers(accelerator: Accelerator, *, keras: str, compiled: bool) -> frozenset[str]:
    """Return the recurrent layers that current Keras executes by cuDNN on an accelerator.

    On PyTorch and TensorFlow (where Keras turns XLA off for a model that holds one) LSTM and GRU. On JAX the LSTM
    alone, in newer versions of Keras; GRU on JAX, and everything on TPUs, is a loop that XLA compiles
    (keras/src/backend/*/rnn.py of Keras 3.15).
    """
    if accelerator.kind != "gpu":
        return frozenset()
    if not compiled:
        return CUDNN
    return _list_jax_cudnn_layers(tuple(int(part) for part in keras.split(".")[:2]))


def _list_jax_cudnn_layers(keras: tuple[int, ...]) -> frozenset[str]:
    """Return the recurrent layers that a version of Keras executes by cuDNN on JAX."""
    return frozenset({"lstm"}) if keras >= FIRST_WITH_LSTM_ON_JAX else frozenset()


def find_xla_converted_dtypes(accelerator: Accelerator, *, precision: str) -> frozenset[str]:
    """Return the types of convolutions that run on tensor units but get channels first from XLA.

    Before Hopper it puts channels last for 16-bit types alone (openxla/xla@080da28
    xla/service/gpu/transforms/layout_assignment.cc, `HeuristicLayoutAssignment`; in 2019 as well): float32 that is
    multiplied in TF32 is converted. Three-dimensional convolutions of 16 bits stay channels first too there; that
    is not counted. Nothing is known of other vendors' GPUs.

    Args:
        precision: Of the workload; `tf32` lets float32 products run on tensor units.
    """
    older = accelerator.vendor == "NVIDIA" and float(accelerator.compute_capability or 0.0) < HOPPER
    return tensor_dtypes(accelerator, precision=precision) & {"float32"} if older else frozenset()


def find_converted_dtypes(m: Measurement, accelerator: Accelerator) -> frozenset[str]:
    """Return the types of convolutions whose layout was converted for tensor units in a measurement.

    XLA lays arrays out by itself. So does TensorFlow without it, by the same rule: its graph optimizer turns
    16-bit convolutions to channels last, and all others to channels first
    (tensorflow/core/grappler/optimizers/generic_layout_optimizer.cc); TF32 with channels last was tried and taken
    back (github.com/tensorflow/tensorflow/pull/56744). Other frameworks keep the layout that they are given; where
    that is not known, nothing is converted. Keras on PyTorch has channels last.
    """
    if m.framework in (*TENSORFLOW, "jax"):
        return find_xla_converted_dtypes(accelerator, precision=m.precision)
    if m.layout in CHANNELS_FIRST and not m.compiled:
        return tensor_dtypes(accelerator, precision=m.precision)
    return frozenset()


def find_keras_fast_groups(accelerator: Accelerator) -> FastGroups:
    """Return the grouped convolutions that current Keras runs on tensor units: see `kernels.grouped`.

    XLA and TensorFlow put channels last for 16-bit types from Volta on, and Keras on PyTorch does everywhere.
    Nothing is known of other vendors' GPUs.
    """
    return "powers of two" if is_nvidia_since(accelerator, VOLTA) else "all"


def find_fast_groups(m: Measurement, accelerator: Accelerator) -> FastGroups:
    """Return the grouped convolutions that ran on tensor units in a measurement: see `kernels.grouped`.

    A layout that is not known is taken to be channels first.
    """
    last = m.layout == "nhwc" or m.framework in (*TENSORFLOW, "jax")
    if not last or not is_nvidia_since(accelerator, VOLTA):
        return "all"
    return "32" if find_software_year(m) < CUDNN_8_9_YEAR else "powers of two"


def is_nvidia_since(accelerator: Accelerator, capability: float) -> bool:
    """Return True for NVIDIA's GPUs of at least a compute capability; False where it is unknown."""
    return accelerator.vendor == "NVIDIA" and float(accelerator.compute_capability or 0.0) >= capability


def find_unfused_parts(m: Measurement) -> frozenset[UnfusedPart]:
    """Return the parts of a step of which a framework launched every primitive separately.

    TensorFlow without XLA, in GELU and normalization of layers: BERT in mixed precision takes 349 ms there without
    XLA and 151 ms with it, on one V100 and of one publisher (profiles/published/dlperf_language.csv).

    TensorFlow 1 in updates that it has no kernel for, even beside XLA: BERT's authors and their successors wrote
    AdamW and LAMB as chains of primitives on variables by reference, which XLA leaves alone (optimization.py of
    google-research/bert and of NVIDIA/DeepLearningExamples, `AdamWeightDecayOptimizer`). Not so Transformer-XL:
    its script has XLA compile the LAMB and nothing else (NVIDIA/DeepLearningExamples@4f0f43b,
    TensorFlow/LanguageModeling/Transformer-XL/tf/main.py, `jit_optimizer`).

    Keras 2 on TensorFlow 1, MXNet and CNTK, in loops over time: its cells are written in operations of the backend
    (awslabs/keras-apache-mxnet@5497ebd keras/layers/recurrent.py), and the executor of the graph launches them one
    by one, without the host. Published steps of an LSTM take there what the gaps between these kernels add up to.

    PyTorch before 2.0, in the update of each variable: `torch.optim` ran one loop over variables and operations
    (pytorch.org/docs/2.0/optim.html, "foreach"). Vendors' containers have optimizers of their own, in one kernel;
    rows of scripts that do without them say so (`loops`).
    """
    calls = m.framework in TENSORFLOW and not m.compiled
    normalization = (m.framework, m.stack) == ("pytorch", "keras") and not m.compiled
    foreach = (m.framework, m.stack) == ("pytorch", "eager") and not m.compiled
    updates = foreach or "update" in m.loops or (m.family, m.framework, m.optimizer) in PYTHON_UPDATES
    loops = m.software.startswith("Keras 2") and m.framework in GRAPH_BACKENDS
    parts: tuple[tuple[UnfusedPart, bool], ...] = (
        ("calls", calls), ("torch_calls", normalization), ("updates", updates), ("loops", loops),
    )  # fmt: skip
    return frozenset(part for part, is_so in parts if is_so)


def is_by_xla(m: Measurement) -> bool:
    """Return True for steps that XLA compiled whole for a GPU, as it does for Keras 3."""
    return m.compiled and m.is_on_gpu and m.framework != "pytorch" and find_software_year(m) >= KERAS_3_YEAR


def is_by_inductor(m: Measurement) -> bool:
    """Return True for runs that TorchInductor compiled."""
    return m.compiled and m.framework == "pytorch"


def is_fused_by_chip(m: Measurement) -> bool:
    """Return True for runs whose compiler fuses operations otherwise on some chips: see `has_row_kernels`."""
    return is_by_xla(m) or is_by_inductor(m)


def has_row_kernels(m: Measurement, accelerator: Accelerator) -> bool:
    """Return True for runs of XLA and TorchInductor that reduce rows and work on them in one kernel of Triton.

    XLA does so since Keras 3. Its Triton kernels need compute capability 8.0: programs that XLA 0.10 compiled for
    a V100 have three kernels for a softmax, for an A100 one (`planner/workload/trace/graph/fusion.py`).
    TorchInductor's need 7.0 (torch/_inductor/config.py, `triton.persistent_reductions`).
    """
    if is_by_inductor(m):
        return is_nvidia_since(accelerator, VOLTA)
    return is_by_xla(m) and is_nvidia_since(accelerator, AMPERE)


def has_persistent_norms(m: Measurement) -> bool:
    """Return True for runs whose batch normalization keeps its operands on the chip between two readings.

    That is `CUDNN_BATCHNORM_SPATIAL_PERSISTENT` of cuDNN, for 16-bit images with channels last in training.
    PyTorch asks for it then (aten/src/ATen/native/cudnn/BatchNorm.cpp, `getCudnnBatchNormMode`). MXNet and
    PaddlePaddle, as NVIDIA builds them, fuse the activation with it (NVIDIA/DeepLearningExamples: `fuse_bn_relu`
    in MxNet/Classification/RN50v1.5/models.py, `fuse_bn_act_ops` in PaddlePaddle/Classification/RN50v1.5/
    program.py). What does not fit on the chip is read again after all, which is not counted.
    """
    trained = m.mode == "train" and not m.compiled
    return trained and m.framework in PERSISTENT_NORMS and m.layout == "nhwc" and "16" in m.precision
