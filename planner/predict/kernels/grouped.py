"""Grouped convolutions that cuDNN computes on scalar units though their operands suit tensor units."""

from __future__ import annotations

from typing import Literal

from .table import CONVOLUTIONS, Kernel

# Grouped convolutions of 16-bit operands with channels last that have kernels on tensor units: all of them, those
# of 32 groups (ResNeXt), those whose groups have 2^n channels.
FastGroups = Literal["all", "32", "powers of two"]
FAST_GROUPS = 32
SIXTEEN_BIT = ("float16", "bfloat16")


def is_direct(kernel: Kernel, fast: FastGroups) -> bool:
    """Return True for a grouped convolution by `conv2d_grouped_direct_kernel` of cuDNN or its backward passes.

    These compute depthwise convolutions too, each output by a thread on scalar units. On channels last they take
    most groups of 16-bit operands (profiles in github.com/pytorch/pytorch/issues/34977). Networks of a fixed
    number of groups are spared, those of a fixed number of channels a group are not (timm's author on PyTorch
    1.10, github.com/pytorch/pytorch/issues/70954). Since cuDNN 8.9 groups of 2^n channels are fast: RegNetY in
    timm's tables of inference with PyTorch 1.13 and 2.1 (profiles/published/timm_infer.csv), where groups of 24
    and 56 channels stay as slow as they were.

    Args:
        kernel: Any kernel; ``n`` of a convolution is the number of channels of a group in each of its passes.
        fast: Which groups have kernels on tensor units.
    """
    grouped = kernel.category in CONVOLUTIONS and kernel.batch > 1 and kernel.dtype in SIXTEEN_BIT
    if fast == "all" or not grouped:
        return False
    if fast == "32":
        return kernel.batch != FAST_GROUPS
    return kernel.n & (kernel.n - 1) != 0
