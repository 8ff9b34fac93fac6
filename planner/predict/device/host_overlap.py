"""Wall time of a step from the times of its device and its host. Pure formulas over arrays."""

from __future__ import annotations

from typing import Any

from ..coefficients import HostCoefficients, SharedCoefficients
from ..kernels.table import KernelTable
from .roofline import soft_max

MOST_FITTED_PRESSURE = 1.6  # memory needed over memory usable, of the published steps that were fitted: 1.57
_NEVER_REACHED = 60.0  # of an exponent: keeps the growth of a step that does not fit finite


def count_dispatches(table: KernelTable, *, compiled: bool) -> float:
    """Return the host's dispatches per step: 1 for a compiled program, else one per kernel outside libraries."""
    return 1.0 if compiled else table.dispatched


def compute_step_s(
    *,
    device_s: Any,
    launches: Any,
    input_bytes: Any,
    pressure: Any,
    host: HostCoefficients,
    shared: SharedCoefficients,
    xp: Any,
    paging_s: Any = None,
) -> Any:
    """Return the wall time of a step: device work and host dispatch overlap, the rest is added [s].

    softmax(starved, launches dispatch) + fixed + input / feed, with excess e = max(pressure - 1, 0) and

        starved = min(device exp(slope e), device exp(slope e_1) + paging),   e_1 = `MOST_FITTED_PRESSURE` - 1

    The growth without workspace was fitted up to `MOST_FITTED_PRESSURE`; beyond it a step takes no longer than one
    that keeps the rest of its arrays in the host's memory.

    Args:
        device_s: Sum over the kernels [s].
        launches: Dispatches by the host [-].
        input_bytes: One batch, copied from the host [bytes].
        pressure: Memory needed over memory usable [-].
        host: Coefficients of the host: `fixed_s`, `dispatch_s`, `feed_bytes_per_s`.
        shared: Shared coefficients: `pressure_slope`, `host_sharpness`.
        xp: Array module.
        paging_s: Result of `compute_paging_s`; None without paging, as in the fit [s].
    """
    growth = shared.pressure_slope * xp.maximum(pressure - 1.0, 0.0)
    starved_s = device_s * xp.exp(xp.minimum(growth, _NEVER_REACHED))
    if paging_s is not None:
        most = xp.exp(shared.pressure_slope * (MOST_FITTED_PRESSURE - 1.0))
        starved_s = xp.minimum(starved_s, device_s * most + paging_s)
    dispatch_s = launches * host.dispatch_s
    overlapped_s = soft_max(starved_s, dispatch_s, sharpness=shared.host_sharpness, xp=xp)
    return overlapped_s + host.fixed_s + input_bytes / host.feed_bytes_per_s
