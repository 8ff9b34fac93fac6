"""Values that XLA recomputes in the backward pass so that a training step stays below its limit on a GPU.

Before XLA assigns buffers, it replaces values by their recomputation until the temporaries of the step are below a
limit (`HloRematerialization`, openxla/xla@0253526, xla/service/gpu/gpu_compiler.cc). The limit is 95 % of what the
arguments leave of a share of the device's memory (`GetSchedulerMemoryLimit`, xla/service/gpu/gpu_hlo_schedule.cc,
and `xla_gpu_memory_limit_slop_factor`). The share is 0.8, or JAX's memory pool where JAX compiles.
"""

from __future__ import annotations

from ..offers.rows import Accelerator
from ..units import GIB
from ..workload.model import Workload

__all__ = ["JAX_POOL_SHARE", "XLA_SHARE", "compute_recomputed_bytes", "describe_jax_pool"]

# Share of a GPU's memory that JAX takes unless XLA_CLIENT_MEM_FRACTION says otherwise (docs.jax.dev, "GPU memory
# allocation"); JAX tells the compiler the size of this pool (jaxlib, py_client.cc). Later releases than 0.10 may
# enlarge the pool as needed.
JAX_POOL_SHARE = 0.75
XLA_SHARE = 0.8  # where nothing states the size of the pool
TEMPORARIES_SHARE = 0.95
# Part that XLA removes at most, of what a step would save that recomputed everything but matrix products. XLA
# recomputes one instruction at a time, and only from operands that are still in memory. Of eight steps compiled
# for a V100 far beyond its limit, it removed 0.24 to 1.6 of it, 0.7 in the median (profiles/xla_memory.csv).
REMOVED_SHARE = 0.5


def compute_recomputed_bytes(
    workload: Workload, accelerator: Accelerator, *, pool_share: float | None = None
) -> int:
    """Return the size of the values that XLA recomputes to stay below its limit; 0 for other steps [bytes].

    Args:
        workload: The work of one device as executed there (`select_executed_workload`).
        accelerator: A row of the catalog.
        pool_share: Memory that XLA may use, of the device's; None for what the backend states [-].
    """
    memory, available = workload.memory, _find_memory_bytes(accelerator)
    if not workload.compiled or workload.mode != "train" or available is None:
        return 0
    least = memory.activations_bytes(compiled=True, recompute=True)
    activations = memory.activations_bytes(compiled=True)
    stated = JAX_POOL_SHARE if workload.backend == "jax" else XLA_SHARE
    share = stated if pool_share is None else pool_share
    arguments = memory.parameter_bytes + memory.optimizer_bytes + memory.state_bytes + memory.input_bytes
    temporaries = memory.held_gradient_bytes(compiled=True) + activations
    beyond = temporaries - TEMPORARIES_SHARE * (share * available - arguments)
    return round(max(0.0, min(beyond, REMOVED_SHARE * (activations - least))))


def describe_jax_pool(workload: Workload, accelerator: Accelerator) -> str:
    """Return a note on steps that need a larger pool than JAX takes of a GPU by default; empty for others.

    Args:
        workload: The work of one device as executed there (`select_executed_workload`).
        accelerator: A row of the catalog.
    """
    memory, available = workload.memory, _find_memory_bytes(accelerator)
    if workload.backend != "jax" or available is None:
        return ""
    needed = memory.compute_fixed_bytes(compiled=workload.compiled) + memory.input_bytes
    needed += memory.activations_bytes(compiled=workload.compiled)
    needed -= compute_recomputed_bytes(workload, accelerator)
    if not JAX_POOL_SHARE * available < needed <= available:
        return ""
    return (
        f"needs more than the {JAX_POOL_SHARE:.0%} of a GPU's memory that JAX takes by default:"
        " set `XLA_CLIENT_MEM_FRACTION=0.95`"
    )


def _find_memory_bytes(accelerator: Accelerator) -> float | None:
    """Return the memory that programs can use on a GPU; None if unknown, and for other devices [bytes]."""
    gib = accelerator.usable_gib or accelerator.memory_gib
    return None if gib is None or accelerator.kind != "gpu" else gib * GIB
