"""Utilization of an accelerator by the products of a step."""

from __future__ import annotations

from ..offers.rows import Accelerator
from ..units import TERA
from ..workload.model import Workload
from .device.accelerator_limits import TF32, peak_tflop_per_s
from .keras_defaults import find_execution_precision


def compute_peak_time_s(workload: Workload, accelerator: Accelerator, *, share: float = 1.0) -> float | None:
    """Return the time that the products of a step take at the datasheet's peak; None if that is unknown [s].

    Over the time of the step it is the model FLOPs utilization (Chowdhery et al., 2022, "PaLM", arXiv:2204.02311,
    appendix B): the peak is that of the precision in which most products run, and attention counts in full. What a
    script recomputes counts again, which makes it a utilization by hardware FLOPs.

    Args:
        workload: Step of one device.
        accelerator: Row of the catalog.
        share: Devices that do this work, at most 1 [-].
    """
    precision = find_execution_precision(workload, accelerator)
    in_tf32 = precision in TF32
    dtype = "float32" if in_tf32 else precision.removeprefix("mixed_")
    peak, _ = peak_tflop_per_s(accelerator, dtype, tf32=in_tf32)
    return workload.product_flops / (peak * share * TERA) if peak and workload.product_flops else None
