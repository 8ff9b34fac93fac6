"""Step time on a GPU from the kernels scheduled by its compiler, with the roofline of modelled kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...offers.rows import Accelerator
from ..coefficients import load_coefficients
from ..device.accelerator_limits import compute_limits, find_generation, find_release_year
from ..framework_versions import NEWEST_SOFTWARE
from ..kernels.table import Kernel, build_kernel_table
from ..library_kernels import find_xla_converted_dtypes
from ..modelled_step import model_step
from ..run_config import compute_memory_pressure, compute_paging_s, name_user_stack
from ..step_time import NoPrediction


def compute_gpu_parts_s(
    rows: Iterable[Mapping[str, Any]],
    accelerator: Accelerator,
    *,
    precision: str,
    input_bytes: float,
    needed_bytes: int,
    slowdown: float,
    stack: str = "keras",
    software_year: float = NEWEST_SOFTWARE,
) -> dict[str, float] | NoPrediction:
    """Return the time of a step on one GPU by additive part [s].

    Fusions, padding and algorithms are the compiler's; efficiencies are those fitted for modelled kernels,
    and cuDNN's layout conversions are added. `slowdown` corrects their mean error on compiled rows.

    Args:
        rows: Kernels of the compilation result.
        accelerator: A row of the catalog.
        precision: Precision of the workload; `tf32` runs float32 products on tensor cores.
        input_bytes: Size of one batch, copied from the host [bytes].
        needed_bytes: Memory needed according to the compiler [bytes].
        slowdown: Measured over estimated time [-].
        stack: `keras`, or a vendor's `tuned` container.
        software_year: Release date of the framework [years].
    """
    converted = find_xla_converted_dtypes(accelerator, precision=precision)
    table = build_kernel_table((Kernel(**row) for row in rows), converted=converted)
    chip = compute_limits(accelerator, table=table, precision=precision)
    if isinstance(chip, NoPrediction):
        return chip
    step = model_step(
        table,
        chip,
        load_coefficients(),
        generation=find_generation(accelerator),
        stack=name_user_stack(stack, mode="train", compiled=True),
        host=stack,
        year=find_release_year(accelerator),
        compiled=True,
        input_bytes=input_bytes,
        pressure=compute_memory_pressure(needed_bytes, accelerator, share=1.0),
        paging_s=compute_paging_s(needed_bytes, accelerator),
        software_year=software_year,
    )
    return {name: part_s * slowdown for name, part_s in step.parts_s.items()}
