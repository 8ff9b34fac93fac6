"""Rows of a step from tracers of other backends: one operation, one kernel, no fusion."""

from __future__ import annotations

from typing import Any

from ...ops import Op


def build_unfused_op(*, bytes_read: float, bytes_written: float, number: int, **facts: Any) -> Op:
    """Build a row that is a separate kernel in every execution mode.

    Args:
        bytes_read, bytes_written: Bytes of one execution [bytes].
        number: Kernel number [-].
        facts: Other fields of `Op`.
    """
    return Op(
        layer="",
        bytes_read=bytes_read,
        bytes_written=bytes_written,
        layer_bytes_read=bytes_read,
        layer_bytes_written=bytes_written,
        fused_bytes_read=bytes_read,
        fused_bytes_written=bytes_written,
        layer_group=number,
        fused_group=number,
        **facts,
    )
