"""Attained rates of a chip, and overlap of arithmetic, memory traffic and host: caches, transforms, wall time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from ..records import Frozen
from .coefficients import (
    ERA_BEGAN,
    AcceleratorLimits,
    GenerationCoefficients,
    HostCoefficients,
    SharedCoefficients,
    StackCoefficients,
)
from .kernel_table import CONVOLUTIONS, KernelTable, find_products
from .measurements import SCALAR_EPOCH, SCALAR_PLATEAU, SOFTWARE_EPOCH, SOFTWARE_PLATEAU

T = TypeVar("T", bound=Frozen)
NOT_ZERO_BYTES = 1e-300  # added to a sum that may be 0; it changes no other sum [bytes]
_TINY_S = 1e-15  # keeps the gradient of 0^p finite


def soft_max(a: Any, b: Any, *, sharpness: float, xp: Any) -> Any:
    """Return the p-norm (a^p + b^p)^(1/p), a smooth maximum: the time of work that overlaps imperfectly.

    Args:
        a, b: Non-negative times [s], equal shapes.
        sharpness: p >= 1; 1 adds (no overlap), infinity is the maximum (perfect overlap) [-].

    Example:
        >>> import numpy as np
        >>> round(float(soft_max(3.0, 4.0, sharpness=2.0, xp=np)), 9)
        5.0
    """
    larger = xp.maximum(a, b)
    ratio = (xp.minimum(a, b) + _TINY_S) / (larger + _TINY_S)
    return larger * (1.0 + ratio**sharpness) ** (1.0 / sharpness)


def soft_min(a: Any, b: Any, *, sharpness: float) -> Any:
    """Return a smooth minimum, (a^-p + b^-p)^(-1/p), of two positive numbers.

    Example:
        >>> round(soft_min(1.0, 1.0, sharpness=6.0), 3), round(soft_min(1.0, 0.4, sharpness=6.0), 3)
        (0.891, 0.4)
    """
    return (a**-sharpness + b**-sharpness) ** (-1.0 / sharpness)


def memory_traffic_s(*, bytes_moved: Any, attainable_bytes_per_s: Any, l2_bytes: Any, l2_reuse: Any) -> Any:
    """Return the time of a kernel's memory traffic with second-level cache hits [s].

    t = B (1 - r C / (C + B)) / W with traffic B, cache size C, reuse r and bandwidth W: data left in the cache by
    the previous kernel is not read again.

    Args:
        bytes_moved: B, traffic of one launch [bytes].
        attainable_bytes_per_s: W, attainable bandwidth [bytes/s].
        l2_bytes: C, second-level cache [bytes].
        l2_reuse: r, share of cached data that is reused [-].

    A kernel without traffic takes no time, on a chip without a known cache as well.
    """
    missed = 1.0 - l2_reuse * l2_bytes / (l2_bytes + bytes_moved + NOT_ZERO_BYTES)
    return bytes_moved * missed / attainable_bytes_per_s


_WGRAD = CONVOLUTIONS.index("conv_wgrad")
_FILTER_BYTES = 4.0  # per element: cuDNN supports these algorithms on scalar units in float32 only


def transforms_s(
    table: KernelTable,
    chip: AcceleratorLimits,
    generation: GenerationCoefficients,
    *,
    bandwidth_bytes_per_s: Any,
    clock: Any,
    xp: Any,
) -> Any:
    """Return the time of Winograd's or Fourier transforms per launch of each contraction [s], array of [kernels].

    t = p_f B_f / R + p_a B_a / W with passes p_f over the filter of B_f bytes at rate R, and p_a over the arrays
    of B_a bytes at bandwidth W. Transformed filters and arrays are written and read again (Lavin and Gray, 2016,
    CVPR, section 4): F(4x4, 3x3) turns 9 filter elements into 36 and 16 array elements into 36, which is 8 more
    passes over a filter and 4.5 over an array if each is written and read once. Kernels that keep a tile in
    registers need fewer, Fourier tiles of 32x32 need more. The numbers of passes are fitted.

    Filter transforms are bound by instruction issue, not by memory, so R is proportional to cores and clock:
    fitted passes on K80, M60, P100, T4 and V100 then differ by up to 1.5 times, and up to 2 times with R
    proportional to bandwidth.

    Args:
        table: Contractions only.
        bandwidth_bytes_per_s: W, bandwidth for arrays [bytes/s].
        clock: Clock under load relative to the boost clock [-].
    """
    across = xp.where(table.category == _WGRAD, table.m, table.k)
    filter_bytes = across * table.n * _FILTER_BYTES
    issued_bytes_per_s = chip.memory_bytes_per_s / chip.memory_density * clock
    filters_s = generation.filter_passes * filter_bytes / issued_bytes_per_s
    arrays_s = generation.array_passes * table.bytes_moved / bandwidth_bytes_per_s
    return xp.where(table.winograd & chip.winograd & ~chip.tensor, filters_s + arrays_s, 0.0)


MOST_FITTED_PRESSURE = 1.6  # memory needed over memory usable, of the published steps that were fitted: 1.57
_NEVER_REACHED = 60.0  # of an exponent: keeps the growth of a step that does not fit finite


def compute_starved_s(device_s: Any, *, pressure: Any, shared: SharedCoefficients, paging_s: Any, xp: Any) -> Any:
    """Return the device's time of a step that may need more memory than there is, see `compute_step_s` [s]."""
    growth = shared.pressure_slope * xp.maximum(pressure - 1.0, 0.0)
    starved_s = device_s * xp.exp(xp.minimum(growth, _NEVER_REACHED))
    if paging_s is None:
        return starved_s
    most = xp.exp(shared.pressure_slope * (MOST_FITTED_PRESSURE - 1.0))
    return xp.minimum(starved_s, device_s * most + paging_s)


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
    is_ahead: bool = False,
) -> Any:
    """Return the wall time of a step: device work and host dispatch overlap, the rest is added [s].

    softmax(starved, launches dispatch) + fixed + input / feed, with excess e = max(pressure - 1, 0) and

        starved = min(device exp(slope e), device exp(slope e_1) + paging),   e_1 = `MOST_FITTED_PRESSURE` - 1

    If the host is a batch ahead, all of its time overlaps:

        softmax(starved, launches dispatch + fixed + input / feed)

    The growth without workspace was fitted up to `MOST_FITTED_PRESSURE`; beyond it a step takes no longer than one
    that keeps the rest of its arrays in the host's memory.

    Args:
        device_s: Sum over the kernels [s].
        launches: Dispatches by the host: 1 for a compiled program, else one per kernel outside libraries [-].
        input_bytes: One batch, copied from the host [bytes].
        pressure: Memory needed over memory usable [-].
        paging_s: Result of `compute_paging_s`; None without paging, as in the fit [s].
        is_ahead: Whether the host prepares a batch while the device computes, see `copies_ahead`.
    """
    starved_s = compute_starved_s(device_s, pressure=pressure, shared=shared, paging_s=paging_s, xp=xp)
    dispatch_s = launches * host.dispatch_s
    loop_s = host.fixed_s + input_bytes / host.feed_bytes_per_s
    if is_ahead:
        return soft_max(starved_s, dispatch_s + loop_s, sharpness=shared.host_sharpness, xp=xp)
    return soft_max(starved_s, dispatch_s, sharpness=shared.host_sharpness, xp=xp) + loop_s


_CLOCK_SHARPNESS = 6.0  # of the transition from the boost clock to the power-limited clock


def select_by_category(generation: GenerationCoefficients, names: tuple[str, ...], category: Any, xp: Any) -> Any:
    """Return the coefficient of each kernel by its category, array of [kernels]."""
    chosen = getattr(generation, names[0])
    for code, name in enumerate(names):
        if name != names[0]:
            chosen = xp.where(category == code, getattr(generation, name), chosen)
    return chosen


def select_rows(values: T, rows: Any) -> T:
    """Return a record of some rows of the last axis; scalars, and columns of one number a step, are kept."""
    cut = {
        name: value[..., rows]
        for name, value in vars(values).items()
        if getattr(value, "ndim", 0) and (value.ndim == 1 or value.shape[-1] != 1)
    }
    return type(values)(**vars(values) | cut) if cut else values


def clock_share(chip: AcceleratorLimits, shared: SharedCoefficients) -> Any:
    """Return the clock under load relative to the boost clock of datasheet peaks [-].

    softmin(1, headroom * base / boost): the base clock is sustained at the highest load within the power limit;
    training draws less power and runs above the base clock, up to the boost clock. Only boards with a low power
    limit (70 W) do not reach it.
    """
    return soft_min(1.0, shared.clock_headroom * chip.clock_ratio, sharpness=_CLOCK_SHARPNESS)


def with_software_year(
    software_year: Any, generation: GenerationCoefficients, shared: SharedCoefficients, *, year: Any, xp: Any
) -> GenerationCoefficients:
    """Return a generation's coefficients with the shares of the peaks that libraries of a year reach.

    Shares of tensor units are multiplied by g^(y - `SOFTWARE_EPOCH`), g = `tensor_per_year`; y is the year, not
    before `SOFTWARE_EPOCH` and not after `SOFTWARE_PLATEAU`. Shares of scalar units in products and convolutions,
    on chips since Volta, are multiplied by g^(y - `SCALAR_PLATEAU`), g = `scalar_per_year`; y is not before
    `SCALAR_EPOCH` and not after `SCALAR_PLATEAU`.

    Args:
        software_year: Release date of the framework [years].
        year: When the accelerator came out [years].
    """
    tensor_years = xp.clip(software_year, SOFTWARE_EPOCH, SOFTWARE_PLATEAU) - SOFTWARE_EPOCH
    scalar_years = xp.clip(software_year, SCALAR_EPOCH, SCALAR_PLATEAU) - SCALAR_PLATEAU
    tensor = shared.tensor_per_year**tensor_years
    scalar = shared.scalar_per_year ** xp.where(xp.asarray(year) >= ERA_BEGAN, scalar_years, 0.0)
    gains = dict.fromkeys(("conv_tensor", "dot_tensor"), tensor) | dict.fromkeys(
        ("conv", "conv_wgrad", "dot"), scalar
    )
    return replace(generation, **{name: getattr(generation, name) * gain for name, gain in gains.items()})


def find_sharpness(table: KernelTable, shared: SharedCoefficients, xp: Any) -> Any:
    """Return the sharpness of the overlap of two times, lower for matrix products than for convolutions [-]."""
    return xp.where(find_products(table.category), shared.dot_sharpness, shared.sharpness)


def compute_bandwidth_bytes_per_s(
    chip: AcceleratorLimits, stack: StackCoefficients, shared: SharedCoefficients, *, share: Any, xp: Any
) -> Any:
    """Return the attainable bandwidth: datasheet * ECC * share * stack / density^exponent [bytes/s]."""
    ecc = xp.where(chip.inline_ecc, shared.inline_ecc, 1.0)
    return chip.memory_bytes_per_s * ecc * share * stack.stream / chip.memory_density**shared.memory_density
