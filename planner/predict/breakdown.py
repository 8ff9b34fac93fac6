"""Time breakdown of a step by kind of work and by layer, with the data for a roofline plot.

The time of a kernel that fuses operations of several layers is divided in proportion to their memory traffic.
Launch gaps, host, input and links belong to no layer and are listed by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..offers.rows import Accelerator
from ..records import Frozen
from ..units import GIGA, TERA
from ..workload.model import Workload
from ..workload.ops import PRODUCTS, Op, OpKind, change_op
from .accelerator_limits import TF32, peak_tflop_per_s
from .coefficients import Coefficients
from .executed_ops import find_keras_execution
from .keras_defaults import find_execution_precision
from .kernel_table import CONTRACTIONS
from .launches import moved_bytes
from .modelled_step import compute_kernel_times_s, place_step, stack_records
from .step_time import NoPrediction, StepTime

if TYPE_CHECKING:
    from .kernel_table import Kernel, KernelTable


LAYERS_KEPT = 24  # other layers are merged
OTHER_LAYERS = "other layers"
NO_LAYER = "outside of layers"
BUSY = ("compute", "memory bandwidth")  # the parts of a step that kernels are
Sums = tuple[float, float, float]  # time, work and traffic [s], [FLOP], [bytes]


class BreakdownRow(Frozen):
    """A share of a step."""

    name: str
    time_s: float  # of the central estimate [s]
    flops: float  # of one step [FLOP]
    bytes_moved: float  # to and from memory in one step [bytes]


class StepBreakdown(Frozen):
    """Time breakdown of a step on one device."""

    accelerator: str
    dtype: str  # number format of the products, for which the peak holds
    peak_flop_per_s: float  # datasheet peak of that type [FLOP/s]
    memory_bytes_per_s: float  # datasheet bandwidth [bytes/s]
    step_s: float
    parts_s: Mapping[str, float]  # time by limiter; the parts add up to the step [s]
    # time by kind of work, longest first; kernel times plus host time add up to the step
    kinds: tuple[BreakdownRow, ...]
    layers: tuple[BreakdownRow, ...]  # time by layer, longest first, the shortest combined
    source: str
    read_on: str


def break_down_step(
    workload: Workload, accelerator: Accelerator, step: StepTime, coefficients: Coefficients
) -> StepBreakdown | None:
    """Return the time breakdown of a step; None if limits of the chip or operations are unknown.

    Args:
        step: Prediction of any basis, to which the times of kernels are scaled.
    """
    execution = find_keras_execution(workload, accelerator)
    pairs = execution.group_ops(execution.select_ops(workload))
    table = execution.build_table(kernel for kernel, _ in pairs)
    busy_s = _busy_s(table, workload, accelerator, coefficients)
    flops: dict[str, float] = {"float32": 0.0}
    for kernel, _ in pairs:
        flops[kernel.dtype] = flops.get(kernel.dtype, 0.0) + kernel.flops * kernel.count
    dtype = max(flops, key=lambda name: flops[name])
    precision = find_execution_precision(workload, accelerator)
    peak, _ = peak_tflop_per_s(accelerator, dtype, tf32=precision == "tf32")
    if busy_s is None or peak is None or accelerator.memory_gb_per_s is None:
        return None
    scale = sum(step.parts_s.get(name, 0.0) for name in BUSY) / max(sum(busy_s), 1e-12)
    rows = list(_shares(pairs, [time_s * scale for time_s in busy_s], compiled=workload.compiled))
    idle = [
        BreakdownRow(name=name, time_s=time_s, flops=0.0, bytes_moved=0.0)
        for name, time_s in step.parts_s.items()
        if name not in BUSY and time_s > 0
    ]
    return StepBreakdown(
        accelerator=accelerator.name,
        dtype=dtype,
        peak_flop_per_s=peak * TERA,
        memory_bytes_per_s=accelerator.memory_gb_per_s * GIGA,
        step_s=step.time_s.mid,
        parts_s=step.parts_s,
        kinds=(*_summed((op.kind.value, part) for op, part in rows), *idle),
        layers=_longest(_summed((op.layer or NO_LAYER, part) for op, part in rows)),
        source=accelerator.source,
        read_on=accelerator.read_on.isoformat(),
    )


def _busy_s(
    table: KernelTable, workload: Workload, accelerator: Accelerator, coefficients: Coefficients
) -> list[float] | None:
    """Return the time of each kernel without its launch gap; None without limits or kernels [s]."""
    precision = find_execution_precision(workload, accelerator)
    given = place_step(table, accelerator, precision=precision, compiled=workload.compiled, input_bytes=0.0)
    if isinstance(given, NoPrediction) or not len(table.count):
        return None
    launch_s, total, _, _ = compute_kernel_times_s([given], stack_records([given.chip]), coefficients)
    return list((total - launch_s * table.count)[0].tolist())


def _shares(
    pairs: Sequence[tuple[Kernel, list[Op]]], busy_s: Sequence[float], *, compiled: bool
) -> Iterator[tuple[Op, Sums]]:
    """Yield each operation with its share of a kernel."""
    for (kernel, ops), time_s in zip(pairs, busy_s, strict=True):
        if len(ops) == 1:
            moved = [kernel.bytes_moved * kernel.count]
        else:
            moved = [moved_bytes(op, compiled=compiled) * op.count for op in ops]
        whole = sum(moved)
        for op, size in zip(ops, moved, strict=True):
            share = size / whole if whole > 0 else 1.0 / len(ops)
            is_copy = op.kind in PRODUCTS and kernel.category not in CONTRACTIONS
            worked = change_op(op, {"kind": OpKind.MOVE, "flops": 0.0}) if is_copy else op
            yield worked, (time_s * share, worked.flops * op.count, size)


def _summed(rows: Iterable[tuple[str, Sums]]) -> tuple[BreakdownRow, ...]:
    """Return the sums of rows with equal names, longest first."""
    sums: dict[str, Sums] = {}
    for name, (time_s, flops, size) in rows:
        t, f, b = sums.get(name, (0.0, 0.0, 0.0))
        sums[name] = (t + time_s, f + flops, b + size)
    parts = (BreakdownRow(name=n, time_s=t, flops=f, bytes_moved=b) for n, (t, f, b) in sums.items())
    return tuple(sorted(parts, key=lambda part: -part.time_s))


def _longest(parts: tuple[BreakdownRow, ...]) -> tuple[BreakdownRow, ...]:
    """Return the longest rows, and the sum of the others."""
    rest = parts[LAYERS_KEPT:]
    if not rest:
        return parts
    together = _summed((OTHER_LAYERS, (one.time_s, one.flops, one.bytes_moved)) for one in rest)
    return (*parts[:LAYERS_KEPT], *together)


def compute_peak_time_s(workload: Workload, accelerator: Accelerator, *, share: float = 1.0) -> float | None:
    """Return the time that the products of a step take at the datasheet's peak; None if that is unknown [s].

    Over the time of the step it is the model FLOPs utilization (Chowdhery et al., 2022, "PaLM", arXiv:2204.02311,
    appendix B): the peak is that of the precision in which most products run, and attention counts in full. What a
    script recomputes counts again, which makes it a utilization by hardware FLOPs.

    Args:
        share: Devices that do this work, at most 1 [-].
    """
    precision = find_execution_precision(workload, accelerator)
    in_tf32 = precision in TF32
    dtype = "float32" if in_tf32 else precision.removeprefix("mixed_")
    peak, _ = peak_tflop_per_s(accelerator, dtype, tf32=in_tf32)
    return workload.product_flops / (peak * share * TERA) if peak and workload.product_flops else None
