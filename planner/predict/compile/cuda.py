"""Time of a step on a GPU from the kernels that its compiler schedules: the roofline of modelled kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...offers.rows import Accelerator
from ..chip import chip_of, generation_of
from ..coefficients import load_coefficients
from ..kernels import Kernel, table_of
from ..predictor import model_step
from ..ranges import LAST_YEAR
from ..runs import converted_by_xla, pressure_of
from ..software import NEWEST_SOFTWARE
from ..steptime import Unpredicted

__all__ = ["gpu_parts_s"]


def gpu_parts_s(
    rows: Iterable[Mapping[str, Any]], accelerator: Accelerator, *, precision: str, input_bytes: float,
    needed_bytes: int, slowdown: float, stack: str = "keras", software_year: float = NEWEST_SOFTWARE,
) -> dict[str, float] | Unpredicted:  # fmt: skip
    """Return a step of one GPU by part, which add up [s].

    Fusions, padding and algorithms are the compiler's; efficiencies are those that were fitted for modelled
    kernels, and what cuDNN converts between layouts is added. What they are off by together, on compiled rows, is
    `slowdown`.

    Args:
        rows: The kernels, as they are kept in a compilation's result.
        accelerator: A row of the catalog.
        precision: Of the workload; `tf32` lets float32 products run on tensor cores.
        input_bytes: One batch, fed from the host [bytes].
        needed_bytes: As the compiler states it [bytes].
        slowdown: Measured over estimated [-].
        stack: `keras`, or a vendor's `tuned` container.
        software_year: When the framework was released [years].
    """
    converted = converted_by_xla(accelerator, precision=precision)
    table = table_of((Kernel(**row) for row in rows), converted=converted)
    chip = chip_of(accelerator, table=table, precision=precision)
    if isinstance(chip, Unpredicted):
        return chip
    step = model_step(
        table, chip, load_coefficients(), generation=generation_of(accelerator), stack=stack, host=stack,
        year=accelerator.year or LAST_YEAR, compiled=True, input_bytes=input_bytes,
        pressure=pressure_of(needed_bytes, accelerator, share=1.0), software_year=software_year,
    )  # fmt: skip
    return {name: part_s * slowdown for name, part_s in step.parts_s.items()}
