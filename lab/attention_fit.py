"""Fit of the constants of fused attention on published kernels: regularized least squares on log time."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from gpuplan.offers.rows import Accelerator
from gpuplan.predict.accelerator_limits import compute_limits
from gpuplan.predict.coefficients import AcceleratorLimits
from gpuplan.predict.fused_attention import AttentionCoefficients, compute_attention_s
from gpuplan.predict.kernel_table import Kernel, KernelTable, build_kernel_table
from gpuplan.predict.roofline import soft_max
from gpuplan.predict.step_time import NoPrediction
from gpuplan.units import TERA
from gpuplan.workload.model import AttentionCall
from gpuplan.workload.trace.graph.layers import build_attention_product

from .concatenated_steps import concatenate_kernels

FILE = "attention_kernels.csv"
# Start and bounds; starts are instruction counts of FlashAttention-2's inner loop and orders of magnitude.
RANGES = {
    "tensor_share": (0.95, 0.7, 1.0),
    "forward_instructions": (4.0, 2.0, 12.0),
    "backward_instructions": (6.0, 2.0, 30.0),
    "forward_bytes": (0.125, 0.03, 0.5),
    "backward_bytes": (0.3, 0.01, 2.0),
    "backward_score_bytes": (16.0, 0.1, 60.0),
    "warp_sharpness": (2.0, 1.0, 8.0),
    "group_sharpness": (3.0, 1.0, 8.0),
    "forward_start_clocks": (3e3, 1e1, 3e4),
    "backward_start_clocks": (6e3, 1e1, 1e5),
}
PRIOR_LOG = 0.5  # spread of the prior around the starts, in log units
RESIDUAL_LOG = 0.1  # scale of the soft L1 loss of residuals
# Share of the datasheet's bandwidth that streams reach, and the overlap of arithmetic and traffic: those of matrix
# products, close to what is fitted on training steps. Traffic is a fifth of the shortest kernels.
BANDWIDTH_SHARE, TRAFFIC_SHARPNESS = 0.8, 3.0
BYTES = 2  # of an element
FORWARD_ARRAYS, BACKWARD_ARRAYS = 4, 8  # of queries' size that a pass reads and writes


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionKernel:
    """Published rate of one pass of fused attention.

    Args:
        accelerator: Name in the catalog.
        kernel: `FlashAttention-2`, or `cuDNN`, whose kernels multiply by warpgroups where the chip can.
        backward: Whether it is the backward pass.
        head_size, causal, batch, heads, length: Of the call; queries are as long as keys [-].
        flop_per_s: Rate, by the FLOPs that publishers count [FLOP/s].
        source: Publication.
    """

    accelerator: str
    kernel: str
    backward: bool
    head_size: int
    causal: bool
    batch: int
    heads: int
    length: int
    flop_per_s: float
    source: str

    @property
    def flops(self) -> float:
        """FLOPs as counted by publishers: 4 B h T^2 H forward, 2.5 times that backward, half if causal [FLOP]."""
        forward = 4.0 * self.batch * self.heads * self.length**2 * self.head_size
        return forward * (2.5 if self.backward else 1.0) / (2.0 if self.causal else 1.0)

    @property
    def time_s(self) -> float:
        """Time of the pass [s]."""
        return self.flops / self.flop_per_s


def read_attention_kernels() -> tuple[AttentionKernel, ...]:
    """Return the packaged rows."""
    text = (resources.files("gpuplan.profiles") / FILE).read_text(encoding="utf-8")
    return tuple(map(_parse, csv.DictReader(text.splitlines())))


def _parse(row: Mapping[str, str]) -> AttentionKernel:
    return AttentionKernel(
        accelerator=row["accelerator"],
        kernel=row["kernel"],
        backward=row["pass"] == "backward",
        head_size=int(row["head_size"]),
        causal=row["causal"] == "true",
        batch=int(row["batch"]),
        heads=int(row["heads"]),
        length=int(row["length"]),
        flop_per_s=float(row["tflop_per_s"]) * TERA,
        source=row["source"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    """Kernels with the limits of the chip of each, and the time of their traffic, arrays of [kernels] [s]."""

    table: KernelTable
    chip: AcceleratorLimits
    memory_s: Any


def predict_attention_s(
    rows: Sequence[AttentionKernel], accelerators: Mapping[str, Accelerator], coefficients: AttentionCoefficients
) -> Any:
    """Return the modelled time of each kernel, array of [rows] [s]."""
    return _predict_s(_build_inputs(rows, accelerators), coefficients)


def _predict_s(inputs: _Inputs, coefficients: AttentionCoefficients) -> Any:
    import numpy as np

    arithmetic_s = compute_attention_s(inputs.table, inputs.chip, clock=1.0, xp=np, coefficients=coefficients)
    return soft_max(arithmetic_s, inputs.memory_s, sharpness=TRAFFIC_SHARPNESS, xp=np)


def _build_inputs(rows: Sequence[AttentionKernel], accelerators: Mapping[str, Accelerator]) -> _Inputs:
    tables, chips = zip(*(_build_one(row, accelerators[row.accelerator]) for row in rows), strict=True)
    table, chip, _ = concatenate_kernels(tables, chips)
    memory_s = table.bytes_moved / (BANDWIDTH_SHARE * chip.memory_bytes_per_s)
    return _Inputs(table=table, chip=chip, memory_s=memory_s)


def _build_one(row: AttentionKernel, accelerator: Accelerator) -> tuple[KernelTable, AcceleratorLimits]:
    call = AttentionCall(
        dtype="bfloat16", head_size=row.head_size, queries=row.length, keys=row.length, causal=row.causal
    )
    product = build_attention_product(call, batch=row.batch * row.heads, backward=row.backward)
    arrays = BACKWARD_ARRAYS if row.backward else FORWARD_ARRAYS
    kernel = Kernel(
        category=f"attention_{product['variant']}",
        dtype="bfloat16",
        count=1.0,
        flops=product["flops"],
        bytes_moved=float(arrays * row.batch * row.heads * row.length * row.head_size * BYTES),
        m=product["m"],
        n=product["n"],
        k=product["k"],
        batch=product["batch"],
    )
    table = build_kernel_table([kernel], attention_kernel="warpgroup" if row.kernel == "cuDNN" else "warp")
    limits = compute_limits(accelerator, table=table, precision="bfloat16")
    if isinstance(limits, NoPrediction):
        raise ValueError(f"{row.accelerator}: {limits.reason}")
    return table, limits


def fit_attention(
    rows: Sequence[AttentionKernel], accelerators: Mapping[str, Accelerator]
) -> AttentionCoefficients:
    """Fit the constants; a chip's rows weigh the square root of their number, so that none prevails.

    Args:
        rows: Published kernels.
        accelerators: The catalog's, by name.
    """
    import numpy as np
    from scipy.optimize import least_squares

    inputs = _build_inputs(rows, accelerators)
    measured = np.log([row.time_s for row in rows])
    number = Counter(row.accelerator for row in rows)
    weight = np.array([number[row.accelerator] ** -0.25 for row in rows]) * len(rows) ** 0.25
    start, low, high = (np.log(column) for column in zip(*RANGES.values(), strict=True))

    def build(logs: Any) -> AttentionCoefficients:
        return AttentionCoefficients(**dict(zip(RANGES, map(float, np.exp(logs)), strict=True)))

    def residuals(logs: Any) -> Any:
        odd = np.log(_predict_s(inputs, build(logs))) - measured
        return np.concatenate([weight * odd / RESIDUAL_LOG, (logs - start) / PRIOR_LOG])

    return build(least_squares(residuals, start, bounds=(low, high), loss="soft_l1").x)
