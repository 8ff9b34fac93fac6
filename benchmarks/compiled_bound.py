"""Lower bound of the error of compiled steps on GPUs with the best rate for each kind of kernel.

A bound, not a prediction: a factor for each kind of kernel is chosen on the very rows that it is judged by, so
that their mean error is the least that there is (a linear program, exact). Networks that the factors have not seen
would be further off. Nothing is compiled: the programs are those that `compiled_rows.py` kept.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from compiled_rows import beside_update, known, programs, suitable
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.coefficients import LAST_YEAR, load_coefficients
from gpuplan.predict.compile.compiled import CompiledStep
from gpuplan.predict.device.accelerator_limits import compute_limits, find_generation
from gpuplan.predict.kernels.table import CATEGORIES, Kernel, build_kernel_table
from gpuplan.predict.library_kernels import find_xla_converted_dtypes
from gpuplan.predict.measurements import Measurement
from gpuplan.predict.modelled_step import compute_kernel_times_s
from gpuplan.predict.run_config import find_software_year
from scipy.optimize import linprog

sys.path.append(str(Path(__file__).parents[1]))  # where lab/ is
from lab.kernel_store import build_run_key, load_store

KINDS = ("convolution", "product", "depthwise", "other")
WORST = 5  # steps that are named [-]


@dataclass(frozen=True)
class Row:
    """A published step, and what its kernels take by kind, on scalar and on tensor units [s]."""

    measurement: Measurement
    times_s: Any  # array of [2 * len(KINDS)]

    @property
    def shares(self) -> Any:
        """Return the times over the published one [-], array of [2 * len(KINDS)]."""
        return self.times_s / self.measurement.step_s


def kind_of(category: str) -> str:
    """Return the kind of a kernel of a category.

    Example:
        >>> kind_of("conv_wgrad"), kind_of("dot"), kind_of("stream")
        ('convolution', 'product', 'other')
    """
    named = {"dot": "product", "depthwise": "depthwise"}
    return "convolution" if category.startswith("conv_") else named.get(category, "other")


def row_of(m: Measurement, program: CompiledStep) -> Row:
    """Return the times of a program's kernels by kind."""
    accelerator = load_catalog().accelerators[m.accelerator]
    kernels = (*program.kernels, *beside_update(m, load_store()[build_run_key(m)]))
    converted = find_xla_converted_dtypes(accelerator, precision=m.precision)
    table = build_kernel_table((Kernel(**kernel) for kernel in kernels), converted=converted)
    chip: Any = compute_limits(accelerator, table=table, precision=m.precision)
    _, total_s, _, _ = compute_kernel_times_s(
        table,
        chip,
        load_coefficients(),
        generation=find_generation(accelerator),
        stack=m.stack,
        year=accelerator.year or LAST_YEAR,
        software_year=find_software_year(m),
    )
    kinds = np.array([KINDS.index(kind_of(name)) for name in CATEGORIES])[table.category]
    places = 2 * kinds + chip.tensor
    return Row(m, np.bincount(places, weights=total_s, minlength=2 * len(KINDS)))


def best_factors(rows: Sequence[Row]) -> Any:
    """Return the factors with the least mean error on some rows, array of [2 * len(KINDS)] [-].

    Minimizes the sum of |shares @ factors - 1| over factors of 0 and more.
    """
    shares = np.array([row.shares for row in rows])
    count, width = shares.shape
    beyond = np.block([[shares, -np.eye(count)], [-shares, -np.eye(count)]])
    found = linprog(
        np.concatenate([np.zeros(width), np.ones(count)]),
        A_ub=beyond,
        b_ub=np.concatenate([np.ones(count), -np.ones(count)]),
    )
    return found.x[:width]


def errors(rows: Sequence[Row], factors: Any) -> Any:
    """Return |predicted / published - 1| of each row [-]."""
    return np.abs(np.array([row.shares for row in rows]) @ factors - 1.0)


def main() -> int:
    """Print the mean error as it is, the least that factors leave, and the steps that none of them explains."""
    kept = programs()
    found = [(m, known(m, kept)) for m in suitable("cuda")]
    rows = [row_of(m, program) for m, program in found if program is not None]
    factors = best_factors(rows)
    as_is, least = errors(rows, np.ones_like(factors)), errors(rows, factors)
    print(f"{len(rows)} steps, their kernels alone")
    for name, each in (("as it is", as_is), ("with the best factors", least)):
        print(f"{name:22} mean {each.mean():6.1%}  median {np.median(each):6.1%}")
    occurs = np.array([row.times_s for row in rows]).any(axis=0)
    for place, factor in enumerate(factors):
        if not occurs[place]:
            continue
        units = "tensor" if place % 2 else "scalar"
        print(f"  {KINDS[place // 2]:12} {units} units: times {factor:.2f}")
    print("furthest off even so:")
    for error, row in sorted(zip(least, rows, strict=True), key=lambda pair: -pair[0])[:WORST]:
        m = row.measurement
        name = m.model.split(":")[-1].split("?")[0]
        print(f"  {name} {m.batch_size} {m.precision} {m.accelerator}: {error:.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
