"""Configuration of a run in terms of the model: stack, host, libraries, layouts, memory."""

from __future__ import annotations

import re

from ..offers.rows import Accelerator
from ..units import GIB, GIGA
from .device.accelerator_limits import tensor_dtypes
from .device.kernel_times import MOST_FITTED_PRESSURE
from .framework_versions import software_year
from .kernels.table import UnfusedPart
from .measurements import Measurement

__all__ = [
    "CUDNN",
    "UNKNOWN_HOST_LINK_GB_PER_S",
    "append_mode",
    "compute_memory_pressure",
    "compute_paging_s",
    "find_converted_dtypes",
    "find_cudnn_layers",
    "find_keras_cudnn_layers",
    "find_launching_stack",
    "find_software_year",
    "find_unfused_parts",
    "find_wait_factor",
    "find_xla_converted_dtypes",
    "is_fed_from_host",
    "name_host",
    "name_measured_run_kind",
    "name_run_kind",
    "name_stack",
    "name_user_stack",
    "split_mode",
]  # fmt: skip

# What crosses to the device in every step; data sets that a framework reads itself are copied while the step
# before runs, and synthetic data stays on the device.
FED_FROM_HOST = ("numpy", "generator")

# What a step on a TPU takes longer where keys are split between steps: "ca. 40 %", by the authors of such a loop
# (github.com/huggingface/transformers/pull/11773). Steps of the same loop on a V100 are as those of any other.
WAIT_ON_TPU = 1.4

CHANNELS_FIRST = ("nchw", "ncw", "ncdhw")
HOPPER = 9.0  # compute capability
CUDNN = frozenset({"lstm", "gru"})
FRAMEWORKS = {"paddlepaddle": "paddle"}  # other names of frameworks in published rows
TENSORFLOW = ("tensorflow1", "tensorflow2")
CUDNN_LAYER = "CuDNNLSTM"  # of Keras 2, which a script has to ask for
GRAPH_BACKENDS = ("tensorflow1", "mxnet", "cntk")  # of Keras 2: each runs a graph, operation by operation
TENSORFLOW1_SCRIPT = "tf_cnn_benchmarks"
KERAS_3_YEAR = 2023.9  # release of Keras 3.0, November 2023
# Family, framework, optimizer: `find_unfused_parts`.
PYTHON_UPDATES = (("bert", "tensorflow1", "adamw"), ("bert", "tensorflow1", "lamb"))
FIRST_WITH_LSTM_ON_JAX = (3, 14)  # keras/src/backend/jax/rnn.py: `lstm` is a stub in 3.13, cuDNN in 3.14


def find_cudnn_layers(m: Measurement) -> frozenset[str]:
    """Return the recurrent layers that cuDNN executed in a measurement.

    PyTorch's LSTM and GRU are cuDNN's on every GPU, and so are those of Keras in TensorFlow 2 unless XLA compiles
    them. Keras on TensorFlow 1, MXNet and CNTK looped, but for scripts that ask for `CuDNNLSTM`: their rows say so
    beside the versions. On JAX it depends on the version of Keras.
    """
    if m.framework == "jax" and m.compiled and not m.accelerator.startswith(("CPU", "TPU")):
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

    Args:
        accelerator: Where it runs.
        keras: Version of Keras.
        compiled: True: on JAX, one program; False: kernel by kernel, on PyTorch or TensorFlow.
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
        accelerator: A row of the catalog.
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

    Args:
        m: What was run.
        accelerator: Where.
    """
    if m.framework in (*TENSORFLOW, "jax"):
        return find_xla_converted_dtypes(accelerator, precision=m.precision)
    if m.layout in CHANNELS_FIRST and not m.compiled:
        return tensor_dtypes(accelerator, precision=m.precision)
    return frozenset()


def find_wait_factor(m: Measurement) -> float:
    """Return the factor of a step's time from a loop that waits for the previous step [-]."""
    return WAIT_ON_TPU if m.waits and m.accelerator.startswith("TPU") else 1.0


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
    composed: dict[UnfusedPart, bool] = {
        "calls": calls,
        "torch_calls": normalization,
        "updates": updates,
        "loops": loops,
    }
    return frozenset(part for part, is_so in composed.items() if is_so)


def find_software_year(m: Measurement) -> float:
    """Return when the framework of a measurement was released, as a fractional year [years]."""
    return software_year(m.software) if m.year is None else m.year


def name_stack(m: Measurement) -> str:
    """Return the name of a measurement's stack: what launches its kernels, whoever published it.

    One compiler is one stack (`xla`, `inductor`), whatever was compiled. XLA beside a graph of TensorFlow is
    another one than XLA of a whole step: it compiles clusters of operations, and the graph's executor launches
    what is between them ("XLA: Optimizing Compiler for Machine Learning", `auto_jit`, openxla.org/xla/tf2xla).
    Keras compiles whole steps since version 3. Without a compiler, a stack is a framework and a class of stack. A
    script of TensorFlow 1 stays one on TensorFlow 2: `tf_cnn_benchmarks` builds a graph and runs it in a session
    there, too ("TensorFlow 1 benchmarks", README.md of github.com/tensorflow/benchmarks).

    MXNet channels last on scalar units is up to 13 times slower than channels first (its own performance page),
    and is a stack of its own. So is inference: graphs are rewritten, and nothing is kept for a backward pass.
    """
    if m.compiled and m.framework in TENSORFLOW and find_software_year(m) < KERAS_3_YEAR:
        return append_mode("tensorflow clusters", m.mode)
    if m.compiled:
        return name_user_stack("eager" if m.framework == "pytorch" else "keras", mode=m.mode, compiled=True)
    framework = (
        "tensorflow1" if TENSORFLOW1_SCRIPT in m.software else FRAMEWORKS.get(m.framework, m.framework)
    )
    slow = (m.framework, m.layout, m.precision) == ("mxnet", "nhwc", "float32")
    layout = " nhwc" if slow else ""
    return append_mode(f"{framework} {m.stack}{layout}", m.mode)


def name_user_stack(stack: str, *, mode: str, compiled: bool) -> str:
    """Return the name of the stack of a user's run.

    Args:
        stack: `keras`, `eager` (PyTorch) or `tuned` (a vendor's container).
        mode: `train` or `infer`.
        compiled: Whether a compiler builds the program.

    Example:
        >>> name_user_stack("keras", mode="train", compiled=True)
        'xla'
        >>> name_user_stack("tuned", mode="infer", compiled=False)
        'tuned infer'
    """
    names = {"keras": "tensorflow2 keras", "eager": "pytorch eager", "tuned": "tuned"}
    compilers = {"keras": "xla", "eager": "inductor", "tuned": "xla"}
    return append_mode(compilers[stack] if compiled else names[stack], mode)


def find_launching_stack(stack: str, *, torch: bool, compiled: bool) -> str:
    """Return the stack whose rates apply to Keras's: PyTorch launches the kernels of Keras on PyTorch, one by one.

    No published row is of Keras on PyTorch, so its rates are those of PyTorch's own modules.

    Args:
        stack: `keras`, `eager` (PyTorch) or `tuned` (a vendor's container).
        torch: Whether PyTorch runs it.
        compiled: Whether a compiler builds the program.
    """
    return "eager" if stack == "keras" and torch and not compiled else stack


def append_mode(name: str, mode: str) -> str:
    """Return the name of a stack or host with the suffix of inference; unchanged for training.

    Example:
        >>> append_mode("keras", "train"), append_mode("keras", "infer")
        ('keras', 'keras infer')
    """
    return f"{name} {mode}" if mode == "infer" else name


def split_mode(name: str) -> tuple[str, str]:
    """Return the name without the suffix of `append_mode`, and the mode.

    Example:
        >>> split_mode("keras"), split_mode("keras infer")
        (('keras', 'train'), ('keras', 'infer'))
    """
    trained = name.removesuffix(" infer")
    return trained, "train" if trained == name else "infer"


def name_host(m: Measurement) -> str:
    """Return the name of the host: the instance type for plain Keras, else the stack."""
    return append_mode(m.host, m.mode) if m.stack == "keras" and m.host else name_stack(m)


def name_run_kind(accelerator: str, precision: str, *, compiled: bool) -> str:
    """Return the kind of run; predictions are `modelled` only for kinds that were fitted.

    Example:
        >>> name_run_kind("T4", "float32", compiled=True)
        'T4 float32 with XLA'
    """
    return f"{accelerator} {precision}{' with XLA' if compiled else ''}"


def name_measured_run_kind(m: Measurement) -> str:
    """Return the kind of run of a measurement."""
    return append_mode(name_run_kind(m.accelerator, m.precision, compiled=m.compiled), m.mode)


def is_fed_from_host(m: Measurement) -> bool:
    """Return True if each step waits for a batch from the host."""
    return m.feed in FED_FROM_HOST or (not m.feed and m.stack == "keras")


def compute_memory_pressure(memory_bytes: float, accelerator: Accelerator, *, share: float = 1.0) -> float:
    """Return memory needed over memory usable; 0 if the accelerator's memory is unknown [-]."""
    usable_gib = accelerator.usable_gib or accelerator.memory_gib
    return memory_bytes / (usable_gib * GIB * share) if usable_gib else 0.0


UNKNOWN_HOST_LINK_GB_PER_S = 15.75  # PCIe 3.0 x16, the slowest host link in the catalog


def compute_paging_s(memory_bytes: float, accelerator: Accelerator, *, share: float = 1.0) -> float:
    """Return the time to move what exceeds memory usable x `MOST_FITTED_PRESSURE` to the host and back [s].

    2 E / L with excess E and host link L (PCIe, one direction; `UNKNOWN_HOST_LINK_GB_PER_S` if unknown): an array
    of the forward pass leaves once and comes back once for the backward pass, as in vDNN (Rhu et al., 2016, MICRO,
    "vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural Network Design", section III).
    Movement is not overlapped with arithmetic: it takes longer than that on every accelerator of the catalog.

    Args:
        memory_bytes: Memory of the step [bytes].
        accelerator: A row of the catalog.
        share: Of the device, its memory and its link, 0..1 [-].
    """
    pressure = compute_memory_pressure(memory_bytes, accelerator, share=share)
    beyond = max(0.0, 1.0 - MOST_FITTED_PRESSURE / pressure) if pressure else 0.0
    link_gb_per_s = accelerator.pcie_gb_per_s_per_direction or UNKNOWN_HOST_LINK_GB_PER_S
    return 2.0 * memory_bytes * beyond / (link_gb_per_s * share * GIGA)
