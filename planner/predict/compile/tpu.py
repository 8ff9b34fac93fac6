"""Time of a step on TPU chips from what their compiler says: cycles of one core, and what cycles leave out."""

from __future__ import annotations

from ..collectives import ring_all_reduce_s

__all__ = ["core_s", "slice_parts_s"]

# A ring all-reduce over a TPU's links, relative to all of them in one direction by datasheet. Assumed: the bound
# of a ring in one dimension of a torus of two is a half; XLA uses both dimensions, and no published row tells.
LINK_SHARE = 0.6


def core_s(*, cycles: float, clock_hz: float) -> float:
    """Return what the compiler's estimates take, one after the other [s].

    The estimates are those of libtpu's scheduler (`estimated_cycles` of the optimized HLO). They know fusion,
    layout, padding and on-chip memory; they know nothing of the host, of other chips, and of contention for HBM.

    Args:
        cycles: Of a step on one core [cycles].
        clock_hz: Of the core [1/s].

    Example:
        >>> core_s(cycles=94e6, clock_hz=940e6)
        0.1
    """
    return cycles / clock_hz


def slice_parts_s(
    *, compute_s: float, slowdown: float, fixed_s: float, gradient_bytes: float, cores: float,
    link_bytes_per_s: float | None,
) -> dict[str, float]:  # fmt: skip
    """Return a step of data-parallel cores by part, which add up [s].

    The cores work in step: each on its share of the batch, then gradients are summed before the update. XLA hides
    part of the exchange behind the backward pass; here none is hidden, which is the upper bound.

    Args:
        compute_s: `core_s` [s].
        slowdown: Measured over estimated, of the work on the core [-].
        fixed_s: Host and infeed, per step [s].
        gradient_bytes: What every core holds and wants summed [bytes].
        cores: All that share a step; 1 needs no link [-].
        link_bytes_per_s: What a chip sends in one direction by datasheet; None: unknown [bytes/s].

    Example:
        >>> parts = slice_parts_s(
        ...     compute_s=0.1, slowdown=1.1, fixed_s=0.001, gradient_bytes=0, cores=1, link_bytes_per_s=None)
        >>> round(sum(parts.values()), 6)
        0.111
    """
    parts = {"compute": compute_s * slowdown, "launch": fixed_s}
    if cores > 1 and link_bytes_per_s:
        parts["link"] = ring_all_reduce_s(
            message_bytes=gradient_bytes, devices=cores, link_bytes_per_s=link_bytes_per_s * LINK_SHARE
        )
    return parts
