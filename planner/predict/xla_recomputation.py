"""Values that XLA recomputes in the backward pass so that a training step stays below its limit on a GPU.

Before XLA assigns buffers, it replaces values by their recomputation until the temporaries of the step are below a
limit (`HloRematerialization`, openxla/xla@0253526, xla/service/gpu/gpu_compiler.cc). The limit is 95 % of what the
arguments leave of a share of the device's memory (`GetSchedulerMemoryLimit`, xla/service/gpu/gpu_hlo_schedule.cc,
and `xla_gpu_memory_limit_slop_factor`). The share is 0.8, or JAX's memory pool where JAX compiles.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..offers.rows import Accelerator
from ..units import GIB
from ..workload.model import Workload
from ..workload.ops import Op, OpKind
from .library_kernels import AMPERE, is_nvidia_since

# Share of a GPU's memory that JAX takes unless XLA_CLIENT_MEM_FRACTION says otherwise (docs.jax.dev, "GPU memory
# allocation"); JAX tells the compiler the size of this pool (jaxlib, py_client.cc). Later releases than 0.10 may
# enlarge the pool as needed.
JAX_POOL_SHARE = 0.75
XLA_SHARE = 0.8  # where nothing states the size of the pool
TEMPORARIES_SHARE = 0.95
# Part that XLA removes at most, of what a step would save that recomputed everything it can. XLA recomputes one
# instruction at a time, and only from operands that are still in memory. Of 13 steps compiled far beyond the limit
# of a V100 or an A100, it removed 0.24 to 1.6 of it (profiles/xla_memory.csv); half is on the careful side.
REMOVED_SHARE = 0.5
# XLA removes the largest value first: the last one leaves it below the limit by half of its size on average.
LEFT_OF_LAST = 0.5


def compute_recomputed_bytes(
    workload: Workload, accelerator: Accelerator, *, pool_share: float | None = None
) -> int:
    """Return the size of the values that XLA recomputes to stay below its limit; 0 for other steps [bytes].

    Args:
        workload: The work of one device as executed there (`select_executed_workload`).
        pool_share: Memory that XLA may use, of the device's; None for what the backend states [-].
    """
    memory, available = workload.memory, _find_memory_bytes(accelerator)
    by_xla = workload.compiled and workload.backend != "torch"
    if not by_xla or workload.mode != "train" or available is None:
        return 0
    activations = memory.activations_bytes(compiled=True)
    stated = JAX_POOL_SHARE if workload.backend == "jax" else XLA_SHARE
    share = stated if pool_share is None else pool_share
    arguments = memory.parameter_bytes + memory.optimizer_bytes + memory.state_bytes + memory.input_bytes
    temporaries = memory.held_gradient_bytes(compiled=True) + activations
    beyond = temporaries - TEMPORARIES_SHARE * (share * available - arguments)
    if beyond <= 0.0:
        return 0
    forward = [op for op in workload.ops if op.phase == "forward"]
    largest = max((op.bytes_written for op in forward), default=0.0)
    removable = max(0.0, activations - _compute_kept_bytes(workload, forward, accelerator))
    return round(min(beyond + LEFT_OF_LAST * largest, REMOVED_SHARE * removable))


def _compute_kept_bytes(workload: Workload, forward: Sequence[Op], accelerator: Accelerator) -> float:
    """Return the values that XLA cannot recompute: results of kernels in libraries [bytes].

    Convolutions are cuDNN's, matrix products cuBLAS's on GPUs before Ampere. On later ones Triton kernels compute
    matrix products, which are fusions to XLA as any other (buffer assignments of XLA 0.10 for an A100).
    """
    kept = float(workload.memory.activations_bytes(compiled=True, recompute=True))
    if not is_nvidia_since(accelerator, AMPERE):
        return kept
    return max(0.0, kept - sum(op.bytes_written * op.count for op in forward if op.kind is OpKind.DOT))


def describe_jax_pool(workload: Workload, accelerator: Accelerator, *, step_bytes: int) -> str:
    """Return the setting of steps that need a larger pool than JAX takes of a GPU by default; empty for others.

    The step's memory is that of one device, after XLA's recomputation, without the framework's [bytes].
    """
    available = _find_memory_bytes(accelerator)
    if workload.backend != "jax" or available is None or step_bytes <= JAX_POOL_SHARE * available:
        return ""
    return "JAX takes three quarters of a GPU's memory by default: set `XLA_CLIENT_MEM_FRACTION=0.95`"


def _find_memory_bytes(accelerator: Accelerator) -> float | None:
    """Return the memory that programs can use on a GPU; None if unknown, and for other devices [bytes]."""
    gib = accelerator.usable_gib or accelerator.memory_gib
    return None if gib is None or accelerator.kind != "gpu" else gib * GIB
