"""Rates that a chip attains under load with libraries of a year, and choices of coefficients by kernel."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from ..coefficients import (
    ERA_BEGAN,
    AcceleratorLimits,
    GenerationCoefficients,
    SharedCoefficients,
    StackCoefficients,
)
from ..framework_versions import SCALAR_EPOCH, SCALAR_PLATEAU, SOFTWARE_EPOCH, SOFTWARE_PLATEAU
from ..kernels.table import KernelTable, find_products
from .roofline import soft_min

_CLOCK_SHARPNESS = 6.0  # of the transition from the boost clock to the power-limited clock


def select_by_category(
    generation: GenerationCoefficients, names: tuple[str, ...], category: Any, xp: Any
) -> Any:
    """Return the coefficient of each kernel by its category, array of [kernels].

    Args:
        generation: Coefficients.
        names: Their names, in the order of the categories' codes.
        category: Codes, array of [kernels].
        xp: Array module.
    """
    chosen = getattr(generation, names[0])
    for code, name in enumerate(names[1:], start=1):
        chosen = xp.where(category == code, getattr(generation, name), chosen)
    return chosen


def select_rows(coefficients: Any, rows: Any) -> Any:
    """Return the coefficients of some rows; scalars are kept, arrays of [kernels] are indexed."""
    values = {field.name: getattr(coefficients, field.name) for field in fields(coefficients)}
    cut = {name: value[rows] for name, value in values.items() if getattr(value, "ndim", 0) == 1}
    return replace(coefficients, **cut) if cut else coefficients


def find_positions(rows: Any) -> Any:
    """Return the position of each row among the chosen ones, array of [rows]; of no meaning for others [-].

    Args:
        rows: Mask of the chosen ones.
    """
    return (rows.cumsum() - 1).clip(0)


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
        generation: Fitted coefficients of the generation.
        shared: Fitted shared coefficients.
        year: When the accelerator came out [years].
        xp: Array module.
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
