"""Step time on TPU chips from the compiler's cycles of one core, and time outside them."""

from __future__ import annotations

from ..multi_device.collectives import ring_all_reduce_s

# Bandwidth of a ring all-reduce relative to all links in one direction by datasheet. Assumed: a ring in one
# dimension of a 2D torus reaches at most half; XLA uses both dimensions, and no published row determines it.
LINK_SHARE = 0.6


def compute_core_s(*, cycles: float, clock_hz: float) -> float:
    """Return the total time of the compiler's estimates [s]: cycles / clock.

    The estimates are those of libtpu's scheduler (`estimated_cycles` of the optimized HLO). They include
    fusion, layout, padding and on-chip memory, but not the host, other chips, and contention for HBM.

    Args:
        cycles: Cycles of a step on one core [cycles].
        clock_hz: Clock of the core [1/s].

    Example:
        >>> compute_core_s(cycles=94e6, clock_hz=940e6)
        0.1
    """
    return cycles / clock_hz


def compute_slice_parts_s(
    *,
    compute_s: float,
    slowdown: float,
    fixed_s: float,
    gradient_bytes: float,
    cores: float,
    link_bytes_per_s: float | None,
) -> dict[str, float]:
    """Return the time of a step on data-parallel cores by additive part [s].

    Each core processes its share of the batch, then gradients are summed before the update. XLA overlaps part
    of the exchange with the backward pass; no overlap is assumed here, which is an upper bound.

    Args:
        compute_s: `core_s` [s].
        slowdown: Measured over estimated core time [-].
        fixed_s: Host and infeed time per step [s].
        gradient_bytes: Gradients to be summed, per core [bytes].
        cores: Cores that share a step; 1 needs no link [-].
        link_bytes_per_s: Link bandwidth of a chip in one direction by datasheet; None if unknown [bytes/s].

    Example:
        >>> parts = compute_slice_parts_s(
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
