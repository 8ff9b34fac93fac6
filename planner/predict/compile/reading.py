"""From a compiled module's text to what a time is worked out from: cycles by kind, or kernels."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import Any

from .hlo import Instruction, read_module

__all__ = ["facts_of"]

COLLECTIVES = (
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast",
)  # fmt: skip
# Instructions that no unit executes.
NOTHING = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
    "while", "call", "conditional", "opt-barrier", "add-dependency", "domain", "iota",
}  # fmt: skip


def facts_of(text: str, platform: str) -> dict[str, Any]:
    """Return the fields of `Compiled` that are read from the module's text.

    Args:
        text: Optimized HLO.
        platform: `tpu`: the compiler's cycles; `cuda`: kernels with their work.
    """
    module = read_module(text)
    if platform == "cuda":
        from .gpu_kernels import kernels_in

        return {"kernels": tuple(asdict(kernel) for kernel in kernels_in(module))}
    cycles: defaultdict[str, float] = defaultdict(float)
    unestimated: defaultdict[str, float] = defaultdict(float)
    sent: defaultdict[str, float] = defaultdict(float)
    for times, one, _ in module.executed():
        if one.opcode.startswith(COLLECTIVES) and not one.opcode.endswith("-done"):
            sent[one.opcode.removesuffix("-start")] += times * _largest(one)
        estimate = cycles_of(one)
        if one.opcode == "while" and module.trip_count(one) is None:
            unestimated["loop of unknown length, counted once"] += times
        if estimate > 0:
            cycles[kind_of(one)] += times * estimate
        elif one.opcode not in NOTHING:
            unestimated[one.opcode] += times
    return {"cycles": dict(cycles), "unestimated": dict(unestimated), "collective_bytes": dict(sent)}


def cycles_of(one: Instruction) -> float:
    """Return what libtpu estimates for one execution of an instruction; 0 where it estimates nothing [cycles]."""
    config = one.config
    found = config.get("window_config", {}).get("estimated_cycles") or config.get("estimated_cycles") or 0
    return float(found)


def _largest(one: Instruction) -> float:
    return float(sum(array.size_bytes for array in one.arrays))


def kind_of(one: Instruction) -> str:
    """Return what an instruction's time is booked under: the kind of fusion, or the opcode."""
    return one.attribute("kind") or one.opcode if one.opcode == "fusion" else one.opcode
