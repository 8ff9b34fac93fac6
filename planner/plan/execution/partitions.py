"""Steps divided by XLA over the devices of a layout in the user's code."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...predict.compile.compiled import CompiledStep, CompileFault

__all__ = ["NO_PARTITIONS", "Partitions", "find_partition"]

# By number of the `fit()` call and samples of a step over all devices.
Partitions = Mapping[tuple[int, int], CompiledStep | CompileFault]
NO_PARTITIONS: Partitions = MappingProxyType({})


def find_partition(
    partitions: Partitions, *, fit_call: int, global_batch_size: int
) -> CompiledStep | CompileFault:
    """Return the divided step of a phase, or why there is none.

    Args:
        partitions: The known ones.
        fit_call: Number of `fit()` calls before the phase [-].
        global_batch_size: Samples of a step over all devices [-].
    """
    known = partitions.get((fit_call, global_batch_size))
    if known is not None:
        return known
    return CompileFault(
        kind="failed", message=f"XLA was not asked to divide the step of {global_batch_size} samples"
    )
