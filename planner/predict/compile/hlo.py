"""Parser of optimized HLO text: instructions, called computations, and executions per step.

The text is that of `jax.stages.Compiled.as_text()`. Parsed are name, type, opcode, operands and attributes of
every instruction. A test parses modules compiled by XLA and compares the counts with XLA's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

ITEM_BITS = {
    "pred": 8, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32, "s64": 64,
    "u64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128, "f8e4m3fn": 8, "f8e5m2": 8,
    "f4e2m1fn": 4, "token": 0, "opaque": 0,
}  # fmt: skip
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*->.*\{\s*$")
_LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r"\s*([\w\-]+)\(")
_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(
    r"\b(calls|body|condition|to_apply|branch_computations|called_computations)=\{?(%[^}\s]+)"
)
_DEVICES = re.compile(r"\bnum_partitions=(\d+)")
_RUNS_INSIDE = {
    "call",
    "while",
    "conditional",
    "async-start",
}  # run instruction by instruction, unlike a fusion


@dataclass(frozen=True, slots=True)
class Array:
    """Type and shape of an array."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements [-]."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Size without padding [bytes]."""
        return self.size * ITEM_BITS.get(self.dtype, 32) // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """An instruction.

    Args:
        arrays: Arrays of its result, flat for a tuple.
        operands: Names of operands.
        attributes: Text after the operands.
        literal: Value of a constant as text; empty for others.
    """

    name: str
    opcode: str
    arrays: tuple[Array, ...]
    operands: tuple[str, ...]
    attributes: str
    root: bool = False
    literal: str = ""

    @property
    def config(self) -> Mapping[str, Any]:
        """Return the back end's configuration; empty if there is none."""
        start = self.attributes.find("backend_config=")
        if start < 0:
            return {}
        try:
            found, _ = json.JSONDecoder().raw_decode(self.attributes[start + len("backend_config=") :])
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def called(self) -> Mapping[str, tuple[str, ...]]:
        """Return the called computations by role."""
        found: dict[str, tuple[str, ...]] = {}
        for role, names in _CALLED.findall(self.attributes):
            found[role] = tuple(_NAME.findall(names))
        return found

    def attribute(self, name: str) -> str:
        """Return an attribute's text up to the next comma outside braces; empty if it is missing."""
        start = re.search(rf"\b{name}=", self.attributes)
        if start is None:
            return ""
        rest = self.attributes[start.end() :]
        return rest[: _find_end(rest, ",")].strip('"')


@dataclass(frozen=True, slots=True)
class Module:
    """Computations by name, each with its instructions by name, in textual order.

    Args:
        computations: Computations by name.
        entry: Entry computation.
        devices: Devices that run the program together [-].
    """

    computations: Mapping[str, Mapping[str, Instruction]]
    entry: str
    devices: int = 1

    def executed(self) -> Iterator[tuple[float, Instruction, Mapping[str, Instruction]]]:
        """Yield every executed instruction with its executions per step and its surrounding computation.

        Loops run `trip_count` times (once if unknown); each branch of a conditional counts with its share.
        Fusions are not entered.
        """
        yield from self._within(self.entry, 1.0)

    def trip_count(self, loop: Instruction) -> float | None:
        """Return the iterations of a loop [-]: from the back end, or from a condition that counts from 0;
        else None.

        The TPU compiler gives none. Loops of `jax.lax.scan` count from 0 to a constant in the condition.
        """
        known = loop.config.get("known_trip_count")
        if isinstance(known, dict):
            return float(known.get("n", 1))
        for name in loop.called.get("condition", ()):
            condition = self.computations.get(name, {})
            root = next((one for one in condition.values() if one.root), None)
            if root is None or root.opcode != "compare" or root.attribute("direction") != "LT":
                continue
            bound = condition.get(root.operands[-1])
            if bound is not None and bound.literal.isdigit():
                return float(bound.literal)
        return None

    def _within(
        self, name: str, times: float
    ) -> Iterator[tuple[float, Instruction, Mapping[str, Instruction]]]:
        instructions = self.computations.get(name, {})
        for one in instructions.values():
            inside = one.called if one.opcode in _RUNS_INSIDE else {}
            yield times, one, instructions
            for role, names in inside.items():
                rounds = self.trip_count(one) or 1.0 if role in ("body", "condition") else 1.0
                share = 1.0 / len(names) if role == "branch_computations" else 1.0
                for called in names:
                    yield from self._within(called, times * rounds * share)


def parse_module(text: str) -> Module:
    """Parse a module.

    Example:
        >>> text = "ENTRY %main (p: f32[2,3]) -> f32[2,3] {\\n  ROOT %a = f32[2,3]{1,0} add(%p, %p), x={1}\\n}"
        >>> module = parse_module(text)
        >>> [(times, one.opcode, one.operands) for times, one, _ in module.executed()]
        [(1.0, 'add', ('p', 'p'))]
    """
    computations: dict[str, dict[str, Instruction]] = {}
    entry, current = "", {}
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header:
            current = computations.setdefault(header[2], {})
            entry = header[2] if header[1] else entry
            continue
        found = _parse_instruction(line)
        if found is not None:
            current[found.name] = found
    devices = _DEVICES.search(text.split("\n", 1)[0])
    return Module(computations, entry, int(devices[1]) if devices else 1)


def _parse_instruction(line: str) -> Instruction | None:
    start = _LINE.match(line)
    if start is None:
        return None
    rest = line[start.end() :]
    split = _find_end(rest, " ")
    opcode = _OPCODE.match(rest, split)
    if opcode is None:
        return None
    body = rest[opcode.end() :]
    close = _find_end(body, ")")
    return Instruction(
        name=start[2],
        opcode=opcode[1],
        arrays=tuple(_parse_arrays(rest[:split])),
        operands=tuple(_NAME.findall(body[:close])),
        attributes=body[close + 1 :],
        root=bool(start[1]),
        literal=body[:close] if opcode[1] == "constant" else "",
    )


def _parse_arrays(text: str) -> Iterator[Array]:
    for dtype, lengths in _ARRAY.findall(text):
        yield Array(dtype, tuple(int(part.lstrip("<=")) for part in lengths.split(",") if part))


def _find_end(text: str, stop: str) -> int:
    """Return the position of the first `stop` outside brackets, or the text's length."""
    depth = 0
    for index, character in enumerate(text):
        if depth == 0 and character == stop:
            return index
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
    return len(text)
