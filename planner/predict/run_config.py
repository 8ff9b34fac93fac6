"""Configuration of a run in terms of the model: stack, host, software, memory."""

from __future__ import annotations

from ..offers.rows import Accelerator
from ..units import GIB, GIGA
from .measurements import Measurement, software_year
from .roofline import MOST_FITTED_PRESSURE

# What crosses to the device in every step; data sets that a framework reads itself are copied while the step
# before runs, and synthetic data stays on the device.
FED_FROM_HOST = ("numpy", "generator")
STEP_ALONE = "device"  # feed of a step that was timed alone: its batch stays on the device, in no loop of `fit()`

# What a step on a TPU takes longer where keys are split between steps: "ca. 40 %", by the authors of such a loop
# (github.com/huggingface/transformers/pull/11773). Steps of the same loop on a V100 are as those of any other.
WAIT_ON_TPU = 1.4

# Stack of Keras on PyTorch where nothing is compiled, and its host in the loop of `fit()`.
KERAS_TORCH, KERAS_TORCH_LOOP = "pytorch keras", "keras torch"
FRAMEWORKS = {"paddlepaddle": "paddle"}  # other names of frameworks in published rows
TENSORFLOW = ("tensorflow1", "tensorflow2")
TENSORFLOW1_SCRIPT = "tf_cnn_benchmarks"
KERAS_3_YEAR = 2023.9  # release of Keras 3.0, November 2023


def find_wait_factor(m: Measurement) -> float:
    """Return the factor of a step's time from a loop that waits for the previous step [-]."""
    return WAIT_ON_TPU if m.waits and m.device and m.device.kind == "tpu" else 1.0


def find_software_year(m: Measurement) -> float:
    """Return when the framework of a measurement was released, as a fractional year [years]."""
    return software_year(m.software) if m.year is None else m.year


def has_clusters(m: Measurement) -> bool:
    """Return True for a graph of TensorFlow of which XLA compiled clusters of operations.

    The host launches each kernel of a cluster: XLA captured programs in CUDA graphs later.
    """
    return m.compiled and m.framework in TENSORFLOW and find_software_year(m) < KERAS_3_YEAR


TENSORFLOW_FOR_AMPERE = 2020.9  # TensorFlow 2.4 of December 2020, the first with CUDA 11


def precedes_ampere(m: Measurement) -> bool:
    """Return True for a release of TensorFlow on a chip that its XLA does not know.

    XLA then compiles for an older one (tensorflow/compiler/xla/service/gpu/llvm_gpu_backend: "Unknown compute
    capability. Defaulting to telling LLVM that we're compiling for"). NVIDIA's containers know their chips.
    """
    recent = m.device is not None and float(m.device.compute_capability or 0.0) >= 8.0
    return recent and "NGC" not in m.software and find_software_year(m) < TENSORFLOW_FOR_AMPERE


def name_stack(m: Measurement) -> str:
    """Return the name of a measurement's stack: what launches its kernels, whoever published it.

    One compiler is one stack (`xla`, `inductor`), whatever was compiled. XLA beside a graph of TensorFlow is
    another one than XLA of a whole step: it compiles clusters of operations, and the graph's executor launches
    what is between them ("XLA: Optimizing Compiler for Machine Learning", `auto_jit`, openxla.org/xla/tf2xla). A
    third one is that of a release which does not know the chip. Keras compiles whole steps since version 3.

    Without a compiler, a stack is a framework and a class of stack. A script of TensorFlow 1 stays one on
    TensorFlow 2: `tf_cnn_benchmarks` builds a graph and runs it in a session there, too ("TensorFlow 1
    benchmarks", README.md of github.com/tensorflow/benchmarks).

    MXNet channels last on scalar units is up to 13 times slower than channels first (its own performance page),
    and is a stack of its own. So is inference: graphs are rewritten, and nothing is kept for a backward pass.
    """
    if has_clusters(m):
        older = " before Ampere" if precedes_ampere(m) else ""
        return append_mode(f"tensorflow clusters{older}", m.mode)
    if m.compiled:
        return name_user_stack("eager" if m.framework == "pytorch" else "keras", mode=m.mode, compiled=True)
    framework = "tensorflow1" if TENSORFLOW1_SCRIPT in m.software else FRAMEWORKS.get(m.framework, m.framework)
    slow = (m.framework, m.layout, m.precision) == ("mxnet", "nhwc", "float32")
    layout = " nhwc" if slow else ""
    return append_mode(f"{framework} {m.stack}{layout}", m.mode)


def name_user_stack(stack: str, *, mode: str, compiled: bool) -> str:
    """Return the name of the stack of a user's run: `keras`, `eager` (PyTorch) or `tuned` (a vendor's container).

    Example:
        >>> name_user_stack("keras", mode="train", compiled=True)
        'xla'
        >>> name_user_stack("tuned", mode="infer", compiled=False)
        'tuned infer'
    """
    names = {"keras": "tensorflow2 keras", "eager": "pytorch eager", "tuned": "tuned"}
    compilers = {"keras": "xla", "eager": "inductor", "tuned": "xla"}
    return append_mode(compilers[stack] if compiled else names[stack], mode)


def name_user_run(stack: str, *, torch: bool, mode: str, compiled: bool) -> tuple[str, str]:
    """Return the names of the coefficients of a user's run: of its stack and of its host.

    PyTorch launches the kernels of Keras on PyTorch, one by one. What TorchInductor compiled was measured in
    inference alone, with the host of other calls: a training step has the stack of XLA and the host of Keras.

    Example:
        >>> name_user_run("keras", torch=True, mode="train", compiled=False)
        ('pytorch keras', 'keras torch')
    """
    if stack == "keras" and torch and not compiled:
        return append_mode(KERAS_TORCH, mode), append_mode(KERAS_TORCH_LOOP, mode)
    if stack == "keras" and torch and mode == "infer":
        return name_user_stack("eager", mode=mode, compiled=True), append_mode(KERAS_TORCH_LOOP, mode)
    return name_user_stack(stack, mode=mode, compiled=compiled), append_mode(stack, mode)


def append_mode(name: str, mode: str) -> str:
    """Return the name of a stack or host with the suffix of inference; unchanged for training.

    Example:
        >>> append_mode("keras", "train"), append_mode("keras", "infer")
        ('keras', 'keras infer')
    """
    return f"{name} {mode}" if mode == "infer" else name


def name_host(m: Measurement) -> str:
    """Return the name of the host: the instance type for plain Keras, else the stack.

    Keras on PyTorch has another one in the loop of `fit()`, of which no step was published.
    """
    if name_stack(m) == KERAS_TORCH and m.feed != STEP_ALONE:
        return KERAS_TORCH_LOOP
    return append_mode(m.host, m.mode) if m.stack == "keras" and m.host else name_stack(m)


def name_run_kind(accelerator: str, precision: str, *, compiled: bool) -> str:
    """Return the kind of run; predictions are `modelled` only for kinds that were fitted.

    Example:
        >>> name_run_kind("T4", "float32", compiled=True)
        'T4 float32 with XLA'
    """
    return f"{accelerator} {precision}{' with XLA' if compiled else ''}"


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
        share: Of the device, its memory and its link, 0..1 [-].
    """
    pressure = compute_memory_pressure(memory_bytes, accelerator, share=share)
    beyond = max(0.0, 1.0 - MOST_FITTED_PRESSURE / pressure) if pressure else 0.0
    link_gb_per_s = accelerator.pcie_gb_per_s_per_direction or UNKNOWN_HOST_LINK_GB_PER_S
    return 2.0 * memory_bytes * beyond / (link_gb_per_s * share * GIGA)
