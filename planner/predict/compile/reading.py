"""From a compiled module's text to what a time is worked out from: cycles by kind, or kernels."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from .hlo import Instruction, Module, read_module

__all__ = ["facts_of", "group_size"]

COLLECTIVES = (
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast",
)  # fmt: skip
_COUNTED = re.compile(r"replica_groups=\[\d+,(\d+)\]")
_LISTED = re.compile(r"replica_groups=\{\{([\d,]+)\}")
Around = Mapping[str, Instruction]

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
    worked_on: defaultdict[str, float] = defaultdict(float)
    sent_bytes = 0.0
    for times, one, around in module.executed():
        for part, within in _collectives(one, around, module):
            worked_on[part.opcode.removesuffix("-start")] += times * _largest(part)
            sent_bytes += times * _sent(part, within, module.devices)
        estimate = cycles_of(one)
        if one.opcode == "while" and module.trip_count(one) is None:
            unestimated["loop of unknown length, counted once"] += times
        if estimate > 0:
            cycles[kind_of(one)] += times * estimate
        elif one.opcode not in NOTHING:
            unestimated[one.opcode] += times
    return {
        "cycles": dict(cycles), "unestimated": dict(unestimated), "collective_bytes": dict(worked_on),
        "sent_bytes": sent_bytes,
    }  # fmt: skip


def _collectives(one: Instruction, around: Around, module: Module) -> Iterator[tuple[Instruction, Around]]:
    """Yield the collective that an instruction is, or those that a fusion holds, each with what is around it."""
    if one.opcode.startswith(COLLECTIVES) and not one.opcode.endswith("-done"):
        yield one, around
    if one.opcode == "fusion":
        for name in one.called.get("calls", ()):
            inner = module.computations.get(name, {})
            for part in inner.values():
                yield from _collectives(part, inner, module)


def _sent(one: Instruction, around: Around, devices: int) -> float:
    """Return what a device sends in a collective on a ring [bytes].

    All-reduce: Patarasuk and Yuan, 2009, doi:10.1016/j.jpdc.2008.09.002; the others are its halves.
    """
    group = group_size(one, devices=devices)
    given = sum(array.size_bytes for name in one.operands if name in around for array in around[name].arrays)
    if one.opcode.startswith("all-reduce"):
        return 2.0 * (group - 1) / group * given
    if one.opcode.startswith("all-gather"):
        return float((group - 1) * given)
    if one.opcode.startswith(("reduce-scatter", "all-to-all")):
        return (group - 1) / group * given
    return float(given)


def group_size(one: Instruction, *, devices: int) -> int:
    """Return how many devices take part in a collective: groups are listed, or counted (`[2,4]<=[8]`) [-]."""
    counted = _COUNTED.search(one.attributes)
    if counted is not None:
        return int(counted[1])
    listed = _LISTED.search(one.attributes)
    return devices if listed is None else listed[1].count(",") + 1


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
