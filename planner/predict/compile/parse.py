"""Cycles by kind, or kernels, from a compiled module's text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import inf, isfinite, prod
from typing import Any

from .hlo import Instruction, Module, parse_module

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)
_COUNTED = re.compile(r"replica_groups=\[\d+,(\d+)\]")
# Axes of a mesh, and those along which a group lies; one of them may be a part of an axis.
_ALONG_AXES = re.compile(r"replica_groups=mesh\[(.*?)\].*?\{(.*?)\}")
_AXIS = re.compile(r"'([^']+)'(?:=|:\(\d+\))?(\d+)?")
_LISTED = re.compile(r"replica_groups=\{\{([\d,]+)\}")
Computation = Mapping[str, Instruction]
NOT_KNOWN = 2**63 - 1  # as an estimate of cycles: libtpu 0.0.42 on some products fused with reductions

# Instructions that are not executed.
NOT_EXECUTED = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
    "while", "call", "conditional", "opt-barrier", "add-dependency", "domain", "iota",
}  # fmt: skip


def parse_facts(text: str, platform: str) -> dict[str, Any]:
    """Parse the fields of `Compiled` in the module's text.

    Args:
        text: Optimized HLO.
        platform: `tpu` for the compiler's cycles, `cuda` for kernels with their work.
    """
    module = parse_module(text)
    if platform == "cuda":
        from .gpu_kernels import parse_kernels

        return {"kernels": tuple(kernel._asdict() for kernel in parse_kernels(module))}
    cycles: defaultdict[str, float] = defaultdict(float)
    unestimated: defaultdict[str, float] = defaultdict(float)
    worked_on: defaultdict[str, float] = defaultdict(float)
    sent_bytes = 0.0
    for times, one, around in module.executed():
        for part, within in _iter_collectives(one, around, module):
            worked_on[part.opcode.removesuffix("-start")] += times * _compute_result_bytes(part)
            sent_bytes += times * _compute_sent_bytes(part, within, module.devices)
        estimate = parse_cycles(one)
        if one.opcode == "while" and module.trip_count(one) is None:
            unestimated["loop of unknown length, counted once"] += times
        if estimate > 0:
            cycles[classify_instruction(one)] += times * estimate
        elif one.opcode not in NOT_EXECUTED:
            unestimated[one.opcode] += times
    return {
        "cycles": dict(cycles) if isfinite(sum(cycles.values())) else {},
        "unestimated": dict(unestimated),
        "collective_bytes": dict(worked_on),
        "sent_bytes": sent_bytes,
    }


def _iter_collectives(
    one: Instruction, around: Computation, module: Module
) -> Iterator[tuple[Instruction, Computation]]:
    """Yield the collectives of an instruction or of its fusion, each with its surrounding computation."""
    if one.opcode.startswith(COLLECTIVES) and not one.opcode.endswith("-done"):
        yield one, around
    if one.opcode == "fusion":
        for name in one.called.get("calls", ()):
            inner = module.computations.get(name, {})
            for part in inner.values():
                yield from _iter_collectives(part, inner, module)


def _compute_sent_bytes(one: Instruction, around: Computation, devices: int) -> float:
    """Return the data sent by a device in a ring collective [bytes].

    All-reduce: 2 (n - 1) / n × data (Patarasuk and Yuan, 2009, doi:10.1016/j.jpdc.2008.09.002); the others
    are its halves.
    """
    group = parse_group_size(one, devices=devices)
    given = sum(array.size_bytes for name in one.operands if name in around for array in around[name].arrays)
    if one.opcode.startswith("all-reduce"):
        return 2.0 * (group - 1) / group * given
    if one.opcode.startswith("all-gather"):
        return float((group - 1) * given)
    if one.opcode.startswith(("reduce-scatter", "all-to-all")):
        return (group - 1) / group * given
    return float(given)


def parse_group_size(one: Instruction, *, devices: int) -> int:
    """Return the number of devices in a collective [-].

    Groups are listed, counted (`[2,4]<=[8]`), or lie along axes of a mesh (`mesh['a'=2,'b'=4] {'b'}`, and
    `{'b':(1)2}` for a part of an axis).
    """
    placed = _ALONG_AXES.search(one.attributes)
    if placed is not None:
        sizes = {name: int(size) for name, size in _AXIS.findall(placed[1])}
        return prod(int(size or sizes[name]) for name, size in _AXIS.findall(placed[2]))
    counted = _COUNTED.search(one.attributes)
    if counted is not None:
        return int(counted[1])
    listed = _LISTED.search(one.attributes)
    return devices if listed is None else listed[1].count(",") + 1


def parse_cycles(one: Instruction) -> float:
    """Return libtpu's estimate for one execution of an instruction [cycles].

    0 where it makes none, infinity where its estimate is the largest integer: it has a cost, which is not known.
    """
    config = one.config
    found = config.get("window_config", {}).get("estimated_cycles") or config.get("estimated_cycles") or 0
    return inf if int(found) == NOT_KNOWN else float(found)


def _compute_result_bytes(one: Instruction) -> float:
    return float(sum(array.size_bytes for array in one.arrays))


def classify_instruction(one: Instruction) -> str:
    """Return the kind under which an instruction's time is summed: the kind of fusion, or the opcode."""
    return one.attribute("kind") or one.opcode if one.opcode == "fusion" else one.opcode
