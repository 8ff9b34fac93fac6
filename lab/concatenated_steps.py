"""Kernels of several steps as one table: the form in which the lab fits and predicts many steps at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from gpuplan.predict.coefficients import AcceleratorLimits, field_names
from gpuplan.predict.kernel_table import CONTRACTIONS, KernelTable


def concatenate_kernels(
    tables: Sequence[KernelTable], chips: Sequence[AcceleratorLimits]
) -> tuple[KernelTable, AcceleratorLimits, Any]:
    """Return the kernels of several steps as one table, the limits of each, and the step that each belongs to.

    Args:
        tables: Kernels of each step.
        chips: Limits of the chip of each step.
    """
    import numpy as np

    lengths = [len(table.count) for table in tables]
    segment = np.repeat(np.arange(len(tables)), lengths)
    category = np.concatenate([table.category for table in tables])
    order = np.argsort(category >= len(CONTRACTIONS), kind="stable")

    def of_tables(name: str) -> Any:
        return np.concatenate([getattr(table, name) for table in tables])[order]

    def of_chips(name: str) -> Any:
        values = [getattr(chip, name) for chip in chips]
        if not any(getattr(value, "ndim", 0) for value in values):
            return np.array(values)[segment[order]]
        each = zip(values, lengths, strict=True)
        columns = [value if getattr(value, "ndim", 0) else np.full(n, value) for value, n in each]
        return np.concatenate(columns)[order]

    others: dict[str, Any] = {"contractions": sum(table.contractions for table in tables)}
    others |= {"operand": None, "operands": (), "dispatched": 0.0}
    arrays = {one.name: of_tables(one.name) for one in fields(KernelTable) if one.name not in others}
    table = KernelTable(**others, **arrays)
    limits = AcceleratorLimits(**{name: of_chips(name) for name in field_names(AcceleratorLimits)})
    return table, limits, segment[order]
