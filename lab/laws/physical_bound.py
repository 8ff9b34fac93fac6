"""Physical bound of a step: no device can be faster, whatever software it runs.

t >= max(sum over operand types of F / P, compulsory bytes / W) with the datasheet's peaks P and bandwidth W.

* F are multiplications and additions of products that are executed. Winograd's algorithm F(4x4, 3x3) does 4 times
  fewer multiplications than are counted, F(2x2, 3x3) 2.25 times and F(2x2, 5x5) 2.8 times (Lavin and Gray, 2016,
  CVPR, section 4): convolutions that allow it count a quarter, at the better of both units. Elementwise work
  counts nothing, since it can run beside products and is counted by convention.
* Compulsory traffic are variables that are read, and in training written, once a step, and the batch. What the
  chip's own memory holds from the step before is neither read nor written again. Activations count nothing: a
  perfect fusion keeps them on the chip. For inference, variables are the weights of forward products: a table
  of embeddings is read in a few rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpuplan.offers.rows import Accelerator
from gpuplan.predict.accelerator_limits import peak_tflop_per_s
from gpuplan.predict.launches import WINOGRAD_FILTERS
from gpuplan.records import Frozen
from gpuplan.units import GIGA, MIB, TERA
from gpuplan.workload.model import Workload
from gpuplan.workload.ops import PRODUCTS, Op, OpKind

WINOGRAD_GAIN = 4.0  # F(4x4, 3x3): 36 multiplications for 144
# Memory on TPUs and NPUs that software manages, more than any has (TPU v4: 128 MiB of CMEM and 32 of VMEM; Jouppi
# et al., 2023, "TPU v4", ISCA, table 4); their rows in the catalog have no second-level cache.
SCRATCHPAD_BYTES = 256 * MIB


class LeastWork(Frozen):
    """Least work of a step: a lower bound for every implementation.

    Args:
        flops: Of products, by operand type and whether Winograd's algorithm applies, as counted [FLOP].
        read_bytes, written_bytes: Compulsory traffic [bytes].
    """

    flops: Mapping[tuple[str, bool], float]
    read_bytes: float
    written_bytes: float

    @property
    def product_flops(self) -> float:
        """All floating-point operations of products, as counted [FLOP]."""
        return sum(self.flops.values())


def count_least_work(workload: Workload, *, without_batch: Workload) -> LeastWork:
    """Return the least work of a step.

    Args:
        workload: At the batch size in question.
        without_batch: The same at batch size 0, by interpolation: what its products read are weights.
    """
    flops: dict[tuple[str, bool], float] = {}
    fused = workload.with_fused_attention  # a causal kernel leaves out half, a backward pass repeats a product
    for op in min((workload, fused), key=lambda one: one.flops_per_step).ops:
        if op.kind in PRODUCTS:
            key = (op.dtype, _allows_winograd(op))
            flops[key] = flops.get(key, 0.0) + op.flops * op.count
    memory = workload.memory
    if workload.mode == "train":
        variables = 4.0 * workload.trainable_parameters + memory.optimizer_bytes
        return LeastWork(flops=flops, read_bytes=variables + memory.input_bytes, written_bytes=variables)
    products = (op for op in without_batch.ops if op.kind in PRODUCTS)
    weights = min(float(memory.parameter_bytes), sum(op.bytes_read for op in products))
    return LeastWork(flops=flops, read_bytes=weights + memory.input_bytes, written_bytes=0.0)


def _allows_winograd(op: Op) -> bool:
    return op.kind is OpKind.CONV and op.kernel in WINOGRAD_FILTERS and set(op.stride) <= {1}


def compute_bound_s(least: LeastWork, accelerator: Accelerator, *, precision: str) -> float:
    """Return the least time of a step by the datasheet [s]; a rate that is not published bounds nothing."""
    on_chip = SCRATCHPAD_BYTES if accelerator.kind in ("tpu", "npu") else (accelerator.l2_mib or 0.0) * MIB
    traffic_bytes = max(0.0, least.read_bytes - on_chip) + max(0.0, least.written_bytes - on_chip)
    rate = accelerator.memory_gb_per_s
    products_s = sum(
        flops / _fastest_flop_per_s(accelerator, dtype, precision=precision, winograd=winograd)
        for (dtype, winograd), flops in least.flops.items()
    )
    return max(products_s, traffic_bytes / (rate * GIGA) if rate else 0.0)


def _fastest_flop_per_s(accelerator: Accelerator, dtype: str, *, precision: str, winograd: bool) -> float:
    peak, _ = peak_tflop_per_s(accelerator, dtype, tf32=precision == "tf32")
    if peak is None:
        return float("inf")
    scalar = accelerator.fp32_tflop_per_s or 0.0
    return max(peak, WINOGRAD_GAIN * scalar if winograd else 0.0) * TERA
