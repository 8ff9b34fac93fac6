"""Rows of a step that some frameworks launch primitive by primitive, having no kernel for the whole."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from ...workload.ops import Op, OpKind

__all__ = ["UnfusedPart", "split_unfused"]

UnfusedPart = Literal["calls", "updates"]
_PRODUCTS = (OpKind.CONV, OpKind.DEPTHWISE, OpKind.DOT)


def split_unfused(ops: Sequence[Op], *, parts: Collection[UnfusedPart]) -> tuple[list[Op], list[Op]]:
    """Return the rows whose kernels are whole, and those that are launched primitive by primitive.

    Products are whole, each in a group of its own.

    Args:
        ops: Of a traced workload.
        parts: Where a framework composes: in `calls` that it has no kernel for, in `updates` of variables.
    """

    def is_composed(op: Op) -> bool:
        composed = (op.composed and "calls" in parts) or (op.phase == "update" and "updates" in parts)
        return composed and op.kind not in _PRODUCTS

    groups = {op.layer_group for op in ops if op.layer_group >= 0 and is_composed(op)}
    whole = [op for op in ops if op.layer_group not in groups]
    return whole, [op for op in ops if op.layer_group in groups]
